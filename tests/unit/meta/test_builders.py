# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes compile kernel modules that others load: dedicated hosts, or the first canary while it is drained."""

from __future__ import annotations

import pathlib

import pytest
import yaml

pytest.importorskip("ansible", reason="expressions are evaluated by Ansible's templates")

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROOT = pathlib.Path(__file__).resolve().parents[3]
UPGRADE, DRIVER = (ROOT / "roles" / name for name in ("gpu_node_upgrade", "nvidia_driver"))


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def evaluate(text, **variables):
    try:
        from ansible.template import trust_as_template
    except ImportError:  # before ansible-core 2.19
        trust_as_template = str
    trusted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in variables.items()}
    return Templar(loader=DataLoader(), variables=trusted).template(trust_as_template(text))


def task_of(path, module):
    """The task of a file, at any depth, that has a key."""

    def walk(items):
        for item in items:
            if module in item:
                yield item
            for part in ("block", "rescue", "always", "tasks"):
                yield from walk(item.get(part) or [])

    (found,) = walk(load(path))
    return found


@pytest.mark.parametrize(
    "canaries, order, expected",
    [
        (["c", "d"], ["c", "d", "a"], "c"),
        ([], ["b", "a"], "b"),
        (["c"], ["a", "b"], None),  # the canary is done, or another controller has it
    ],
)
def test_the_first_canary_of_the_plan_compiles_for_the_others(canaries, order, expected):
    (play,) = [play for play in load(ROOT / "playbooks" / "upgrade.yml") if "gpu_node_upgrade_builder" in str(play)]
    text = play["vars"]["gpu_node_upgrade_builder"]
    plan = {"canaries": canaries, "order": order}
    found = [name for name in order if evaluate(text, inventory_hostname=name, __rollout_plan=plan)]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    "groups, chosen, expected",
    [
        ({}, True, True),
        ({}, False, False),
        ({"gpufleet_builders": []}, True, True),
        ({"gpufleet_builders": ["x"]}, True, False),
    ],
)
def test_where_there_are_builders_no_canary_compiles_for_the_others(groups, chosen, expected):
    text = load(UPGRADE / "vars" / "main.yml")["__gpu_node_upgrade_builds"]
    assert evaluate(text, groups=groups, gpu_node_upgrade_builder=chosen) is expected


@pytest.mark.parametrize("name, expected", [("builder-1", True), ("a1", False)])
def test_a_host_of_the_group_is_a_builder_and_no_other(name, expected):
    text = load(DRIVER / "defaults" / "main.yml")["nvidia_driver_builder"]
    assert evaluate(text, inventory_hostname=name, groups={"gpufleet_builders": ["builder-1"]}) is expected
    assert evaluate(text, inventory_hostname=name, groups={}) is False


def test_a_canary_compiles_for_the_others_only_after_it_was_drained():
    """Ahead of the drain it prepares no module: what it has then is never taken home."""
    install = [task for task in load(UPGRADE / "tasks" / "install.yml") if task.get("name") == "Install the driver"]
    assert install[0]["vars"]["__nvidia_driver_drained"] == "{{ __gpu_node_upgrade_builds }}"
    ahead = task_of(UPGRADE / "tasks" / "preflight.yml", "ansible.builtin.include_role")
    assert ahead["vars"]["__nvidia_driver_prepares"] == "{{ not __gpu_node_upgrade_builds }}"
    prepared = task_of(DRIVER / "tasks" / "prestage.yml", "gpufleet.lifecycle.dkms_module")
    assert "__nvidia_driver_prepares" in prepared["when"]
    defaults = load(DRIVER / "vars" / "main.yml")
    assert (defaults["__nvidia_driver_drained"], defaults["__nvidia_driver_prepares"]) == (False, True)
    told = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "roles").rglob("tasks/**/*.yml")
        if "__nvidia_driver_drained:" in path.read_text(encoding="utf-8")
    }
    assert told == {"roles/gpu_node_upgrade/tasks/install.yml"}


def test_every_use_of_the_modules_says_who_may_give_them():
    places = [path for path in (ROOT / "roles").rglob("tasks/**/*.yml") if "dkms_module:" in path.read_text("utf-8")]
    assert len(places) == 3
    for path in places:
        args = task_of(path, "gpufleet.lifecycle.dkms_module")["gpufleet.lifecycle.dkms_module"]
        assert "builder" in args and "ledger" in args, path
