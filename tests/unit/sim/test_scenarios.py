# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of an upgrade by name, faults that are files, and the call that nothing ends."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW
DPKG = "Package: %s\nStatus: install ok installed\nVersion: 1\n"


def tree(node):
    """Every file of the machine that a package or a build put there."""
    found = {}
    for base in ("usr/lib", "lib/modules", "var/lib/dpkg"):
        for folder, _folders, names in os.walk(str(node.root / base)):
            for name in names:
                path = os.path.join(folder, name)
                found[path] = os.readlink(path) if os.path.islink(path) else open(path, "rb").read()
    return found


@pytest.fixture
def installed(node):
    node.write(
        "var/lib/dpkg/status", "\n".join(DPKG % name for name in ("nvidia-driver", "libnvidia-ml1", "openssh-server"))
    )
    return node.booted("570.172.08")


def scenario(node, name, *arguments):
    return node.sim("scenario", name, *arguments).stdout


@pytest.mark.parametrize(
    "name, rc",
    [
        ("steady", 0),
        ("userspace-upgraded", 18),
        ("module-unloaded", 9),
        ("half-installed", 12),
        ("wrong-kernel", 9),
        ("module-unsigned", 9),
        ("settings-lost", 0),
        ("gpu-missing", 0),
        ("gpu-without-handle", 0),
        ("fabric-converging", 0),
        ("regression", 0),
    ],
)
def test_what_init_answers_and_back(installed, name, rc):
    before = tree(installed)
    scenario(installed, name)
    assert installed.init_rc() == rc
    scenario(installed, "steady")
    assert installed.init_rc() == 0
    assert tree(installed) == before
    assert installed.sim("list").stdout == ""


def test_all_of_them_are_listed_and_tested(node):
    listed = [line.split()[0] for line in node.sim("scenario").stdout.splitlines()]
    marks = test_what_init_answers_and_back.pytestmark[0].args[1]
    assert set(listed) == {name for name, _rc in marks} | {"hang", "hang-unkillable"}


def test_userspace_upgraded(installed):
    done = scenario(installed, "userspace-upgraded", "--driver", "580.95.05")
    job = int(done.split("process ")[1].split(")")[0])
    held = [os.readlink("/proc/%d/fd/%s" % (job, number)) for number in os.listdir("/proc/%d/fd" % job)]
    assert [name for name in held if "libnvidia-ml.so.570.172.08" in name]
    assert str(installed.root / "dev/nvidia0") in held
    assert installed.read("run/gpusim/sys/module/nvidia/version") == "570.172.08\n"
    assert os.path.realpath(str(installed.root / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1")).endswith(
        ".580.95.05"
    )
    scenario(installed, "steady")
    assert not os.path.exists("/proc/%d" % job) or open("/proc/%d/stat" % job).read().split()[2] == "Z"


def test_half_installed(installed):
    scenario(installed, "half-installed")
    states = {}
    for paragraph in installed.read("var/lib/dpkg/status").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in paragraph.splitlines())
        states[lines["Package"]] = lines["Status"]
    assert states == {
        "nvidia-driver": "install reinstreq half-installed",
        "libnvidia-ml1": "install reinstreq half-installed",
        "openssh-server": "install ok installed",
    }


@pytest.mark.parametrize("compress", [False, True])
def test_wrong_kernel(node, compress):
    node.kernel()
    node.module(compress=compress)
    node.library(OLD)
    node.sim("boot")
    assert "Exec format error" in scenario(node, "wrong-kernel")
    assert "version magic '7.2.1-61-amd75" in node.sim("kmsg").stdout
    scenario(node, "steady")
    assert node.init_rc() == 0


def test_settings_lost(installed):
    installed.ask(
        "[n.nvmlDeviceSetPowerManagementLimit(handle(), 500000), n.nvmlDeviceSetApplicationsClocks(handle(), 2619, "
        "1410), n.nvmlDeviceSetPersistenceMode(handle(), 1)]"
    )
    installed.sim("inject", "ecc-uncorrectable", "--gpu", "0")
    scenario(installed, "settings-lost")
    assert installed.ask(
        "[n.nvmlDeviceGetPowerManagementLimit(handle()), n.nvmlDeviceGetApplicationsClock(handle(), 1), "
        "n.nvmlDeviceGetPersistenceMode(handle()), n.nvmlDeviceGetTotalEccErrors(handle(), 1, 0), "
        "n.nvmlDeviceGetMigMode(handle())]"
    ) == [700000, 1980, 0, 0, [0, 1]]


def test_fabric_converging(installed, make_node):
    scenario(installed, "fabric-converging", "--value", "2")
    code = """
n.nvmlInit()
lib = ctypes.CDLL('libnvidia-ml.so.1')
states = []
for index in (0, 7):
    raw = ctypes.create_string_buffer(64)
    lib.nvmlDeviceGetGpuFabricInfo(handle(index), raw)
    states.append(raw.raw[24])
print(json.dumps(states))
"""
    assert [installed.python(code) for _look in range(3)] == [[2, 2], [2, 2], [3, 3]]
    refused = make_node("l4").booted().sim("scenario", "fabric-converging", check=False)
    assert refused.returncode == 2 and "no fabric" in refused.stderr


def test_regression(installed):
    installed.firmware("570.172.08")
    scenario(installed, "module-unloaded")
    scenario(installed, "regression")
    installed.tool("modprobe", "nvidia")
    question = (
        "[[n.nvmlDeviceGetCurrPcieLinkGeneration(handle(i)), n.nvmlDeviceGetNvLinkState(handle(i), 0), "
        "n.nvmlDeviceGetMemoryInfo(handle(i)).total >> 20, text(n.nvmlDeviceGetGspFirmwareVersion, handle(i))] "
        "for i in (0, 1)]"
    )
    assert installed.ask(question) == [[5, 1, 81559, "570.172.08"], [4, 0, 40779, "1.2.3"]]
    assert "16.0 GT/s" in installed.read("run/gpusim/sys/bus/pci/devices/0000:43:00.0/current_link_speed")


def test_what_holds_the_module_is_named(installed):
    installed.persistenced()
    refused = installed.sim("scenario", "module-unloaded", check=False)
    assert refused.returncode == 2 and "in use" in refused.stderr and "persistence daemon" in refused.stderr
    os.kill(int(installed.pid_file.read_text()), signal.SIGTERM)


# ---- calls that hang ----

CALL = "print('ready', flush=True)\nn.nvmlInit()\nn.nvmlDeviceGetPowerUsage(handle())\nprint('done', flush=True)\n"


def state_of(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stream:
        return stream.read().rsplit(")", 1)[1].split()[0]


def members_of(group):
    with open(group + "/cgroup.procs", encoding="ascii") as stream:
        return stream.read().split()


def test_a_call_that_hangs(installed):
    scenario(installed, "hang")
    command, environment = installed.client(CALL)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, universal_newlines=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        simnode.wait_for_a_hang(process.pid)
        process.kill()
        assert process.stdout.read() == ""
        assert process.wait() == -signal.SIGKILL


def freezer_is_there():
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:
        return any(
            " - cgroup " in line and "freezer" in line.rsplit(" ", 1)[1] and os.access(line.split()[4], os.W_OK)
            for line in stream
        )


def test_a_call_that_nothing_ends(installed):
    if not freezer_is_there():
        # The other half of the promise: it says so, and pretends nothing.
        refused = installed.sim("scenario", "hang-unkillable", check=False)
        assert refused.returncode == 2 and "no freezer of cgroup version 1" in refused.stderr
        assert installed.sim("list").stdout == ""
        return
    group = scenario(installed, "hang-unkillable").split("the group is ")[1].strip()
    assert os.path.isdir(group)
    command, environment = installed.client(CALL)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, universal_newlines=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            # On a busy machine a process that waits for the disk is in this state, too.
            simnode.wait_for(lambda: str(process.pid) in members_of(group) and state_of(process.pid) == "D")
            process.kill()
            assert signal.SIGKILL in simnode.signals(process.pid, "ShdPnd") and process.poll() is None, (
                "it is not taken"
            )
            assert state_of(process.pid) == "D"
            installed.sim("clear", "hang")
            assert process.wait() == -signal.SIGKILL
            assert process.stdout.read() == ""
        finally:
            # Else the end of the block waits for a process that nothing ends.
            installed.sim("clear")
    assert not os.path.exists(group)
    assert installed.sim("list").stdout == ""


def test_clearing_another_fault_does_not_thaw(installed):
    if not freezer_is_there():
        assert installed.sim("scenario", "hang-unkillable", check=False).returncode == 2
        return
    group = scenario(installed, "hang-unkillable").split("the group is ")[1].strip()
    try:
        installed.sim("inject", "gpu-hot", "--gpu", "1")
        installed.sim("clear", "gpu-hot")
        assert os.path.isdir(group)
    finally:
        installed.sim("clear")
    assert not os.path.exists(group)


# ---- faults that are files ----


@pytest.mark.parametrize("name, words, rc", [("library-missing", (), 12), ("library-version", ("580.95.05",), 18)])
def test_libraries(installed, name, words, rc):
    before = tree(installed)
    installed.sim("inject", name, *words)
    assert installed.init_rc() == rc
    assert name in installed.sim("list").stdout
    installed.sim("clear", name)
    assert installed.init_rc() == 0
    assert tree(installed) == before


def test_a_module_that_was_not_built(installed):
    before = tree(installed)
    installed.sim("inject", "module-not-built")
    assert installed.init_rc() == 0  # the loaded module stays, until a boot
    installed.sim("boot")
    assert installed.init_rc() == 9
    installed.sim("clear")
    assert tree(installed) == before
    assert not (installed.root / "var/lib/gpusim/aside").exists()


# ---- MIG, retired pages, repair ----


def test_mig_layouts(installed):
    layout = (
        "[n.nvmlDeviceGetName(n.nvmlDeviceGetMigDeviceHandleByIndex(handle(1), i))[-7:] for i in range(7)"
        " if rc(n.nvmlDeviceGetMigDeviceHandleByIndex, handle(1), i) == 0]"
    )
    installed.sim("mig", "--gpu", "1", "3g.40gb", "2g.20gb", "1g.10gb")
    assert installed.ask(layout) == ["3g.40gb", "2g.20gb", "1g.10gb"]
    installed.sim("inject", "mig-layout-lost", "--gpu", "1")
    assert installed.ask("[%s, n.nvmlDeviceGetMigMode(handle(1))]" % layout) == [[], [1, 1]]
    installed.sim("clear")
    assert len(installed.ask(layout)) == 3
    installed.sim("mig", "--gpu", "1")
    assert installed.ask("n.nvmlDeviceGetMigMode(handle(1))") == [0, 0]


def test_a_layout_that_does_not_fit(installed):
    refused = installed.sim("mig", "--gpu", "1", "4g.40gb", "4g.40gb", check=False)
    assert refused.returncode == 2 and "rc 23" in refused.stderr


# ---- lines of the log ----


@pytest.mark.parametrize(
    "words, line",
    [
        (
            ("xid", "94", "--gpu", "1", "--mig", "5"),
            "NVRM: Xid (PCI:0000:43:00 GPU-I:05): 94, pid='<unknown>', name=<unknown>, injected by gpusim",
        ),
        (
            ("xid", "154", "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "--gpu", "0"),
            (
                "NVRM: Xid (PCI:0000:1b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from "
                "0x0 (None) to 0x1 (GPU Reset Required)"
            ),
        ),
        (
            ("sxid", "20034", "LTSSM Fault Up", "--link", "7", "--fatal"),
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 07 LTSSM Fault Up",
        ),
        (("sxid", "12028"), "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 00 injected by gpusim"),
    ],
)
def test_lines(installed, words, line):
    installed.sim("inject", *words)
    assert installed.read("dev/kmsg").splitlines()[-1].split(";", 1)[1] == line
    assert installed.sim("list").stdout == ""
