# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels are held, staged, removed and left out of security updates: decisions as tables, and the tasks on a package
manager by hand.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import kernel_packages, kernel_set
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.apt import Apt
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.dnf import Dnf
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.transaction import make_empty
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import kernel, write

pytestmark = pytest.mark.pythons

OLD, NEW = "6.1.0-50-amd64", "6.1.0-56-amd64"
RELEASED, SECURITY = "6.1.176-1", "6.1.192-2"
APT = list(kernel_set.PATTERNS["apt"])


def have(version, hold=False, **more):
    return dict(
        {
            "version": version,
            "source": "linux",
            "status": "hi" if hold else "ii",
            "hold": hold,
            "size_kib": 1,
            "installed": True,
            "ok": True,
        },
        **more,
    )


def record(name, version, *depends):
    return {"name": name, "version": version, "depends": [[item] for item in depends], "downloadable": True}


INSTALLED = {
    "linux-image-" + OLD: have(RELEASED),
    "linux-headers-" + OLD: have(RELEASED),
    "linux-image-amd64": have(RELEASED),
    "linux-libc-dev": have(RELEASED),
    "openssl": have("3.0.1"),
    "bash": have("5.2"),
    "nvidia-smi": have("535.216.03-1"),
    "libssl3": have("3.0.1", True),
}
INDEX = {
    "linux-image-" + NEW: [record("linux-image-" + NEW, SECURITY, "kmod", "initramfs-tools")],
    "linux-headers-" + NEW: [
        record("linux-headers-" + NEW, SECURITY, "linux-headers-6.1.0-56-common", "linux-kbuild-6.1")
    ],
    "linux-headers-6.1.0-56-common": [record("linux-headers-6.1.0-56-common", SECURITY)],
    "linux-image-amd64": [
        record("linux-image-amd64", SECURITY, "linux-image-" + NEW),
        record("linux-image-amd64", RELEASED, "linux-image-" + OLD),
    ],
}


class Manager:
    """What the tasks ask of apt, and what they do to it."""

    name = "apt"
    hold_problem = find_lock_package = staticmethod(lambda: None)
    arguments, word, kept = Apt.arguments, Apt.word, {}
    unattended_file = None
    deferred_dkms_options = staticmethod(lambda: ["deferred"])

    def __init__(self, root):
        self.root = root
        self.packages = {name: dict(item) for name, item in INSTALLED.items()}
        self.log = []
        self.also = {}  # what a transaction does beside what it was asked for
        self.broken = []
        self.fails = False

    def list_installed(self):
        return {name: dict(item) for name, item in self.packages.items()}

    def find_interrupted(self, installed):
        return [], self.broken

    def index(self, pattern, also=()):
        return {name: INDEX[name] for name in also if name in INDEX}

    def security(self, names):
        found = {
            "openssl": ["3.0.2"],
            "libssl3": ["3.0.2"],
            "linux-image-amd64": [SECURITY],
            "linux-libc-dev": [SECURITY],
            "nvidia-smi": ["535.261.03-1"],
            "bash": [],
        }
        return {name: found[name] for name in names if name in found}

    def simulate(self, arguments, action="install", options=()):
        result = make_empty()
        for word in arguments:
            name, dummy, version = word.partition("=")
            kind = "remove" if action == "remove" else "upgrade" if name in self.packages else "install"
            result[kind].append({"name": name, "version": version})
        for kind, name in self.also.items():
            result[kind].append({"name": name, "version": "1"})
        return result

    def change(self, arguments, action="install", options=()):
        self.log.append("%s %s" % (action, " ".join(arguments)))
        assert (
            not any(word.startswith("linux-image") for word in arguments)
            or action == "remove"
            or options == ["deferred"]
        ), "dkms builds in the transaction"
        for word in arguments:
            name, dummy, version = word.partition("=")
            if action == "remove":
                del self.packages[name]
            else:
                self.packages[name] = have(version)
            if name == "linux-image-" + NEW and action == "install":
                kernel(self.root, NEW)
        if self.fails:
            raise OSError("the disk is full")

    def mark(self, action, names):
        self.log.append("%s %s" % (action, " ".join(names)))
        for name in names:
            self.packages[name]["hold"] = action == "hold"


@pytest.fixture(name="node")
def a_node(tmp_path, monkeypatch):
    kernel(tmp_path, OLD)
    default = [OLD]
    monkeypatch.setattr(
        kernel_packages.boot_default,
        "set_default",
        lambda root, runner, release, uname: default[0] != release and default.__setitem__(0, release) is None,
    )
    monkeypatch.setattr(kernel_packages.kernels, "find_next_boot", lambda root, runner, installed: (default[0], "test"))
    manager = Manager(tmp_path)
    manager.default = default

    def run(state, acting=True, **options):
        params = dict(
            {"state": state, "kernel": NEW, "patterns": None, "pin": True, "exclude_unattended": True}, **options
        )
        uname = os.uname().__class__(("Linux", "n", manager.uname, "v", "x86_64"))
        task = kernel_packages.KernelPackages(params, manager, None, str(tmp_path), lambda: uname, lambda: manager.now)
        return task.run(acting)

    manager.now, manager.uname = 1000.0, OLD
    manager.run = run
    return manager


KERNEL_NAMES = ["linux-headers-" + OLD, "linux-image-" + OLD, "linux-image-amd64"]


def test_a_kernel_is_held_pinned_and_told_of(node, tmp_path):
    seen = node.run("held", acting=False)
    assert seen["changed"] and node.log == [] and not (tmp_path / "etc").exists()
    first = node.run("held")
    assert first["actions"] == seen["actions"] and node.log == ["hold " + " ".join(KERNEL_NAMES)]
    pin = (tmp_path / kernel_packages.PIN.lstrip("/")).read_text()
    assert "Package: %s\nPin: version %s\nPin-Priority: 1001\n" % (" ".join(KERNEL_NAMES), RELEASED) in pin
    assert pin.rstrip().endswith(
        "Package: linux-image-* linux-headers-* linux-modules-[0-9]* linux-image-amd64\nPin: version *\n"
        "Pin-Priority: -1"
    )
    own = "linux-headers-%s* linux-modules-%s* linux-headers-6.1.0-50 linux-headers-6.1.0-50-common*" % (OLD, OLD)
    assert "Package: %s\nPin: version *\nPin-Priority: 500" % own in pin
    assert '"^linux-image-";' in (tmp_path / kernel_packages.UNATTENDED.lstrip("/")).read_text()
    node.now += 40 * 24 * 3600
    second = node.run("held")
    assert second["changed"] is False and second["held_days"] == 40
    assert second["security_kept_out"] == {"linux-image-amd64": SECURITY}
    assert [row["newer"] for row in second["holds"] if row["package"] == "linux-image-amd64"] == [[SECURITY]]
    assert set(json.loads((tmp_path / kernel_packages.RECORD.lstrip("/")).read_text())) == set(KERNEL_NAMES)


def test_a_hold_is_lifted_whole(node, tmp_path):
    node.run("held")
    freed = node.run("free")
    assert len(freed["actions"]) == 3 and freed["holds"] == [] and freed["held_days"] is None
    assert (
        not (tmp_path / kernel_packages.PIN.lstrip("/")).exists()
        and not (tmp_path / kernel_packages.UNATTENDED.lstrip("/")).exists()
    )
    assert node.run("free")["changed"] is False


def test_a_kernel_without_its_pin_or_exclusion(node, tmp_path):
    node.run("held", pin=False, exclude_unattended=False)
    assert not (tmp_path / "etc").exists()


def test_nothing_to_hold_or_no_way_to(node):
    with pytest.raises(kernel_packages.Refused, match="would not hold the kernel that runs"):
        node.run("held", patterns=["vmlinux-"])
    node.hold_problem = lambda: ("the plugin is off", "switch it on")
    with pytest.raises(kernel_packages.Refused, match="the plugin is off. Next step: switch it on"):
        node.run("held")
    node.broken = ["bash"]
    with pytest.raises(kernel_packages.Refused, match="half done: bash"):
        node.run("updated")
    assert node.log == []


@pytest.mark.parametrize(
    ("running", "names", "others"),
    [
        (
            "6.8.0-1015-nvidia",
            [
                "linux-image-6.8.0-1015-nvidia",
                "linux-modules-nvidia-fs-6.8.0-1015-nvidia",
                "linux-modules-nvidia-fs-nvidia-hwe-24.04",
                "linux-nvidia-hwe-24.04",
                "linux-image-nvidia-hwe-24.04",
            ],
            ["linux-modules-nvidia-580-open-6.8.0-1015-nvidia", "linux-modules-nvidia-580-open-nvidia-hwe-24.04"],
        ),
        (
            "6.12.48+deb13-amd64",
            ["linux-image-6.12.48+deb13-amd64-unsigned", "linux-headers-6.12.48+deb13-amd64"],
            ["linux-libc-dev"],
        ),
    ],
)
def test_kernel_of_another_flavour_is_held_with_what_is_built_for_it(node, running, names, others):
    """GPUDirect Storage's modules are the kernel's; the driver's prebuilt ones are not."""
    node.packages, node.uname = {name: have(RELEASED) for name in names + others}, running
    node.run("held")
    assert node.log == ["hold " + " ".join(sorted(names))]
    assert set(kernel_set.packages_with(node.packages, running, "apt")) == {
        name for name in names if re.search(re.escape(running) + "(-unsigned)?$", name)
    }


def test_pin_lets_the_headers_of_an_unsigned_kernel_come():
    assert "linux-headers-6.1.0-50-amd64* " in kernel_set.render_pin({"linux-image-6.1.0-50-amd64-unsigned": RELEASED})


@pytest.mark.parametrize("there", [True, False])
def test_new_kernel_gets_the_storage_modules_that_the_running_one_has(there):
    installed = {"linux-modules-nvidia-fs-" + OLD: have(RELEASED, installed=there)}
    assert ("linux-modules-nvidia-fs-" + NEW in kernel_set.packages_of(NEW, "apt", installed, OLD)[1]) is there


def test_a_kernel_is_staged_beside_the_one_that_runs(node):
    node.run("held")
    node.log.clear()
    seen = node.run("staged", acting=False)
    assert seen["changed"] and node.log == []
    result = node.run("staged")
    assert node.log == [
        "install linux-headers-%s=%s linux-headers-6.1.0-56-common=%s linux-image-%s=%s"
        % (NEW, SECURITY, SECURITY, NEW, SECURITY),
        "hold linux-headers-%s linux-headers-6.1.0-56-common linux-image-%s" % (NEW, NEW),
    ]
    assert result["kernels"]["installed"] == [OLD, NEW] and result["kernels"]["next_boot"] == OLD
    assert node.run("staged")["changed"] is False


def test_a_new_kernel_that_took_the_default_loses_it_again_and_all_is_held_even_when_the_installation_fails(node):
    node.fails = True
    change = node.change
    node.change = lambda arguments, options: (node.default.__setitem__(0, NEW), change(arguments, options=options))
    with pytest.raises(OSError):
        node.run("staged")
    assert node.default == [OLD] and node.packages["linux-image-" + NEW]["hold"]


def test_a_kernel_that_cannot_boot_after_all(node):
    node.change = lambda arguments, options: None
    with pytest.raises(kernel_packages.Refused, match="cannot boot"):
        node.run("staged")


@pytest.mark.parametrize(
    ("also", "words"),
    [
        ({"upgrade": "bash"}, "change packages that are not the kernel's: bash"),
        ({"install": "nvidia-smi"}, "not the kernel's: nvidia-smi"),
        ({"upgrade": "linux-image-amd64"}, "replace kernel packages that are installed: linux-image-amd64"),
        ({"remove": "bash"}, "remove packages: bash"),
    ],
)
def test_a_staging_that_would_do_something_else(node, also, words):
    node.also = also
    with pytest.raises(kernel_packages.Refused, match=words):
        node.run("staged")
    assert node.log == []


def test_what_the_headers_depend_on_comes_with_them_and_is_told(node):
    """As the headers of a backported kernel need pahole."""
    node.also = {"install": "pahole"}
    told = " and, new on this node, what they depend on: pahole"
    assert [line for line in node.run("staged", acting=False)["actions"] if line.endswith(told)] and node.log == []
    assert [
        line
        for line in node.run("staged")["actions"]
        if line.startswith("installed linux-headers-%s" % NEW) and line.endswith(told)
    ]
    node.log.clear()
    with pytest.raises(
        kernel_packages.Refused, match="kernel %s is not removed: the transaction would install pahole" % NEW
    ):
        node.run("removed")
    assert node.log == []


def test_a_staging_that_would_not_bring_it():
    assert kernel_set.staging_refusals(make_empty(), {"linux-image-x": "1"}, APT, "apt") == [
        "the transaction would not bring what was asked for: linux-image-x"
    ]


def test_a_kernel_that_nobody_offers(node):
    with pytest.raises(kernel_packages.Refused, match="there is no linux-headers-9.9.9, linux-image-9.9.9"):
        node.run("staged", kernel="9.9.9")


def test_a_staged_kernel_is_removed(node):
    node.run("staged")
    node.log.clear()
    node.run("removed")
    assert node.log == ["remove linux-headers-%s linux-image-%s" % (NEW, NEW)]
    assert node.run("removed")["changed"] is False


@pytest.mark.parametrize(("release", "default"), [(OLD, NEW), (NEW, NEW), (NEW, None)])
def test_a_kernel_that_runs_or_boots_next_is_not_removed(node, release, default):
    node.run("staged")
    node.default[0] = default
    with pytest.raises(kernel_packages.Refused, match="is not removed: %s runs and" % OLD):
        node.run("removed", kernel=release)
    assert "linux-image-" + release in node.packages


def test_the_metapackages_follow_a_kernel_that_boots_next(node):
    node.run("held")
    node.run("staged")
    with pytest.raises(kernel_packages.Refused, match="do not follow kernel %s: %s boots next" % (NEW, OLD)):
        node.run("followed")
    node.default[0] = NEW
    node.log.clear()
    assert node.run("held")["security_kept_out"] == {"linux-image-amd64": SECURITY}, (
        "although it is there, and boots next"
    )
    seen = node.run("followed", acting=False)
    assert seen["actions"] == ["brought linux-image-amd64 to " + SECURITY] and node.log == []
    result = node.run("followed")
    assert node.log == ["install linux-image-amd64=" + SECURITY, "hold linux-image-amd64"]
    assert result["changed"] and result["security_kept_out"] == {}
    assert node.run("followed")["changed"] is False


@pytest.mark.parametrize(
    ("also", "words"),
    [
        ({"install": "linux-image-9"}, "change other packages: linux-image-9"),
        ({"remove": "bash"}, "remove packages: bash"),
    ],
)
def test_metapackages_that_would_bring_something_else_do_not_follow(node, also, words):
    node.run("staged")
    node.default[0], node.also = NEW, also
    with pytest.raises(kernel_packages.Refused, match=words):
        node.run("followed")
    assert node.packages["linux-image-amd64"]["version"] == RELEASED


def test_everything_is_held_again_when_the_metapackages_did_not_follow(node):
    node.run("staged")
    node.default[0], node.fails = NEW, True
    with pytest.raises(OSError):
        node.run("followed")
    assert node.packages["linux-image-amd64"]["hold"]


def test_a_release_of_the_system_in_a_name_makes_no_kernel_of_a_metapackage():
    """Ubuntu's kernels of a later release: linux-generic-hwe-24.04 and what it depends on."""
    metas = ["linux-%sgeneric-hwe-24.04" % part for part in ("", "headers-", "image-")]
    versioned = ["linux-image-6.14.0-27-generic", "linux-headers-6.14.0-27-generic", "linux-headers-6.14.0-27"]
    installed = dict.fromkeys(metas + versioned, have("6.14.0-27.27~24.04.1"))
    assert kernel_set.find_metapackages(installed, APT, "apt") == metas
    text = kernel_set.render_pin(dict.fromkeys(installed, "6.14.0-27.27~24.04.1"))
    blocked = [stanza for stanza in text.split("\n\n") if "Pin-Priority: -1" in stanza]
    assert len(blocked) == 1
    assert set(metas) == set(re.search(r"^Package: (.*)$", blocked[0], re.M)[1].split()) - set(kernel_set.BLOCKED)


def test_metapackages_of_metapackages_follow_too():
    both = ("6.8.149", "6.8.101")
    index = {
        "linux-generic": [
            record("linux-generic", version, "linux-image-generic", "linux-headers-generic") for version in both
        ],
        "linux-image-generic": [
            record("linux-image-generic", version, "linux-image-6.8.0-%s-generic" % version[-3:]) for version in both
        ],
        "linux-headers-generic": [record("linux-headers-generic", "6.8.101", "linux-headers-6.8.0-101-generic")],
    }
    installed = dict.fromkeys(index, have("6.8.101"))
    metas = kernel_set.find_metapackages({**installed, "linux-image-6.8.0-101-generic": have("6.8.101")}, APT, "apt")
    assert metas == ["linux-generic", "linux-headers-generic", "linux-image-generic"]
    assert kernel_set.find_followers(index, installed, metas, "6.8.0-149-generic") == {
        "linux-generic": "6.8.149",
        "linux-image-generic": "6.8.149",
    }
    assert (
        kernel_set.find_followers(index, installed, metas, "6.8.0-101-generic")
        == kernel_set.find_followers(index, installed, metas, "6.8.0-7-generic")
        == {}
    )
    assert kernel_set.following_refusals(make_empty(), {"linux-generic": "6.8.149"}) == [
        "the transaction would not bring what was asked for: linux-generic"
    ]


def test_dnf_has_no_metapackages_that_follow(node):
    node.name, node.unattended_file, node.uname = "dnf", "/etc/dnf/automatic.conf", "5.14.0-427.el9.x86_64"
    node.packages = {"kernel": have("5.14.0-427.el9"), "kernel-core": have("5.14.0-427.el9")}
    node.run("followed", kernel=OLD)
    assert node.log == ["hold kernel kernel-core"]


def test_a_kernel_that_metapackages_stand_for_is_not_removed(node):
    node.run("staged")
    node.default[0] = NEW
    node.uname = NEW
    with pytest.raises(
        kernel_packages.Refused, match="linux-image-amd64 stand for it. Next step: .*state=followed and kernel=" + NEW
    ):
        node.run("removed", kernel=OLD)
    node.run("followed")
    node.run("removed", kernel=OLD)
    assert node.log[-1] == "remove linux-headers-%s linux-image-%s" % (OLD, OLD)


def test_a_kernel_that_something_needs_is_not_removed(node):
    node.run("staged")
    node.also = {"remove": "bash"}
    with pytest.raises(kernel_packages.Refused, match="these would go with it: bash"):
        node.run("removed")


def test_security_updates_leave_out_what_is_held_the_kernel_and_the_driver(node):
    node.run("held")
    node.log.clear()
    result = node.run("updated")
    assert node.log == ["install linux-libc-dev=%s openssl=3.0.2" % SECURITY]
    assert result["changed"] and node.run("updated")["changed"] is False


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("upgrade", "libssl3", "change packages that are held: libssl3"),
        ("install", "linux-image-9", "change the kernel: linux-image-9"),
        ("upgrade", "nvidia-smi", "change the driver: nvidia-smi"),
        ("remove", "bash", "remove packages: bash"),
        ("downgrade", "bash", "downgrade packages: bash"),
        ("upgrade", "bash", "upgrade packages for another reason: bash"),
    ],
)
def test_security_updates_that_would_touch_something_else(node, kind, name, words):
    node.also = {kind: name}
    with pytest.raises(kernel_packages.Refused, match=words):
        node.run("updated")
    assert node.log == []


def test_security_updates_that_did_not_come(node):
    node.change = lambda arguments: None
    with pytest.raises(
        kernel_packages.Refused, match="do not have the version that was asked for: linux-libc-dev, openssl"
    ):
        node.run("updated")


def test_security_updates_need_apt(node):
    node.name = "dnf"
    with pytest.raises(kernel_packages.Refused, match="with apt alone"):
        node.run("updated", patterns=APT)


def test_a_kernel_is_held_with_dnf(node, tmp_path):
    """Version locks are dnf's own; dnf-automatic is kept out where it is installed."""
    node.name, node.unattended_file, node.uname = "dnf", "/etc/dnf/automatic.conf", "5.14.0-427.el9.x86_64"
    node.packages = {"kernel-core": have("5.14.0-427.el9"), "kernel-tools": have("5.14.0-427.el9")}
    write(tmp_path, "/etc/dnf/automatic.conf", "[base]\nexcludepkgs = nvidia-driver*\n")
    node.run("held", pin=True)
    assert (
        node.log == ["hold kernel-core"]
        and (tmp_path / "etc/dnf/automatic.conf").read_text() == "[base]\nexcludepkgs = nvidia-driver*, kernel*\n"
    )
    assert not (tmp_path / "etc/apt").exists()
    node.run("free")
    assert (tmp_path / "etc/dnf/automatic.conf").read_text() == "[base]\nexcludepkgs = nvidia-driver*\n"


@pytest.mark.parametrize(
    ("name", "manager", "expected"),
    [
        ("linux-image-6.1.0-50-amd64", "apt", True),
        ("linux-modules-6.8.0-1-generic", "apt", True),
        ("linux-modules-nvidia-580-generic", "apt", False),
        ("linux-generic-hwe-22.04", "apt", True),
        ("linux-libc-dev", "apt", False),
        ("kernel-core", "dnf", True),
        ("kernel", "dnf", True),
        ("kernel-devel-matched", "dnf", True),
        ("kernel-64k-debug-modules-core", "dnf", True),
        ("kernel-rt-core", "dnf", True),
        ("kernel-uki-virt", "dnf", True),
        ("kernel-automotive-core", "dnf", True),
        ("kernel-uek-core", "dnf", True),
        ("kernel-headers", "dnf", True),
        ("kernel-tools", "dnf", False),
        ("kernel-tools-libs", "dnf", False),
        ("kernel-srpm-macros", "dnf", False),
        ("kernelshark", "dnf", False),
    ],
)
def test_which_packages_are_the_kernels(name, manager, expected):
    assert kernel_set.is_kernel(name, kernel_set.PATTERNS[manager]) is expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ID=debian\n", Apt),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', Dnf),
        ("ID=ubuntu\nID_LIKE=debian\n", Apt),
        ("", Apt),
    ],
)
def test_the_package_manager_of_a_system(tmp_path, text, kind):
    write(tmp_path, "/etc/os-release", text)
    assert isinstance(kernel_packages.manager_of(None, str(tmp_path)), kind)


EL, NEWER = "5.14.0-427.13.1.el9_4", "5.14.0-570.1.1.el9_6"


@pytest.mark.parametrize(
    ("running", "wanted", "installed", "parts"),
    [
        ("", ".x86_64", [], ["core", "modules", "devel"]),
        ("", ".aarch64+64k", [], ["64k-core", "64k-modules", "64k-devel"]),
        ("", ".x86_64+rt-debug", [], ["rt-debug-core", "rt-debug-modules", "rt-debug-devel"]),
        (".x86_64", ".x86_64", ["uki-virt", "modules-core"], ["uki-virt", "modules-core", "modules", "devel"]),
        (".x86_64", ".x86_64", ["core", "modules-extra"], ["core", "modules-extra", "modules", "devel"]),
        (".x86_64+rt", ".x86_64+rt", ["core", "rt-core"], ["rt-core", "rt-modules", "rt-devel"]),
        (".aarch64", ".aarch64+64k", ["core", "modules-extra"], ["64k-core", "64k-modules", "64k-devel"]),
    ],
)
def test_packages_of_a_kernel_with_dnf(running, wanted, installed, parts):
    there = {"kernel-" + name: have(EL) for name in installed}
    found = kernel_set.packages_of(NEWER + wanted, "dnf", there, EL + running)[0]
    assert found == dict.fromkeys(("kernel-" + part for part in parts), NEWER)


@pytest.mark.parametrize(
    ("manager", "running", "installed", "held"),
    [
        ("dnf", EL + ".aarch64+64k", ["kernel-64k-core", "kernel-64k-modules-core"], True),
        ("dnf", EL + ".aarch64+64k", ["kernel-headers", "kernel-core", "kernel-64k-devel"], False),
        ("dnf", EL + ".x86_64+rt", ["kernel-rt-core", "kernel-core"], True),
        ("dnf", EL + ".x86_64+debug", ["kernel-core"], False),
        ("dnf", EL + ".x86_64", ["kernel-uki-virt"], True),
        ("dnf", EL + ".x86_64", ["kernel-modules", "kernel-devel"], False),
        ("dnf", "4.18.0-553.rt7.342.el8_10.x86_64", ["kernel-core"], False),
        ("dnf", "6.99.0-mine", ["kernel-core"], False),
        ("apt", "6.8.0-60-generic", ["linux-image-6.8.0-60-generic"], True),
        ("apt", "6.8.0-60-lowlatency", ["linux-image-unsigned-6.8.0-60-lowlatency"], True),
        ("apt", "6.8.0-1020-nvidia-64k", ["linux-image-6.8.0-1020-nvidia-64k"], True),
        ("apt", "6.8.0-60-generic", ["linux-image-6.8.0-59-generic", "linux-headers-6.8.0-60-generic"], False),
    ],
)
def test_what_is_held_is_compared_with_the_kernel_that_runs(node, manager, running, installed, held):
    node.name, node.uname, node.unattended_file = manager, running, "/etc/dnf/automatic.conf"
    node.packages = {name: have(EL) for name in installed}
    if held:
        node.run("held")
        assert all(item["hold"] for item in node.packages.values())
    else:
        with pytest.raises(kernel_packages.Refused):
            node.run("held")
        assert node.log == []
    node.run("held", patterns=["kernel", "linux-"])  # named packages are the operator's to know


def test_what_stands_for_an_installed_image_is_held_under_any_name(node):
    for name in ("linux-nvidia-hwe-22.04", "linux-image-nvidia-hwe-22.04", "linux-oracle"):
        node.packages[name] = have(RELEASED)
    node.run("held")
    assert node.packages["linux-nvidia-hwe-22.04"]["hold"] and not node.packages["linux-oracle"]["hold"]


@pytest.mark.parametrize(
    ("release", "package"),
    [
        ("6.1.0-50-cloud-amd64", "linux-headers-6.1.0-50-common"),
        ("6.1.0-50-rt-amd64", "linux-headers-6.1.0-50-common-rt"),
        ("6.12.48+deb13.1-amd64", "linux-headers-6.12.48+deb13.1-common"),
        ("6.8.0-60-generic-64k", "linux-headers-6.8.0-60"),
        ("6.8.0-60-generic", "linux-headers-6.8.0-60-generic"),
    ],
)
def test_the_pin_lets_the_headers_of_every_kernel_of_the_node_come(release, package):
    stanzas = kernel_set.render_pin({"linux-image-amd64": "1"}, [release]).split("\n\n")
    first = next(
        stanza
        for stanza in stanzas
        for pattern in stanza.split("Package: ", 1)[-1].splitlines()[0].split()
        if fnmatch.fnmatchcase(package, pattern)
    )
    assert "Pin-Priority: 500" in first
