# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import formats


def found(version="2.0-1", **transaction):
    return {
        "resolved": {"packages": {"nvidia-smi": version, "nvidia-kernel-dkms": version}},
        "transaction": transaction,
    }


def test_nodes_that_are_alike_are_told_once():
    upgrade = [{"name": "nvidia-smi", "version": "2.0-1"}, {"name": "dkms", "version": "3"}]
    previews = {"n%03d" % number: found(upgrade=upgrade, remove=[]) for number in range(66)}
    previews["odd"] = found("1.9-1", install=["nvidia-smi"])
    lines = formats.preview_packages(previews)
    assert lines == [
        "66 nodes would get nvidia-kernel-dkms 2.0-1, nvidia-smi 2.0-1: n000, n001, n002, n003, n004 and 61 more",
        "  upgrade: dkms 3, nvidia-smi 2.0-1",
        "1 node would get nvidia-kernel-dkms 1.9-1, nvidia-smi 1.9-1: odd",
        "  install: nvidia-smi",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"a": {}},
        {"a": {"failed": True, "msg": "x"}},
        {"localhost": {}},
        {"a": None},
        {"a": {"resolvable": False, "resolved": {"packages": {}}, "transaction": {"install": []}}},
    ],
)
def test_who_has_no_preview_says_nothing(given):
    assert formats.preview_packages(given) == []


def test_a_node_with_nothing_to_do_says_so():
    assert (
        formats.preview_packages({"a": found(install=[], upgrade=[])})[1] == "  nothing would be installed or removed"
    )


def planned(**states):
    return {name: {"state": state, "reason": "why"} for name, state in states.items()}


@pytest.mark.parametrize(
    ("nodes", "hosts", "failing"),
    [
        (planned(a="pending", b="skipped", c="done"), ["localhost", "a", "b", "c"], set()),
        ({}, ["localhost"], set()),
        (planned(a="failed", b="pending"), ["localhost", "a", "b"], {"localhost", "a"}),
        (planned(a="lost"), ["localhost", "a"], {"localhost", "a"}),
        (planned(a="quarantined"), ["localhost", "a"], {"localhost", "a"}),
        (planned(a="rolled_back"), ["localhost"], {"localhost"}),  # of an earlier run, or unreachable
        (planned(a="failed", b="pending"), ["a", "b"], {"a"}),  # a limit leaves the controller out
        (planned(a="failed", b="pending"), ["b"], {"b"}),
        ({"a": {"state": "lost", "orphaned": True}}, ["localhost", "a"], set()),  # it goes
    ],
)
def test_nodes_that_the_plan_leaves_out_fail_in_check_mode_as_they_do_without(nodes, hosts, failing):
    found = formats.find_refused_hosts(nodes, hosts, hosts[0])
    assert set(found) == failing
    assert all(name in found[name] and "why" in found[name] for name in failing & set(nodes) if name == "a")
