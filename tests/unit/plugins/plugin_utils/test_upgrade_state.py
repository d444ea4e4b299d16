# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables of what follows from the answers of the gate and of the tasks of role gpu_node_upgrade."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _upgrade_state

EXPORTER, ENGINE, PERSISTENCED = "nvidia-dcgm-exporter.service", "nvidia-dcgm.service", "nvidia-persistenced.service"
FREE = {"value": [], "rc": 0}
WHOLE = {"mig_mode_current": {"value": 0, "rc": 0}, "compute_processes": FREE}
UNREAD = {"mig_mode_current": {"value": None, "rc": 999}, "compute_processes": FREE}
PASS, FAIL = {"verdict": "pass", "checks": []}, {"verdict": "fail", "checks": []}


def decide(**facts):
    """State and documents of a node, in one mapping."""
    return {**_upgrade_state.decide(facts), **_upgrade_state.documents(facts)}


def baseline(gpus=(WHOLE,) * 2, **versions):
    return {"snapshot": {"gpus": list(gpus)}, "audit": {"versions": versions, "kernel": {"running": "6.1.0-1-amd64"}}}


def check(identifier, status, message="", **more):
    return dict({"id": identifier, "status": status, "message": message}, **more)


def health(verdict, *checks, **more):
    return dict({"verdict": verdict, "checks": list(checks)}, **more)


def in_flight(resume, **facts):
    gate = {"resume": resume, "from_version": "1.0.1", "documents": {"baseline": baseline(loaded="1.0.1")}}
    return decide(gate=gate, **facts)


def test_nothing_is_known_of_a_node_before_anything_was_asked():
    state = decide()
    assert not {"baseline", "previous", "health_before", "proof"} & set(state), "a task that needs one of them fails"
    assert state["unfit"] and state["in_use"] and state["not_returned"], "and so does one that judges"
    assert not state["recover"] and not state["current"] and not state["touched"] and state["booted"] == "no"


def test_a_new_node_is_judged_by_its_own_baseline_and_one_in_flight_by_the_ledgers():
    before = {"baseline": baseline(loaded="1.0.1"), "health": PASS}
    assert decide(before=before)["baseline"] is before["baseline"]
    state = in_flight("install", before={"baseline": baseline(loaded="2.0.1"), "health": PASS})
    assert state["baseline"]["audit"]["versions"]["loaded"] == state["previous"] == "1.0.1"
    assert "baseline" not in decide(gate={"resume": "install", "documents": {}}, before=before), (
        "never its own, once it was changed"
    )


@pytest.mark.parametrize(
    ("wanted", "versions", "previous"),
    [
        ("2.0.1", {"loaded": "1.0.1"}, "1.0.1"),
        ("2.0.1", {"loaded": "1.0.1", "package": "1.0.1-1~deb12u1"}, "1.0.1"),
        ("2.0.1-1", {"loaded": "1.0.1", "package": "1.0.1-1~deb12u1"}, "1.0.1-1~deb12u1"),
        ("2.0.1-1", {"loaded": "1.0.1", "package": None}, "1.0.1"),
        ("2.0.1", {"loaded": None, "package": "1.0.1-1"}, ""),
        ("2.0.1", {}, ""),
    ],
)
def test_the_version_to_go_back_to(wanted, versions, previous):
    state = decide(version=wanted, before={"baseline": baseline(**versions), "health": PASS})
    assert state["previous"] == previous
    assert bool(state["unfit"]) == (not previous), "a node without one is not changed"


@pytest.mark.parametrize(
    ("resume", "verdict", "install", "recover", "current", "touched"),
    [
        ("", "pass", {}, False, False, False),
        ("", "pass", {"progress": "3/9"}, False, False, True),
        ("", "fail", {}, False, False, False),
        ("stopped", "pass", {}, True, True, False),
        ("stopped", "fail", {}, True, False, False),
        ("stopped", "fail", {"progress": "3/9"}, True, False, True),
        ("install", "pass", {}, True, True, True),
        ("install", "fail", {}, True, False, True),
        ("install", "unknown", {}, True, False, True),
        ("serving", "pass", {}, True, True, True),
        ("put_back", "pass", {}, True, True, True),
    ],
)
def test_what_an_earlier_controller_did(resume, verdict, install, recover, current, touched):
    state = decide(gate={"resume": resume}, before={"health": health(verdict)}, install=install)
    assert (state["resume"], state["recover"], state["current"], state["touched"]) == (
        resume,
        recover,
        current,
        touched,
    )


@pytest.mark.parametrize("runs, wanted, current", [("k2", "k2", True), ("k1", "k2", False), (None, "k2", False)])
def test_a_node_on_another_kernel_than_the_planned_one_is_not_upgraded(runs, wanted, current):
    before = {"health": dict(health("pass"), kernel=runs)}
    given = {"gate": {"resume": "install"}, "before": before}
    assert decide(to_kernel=wanted, **given)["current"] is current and decide(**given)["current"]


def test_the_baseline_after_the_drain_takes_the_place_of_the_first():
    first, then = {"baseline": baseline(loaded="1"), "health": PASS}, {"baseline": baseline(loaded="1"), "health": FAIL}
    state = decide(before=first, drained=then)
    assert state["baseline"] is then["baseline"] and state["health_before"] is FAIL and state["unfit"]
    assert decide(before=first, drained={"skipped": True})["baseline"] is first["baseline"], (
        "a node without a scheduler takes one"
    )
    silent = decide(before=first, drained={"changed": False})
    assert silent["unfit"] and silent["in_use"] and "baseline" not in silent, (
        "the first one does not stand for one that says nothing"
    )


@pytest.mark.parametrize(
    ("units", "active"),
    [
        ("Id=%s\nActiveState=active\n\nId=%s\nActiveState=inactive\n" % (PERSISTENCED, ENGINE), [PERSISTENCED]),
        (
            "ActiveState=activating\nId=%s\n\nId=%s\nActiveState=reloading" % (PERSISTENCED, ENGINE),
            [PERSISTENCED, ENGINE],
        ),
        ("Id=%s\nActiveState=deactivating\n\nId=%s\nActiveState=failed" % (PERSISTENCED, ENGINE), []),
        ("Id=%s\n\nActiveState=active" % PERSISTENCED, []),
        ("", []),
    ],
)
def test_units_that_run(units, active):
    assert _upgrade_state.active_units(units) == active
    assert decide(units={"stdout": units})["active"] == active


def test_services_that_were_stopped_earlier_run_again_in_the_order_of_the_variable():
    units = {"stdout": "Id=%s\nActiveState=active\n" % PERSISTENCED}
    state = decide(services=[EXPORTER, ENGINE, PERSISTENCED], units=units, ran=[EXPORTER, "other.service"])
    assert (
        state["running"] == [EXPORTER, PERSISTENCED]
        and state["active"] == [PERSISTENCED]
        and state["start"] == [PERSISTENCED, EXPORTER]
    )


@pytest.mark.parametrize(
    ("mode", "layout", "restarted"),
    [
        (0, None, []),
        (1, None, [EXPORTER, ENGINE]),
        (0, {"name": "all-1g"}, [EXPORTER, ENGINE]),
        (1, {"name": "all-1g"}, [EXPORTER, ENGINE]),
    ],
)
def test_what_keeps_the_mig_layout_that_it_started_with_is_restarted_where_one_is_made(mode, layout, restarted):
    """A boot may have started it before the layout was made. Persistenced keeps none."""
    known = baseline(loaded="1.0.1")
    known["snapshot"]["gpus"] = [
        {"uuid": {"value": "GPU-1"}, "mig_mode_current": {"value": mode}, "mig_mode_pending": {"value": mode}}
    ]
    state = decide(
        before={"baseline": known, "health": PASS},
        services=[EXPORTER, ENGINE, PERSISTENCED],
        ran=[PERSISTENCED, ENGINE, EXPORTER],
        layout=layout,
    )
    assert state["restart"] == restarted and state["start"] == [PERSISTENCED, ENGINE, EXPORTER]


CDI, OWN_CDI = "nvidia-cdi-refresh.service", "gpufleet-cdi-refresh.service"
NVIDIAS, LOADED = (
    {"kind": "nvidia.com/gpu", "path": "/var/run/cdi/nvidia.yaml"},
    {"load": "loaded", "active": "inactive"},
)


@pytest.mark.parametrize(
    ("specs", "units", "started"),
    [
        ([NVIDIAS], {CDI: LOADED}, [CDI]),
        ([{"kind": "intel.com/gpu"}, NVIDIAS], {CDI: {"load": "not-found"}, OWN_CDI: LOADED}, [OWN_CDI]),
        ([NVIDIAS], {CDI: LOADED, OWN_CDI: LOADED}, [CDI]),
        ([NVIDIAS], {CDI: {"load": "masked"}, OWN_CDI: None}, []),
        ([NVIDIAS], None, []),
        ([{"kind": "intel.com/gpu"}], {CDI: LOADED}, []),
        ([{"kind": None}], {CDI: LOADED}, []),
        ([], {CDI: LOADED}, []),
        (None, {CDI: LOADED}, []),
    ],
)
def test_the_cdi_file_is_made_again_after_all_services_where_there_was_one(specs, units, started):
    system = {"cdi": None if specs is None else {"specs": specs}, "units": units}
    known = dict(baseline(loaded="1.0.1"), system=system)
    state = decide(
        before={"baseline": known, "health": PASS}, services=[EXPORTER, PERSISTENCED], ran=[EXPORTER, PERSISTENCED]
    )
    assert state["start"] == [PERSISTENCED, EXPORTER, *started] and state["running"] == [EXPORTER, PERSISTENCED]
    assert decide(before={"health": PASS})["start"] == []


@pytest.mark.parametrize(
    ("ownership", "ours"),
    [
        ({}, False),
        (None, False),
        ({"slurm": {"owner": "none"}}, False),
        ({"slurm": {"owner": "other"}}, False),
        ({"slurm": {"owner": "ours"}}, True),
        ({"slurm": {"owner": "none"}, "kubernetes": {"owner": "unknown"}}, True),
        ({"slurm": None}, False),
    ],
)
def test_whose_drain_it_is(ownership, ours):
    assert decide(ownership=ownership)["drained_by_us"] is ours


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ([WHOLE] * 8, [WHOLE] * 7, 8),  # the baseline's, so that a scheduler sees that one is gone
        ([UNREAD] * 8, [WHOLE] * 8, 8),
        ([UNREAD] * 8, [UNREAD] * 8, -2),
        ([UNREAD] * 8, [], -2),
        ([], [WHOLE] * 2, 2),
        ([], [], -1),
    ],
)
def test_how_many_gpus_a_scheduler_has_to_know_of(before, after, count):
    given = {"baseline": baseline(before), "health": PASS}
    assert decide(before=given, after={"baseline": baseline(after)})["expected_gpus"] == count


def test_labels_come_from_the_check_that_passed():
    before, after = baseline([WHOLE]), baseline([WHOLE] * 2)
    results = {"before": {"baseline": before, "health": PASS}, "after": {"baseline": after, "health": PASS}}
    assert decide(**results)["snapshot"] is after["snapshot"]
    assert in_flight("install", **results)["snapshot"] is before["snapshot"]
    assert decide(before=results["before"])["snapshot"] == {}, "not from a check before the change"


@pytest.mark.parametrize(
    ("resume", "reboot", "earlier", "booted"),
    [
        ("", {}, "no", "no"),
        ("", {"rebooted": True}, "no", "yes"),
        ("", {"rebooted": False}, "no", "no"),
        ("", {"rebooted": False}, "yes", "yes"),
        ("", {"failed": True}, "no", "unknown"),
        ("", {"failed": True, "rebooted": True}, "no", "yes"),
        ("", {"rebooted": False}, "unknown", "unknown"),
        ("install", {}, "no", "unknown"),
        ("install", {"rebooted": True}, "no", "yes"),
    ],
)
def test_whether_it_was_rebooted_on_purpose(resume, reboot, earlier, booted):
    state = decide(
        gate={"resume": resume}, reboot=reboot, booted=earlier, hardware={"hardware": {"gpus": 8}, "reboot": True}
    )
    assert state["booted"] == booted
    assert state["expect"] == dict(
        {"yes": {"reboot": True}, "no": {"reboot": False}, "unknown": {}}[booted], hardware={"gpus": 8}
    )
    assert state["hardware"] == {"hardware": {"gpus": 8}}


FABRIC = check("gpu.fabric", "unknown", observed="in progress")


@pytest.mark.parametrize(
    ("checks", "joining", "hung"),
    [
        ([], False, False),
        ([check("gpu.fabric", "pass", observed="completed")], False, False),
        ([FABRIC], True, False),
        ([FABRIC, check("gpu.fabric", "unknown", observed="not started"), check("gpu.ecc", "pass")], True, False),
        ([FABRIC, check("gpu.ecc", "fail")], False, False),
        ([dict(FABRIC, status="fail")], False, False),
        ([dict(FABRIC, observed="no answer")], False, False),
        ([check("nvml.answers", "unknown", observed="timeout")], False, True),
        ([check("nvml.answers", "fail", observed="stuck"), FABRIC], False, True),
        ([check("nvml.answers", "fail", observed="driver not loaded")], False, False),
        ([check("nvml.answers", "pass", observed="timeout")], False, False),
    ],
)
def test_what_the_comparison_waits_for(checks, joining, hung):
    state = decide(after={"health": health("fail", *checks)})
    assert (state["joining"], state["hung"]) == (joining, hung)


BACK = {"failures": []}
RUNS = {"failures": [], "services": [{"name": "x.service", "active": "active"}]}


@pytest.mark.parametrize(
    ("after", "restored", "started", "named"),
    [
        ({}, BACK, RUNS, None),
        ({}, BACK, {"skipped": True, "changed": False}, None),  # no service ran before
        ({"unreachable": True, "msg": "timed out"}, BACK, RUNS, "timed out"),
        ({}, {"failures": ["power_limit"], "msg": "power limit of GPU 3"}, RUNS, "power limit of GPU 3"),
        ({}, {}, RUNS, "settings"),
        ({}, {"failures": None}, RUNS, "settings"),
        ({}, {"unreachable": True, "msg": "timed out"}, RUNS, "timed out"),
        (
            {},
            BACK,
            {"failures": [{"service": "x.service", "code": "masked"}], "msg": "unit is masked"},
            "unit is masked",
        ),
        ({}, BACK, {"failed": True, "msg": "The node is locked"}, "The node is locked"),
        ({}, BACK, {"unreachable": True, "msg": "timed out"}, "timed out"),
        ({}, BACK, {"failures": None}, "no answer"),
        ({}, BACK, {"failed": True}, "no answer"),
        ({}, BACK, {}, "no answer"),
    ],
)
def test_a_node_is_as_it_was_only_if_everything_says_so(after, restored, started, named):
    said = decide(after=after, restored=restored, started=started)["not_returned"]
    assert said == "" if named is None else named in said


@pytest.mark.parametrize(
    ("seconds", "interval", "looks"),
    [(0, 30, 0), (None, 30, 0), ("", 30, 0), (1, 30, 1), (30, 30, 1), (31, 30, 2), ("90", "30", 3), (2, 0, 2)],
)
def test_how_often_a_canary_is_looked_at(seconds, interval, looks):
    assert decide(returned={"soak_s": seconds}, soak_interval=interval)["soak_looks"] == list(range(looks))


def test_a_complaint_is_the_finding_that_leads():
    checks = [
        check("b", "unknown", "B is unknown."),
        check("ok", "pass", "never said"),
        check("a", "fail", "A failed."),
    ]
    assert _upgrade_state.complaint(health("fail", *checks)) == "A failed. Beside it: b."
    assert _upgrade_state.complaint(health("unknown")) == "verdict unknown"


def test_findings_of_a_failure_are_those_of_the_verdict_for_which_the_task_failed():
    bad = {"health": health("fail", check("gpu.ecc", "fail", "E."), check("gpu.xid", "pass", "X."))}
    other = {"health": health("fail", check("gpu.pcie", "fail", "P."))}
    unfit = decide(before=bad)["unfit"]
    for facts, expected in (
        ({"failed_result": other, "before": bad}, ["gpu.pcie"]),
        ({"failed_result": {"msg": unfit}, "before": bad}, ["gpu.ecc"]),
        ({"failed_result": {"msg": "no space is left"}, "before": bad}, []),
        ({"failed_result": {"msg": ["a", "list"]}, "before": bad}, []),
        ({"before": bad}, []),
    ):
        assert [found["id"] for found in decide(**facts)["findings"]] == expected, facts


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        ({"msg": "two\n  lines"}, "two lines"),
        ({"msg": ""}, "task failed: Install the driver"),
        ({}, "task failed: Install the driver"),
        (
            {"msg": "not this", "health": health("fail", check("gpu.ecc", "fail", "GPU 3 has errors."))},
            "GPU 3 has errors.",
        ),
        ({"msg": "word " * 500}, ("word " * 399)[:-1] + "..."),
        ({"msg": "x" * 5000}, "x" * 2000),
        ({"msg": ["a", "list"]}, "['a', 'list']"),
    ],
)
def test_a_failure_is_one_line(result, failure):
    assert decide(failed_result=result, failed_task="Install the driver")["failure"] == failure


def test_checks_that_did_not_pass_are_named_once():
    checks = [
        check("gpu.xid", "fail"),
        check("gpu.ecc", "unknown"),
        check("gpu.ecc", "fail"),
        check("gpu.pcie", "pass"),
    ]
    assert decide(failed_result={"health": health("fail", *checks)})["failed_checks"] == ["gpu.ecc", "gpu.xid"]
    assert decide(failed_result={"msg": "no module"})["failed_checks"] == []


@pytest.mark.parametrize(
    ("resume", "resume_failed", "lift_failed", "kernel", "parts", "absent"),
    [
        ("", "", "", {}, ["it broke."], ["back on driver", "next run"]),
        (
            "install",
            "",
            "",
            {},
            ["it broke. The node is back on driver 1.0.1, which passed", "and serves."],
            ["kernel", "next run"],
        ),
        (
            "install",
            "",
            "",
            {"changed": True, "msg": "kept."},
            ["1.0.1 and kernel 6.1.0-1-amd64, which", "serves. kept."],
            ["next run"],
        ),
        (
            "install",
            "",
            "not resumed.",
            {"msg": "kept."},
            ["back on driver 1.0.1", "It was not resumed. The next run"],
            ["serves", "kept."],
        ),
        ("install", "kept out.", "", {}, ["it broke. The next run asks again."], ["back on driver", "serves"]),
        ("", "", "not resumed.", {}, ["it broke. It was not resumed. The next run"], ["back on driver", "serves"]),
    ],
)
def test_what_became_of_a_node_that_failed(resume, resume_failed, lift_failed, kernel, parts, absent):
    state = in_flight(resume, reason="it broke.", resume_failed=resume_failed, lift_failed=lift_failed, kernel=kernel)
    assert all(part in state["outcome"] for part in parts), state["outcome"]
    assert not [part for part in absent if part in state["outcome"]], state["outcome"]


IN_MIG = {"mig_mode_current": {"value": 1, "rc": 0}, "compute_processes": FREE}
CLEARED = {"baseline": {"snapshot": {"gpus": [IN_MIG]}}}
ROWS, ECC, STOPPED = "gpu.remap_failure", "gpu.ecc_volatile", check("node.fabric_manager", "fail", "It is stopped.")


@pytest.mark.parametrize(
    ("checks", "unfit"),
    [
        ([check(ROWS, "pass"), check(ECC, "not_applicable"), STOPPED], False),
        ([check(ROWS, "fail", "A row remapping failed."), STOPPED], True),
        ([check(ROWS, "pass"), check("gpu.remap_pending", "unknown", "Not read.")], True),
        ([check(ROWS, "pass"), check(ECC, "fail", "Errors.")], True),
        ([check(ROWS, "not_applicable"), check(ECC, "not_applicable")], True),
        ([STOPPED], True),
        ([], True),
    ],
)
def test_what_mig_hid_has_to_be_read_and_good(checks, unfit):
    """And nothing else counts while the services of the node are stopped."""
    state = decide(mig_free={"health": health("fail", *checks)})
    assert bool(state["mig_unfit"]) == unfit and "stopped" not in state["mig_unfit"]


@pytest.mark.parametrize(
    ("gpus", "mig_free", "documents", "mig", "clear"),
    [
        ((WHOLE, WHOLE), {}, {}, False, False),
        ((UNREAD,), {}, {}, False, False),  # it is refused before: its mode is a check of its own
        ((WHOLE, IN_MIG), {}, {}, True, True),
        ((IN_MIG,), CLEARED, {}, True, False),
        ((IN_MIG,), {"failed": True}, {}, True, True),
        ((IN_MIG,), {}, {"mig-free": CLEARED["baseline"]}, True, False),
    ],
)
def test_what_becomes_of_mig_instances(gpus, mig_free, documents, mig, clear):
    """They are destroyed once, also where a controller died: what was read without them is kept."""
    gate = {
        "resume": "changed" if documents else "",
        "documents": dict(documents, baseline=baseline(gpus, loaded="1.0.1")),
    }
    state = decide(gate=gate, before={"baseline": baseline(gpus, loaded="1.0.1")}, mig_free=mig_free)
    assert (state["mig"], state["clear_mig"], "mig_free" in state) == (mig, clear, mig and not clear)


def test_destroyed_instances_have_to_be_made_again():
    assert (
        decide(mig_cleared={"progress": "mig_clear"})["touched"] and not decide(mig_cleared={"failed": True})["touched"]
    )


def test_what_mig_hides_is_accepted_of_a_node_that_serves_alone():
    state = decide(hardware={"hardware": {"gpus": 8}, "reboot": True})
    assert state["serving"] == {"hardware": {"gpus": 8}, "mig_hidden": "all"} and state["hardware"] == {
        "hardware": {"gpus": 8}
    }
    assert "mig_hidden" not in state["expect"]


WANTED_LAYOUT = {"name": "halves", "config": {}}
MADE = {
    "snapshot": {
        "gpus": [
            {
                "uuid": {"value": "GPU-1", "rc": 0},
                "mig_mode_current": {"value": 1, "rc": 0},
                "mig_mode_pending": {"value": 1, "rc": 0},
                "mig_instances": {"value": [{"name": "H MIG 1g.10gb"}] * 2, "rc": 0},
            }
        ]
    }
}


def told(mode, uuid="GPU-1", instances=()):
    return {
        "uuid": {"value": uuid, "rc": 0},
        "compute_processes": FREE,
        "mig_mode_current": mode,
        "mig_mode_pending": mode,
        "mig_instances": {"value": list(instances), "rc": 0},
        "power_limit_w": {"value": 500, "rc": 0},
    }


OFF, ON, MUTE = {"value": 0, "rc": 0}, {"value": 1, "rc": 0}, {"value": None, "rc": 999}


@pytest.mark.parametrize(
    ("mode", "layout", "mig", "clear", "unfit", "before"),
    [
        (OFF, {}, False, False, False, None),
        (ON, {}, True, True, False, None),
        (OFF, WANTED_LAYOUT, False, False, False, [{"gpus": ["GPU-1"], "mig_enabled": False}]),
        (ON, WANTED_LAYOUT, False, True, False, [{"gpus": ["GPU-1"], "mig_enabled": True, "mig_devices": {}}]),
        (MUTE, {}, False, False, False, None),
        (MUTE, WANTED_LAYOUT, False, False, True, None),  # what could not be made again is not changed
    ],
)
def test_a_layout_is_changed_only_where_the_one_before_is_known(mode, layout, mig, clear, unfit, before):
    state = decide(layout=layout, before={"baseline": baseline([told(mode)], loaded="1.0.1"), "health": PASS})
    assert (state["layout"], state["mig"], state["clear_mig"], bool(state["unfit"])) == (
        bool(layout),
        mig,
        clear,
        unfit,
    )
    assert state.get("layout_before") == before


ROWS = {"gpus": [{"gpu": "GPU-1", "status": "changed", "wanted": {}}, {"gpu": "GPU-2", "status": "reset_required"}]}
READ_BACK = [{"gpu": "GPU-1", "status": "changed"}, {"gpu": "GPU-2", "status": "reset_required"}]
AGAIN = {"gpus": [{"gpu": "GPU-1", "status": "same"}, {"gpu": "GPU-2", "status": "changed"}]}


@pytest.mark.parametrize(
    ("layout", "made", "again", "gpus"),
    [
        ({}, ROWS, {}, None),
        (WANTED_LAYOUT, {}, {}, None),
        (WANTED_LAYOUT, ROWS, {}, READ_BACK),
        (WANTED_LAYOUT, ROWS, {"skipped": True}, READ_BACK),
        (WANTED_LAYOUT, ROWS, AGAIN, AGAIN["gpus"]),
        (WANTED_LAYOUT, {"failed": True, "msg": "NVML is gone"}, {}, []),
        (WANTED_LAYOUT, ROWS, {"failed": True, "msg": "NVML is gone"}, []),
        (WANTED_LAYOUT, {"gpus": [None]}, {}, [{"gpu": None, "status": None}]),
    ],
)
def test_the_proof_of_a_layout_is_what_was_read_back_when_it_was_made_last(layout, made, again, gpus):
    found = decide(layout=layout, layout_made=made, layout_again=again).get("layout_proof")
    assert found == (None if gpus is None else {"layout": WANTED_LAYOUT, "gpus": gpus})


def test_a_node_is_compared_with_its_baseline_and_the_layout_that_was_made():
    before = {"baseline": baseline([told(OFF), told(OFF, "GPU-2")], loaded="1.0.1"), "health": PASS}
    assert decide(before=before)["reference"] is before["baseline"]
    assert "reference" not in decide(before=before, layout=WANTED_LAYOUT), (
        "nothing was made yet, so that nothing can be compared"
    )
    reference = decide(before=before, layout=WANTED_LAYOUT, layout_read=MADE)["reference"]
    one, other = reference["snapshot"]["gpus"]
    assert (
        one["mig_mode_current"] == ON
        and len(one["mig_instances"]["value"]) == 2
        and one["power_limit_w"]["value"] == 500
    )
    assert other == told(OFF, "GPU-2"), "a GPU that was not read has to have what it had"
    assert (
        before["baseline"]["snapshot"]["gpus"][0]["mig_mode_current"] == OFF
        and reference["audit"] == before["baseline"]["audit"]
    )


@pytest.mark.parametrize(
    ("resume", "layout", "current"),
    [
        ("changed", {}, True),
        ("changed", WANTED_LAYOUT, False),
        ("stopped", WANTED_LAYOUT, False),
        ("serving", WANTED_LAYOUT, False),
    ],
)
def test_a_node_with_a_layout_goes_through_all_steps_again_after_its_controller_died(resume, layout, current):
    """It may have the layout before, with which it passes against its baseline."""
    facts = {"before": {"health": PASS}, "after": {"health": FAIL}, "layout": layout}
    state = in_flight(resume, **facts)
    assert state["current"] == current and state["proof"] is (PASS if current else FAIL)


def test_a_layout_that_was_begun_has_to_be_undone_and_counts_for_the_schedulers():
    before = {"baseline": baseline([told(OFF)], loaded="1.0.1"), "health": PASS}
    assert not decide(before=before, layout=WANTED_LAYOUT)["touched"]
    assert decide(before=before, layout=WANTED_LAYOUT, layout_begun={"progress": "a: mig"})["touched"]
    assert decide(before=before, layout=WANTED_LAYOUT)["expected_gpus"] == 1
    assert decide(before=before, layout=WANTED_LAYOUT, layout_read=MADE)["expected_gpus"] == 2


@pytest.mark.parametrize(
    ("installs", "proof", "due"),
    [
        (True, {"audit": {"reboot_required": True}}, True),
        (True, {"audit": {"reboot_required": False}}, False),
        (True, {}, None),
        (True, {"audit": {}}, None),
        (False, {}, False),
        (False, {"audit": {"reboot_required": True}}, False),
    ],
)
def test_a_reboot_is_due_for_a_driver_and_for_no_layout(installs, proof, due):
    assert decide(installs=installs, proof=proof).get("reboot_due") is due, (
        "what is not known is left out, so that the task fails"
    )
