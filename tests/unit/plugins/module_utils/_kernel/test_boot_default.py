# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that boots by default: decided on recorded menus, set with the boot loader's tools, read back, and proven
before.
"""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import boot_default, kernels
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import (
    KERNEL,
    Recorded,
    kernel,
    recorded,
    write,
)

pytestmark = pytest.mark.pythons

OLD = "6.1.0-49-amd64"
NEW = "535.261.03"


def uname():
    return os.uname().__class__(("Linux", "n", OLD, "v", "x86_64"))


class Loader:
    """grub-mkconfig and grub-editenv on files: the menu becomes the one with a saved default."""

    def __init__(self, root, **answers):
        self.root = root
        self.calls = []
        self.answers = answers

    def __call__(self, argv, timeout=None):
        self.calls.append(argv[0])
        if argv[0] in self.answers:
            return self.answers[argv[0]]
        if argv[0] == "grub-mkconfig":
            assert "GRUB_DEFAULT=saved" in (self.root / "etc/default/grub.d/zz-gpufleet-default.cfg").read_text()
            write(self.root, "/boot/grub/grub.cfg", recorded("grub-saved.cfg"))
            return 0, "", ""
        if argv[0] == "grub-editenv":
            write(self.root, "/boot/grub/grubenv", "# GRUB Environment Block\n%s\n" % argv[3])
            return 0, "", ""
        return 127, "", ""


@pytest.fixture(name="root")
def two_kernels(tmp_path):
    for name in (OLD, KERNEL):
        kernel(tmp_path, name)
    write(tmp_path, "/boot/grub/grub.cfg", recorded("grub.cfg"))
    return tmp_path


def test_the_entry_of_a_kernel_is_the_one_with_its_name():
    menu = kernels.parse_menu(recorded("grub.cfg"))
    for name in (OLD, KERNEL):
        entry = boot_default.entry_of(menu, name)
        assert ">" in entry and name in entry and "recovery" not in entry and kernels.select(menu, entry) == name
    assert boot_default.entry_of(menu, "9.9.9") is None


def test_a_kernel_is_made_the_default_once(root):
    loader = Loader(root)
    assert boot_default.set_default(str(root), loader, OLD, uname) is True
    assert loader.calls == ["grub-mkconfig", "grub-editenv"]
    assert kernels.find_next_boot(str(root), Recorded({}), [OLD, KERNEL]) == (OLD, "grubenv saved_entry")
    assert boot_default.set_default(str(root), loader, OLD, uname) is False and loader.calls == [
        "grub-mkconfig",
        "grub-editenv",
    ]
    assert boot_default.set_default(str(root), loader, KERNEL, uname) is True and loader.calls[2:] == ["grub-editenv"]


def test_a_default_that_is_right_by_chance_is_pinned(root):
    """The newest kernel boots next, and would not once there is a newer one."""
    plan = boot_default.decide_boot(boot_default.read_boot(str(root), Recorded({}), uname), KERNEL)
    assert plan == {"problem": None, "changed": True, "menu": True}


def test_without_a_pin_a_default_that_is_right_is_left_as_it_is(root):
    """Also where the boot loader is not known, and not where another kernel boots next."""
    loader, facts = Loader(root), boot_default.read_boot(str(root), Recorded({}), uname)
    for more in ({}, {"loader": None}):
        assert boot_default.decide_boot(dict(facts, **more), KERNEL, pin=False) == {
            "problem": None,
            "changed": False,
            "menu": False,
        }
    assert boot_default.decide_boot(dict(facts, loader=None), KERNEL)["problem"]
    assert boot_default.set_default(str(root), loader, KERNEL, uname, pin=False) is False and loader.calls == []
    assert boot_default.decide_boot(dict(facts, installed=[OLD]), KERNEL, pin=False)["problem"]
    assert boot_default.set_default(str(root), loader, OLD, uname, pin=False) is True and loader.calls == [
        "grub-mkconfig",
        "grub-editenv",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"installed": [KERNEL]}, "is not installed so that it can boot; there is: " + KERNEL),
        ({"loader": None}, "the boot loader is not known"),
        ({"one_time": "1>2"}, "is set to boot once"),
        ({"entries": {}}, "has no entry in /boot/grub/grub.cfg"),
    ],
)
def test_what_keeps_a_kernel_from_being_the_default(root, change, words):
    facts = dict(boot_default.read_boot(str(root), Recorded({}), uname), **change)
    plan = boot_default.decide_boot(facts, OLD)
    assert words in plan["problem"] and plan["changed"] is False


def test_a_refusal_changes_nothing(root):
    write(root, "/boot/grub/grubenv", "next_entry=0\n")
    loader = Loader(root)
    with pytest.raises(boot_default.BootError, match="boot once"):
        boot_default.set_default(str(root), loader, OLD, uname)
    assert loader.calls == []


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"grub-mkconfig": (1, "", "no device")}, "grub-mkconfig .* answered rc 1: no device"),
        ({"grub-editenv": (1, "", "full")}, "answered rc 1: full"),
        ({"grub-editenv": (0, "", "")}, "was made the default, and %s boots next" % KERNEL),
        ({"grub-mkconfig": (0, "", "")}, "was made the default, and %s boots next" % KERNEL),
    ],
)
def test_a_default_that_does_not_come_about(root, answers, words):
    with pytest.raises(boot_default.BootError, match=words):
        boot_default.set_default(str(root), Loader(root, **answers), OLD, uname)


def test_a_menu_that_is_made_anew_without_the_kernel(root):
    class Forgetful(Loader):
        def __call__(self, argv, timeout=None):
            answer = super().__call__(argv, timeout)
            if argv[0] == "grub-mkconfig":
                write(self.root, "/boot/grub/grub.cfg", recorded("grub-saved.cfg").replace(OLD, "6.1.0-1-amd64"))
            return answer

    loader = Forgetful(root)
    with pytest.raises(boot_default.BootError, match="has no entry in /boot/grub/grub.cfg after that was made again"):
        boot_default.set_default(str(root), loader, OLD, uname)
    assert loader.calls == ["grub-mkconfig"], "no entry is saved that leads nowhere"


def test_grubby(monkeypatch, tmp_path):
    for name in (OLD, KERNEL):
        kernel(tmp_path, name)
    write(tmp_path, "/boot/grub2/grub.cfg", "blscfg\n")
    default, calls = [KERNEL], []

    def runner(argv, timeout=None):
        calls.append(argv[1])
        if argv[1] == "--set-default":
            default[0] = argv[2].replace("/boot/vmlinuz-", "")
        return 0, "/boot/vmlinuz-%s\n" % default[0], ""

    asked = kernels.from_grubby
    monkeypatch.setattr(kernels, "from_grubby", lambda root, run: asked("/", run))
    assert boot_default.set_default(str(tmp_path), runner, OLD, uname) is True and "--set-default" in calls
    calls.clear()
    assert boot_default.set_default(str(tmp_path), runner, OLD, uname) is False and "--set-default" not in calls


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (None, "there is no NVIDIA module"),
        ({"version": None, "error": "modinfo is not installed"}, "modinfo is not installed"),
        (
            {"version": "535.216.03", "error": None, "path": "/x.ko", "vermagic": KERNEL + " SMP"},
            "is of driver 535.216.03, expected 535.261.03",
        ),
        ({"version": NEW, "error": None, "path": "/x.ko", "vermagic": OLD + " SMP"}, "is made for %s SMP" % OLD),
        ({"version": NEW, "error": None, "path": "/x.ko", "vermagic": None}, "no kernel it names"),
        ({"version": NEW, "error": None, "path": "/x.ko", "vermagic": KERNEL, "listed": False}, "modules.dep"),
        ({"version": NEW, "error": None, "path": "/x.ko", "vermagic": KERNEL, "listed": None}, "modules.dep"),
    ],
)
def test_a_module_that_is_not_proven(monkeypatch, item, words):
    monkeypatch.setattr(boot_default.modules, "read", lambda root, name, runner: item)
    assert words in boot_default.explain_unproven("/", None, KERNEL, NEW)


def test_a_module_that_is(monkeypatch):
    item = {"version": NEW, "error": None, "path": "/x.ko", "vermagic": KERNEL + " SMP", "listed": True}
    monkeypatch.setattr(boot_default.modules, "read", lambda root, name, runner: item)
    assert boot_default.explain_unproven("/", None, KERNEL, NEW) == ""
