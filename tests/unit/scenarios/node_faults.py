# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the node around the GPUs: the driver on disk and in the kernel, services, files, network, the boot."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.gpu_faults import BOTH, NO_GPU, REFUSED
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.scenario import red, scenario
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

FAILED = ("loaded", "failed", "failed", "exit-code", "enabled")
NEXT = "6.1.0-60-amd64"
MANAGERS = tuple("run/gpusim/sys/bus/pci/devices/0000:%02d:00.0" % bus for bus in (5, 6, 7, 8))
MANAGER = MANAGERS[0]
CDI = (
    "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: %s\n  containerEdits:\n    deviceNodes:\n"
    "    - path: /dev/nvidia0\n"
)
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
TASK = "4711 (nv_queue) D 2 0 0 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n" % 0x200040
COUNTED = {"gpu.count": "not counted", "gpu.on_bus": "2 GPUs"}
# What is not known as long as NVML does not answer.
SILENT = dict(
    COUNTED,
    **{
        "nvml.library_match": "not known",
        "driver.nvml": "not known",
        "driver.versions_agree": "the driver that NVML talks to",
    },
)
UNLOADED = dict(
    NO_GPU,
    **{"nvml.answers": "DRIVER_NOT_LOADED (9)", "driver.loaded": "not loaded", "node.device_nodes": "/dev/nvidiactl"},
)
LOG = (
    "gpu.xid",
    "gpu.fallen_off",
    "gpu.init_failed",
    "driver.client_mismatch",
    "node.sxid",
    "node.kernel_oops",
    "node.network_log",
    "node.storage_log",
)
ACROSS_BOOTS = {"gpu.persistence": red("is 0", *BOTH), "node.gdr_modules": "nvidia_peermem"}


def log_gone(word):
    return dict((ident, red(word, "node")) for ident in LOG)


def unit(name, state):
    """A unit is in another state; None: systemd says nothing of it."""
    return lambda world: world.units.update({"nvidia-%s.service" % name: state})


def broken(program):
    """From now on the program fails."""
    return lambda world: world.broken.update({program: 1})


def write(path, text):
    return lambda world: world.write(path, text)


def remove(*paths):
    return lambda world: [world.remove(path) for path in paths]


def unreadable(path):
    return lambda world: world.unreadable(path)


def log(text):
    return lambda world: world.sim("log", text, "--gpu", "1")


def daemon(name, version):
    return lambda world: world.daemons.update({name: version})


def free_bytes(path, size):
    """So much is free on the file system of a path; None: it cannot be read."""

    def make(world):
        (world.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        world.free_bytes[path] = size

    return make


def short_deadline(world):
    world.deadline_s = 1


def reloaded_as_open(world):
    """The same driver with its open kernel modules, loaded; what somebody had set is set again."""
    world.modules(w.DRIVER, "Dual MIT/GPL")
    world.unload()
    world.load()
    world.write_settings()


def secure_boot(world):
    """The firmware's variable: four bytes of attributes, and one that says on."""
    place = world.root / SECURE_BOOT
    place.parent.mkdir(parents=True)
    place.write_bytes(b"\6\0\0\0\1")


def waiting_task(world):
    """A queue of the driver, in the kernel, that waits and does not run."""
    world.write("proc/4711/stat", TASK)
    world.write("proc/4711/status", "Name:\tnv_queue\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t0\n")
    world.hung_window_s = 0.05


def another_kernel(world):
    world.write("boot/vmlinuz-" + NEXT, "")
    world.write("lib/modules/%s/modules.dep" % NEXT, "")


def two_of(name):
    """Another version beside the driver's, and no link that says which one is used."""

    def make(world):
        world.remove("%s/%s.so.1" % (w.LIBRARIES, name))
        world.write("%s/%s.so.%s" % (w.LIBRARIES, name, w.NEWER), "")

    return make


def without_snapshot(baseline):
    """A baseline that was taken while NVML did not answer."""
    return dict(baseline, snapshot=dict(baseline["snapshot"], status="timeout", gpus=[]))


def of_hardware(baseline):
    return dict(baseline, snapshot=dict(baseline["snapshot"], simulated=False))


def nothing(_world):
    """The node is well: what is asked of it is more than it has."""


def simulated_library(world):
    world.sim("inject", "library-missing")


SCENARIOS = (
    # ---- the reading and the baseline ----
    scenario(
        "the boot cannot be told",
        remove("proc/sys/kernel/random/boot_id"),
        {},
        dict(log_gone("boot None"), **{"reading.complete": "boot_id", "node.boot": "boot"}),
    ),
    scenario("no baseline after an upgrade", nothing, {}, {"baseline.usable": "none was given"}, baseline=None),
    scenario("the baseline of another kind of node", nothing, {"baseline.usable": "simulated"}, baseline=of_hardware),
    scenario(
        "values are worse, and the policy is strict",
        "inject vbios-changed --gpu 1",
        {"baseline.changes": "vbios_version"},
        rules={"strict": ["baseline.changes"]},
    ),
    scenario(
        "a reading without MIG instances of another boot",
        nothing,
        {},
        {"baseline.mig_free": "boot"},
        expect={"mig_free": "another boot"},
    ),
    # ---- NVML ----
    scenario(
        "NVML may not be used",
        "inject error nvmlInitWithFlags 4",
        dict(NO_GPU),
        dict(SILENT, **{"nvml.answers": REFUSED}),
    ),
    scenario(
        "NVML hangs",
        ("inject hang nvmlDeviceGetPowerUsage forever", short_deadline),
        dict(NO_GPU, **{"nvml.answers": "did not answer within 1 s"}),
        SILENT,
    ),
    scenario(
        "the libraries are of another version",
        "inject library-version " + w.NEWER,
        dict(
            NO_GPU,
            **{
                "nvml.answers": "LIB_RM_VERSION_MISMATCH (18)",
                "nvml.library_match": w.NEWER,
                "driver.library": w.NEWER,
                "driver.versions_agree": w.NEWER,
                "driver.libcuda": w.NEWER,
            },
        ),
        dict(COUNTED, **{"driver.nvml": "not known"}),
    ),
    scenario(
        "no library",
        simulated_library,
        dict(NO_GPU, **{"nvml.answers": "LIBRARY_NOT_FOUND (12)"}),
        dict(SILENT, **{"driver.library": "libnvidia-ml"}),
    ),
    scenario(
        "NVML does not tell its driver",
        "inject error nvmlSystemGetDriverVersion 4",
        {},
        {
            "driver.nvml": "not known",
            "driver.versions_agree": "NVML talks to",
            "gpu.gsp_version": red("580.95.05", *BOTH),
        },
        first_look=True,
    ),
    # ---- the phases of an upgrade ----
    scenario("the module is unloaded", w.World.unload, UNLOADED, SILENT),
    scenario(
        "the packages are half installed",
        (w.World.unload, "inject library-missing", "inject packages-half-installed"),
        dict(UNLOADED, **{"nvml.answers": "LIBRARY_NOT_FOUND (12)", "driver.reboot_safe": "dpkg was interrupted"}),
        dict(SILENT, **{"driver.library": "not known"}),
    ),
    scenario(
        "the module is for another kernel",
        (w.World.unload, "inject module-wrong-kernel", lambda world: setattr(world, "dkms", "added")),
        dict(
            UNLOADED,
            **{
                "driver.on_disk": "7.2.1-61-amd75",
                "driver.next_boot": "7.2.1-61-amd75",
                "driver.reboot_safe": "7.2.1-61-amd75",
                "driver.dkms": red("as 'added'", simnode.RELEASE),
            },
        ),
        SILENT,
    ),
    scenario(
        "the module is not signed",
        (w.World.unload, "inject module-unsigned", secure_boot),
        dict(UNLOADED, **{"driver.reboot_safe": "not signed"}),
        SILENT,
    ),
    scenario(
        "the driver was loaded anew",
        (w.World.unload, w.World.load, "inject persistence-lost", "inject mig-pending --gpu all"),
        {"gpu.persistence": red("is 0", *BOTH), "gpu.mig_pending": red("is 0 and becomes 1", *BOTH)},
    ),
    # ---- the driver ----
    scenario(
        "the upgrade never happened", nothing, {"driver.loaded": "all of it coherent; 590.48.01"}, expected=w.NEWER
    ),
    scenario(
        "the upgrade stopped after one package",
        lambda world: world.packages(dict(dict.fromkeys(w.PACKAGES, w.DRIVER), libcuda1=w.NEWER)),
        {
            "driver.nvml": "is 580.95.05",
            "driver.loaded": "is 580.95.05",
            "driver.library": "is 580.95.05",
            "driver.on_disk": "is 580.95.05",
            "driver.next_boot": "is 580.95.05",
            "driver.packages": "580.95.05",
            "driver.versions_agree": "libcuda is 580.95.05",
            "driver.gsp_firmware_file": "590.48.01",
            "driver.libcuda": "is 580.95.05",
            "node.fabric_manager_version": "is 580.95.05",
        },
        expected=w.NEWER,
    ),
    scenario(
        "no module is loaded, and none was asked for",
        w.World.unload,
        UNLOADED,
        dict(
            SILENT,
            **dict.fromkeys(
                (
                    "driver.library",
                    "driver.on_disk",
                    "driver.next_boot",
                    "driver.packages",
                    "driver.gsp_firmware_file",
                    "driver.libcuda",
                    "node.fabric_manager_version",
                ),
                "Which driver is loaded is not known",
            ),
        ),
        expected=None,
    ),
    scenario(
        "what is loaded cannot be read",
        (remove("run/gpusim/proc-driver/nvidia/version"), unreadable("run/gpusim/sys/module/nvidia/version")),
        {},
        {
            "driver.loaded": "loaded kernel module",
            "driver.versions_agree": "the loaded kernel module",
            "nvml.library_match": "not known",
        },
    ),
    scenario(
        "the module was not built",
        "inject module-not-built",
        {
            "driver.on_disk": "no NVIDIA kernel module on disk for kernel " + simnode.RELEASE,
            "driver.next_boot": simnode.RELEASE,
            "driver.reboot_safe": simnode.RELEASE,
        },
        {"driver.versions_agree": "on disk for the running kernel"},
    ),
    scenario(
        "the module on disk is for another kernel",
        "inject module-wrong-kernel",
        {
            "driver.on_disk": "made for kernel 7.2.1-61-amd75",
            "driver.next_boot": "made for kernel 7.2.1-61-amd75",
            "driver.reboot_safe": "7.2.1-61-amd75",
        },
    ),
    scenario(
        "a kernel without the module boots next",
        another_kernel,
        {
            "driver.next_boot": NEXT,
            "driver.dkms": red("as 'added' for kernel " + NEXT, NEXT),
            "driver.reboot_safe": NEXT,
        },
        {"driver.versions_agree": "boots next"},
    ),
    scenario(
        "modules cannot be looked at",
        broken("modinfo"),
        {},
        {
            "driver.on_disk": "running kernel",
            "driver.next_boot": "boots next",
            "driver.versions_agree": "on disk",
            "driver.reboot_safe": "modinfo",
        },
    ),
    scenario(
        "what boots next is not clear",
        write("boot/grub/grub.cfg", 'set default="nothing"\n'),
        {},
        {
            "driver.next_boot": "boots next",
            "driver.versions_agree": "boots next",
            "driver.dkms": "boots next",
            "driver.reboot_safe": "'nothing'",
        },
    ),
    scenario("dpkg was interrupted", "inject packages-half-installed libcuda1", {"driver.reboot_safe": "libcuda1"}),
    scenario("an unsigned module under Secure Boot", secure_boot, {"driver.reboot_safe": "not signed"}),
    scenario(
        "dpkg does not answer",
        broken("dpkg-query"),
        {},
        {"driver.packages": "cannot be listed", "driver.reboot_safe": "dpkg-query"},
    ),
    scenario(
        "a package is of another version",
        lambda world: world.packages(dict(dict.fromkeys(w.PACKAGES, w.DRIVER), libcuda1=w.NEWER)),
        {"driver.packages": "libcuda1 590.48.01"},
    ),
    scenario(
        "the packages are gone",
        lambda world: world.packages({"base-files": "12.4"}),
        {"driver.packages": "none is there now"},
    ),
    scenario(
        "the package database is empty",
        lambda world: world.packages({}),
        {},
        {"driver.packages": "cannot be listed", "driver.reboot_safe": "dpkg has no package"},
    ),
    scenario(
        "DKMS has it added only",
        lambda world: setattr(world, "dkms", "added"),
        {"driver.dkms": red("as 'added'", simnode.RELEASE)},
    ),
    scenario(
        "DKMS does not answer", broken("dkms"), {}, {"driver.dkms": red("dkms status answered rc 1", simnode.RELEASE)}
    ),
    scenario("no GSP firmware on disk", remove("lib/firmware/nvidia"), {"driver.gsp_firmware_file": w.DRIVER}),
    scenario(
        "nouveau took the GPUs",
        ("inject nouveau", "boot"),
        dict(
            UNLOADED,
            **{
                "driver.nouveau": "nouveau",
                "gpu.init_failed": red("probe routine failed", "node"),
                "node.gdr_modules": "nvidia_peermem",
            },
        ),
        SILENT,
    ),
    scenario(
        "modules cannot be listed",
        remove("run/gpusim/sys/module", "proc/modules"),
        {},
        {
            "driver.nouveau": "nouveau",
            "node.device_nodes": "loaded modules",
            "node.gdr_modules": "loaded kernel modules",
        },
    ),
    scenario("the open modules took the place of the others", reloaded_as_open, {"driver.flavour": "the open one"}),
    scenario(
        "the wrong modules on disk of Blackwell",
        lambda world: world.modules(w.DRIVER, "NVIDIA"),
        {"driver.flavour": red("are proprietary", "node")},
        model="b200",
    ),
    scenario(
        "a GPU does not tell its architecture",
        "inject error nvmlDeviceGetArchitecture 4 --gpu 1",
        {},
        {"driver.flavour": "architecture"},
    ),
    scenario(
        "no libcuda",
        remove(w.LIBRARIES + "/libcuda.so.1", w.LIBRARIES + "/libcuda.so." + w.DRIVER),
        {"driver.libcuda": "not installed"},
        {"driver.versions_agree": "libcuda"},
    ),
    scenario(
        "two of libcuda",
        two_of("libcuda"),
        {},
        {"driver.libcuda": "Several versions", "driver.versions_agree": "libcuda"},
    ),
    scenario(
        "a program with an older library",
        log(
            "NVRM: API mismatch: the client has the version 570.172.08, but\n"
            "NVRM: this kernel module has the version 580.95.05.  Please"
        ),
        {"driver.client_mismatch": "570.172.08"},
    ),
    # ---- files, services, network ----
    scenario(
        "the file of a GPU is gone",
        remove("dev/nvidia1"),
        {"gpu.device_node": "/dev/nvidia1", "node.device_nodes": "/dev/nvidia1"},
    ),
    scenario("the control file is gone", remove("dev/nvidiactl"), {"node.device_nodes": "/dev/nvidiactl"}),
    scenario(
        "what files should be like is not told",
        remove("run/gpusim/proc-driver/nvidia/params"),
        {},
        {"gpu.device_node": red("/dev/nvidia", *BOTH), "node.device_nodes": "/dev/nvidia"},
    ),
    scenario(
        "the fabric manager failed",
        unit("fabricmanager", FAILED),
        {"node.fabric_manager": "failed", "node.units": red("result exit-code", "nvidia-fabricmanager.service")},
    ),
    scenario(
        "systemd says nothing of the fabric manager",
        unit("fabricmanager", None),
        {},
        {
            "node.fabric_manager": "nvidia-fabricmanager.service",
            "node.units": red("nvidia-fabricmanager", "nvidia-fabricmanager.service"),
        },
    ),
    scenario(
        "systemd does not answer",
        broken("systemctl"),
        {},
        {"node.fabric_manager": "nvidia-fabricmanager", "node.units": "systemd's units"},
    ),
    scenario(
        "persistenced failed",
        unit("persistenced", FAILED),
        {"node.units": red("nvidia-persistenced", "nvidia-persistenced.service")},
    ),
    scenario(
        "the fabric manager is of another version",
        daemon("nv-fabricmanager", w.NEWER),
        {"node.fabric_manager_version": w.NEWER, "driver.versions_agree": "fabric manager is 590.48.01"},
    ),
    scenario(
        "the fabric manager does not tell its version",
        daemon("nv-fabricmanager", None),
        {},
        {"node.fabric_manager_version": "fabric manager", "driver.versions_agree": "the fabric manager"},
    ),
    scenario(
        "an NVSwitch is gone",
        remove("run/gpusim/sys/bus/pci/devices/0000:05:00.0"),
        {"node.nvswitches": "0000:05:00.0"},
    ),
    scenario(
        "the PCI bus cannot be listed",
        remove("run/gpusim/sys/bus"),
        {},
        {
            "gpu.on_bus": "PCI bus",
            "gpu.pcie_aer": red("PCIe errors", *BOTH),
            "node.nvswitches": "NVSwitches",
            "node.fabric_manager": "NVSwitches",
            "node.fabric_manager_version": "NVSwitches",
            "node.nvlink_managers": "vpd",
            "node.nvlink_modules": "vpd",
            "node.nvlsm": "vpd",
        },
    ),
    scenario(
        "an adapter of the NVLink switches is gone",
        remove(MANAGER),
        {"node.nvlink_managers": "0000:05:00.0"},
        model="b200",
    ),
    scenario(
        "adapters no longer say that they manage NVLink switches",
        lambda world: [world.write(name + "/vpd", "") for name in MANAGERS],
        {"node.nvlink_managers": "0000:08:00.0"},
        model="b200",
    ),
    scenario(
        "no adapter tells whether it manages NVLink switches",
        lambda world: [world.unreadable(name + "/vpd") for name in MANAGERS],
        {},
        {
            "node.nvlink_managers": "vpd",
            "node.fabric_manager": "NVLink switches",
            "node.fabric_manager_version": "NVLink switches",
            "node.nvlink_modules": "NVLink switches",
            "node.nvlsm": "NVLink switches",
        },
        model="b200",
    ),
    scenario(
        "no fabric manager where NVLink switches are managed",
        unit("fabricmanager", ("not-found", "inactive", "dead", "success", "")),
        {"node.fabric_manager": "not installed"},
        model="b200",
        first_look=True,
    ),
    scenario(
        "a module of the NVLink switches is not loaded",
        remove("run/gpusim/sys/module/ib_umad"),
        {"node.nvlink_modules": "ib_umad"},
        model="b200",
    ),
    scenario(
        "modules of the NVLink switches cannot be listed",
        remove("run/gpusim/sys/module", "proc/modules"),
        {},
        {
            "driver.nouveau": "nouveau",
            "node.device_nodes": "loaded modules",
            "node.gdr_modules": "loaded kernel modules",
            "node.nvlink_modules": "ib_umad",
        },
        model="b200",
    ),
    scenario("the NVLink Subnet Manager ended", remove(w.SUBNET_PROCESS), {"node.nvlsm": "does not run"}, model="b200"),
    scenario(
        "the NVLink Subnet Manager is not installed",
        remove(w.SUBNET_PROCESS, w.SUBNET_MANAGER),
        {"node.nvlsm": "package nvlsm"},
        model="b200",
    ),
    scenario(
        "no IMEX where it is asked for",
        nothing,
        {"node.imex": "not installed", "node.imex_version": "not installed"},
        rules={"imex_required": 1},
    ),
    scenario(
        "IMEX says nothing",
        (unit("imex", None), write("usr/bin/nvidia-imex", ""), daemon("nvidia-imex", None)),
        {},
        {
            "node.imex": "nvidia-imex.service",
            "node.imex_version": "IMEX",
            "node.units": red("nvidia-imex", "nvidia-imex.service"),
        },
        rules={"imex_required": 1},
    ),
    scenario(
        "an InfiniBand port is down",
        write(w.IB + "state", "1: DOWN\n"),
        {"node.infiniband": red("is DOWN", "mlx5_0/1"), "node.infiniband_active": "0 InfiniBand ports"},
        rules={"infiniband_active_ports_min": 1},
    ),
    scenario(
        "an InfiniBand port is slower",
        write(w.IB + "rate", "200 Gb/sec (4X HDR)\n"),
        {"node.infiniband": red("200 Gb/sec", "mlx5_0/1")},
    ),
    scenario(
        "an InfiniBand port does not tell its state",
        remove(w.IB + "state"),
        {},
        {"node.infiniband": red("mlx5_0/1", "mlx5_0/1"), "node.infiniband_active": "mlx5_0/1"},
        rules={"infiniband_active_ports_min": 1},
    ),
    scenario(
        "nvidia_peermem is not loaded",
        remove("run/gpusim/sys/module/nvidia_peermem"),
        {"node.gdr_modules": "nvidia_peermem"},
    ),
    scenario("no CDI where it is asked for", nothing, {"node.cdi": "/etc/cdi"}, rules={"cdi_required": 1}),
    scenario(
        "CDI is older than the GPUs",
        lambda world: world.write("etc/cdi/nvidia.yaml", CDI % world.uuid(0)),
        {"node.cdi": "not there is GPU-"},
        rules={"cdi_required": 1},
    ),
    scenario(
        "CDI names devices that tell nothing",
        write("etc/cdi/nvidia.yaml", CDI % "mine"),
        {},
        {"node.cdi": "mine"},
        rules={"cdi_required": 1},
    ),
    scenario(
        "CDI was cut off",
        write("etc/cdi/nvidia.yaml", "\n"),
        {},
        {"node.cdi": "/etc/cdi/nvidia.yaml"},
        rules={"cdi_required": 1},
    ),
    scenario(
        "a CUDA toolkit that the driver does not run",
        write("usr/local/cuda-99.0/version.json", '{"cuda": {"version": "99.0.1"}}'),
        {"node.cuda_toolkit": "99.0"},
        rules={"strict": ["node.cuda_toolkit"]},
    ),
    scenario(
        "a CUDA toolkit that is damaged",
        write("usr/local/cuda-13.0/version.json", "{"),
        {},
        {"node.cuda_toolkit": "/usr/local/cuda-13.0"},
    ),
    # ---- the kernel ----
    scenario(
        "the kernel died", write("proc/sys/kernel/tainted", "128\n"), {"node.kernel_taint": "D (the kernel died before"}
    ),
    scenario("the taint cannot be read", remove("proc/sys/kernel/tainted"), {}, {"node.kernel_taint": "taint"}),
    scenario(
        "the kernel broke in the driver",
        log("BUG: unable to handle page fault for address: 0\nRIP: 0010:nv_ioctl+0x1/0x2 [nvidia]"),
        {"node.kernel_oops": "unable to handle page fault"},
    ),
    scenario(
        "a network adapter is broken",
        log("mlx5_core 0000:5e:00.0: poll_health:756:(pid 0): Fatal error 1 detected"),
        {"node.network_log": "0000:5e:00.0"},
        rules={"strict": ["node.network_log"]},
    ),
    scenario(
        "a disk is broken",
        log("I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"),
        {"node.storage_log": "nvme0n1"},
        rules={"strict": ["node.storage_log"]},
    ),
    scenario("the log is gone", remove("dev/kmsg"), {}, log_gone("does not exist")),
    scenario("the log was overwritten", ("log one", "log --forget 1000"), {}, log_gone("holds no record")),
    scenario("the reboot did not happen", nothing, {"node.boot": "still in the boot"}, expect={"reboot": True}),
    scenario(
        "the node rebooted by itself",
        "boot",
        dict(ACROSS_BOOTS, **{"node.boot": "was rebooted"}),
        expect={"reboot": False},
    ),
    scenario(
        "the disk is full before a change",
        free_bytes("/var/lib", 3 << 20),
        {"node.room": "/var/lib/dkms"},
        expect={"room": True},
    ),
    scenario("a file system cannot be read", free_bytes("/usr", None), {}, {"node.room": "/usr"}),
    scenario("a task hangs in the driver", waiting_task, {"node.hung_tasks": "nv_queue (pid 4711)"}),
    scenario(
        "/proc cannot be read",
        unreadable("proc"),
        {},
        dict(
            log_gone("boot None"),
            **{
                "reading.complete": "boot_id",
                "gpu.device_node": red("/dev/nvidia", *BOTH),
                "node.device_nodes": "/dev/nvidia",
                "node.kernel_taint": "taint",
                "node.boot": "boot",
                "node.hung_tasks": "hang",
            },
        ),
    ),
)
