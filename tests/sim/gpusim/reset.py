# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi --gpu-reset: which GPUs, what keeps them from it, and what a reset does to their state.

The refusals, statuses and rules are those of nvidia-smi(1) and of what operators report: 255 with "In use by another
client" while a process or persistence mode holds a GPU (NVIDIA/NVSentinel#1690), and while nvidia_drm does
(NVIDIA/mig-parted#181). No capture shows the words of the refusal for an incomplete set of NVLink peers, nor the status
of a board without reset: that one is nvidia-smi(1)'s "not available on target device".
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

from . import log, modules, state, sysfs

AMPERE = 7
IN_USE, NOT_SUPPORTED, UNKNOWN = "In use by another client", "Not Supported", "Unknown Error"
STATUS = {IN_USE: 255, NOT_SUPPORTED: 3, UNKNOWN: 255}
# What a GPU forgets, or has done, once it was reset, where a fault made it.
DONE = modules.VOLATILE + ("remap_pending", "channel_repair_pending", "reset_required")
RECOVERED = {"1": "GPU Reset Required", "4": "Drain and Reset"}
MODES = ("ecc_mode", "mig_mode")
# The fault reset-outcome: the tool refuses; says yes and does nothing, loses the GPU, or logs an XID; never ends.
OUTCOMES = ("fails", "ignored", "loses", "xid", "hangs")


def present() -> list[int]:
    """The GPUs in the order in which NVML counts them."""
    absent = sysfs.absent_gpus()
    return [gpu for gpu in range(state.gpu_count()) if gpu not in absent]


def chosen(wanted: list[str]) -> list[int] | None:
    """The GPUs of -i: by index, UUID, serial number or PCI address; None if one is none of this node's."""
    found = []
    for name in wanted:
        fitting = [
            gpu
            for index, gpu in enumerate(present())
            if name.lower()
            in (
                str(index),
                state.gpu_now(gpu, "uuid").lower(),
                state.gpu_now(gpu, "serial"),
                state.gpu_value(gpu, "pci"),
                state.sysfs_address(state.gpu_value(gpu, "pci")),
            )
        ]
        if not fitting:
            return None
        found += fitting
    return sorted(set(found)) if wanted else present()


def fabric_manager_runs() -> bool:
    """Below a directory that stands for a machine's root it does, unless a value says otherwise."""
    if state.root():
        return state.gpu_now(0, "fabric_manager", "1") == "1"
    return subprocess.run(["systemctl", "is-active", "--quiet", "nvidia-fabricmanager"], check=False).returncode == 0


def peers(gpus: list[int]) -> list[int]:
    """Return the GPUs that NVLink joins to these, and that have to be reset with them."""
    switches = state.described().getint("node", "nvswitches", fallback=0)
    linked = [gpu for gpu in present() if int(state.gpu_value(gpu, "nvlink_count", "0"))]
    old = any(int(state.gpu_value(gpu, "architecture", "0")) < AMPERE for gpu in gpus)
    together = old or bool(switches) and not fabric_manager_runs()
    return sorted(set(linked) - set(gpus)) if together and set(gpus) & set(linked) else []


def persistent(gpu: int) -> bool:
    """Whether persistence mode holds it: the node's setting, else what the daemon was told."""
    value = state.read(state.SETTINGS).get("gpu %d" % gpu, "persistence", fallback="")
    daemon = state.read(state.PERSISTENCED)
    if value:
        return value == "1"
    pid = daemon.get("persistenced", "pid", fallback="")
    on = daemon.get("persistenced", "mode", fallback="1") == "1"
    return bool(pid) and on and _comm(pid).startswith("nvidia-persiste")


def _comm(pid: str) -> str:
    try:
        with open("/proc/%s/comm" % pid, encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def held(gpu: int) -> bool:
    """Return whether the GPU is in use. The daemon lets go of one whose mode is off, which its stand-in does not."""
    if persistent(gpu) or state.read_text(state.SYS + "/module/nvidia_drm/parameters/modeset").strip() == "Y":
        return True
    device = state.path("/dev/nvidia%s" % state.gpu_value(gpu, "minor"))
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            files = [os.readlink("/proc/%s/fd/%s" % (pid, number)) for number in os.listdir("/proc/%s/fd" % pid)]
            if device in files and not _comm(pid).startswith("nvidia-persiste"):
                return True
    return False


def run(wanted: list[str]) -> int:
    """Reset the GPUs that -i names, or all, and return the exit status."""
    if os.geteuid() != 0 and not state.root():
        print("Insufficient permissions: resetting a GPU needs root (simulated).")
        return 4
    gpus = chosen(wanted)
    if not gpus:
        print("No devices were found")
        return 6
    outcomes = {gpu: state.gpu_now(gpu, "reset_outcome") for gpu in gpus}
    while "hangs" in outcomes.values():
        time.sleep(3600)
    missing = peers(gpus)
    if missing:
        print(
            "GPUs joined by NVLink have to be reset in the same command (simulated). Missing: %s"
            % ", ".join(_name(gpu) for gpu in missing)
        )
        return 255
    lost = [gpu for gpu in gpus if state.gpu_now(gpu, "lost") == "1"]
    if lost:
        print(
            "Unable to determine the device handle for GPU %s: GPU is lost.  Reboot the system to recover this GPU"
            % _name(lost[0])
        )
        return 15
    refused = {gpu: why for gpu, why in ((gpu, _refusal(gpu, outcomes[gpu])) for gpu in gpus) if why}
    if refused:
        return _refuse(refused)
    for gpu in gpus:
        if outcomes[gpu] != "ignored":
            apply(gpu)
        if outcomes[gpu] in ("loses", "xid"):
            _harm(gpu, outcomes[gpu])
        print("GPU %s was successfully reset." % _name(gpu))
    return 0


def _name(gpu: int) -> str:
    return state.gpu_value(gpu, "pci").upper()


def _refusal(gpu: int, outcome: str) -> str:
    if state.gpu_now(gpu, "reset_supported", "1") != "1":
        return NOT_SUPPORTED
    return IN_USE if held(gpu) else UNKNOWN if outcome == "fails" else ""


def _refuse(refused: dict[int, str]) -> int:
    print("The following GPUs could not be reset:")
    for gpu, why in refused.items():
        print("  GPU %s: %s" % (_name(gpu), why))
        if why == UNKNOWN:
            log.write(
                "NVRM: GPU %s: RmInitAdapter failed! (0x62:0xffff:2393)"
                % state.sysfs_address(state.gpu_value(gpu, "pci"))
            )
    busy = sum(why == IN_USE for why in refused.values())
    if busy:
        print(
            "\n%d device%s currently being used by one or more other processes (e.g., Fabric Manager, CUDA "
            "application, graphics application such as an X server, or a monitoring application such as another "
            "instance of nvidia-smi). Please first kill all processes using "
            "%s and all compute applications running in the system."
            % (busy, "s are" if busy > 1 else " is", "these devices" if busy > 1 else "this device")
        )
    return max(STATUS[why] for why in refused.values())


def _harm(gpu: int, outcome: str) -> None:
    address = state.sysfs_address(state.gpu_value(gpu, "pci"))[:-2]
    if outcome == "xid":
        log.write(
            "NVRM: Xid (PCI:%s): 119, pid='<unknown>', name=<unknown>, Timeout after 6s of waiting for RPC "
            "response from GPU0 GSP!" % address
        )
        return
    with state.locked():
        faults = state.read(state.FAULTS)
        faults["fault gpu-missing gpu%d" % gpu] = {"name": "gpu-missing", "gpu": str(gpu), "set.absent": "1"}
        state.write(state.FAULTS, faults)
    sysfs.write_pci()


def apply(gpu: int) -> None:
    """Let pending modes take effect and repairs be done; MIG instances, volatile error counts and settings are gone.

    The driver stays loaded, so that a MIG mode that its load keeps is kept.
    """
    before = state.gpu_now(gpu, "recovery_action", "0")
    name = "gpu %d" % gpu
    with state.locked():
        settings, inforom, faults = (state.read(file) for file in (state.SETTINGS, state.INFOROM, state.FAULTS))
        kept = {}
        for mode in MODES:
            place = _promote_fault(faults, gpu, mode)
            for parser in (settings, inforom):
                pending = parser.get(name, mode + "_pending", fallback=None) if place is None else place
                if parser.has_section(name):
                    parser.remove_option(name, mode + "_pending")
                if pending is None:
                    continue
                if parser is settings and mode == "mig_mode" and state.gpu_value(gpu, "mig_persistent") != "1":
                    kept[mode] = pending
                elif parser is inforom:
                    parser.read_dict({name: {mode: pending}})
        if settings.has_section(name):
            kept.setdefault("mig_mode", settings.get(name, "mig_mode", fallback=""))
            settings.remove_section(name)
        if kept.get("mig_mode"):
            settings.read_dict({name: {"mig_mode": kept["mig_mode"]}})
        _end_faults(faults, gpu)
        for file, parser in ((state.SETTINGS, settings), (state.INFOROM, inforom), (state.FAULTS, faults)):
            state.write(file, parser)
    sysfs.remove_capabilities(gpu)
    if before in RECOVERED:
        address = state.sysfs_address(state.gpu_value(gpu, "pci"))[:-2]
        log.write("NVRM: GPU at PCI:%s: %s" % (address, state.gpu_value(gpu, "uuid")))
        log.write(
            "NVRM: Xid (PCI:%s): 154, GPU recovery action changed from 0x%s (%s) to 0x0 (None)"
            % (address, before, RECOVERED[before])
        )


def _mine(section, gpu: int) -> bool:
    return section.get("gpu", "") == str(gpu)


def _promote_fault(faults, gpu: int, mode: str) -> str | None:
    """The mode that a fault makes pending; the fault is over then."""
    found = None
    for name in faults.sections():
        if _mine(faults[name], gpu) and "set.%s_pending" % mode in faults[name]:
            found = faults[name].pop("set.%s_pending" % mode)
            faults[name].pop("set." + mode, None)
    return found


def _end_faults(faults, gpu: int) -> None:
    for name in list(faults.sections()):
        section = faults[name]
        if not _mine(section, gpu):
            continue
        for key in DONE:
            section.pop("set." + key, None)
        if section.get("set.recovery_action") in RECOVERED:
            section.pop("set.recovery_action")
        left = any(key.startswith(("set.", "error.", "hang.", "ignore.")) for key in section)
        if section.get("cleared_by", "") == "load" or not left:
            faults.remove_section(name)
