# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readers of the node around the GPUs: what is there, what is read and empty, and what cannot be read (None)."""

from __future__ import annotations

import errno
import json
import os
import stat

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import driver_files, system
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import loaded
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import (
    cdi,
    device_nodes,
    files,
    holders,
    hung,
    identity,
    infiniband,
    pcilink,
    switch_managers,
    units,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver import systemtree as tree
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import (
    Recorded,
    link,
    recorded,
    write,
)

pytestmark = pytest.mark.pythons


@pytest.fixture
def root(tmp_path):
    return tree.node(tmp_path)


@pytest.fixture
def forbid(monkeypatch):
    """Directories that are there and may not be listed, whoever asks."""
    real = os.listdir

    def forbidden(*paths):
        def listdir(path):
            if path in paths:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return real(path)

        monkeypatch.setattr(files.os, "listdir", listdir)

    return forbidden


def test_a_whole_node(root):
    runner = Recorded({"systemctl show": recorded("systemctl-show.txt")})
    found = system.read(root, runner)
    assert (
        found["schema"] == "gpufleet.system/1"
        and found["boot_id"] == tree.BOOT
        and found["uptime_s"] == 4567.89
        and found["taint"] == 12289
    )
    assert found["modules"] == ["nvidia", "nvidia_peermem"]
    assert (
        found["device_nodes"] == []
        and found["hung_tasks"] == []
        and found["cdi"] == {"specs": []}
        and found["toolkit"] == []
    )
    assert found["libcuda"]["version"] == tree.DRIVER
    assert [item["address"] for item in found["nvswitches"]] == [tree.SWITCH]
    assert found["fabricmanager"] == {"present": False, "version": None} and found["persistenced"] == {"present": False}
    assert len(runner.calls) == 1


def test_a_machine_that_says_nothing(tmp_path):
    found = system.read(str(tmp_path), Recorded({}))
    unread = sorted(key for key, value in found.items() if value is None)
    assert unread == [
        "boot_id",
        "device_nodes",
        "device_numbers",
        "device_params",
        "hung_tasks",
        "infiniband",
        "modules",
        "nvlink_managers",
        "nvswitches",
        "pci",
        "taint",
        "units",
        "uptime_s",
    ]


def test_nothing_is_written(root):
    def listing():
        return sorted((where, sorted(names), os.stat(where).st_mtime_ns) for where, dummy, names in os.walk(root))

    before = listing()
    system.read(root, Recorded({}))
    assert listing() == before


# ---- units ----


def test_units():
    runner = Recorded({"systemctl show": recorded("systemctl-show.txt")})
    found = units.read_units(runner)
    assert found["nvidia-persistenced.service"] == {
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "result": "success",
        "enabled": "enabled",
    }
    assert (
        found["nvidia-fabricmanager.service"]["load"] == "not-found"
        and found["nvidia-fabricmanager.service"]["enabled"] is None
    )
    assert found["nvidia-dcgm.service"]["active"] == "failed" and found["nvidia-dcgm.service"]["result"] == "exit-code"
    assert found["gpufleet-mig.service"]["active"] == "inactive"
    assert found["nvidia-imex.service"] is None, "systemd said nothing of it"
    assert len(runner.calls) == 1 and set(units.WATCHED) <= set(runner.calls[0])


def test_a_watched_alias_is_the_unit_it_stands_for(monkeypatch):
    monkeypatch.setattr(units, "WATCHED", ("nvidia-dcgm.service", "dcgm.service"))
    found = units.read_units(Recorded({"systemctl show": recorded("systemctl-show.txt")}))
    assert found["dcgm.service"] == found["nvidia-dcgm.service"] != {}


@pytest.mark.parametrize(
    "answer",
    [(1, "", "Failed to connect to bus"), (124, "", ""), (0, "", ""), (1, "Id=a.service\nLoadState=loaded\n", "")],
)
def test_systemd_that_cannot_be_asked(answer):
    assert units.read_units(Recorded({"systemctl show": answer})) is None
    assert units.read_units(Recorded({})) is None


# ---- device nodes ----


@pytest.fixture
def character_devices(monkeypatch):
    """lstat of a regular file below /dev answers that it is a character device; its text is MAJOR:MINOR."""
    real = os.lstat

    def lstat(path):
        found = real(path)
        if "/dev/" not in str(path) or not stat.S_ISREG(found.st_mode):
            return found
        with open(path, encoding="ascii") as stream:
            numbers = stream.read()
        if ":" not in numbers:
            return found
        major, minor = (int(part) for part in numbers.split(":"))
        values = list(found)
        values[0] = stat.S_IFCHR | stat.S_IMODE(found.st_mode)
        return os.stat_result(values, {"st_rdev": os.makedev(major, minor)})

    monkeypatch.setattr(device_nodes.os, "lstat", lstat)


def test_device_nodes(root, character_devices):
    for name, numbers in (
        ("nvidia0", "195:0"),
        ("nvidiactl", "195:255"),
        ("nvidia-uvm", "508:0"),
        ("nvidia-caps/nvidia-cap1", "234:1"),
        ("null", "1:3"),
    ):
        write(root, "/dev/" + name, numbers).chmod(0o660)
    write(root, "/dev/nvidia1", "no device").chmod(0o666)
    found = dict((item["path"], item) for item in device_nodes.read_device_nodes(root))
    assert sorted(found) == [
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidiactl",
    ]
    assert found["/dev/nvidiactl"] == {
        "path": "/dev/nvidiactl",
        "kind": "char",
        "mode": "0660",
        "uid": os.getuid(),
        "gid": os.stat(root + "/dev/nvidiactl").st_gid,
        "major": 195,
        "minor": 255,
    }
    assert found["/dev/nvidia1"]["kind"] == "file" and found["/dev/nvidia1"]["major"] is None
    missing = dict.fromkeys(["kind", "mode", "uid", "gid", "major", "minor"])
    assert device_nodes.describe(root, "/dev/nvidia9") == dict(missing, path="/dev/nvidia9")


def test_a_link_in_place_of_a_device_node(root):
    link(root, "/dev/nvidia0", "/dev/null")
    assert device_nodes.read_device_nodes(root)[0]["kind"] == "link"


def test_device_numbers_and_parameters(root):
    assert device_nodes.numbers(root) == {
        "nvidia-frontend": 195,
        "nvidiactl": 195,
        "nvidia-caps": 234,
        "nvidia-uvm": 508,
    }
    assert device_nodes.read_wanted_mode(root) == {"mode": "0660", "uid": 0, "gid": 44, "modify": True}
    write(root, "/proc/driver/nvidia/params", "DeviceFileMode: 438\n")
    assert device_nodes.read_wanted_mode(root) is None
    write(root, "/proc/devices", "Character devices:\n  1 mem\n")
    assert device_nodes.numbers(root) == {}


# ---- InfiniBand ----


def test_infiniband_ports(root, forbid):
    tree.port(
        root, "mlx5_1", state="1: DOWN", phys="2: Polling", rate="10 Gb/sec (4X SDR)", layer="Ethernet", downed="x"
    )
    found = infiniband.read_ports(root)
    assert found["mlx5_0/1"] == {
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
        "link_downed": 0,
    }
    assert found["mlx5_1/1"] == {
        "state": "DOWN",
        "phys_state": "Polling",
        "rate": "10 Gb/sec (4X SDR)",
        "link_layer": "Ethernet",
        "link_downed": None,
    }
    os.unlink(root + "/sys/class/infiniband/mlx5_0/ports/1/state")
    assert infiniband.read_ports(root)["mlx5_0/1"]["state"] is None
    forbid(root + "/sys/class/infiniband/mlx5_0/ports")
    assert infiniband.read_ports(root)["mlx5_0/?"] is None
    forbid(root + "/sys/class/infiniband")
    assert infiniband.read_ports(root) is None


def test_no_infiniband(tmp_path):
    assert infiniband.read_ports(str(tmp_path)) is None
    write(tmp_path, "/sys/class/net/lo/mtu", "65536")
    assert infiniband.read_ports(str(tmp_path)) == {}


# ---- PCI ----


def test_links_and_error_counts(root):
    links, switches = pcilink.read_links(root)
    assert sorted(links) == [tree.SWITCH, tree.GPU] and switches == [{"address": tree.SWITCH, "device": "0x2330"}]
    assert links[tree.GPU] == {
        "link_speed": "32.0 GT/s PCIe",
        "link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "aer": {"correctable": 7, "nonfatal": 1, "fatal": 0},
        "upstream": {"address": tree.PORT, "aer": {"correctable": 3, "nonfatal": 0, "fatal": 0}},
    }
    assert links[tree.SWITCH]["aer"] == {} and links[tree.SWITCH]["upstream"] is None


def test_error_counts_that_cannot_be_read(root):
    write(root, "/sys/bus/pci/devices/%s/aer_dev_fatal" % tree.GPU, "DLP 0\n")
    os.unlink(root + "/sys/bus/pci/devices/%s/current_link_width" % tree.GPU)
    (link_,) = [item for address, item in pcilink.read_links(root)[0].items() if address == tree.GPU]
    assert link_["aer"] is None and link_["link_width"] is None
    os.unlink(root + "/sys/bus/pci/devices/%s/aer_dev_fatal" % tree.GPU)
    assert pcilink.read_links(root)[0][tree.GPU]["aer"] is None, "one of three counters is gone"
    assert pcilink.counts(root + "/gone") is None
    assert pcilink.read_links(root + "/gone") == (None, None)


# ---- tasks ----


class Clock:
    """Time that only passes while somebody sleeps; what happens meanwhile is given as functions, one for each sleep."""

    def __init__(self, *events):
        self.now = 0.0
        self.events = list(events)
        self.slept = 0

    def sleep(self, seconds):
        self.now += seconds
        self.slept += 1
        if self.events:
            self.events.pop(0)()

    def __call__(self):
        return self.now


def look(root, *events):
    clock = Clock(*events)
    return hung.read_hung_tasks(root, 2.0, clock.sleep, clock), clock


def test_no_task_waits_and_nothing_is_waited_for(root):
    tree.task(root, 50, "python3", "S")
    tree.opens(root, 50, "/dev/nvidia0")
    tree.task(root, 51, "jbd2/sda1-8", "D", flags=0x208040)
    tree.task(root, 52, "dd", "D")
    found, clock = look(root)
    assert found == [] and clock.slept == 0


def test_a_task_that_stays_in_the_driver(root):
    tree.task(root, 60, "weird) D (name", "D")
    tree.opens(root, 60, "/dev/nvidia3")
    found, clock = look(root)
    assert found == [
        {"pid": 60, "process": 60, "comm": "weird) D (name", "state": "D", "seconds": 2.0, "where": "open /dev/nvidia3"}
    ]
    assert clock.slept == 4


def test_by_the_stack(root):
    base = tree.task(root, 61, "modprobe", "D")
    write(
        root,
        base + "/stack",
        "[<0>] __down_common+0x1\n[<0>] os_acquire_mutex+0x40 [nvidia]\n[<0>] nvidia_open+0x1 [nvidia]\n",
    )
    tree.task(root, 62, "nv_queue", "D", flags=0x208040)
    tree.task(root, 63, "nvme-wq", "D")
    tree.task(root, 64, "xfs-sync", "D", flags=0x208040)
    found, clock = look(root)
    assert [(item["pid"], item["where"]) for item in found] == [(61, "stack [nvidia]"), (62, "kernel thread")]


def test_a_task_that_waits_for_something_else_by_its_stack_is_not_in_the_driver(root):
    """Any user can have a process wait in state D: for a child of vfork(2), or for a file system of FUSE."""
    base = tree.task(root, 65, "python3", "D")
    tree.opens(root, 65, "/dev/nvidia0")
    write(root, base + "/stack", "[<0>] kernel_clone+0x1f4/0x4a0\n[<0>] __x64_sys_vfork+0x5e/0x80\n")
    assert look(root)[0] == []


def test_a_thread_beside_a_main_thread_that_sleeps(root):
    tree.task(root, 70, "trainer", "S", threads=2)
    tree.task(root, 70, "trainer", "S", path="/proc/70/task/70")
    tree.task(root, 71, "cuda-EvtHandlr", "D", path="/proc/70/task/71")
    tree.opens(root, 70, "/dev/nvidia-uvm")
    found, clock = look(root)
    assert [(item["pid"], item["process"], item["comm"]) for item in found] == [(71, 70, "cuda-EvtHandlr")]


@pytest.mark.parametrize("event", ["wakes", "runs", "ends", "another"])
def test_a_task_that_only_waits_for_a_moment(root, event):
    def happen():
        if event == "ends":
            os.unlink(root + "/proc/60/stat")
        else:
            tree.task(
                root,
                60,
                "other" if event == "another" else "smi",
                "R" if event == "wakes" else "D",
                switches=11 if event == "runs" else 10,
            )

    tree.task(root, 60, "smi", "D")
    tree.opens(root, 60, "/dev/nvidia3")
    found, clock = look(root, happen)
    assert found == [] and clock.slept == 1


def test_tasks_that_cannot_be_listed(tmp_path):
    assert hung.read_hung_tasks(str(tmp_path)) is None


def test_memory_maps_of_a_hung_task_are_never_read(root, monkeypatch):
    tree.task(root, 60, "smi", "D")
    tree.opens(root, 60, "/dev/nvidia3")
    real, read = files.read_text, []
    monkeypatch.setattr(files, "read_text", lambda path, *rest: read.append(path) or real(path, *rest))
    assert len(look(root)[0]) == 1
    assert [(item["pid"], item["devices"]) for item in holders.read_holders(root)] == [(60, ["/dev/nvidia3"])]
    assert read and not [
        path for path in read if "/60/" in path and path.endswith(("/maps", "/cmdline", "/environ", "/smaps"))
    ]


# ---- the kernel ----


@pytest.mark.parametrize(
    ("content", "expected"), [("4567.89 1.0\n", 4567.89), ("7\n", 7.0), ("", None), ("soon", None), ("-1 2", None)]
)
def test_uptime(tmp_path, content, expected):
    write(tmp_path, "/proc/uptime", content)
    assert loaded.read_uptime(str(tmp_path)) == expected


def test_boot_and_taint_that_are_damaged(tmp_path):
    write(tmp_path, "/proc/sys/kernel/random/boot_id", "none\n")
    write(tmp_path, "/proc/sys/kernel/tainted", "a lot\n")
    assert identity.read_boot_id(str(tmp_path)) is None and loaded.read_taint(str(tmp_path)) is None


def test_modules_by_proc_where_there_is_no_sys(tmp_path):
    write(tmp_path, "/proc/modules", "nvidia_uvm 1540096 0 - Live 0x0\nnvidia 56000000 2 nvidia_uvm, Live 0x0\n")
    assert loaded.read_modules(str(tmp_path)) == ["nvidia", "nvidia_uvm"]
    write(tmp_path, "/sys/module/kernel/parameters/panic", "0")
    assert loaded.read_modules(str(tmp_path)) == []


# ---- CUDA ----


def test_no_libcuda_and_two_of_them(root):
    write(root, "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.15")
    assert driver_files.read_libcuda(root)["version"] == tree.DRIVER, "the link decides"
    os.unlink(root + "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    found = driver_files.read_libcuda(root)
    assert found["version"] is None and len(found["candidates"]) == 2
    assert driver_files.read_libcuda(root + "/gone") == {"version": None, "path": None, "candidates": []}


def test_toolkits(root, forbid):
    write(root, "/usr/local/cuda-12.4/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}')
    write(root, "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15")
    link(root, "/usr/local/cuda", "cuda-12.4")
    write(root, "/usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\n")
    write(root, "/usr/local/cuda-11.8/bin/nvcc")
    write(root, "/usr/local/cuda-9.0/version.json", "{")
    write(root, "/usr/local/cuda-8.0/README")
    write(root, "/usr/local/cudart/version.txt", "1.0")
    assert driver_files.read_toolkits(root) == [
        {"path": "/usr/local/cuda-12.4", "version": "12.4.1", "compat": "550.54.15"},
        {"path": "/usr/local/cuda-10.2", "version": "10.2.89", "compat": None},
        {"path": "/usr/local/cuda-11.8", "version": "11.8", "compat": None},
        {"path": "/usr/local/cuda-9.0", "version": None, "compat": None},
    ]
    forbid(root + "/usr/local")
    assert driver_files.read_toolkits(root) is None


# ---- daemons ----


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ((0, "Fabric Manager version is : 535.261.03\n", ""), "535.261.03"),
        ((0, "IMEX version is: 580.65\n", ""), "580.65"),
        ((0, "", "version 1.2.3"), None),
        ((1, "Fabric Manager version is : 535.261.03\n", ""), None),
        ((124, "", "killed"), None),
    ],
)
def test_the_version_of_a_daemon(root, answer, version):
    write(root, "/usr/bin/nv-fabricmanager")
    path = files.under(root, "/usr/bin/nv-fabricmanager")
    runner = Recorded({path + " --version": answer})
    assert driver_files.read_daemon(root, runner, "nv-fabricmanager") == {"present": True, "version": version}
    assert runner.calls == [[path, "--version"]]


# ---- the switches of NVLink 5 ----


def adapter(root, address, vpd, vendor="0x15b3", kind="0x020700"):
    tree.pci_device(root, address, vendor, kind)
    if vpd:
        write(root, "/sys/bus/pci/devices/%s/vpd" % address, vpd)


def test_adapters_that_manage_nvlink_switches(root):
    """By their VPD: an adapter of the network has one that says another thing, a virtual function has none, and other
    vendors do not matter.
    """
    adapter(root, "0000:05:00.0", "\x82\x06\x00bridge\x90\x09\x00V0\x06SW_MNG\x78")
    adapter(root, "0000:06:00.0", "\x82\x03\x00nic\x78")
    adapter(root, "0000:06:00.1", None)
    adapter(root, "0000:07:00.1", "SW_MNG", vendor="0x8086")
    adapter(root, "0000:08:00.0", "SW_MNG", kind="0x020000")
    found = switch_managers.read_managers(root)
    assert [item["address"] for item in found["found"]] == ["0000:05:00.0", "0000:08:00.0"] and found["unread"] == []


def test_an_adapter_that_does_not_tell(root):
    adapter(root, "0000:05:00.0", None)
    link(root, "/sys/bus/pci/devices/0000:05:00.0/vpd", "vpd")
    assert switch_managers.read_managers(root) == {"found": [], "unread": ["0000:05:00.0"]}


def test_the_bus_cannot_be_listed(root, forbid):
    forbid(root + "/sys/bus/pci/devices")
    assert switch_managers.read_managers(root) is None


def test_the_nvlink_subnet_manager(root, forbid):
    assert switch_managers.subnet_manager(root) == {"present": False, "running": False}
    write(root, "/opt/nvidia/nvlsm/sbin/nvlsm")
    write(root, "/proc/77/comm", "nvlsm-helper\n")
    assert switch_managers.subnet_manager(root) == {"present": True, "running": False}
    write(root, "/proc/79/comm", "nvlsm\n")
    write(root, "/proc/79/status", "Uid:\t1000\t1000\t1000\t1000\n")
    assert switch_managers.subnet_manager(root) == {"present": True, "running": False}
    write(root, "/proc/78/comm", "nvlsm\n")
    write(root, "/proc/78/status", "Uid:\t0\t0\t0\t0\n")
    assert switch_managers.subnet_manager(root) == {"present": True, "running": True}
    forbid(root + "/proc")
    assert switch_managers.subnet_manager(root) == {"present": True, "running": None}


# ---- CDI ----


def test_cdi(root, forbid):
    write(root, "/etc/cdi/nvidia.yaml", tree.CDI % {"version": tree.DRIVER})
    write(root, "/etc/cdi/broken.yaml", "::")
    write(root, "/etc/cdi/notes.txt", "kind: nvidia.com/gpu")
    write(
        root,
        "/run/cdi/x.json",
        '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1", "containerEdits": '
        '{"deviceNodes": [{"path": "/dev/nvidia0"}]}}]}',
    )
    link(root, "/var/run", "/run")
    write(root, "/dev/nvidiactl")
    found = dict((item["path"], item) for item in cdi.read(root)["specs"])
    assert sorted(found) == ["/etc/cdi/broken.yaml", "/etc/cdi/nvidia.yaml", "/run/cdi/x.json"]
    assert found["/etc/cdi/nvidia.yaml"] == {
        "path": "/etc/cdi/nvidia.yaml",
        "kind": "nvidia.com/gpu",
        "devices": ["0", "all"],
        "conflicts": [],
        "overridden": [],
        "versions": [tree.DRIVER],
        "missing": ["/dev/nvidia0"],
    }
    assert found["/run/cdi/x.json"]["devices"] == ["GPU-1"] and found["/run/cdi/x.json"]["kind"] == "nvidia.com/gpu"
    assert found["/etc/cdi/broken.yaml"]["kind"] is None and found["/etc/cdi/broken.yaml"]["devices"] is None
    forbid(root + "/etc/cdi")
    assert cdi.read(root) is None


LIBRARY = "/usr/lib/libcuda.so.%s"


def cdi_file(*names, driver="580.1", **more):
    """A file of CDI as JSON: devices with a file of their own, and a library of all of them."""
    return json.dumps(
        dict(
            {
                "cdiVersion": "0.5.0",
                "kind": "nvidia.com/gpu",
                "devices": [
                    {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/" + name}]}} for name in names
                ],
                "containerEdits": {
                    "mounts": [{"hostPath": LIBRARY % driver, "containerPath": "/x", "options": ["bind"]}]
                },
            },
            **more,
        )
    )


# {file: text} and {file: its devices and versions, and the files that conflict with it}
CDI_FILES = [
    # A later directory overrides each device by itself, and a file without one hands over nothing.
    ({"etc/a": cdi_file("g0", driver="550.90"), "run/a": cdi_file("g0")}, {"etc/a": "", "run/a": "g0 580.1"}),
    (
        {"etc/a": cdi_file("g0", "g1", driver="550.90"), "run/a": cdi_file("g0")},
        {"etc/a": "g1 550.90", "run/a": "g0 580.1"},
    ),
    # Files of one directory conflict, also where a later directory has the device.
    ({"run/a": cdi_file("g0"), "run/b": cdi_file("g0")}, {"run/a": "!run/b", "run/b": "!run/a"}),
    ({"run/a": cdi_file("g0", "g1"), "run/b": cdi_file("g0")}, {"run/a": "g1 580.1 !run/b", "run/b": "!run/a"}),
    (
        {"etc/a": cdi_file("g0"), "etc/b": cdi_file("g0"), "run/a": cdi_file("g0")},
        {"etc/a": "!etc/b", "etc/b": "!etc/a", "run/a": ""},
    ),
    # Devices of another kind are others.
    (
        {"run/a": cdi_file("g0"), "run/b": cdi_file("g0", kind="nvidia.com/mig")},
        {"run/a": "g0 580.1", "run/b": "g0 580.1"},
    ),
    # What CDI refuses has no device, and conflicts with nothing.
    ({"run/a": cdi_file("g0", "g0"), "run/b": cdi_file("g0")}, {"run/a": "", "run/b": "g0 580.1"}),
    (
        {"run/a": cdi_file(devices=[{"name": "g0", "containerEdits": {"env": []}}]), "run/b": cdi_file("g0")},
        {"run/a": "", "run/b": "g0 580.1"},
    ),
    *(
        ({"run/a": cdi_file("g0", "g1", **more), "run/b": cdi_file("g0")}, {"run/a": "", "run/b": "g0 580.1"})
        for more in (
            {"cdiVersion": None},
            {"cdiVersion": "v0.5.0"},
            {"containerEdits": {"env": ["A"]}},
            {"containerEdits": {"deviceNodes": [{"path": ""}]}},
            {"containerEdits": {"deviceNodes": [{"path": "/dev/g1", "type": "x"}]}},
            {"containerEdits": {"mounts": [{"hostPath": LIBRARY % "580.1"}]}},
            {"containerEdits": {"hooks": [{"hookName": "never", "path": "/usr/bin/true"}]}},
            {"containerEdits": {"deviceNodes": [{"path": "/dev/g1", "minors": 1}]}},
            {"comment": "ours"},
        )
    ),
    # What is not read here is not known.
    ({"run/a": cdi_file("g0", cdiVersion="9.9.9")}, {"run/a": None}),
    ({"run/a": "kind: nvidia.com/gpu\ndevices: &all\n- name: g0\n"}, {"run/a": None}),
    ({"run/a": "kind: nvidia.com/gpu\ndevices:\n- name: |\n    g0\n"}, {"run/a": None}),
    ({"run/a": "kind: nvidia.com/gpu\ndevices: [{name: g0,\n"}, {"run/a": None}),
]


@pytest.mark.parametrize(("given", "expected"), CDI_FILES)
def test_which_file_of_cdi_gives_a_device(root, given, expected):
    for name, text in given.items():
        write(root, "/%s.json" % name.replace("/", "/cdi/"), text)
    found = {}
    for item in cdi.read(root)["specs"]:
        name = item["path"].replace("/cdi/", "/").strip("/")[: -len(".json")]
        told = [(item["devices"] or []) + item["versions"]] if item["devices"] is not None else None
        conflicts = ["!" + path.replace("/cdi/", "/").strip("/")[: -len(".json")] for path in item["conflicts"]]
        found[name] = told and " ".join(told[0] + conflicts)
    assert found == expected


EDITED = """---
# Written by hand.
cdiVersion: "0.5.0"
kind: 'nvidia.com/gpu'   # the kind
devices:
  - containerEdits:
      deviceNodes:
        - {path: /dev/nvidia0, hostPath: /driver/dev/nvidia0}
        -
          path: /dev/nvidia1
          type: c
          major: 195
          minor: 1
    name: 0
  - name: "all"
    containerEdits:
      mounts: [{hostPath: /driver/lib/libcuda.so.580.95.05, containerPath: /lib/x, options: [ro, bind]}]
containerEdits:
  env:
  - "A=it's: b"
  hooks:
  - hookName: createContainer
    args: ["nvidia-ctk", "hook", --link, a::b]
    path: /usr/bin/nvidia-ctk
  mounts:
  - containerPath: /tmp
    hostPath: tmpfs
"""


@pytest.mark.parametrize("present", [(), ("/driver/dev/nvidia0", "/usr/bin/nvidia-ctk")])
def test_the_paths_of_the_host_that_cdi_needs(root, present):
    write(root, "/etc/cdi/mine.yaml", EDITED)
    write(root, "/etc/cdi/mine.yml", EDITED)  # not an ending of CDI
    for path in present:
        write(root, path)
    (spec,) = cdi.read(root)["specs"]
    assert spec["devices"] == ["0", "all"] and spec["versions"] == ["580.95.05"]
    needed = {"/driver/dev/nvidia0", "/driver/lib/libcuda.so.580.95.05", "/usr/bin/nvidia-ctk"}
    assert set(spec["missing"]) == needed - set(present)
