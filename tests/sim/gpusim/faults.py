# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes faults and takes them away again."""

from __future__ import annotations

import contextlib
import copy
import glob
import os
import signal
import subprocess

from . import catalogue, files, library, log, mig, modules, state, sysfs

CATALOGUE = catalogue.CATALOGUE
# Of these, several may be set at a time: their first word is a part of their name.
NAMED_BY_WORD = ("error", "hang", "ignored", "missing-symbol", "set")


def _identity(name: str, options) -> str:
    parts = [name] + list(options.words[:1] if name in NAMED_BY_WORD else [])
    if options.gpu is not None:
        parts.append("gpu%d" % options.gpu)
    return " ".join(parts)


def usage() -> list[tuple[str, str]]:
    """Each fault with its words, and what it does."""
    lines = [
        (" ".join((name,) + words) + (" --gpu N" if needs_gpu else ""), text)
        for name, (words, needs_gpu, text, _effects) in CATALOGUE.items()
    ]
    return lines + [(" ".join((name,) + words), text) for name, (words, text, _function) in files.CATALOGUE.items()]


def check(name: str, options) -> None:
    if name in files.CATALOGUE:
        words, needs_gpu = files.CATALOGUE[name][0], False
    elif name in CATALOGUE:
        words, needs_gpu = CATALOGUE[name][:2]
    else:
        raise state.SimError("unknown fault '%s': gpusim faults lists those there are" % name)
    least = sum(not word.startswith("[") for word in words)
    if not least <= len(options.words) <= len(words):
        raise state.SimError("usage: gpusim inject %s" % " ".join((name,) + words))
    if needs_gpu and options.gpu is None:
        raise state.SimError("fault %s is of one GPU: say --gpu N" % name)
    if options.gpu not in (None, "all") and not 0 <= options.gpu < state.gpu_count():
        raise state.SimError("this node has GPUs 0 to %d, no GPU %d" % (state.gpu_count() - 1, options.gpu))
    if name in ("xid", "sxid") and not options.words[0].isdigit():
        raise state.SimError("%s needs a number, not '%s'" % (name, options.words[0]))


def inject(name: str, options) -> str:
    """Makes the fault and answers what was done."""
    state.require_root()
    check(name, options)
    options = copy.copy(options)
    options.name = name
    if options.gpu == "all":
        done = []
        for options.gpu in range(state.gpu_count()):
            done.append(inject(name, options))
        return "\n".join(done)
    if name in files.CATALOGUE:
        return files.CATALOGUE[name][2](options)
    if name in SPECIAL:
        return SPECIAL[name](options)
    return _set(_identity(name, options), name, options, CATALOGUE[name][3](options))


def _set(identity: str, name: str, options, effects: dict[str, str]) -> str:
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
        faults["fault " + identity] = section
        state.write(state.FAULTS, faults)
    _begin_counts(effects)
    if "missing" in effects:
        library.relink()
    if any(key.startswith(("set.pcie_", "set.absent")) for key in effects):
        _show_devices()
    version = state.read(state.LOADED).get("nvidia", "version", fallback="")
    active = version and section.get("driver", version) == version
    if active and section.get("kmsg"):
        log.write(section["kmsg"])
    return "fault %s is set%s" % (
        identity,
        "" if active or "driver" not in section else ", for driver %s" % section["driver"],
    )


def _show_devices() -> None:
    if os.path.isdir(state.path(state.SYS + "/bus/pci/devices")):
        sysfs.write_pci()


def _begin_counts(effects: dict[str, str] | None = None) -> None:
    """A fault that is made or taken away begins a new count of looks."""
    for key in effects or [".*"]:
        for path in glob.glob(state.path("%s/*.%s" % (state.CALLS, key.split(".", 1)[-1]))):
            os.unlink(path)


def clear(name: str | None, gpu: int | None = None) -> list[str]:
    """Takes faults away, all of them or those of one name; answers which."""
    state.require_root()
    if name is not None and name not in CATALOGUE and name not in files.CATALOGUE:
        raise state.SimError("unknown fault '%s': gpusim faults lists those there are" % name)
    cleared = []
    with state.locked():
        faults = state.read(state.FAULTS)
        for section in list(faults.sections()):
            mine = name is None or faults.get(section, "name", fallback="") == name
            if mine and (gpu is None or faults.get(section, "gpu", fallback="") == str(gpu)):
                cleared.append(section[len("fault ") :])
                faults.remove_section(section)
        state.write(state.FAULTS, faults)
    if gpu is None:
        cleared += files.restore(name)
    if name in (None, "stray-process"):
        cleared += _end_processes(gpu)
    _begin_counts()
    library.relink()
    _show_devices()
    return cleared


def active() -> list[tuple[str, dict]]:
    faults = state.read(state.FAULTS)
    found = [
        (section[len("fault ") :], dict(faults[section]))
        for section in faults.sections()
        if section.startswith("fault ")
    ]
    processes = state.read(state.PROCESSES)
    found += [
        ("stray-process gpu%s" % processes[section]["gpu"], dict(processes[section]))
        for section in processes.sections()
    ]
    return found + [(name, {}) for name in files.active()]


# ---- faults that are more than values ----


def _xid(options) -> str:
    text = options.words[1] if len(options.words) > 1 else "injected by gpusim"
    place = "PCI:" + catalogue.bus(options) + (" GPU-I:%02d" % options.mig if options.mig is not None else "")
    log.write("NVRM: Xid (%s): %s, pid='<unknown>', name=<unknown>, %s" % (place, options.words[0], text))
    return "XID %s of GPU %d is in the kernel log" % (options.words[0], options.gpu)


def _sxid(options) -> str:
    node = state.described()
    if not node.has_section("nvswitch 0"):
        raise state.SimError("this node has no NVSwitch that could report an SXid")
    address = state.sysfs_address(node["nvswitch 0"]["pci"])
    text = options.words[1] if len(options.words) > 1 else "injected by gpusim"
    log.write(
        "nvidia-nvswitch0: SXid (PCI:%s): %s, %s, Link %s %s"
        % (
            address,
            options.words[0],
            "Fatal" if options.fatal else "Non-fatal",
            options.link.split(",")[0].zfill(2),
            text,
        ),
        log.ERROR,
    )
    return "SXid %s is in the kernel log" % options.words[0]


def _swapped(options) -> str:
    if (
        not options.words[0].isdigit()
        or not 0 <= int(options.words[0]) < state.gpu_count()
        or int(options.words[0]) == options.gpu
    ):
        raise state.SimError("gpu-swapped needs the number of another GPU, not '%s'" % options.words[0])
    other = int(options.words[0])
    pair = copy.copy(options)
    for pair.gpu, giver in ((options.gpu, other), (other, options.gpu)):
        names = catalogue.values(uuid=state.gpu_value(giver, "uuid"), serial=state.gpu_value(giver, "serial"))
        _set(_identity("gpu-swapped", pair), "gpu-swapped", pair, names)
    return "GPUs %d and %d have changed places" % (options.gpu, other)


def _stray_process(options) -> str:
    if options.words and options.words[0] not in ("compute", "graphics"):
        raise state.SimError("stray-process knows compute and graphics, not '%s'" % options.words[0])
    kind = (options.words or ["compute"])[0][0].upper()
    if options.mig is None:
        return "process %d holds GPU %d" % (start_process(options.gpu, kind, options.value or 1024), options.gpu)
    place = (options.mig, options.ci or 0)
    return "process %d holds instance %d/%d of GPU %d" % (
        (start_process(options.gpu, kind, options.value or 1024, place=place),) + place + (options.gpu,)
    )


SPECIAL = {"xid": _xid, "sxid": _sxid, "gpu-swapped": _swapped, "stray-process": _stray_process}


def start_process(gpu: int, kind: str, used_mib: int, place: tuple[int, int] | None = None) -> int:
    """A real process that holds the GPU's device file, and one that computes UVM's as well; its number.

    On a MIG instance (GPU instance, compute instance), it holds the files of that, too.
    """
    device = state.path("/dev/nvidia%s" % state.gpu_value(gpu, "minor"))
    if not os.path.exists(device):
        raise state.SimError("%s is not there: is the driver loaded?" % device)
    uvm = state.path("/dev/nvidia-uvm")
    more = ([uvm] if kind == "C" and os.path.exists(uvm) else []) + (mig.capability_files(gpu, *place) if place else [])
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(open(device, "rb"))
        others = [stack.enter_context(open(path, "rb")) for path in more]
        for stream in others:
            os.set_inheritable(stream.fileno(), True)
        process = subprocess.Popen(
            ["sleep", "infinity"],
            stdin=held,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            pass_fds=[stream.fileno() for stream in others],
        )
    with state.locked():
        processes = state.read(state.PROCESSES)
        processes["process %d" % process.pid] = {
            "pid": str(process.pid),
            "gpu": str(gpu),
            "type": kind,
            "used_mib": str(used_mib),
        }
        if place:
            processes["process %d" % process.pid].update(gi=str(place[0]), ci=str(place[1]))
        state.write(state.PROCESSES, processes)
    modules.refresh_counts()
    return process.pid


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
