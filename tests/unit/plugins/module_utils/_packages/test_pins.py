# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps dnf-automatic and apt from the driver, and rpm's order of versions."""

from __future__ import annotations

import fnmatch
import itertools

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import versions
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import UBUNTU, UBUNTU_CUDA
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories, stub_packages

CONF = "[commands]\nupgrade_type = security\nexcludepkgs = not, this, one\n\n[base]\n# comment\ndebuglevel = 1\n"


@pytest.mark.parametrize(
    "text,exclude,expected",
    [
        ("", True, "[base]\nexcludepkgs = a*, b\n"),
        ("", False, ""),
        (CONF, False, CONF),
        (CONF, True, CONF.replace("[base]\n", "[base]\nexcludepkgs = a*, b\n")),
        ("[base]\nexcludepkgs = mine, a*\n", True, "[base]\nexcludepkgs = mine, a*, b\n"),
        ("[base]\nexclude=mine b\n", True, "[base]\nexcludepkgs = mine, b, a*\n"),
        ("[base]\nexcludepkgs = mine, a*, b\n", False, "[base]\nexcludepkgs = mine\n"),
        ("[base]\nexcludepkgs = a*, b\nx = 1\n", False, "[base]\nx = 1\n"),
    ],
)
def test_exclusions_of_dnf_automatic(text, exclude, expected):
    assert holds.render_automatic(text, exclude, ("a*", "b")) == expected
    assert holds.render_automatic(expected, exclude, ("a*", "b")) == expected


def test_kernel_and_driver_are_excluded_in_one_line_that_no_further_run_changes():
    kernel = holds.render_automatic(CONF, True, ("kernel*",))
    both = holds.render_automatic(kernel)
    assert holds.render_automatic(both, True, ("kernel*",)) == both
    assert holds.render_automatic(both) == both
    assert holds.render_automatic(both, False) == kernel


def test_every_package_of_the_set_is_excluded():
    names = [item["name"] for item in stub_packages.redhat("580.95.05", prebuilt_for=[stub_packages.EL_KERNEL])]
    assert [
        name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in holds.AUTOMATIC_EXCLUDES)
    ] == []


def test_a_source_that_is_not_in_the_table_is_pinned_too():
    text = holds.render_pin(
        UBUNTU,
        {"fabric-manager-580": "1-1", "nvidia-graphics-drivers-580-server": "2-1"},
        {"linux-modules-nvidia-x": "3-1"},
    )
    order = [line for line in text.splitlines() if line.startswith("Package: ")]
    assert order[:3] == [
        "Package: src:fabric-manager-580",
        "Package: src:nvidia-graphics-drivers-580-server",
        "Package: linux-modules-nvidia-x",
    ]
    assert "{branch}" not in text and text.count("Pin-Priority: 1001") == 3 and text.count("Pin-Priority: -1") == 1
    assert "src:nvidia-graphics-drivers-*" in order[3]


def test_packages_of_nvidias_repository_are_pinned_by_their_own_names():
    text = holds.render_pin(UBUNTU_CUDA, {"libnvidia-compute": "595.58.03-1ubuntu1"})
    assert "Package: src:libnvidia-compute\nPin: version 595.58.03-1ubuntu1\n" in text


# versions

VERSIONS = (
    "1-1",
    "0:1-1",
    "1:1-1",
    "3:580.95.05-1.el9",
    "3:580.105.08-1.el9",
    "580.95.05-1.el9",
    "3:580.95.05-1.el10",
    "3:580.95.5-1.el9",
    "1.0-1",
    "1.0.1-1",
    "1.0a-1",
    "1.0~rc1-1",
    "1.0~rc1^git1-1",
    "1.0^git1-1",
    "1.0^-1",
    "1.0^git2-1",
    "1.0~-1",
    "1.a-1",
    "1.1a-1",
    "1_0-1",
    "1..0-1",
    "2-1.el9_5",
    "2-1.el9",
    "2-1.el9_10",
    "10-1",
    "1.010-1",
    "1.10-1",
    "a-1",
    "A-1",
    "1.0-10",
    "1.0-9",
)


def test_the_order_is_rpms():
    """rpm itself is asked for every pair."""
    pairs = list(itertools.product(VERSIONS, repeat=2))
    script = " ".join('print(rpm.vercmp("%s", "%s") .. " ")' % pair for pair in pairs)
    dummy, out, dummy = repositories.call(["rpm", "--eval", "%%{lua: %s}" % script])
    expected = [int(word) for word in out.split()]
    assert len(expected) == len(pairs)
    wrong = [
        (pair, ours, theirs)
        for pair, ours, theirs in zip(pairs, [versions.compare_rpm(*pair) for pair in pairs], expected)
        if ours != theirs
    ]
    assert wrong == []


def test_sort_keys():
    assert sorted(["3:1-1", "2-1", "10-1"], key=versions.RpmKey) == ["2-1", "10-1", "3:1-1"]
    assert versions.RpmKey("1.0-1") == versions.RpmKey("0:1.0-1") and versions.KEYS == {
        "apt": versions.Key,
        "dnf": versions.RpmKey,
    }


@pytest.mark.parametrize(
    "manager,text,exclude,expected",
    [
        ("apt", None, True, holds.render_unattended()),
        ("apt", "old", True, holds.render_unattended()),
        ("apt", "old", False, None),
        ("apt", None, False, None),
        ("dnf", None, True, None),
        ("dnf", None, False, None),
        ("dnf", CONF, True, holds.render_automatic(CONF)),
        ("dnf", holds.render_automatic(CONF), False, CONF),
    ],
)
def test_the_file_of_unattended_upgrades_by_package_manager(manager, text, exclude, expected):
    assert holds.unattended_content(manager, text, exclude) == expected


def test_the_pin_by_package_manager():
    resolved = {"packages": {"nvidia-smi": "535.261.03-1"}, "sources": {"nvidia-graphics-drivers": "535.261.03-1"}}
    assert holds.pin_content("apt", UBUNTU, resolved) == holds.render_pin(UBUNTU, resolved["sources"])
    assert holds.pin_content("dnf", UBUNTU, resolved) is None
