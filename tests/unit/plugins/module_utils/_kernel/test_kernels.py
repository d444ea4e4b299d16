# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernel boots next, by the boot loader's own files; unknown is unknown."""

from __future__ import annotations

import collections

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernels
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import (
    KERNEL,
    Recorded,
    kernel,
    link,
    recorded,
    write,
)

pytestmark = pytest.mark.pythons

OLD = "6.1.0-49-amd64"
NOTHING = Recorded({})
SUB = "gnulinux-advanced-/dev/vda1"


def env_block(**pairs):
    return "# GRUB Environment Block\n" + "".join("%s=%s\n" % item for item in pairs.items()) + "#" * 800


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("0", KERNEL),
        ("1", KERNEL),
        ("1>0", KERNEL),
        ("1>2", OLD),
        ("%s>gnulinux-%s-advanced-/dev/vda1" % (SUB, OLD), OLD),
        ("Advanced options for GNU/Linux>GNU/Linux, with Linux %s" % OLD, OLD),
        ("gnulinux-simple-/dev/vda1", KERNEL),
        ("7", None),
        ("1>9", None),
        ("%s>gnulinux-9.9.9-advanced-/dev/vda1" % SUB, None),
        ("gnulinux-%s-advanced-/dev/vda1" % OLD, None),
        ("", None),
    ],
)
def test_entries_of_a_real_menu(entry, expected):
    assert kernels.select(kernels.parse_menu(recorded("grub.cfg")), entry) == expected


@pytest.mark.parametrize(
    ("menu", "env", "expected", "source"),
    [
        ("grub.cfg", {}, KERNEL, "grub.cfg default"),
        ("grub.cfg", {"saved_entry": "1>2"}, KERNEL, "grub.cfg default"),
        ("grub.cfg", {"next_entry": "1>2"}, OLD, "grubenv next_entry"),
        ("grub.cfg", {"next_entry": "gone"}, None, "leads to no kernel"),
        ("grub-saved.cfg", {}, KERNEL, "grubenv saved_entry"),
        ("grub-saved.cfg", {"saved_entry": "1>2"}, OLD, "grubenv saved_entry"),
        ("grub-saved.cfg", {"saved_entry": "gone"}, None, "leads to no kernel"),
        ("grub-saved.cfg", {"saved_entry": "1>2", "next_entry": "0"}, KERNEL, "grubenv next_entry"),
    ],
)
def test_the_menu_with_its_environment(tmp_path, menu, env, expected, source):
    write(tmp_path, "/boot/grub/grub.cfg", recorded(menu))
    write(tmp_path, "/boot/grub/grubenv", env_block(**env))
    found = kernels.find_next_boot(str(tmp_path), NOTHING, [OLD, KERNEL])
    assert found[0] == expected and source in found[1]


def test_a_recorded_environment_block(tmp_path):
    write(tmp_path, "/boot/grub/grub.cfg", recorded("grub-saved.cfg"))
    write(tmp_path, "/boot/grub/grubenv", recorded("grubenv-saved"))
    assert kernels.find_next_boot(str(tmp_path), NOTHING, []) == (OLD, "grubenv saved_entry")


def test_a_menu_without_a_default_is_unknown(tmp_path):
    write(tmp_path, "/boot/grub/grub.cfg", "menuentry 'x' {\n linux /boot/vmlinuz-%s\n}\n" % KERNEL)
    assert kernels.find_next_boot(str(tmp_path), NOTHING, [KERNEL])[0] is None


@pytest.mark.parametrize(
    ("files", "expected", "source"),
    [
        ({"/boot/grub/grubenv": env_block(saved_entry="a>gnulinux-%s-advanced-x" % OLD)}, OLD, "grubenv saved_entry"),
        ({"/boot/grub/grubenv": env_block(saved_entry="Some title")}, None, "no grub.cfg"),
        ({"/etc/default/grub": 'GRUB_DEFAULT="a>gnulinux-%s-advanced-x"\n' % OLD}, OLD, "GRUB_DEFAULT"),
        ({"/etc/default/grub": "GRUB_DEFAULT=0\n"}, KERNEL, "newest installed kernel"),
        ({"/etc/default/grub": "GRUB_DEFAULT=2\n"}, None, "no grub.cfg"),
        (
            {
                "/etc/default/grub": "GRUB_DEFAULT=0\n",
                "/etc/default/grub.d/9.cfg": "GRUB_DEFAULT='a>gnulinux-%s-recovery-x'\n" % OLD,
            },
            OLD,
            "GRUB_DEFAULT",
        ),
        ({"/boot/loader/entries/x.conf": ""}, None, "boot loader entries"),
        ({}, KERNEL, "newest installed kernel"),
    ],
)
def test_without_a_menu(tmp_path, files, expected, source):
    for path, content in files.items():
        write(tmp_path, path, content)
    found = kernels.find_next_boot(str(tmp_path), NOTHING, [OLD, KERNEL])
    assert found[0] == expected and source in found[1]


def test_no_kernel_at_all_is_unknown(tmp_path):
    assert kernels.find_next_boot(str(tmp_path), NOTHING, []) == (None, "no kernel that can boot is installed")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((0, "/boot/vmlinuz-5.14.0-570.el9.x86_64\n", ""), ("5.14.0-570.el9.x86_64", "grubby --default-kernel")),
        ((1, "", "broken"), (None, "grubby --default-kernel answered rc 1: broken")),
        ((0, "nonsense", ""), (None, "grubby --default-kernel answered rc 0: nonsense")),
        ((127, "", ""), (None, None)),
    ],
)
def test_grubby(answer, expected):
    assert kernels.from_grubby("/", Recorded({"grubby": answer})) == expected


def test_installed_kernels_have_an_image_and_are_in_the_order_of_debian(tmp_path):
    for name in ("6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.0~rc1-amd64"):
        kernel(tmp_path, name)
    write(tmp_path, "/lib/modules/6.1.0-50-amd64/modules.dep")
    write(tmp_path, "/lib/modules/5.14.0-1.el9.x86_64/vmlinuz")
    assert kernels.find_installed(str(tmp_path)) == [
        "5.14.0-1.el9.x86_64",
        "6.1.0~rc1-amd64",
        "6.1.0-9-amd64",
        "6.1.0-10-amd64",
    ]


def test_the_running_kernel_is_what_uname_says(tmp_path):
    uname = collections.namedtuple("uname", "release machine")(KERNEL, "x86_64")
    assert kernels.read(str(tmp_path), NOTHING, lambda: uname) == {
        "running": KERNEL,
        "installed": [],
        "next_boot": None,
        "next_boot_source": "no kernel that can boot is installed",
    }


def test_headers_are_looked_for_inside_the_root(tmp_path):
    kernel(tmp_path, KERNEL)
    kernel(tmp_path, OLD, headers=False)
    link(tmp_path, "/lib/modules/%s/build" % OLD, "/usr/src/gone")
    assert kernels.headers_present(str(tmp_path), KERNEL) is True
    assert kernels.headers_present(str(tmp_path), OLD) is False


def test_the_sources_of_a_kernel_without_its_build_tree_are_no_headers(tmp_path):
    write(tmp_path, "/usr/src/linux-source-%s/include/linux.h" % KERNEL)
    kernel(tmp_path, KERNEL, headers=False)
    link(tmp_path, "/lib/modules/%s/source" % KERNEL, "/usr/src/linux-source-%s" % KERNEL)
    assert kernels.headers_present(str(tmp_path), KERNEL) is False


@pytest.mark.parametrize(
    "release,package",
    [
        ("6.8.0-60-generic", "linux-headers-6.8.0-60-generic"),
        ("6.12.48+deb13-amd64", "linux-headers-6.12.48+deb13-amd64"),
        ("5.14.0-570.12.1.el9_6.x86_64", "kernel-devel-5.14.0-570.12.1.el9_6.x86_64"),
        ("5.14.0-570.12.1.el9_6.aarch64+64k", "kernel-64k-devel-5.14.0-570.12.1.el9_6.aarch64"),
        ("6.12.0-55.9.1.el10_0.x86_64+rt-debug", "kernel-rt-debug-devel-6.12.0-55.9.1.el10_0.x86_64"),
        ("4.18.0-553.rt7.342.el8_10.x86_64", "kernel-rt-devel-4.18.0-553.rt7.342.el8_10.x86_64"),
        ("5.15.0-209.161.7.2.el9uek.x86_64", "kernel-uek-devel-5.15.0-209.161.7.2.el9uek.x86_64"),
        ("6.14.5-300.fc42.x86_64", "kernel-devel-6.14.5-300.fc42.x86_64"),
    ],
)
def test_the_package_of_a_kernels_headers(release, package):
    assert kernels.headers_package(release) == package
