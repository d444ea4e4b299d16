# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for modprobe, rmmod and lsmod. NVIDIA's modules are simulated; anything else goes to the real tools."""

from __future__ import annotations

import getopt
import os
import re
import subprocess
import sys
import time

from . import log, state, sysfs

# What each module needs, in the order in which a boot loads them.
NEEDS = {
    "nvidia": [],
    "nvidia_modeset": ["nvidia"],
    "nvidia_drm": ["nvidia_modeset"],
    "nvidia_uvm": ["nvidia"],
    "nvidia_peermem": ["nvidia"],
}
FILE_NAME = re.compile(r"^nvidia(?:[-_](?!modeset|drm|uvm|peermem)[a-z0-9.]+)*?(?:[-_](modeset|drm|uvm|peermem))?$")
ERRORS = {
    "no-device": "No such device",
    "key-rejected": "Key was rejected by service",
    "invalid": "Invalid argument",
    "format": "Exec format error",
}


class ModuleError(Exception):
    """A failure in the words of the real tool."""

    def __init__(self, text: str, fatal: bool = False):
        super().__init__(text)
        self.fatal = fatal


def canonical(name: str) -> str | None:
    """The module that a name (of a module or of its file) stands for, or None when it is none of ours."""
    match = FILE_NAME.match(name)
    if match is None:
        return "nouveau" if name == "nouveau" and state.read(state.LOADED).has_section("nouveau") else None
    return "nvidia_" + match.group(1) if match.group(1) else "nvidia"


def listing(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(state.path(folder)))
    except OSError:
        return []


def module_file(name: str, release: str) -> str | None:
    """The file of a module for a kernel, where DKMS puts it or a package of prebuilt modules has it."""
    found = []
    place = "/lib/modules/%s/" % release
    prebuilt = ["kernel/" + entry for entry in listing(place + "kernel") if entry.startswith("nvidia-")]
    for folder in ("updates/dkms", "updates", "extra", *prebuilt, "kernel/drivers/video", "kernel/drivers/char"):
        base = place + folder
        for entry in listing(base):
            stem = re.sub(r"\.ko(\.(xz|zst|gz))?$", "", entry)
            if stem != entry and FILE_NAME.match(stem) and canonical(stem) == name:
                found.append((len(stem), base + "/" + entry))
        if found:
            return min(found)[1]
    return None


def real_tool(name: str) -> str | None:
    for folder in ("/usr/sbin", "/sbin", "/usr/bin", "/bin"):
        tool = os.path.join(folder, name)
        if os.access(tool, os.X_OK):
            return tool
    return None


def modinfo(file: str) -> dict[str, str]:
    """The fields of a module file, read by the real modinfo."""
    tool = real_tool("modinfo")
    if tool is None:
        raise ModuleError("modinfo is not installed: the simulator reads module files with it (package kmod)")
    done = subprocess.run(
        [tool, state.path(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise ModuleError("could not insert '%s': Exec format error" % os.path.basename(file))
    fields: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _colon, value = line.partition(":")
        fields.setdefault(name, value.strip())
    return fields


# ---- who uses what ----


def loaded() -> list[str]:
    return state.read(state.LOADED).sections()


def users(name: str) -> list[str]:
    return [other for other in loaded() if name in NEEDS.get(other, [])]


def open_files() -> dict[str, list[int]]:
    """Processes that hold one of the driver's device files, by module."""
    base = state.path("/dev")
    held: dict[str, set[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            links = os.listdir("/proc/%s/fd" % entry)
        except OSError:
            continue
        for number in links:
            try:
                target = os.readlink("/proc/%s/fd/%s" % (entry, number))
            except OSError:
                continue
            if target.startswith(base + "/nvidia"):
                rest = target[len(base) + 1 :]
                module = (
                    "nvidia_uvm"
                    if rest.startswith("nvidia-uvm")
                    else "nvidia_modeset"
                    if rest == "nvidia-modeset"
                    else "nvidia"
                )
                held.setdefault(module, set()).add(int(entry))
    return {name: sorted(pids) for name, pids in held.items()}


def reference_counts() -> dict[str, int]:
    held = open_files()
    return {name: len(users(name)) + len(held.get(name, [])) for name in loaded()}


def refresh_counts() -> dict[str, int]:
    counts = reference_counts()
    sysfs.write_holders({name: users(name) for name in counts}, counts)
    write_list(counts)
    return counts


def write_list(counts: dict[str, int]) -> None:
    """/proc/modules: the modules of the simulated driver, newest first, and in a machine those of the host that are
    none of it.
    """
    parser = state.read(state.LOADED)
    lines = [
        "%s %s %d %s Live 0x0000000000000000%s"
        % (
            name,
            parser[name].get("size", "0"),
            counts[name],
            "".join(user + "," for user in users(name)) or "-",
            " (%s)" % parser[name]["taint"] if parser[name].get("taint") else "",
        )
        for name in reversed(parser.sections())
    ]
    # Written in place: in a machine the file is bound over the kernel's own.
    sysfs.write_file(
        "/proc/modules" if state.root() else state.PROC_MODULES,
        "".join(line + "\n" for line in lines) + state.read_text(state.HOST_MODULES),
    )


def keep_host_modules() -> None:
    """What the host's kernel lists, without NVIDIA's modules: a machine of the lab shares the kernel with its host."""
    lines = [line for line in state.read_text("/proc/modules").splitlines() if canonical(line.split(" ")[0]) is None]
    state.write_text(state.HOST_MODULES, "".join(line + "\n" for line in lines if not line.startswith("nouveau ")))


# ---- loading ----


def _refused(version: str) -> str | None:
    """The reason for which a fault keeps this driver from loading."""
    faults = state.read(state.FAULTS)
    for name in faults.sections():
        section = faults[name]
        if section.get("load_error") and section.get("driver", version) == version:
            if section.get("load_kmsg"):
                log.write(section["load_kmsg"])
            return section["load_error"]
    return None


def _fault_lines(version: str) -> None:
    """Kernel log lines of faults that show when the driver comes up."""
    faults = state.read(state.FAULTS)
    for name in faults.sections():
        section = faults[name]
        # What comes with this driver shows when it is loaded, and what happens at every load; the rest was logged when
        # it happened.
        if (
            section.get("kmsg")
            and section.get("driver", version) == version
            and ("driver" in section or "kmsg_each_load" in section)
        ):
            log.write(section["kmsg"])


def _gsp(version: str) -> str:
    """loaded: firmware of this version is there; mismatch: only other versions are; none: no GSP firmware at all."""
    base = state.path("/lib/firmware/nvidia")
    try:
        versions = [
            entry
            for entry in os.listdir(base)
            if entry[:1].isdigit()
            and any(name.startswith("gsp_") and name.endswith(".bin") for name in os.listdir(os.path.join(base, entry)))
        ]
    except OSError:
        versions = []
    return "loaded" if version in versions else "mismatch" if versions else "none"


# What the hardware forgets when the driver comes up anew, also where a fault made it.
VOLATILE = ("ecc_vol_corr", "ecc_vol_unc", "sram_vol_corr", "sram_vol_unc", "retired_pending")


def _promote(version: str) -> None:
    """What waits for a driver load takes effect: pending modes become current, lost settings are lost."""
    with state.locked():
        state.write(state.SETTINGS, state.ini())
        inforom = state.read(state.INFOROM)
        for name in inforom.sections():
            for key in ("ecc_mode", "mig_mode"):
                if inforom.has_option(name, key + "_pending"):
                    inforom.set(name, key, inforom.get(name, key + "_pending"))
                    inforom.remove_option(name, key + "_pending")
        state.write(state.INFOROM, inforom)
        faults = state.read(state.FAULTS)
        for name in list(faults.sections()):
            if faults.get(name, "cleared_by", fallback="") == "load":
                faults.remove_section(name)
            elif faults.get(name, "driver", fallback="") != version:
                # A fault that comes with this driver is about to begin: it stays whole.
                forgotten = [key for key in VOLATILE if faults.remove_option(name, "set." + key)]
                if forgotten and not any(key.startswith(("set.", "error.", "hang.")) for key in faults[name]):
                    faults.remove_section(name)
        state.write(state.FAULTS, faults)


def load(name: str, asked: str) -> None:
    """Loads one module whose needs are loaded already."""
    release = state.release()
    file = module_file(name, release)
    if file is None:
        raise ModuleError("Module %s not found in directory /lib/modules/%s" % (asked, release), fatal=True)
    fields = modinfo(file)
    version, magic = fields.get("version", ""), fields.get("vermagic", "")
    if magic.split(" ")[0] != release:
        log.write("%s: version magic '%s' should be '%s SMP preempt mod_unload modversions '" % (name, magic, release))
        raise ModuleError("could not insert '%s': Exec format error" % asked)
    current = state.read(state.LOADED)
    if name != "nvidia" and current.get("nvidia", "version", fallback=version) != version:
        log.write("%s: disagrees about version of symbol nvidia_get_rm_ops" % name)
        raise ModuleError("could not insert '%s': Invalid argument" % asked)
    if name == "nvidia":
        if not state.gpu_count():
            log.write("NVRM: No NVIDIA GPU found.")
            raise ModuleError("could not insert '%s': No such device" % asked)
        reason = _refused(version)
        if reason is None and state.gpu_value(0, "open_required") == "1" and fields.get("license", "") == "NVIDIA":
            log.write(
                "NVRM: The NVIDIA GPU %s installed in this system requires use of the NVIDIA open kernel modules."
                % (state.sysfs_address(state.gpu_value(0, "pci")))
            )
            reason = "no-device"
        if reason is None and current.has_section("nouveau"):
            log.write("NVRM: GPU %s is already bound to nouveau." % state.sysfs_address(state.gpu_value(0, "pci")))
            reason = "no-device"
        if reason is not None:
            if reason == "key-rejected":
                log.write("Loading of module with unavailable key is rejected")
            else:
                log.write("NVRM: The NVIDIA probe routine failed for %d device(s)." % state.gpu_count())
            raise ModuleError("could not insert '%s': %s" % (asked, ERRORS[reason]))
    licence = fields.get("license", "")
    _record(
        name,
        {
            "version": version,
            "srcversion": fields.get("srcversion", ""),
            "file": file,
            "release": release,
            "time": "%d" % time.time(),
            "taint": "POE" if licence == "NVIDIA" else "OE",
            "flavour": "proprietary" if licence == "NVIDIA" else "open",
            "size": str(os.path.getsize(state.path(file))),
        },
    )


def _record(name: str, section: dict[str, str]) -> None:
    if name == "nvidia":
        _promote(section["version"])
        section["gsp"] = _gsp(section["version"])
    with state.locked():
        parser = state.read(state.LOADED)
        parser[name] = section
        state.write(state.LOADED, parser)
    sysfs.write_module(name)
    sysfs.write_devices(name)
    if name == "nvidia":
        sysfs.write_proc_driver()
        log.write("nvidia: loading out-of-tree module taints kernel.")
        kind = "UNIX Open Kernel Module for x86_64" if section["flavour"] == "open" else "UNIX x86_64 Kernel Module"
        log.write("NVRM: loading NVIDIA %s  %s  (simulated by gpusim)" % (kind, section["version"]))
        if section["gsp"] == "mismatch" and state.gpu_value(0, "gsp_required") == "1":
            for gpu in range(state.gpu_count()):
                log.write(
                    "NVRM: GPU %s: RmInitAdapter failed! (0x62:0x40:2393)"
                    % state.sysfs_address(state.gpu_value(gpu, "pci"))
                )
        _fault_lines(section["version"])
    if name in ("nvidia", "nouveau"):
        sysfs.bind_driver()
    refresh_counts()


def load_nouveau() -> None:
    """The kernel's own driver took the GPUs: a fault of nodes where it is not kept away."""
    _record(
        "nouveau",
        {
            "version": "",
            "file": "",
            "release": state.release(),
            "time": "%d" % time.time(),
            "taint": "",
            "flavour": "",
            "size": "2400256",
        },
    )


def insert(asked: str, first_time: bool = False) -> None:
    """A module with everything it needs, as modprobe does."""
    name = canonical(asked)
    if name in loaded():
        if first_time:
            raise ModuleError("could not insert '%s': Module already in kernel" % asked)
        return
    if name not in NEEDS:
        raise ModuleError("Module %s not found in directory /lib/modules/%s" % (asked, state.release()), fatal=True)
    for needed in NEEDS[name]:
        if needed not in loaded():
            if module_file(name, state.release()) is None:
                break
            insert(needed)
    load(name, asked)


def unload(name: str) -> None:
    with state.locked():
        parser = state.read(state.LOADED)
        parser.remove_section(name)
        state.write(state.LOADED, parser)
        if name == "nvidia":
            state.write(state.SETTINGS, state.ini())
    sysfs.remove_module(name)
    sysfs.remove_devices(name)
    if name == "nvidia":
        sysfs.remove_proc_driver()
        log.write("NVRM: unloading the simulated driver")
    if name in ("nvidia", "nouveau"):
        sysfs.bind_driver()
    refresh_counts()


def remove(asked: str, first_time: bool = False) -> None:
    """A module and what only it needed, as modprobe -r does."""
    name = canonical(asked)
    if name not in loaded():
        if first_time:
            raise ModuleError("Module %s is not in kernel." % asked, fatal=True)
        if module_file(name, state.release()) is None:
            raise ModuleError("Module %s not found." % asked, fatal=True)
        return
    if reference_counts()[name]:
        raise ModuleError("Module %s is in use." % name, fatal=True)
    unload(name)
    for needed in NEEDS.get(name, []):
        if needed in loaded() and not reference_counts()[needed]:
            remove(needed)


# ---- the tools ----


def _forward(tool: str, arguments: list[str]) -> int:
    real = real_tool(tool)
    if real is None:
        print(
            "%s: the real tool is not installed, and this is no module of the simulated driver" % tool, file=sys.stderr
        )
        return 1
    return subprocess.call([real] + arguments)


SHORT = "afinrqRvsDbcC:d:S:wVh"
LONG = """
    all force force-modversion force-vermagic ignore-install ignore-remove show dry-run remove quiet resolve-alias
    verbose syslog show-depends use-blacklist showconfig config= dirname= set-version= first-time wait=
    remove-holders version help show-modversions dump-modversions show-config
""".split()
# Options of modprobe that are about other modules, or load none.
ELSEWHERE = set(
    "c showconfig show-config D show-depends R resolve-alias S set-version d dirname V version h help show-modversions "
    "dump-modversions".split()
)


def modprobe(arguments: list[str]) -> int:
    try:
        options, names = getopt.gnu_getopt(arguments, SHORT, LONG)
    except getopt.GetoptError:
        return _forward("modprobe", arguments)
    flags = {key.lstrip("-") for key, _value in options}
    elsewhere = flags & ELSEWHERE
    removing = bool(flags & {"r", "remove", "remove-holders"})
    # Without -a and -r only the first word is a module; the rest are its parameters.
    wanted = names if removing or flags & {"a", "all"} else names[:1]
    ours = [name for name in wanted if canonical(name)]
    if elsewhere or not ours:
        return _forward("modprobe", arguments)
    quiet, dry = bool(flags & {"q", "quiet"}), bool(flags & {"n", "dry-run", "show"})
    status = 0
    for name in ours:
        try:
            if dry:
                if (
                    canonical(name) not in loaded()
                    and not removing
                    and module_file(canonical(name), state.release()) is None
                ):
                    raise ModuleError(
                        "Module %s not found in directory /lib/modules/%s" % (name, state.release()), fatal=True
                    )
                continue
            state.require_root()
            if removing and "remove-holders" in flags:
                for user in users(canonical(name)):
                    remove(user)
            (remove if removing else insert)(name, "first-time" in flags)
        except ModuleError as error:
            if not quiet:
                print("modprobe: %s: %s" % ("FATAL" if error.fatal else "ERROR", error), file=sys.stderr)
            status = 1
        except state.SimError:
            print("modprobe: ERROR: could not insert '%s': Operation not permitted" % name, file=sys.stderr)
            status = 1
    rest = [name for name in wanted if name not in ours]
    if rest:
        status = _forward("modprobe", [key + value for key, value in options] + rest) or status
    return status


def rmmod(arguments: list[str]) -> int:
    names = [argument for argument in arguments if not argument.startswith("-")]
    ours = [name for name in names if canonical(name)]
    if not ours:
        return _forward("rmmod", arguments)
    status = 0
    for asked in ours:
        name = canonical(asked)
        try:
            state.require_root()
            if name not in loaded():
                raise ModuleError("Module %s is not currently loaded" % asked)
            if users(name):
                raise ModuleError("Module %s is in use by: %s" % (name, " ".join(users(name))))
            if reference_counts()[name]:
                raise ModuleError("Module %s is in use" % name)
            unload(name)
        except ModuleError as error:
            print("rmmod: ERROR: %s" % error, file=sys.stderr)
            status = 1
        except state.SimError:
            print("rmmod: ERROR: could not remove '%s': Operation not permitted" % asked, file=sys.stderr)
            status = 1
    rest = [argument for argument in arguments if argument not in ours]
    if [argument for argument in rest if not argument.startswith("-")]:
        status = _forward("rmmod", rest) or status
    return status


def lsmod(_arguments: list[str]) -> int:
    print("Module                  Size  Used by")
    counts = refresh_counts() if os.geteuid() == 0 or state.root() else reference_counts()
    parser = state.read(state.LOADED)
    for name in reversed(parser.sections()):
        print("%-19s %8s  %d %s" % (name, parser[name].get("size", "0"), counts[name], ",".join(users(name))))
    for line in state.read_text(state.HOST_MODULES).splitlines():
        fields = line.split()
        if len(fields) >= 4:
            print("%-19s %8s  %s %s" % (fields[0], fields[1], fields[2], fields[3].strip("-,")))
    return 0
