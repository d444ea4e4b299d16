# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot does on a simulated node: choose the kernel, show the hardware, load the modules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid

from . import library, log, mig, modules, state, sysfs

HOST_SYS = "/run/gpusim/host-sys"


def version_key(release: str) -> list:
    """Numbers as numbers, so that 6.1.0-50 is newer than 6.1.0-9."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d]+", release)]


def installed_kernels() -> list[str]:
    """Releases with an image in /boot, newest first."""
    try:
        names = os.listdir(state.path("/boot"))
    except OSError:
        return []
    return sorted(
        (name[8:] for name in names if name.startswith("vmlinuz-") and not name.endswith((".old", ".dpkg-tmp"))),
        key=version_key,
        reverse=True,
    )


def grub_environment() -> dict[str, str]:
    lines = (state.read_text("/boot/grub/grubenv") or state.read_text("/boot/grub2/grubenv")).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def grub_entries(text: str) -> list[dict]:
    """Menu entries of grub.cfg: position ('1>2' inside a submenu), title path, id path, kernel release."""
    entries: list[dict] = []
    stack: list[dict] = []
    counts = [0]
    depth = 0
    for line in text.splitlines():
        word = line.strip()
        match = re.match(r"(menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")", word)
        if match:
            ident = re.search(r"(?:--id|\$menuentry_id_option)\s+(?:'([^']*)'|\"([^\"]*)\"|(\S+))", word)
            item = {
                "position": str(counts[-1]),
                "title": match.group(2) if match.group(2) is not None else match.group(3),
                "id": next((part for part in ident.groups() if part), "") if ident else "",
                "depth": depth,
                "menu": match.group(1) == "submenu",
                "release": "",
            }
            counts[-1] += 1
            stack.append(item)
            if item["menu"]:
                counts.append(0)
        kernel = re.match(r"linux(?:16|efi)?\s+(\S*/)?vmlinuz-(\S+)", word)
        if kernel and stack and not stack[-1]["menu"]:
            item = stack[-1]
            item["release"] = kernel.group(2)
            entries.append(
                {
                    "release": item["release"],
                    **{key: [part[key] for part in stack] for key in ("position", "title", "id")},
                }
            )
        word = re.sub(r"\$\{[^}]*\}", "", word)
        depth += word.count("{") - word.count("}")
        if word == "}":
            depth = max(depth, 0)
            if stack and depth <= stack[-1]["depth"]:
                if stack.pop()["menu"]:
                    counts.pop()
    return entries


def entry_release(entry: str) -> str:
    """The release of a boot loader entry, as systems of RHEL's family have them; empty where there is none."""
    found = re.search(r"^linux\s+\S*vmlinuz-(\S+)$", state.read_text("/boot/loader/entries/%s.conf" % entry), re.M)
    return found.group(1) if found else ""


def grub_default(kernels: list[str]) -> str | None:
    """The release that GRUB's configuration would boot, if it says so clearly."""
    text = state.read_text("/boot/grub/grub.cfg")
    environment = grub_environment()
    wanted = environment.get("next_entry") or None
    if not wanted:
        defaults = re.findall(r"^\s*set\s+default=\"?([^\"\n]*)\"?\s*$", text, re.MULTILINE)
        wanted = "${saved_entry}" if not text else defaults[-1] if defaults else "0"
        if "${saved_entry}" in wanted or (not text and environment.get("saved_entry")):
            wanted = environment.get("saved_entry") or "0"
    for entry in grub_entries(text):
        # 'Advanced options>Debian, with Linux 6.1.0-50', or without the menu's name, or by ids or positions.
        names = {">".join(entry[key]) for key in ("position", "title", "id")} | {entry["title"][-1], entry["id"][-1]}
        if wanted in names:
            return entry["release"] if entry["release"] in kernels else None
    wanted = entry_release(wanted) or wanted
    return wanted if wanted in kernels else None


def choose_kernel() -> str | None:
    kernels = installed_kernels()
    return grub_default(kernels) or (kernels[0] if kernels else None)


def _mounted(target: str) -> bool:
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:
        return any(line.split()[4] == target for line in stream)


def _mount(*arguments: str) -> None:
    done = subprocess.run(
        ["mount"] + list(arguments), stderr=subprocess.PIPE, universal_newlines=True, timeout=600, check=False
    )
    if done.returncode != 0:
        print("gpusim: mount %s: %s" % (" ".join(arguments), done.stderr.strip()), file=sys.stderr)


def mount_sys() -> None:
    """A /sys with the real one's entries, and the node's devices and modules in place of the host's."""
    if _mounted("/sys") and os.path.exists("/sys/gpusim"):
        return
    base = state.SYS
    os.makedirs(base, exist_ok=True)
    _mount("-t", "tmpfs", "-o", "mode=0755,nosuid,nodev,noexec", "gpusim-sys", base)
    sysfs.write_file(base + "/gpusim", "simulated devices and modules\n")
    # The host's own /sys stays reachable in one place, where its relative links hold.
    os.makedirs(HOST_SYS, exist_ok=True)
    _mount("--bind", "/sys", HOST_SYS)
    for entry in sorted(os.listdir("/sys")):
        if entry not in ("bus", "module") and os.path.isdir("/sys/" + entry):
            os.makedirs(base + "/" + entry, exist_ok=True)
            _mount("--rbind", "/sys/" + entry, base + "/" + entry)
    for folder in ("module", "bus/pci/devices", "bus/pci/drivers"):
        os.makedirs(base + "/" + folder, exist_ok=True)
    # Other buses and modules as the host shows them, but never the host's GPUs and their drivers.
    for folder, hidden in (("bus", "pci$"), ("module", "nvidia|nouveau")):
        for entry in os.listdir(HOST_SYS + "/" + folder) if os.path.isdir(HOST_SYS + "/" + folder) else []:
            if not re.match(hidden, entry):
                os.symlink("%s/%s/%s" % (HOST_SYS, folder, entry), "%s/%s/%s" % (base, folder, entry))
    sysfs.write_pci()
    # Read-only for everybody, as /sys is in a container; the simulator writes through its own path.
    _mount("--rbind", base, "/sys")
    _mount("-o", "remount,bind,ro", "/sys")


def mount_proc(release: str | None) -> None:
    os.makedirs(state.PROC_DRIVER, exist_ok=True)
    if os.path.isdir("/proc/driver") and not _mounted("/proc/driver"):
        _mount("--bind", state.PROC_DRIVER, "/proc/driver")
    if release and not _mounted("/proc/sys/kernel/osrelease"):
        _mount("--bind", state.RELEASE, "/proc/sys/kernel/osrelease")
    if not _mounted("/proc/modules"):
        modules.keep_host_modules()
        sysfs.write_file(state.PROC_MODULES, state.read_text(state.HOST_MODULES))
        _mount("--bind", state.PROC_MODULES, "/proc/modules")


def write_proc(release: str | None) -> None:
    """Below a directory that stands for a machine's root: the files that a machine has by itself, so that all readers
    find their places.
    """
    for name, target in (("/sys", "run/gpusim/sys"), ("/proc/driver", "../run/gpusim/proc-driver")):
        if not os.path.lexists(state.path(name)):
            os.makedirs(os.path.dirname(state.path(name)), exist_ok=True)
            os.symlink(target, state.path(name))
    os.makedirs(state.path(state.PROC_DRIVER), exist_ok=True)
    os.makedirs(state.path(state.SYS + "/module"), exist_ok=True)
    sysfs.write_file("/proc/sys/kernel/random/boot_id", "%s\n" % uuid.uuid4())
    sysfs.write_file("/proc/sys/kernel/tainted", "0\n")
    sysfs.write_file("/proc/sys/kernel/osrelease", "%s\n" % (release or os.uname().release))
    sysfs.write_file("/proc/uptime", "%.2f %.2f\n" % (time.monotonic(), time.monotonic()))
    sysfs.write_file("/proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n")
    sysfs.write_file("/proc/modules", "")


def boot() -> None:
    state.require_root()
    if not os.path.exists(state.path(state.NODE)):
        raise state.SimError("this node has no description (%s): run gpusim init" % state.NODE)
    os.makedirs(state.path("/run/gpusim"), exist_ok=True)
    with state.locked():
        for name in (state.LOADED, state.SETTINGS, state.PROCESSES, state.PERSISTENCED):
            state.write(name, state.ini())
        faults = state.read(state.FAULTS)
        for name in list(faults.sections()):
            if faults.get(name, "cleared_by", fallback="") in ("boot", "load"):
                faults.remove_section(name)
        state.write(state.FAULTS, faults)
    sysfs.reset()
    shutil.rmtree(state.path(state.CALLS), ignore_errors=True)
    mig.forget_writes()
    log.begin()
    release = choose_kernel()
    if release:
        state.write_text(state.RELEASE, release + "\n")
        log.write("Linux version %s (simulated by gpusim)" % release)
    else:
        print(
            "gpusim: no kernel image in /boot: the release stays the host's, %s" % os.uname().release, file=sys.stderr
        )
    if state.root():
        sysfs.write_pci()
        write_proc(release)
    else:
        mount_sys()
        mount_proc(release)
    sysfs.write_adapter_modules()
    library.relink()
    load_modules()


def blacklisted(name: str) -> bool:
    for folder in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"):
        try:
            names = sorted(os.listdir(state.path(folder)))
        except OSError:
            continue
        for entry in names:
            if not entry.endswith(".conf"):
                continue
            text = state.read_text("%s/%s" % (folder, entry))
            if re.search(r"^\s*blacklist\s+%s\s*$" % re.escape(name), text, re.MULTILINE):
                return True
            if re.search(r"^\s*install\s+%s\s+(/usr)?/bin/(true|false)\b" % re.escape(name), text, re.MULTILINE):
                return True
    return False


def load_modules() -> None:
    """As udev does when it finds the devices: each module that this kernel has, unless it is kept away."""
    faults = state.read(state.FAULTS)
    if any(faults.get(name, "nouveau", fallback="") == "1" for name in faults.sections()) and not blacklisted(
        "nouveau"
    ):
        modules.load_nouveau()
    for name in modules.NEEDS:
        file = modules.module_file(name, state.release())
        if file is None or name == "nvidia_peermem":
            continue
        stem = re.sub(r"\.ko(\.\w+)?$", "", os.path.basename(file))
        if any(blacklisted(alias) for alias in (name, stem, stem.replace("-", "_"))):
            print("gpusim: %s is blacklisted in modprobe.d and not loaded" % name, file=sys.stderr)
            continue
        try:
            modules.insert(name)
        except modules.ModuleError as error:
            print("gpusim: %s" % error, file=sys.stderr)
            if name == "nvidia":
                return
