# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kernels: the one that runs, those that can boot, and the one that will boot next."""

from __future__ import annotations

import os
import re

from .._node import files, versions
from .._node.runner import missing

GRUB_ID = re.compile(r"^gnulinux-(?P<kernel>.+)-(?:advanced|recovery|init-[a-z]+)-")
ENTRY = re.compile(r"""^(?P<kind>menuentry|submenu)\s+(?P<title>'[^']*'|"[^"]*"|\S+)(?P<rest>.*)\{\s*$""")
ENTRY_ID = re.compile(r"""(?:\$menuentry_id_option|--id[ =])\s*(?P<id>'[^']*'|"[^"]*"|[^\s'"{]+)""")
LINUX = re.compile(r"^linux(?:16|efi)?\s+(?P<path>\S+)")
SET_DEFAULT = re.compile(r"""^set\s+default=(?P<value>"[^"]*"|'[^']*'|\S*)""")


def read(root, runner, uname=os.uname) -> dict:
    installed = find_installed(root)
    next_boot, source = find_next_boot(root, runner, installed)
    return {"running": uname().release, "installed": installed, "next_boot": next_boot, "next_boot_source": source}


def find_installed(root) -> list[str]:
    """Kernels with a module directory and an image, oldest first: those that can boot."""
    base = files.under(root, "/lib/modules")
    found = []
    for name in files.listing(base) or []:
        images = (files.under(root, "/boot/vmlinuz-" + name), os.path.join(base, name, "vmlinuz"))
        if os.path.isdir(os.path.join(base, name)) and any(os.path.exists(image) for image in images):
            found.append(name)
    return sorted(found, key=versions.Key)


def find_next_boot(root, runner, installed) -> tuple[str | None, str]:
    """The kernel that boots next and how that is known; ``(None, why)`` when it is not known.

    A one-time entry goes before the saved one, the boot loader's menu before the order of versions; a name that does
    not lead to a kernel is unknown, not a guess.
    """
    env = read_grubenv(root)
    menu_text = files.read_text(files.under(root, "/boot/grub/grub.cfg")) or files.read_text(
        files.under(root, "/boot/grub2/grub.cfg")
    )
    if menu_text is not None and "blscfg" not in menu_text:
        return from_menu(menu_text, env)
    kernel, source = from_grubby(root, runner)
    if source:
        return kernel, source
    if menu_text is not None:
        return None, "the boot menu is in boot loader entries and grubby did not name the default kernel"
    for key in ("next_entry", "saved_entry"):
        if env.get(key):
            return from_entry_id(env[key], "grubenv %s" % key)
    default = read_grub_default(root)
    if default and default not in ("0", "saved"):
        return from_entry_id(default, "GRUB_DEFAULT")
    if files.listing(files.under(root, "/boot/loader/entries")):
        return None, "boot loader entries are present and nothing says which one is the default"
    if installed:
        return installed[-1], "newest installed kernel"
    return None, "no kernel that can boot is installed"


def read_grubenv(root) -> dict[str, str]:
    for path in ("/boot/grub/grubenv", "/boot/grub2/grubenv"):
        content = files.read_text(files.under(root, path))
        if content is not None:
            return parse_grubenv(content)
    return {}


def parse_grubenv(content: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in content.splitlines() if not line.startswith("#"))
    return dict((key, value) for key, equals, value in pairs if equals)


def read_grub_default(root) -> str | None:
    """GRUB_DEFAULT of /etc/default/grub and its drop-ins, the last one wins."""
    directory = files.under(root, "/etc/default/grub.d")
    paths = [files.under(root, "/etc/default/grub")]
    paths += [os.path.join(directory, name) for name in files.listing(directory) or [] if name.endswith(".cfg")]
    value = None
    for path in paths:
        for line in (files.read_text(path) or "").splitlines():
            found = re.match(r"^\s*GRUB_DEFAULT=(.*)$", line)
            if found:
                value = unquote(found.group(1).strip())
    return value


def from_grubby(root, runner) -> tuple[str | None, str | None]:
    if root != "/":
        return None, None
    rc, out, err = runner(["grubby", "--default-kernel"], 30)
    if missing(rc):
        return None, None
    found = re.search(r"vmlinuz-(\S+)\s*$", out)
    if rc or not found:
        return None, "grubby --default-kernel answered rc %s: %s" % (rc, (err or out).strip())
    return found.group(1), "grubby --default-kernel"


def from_entry_id(entry: str, source: str) -> tuple[str | None, str]:
    """A menu entry's id names its kernel; a number or a title does not, without the menu."""
    found = GRUB_ID.match(entry.split(">")[-1])
    if found:
        return found.group("kernel"), source
    return None, "%s is '%s', and there is no grub.cfg to look it up in" % (source, entry)


def from_menu(content: str, env: dict[str, str]) -> tuple[str | None, str]:
    entries = parse_menu(content)
    chosen, source = env.get("next_entry"), "grubenv next_entry"
    if not chosen:
        chosen, source = default_entry(content), "grub.cfg default"
        if chosen in ("${saved_entry}", "$saved_entry"):
            chosen, source = env.get("saved_entry") or "0", "grubenv saved_entry"
    if chosen is None or "$" in chosen:
        return None, "grub.cfg does not say which entry is the default"
    kernel = select(entries, chosen)
    if kernel is None:
        return None, "%s is '%s', which leads to no kernel in grub.cfg" % (source, chosen)
    return kernel, source


def default_entry(content) -> str | None:
    """The last ``set default=`` that is not the one-time one, as grub-mkconfig writes it."""
    value = None
    for line in content.splitlines():
        found = SET_DEFAULT.match(line.strip())
        if found and "next_entry" not in found.group("value"):
            value = unquote(found.group("value"))
    return value


def parse_menu(content: str) -> list[dict] | None:
    """Entries as ``{title, id, kernel, entries}``, nested for submenus."""
    top = {"title": "", "id": "", "kernel": None, "entries": []}
    stack = [top]
    depth = []  # what each open brace belongs to: a menu item or anything else
    for line in (item.strip() for item in content.splitlines()):
        found = ENTRY.match(line)
        if found:
            ident = ENTRY_ID.search(found.group("rest"))
            item = {
                "title": unquote(found.group("title")),
                "id": unquote(ident.group("id")) if ident else "",
                "kernel": None,
                "entries": [],
            }
            stack[-1]["entries"].append(item)
            stack.append(item)
            depth.append(True)
        elif line.endswith("{") and not line.startswith("#"):
            depth.append(False)
        elif line == "}" and depth:
            if depth.pop():
                stack.pop()
        else:
            image = LINUX.match(line)
            kernel = re.search(r"vmlinuz-(.+)$", image.group("path")) if image else None
            if kernel and len(stack) > 1:
                stack[-1]["kernel"] = kernel.group(1)
    return top["entries"]


def select(entries, path) -> str | None:
    """The kernel of an entry named by number, id or title, with ``>`` between levels; GRUB takes a submenu's first
    entry.
    """
    here, kernel = entries, None
    for part in re.split(r"(?<!>)>(?!>)", path):
        part = part.replace(">>", ">")
        item = pick(here, part)
        if item is None:
            return None
        here, kernel = item["entries"], item["kernel"]
    while here:
        here, kernel = here[0]["entries"], here[0]["kernel"]
    return kernel


def pick(entries, name) -> dict | None:
    if name.isdigit():
        return entries[int(name)] if int(name) < len(entries) else None
    for item in entries:
        if name in (item["id"], item["title"].replace(">>", ">"), item["title"]):
            return item
    return None


def unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def headers_present(root, kernel) -> bool:
    """True when the kernel's headers are there as DKMS wants them (dkms(8): C(build) of the kernel's module directory;
    C(source) is not enough).
    """
    return files.resolve(root, "/lib/modules/%s/build/include" % kernel) is not None


def split_el_release(release: str) -> tuple[str, str] | None:
    """``(version-release of its packages, flavour)`` of a kernel of RHEL's family; None for another one.

    The flavour follows a plus sign, or is a part of the release where there is none (RHEL 8's rt, Oracle's uek).
    """
    plain, dummy, flavour = release.partition("+")
    if not re.search(r"\.(el|fc)\d", plain):
        return None
    inner = re.search(r"\.(rt)\d|(uek)(?:\.|$)", plain)
    return plain.rsplit(".", 1)[0], flavour or (inner.group(1) or inner.group(2) if inner else "")


def headers_package(release: str) -> str:
    """Return the package of a kernel's headers, as it is asked for on the system that this kernel is of."""
    found = split_el_release(release)
    if found is None:
        return "linux-headers-%s" % release
    return "kernel-%sdevel-%s" % (found[1] and found[1] + "-", release.partition("+")[0])


def architecture(uname=os.uname) -> str:
    return uname().machine
