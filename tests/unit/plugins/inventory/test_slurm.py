# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin slurm, as ansible-inventory and a playbook use it."""

from __future__ import annotations

import json
import os
import string

import pytest
import yaml

pytest.importorskip("ansible", reason="an inventory plugin lives in Ansible; nodes have none")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers

pytestmark = pytest.mark.cores

PLUGIN = "gpufleet.lifecycle.slurm"
TEXT = answers.DRAINING + answers.REBOOTING
STRICT = "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"


@pytest.fixture
def saved(ansible):
    """An inventory of a saved answer."""
    (ansible.directory / "nodes.txt").write_text(TEXT)
    return lambda name="a.slurm.yml", **more: ansible.file(name, plugin=PLUGIN, **dict({"file": "nodes.txt"}, **more))


def test_graph_shows_groups_and_hosts(ansible, saved):
    out, err = ansible.inventory("-i", saved(), "--graph")
    shown = [line.lstrip(" |-") for line in out.splitlines()]
    assert "WARNING" not in err
    assert shown[shown.index("@slurm:") :][:3] == ["@slurm:", "n1", "n2"]
    assert shown[shown.index("@slurm_gres_a100:") + 1] == "n1" and shown[shown.index("@slurm_state_down:") + 1] == "n2"


def test_list_has_variables_and_what_is_constructed(ansible, saved):
    path = saved(
        strict=True,
        compose={"ansible_host": "slurm_hostname", "rack": "slurm_node[:1]"},
        groups={"gpu_nodes": "slurm_gpus > 0"},
        keyed_groups=[{"prefix": "model", "key": "slurm_gpu_types.keys() | list"}],
    )
    groups, variables = ansible.list(path)
    assert groups["gpu_nodes"] == groups["model_a100"] == ["n1"] and sorted(groups["slurm"]) == ["n1", "n2"]
    assert (variables["n1"]["ansible_host"], variables["n1"]["slurm_gpus"], variables["n2"]["slurm_drain"]) == (
        "host1",
        4,
        True,
    )


def test_the_name_of_the_file_says_whose_it_is(ansible, saved):
    names = {
        "slurm.yml": True,
        "slurm.yaml": True,
        "x.slurm.yml": True,
        "x.slurm.yaml": True,
        "xslurm.yml": False,
        "slurm.json": False,
        "x.yml": False,
    }
    answers = ansible.read([saved(name) for name in names], ANSIBLE_INVENTORY_ENABLED=PLUGIN)
    assert {name: answer["hosts"] == ["n1", "n2"] for name, (answer, dummy) in zip(names, answers)} == names


def test_the_commands_on_the_controller_are_asked(ansible):
    commands = ansible.directory / "bin"
    commands.mkdir()
    for name, text in (("scontrol", TEXT), ("sinfo", "n1\nn2\n")):
        (commands / name).write_text("#!/bin/sh\ncat <<'END'\n%sEND\n" % text)
        (commands / name).chmod(0o755)
    groups, dummy = ansible.list(ansible.file("slurm.yml", plugin=PLUGIN, bin_dir=str(commands)))
    assert sorted(groups["slurm"]) == ["n1", "n2"]


def test_name_or_type_of_a_node_is_no_template_and_no_group_of_hosts(ansible, saved):
    """A node that registers itself names itself, its GPUs and, in its reason, anything."""
    evil = "{{lookup('pipe','touch${IFS}%s')}}" % (ansible.directory / "made")
    text = answers.DRAINING.replace("driver upgrade", evil)
    node = "NodeName=%s Arch=x86_64\n   State=IDLE\n   Partitions=gpu\n\n"
    (ansible.directory / "nodes.txt").write_text(text + "".join(node % name for name in (evil, "all", "gpu_nodes")))
    path = saved(groups={"gpu_nodes": True}, keyed_groups=[{"prefix": "r", "key": "slurm_reason"}])
    groups = json.loads(ansible.inventory("-i", path, "--list")[0])
    assert groups["gpu_nodes"]["hosts"] == ["n1"] and list(groups["_meta"]["hostvars"]) == ["n1"]
    assert not [name for name in groups if set(name) - set(string.ascii_letters + string.digits + "_-.")]
    command = ("ansible", "-i", path, "all", "-c", "local", "-m", "ansible.builtin.debug", "-a")
    code, out, err = ansible.call(*command, "msg={{ inventory_hostname ~ groups ~ group_names ~ slurm_gpu_types }}")
    assert code == 0, out + err
    assert not (ansible.directory / "made").exists()


def test_what_others_wrote_makes_no_group_with_a_meaning(ansible, saved):
    (ansible.directory / "nodes.txt").write_text(answers.DRAINING.replace("gpufleet:tok-1", "gpufleet_builders"))
    keyed = {"prefix": "", "separator": "", "key": "slurm_reason.split()[0]", "parent_group": "gpufleet_reasons"}
    groups, dummy = ansible.list(saved(keyed_groups=[keyed]))
    assert (
        "gpufleet_builders" not in groups
        and groups["_gpufleet_builders"] == ["n1"]
        and "_gpufleet_reasons" not in groups
    )


def test_what_others_wrote_loads_no_file_of_variables(ansible, saved):
    """Ansible takes the name of a host or group for that of a file or directory beside the inventory."""
    node = "NodeName=%s Arch=x86_64\n   State=IDLE\n   Partitions=gpu\n   Reason=%s [root@2026-01-31T12:00:00]\n\n"
    nodes = {"n3": "..", "n4": "secret.yml", "n1.yml": "x", "n5": "."}
    (ansible.directory / "nodes.txt").write_text(TEXT + "".join(node % item for item in nodes.items()))
    for name in ("host_vars/n1", "group_vars/secret"):
        path = ansible.directory / ("%s.yml" % name)
        path.parent.mkdir()
        path.write_text("ansible_password: s3cr3t\n")
    keyed = {"prefix": "", "separator": "", "key": "slurm_reason.split()[0]"}
    path = saved(keyed_groups=[keyed])
    variables = json.loads(ansible.inventory("-i", path, "--list")[0])["_meta"]["hostvars"]
    assert [name for name in variables if "ansible_password" in variables[name]] == ["n1"]
    assert sorted(variables) == ["n1", "n2", "n3", "n4", "n5"]


def test_what_others_wrote_is_no_template(ansible, saved):
    """Anyone who may drain a node writes its reason."""
    evil = "{{ lookup('ansible.builtin.env', 'HOME') }}"
    (ansible.directory / "nodes.txt").write_text(answers.DRAINING.replace("driver upgrade", evil))
    code, out, err = ansible.call(
        "ansible", "-i", saved(), "all", "-c", "local", "-m", "ansible.builtin.debug", "-a", "var=slurm_reason"
    )
    assert code == 0, err
    assert evil in out and str(ansible.directory) not in out


@pytest.mark.slow
def test_the_cache_is_used_until_it_expires(ansible, saved):
    cache = {
        "cache": True,
        "cache_plugin": "ansible.builtin.jsonfile",
        "cache_connection": str(ansible.directory / "cache"),
    }
    path = saved(cache_timeout=3600, **cache)
    assert len(ansible.list(path)[1]) == 2
    (ansible.directory / "nodes.txt").write_text(answers.DRAINING)
    assert len(ansible.list(path)[1]) == 2, "from the cache"
    assert len(ansible.list(saved(cache_timeout=3600, **dict(cache, gpus_only=True)))[1]) == 1, (
        "another question, another entry"
    )


@pytest.mark.slow
def test_a_cache_that_has_expired_or_is_damaged_is_not_used(ansible, saved):
    cache = ansible.directory / "cache"
    path = saved(cache=True, cache_plugin="ansible.builtin.jsonfile", cache_connection=str(cache), cache_timeout=3600)
    assert len(ansible.list(path)[1]) == 2
    (ansible.directory / "nodes.txt").write_text(answers.DRAINING)
    (kept,) = cache.iterdir()
    whole = kept.read_text()
    old = 1000000000

    os.utime(kept, (old, old))
    assert len(ansible.list(path)[1]) == 1, "expired"
    (kept,) = cache.iterdir()
    kept.write_text(json.dumps({key: {"n7": 1} for key in json.loads(whole)}))
    assert sorted(ansible.list(path)[1]) == ["n1"], "something else in it"


def test_groups_that_would_stand_for_two_partitions_are_refused_when_strict(ansible, saved):
    (ansible.directory / "nodes.txt").write_text(TEXT.replace("Partitions=batch,debug", "Partitions=gpu-a,gpu_a"))
    out, err = ansible.inventory("-i", saved(), "--list")
    assert "slurm_partition_gpu_a" in out and "different things share a group" in " ".join(err.split())
    code, dummy, err = ansible.call("ansible-inventory", "-i", saved(strict=True), "--list", **{STRICT: "true"})
    assert code != 0 and "would share a group" in " ".join(err.split())


BAD = {
    "no such file": {"file": "nope.txt"},
    "an empty file": {"file": "empty.txt"},
    "half a file": {"file": "half.txt"},
    "another file": {"file": "other.txt"},
    "too few": {"min_nodes": 3},
    "unknown partition": {"partitions": ["gpu"]},
    "two sources": {"ssh_host": "login"},
    "no scontrol": {"file": "", "bin_dir": "/nonexistent"},
    "no slurmrestd": {"file": "", "url": "http://127.0.0.1:1/slurm/v0.0.40/nodes"},
    "no ssh": {"file": "", "ssh_host": "-x"},
    "an unknown type": {"min_nodes": "many"},
    "no expression": {"strict": True, "compose": {"x": "slurm_nope"}},
}


def test_a_source_that_gives_no_inventory_is_an_error(ansible, saved):
    for name, text in (("empty.txt", ""), ("half.txt", TEXT[:-40]), ("other.txt", "[gpu_nodes]\nn1\n")):
        (ansible.directory / name).write_text(text)
    paths = [saved("%d.slurm.yml" % number, **options) for number, options in enumerate(BAD.values())]
    for case, path, (answer, said) in zip(BAD, paths, ansible.read(paths)):
        assert answer["error"] and answer["hosts"] == [], case
        assert PLUGIN in said and path.name in said and "Traceback" not in said, "%s: %s" % (case, said)


def beside(ansible, saved, *words):
    """A playbook with the nodes of one source beside another that gave half an answer."""
    (ansible.directory / "nodes.txt").write_text(TEXT[:-40])
    ansible.file(
        "hosts.json",
        all={"children": {"gpu_nodes": {"hosts": {"n7": {"ansible_connection": "ansible.builtin.local"}}}}},
    )
    code, out, err = ansible.call("ansible-playbook", "-i", "hosts.json", "-i", saved(), *words)
    assert code == 2 and "gpufleet.lifecycle.slurm: no inventory from" in out, out + err
    return out


@pytest.mark.parametrize("more", [[], ["--limit", "n7"]])
def test_beside_a_source_that_failed_an_upgrade_refuses_to_run(ansible, saved, more):
    """Ansible goes on with the nodes of the other source, and would leave out those that are missing without a word."""
    assert "Audit the driver of each node" not in beside(
        ansible, saved, "gpufleet.lifecycle.upgrade", "-e", "rollout_version=1.2.3", *more
    )


def test_so_does_a_precheck(ansible, saved):
    assert "Judge the node" not in beside(ansible, saved, "gpufleet.lifecycle.precheck")


def test_an_upgrade_begins_with_the_plan(collection_root):
    first = yaml.safe_load((collection_root / "playbooks" / "upgrade.yml").read_text())[0]
    assert first["ansible.builtin.import_playbook"] == "plan.yml"


@pytest.mark.parametrize("playbook", ["bringup", "holds", "precheck", "prestage", "plan"])
def test_first_task_of_a_playbook_that_takes_nodes_checks_the_inventory(collection_root, playbook):
    plays = yaml.safe_load((collection_root / "playbooks" / (playbook + ".yml")).read_text())
    first = next(play for play in plays if "hosts" in play)
    assert "localhost" in first["hosts"]
    assert "gpufleet.lifecycle.playbook_variables" in first["tasks"][0]
