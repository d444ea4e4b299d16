# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults by name: what each one does to the answers of the simulated hardware."""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess

from . import library, modules, state, sysfs

HANDLES = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleBySerial",
           "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetHandleByPciBusId_v2")


def _values(**values: object) -> dict[str, str]:
    return {"set." + key: str(value) for key, value in values.items()}


def _address(options) -> str:
    return state.sysfs_address(state.gpu_value(options.gpu or 0, "pci"))


def _not_brought_up(options):
    effects = {"error." + symbol: "15" for symbol in HANDLES}
    effects["kmsg"] = "NVRM: GPU %s: RmInitAdapter failed! (0x62:0xffff:2393)" % _address(options)
    return effects


def _lost(options):
    return {**_values(lost=1), "kmsg": "NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." % _address(options)[:-2],
            "cleared_by": "boot"}


def _missing(_options):
    return _values(absent=1)


def _ecc(options):
    return {**_values(ecc_vol_unc=options.value or 1, ecc_agg_unc=options.value or 1, sram_vol_unc=options.value or 1, sram_agg_unc=options.value or 1),
            "kmsg": "NVRM: Xid (PCI:%s): 95, pid='<unknown>', name=<unknown>, Uncontained: SRAM uncorrectable ECC error" % _address(options)[:-2]}


def _remap_pending(options):
    return {**_values(remap_pending=1, remap_unc=1),
            "kmsg": "NVRM: Xid (PCI:%s): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping" % _address(options)[:-2],
            "cleared_by": "load"}


def _remap_failed(options):
    return {**_values(remap_failure=1, remap_unc=8),
            "kmsg": "NVRM: Xid (PCI:%s): 64, pid='<unknown>', name=<unknown>, Row Remapper: failed to remap a row" % _address(options)[:-2]}


def _downtrain(options):
    best = int(state.gpu_value(options.gpu or 0, "pcie_gen_max", "4"))
    return _values(pcie_gen_current=options.value or best - 1, pcie_width_current=8)


def _power_limit(options):
    return _values(power_limit_mw=options.value or state.gpu_value(options.gpu or 0, "power_min_mw"))


def _error(options):
    symbol, code = options.words
    _known(symbol)
    return {"error." + symbol: code if options.after is None else "%s after %d" % (code, options.after)}


def _hang(options):
    symbol, seconds = options.words
    _known(symbol)
    if seconds != "forever" and not re.fullmatch(r"\d+(\.\d+)?", seconds):
        raise state.SimError("hang needs a number of seconds or 'forever', not '%s'" % seconds)
    return {"hang." + symbol: seconds}


def _missing_symbol(options):
    _known(options.words[0])
    return {"missing": options.words[0]}


def _set(options):
    key, value = options.words
    return {"set." + key: value}


def _load_fails(options):
    reason = options.words[0] if options.words else "no-device"
    if reason not in modules.ERRORS:
        raise state.SimError("module-load-fails knows the reasons %s, not '%s'" % (", ".join(modules.ERRORS), reason))
    return {"load_error": reason}


def _known(symbol: str) -> None:
    if re.fullmatch(r"field\.\d+", symbol):
        return
    if os.path.exists(state.path(library.PRISTINE)) and symbol not in library.symbols():
        raise state.SimError("the simulated library has no function %s" % symbol)


# name -> (words it takes, needs a GPU, what it does, effects)
CATALOGUE = {
    "gpu-not-brought-up": ((), True, "the driver (--driver V: only that version) does not bring the GPU up: no handle, rc 15", _not_brought_up),
    "gpu-lost": ((), True, "the GPU fell off the bus: every call answers rc 15, until a boot", _lost),
    "gpu-missing": ((), True, "the GPU is gone from NVML and the PCI bus: one GPU fewer", _missing),
    "ecc-uncorrectable": ((), True, "uncorrectable ECC errors (--value N), XID 95", _ecc),
    "remap-pending": ((), True, "a row waits for remapping, XID 63, until the driver is loaded again", _remap_pending),
    "remap-failed": ((), True, "a row could not be remapped, XID 64", _remap_failed),
    "recovery-action": ((), True, "field 230 asks for a recovery (--value, default 2: reboot); drivers from R570 answer it",
                        lambda options: _values(recovery_action=options.value or 2)),
    "nvlink-down": ((), True, "NVLinks are inactive (--link N, default 0)", lambda options: _values(nvlink_down=options.link)),
    "pcie-downtrain": ((), True, "PCI Express runs one generation lower (--value: that one) and 8 lanes wide", _downtrain),
    "power-limit-lost": ((), True, "the power limit reads the lowest the board takes, or --value mW", _power_limit),
    "persistence-lost": ((), False, "persistence mode reads 0 even while the daemon runs", lambda options: _values(persistence=0)),
    "mig-pending": ((), True, "MIG mode waits for a reset: pending is not current", lambda options: _values(mig_mode_pending=1)),
    "clocks-slowed": ((), True, "clock event reason hardware slowdown (--value BITS, default 0x48)",
                      lambda options: _values(clocks_event_reasons=options.value or 0x48)),
    "fabric-converging": ((), True, "fabric state 2, in progress; --until-s N lets it complete N seconds after the load",
                          lambda options: _values(fabric_state=2)),
    "memory-lost": ((), True, "the GPU has less memory (--value MiB, default half)",
                    lambda options: _values(memory_total_mib=options.value or int(state.gpu_value(options.gpu or 0, "memory_total_mib")) // 2)),
    "inforom-corrupt": ((), True, "validating the InfoROM answers rc 14", lambda options: _values(inforom_corrupt=1)),
    "error": (("SYMBOL", "RC"), False, "an NVML function answers RC (--after N: from call N+1 of a process on); SYMBOL may be field.NUMBER", _error),
    "hang": (("SYMBOL", "SECONDS"), False, "an NVML function answers late, or never with 'forever' (only SIGKILL ends it)", _hang),
    "missing-symbol": (("SYMBOL",), False, "the library lacks a function, as an older one does (rc 13 in the Python binding)", _missing_symbol),
    "set": (("KEY", "VALUE"), False, "any value of the node's description reads otherwise", _set),
    "xid": (("NUMBER",), True, "writes one XID line to the kernel log; nothing stays", None),
    "module-load-fails": (("[REASON]",), False, "loading the nvidia module fails (no-device, key-rejected, invalid, format; --driver V)", _load_fails),
    "nouveau": ((), False, "nouveau takes the GPUs at boot unless modprobe.d blacklists it", lambda options: {"nouveau": "1"}),
    "stray-process": ((), True, "a process holds the GPU (--value MiB of memory, default 1024)", None),
}


def _identity(name: str, options) -> str:
    parts = [name] + list(options.words[:1] if name in ("error", "hang", "missing-symbol", "set") else [])
    if options.gpu is not None:
        parts.append("gpu%d" % options.gpu)
    return " ".join(parts)


def check(name: str, options) -> None:
    if name not in CATALOGUE:
        raise state.SimError("unknown fault '%s': gpusim faults lists those there are" % name)
    words, needs_gpu, _text, _effects = CATALOGUE[name]
    least = sum(not word.startswith("[") for word in words)
    if not least <= len(options.words) <= len(words):
        raise state.SimError("usage: gpusim inject %s" % " ".join((name,) + words))
    if needs_gpu and options.gpu is None:
        raise state.SimError("fault %s is of one GPU: say --gpu N" % name)
    if options.gpu is not None and not 0 <= options.gpu < state.gpu_count():
        raise state.SimError("this node has GPUs 0 to %d, no GPU %d" % (state.gpu_count() - 1, options.gpu))
    if name in ("error", "xid") and not options.words[-1].isdigit():
        raise state.SimError("%s needs a number, not '%s'" % (name, options.words[-1]))


def inject(name: str, options) -> str:
    """Makes the fault and answers what was done."""
    state.require_root()
    check(name, options)
    if name == "xid":
        state.kmsg("NVRM: Xid (PCI:%s): %s, pid='<unknown>', name=<unknown>, injected by gpusim" % (_address(options)[:-2], options.words[0]))
        return "XID %s of GPU %d is in the kernel log" % (options.words[0], options.gpu)
    if name == "stray-process":
        return _start_process(options)
    effects = CATALOGUE[name][3](options)
    section = {"name": name}
    if options.gpu is not None:
        section["gpu"] = str(options.gpu)
    for key in ("driver", "from_s", "until_s"):
        value = getattr(options, key)
        if value is not None:
            section[key] = str(value)
    section.update(effects)
    if options.until_boot:
        section["cleared_by"] = "boot"
    with state.locked():
        faults = state.read(state.FAULTS)
        faults["fault " + _identity(name, options)] = section
        state.write(state.FAULTS, faults)
    if name == "missing-symbol":
        library.relink()
    if name == "gpu-missing" and os.path.isdir(state.path(state.SYS + "/bus/pci/devices")):
        sysfs.write_pci()
    version = state.read(state.LOADED).get("nvidia", "version", fallback="")
    active = version and section.get("driver", version) == version
    if active and section.get("kmsg"):
        state.kmsg(section["kmsg"])
    return "fault %s is set%s" % (_identity(name, options), "" if active or "driver" not in section else ", for driver %s" % section["driver"])


def clear(name: str | None, gpu: int | None = None) -> list[str]:
    """Takes faults away, all of them or those of one name; answers which."""
    state.require_root()
    if name is not None and name not in CATALOGUE:
        raise state.SimError("unknown fault '%s': gpusim faults lists those there are" % name)
    cleared = []
    with state.locked():
        faults = state.read(state.FAULTS)
        for section in list(faults.sections()):
            mine = name is None or faults.get(section, "name", fallback="") == name
            if mine and (gpu is None or faults.get(section, "gpu", fallback="") == str(gpu)):
                cleared.append(section[len("fault "):])
                faults.remove_section(section)
        state.write(state.FAULTS, faults)
    if name in (None, "stray-process"):
        cleared += _end_processes(gpu)
    library.relink()
    if os.path.isdir(state.path(state.SYS + "/bus/pci/devices")):
        sysfs.write_pci()
    return cleared


def active() -> list[tuple[str, dict]]:
    faults = state.read(state.FAULTS)
    found = [(section[len("fault "):], dict(faults[section])) for section in faults.sections() if section.startswith("fault ")]
    processes = state.read(state.PROCESSES)
    found += [("stray-process gpu%s" % processes[section]["gpu"], dict(processes[section])) for section in processes.sections()]
    return found


def _start_process(options) -> str:
    device = state.path("/dev/nvidia%s" % state.gpu_value(options.gpu, "minor"))
    if not os.path.exists(device):
        raise state.SimError("%s is not there: is the driver loaded?" % device)
    with open(device, "rb") as held:
        process = subprocess.Popen(["sleep", "infinity"], stdin=held, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True, cwd="/")
    with state.locked():
        processes = state.read(state.PROCESSES)
        processes["process %d" % process.pid] = {"pid": str(process.pid), "gpu": str(options.gpu), "type": "C",
                                                 "used_mib": str(options.value or 1024)}
        state.write(state.PROCESSES, processes)
    modules.refresh_counts()
    return "process %d holds GPU %d" % (process.pid, options.gpu)


def _holds(pid: int) -> bool:
    """Is it still the process that was started, and not another one that was given its number?"""
    try:
        return os.readlink("/proc/%d/fd/0" % pid).startswith(state.path("/dev/nvidia"))
    except OSError:
        return False


def _end_processes(gpu: int | None) -> list[str]:
    ended = []
    with state.locked():
        processes = state.read(state.PROCESSES)
        for section in list(processes.sections()):
            pid = processes.getint(section, "pid")
            if gpu is not None and processes[section]["gpu"] != str(gpu):
                continue
            if _holds(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            processes.remove_section(section)
            ended.append("stray-process %d" % pid)
        state.write(state.PROCESSES, processes)
    return ended
