# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the kernel that boots by default: decided here, set with the boot loader's own tools, and read back."""

from __future__ import annotations

import os

from .._node import files
from .._node.files import write_atomically
from . import kernels, modules

DROPIN = "/etc/default/grub.d/zz-gpufleet-default.cfg"
CONTENT = (
    "# Written by gpufleet.lifecycle (boot_kernel); changes are overwritten. The default is the saved entry, so that a "
    "new kernel does not\n"
    "# take its place.\nGRUB_DEFAULT=saved\n"
)
SAVED = ("${saved_entry}", "$saved_entry")


class BootError(Exception):
    """The default boot entry cannot be set, or is not what it was set to."""


def entry_of(menu, kernel, path=()) -> str | None:
    """The first entry of a kernel that is no recovery entry, as GRUB names it: ids (or titles) with ``>`` between
    levels; None without one.

    An entry in a submenu goes before the one at the top, which leads to the newest kernel by its place and not by its
    name.
    """
    found = None
    for item in menu:
        name = path + ((item["id"] or item["title"]).replace(">", ">>"),)
        inner = entry_of(item["entries"], kernel, name)
        if inner:
            return inner
        if (
            found is None
            and item["kernel"] == kernel
            and "recovery" not in item["id"]
            and "recovery mode" not in item["title"]
        ):
            found = ">".join(name)
    return found


def read_boot(root, runner, uname=os.uname) -> dict:
    """Return what the decision needs; ``loader`` is grub, grubby or None."""
    found = kernels.read(root, runner, uname)
    for place, tool in (("/boot/grub", "grub"), ("/boot/grub2", "grub2")):
        text = files.read_text(files.under(root, place, "grub.cfg"))
        if text is not None and "blscfg" not in text:
            menu, env = kernels.parse_menu(text), kernels.read_grubenv(root)
            return dict(
                found,
                loader="grub",
                tool=tool,
                place=place,
                saved=kernels.default_entry(text) in SAVED,
                one_time=env.get("next_entry"),
                saved_entry=env.get("saved_entry"),
                entries=dict((name, entry_of(menu, name)) for name in found["installed"]),
            )
    grubby = kernels.from_grubby(root, runner)[1] is not None
    return dict(
        found,
        loader="grubby" if grubby else None,
        tool=None,
        place=None,
        saved=True,
        one_time=None,
        saved_entry=None,
        entries={},
    )


def decide_boot(facts, kernel, pin=True) -> dict:
    """Return ``{"problem", "changed", "menu"}``: why it cannot be done, whether anything is to be done, whether the
    menu has to be made again.

    Without PIN a kernel that boots next anyway is left as it is, though a later one may take its place.
    """
    answer = {"problem": None, "changed": False, "menu": False}
    if kernel not in facts["installed"]:
        answer["problem"] = "kernel %s is not installed so that it can boot; there is: %s" % (
            kernel,
            ", ".join(facts["installed"]) or "none",
        )
    elif not pin and facts["next_boot"] == kernel:
        pass
    elif facts["loader"] is None:
        answer["problem"] = "the boot loader is not known: there is no /boot/grub/grub.cfg, and grubby does not answer"
    elif facts["one_time"]:
        answer["problem"] = (
            "the entry '%s' is set to boot once (grubenv next_entry), and this collection did not set it"
            % facts["one_time"]
        )
    elif facts["loader"] == "grub" and not facts["entries"].get(kernel):
        answer["problem"] = "kernel %s has no entry in %s/grub.cfg" % (kernel, facts["place"])
    else:
        pinned = facts["loader"] != "grub" or (facts["saved"] and bool(facts["saved_entry"]))
        answer["menu"] = facts["loader"] == "grub" and not facts["saved"]
        answer["changed"] = facts["next_boot"] != kernel or not pinned
    return answer


def explain_unproven(root, runner, kernel, version) -> str:
    """Return why the module of a driver version for a kernel is not proven; empty when it is."""
    item = modules.read(root, kernel, runner)
    if not item or not item["version"]:
        return "there is no NVIDIA module for kernel %s%s" % (
            kernel,
            " (%s)" % item["error"] if item and item["error"] else "",
        )
    if item["version"] != version:
        return "the module for kernel %s is of driver %s, expected %s (%s)" % (
            kernel,
            item["version"],
            version,
            item["path"],
        )
    if not modules.made_for(kernel, item):
        return "%s is made for %s, expected kernel %s" % (
            item["path"],
            item["vermagic"] or "no kernel it names",
            kernel,
        )
    if not item.get("listed"):
        # None: the list cannot be read, so that depmod is the next step as well.
        return "%s is not in modules.dep of kernel %s (depmod -a %s)" % (item["path"], kernel, kernel)
    return ""


def set_default(root, runner, kernel, uname=os.uname, pin=True) -> bool:
    """Make a kernel the default and read it back; answers whether anything was changed."""
    facts = read_boot(root, runner, uname)
    plan = decide_boot(facts, kernel, pin)
    if plan["problem"]:
        raise BootError(plan["problem"])
    if not plan["changed"]:
        return False
    if facts["loader"] == "grubby":
        run_tool(runner, ["grubby", "--set-default", "/boot/vmlinuz-%s" % kernel])
    else:
        if plan["menu"]:
            path = files.under(root, DROPIN)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, CONTENT)
            run_tool(runner, ["%s-mkconfig" % facts["tool"], "-o", files.under(root, facts["place"], "grub.cfg")])
            facts = read_boot(root, runner, uname)
        entry = facts["entries"].get(kernel)
        if not entry:
            raise BootError(
                "kernel %s has no entry in %s/grub.cfg after that was made again" % (kernel, facts["place"])
            )
        run_tool(
            runner,
            [
                "%s-editenv" % facts["tool"],
                files.under(root, facts["place"], "grubenv"),
                "set",
                "saved_entry=%s" % entry,
            ],
        )
    now = read_boot(root, runner, uname)
    if now["next_boot"] != kernel or not now["saved"]:
        raise BootError(
            "kernel %s was made the default, and %s boots next (%s)"
            % (kernel, now["next_boot"] or "an unknown one", now["next_boot_source"])
        )
    return True


def run_tool(runner, argv) -> None:
    rc, out, err = runner(argv, 300)
    if rc:
        raise BootError("%s answered rc %s: %s" % (" ".join(argv), rc, (err or out).strip() or "it said nothing"))
