# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of dnf's plugin versionlock."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import dnf_locks

pytestmark = pytest.mark.pythons

NEW = "3:580.95.05-1.el9"


@pytest.mark.parametrize(
    "line,name",
    [
        ("nvidia-driver-cuda-3:575.57.08-1.el9.*", "nvidia-driver-cuda"),
        ("kernel-core-0:5.14.0-503.22.1.el9_5.*", "kernel-core"),
        ("kmod-nvidia-580.95.05-5.14.0-503.22.1-3:580.95.05-3.el9_5.*", "kmod-nvidia-580.95.05-5.14.0-503.22.1"),
        ("libnvidia-ml", "libnvidia-ml"),
        ("nvidia-imex-580.95.05-1", "nvidia-imex"),
        ("# Added lock on Sat", None),
        ("!nvidia-imex-0:1-1.*", None),
        ("", None),
        ("a-0:1-1.* # why", "a"),
    ],
)
def test_the_package_of_a_lock(line, name):
    assert dnf_locks.lock_name(line) == name


@pytest.mark.parametrize(
    "pattern,version,locked",
    [
        ("libnvidia-ml-3:580.95.05-1.el9.*", NEW, True),
        ("libnvidia-ml-3:580.95.05-1.el9.x86_64", NEW, True),
        ("libnvidia-ml", NEW, False),
        ("libnvidia-ml-*:580.95.05-1.el9.*", NEW, True),
        ("libnvidia-ml-3:580.95.05-*", NEW, False),
        ("libnvidia-ml-3:580.95.05-1.el9", NEW, True),
        ("libnvidia-ml-3:580.*", NEW, False),
        ("libnvidia-ml.x86_64", NEW, False),
        ("libnvidia-ml-3:580.95.05-1.*.x86_64", NEW, False),
        ("libnvidia-ml-3:*", NEW, False),
        ("libnvidia-ml-580.95.05-1.el9.*", NEW, False),
        ("libnvidia-ml-0:580.95.05-1.el9.*", NEW, False),
        ("libnvidia-ml-3:575.57.08-1.el9.*", NEW, False),
        ("libnvidia-ml-0:580.95.05-1.*", "580.95.05-1", True),
        ("libnvidia-ml-580.95.05-1.*", "580.95.05-1", True),
        ("libnvidia-*", NEW, False),
        ("libnvidia-*-3:580.95.05-1.el9.*", NEW, True),
    ],
)
def test_a_lock_without_the_epoch_or_the_version_locks_nothing(pattern, version, locked):
    assert dnf_locks.is_locked([pattern], "libnvidia-ml", version, "x86_64") is locked


@pytest.mark.parametrize("loose", ["libnvidia-*", "libnvidia-ml", "libnvidia-ml-3:5*", "*"])
def test_lock_of_every_version_takes_others_their_effect_and_goes_with_a_hold(loose):
    exact = "libnvidia-ml-%s.*" % NEW
    assert not dnf_locks.is_locked([exact, loose], "libnvidia-ml", NEW, "x86_64")
    assert dnf_locks.is_locked([exact, "kernel*"], "libnvidia-ml", NEW, "x86_64")
    text = "kernel*\n%s\n" % loose
    assert dnf_locks.render_locks(text, {"libnvidia-ml": NEW}, []) == "kernel*\n%s\n" % exact
    assert dnf_locks.render_locks("libnvidia-*\n", {}, ["nvidia-imex"]) == "libnvidia-*\n"


def test_locks_are_rewritten_and_others_stay():
    text = "# mine\nother-0:1-1.*\nlibnvidia-ml-3:575.57.08-1.el9.*\nnvidia-imex-0:575.57.08-1.*\n!blocked-0:1-1.*\n"
    assert dnf_locks.render_locks(text, {"libnvidia-ml": NEW, "nvidia-imex": "580.95.05-1"}, []) == (
        "# mine\nother-0:1-1.*\n!blocked-0:1-1.*\nlibnvidia-ml-3:580.95.05-1.el9.*\nnvidia-imex-0:580.95.05-1.*\n"
    )
    assert (
        dnf_locks.render_locks(text, {}, ["libnvidia-ml", "nvidia-imex"]) == "# mine\nother-0:1-1.*\n!blocked-0:1-1.*\n"
    )
    assert dnf_locks.render_locks("", {}, []) == ""
    both = dnf_locks.render_locks(text, {"libnvidia-ml": NEW, "libnvidia-ml:i686": "1:1-1"}, [])
    assert both.splitlines()[-2:] == ["libnvidia-ml-3:580.95.05-1.el9.*", "libnvidia-ml-1:1-1.i686"]
