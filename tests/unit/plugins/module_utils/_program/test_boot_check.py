# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node finds of itself at boot: on a simulated node with one fault each, and without a usable expectation."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import read
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import boot_check, main
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig.mignode import (
    configuration,
    everywhere,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w

pytestmark = pytest.mark.pythons

DOCUMENT = {
    "schema": boot_expectation.SCHEMA,
    "driver_version": w.DRIVER,
    "hardware": {"gpus": 2, "model": "NVIDIA H100*"},
    "mig_file": None,
    "policy": w.POLICY,
}
PASS, FAIL, UNKNOWN = 0, 1, 4


@pytest.fixture(name="healthy", scope="module")
def _healthy(tmp_path_factory):
    base = tmp_path_factory.mktemp("boot")
    world = w.World(base / "h100", w.simnode.built(), base, "h100-sxm", gpus=2).build()
    yield world
    world.close()


@pytest.fixture(name="node")
def _node(healthy, tmp_path):
    world = healthy.copy(tmp_path / "root")
    yield world
    world.close()


@pytest.fixture(name="expect")
def _expect(tmp_path):
    """expect(key=value, ...): the path of an expectation that has these."""

    def write(mig=None, **change):
        if mig is not None:
            (tmp_path / "mig.json").write_text(json.dumps(mig))
            change["mig_file"] = str(tmp_path / "mig.json")
        path = tmp_path / "boot-check.json"
        path.write_text(boot_expectation.render_document(dict(DOCUMENT, **change)))
        return str(path)

    return write


def never():
    raise AssertionError("without an expectation nothing is read")


def check(world, path, tables=None):
    """(exit status, {(id, entity): status} of the checks that do not pass)"""
    outcome = boot_check.run(
        path, lambda: world.reading(more=(read.read_layout,)), w.TABLES if tables is None else tables, w.NODE
    )
    assert outcome.health["schema"] == "gpufleet.health/1" and outcome.health["node"] == w.NODE
    return main.status_of(outcome), dict(
        ((found["id"], found["entity"]), found["status"])
        for found in outcome.health["checks"]
        if found["status"] in ("fail", "unknown")
    )


def test_a_node_that_has_what_it_should_have(node, expect):
    assert check(node, expect()) == (PASS, {})


def test_services_that_start_at_the_same_time_are_not_waited_for(node, expect):
    node.units["nvidia-dcgm.service"] = ("loaded", "activating", "start", "success", "enabled")
    node.units["gpufleet-boot-check.service"] = ("loaded", "activating", "start", "success", "enabled")
    assert check(node, expect()) == (PASS, {})


def test_another_driver_than_the_wanted_one(node, expect):
    status, bad = check(node, expect(driver_version=w.NEWER))
    assert status == FAIL and bad[("driver.loaded", "node")] == "fail"


def test_fewer_gpus_than_there_should_be(tmp_path, healthy, expect):
    base = tmp_path / "eight"
    world = w.World(base, w.simnode.built(), tmp_path, "h100-sxm", gpus=8).build()
    try:
        assert check(world, expect(hardware={"gpus": 8})) == (PASS, {})
        world.sim("inject", "gpu-lost", "--gpu", "5")
        status, bad = check(world, expect(hardware={"gpus": 8}))
        assert status == FAIL
        assert [ident for ident, dummy in bad if ident in ("node.hardware", "gpu.handle", "gpu.count")]
    finally:
        world.close()


def test_a_count_that_is_not_the_wanted_one(node, expect):
    status, bad = check(node, expect(hardware={"gpus": 3}))
    assert (status, bad) == (FAIL, {("node.hardware", "node"): "fail"})


@pytest.mark.parametrize("written, status", [(0, PASS), (4102444800, FAIL)])
def test_a_waiver_does_not_count_while_the_clock_is_behind(node, expect, written, status):
    waiver = {"check": "node.hardware", "reason": "a GPU is with the vendor", "expires": "2099-12-31"}
    path = expect(hardware={"gpus": 3}, policy=dict(w.POLICY, waivers=[waiver]))
    os.utime(path, (written, written))
    assert check(node, path)[0] == status


def test_another_model(node, expect):
    status, bad = check(node, expect(hardware={"gpus": 2, "model": "NVIDIA H200*"}))
    assert status == FAIL and set(bad.values()) == {"fail"} and {ident for ident, dummy in bad} == {"gpu.hardware"}


def test_the_layout_is_there_and_then_lost(node, expect):
    wanted = expect(mig=everywhere(d3g_40gb=1, d1g_10gb=2))
    for gpu in ("0", "1"):
        node.node.sim("mig", "--gpu", gpu, "3g.40gb", "1g.10gb", "1g.10gb")
    assert check(node, wanted) == (PASS, {})
    node.node.sim("mig", "--gpu", "1", "3g.40gb")
    assert check(node, wanted) == (FAIL, {("gpu.mig_layout", node.uuid(1)): "fail"})
    node.node.sim("mig", "--gpu", "1")
    status, bad = check(node, wanted)
    assert status == FAIL and bad[("gpu.mig_layout", node.uuid(1))] == "fail"


def test_a_layout_of_which_nothing_can_be_read(node, expect):
    node.node.sim("mig", "--gpu", "1", "3g.40gb")
    node.sim("inject", "error", "nvmlDeviceGetGpuInstances", "999", "--gpu", "1")
    status, bad = check(
        node,
        expect(
            mig=configuration(
                {"devices": [0], "mig-enabled": False},
                {"devices": [1], "mig-enabled": True, "mig-devices": {"3g.40gb": 1}},
            )
        ),
    )
    assert status == UNKNOWN and bad[("gpu.mig_layout", node.uuid(1))] == "unknown"


def test_a_gpu_that_no_entry_of_the_layout_is_about(node, expect):
    status, bad = check(node, expect(mig=configuration({"devices": [0], "mig-enabled": False})))
    assert (status, bad) == (FAIL, {("gpu.mig_layout", node.uuid(1)): "fail"})


def test_nvml_that_hangs(node, expect):
    node.deadline_s = 1
    node.sim("inject", "hang", "nvmlInitWithFlags", "600")
    status, bad = check(node, expect(mig=everywhere(d1g_10gb=7)))
    assert status == FAIL and bad[("nvml.answers", "node")] == "fail" and bad[("gpu.mig_layout", "node")] == "unknown"


@pytest.mark.parametrize(
    ("patience_s", "joins", "status"), [(600, True, PASS), (0, True, UNKNOWN), (0.2, False, UNKNOWN)]
)
def test_gpus_that_join_their_fabric_are_waited_for(node, expect, patience_s, joins, status):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if joins:
            node.sim("clear", "fabric-stuck")

    node.sim("inject", "fabric-stuck", "--value", "2", "--gpu", "1")
    outcome = boot_check.run(
        expect(),
        lambda: node.reading(more=(read.read_layout,)),
        w.TABLES,
        w.NODE,
        patience_s,
        sleep,
        lambda: sum(slept),
    )
    bad = [found["id"] for found in outcome.health["checks"] if found["status"] in ("fail", "unknown")]
    assert main.status_of(outcome) == status and bad == ([] if status == PASS else ["gpu.fabric"])
    assert bool(slept) == bool(patience_s)


def test_what_else_is_wrong_is_not_waited_for(node, expect):
    node.sim("inject", "fabric-stuck", "--value", "2", "--gpu", "1")
    outcome = boot_check.run(
        expect(hardware={"gpus": 3}), lambda: node.reading(more=(read.read_layout,)), w.TABLES, w.NODE, 600, never
    )
    assert main.status_of(outcome) == FAIL


def test_a_check_that_does_not_come_to_its_end_leaves_no_verdict_of_an_earlier_one(tmp_path, monkeypatch):
    result = tmp_path / "boot-check.json"
    result.write_text(json.dumps({"verdict": "pass"}))

    def killed(*dummy):
        raise KeyboardInterrupt

    monkeypatch.setattr(boot_check, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        main.run(["boot-check", "--expectation", str(tmp_path / "none.json"), "--result", str(result)])
    assert not result.exists()


def test_no_table_of_the_collection(node, expect):
    status, bad = check(node, expect(), tables={})
    assert status == UNKNOWN and "unknown" in bad.values()


def text(**change):
    return boot_expectation.render_document(dict(DOCUMENT, **change))


@pytest.mark.parametrize(
    ("content", "problem", "status"),
    [
        (None, "missing", 5),
        ("", "malformed", 6),
        ("[]", "malformed", 6),
        ("\xff{", "malformed", 6),
        ("{}", "other_schema", 7),
        (text(schema="gpufleet.boot-expectation/2"), "other_schema", 7),
        (text(driver_version=""), "malformed", 6),
        (text(driver_version=None), "malformed", 6),
        (text(hardware={}), "malformed", 6),
        (text(hardware={"gpus": True}), "malformed", 6),
        (text(hardware={"gpus": 8, "gpu": 8}), "malformed", 6),
        (text(mig_file="mig.json"), "malformed", 6),
        (text(policy=[]), "malformed", 6),
        (text(policy={"no_such_threshold": 1}), "malformed", 6),
        (text(more=1), "malformed", 6),
        (text(mig_file="/nowhere/mig.json"), "unusable_layout", 2),
    ],
)
def test_an_expectation_that_cannot_be_used(tmp_path, content, problem, status):
    path = tmp_path / "boot-check.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    outcome = boot_check.run(str(path), never, w.TABLES, w.NODE)
    assert (main.status_of(outcome), outcome.problem, outcome.health["verdict"], outcome.health["action"]) == (
        status,
        problem,
        "unknown",
        "hold",
    )
    (found,) = outcome.health["checks"]
    assert (found["id"], found["status"], found["entity"]) == ("boot." + problem, "unknown", "node")


def test_an_expectation_that_others_can_change(tmp_path):
    path, link = tmp_path / "boot-check.json", tmp_path / "link"
    path.write_text(text())
    os.symlink(str(path), str(link))
    for place, mode in ((path, 0o666), (link, 0o644)):
        path.chmod(mode)
        outcome = boot_check.run(str(place), never, w.TABLES, w.NODE)
        assert (main.status_of(outcome), outcome.problem, outcome.health["verdict"]) == (8, "untrusted", "unknown")


def test_the_wanted_driver_is_changed_by_who_installs_it(tmp_path):
    path = tmp_path / "boot-check.json"
    assert boot_expectation.keep_driver(str(path), w.NEWER) is False and not path.exists()
    path.write_text(text())
    assert boot_expectation.keep_driver(str(path), w.NEWER) is True
    assert boot_expectation.keep_driver(str(path), w.NEWER) is False
    assert json.loads(path.read_text()) == dict(DOCUMENT, driver_version=w.NEWER)
    path.write_text("{")
    assert boot_expectation.keep_driver(str(path), w.DRIVER) is False and path.read_text() == "{"
