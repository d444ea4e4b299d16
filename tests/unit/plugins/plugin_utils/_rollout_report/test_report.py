# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout: the document, the table, Markdown, JUnit XML, the page and the numbers for Prometheus."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.callback import rollout_progress
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import members, owner, state
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import format_time
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import formats as markup
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, options, plan_text
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report import (
    formats,
    page,
    publish,
    report,
    timeline,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout_report.report import (
    LISTED,
    NEXT_STEP,
    SERVES,
    WORST,
    find_failed_step,
    find_next_step,
    format_span,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._ledger.written import reduce
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._report.test_formats import EVIL, Page
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._rollout_report.stories import START, Story

RACKS = {"a1": {"rack": "rack_a"}, "a2": {"rack": "rack_a"}, "b1": {"rack": "rack_b"}, "b2": {"rack": "rack_b"}}


def story():
    """One done, one rolled back, one lost, one that did not start."""
    made = Story("a1", "b1", "a2", "b2", canaries=["a1"], domains=RACKS, max_down=2, failure_budget=2)
    made.done("a1").fails("b1").fails("a2", "lost", "stopped answering", "reboot", "lost")
    return made.end()


def document(made=None, ended=True):
    made = made or story()
    found = timeline.build_timeline(made.events)
    return report.build_document(found.view, ended, format_time(made.now), made.events[-1]["time"], found), found


def pages(made=None, ended=True):
    doc, found = document(made, ended)
    return Page(page.render_page(doc, found)), doc


def seconds(number):
    return START.timestamp() + number


class TestDocument:
    def test_the_verdict_and_its_reasons_come_first(self):
        doc = document()[0]
        assert list(doc)[:4] == ["verdict", "reasons", "next_steps", "schema"]
        assert (doc["verdict"], doc["schema"]) == ("failed", "gpufleet.report/1")
        assert doc["reasons"] == [
            "No further node starts: the failure budget of 2 is spent by b1, a2.",
            "1 node lost: a2.",
            "1 node rolled back: b1.",
            "1 node did not start: b2.",
            "1 of 4 nodes done or skipped.",
        ]
        assert (
            doc["next_steps"][0].startswith("a2 (lost): Check that it is powered on")
            and "b1 (rolled_back)" not in doc["next_steps"][1]
        )
        assert "with a larger budget" in doc["next_steps"][-1]
        assert json.loads(files.json_text(doc)) == doc == json.loads(files.json_text(doc, dense=True))

    def test_a_node_that_an_operator_left_out_is_the_first_thing_it_says_of_a_complete_rollout(self):
        made = Story("a1", "a2", "b1", domains=RACKS, states={"b1": "skipped"})
        made.done("a1").add("control", verb="skip", user="kim", reason="its user needs it", node="a2").end()
        doc = document(made)[0]
        assert doc["verdict"] == "complete" and doc["left_out"] == ["a2"]
        assert doc["reasons"] == [
            "1 node left out by an operator, and still at its old version: a2 (skipped by kim: its user needs it).",
            "Every other node is done or had nothing to do: 1 done, 1 skipped.",
        ]
        assert doc["next_steps"] == [
            "a2 (left out by an operator): the next run includes it, unless it is skipped again."
        ]
        made.events.pop()
        assert "rollout_verb=retry" in document(made)[0]["next_steps"][-1], "the run did not come to its end"
        made.end()
        assert (
            formats.render_table(doc)[-1]
            == "complete, without 1 node that an operator left out (a2): 1 done, 2 skipped, target 2.0"
        )
        assert "left out by an operator" in formats.render_markdown(doc).split("## ", maxsplit=1)[0]
        assert document(Story("a1").done("a1").end())[0]["left_out"] == []

    def test_what_it_says_of_a_node(self):
        node = document()[0]["nodes"]["b1"]
        assert (
            node["state"],
            node["from"],
            node["to"],
            node["failure"],
            node["domains"],
            node["canary"],
            node["attempt"],
        ) == ("rolled_back", "1.0", "2.0", "hard", {"rack": "rack_b"}, False, 1)
        assert [(step["name"], step["status"]) for step in node["steps"]][-3:] == [
            ("validate", "failed"),
            ("rollback_install", "ok"),
            ("rollback_validate", "ok"),
        ]
        assert find_failed_step(node) == "validate"

    def test_node_in_flight_has_its_step_with_its_age_and_the_usual_time(self):
        made = Story("a1", "b1", max_down=2).done("a1").go("b1", "install")
        made.now += datetime.timedelta(minutes=7)
        doc = document(made, False)[0]
        step = doc["nodes"]["b1"]["in_step"]
        assert (step["name"], step["for_s"], step["usual_s"]) == ("install", 420, 60.0)
        assert doc["nodes"]["a1"]["in_step"] is None
        assert report.describe_reason(doc["nodes"]["b1"]) == "install, since 7 min (usual: 60 s)"
        assert "install, since 7 min (usual: 60 s)" in pages(made, False)[0].all("section", id_="nodes")[0]["text"]

    def test_estimates_come_from_earlier_rollouts_until_a_node_is_done(self):
        before = timeline.build_timeline(Story("z1").done("z1").events).view.nodes.list_all()
        made = Story("a1", "b1").go("a1", "install")
        found = timeline.build_timeline(made.events)
        doc = report.build_document(found.view, False, format_time(made.now), before=before)
        assert doc["nodes"]["a1"]["in_step"]["usual_s"] == 60.0
        assert (doc["estimate"]["measured"], doc["estimate"]["earlier"]) == (0, 1)
        assert doc["estimate"]["expected_s"] < 900 and "of earlier rollouts" in report.describe_estimate(doc)
        without = report.build_document(found.view, False, format_time(made.now))
        assert without["nodes"]["a1"]["in_step"]["usual_s"] is None and without["estimate"]["earlier"] == 0

    def test_how_much_of_the_budgets_is_used(self):
        assert document()[0]["budgets"] == {
            "down": {"used": 1, "limit": 2, "window": None},
            "draining": {"used": 0, "limit": 2},
            "failures": {"used": 3, "limit": 2},
        }

    @pytest.mark.parametrize(
        "change, words",
        [
            (lambda made: made.add("control", verb="pause", user="kim", reason="fabric"), "Paused by kim: fabric."),
            (lambda made: made.add("control", verb="stop", user="kim", reason="fabric"), "Stopped by kim: fabric."),
            (lambda made: made.add("hold", names=["alerts"], reason="alerts: 1 series"), "Held: alerts: 1 series."),
            (lambda made: made.go("a1", "drain"), "1 node in flight: a1."),
        ],
    )
    def test_why_a_rollout_stands_as_it_does(self, change, words):
        made = Story("a1", "b1")
        change(made)
        assert words in document(made, ended=False)[0]["reasons"]

    def test_a_plan_without_approval_says_so(self):
        made = Story("a1")
        made.events[0]["policy"]["approved"] = ""
        assert "This plan is not approved, so no node starts." in document(made, False)[0]["reasons"]

    def test_a_hold_that_is_over_is_not_named(self):
        made = Story("a1").add("hold", names=["x"], reason="x: y").add("hold", names=[], reason="")
        assert not [reason for reason in document(made, False)[0]["reasons"] if reason.startswith("Held")]

    def test_nodes_that_were_left_in_flight_come_first_in_what_to_do(self):
        made = Story("a1", "b1").go("a1", "install")
        doc = document(made)[0]
        assert doc["verdict"] == "incomplete" and doc["next_steps"][0].startswith("Run the same playbook again")
        assert "1 node left in flight: a1." in doc["reasons"]

    def test_of_several_controllers_the_jobs_are_run_that_have_the_nodes(self):
        found = timeline.build_timeline(Story("a1", "b1").go("a1", "install").events)
        alone, several = [report.list_next_steps(found.view, "incomplete", "", several) for several in (False, True)]
        assert len(alone) == len(several) == 2
        assert ["same playbook" in step for step in alone + several] == [True, True, False, False]
        assert ["jobs" in step for step in alone + several] == [False, False, True, True]

    def test_nothing_planned(self):
        doc = report.build_document(state.Rollout(), True)
        assert doc["verdict"] == "incomplete" and doc["reasons"] == ["No node was planned."]


def standing(*wanted, many=0):
    """A story in which a node of its own stands in each of the states WANTED, and MANY more that wait."""
    others = ["z%04d" % number for number in range(many)]
    made = Story(*wanted, *others, states={"skipped": "skipped"}, max_down=20, failure_budget=20, common_cause=0)
    for name in wanted:
        if name in state.FAILED:
            made.fails(name, name)
        elif name in state.IN_FLIGHT:
            made.go(name, {"draining": "drain", "down": "install", "validating": "validate", "soaking": "return"}[name])
            if name == "soaking":
                made.step(name, "soak", 10)
        elif name == "done":
            made.done(name)
    assert {
        node.name: node.state
        for node in timeline.build_timeline(made.events).view.nodes.list_all()
        if node.name in wanted
    } == {name: name for name in wanted}
    return made


class TestEveryState:
    """Whatever states the reducer knows, every format has words for them. The list of states is the reducer's own."""

    @pytest.mark.parametrize("many", [0, LISTED], ids=["few", "many"])
    @pytest.mark.parametrize("name", state.STATES)
    def test_every_format_tells_it(self, name, many):
        doc, found = document(standing(name, many=many), ended=False)
        assert doc["nodes"][name]["state"] == name and doc["counts"][name] == 1 + many * (name == "pending")
        made = publish.render_files(doc, found)
        assert set(made) == set(publish.NAMES.values())
        told = name in state.IN_FLIGHT + state.FAILED or not many
        assert json.loads(made["report.json"])["nodes"][name]["state"] == name
        assert (
            "| %s | %s |" % (markup.escape_markdown(name), markup.escape_markdown(name)) in made["report.md"]
        ) == told
        assert (
            'gpufleet_rollout_nodes{rollout="r1",state="%s"} %d' % (name, doc["counts"][name]) in made["rollout.prom"]
        )
        junit = ElementTree.fromstring(made["junit.xml"].split("\n", 1)[1])
        assert [case.get("name") for case in junit.findall("testsuite")[1].findall("testcase")].count(name) == 1
        assert any(line.split()[:2] == [name, name] for line in formats.render_table(doc)) == told
        shown = Page(made["report.html"])
        badges = [one["text"] for one in shown.all("span", class_="badge")]
        assert ("%s %s" % (page.SIGN[name], page.name_state(name)) in badges) == told

    def test_a_page_has_a_sign_a_colour_and_a_phase_for_each(self):
        styles = page.html.read_source("style.css") + page.html.read_source("rollout.css")
        assert set(page.SIGN) == set(page.TONE) == set(state.STATES)
        assert all(".%s {" % tone in styles for tone in page.TONE.values())
        assert set(page.PHASES) == set(timeline.PHASES)
        assert {timeline.find_phase(state.Node("a", name)) for name in state.IN_FLIGHT} <= set(timeline.PHASES)
        assert not [
            name for name in set(state.STATES) - set(state.IN_FLIGHT) if timeline.find_phase(state.Node("a", name))
        ]

    @pytest.mark.parametrize("name", state.FAILED)
    def test_who_failed_is_told_what_to_do(self, name):
        assert name in WORST and NEXT_STEP[name] and SERVES[name]

    @pytest.mark.parametrize("is_finished", [True, False], ids=["ended", "interrupted"])
    @pytest.mark.parametrize("value, failure", [("rolled_back", "hard"), ("failed", "soft"), ("failed", "sick")])
    def test_retry_is_for_runs_that_were_interrupted(self, value, failure, is_finished):
        """The next run tries again what failed in a run that ended, and in any case what was sick before."""
        made = Story("a1", "b1").fails("a1", value, failure=failure).done("b1")
        doc = document(made.end() if is_finished else made)[0]
        needs_retry = not is_finished and failure != state.SICK
        suites = ElementTree.fromstring(formats.render_junit(doc).split("\n", 1)[1])
        case = next(case for case in suites.iter("testcase") if case.get("name") == "a1")
        card = Page(page.render_page(doc, document(made)[1])).all("details", class_="node")[0]["text"]
        for said in (doc["next_steps"][0], case[0].text, card):
            assert ("rollout_verb=retry" in said, "same playbook again" in said) == (needs_retry, not needs_retry)

    def test_the_live_view_counts_every_state_once(self):
        counted = rollout_progress.DONE + rollout_progress.FAILED + rollout_progress.IN_FLIGHT + ("pending",)
        assert sorted(counted) == sorted(state.STATES)


def again(made, names, keep=(), **states):
    """A next run of a rollout, for NAMES; KEEP: what the plan says of nodes that it does not take again."""
    made.run = "run%d" % (int(made.run[3:]) + 1)
    made.now += datetime.timedelta(hours=1)
    nodes = {name: dict(made.plan["nodes"][name], **dict(states, **(dict(keep).get(name) or {}))) for name in names}
    return made.add(
        "plan", **dict(made.plan, nodes=nodes, order=[name for name in names if nodes[name]["state"] == "pending"])
    )


class TestEarlierRuns:
    """The results of an earlier run stay in the report of the next one."""

    def limited(self):
        """a1 and b1 failed and b2 waited; a later run takes b1 alone."""
        made = (
            Story("a1", "b1", "b2", domains=RACKS, failure_budget=9, common_cause=0)
            .fails("a1")
            .fails("b1", reason="the first time")
            .end()
        )
        return again(made, ["b1"]).fails("b1", "quarantined", "the second time").end()

    def test_every_format_holds_the_reasons_and_steps_of_earlier_attempts(self):
        doc, found = document(self.limited())
        (one,) = doc["nodes"]["b1"]["earlier"]
        assert (one["attempt"], one["state"], one["reason"], one["failure"], bool(one["ended"])) == (
            1,
            "rolled_back",
            "the first time",
            "hard",
            True,
        )
        assert find_failed_step(one) == "validate" and one["steps"][-1]["name"] == "rollback_validate"
        assert doc["nodes"]["b1"]["attempt"] == 2 and doc["nodes"]["b1"]["reason"] == "the second time"
        made = publish.render_files(doc, found)
        for name in ("report.json", "report.md", "report.html", "junit.xml"):
            assert "the first time" in made[name] and "the second time" in made[name], name

    def test_nodes_of_earlier_runs_stay_and_are_marked(self):
        doc, found = document(self.limited())
        assert {name: (node["in_run"], node["state"]) for name, node in doc["nodes"].items()} == {
            "b1": (True, "quarantined"),
            "a1": (False, "rolled_back"),
            "b2": (False, "pending"),
        }
        assert doc["counts"] == {"quarantined": 1}, "the counts are of this run"
        assert "2 nodes of earlier runs were not part of this one: 1 pending, 1 rolled back." in doc["reasons"]
        lines = formats.render_table(doc)
        assert [
            line for line in lines if line.startswith("a1 ") and line.endswith("not part of this run, GPU 3 is gone")
        ]
        made = publish.render_files(doc, found)
        assert (
            "not part of this run, GPU 3 is gone" in made["report.md"]
            and "not part of this run, GPU 3 is gone" in made["report.html"]
        )
        cases = {
            case.get("name"): [child.tag for child in case]
            for case in ElementTree.fromstring(made["junit.xml"].split("\n", 1)[1]).iter("testcase")
        }
        assert cases["a1"] == cases["b2"] == ["skipped"] and cases["b1"] == ["failure"]
        assert 'state="rolled_back"} 0' in made["rollout.prom"]

    def test_a_run_of_others_alone_may_be_complete(self):
        made = Story("a1", "b1", failure_budget=9).fails("a1").end()
        doc = document(again(made, ["b1"]).done("b1").end())[0]
        assert (
            doc["verdict"] == "complete"
            and "1 node of earlier runs was not part of this one: 1 rolled back." in doc["reasons"]
        )
        assert formats.render_table(doc)[-1].startswith(
            "complete, without 1 node of earlier runs (a1 rolled_back): 1 done"
        )
        doc = document(again(made, ["a1", "b1"], keep={"b1": {"state": "done"}}).done("a1").end())[0]
        assert all(node["in_run"] for node in doc["nodes"].values()) and len(doc["nodes"]["a1"]["earlier"]) == 1, (
            "who comes back is part of it again"
        )
        assert doc["nodes"]["b1"]["earlier"] == [], "and who was done has its steps still"
        assert doc["nodes"]["b1"]["steps"]

    def test_what_broke_off_or_is_tried_again_is_an_attempt_as_well(self):
        made = Story("a1", "b1", failure_budget=9).go("a1", "install").fails("b1")
        made.add("control", verb="retry", user="kim", reason="cable", node="b1")
        again(made, ["a1", "b1"], keep={"a1": {"orphaned": True}})
        nodes = document(made, False)[0]["nodes"]
        assert (
            nodes["a1"]["earlier"][0]["reason"] == "in flight when its run was interrupted, in step install"
            and nodes["a1"]["steps"]
        )
        assert [(one["state"], one["reason"]) for one in nodes["b1"]["earlier"]] == [
            ("rolled_back", "GPU 3 is gone"),
            ("pending", "retry by kim: cable"),
        ]

    def test_what_is_kept_of_a_node_is_bounded(self):
        made = Story("a1", failure_budget=9)
        for number in range(40):
            made.fails("a1", reason="time %d" % number).end()
            again(made, ["a1"])
        one = document(made, False)[0]["nodes"]["a1"]
        assert [attempt["attempt"] for attempt in one["earlier"]] == [1, 37, 38, 39, 40], "the first, and the last ones"
        assert len(json.dumps(one)) < 12000


class TestBlame:
    """The hosts that fail at the end: failed nodes, and the controller for the verdict."""

    @pytest.mark.parametrize(
        "hosts, gone, expected",
        [
            (["localhost", "a1", "b1", "b2"], ["a2"], {"localhost": "all", "b1": "b1 is rolled_back: GPU 3 is gone"}),
            (
                ["a1", "b1", "b2"],
                ["a2"],
                {"b1": "b1 is rolled_back: GPU 3 is gone", "b2": "b2 is pending: No further node starts"},
            ),
            (["a1"], [], {"a1": "all"}),
            (["a1"], ["a2"], {}),  # a2 is lost, and Ansible's exit status tells of who left the play: a1 is well
            (["a1", "b2"], [], {"b2": "b2 is pending: No further node starts"}),
            (["localhost"], ["a2", "b1"], {"localhost": "all"}),
            ([], [], {"a1": "all"}),
            (["a2"], ["a1"], {"a2": "a2 is lost: stopped answering"}),
        ],
    )
    def test_of_a_rollout_that_is_not_complete(self, hosts, gone, expected):
        found = formats.find_failing_hosts(document()[0], hosts, gone, "a1", "all")
        assert set(found) == set(expected) and all(found[name].startswith(expected[name]) for name in expected)

    @pytest.mark.parametrize(
        ("part", "expected"),
        [({"a1"}, []), ({"a1", "b1"}, ["b1", "localhost"]), ({"b2"}, ["localhost"]), (set(), []), ({"x9"}, [])],
    )
    def test_a_controller_with_a_part_of_the_nodes_fails_for_these_alone(self, part, expected):
        hosts = ["localhost"] + sorted(part)
        assert sorted(formats.find_failing_hosts(document()[0], hosts, [], "localhost", "all", part)) == expected

    def test_no_host_fails_for_a_complete_rollout(self):
        doc = document(again(Story("a1", "b1", failure_budget=9).fails("a1").end(), ["b1"]).done("b1").end())[0]
        assert formats.find_failing_hosts(doc, ["localhost", "a1", "b1"], [], "localhost", "all") == {}


class TestSummary:
    def test_it_says_why_and_what_to_do_and_where_the_report_is(self):
        doc = document()[0]
        lines = formats.render_summary(doc, "/x/report.html")
        assert lines[-2:] == ["report: /x/report.html", formats.render_table(doc)[-1]]
        assert doc["reasons"][0] in lines and "next: " + doc["next_steps"][0] in lines

    def test_reason_that_was_printed_before_is_referred_to_by_its_beginning(self):
        reason = "GPU 3 is lost. " * 10
        doc = document(Story("a1").fails("a1", reason=reason).end())[0]
        whole, short = (formats.render_summary(doc, "/x", *given) for given in ((), (report.REFERENCE,)))
        assert any(reason.strip() in line for line in whole) and not any(reason.strip() in line for line in short)
        assert any(reason[:60] in line for line in short)
        told = formats.find_failing_hosts(doc, ["localhost", "a1"], [], "localhost", "all")["a1"]
        assert reason[:60] in told and reason.strip() not in told

    def test_it_does_so_when_all_is_well(self):
        lines = formats.render_summary(document(Story("a1").done("a1").end())[0], "/x/report.html")
        assert lines[-3:] == [
            "Every node is done or had nothing to do: 1 done, 0 skipped.",
            "report: /x/report.html",
            "complete: 1 done, target 2.0",
        ]

    @pytest.mark.parametrize(
        "change, words",
        [
            (
                lambda made: made.add("control", verb="pause", user="kim", reason="x"),
                ["Paused by kim: x.", "rollout_verb=resume"],
            ),
            (
                lambda made: made.add("control", verb="stop", user="kim", reason="x"),
                ["Stopped by kim: x.", "then the rollout ends"],
            ),
            (
                lambda made: made.fails("a1"),
                ["No further node starts: the failure budget of 1 is spent by a1.", "then the rollout ends"],
            ),
            (lambda made: made.done("a1"), []),
        ],
    )
    def test_what_keeps_nodes_from_starting_is_told_with_what_to_do(self, change, words):
        made = Story("a1", "b1")
        change(made)
        found = report.list_brakes(timeline.build_timeline(made.events).view)
        assert len(found) == len(words) and all(word in line for word, line in zip(words, found))


class TestTables:
    def test_the_table_ends_with_the_verdict(self):
        lines = formats.render_table(document()[0])
        assert lines[0].split() == ["node", "state", "from", "to", "took", "reason"] and lines[2].split()[:4] == [
            "a1",
            "done",
            "1.0",
            "2.0",
        ]
        assert [line for line in lines if re.match(r"b1  +rolled_back .* GPU 3 is gone$", line)]
        assert lines[-1] == "failed: 1 pending, 1 done, 1 rolled_back, 1 lost, target 2.0"

    def test_many_nodes_that_are_well_are_counted(self):
        made = Story(*["n%d" % number for number in range(400)], failure_budget=5)
        made.fails("n7")
        lines = formats.render_table(document(made, False)[0])
        assert (
            len(lines) < 10
            and "... and 399 nodes that are done, skipped or pending" in lines
            and any(line.startswith("n7 ") for line in lines)
        )

    def test_markdown_begins_with_the_verdict_and_why(self):
        text = formats.render_markdown(document()[0])
        lines = text.splitlines()
        assert lines[0] == "# Driver rollout to 2.0: failed" and lines[2].startswith("- No further node starts")
        assert (
            text.index("## What to do")
            < text.index("## Nodes that need attention")
            < text.index("## Budgets")
            < text.index("## Nodes\n")
        )
        assert re.search(
            r"^\| b1 \| rolled\\_back \| validate \| GPU 3 is gone \| yes, as before \|$", text, re.MULTILINE
        )

    def test_markdown_cells_hold_on_to_their_row(self):
        made = Story("a1").fails("a1", reason="GPU 3 | is\ngone <b>")
        assert "GPU 3 \\| is gone \\<b\\>" in formats.render_markdown(document(made)[0])

    def test_junit_has_the_rollout_and_a_case_for_each_node(self):
        root = ElementTree.fromstring(formats.render_junit(document()[0]).split("\n", 1)[1])
        whole, nodes = root.findall("testsuite")
        assert (whole.get("failures"), whole.find("testcase").get("name")) == ("1", "verdict")
        assert (nodes.get("tests"), nodes.get("failures"), nodes.get("errors"), nodes.get("skipped")) == (
            "4",
            "1",
            "1",
            "1",
        )
        cases = {case.get("name"): case for case in nodes.findall("testcase")}
        assert list(cases["a1"]) == [] and cases["b1"].find("failure").get("message") == "GPU 3 is gone"
        assert (
            cases["a2"].find("error").get("type") == "lost" and cases["b2"].find("skipped").get("message") == "pending"
        )

    @pytest.mark.parametrize(
        "made, ended, outcome",
        [
            (Story("a1").done("a1").end(), True, None),
            (Story("a1", "b1").done("a1").end(), True, "error"),
            (Story("a1").go("a1"), False, "skipped"),
            (Story("a1").fails("a1"), True, "failure"),
        ],
    )
    def test_junit_never_passes_what_is_not_complete(self, made, ended, outcome):
        root = ElementTree.fromstring(formats.render_junit(document(made, ended)[0]).split("\n", 1)[1])
        case = root.find("testsuite/testcase")
        assert [child.tag for child in case] == ([outcome] if outcome else [])

    @pytest.mark.parametrize("given, expected", [(0, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (3723, "1 h 02 min")])
    def test_lengths_of_time(self, given, expected):
        assert format_span(given) == expected


class TestTimeline:
    def test_what_each_node_did_when(self):
        found = timeline.build_timeline(story().events)
        assert [(span.phase, span.start - seconds(0), span.end - seconds(0)) for span in found.spans["a1"]] == [
            ("prepare", 1, 11),
            ("drain", 11, 61),
            ("down", 61, 331),
            ("validate", 331, 381),
        ]
        assert [span.phase for span in found.spans["b1"]] == ["prepare", "drain", "down", "validate", "rollback"]
        assert [state_ for dummy, state_ in found.marks["a2"]] == ["lost"] and "b2" not in found.spans

    def test_soak_is_a_phase_of_its_own(self):
        node = state.Node("a", state="validating", steps=[state.Step("soak", "2026-01-01T00:00:00.000Z")])
        assert timeline.find_phase(node) == "soak"

    def test_what_goes_on_has_no_end(self):
        found = timeline.build_timeline(Story("a1").go("a1", "install").events)
        assert [span.end is None for span in found.spans["a1"]] == [False, False, True]

    def test_a_drain_that_was_lifted_is_over_and_is_no_failure(self):
        made = Story("a1").grant("a1").step("a1", "drain").add("state", 9, node="a1", state="pending")
        found = timeline.build_timeline(made.events)
        assert [span.end is not None for span in found.spans["a1"]] == [True, True] and found.marks == {}

    def test_how_much_of_the_budgets_was_used_and_of_how_much(self):
        made = Story("a1", "b1", max_down=1, failure_budget=1).done("a1")
        made.add("control", 1, verb="set_budget", user="kim", reason="x", policy={"max_down": 2})
        made.fails("b1", "quarantined")
        points = [
            (point.time - seconds(0), point.draining, point.down, point.failures, point.max_down)
            for point in timeline.build_timeline(made.events).points
        ]
        assert points[:4] == [(0, 0, 0, 0, 1), (1, 1, 0, 0, 1), (61, 0, 1, 0, 1), (381, 0, 0, 0, 1)]
        assert points[4][4] == 2 and points[-1][2:4] == (1, 1), "a node in quarantine keeps its slot"

    def test_nodes_broken_elsewhere_take_slots_and_sick_ones_no_budget(self):
        made = Story("a1", max_down=3, broken_elsewhere=2).fails("a1", "failed", failure="sick", step="evidence")
        point = timeline.build_timeline(made.events).points[-1]
        assert (point.down, point.failures) == (2, 0)

    def test_a_second_run_goes_on_with_the_same_story(self):
        made = Story("a1", "b1").go("a1", "install")
        made.run = "run2"
        made.now += datetime.timedelta(hours=20)
        nodes = {name: dict(made.plan["nodes"][name]) for name in made.names}
        nodes["a1"]["orphaned"] = True
        planned = dict(made.plan)
        planned["nodes"] = nodes
        made.add("plan", **planned)
        made.grant("a1").step("a1", "evidence").step("a1", "validate", 30).add(
            "state", 40, node="a1", state="done"
        ).end()
        found = timeline.build_timeline(made.events)
        assert [span.phase for span in found.spans["a1"]][:3] == ["prepare", "drain", "down"] and found.spans["a1"][
            -1
        ].end is not None
        assert [word["what"] for word in found.journal] == ["planned", "planned"]

    def test_events_of_a_run_that_was_taken_over_change_nothing(self):
        made = Story("a1").go("a1", "drain")
        before = timeline.build_timeline(made.events)
        made.run = "other"
        made.step("a1", "install").add("control", verb="pause", user="x", reason="y")
        after = timeline.build_timeline(made.events)
        assert after.spans == before.spans and after.journal == before.journal

    def test_it_comes_to_the_same_rollout_as_the_reducer(self):
        events = story().events
        one, other = timeline.build_timeline(events).view, reduce(events)
        assert [vars(node) for node in one.nodes.list_all()] == [vars(node) for node in other.nodes.list_all()]


class TestAxis:
    def test_time_runs_from_left_to_right(self):
        made = timeline.TimeScale([(0, 100), (50, 200)], 10.0, 210.0)
        assert [made.x(time_) for time_ in (0, 100, 200, 900)] == [10.0, 110.0, 210.0, 210.0] and made.breaks() == []

    def test_a_night_between_two_runs_is_cut_out(self):
        made = timeline.TimeScale([(0, 3600), (90000, 93600)], 0.0, 1000.0)
        ((where, length),) = made.breaks()
        assert length == 86400 and made.x(3600) < where < made.x(90000) and made.x(93600) == 1000.0
        assert made.x(40000) == made.x(90000), "what lies in the pause stands at its end"
        assert made.x(3600) > 450

    @pytest.mark.parametrize("length", [0.5, 3, 47, 500, 4000, 50000, 10**6, 10**8])
    def test_ticks_are_readable_whatever_the_length(self, length):
        made = timeline.TimeScale([(1000000007.25, 1000000007.25 + length)], 0.0, 790.0)
        ticks = made.ticks()
        assert 1 <= len(ticks) <= 13 and all(0 <= where <= 790.001 for where, dummy in ticks)
        assert all(second[0] - first[0] >= 62 for first, second in zip(ticks, ticks[1:]))

    def test_one_moment_is_no_division_by_nothing(self):
        assert timeline.TimeScale([(5.0, 5.0)], 0.0, 100.0).x(5.0) == 0.0


class TestPage:
    def test_an_operator_sees_the_state_then_the_nodes_then_what_to_do(self):
        found, doc = pages()
        assert (
            found.all("h1")[0]["text"].split()
            == "FAILED 1 lost, 1 put back to the earlier driver and proven, 1 did not start; 1 of 4 nodes done".split()
        )
        assert found.all("li")[0]["text"] == doc["reasons"][0]
        cards = found.all("details", class_="node")
        assert [card["attributes"]["data-node"] for card in cards] == ["a2", "b1"] and all(
            "open" in card["attributes"] for card in cards
        )
        assert (
            "GPU 3 is gone" in cards[1]["text"]
            and "validate" in cards[1]["text"]
            and find_next_step("rolled_back", "hard", "now") in cards[1]["text"]
        )
        order = [one["attributes"].get("id") for one in found.all("section") if one["attributes"].get("id")]
        assert order == ["attention", "budgets", "timeline", "nodes", "said"]

    def test_every_state_is_told_by_a_sign_and_a_word_and_every_phase_by_a_pattern(self):
        made = (
            Story("a1", "b1", "c1", "d1", failure_budget=9, common_cause=0)
            .done("a1")
            .fails("b1")
            .fails("c1", "quarantined")
            .fails("d1", "lost")
        )
        found = pages(made.end())[0]
        said = [one["text"] for one in found.all("text")]
        for words in ("✓ done", "↩ rolled back", "⊘ quarantined", "? lost"):
            assert words in said
        fills = {one["attributes"].get("fill") for one in found.all("rect")}
        assert {"url(#tprepare)", "url(#tdrain)", "url(#tvalidate)", "url(#trollback)"} <= fills
        patterns = {one["attributes"]["id"] for one in found.all("pattern")}
        assert {fill[5:-1] for fill in fills if fill} <= patterns

    @pytest.mark.parametrize(
        "made, ended, tone, first",
        [
            (
                Story("a1", "b1", "c1", failure_budget=5).done("a1").done("b1").fails("c1").end(),
                True,
                "unknown",
                "2 of 3 nodes done, 1 put back to the earlier driver and proven",
            ),
            (
                Story("a1", "b1", failure_budget=5).done("a1").fails("b1", "failed", step="evidence").end(),
                True,
                "unknown",
                "1 of 2 nodes done, 1 failed",
            ),
            (Story("a1", "b1").done("a1").fails("b1", "quarantined").end(), True, "fail", "FAILED 1 quarantined;"),
            (Story("a1").fails("a1", "lost").end(), True, "fail", "FAILED 1 lost;"),
            (Story("a1", "b1").done("a1").go("b1", "install"), True, "fail", "INCOMPLETE 1 of 2 nodes done,"),
            (Story("a1", "b1").done("a1").go("b1", "install"), False, "unknown", "RUNNING 1 of 2 nodes done,"),
            (Story("a1").done("a1").end(), True, "pass", "COMPLETE The node is done"),
        ],
        ids=["put back", "nothing changed", "quarantined", "lost", "left in flight", "running", "complete"],
    )
    def test_first_line_is_red_only_if_somebody_is_needed_now(self, made, ended, tone, first):
        found = pages(made, ended)[0]
        assert found.all("header")[0]["attributes"]["class"] == "banner " + tone
        assert " ".join(found.all("h1")[0]["text"].split()).startswith(first)

    def test_rows_are_grouped_by_failure_domain(self):
        found = pages()[0]
        heads = [one["text"] for one in found.all("text", class_="heading")]
        assert heads[-2:] == ["rack_a", "rack_b"]

    def test_a_running_rollout_shows_now_and_when_it_will_be_over(self):
        made = Story("a1", "b1").done("a1").go("b1", "install")
        found, doc = pages(made, False)
        assert found.all("path", class_="now") and doc["estimate"]["measured"] == 1
        assert "Time left: about" in found.all("section", class_="todo-now")[0]["text"]
        assert not pages()[0].all("path", class_="now")

    def test_a_complete_rollout_asks_for_nothing(self):
        found, doc = pages(Story("a1").done("a1").end())
        assert (
            doc["next_steps"] == []
            and not found.all("section", id_="attention")
            and "pass" in found.all("header")[0]["attributes"]["class"]
        )

    def test_nothing_is_loaded_and_nothing_of_a_node_becomes_markup(self):
        made = Story(EVIL, "b1", rollout_id=EVIL, domains={EVIL: {EVIL: EVIL}}, canaries=[EVIL])
        made.fails(EVIL, reason=EVIL).add("control", verb="pause", user=EVIL, reason=EVIL).add(
            "hold", names=[EVIL], reason=EVIL
        )
        for name in made.plan["nodes"]:
            made.plan["nodes"][name]["from"] = EVIL
        doc, found = document(made)
        doc["target"] = doc["sha256"] = EVIL
        source = page.render_page(doc, found)
        shown = Page(source)
        assert not shown.all("img") and not shown.all("b1") and len(shown.all("script")) == 1
        assert "49" not in [one["text"] for one in shown.elements]
        addresses = [
            (key, value)
            for one in shown.elements
            for key, value in one["attributes"].items()
            if key in ("src", "href", "action", "data", "style", "xlink:href") or key.startswith("on")
        ]
        assert all(key == "href" and value.startswith("#") for key, value in addresses)
        assert "\x1b" not in source and "\u202e" not in source and "\x00" not in source
        policy = [
            one["attributes"]["content"]
            for one in shown.all("meta")
            if "default-src" in (one["attributes"].get("content") or "")
        ]
        assert policy[0].startswith("default-src 'none'; style-src 'sha256-")

    def test_all_other_files_stand_the_same(self):
        made = Story(EVIL, domains={EVIL: {"rack": EVIL}}).fails(EVIL, reason=EVIL)
        doc, found = document(made)
        made_files = publish.render_files(doc, found)
        ElementTree.fromstring(made_files["junit.xml"].split("\n", 1)[1])
        assert json.loads(made_files["report.json"])["nodes"][EVIL]["reason"] == EVIL
        assert "<script" not in made_files["report.md"].replace("\\<script", "")
        assert all(
            re.fullmatch(r"# .*|gpufleet_rollout_\w+\{(?:\w+=\"(?:[^\"\\]|\\.)*\",?)*\} [-0-9.e+]+", line)
            for line in made_files["rollout.prom"].splitlines()
        )

    def test_a_story_in_which_nothing_happened_can_be_shown(self):
        assert pages(Story("a1", states={"a1": "skipped"}).end())[0].all("h1")

    def test_a_step_line_keeps_its_peaks_however_many_points_it_has(self):
        scale = timeline.TimeScale([(0, 100)], 0.0, 100.0)
        changes = [(number / 1000.0, 9 if number == 55555 else number % 2) for number in range(100000)]
        path = page.draw_steps(scale, changes, 100, 58, 10)
        assert len(path) < 20000 and " V%.1f" % (58 - 50 * 0.9) in path


def test_done_nodes_of_other_rollouts_are_read_for_estimates(tmp_path):
    pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
    assert publish.read_done_nodes(Ledger(str(tmp_path), "r1")) == []
    assert publish.estimate_node(Ledger(str(tmp_path), "r1"), 900) == 900
    for name in ("r1", "r2"):
        Story("a1", "b1", rollout_id=name).done("a1").go("b1").write(Ledger(str(tmp_path), name))
    assert [node.name for node in publish.read_done_nodes(Ledger(str(tmp_path), "r1"))] == ["a1"]
    assert publish.estimate_node(Ledger(str(tmp_path), "r3"), 900) < 900


def test_a_report_says_of_which_ledger_and_of_how_many_events_it_is_made(tmp_path):
    pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
    ledger = Ledger(str(tmp_path), "r1")
    Story("a1").done("a1").write(ledger)
    identity = ledger.transact(lambda transaction: transaction.name_ledger())
    first = publish.gather_document(ledger)[0]
    assert (first["rollout_id"], first["ledger"], first["events"]) == ("r1", identity, len(ledger.events()))
    ledger.transact(lambda transaction: transaction.append("end", run=transaction.view.run))
    assert publish.gather_document(ledger)[0]["events"] == first["events"] + 1


class TestReading:
    """The page on a phone, in another time zone, and beside the evidence."""

    def test_evidence_is_linked_where_it_lies_on_the_controller(self, tmp_path):
        pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
        ledger = Ledger(str(tmp_path), "r1")
        Story("a1", "b1", failure_budget=9).fails("a1").done("b1").end().write(ledger)
        for name in ("a1/10-before", "a1/9-failed", "a1/.new", "b1/1-before"):
            (tmp_path / "evidence" / "r1" / name).mkdir(parents=True)
        doc, found = publish.gather_document(ledger)
        place = str(tmp_path / "evidence" / "r1" / "a1")
        assert (
            doc["nodes"]["a1"]["evidence"] == [place + "/9-failed", place + "/10-before"]
            and doc["nodes"]["b1"]["evidence"] == []
        )
        made = publish.render_files(doc, found)
        links = [
            one["attributes"]["href"]
            for one in Page(made["report.html"]).all("a")
            if one["attributes"]["href"].startswith("file:")
        ]
        assert links == ["file://%s/9-failed" % place, "file://%s/10-before" % place]
        assert "## Evidence" in made["report.md"] and "9-failed" in made["report.md"]

    def test_every_finding_of_a_node_that_failed_is_in_the_report(self, tmp_path):
        pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
        ledger = Ledger(str(tmp_path), "r1")
        Story("a1", "b1", failure_budget=9, states={"b1": "failed"}).fails("a1", "quarantined").end().write(ledger)
        lost = {
            "id": "gpu.handle",
            "entity": "gpu index 3",
            "status": "fail",
            "since": "during",
            "message": "It is lost.",
        }
        missed = dict(lost, id="gpu.present", entity="GPU-3", message="It is missing.")
        findings = [dict(lost, explained_by=""), dict(missed, explained_by="gpu.handle")]

        def save(transaction):
            for name in ("a1", "b1"):  # b1 has those of an earlier attempt: this run began nothing on it
                transaction.save(name, "findings", {"checks": findings})
            transaction.save("a1", "findings-rollback", {"checks": [dict(findings[0], message="It is still lost.")]})

        ledger.transact(save)
        doc, found = publish.gather_document(ledger)
        assert [(one["id"], one["explained_by"], one["step"]) for one in doc["nodes"]["a1"]["findings"]] == [
            ("gpu.handle", "", ""),
            ("gpu.present", "gpu.handle", ""),
            ("gpu.handle", "", "rollback"),
        ]
        assert doc["nodes"]["b1"]["findings"] == []
        made = publish.render_files(doc, found)
        for message in ("It is lost.", "It is missing.", "It is still lost."):
            assert message in made["report.md"] and message in made["report.html"] and message in made["report.json"]

    @pytest.mark.parametrize(
        "zone, expected",
        [
            ("UTC", "2026-03-14 22:00:00 UTC"),
            ("Europe/Berlin", "2026-03-14 22:00:00 UTC (2026-03-14 23:00:00 CET)"),
            ("Asia/Kolkata", "2026-03-14 22:00:00 UTC (2026-03-15 03:30:00 IST)"),
        ],
    )
    def test_local_time_stands_beside_utc(self, monkeypatch, zone, expected):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        try:
            assert "started " + expected in formats.render_markdown(document()[0])
        finally:
            monkeypatch.undo()
            time.tzset()

    def test_every_time_of_the_page_can_be_told_in_local_time(self):
        found = pages()[0]
        times = [one["attributes"].get("datetime") for one in found.all("time")]
        assert len(times) > 5 and all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z", one) for one in times)

    def test_on_a_phone_every_cell_of_a_stacked_table_says_what_it_is(self):
        found = pages()[0]
        assert [
            one["attributes"]["content"] for one in found.all("meta") if one["attributes"].get("name") == "viewport"
        ] == ["width=device-width, initial-scale=1"]
        labels = [one["attributes"].get("data-label") for one in found.all("td") if "data-label" in one["attributes"]]
        assert labels == ["node", "state", "where", "driver", "took", "reason"] * 4 + ["when", "what", "who", "why"]
        narrow = page.html.read_source("rollout.css").partition("@media (max-width: 40rem) {")[2]
        assert "#nodes td, #said td { display: block;" in narrow and "attr(data-label)" in narrow


@pytest.fixture(scope="module")
def large():
    domains = {"n%05d" % number: {"rack": "rack_%d" % (number % 125)} for number in range(10000)}
    made = Story(*domains, domains=domains, max_down=200, failure_budget=50, common_cause=0)
    for number, name in enumerate(domains):
        if number < 9000:
            if number % 900 == 5:
                made.fails(name, "rolled_back", "GPU %d is gone" % number)
            else:
                made.done(name)
            made.now -= datetime.timedelta(seconds=360)
        elif number < 9200:
            made.go(name, "install")
            made.now -= datetime.timedelta(seconds=120)
    made.now += datetime.timedelta(seconds=600)
    made.events.sort(key=lambda event: event["time"])
    return made


class TestTenThousandNodes:
    def test_the_page_is_small_and_names_who_is_in_trouble(self, large):
        doc, found = document(large, False)
        source = page.render_page(doc, found)
        assert len(source.encode()) < 10 * 1000 * 1000 and source.count("<tr") < 1000 and source.count("<rect") < 5000
        shown = Page(source)
        assert len(shown.all("details", class_="node")) == 10 and "in flight (60 of 200)" in [
            one["text"] for one in shown.all("text")
        ]
        assert len(formats.render_markdown(doc)) < 500000 and doc["counts"]["done"] == 8990


class TestMetrics:
    def test_names_types_and_numbers(self):
        text = formats.render_metrics(document()[0])
        lines = text.splitlines()
        assert lines[0] == "# rollout r1: failed" and lines[1].startswith("# No further node starts")
        assert (
            'gpufleet_rollout_nodes{rollout="r1",state="done"} 1' in lines
            and 'gpufleet_rollout_nodes{rollout="r1",state="down"} 0' in lines
        )
        assert (
            'gpufleet_rollout_down_budget{rollout="r1"} 2' in lines
            and 'gpufleet_rollout_verdict{rollout="r1",verdict="failed"} 1' in lines
        )
        assert 'gpufleet_rollout_info{rollout="r1",target="2.0",plan="4be14be14be1"} 1' in lines
        assert re.search(
            r'^gpufleet_rollout_started_timestamp_seconds\{rollout="r1"\} %d$' % seconds(0), text, re.MULTILINE
        )
        names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert len(names) == len(set(names)) and all(re.fullmatch(r"gpufleet_rollout_[a-z_]+", name) for name in names)
        samples = [line.split(" ")[0] for line in lines if not line.startswith("#")]
        assert len(samples) == len(set(samples)), "no sample twice"

    def test_what_is_not_known_is_left_out(self):
        text = formats.render_metrics(document(Story("a1"), False)[0])
        assert "finished_timestamp" not in text and "down_window" not in text and "remaining_seconds" in text

    @pytest.mark.parametrize("given, expected", [('a"b', 'a\\"b'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb")])
    def test_labels_are_escaped(self, given, expected):
        assert formats.escape_label(given) == expected


class TestEstimate:
    @pytest.mark.parametrize(
        "pending, ages, slots, durations, expected",
        [
            (0, [], 1, [], (0, 0)),
            (10, [], 1, [], (9000, 9000)),
            (4, [], 2, [100], (200, 200)),
            (4, [50, 0], 2, [100], (300, 275)),
            (0, [500], 1, [100, 200], (0, 0)),
            (3, [], 0, [10], (30, 30)),
            (1, [], 5, [100, 300], (200, 100)),
        ],
    )
    def test_what_is_left(self, pending, ages, slots, durations, expected):
        assert plan_text.estimate_remaining(pending, ages, slots, durations, 900) == expected


@pytest.fixture
def ledger(tmp_path):
    pytest.importorskip("sqlalchemy", reason="ansible-test's environment has none; the plain pytest run has it")
    made = Ledger(str(tmp_path), "r1")
    Story("a1", "b1").go("a1", "install").write(made)
    return made


@pytest.mark.cores
class TestPublish:
    def test_every_file_is_there_and_only_for_its_owner(self, ledger, tmp_path):
        mine = {"owner": owner.identify_process(os.getpid()), "run": "run1", "time": "x", "heartbeat": "x"}
        ledger.transact(lambda transaction: transaction.hold(mine))
        doc = publish.refresh_files(ledger, now=True, textfile_dir=str(tmp_path / "collector"))
        found = {path.name: path for path in (tmp_path / "rollouts" / "r1").iterdir()}
        assert set(publish.NAMES.values()) <= set(found) and doc["counts"] == {"pending": 1, "down": 1}
        assert all(found[name].stat().st_mode & 0o777 == 0o600 for name in publish.NAMES.values())
        (numbers,) = (tmp_path / "collector").iterdir()
        assert numbers.name == "gpufleet_rollout_r1.prom" and numbers.stat().st_mode & 0o777 == 0o644
        assert numbers.read_text() == found["rollout.prom"].read_text()

    def test_each_transition_is_written_where_the_interval_is_over(self, ledger, monkeypatch):
        monkeypatch.setattr(publish, "NODES_A_SECOND", 1e9)
        assert publish.refresh_files(ledger) is not None
        assert publish.refresh_files(ledger) is None, "nothing has happened since"
        ledger.transact(lambda transaction: transaction.append("step", run="run1", node="a1", step="reboot"))
        assert publish.refresh_files(ledger)["nodes"]["a1"]["steps"][-1]["name"] == "reboot"

    @pytest.mark.parametrize(
        "note, last, due",
        [
            ({"event": 7, "nodes": 2, "time": 100.0}, 7, False),
            ({"event": 7, "nodes": 2, "time": 99.9}, 8, True),
            ({"event": 7, "nodes": 200, "time": 99.0}, 8, False),
            ({"event": 7, "nodes": 200, "time": 98.0}, 8, True),
            ({"event": 7, "nodes": 10000, "time": 1.0}, 8, False),
            ({"event": 7, "nodes": 10000, "time": 5000.0}, 8, True),
            ({}, None, True),
            ({"event": 7, "nodes": None, "time": 99.9}, 8, True),
        ],
        ids=["nothing new", "few", "soon", "later", "many", "clock set back", "first", "unreadable"],
    )
    def test_update_is_due_after_an_interval_that_grows_with_the_nodes(self, note, last, due):
        assert publish._is_due(note, last, 100.0) == due

    def test_update_that_came_too_early_is_written_by_a_node_that_waits(self, ledger, monkeypatch):
        publish.refresh_files(ledger)
        ledger.transact(lambda transaction: transaction.append("step", run="run1", node="a1", step="reboot"))
        monkeypatch.setattr(publish, "NODES_A_SECOND", 1e-6)
        assert publish.refresh_files(ledger) is None, "too early"
        monkeypatch.undo()
        assert publish.refresh_files(ledger, idle=True) is None, "another process has just looked"
        monkeypatch.setattr(publish, "NODES_A_SECOND", 1e9)
        monkeypatch.setattr(publish, "LOOK_S", 0.0)
        assert publish.refresh_files(ledger, idle=True)["nodes"]["a1"]["steps"][-1]["name"] == "reboot"

    @pytest.mark.parametrize("junk", ["", "x", "[]", '{"time": "x"}', '{"event": null, "time": null}'])
    def test_a_note_that_cannot_be_read_keeps_no_process_from_writing(self, ledger, junk):
        publish.refresh_files(ledger)
        with open(ledger.path("report.lock"), "w") as stream:
            stream.write(junk)
        assert publish.refresh_files(ledger) is not None

    @pytest.mark.parametrize(
        "error", [OSError(28, "No space left on device"), ValueError("a template's"), RuntimeError("anything")]
    )
    @pytest.mark.parametrize("now", [False, True])
    def test_a_report_that_cannot_be_written_is_said_and_the_rollout_goes_on(self, ledger, monkeypatch, error, now):
        said = []

        def broken(*args, **more):
            raise error

        monkeypatch.setattr(publish.files, "write", broken)
        doc = publish.refresh_files(ledger, now=now, complain=said.append)
        assert (doc is not None) == now and len(said) == 1 and str(error) in said[0]

    def test_a_directory_that_cannot_be_made_is_said(self, ledger, monkeypatch, tmp_path):
        (tmp_path / "rollouts" / "r1").write_text("a file where a directory should be")
        said = []
        assert publish.refresh_files(ledger, complain=said.append) is None and len(said) == 1
        assert publish.refresh_files(ledger, now=True, complain=said.append)["verdict"] == "running" and len(said) == 2

    def test_who_finds_another_one_writing_does_not_wait(self, ledger, monkeypatch):
        publish.refresh_files(ledger)
        ledger.transact(lambda transaction: transaction.append("step", run="run1", node="a1", step="reboot"))
        asked = []
        locked = publish.places.open_locked
        with locked(ledger.path("report.lock"), 0):
            monkeypatch.setattr(
                publish.places,
                "open_locked",
                lambda path, patience_s: asked.append(patience_s) or locked(path, patience_s),
            )
            assert publish.refresh_files(ledger) is None
        assert len(asked) == 1 and asked[0] <= 1, "no longer than it takes to write"

    def test_old_files_stay_whole_when_new_ones_cannot_be_put_in_place(self, ledger, monkeypatch):
        publish.refresh_files(ledger, now=True)
        before = open(ledger.path("report.json")).read()
        monkeypatch.setattr(files.os, "replace", lambda *args: (dummy for dummy in ()).throw(OSError("disk")))
        said = []
        publish.refresh_files(ledger, now=True, complain=said.append)
        assert open(ledger.path("report.json")).read() == before and "disk" in said[0]

    @pytest.mark.parametrize(
        "name, expected", [("upgrade-535.1", "gpufleet_rollout_upgrade_535_1.prom"), ("x", "gpufleet_rollout_x.prom")]
    )
    def test_the_collectors_file_is_named_for_the_rollout(self, name, expected):
        assert publish.textfile_name(name) == expected

    def test_one_member_writes_the_collectors_file_and_the_others_remove_theirs(self, ledger, tmp_path):
        here = owner.identify_process(os.getpid())
        jobs = [dict(here, host=name, boot_id=name, pid_namespace="pid:[1]") for name in ("one", "two")]

        def join(transaction):
            transaction.hold(members.make_shared_record("run1", transaction.clock()))
            for job, node in zip(jobs, ("a1", "b1")):
                members.add_member(transaction, job["host"], [node], job, transaction.clock())

        def refresh(job):
            place = tmp_path / job["host"]
            publish.refresh_files(ledger, now=True, textfile_dir=str(place), identity=job)
            return [path.name for path in place.iterdir()] if place.exists() else []

        ledger.transact(join)
        (name,) = refresh(jobs[0])
        assert refresh(jobs[1]) == []
        ledger.transact(lambda transaction: members.release_part(transaction, jobs[0]))
        assert (refresh(jobs[0]), refresh(jobs[1])) == ([], [name]), "it would be running for ever"
        ledger.transact(lambda transaction: members.release_part(transaction, jobs[1]))
        assert refresh(jobs[1]) == [], "no job is left"
        ledger.transact(lambda transaction: transaction.append("end", run="run1"))
        assert refresh(jobs[1]) == [name], "the end of a rollout is recorded"


def test_queries_of_the_policy_are_text_by_name():
    assert limits.complete_policy({"holds": {"a": "up == 0"}}, 1)["holds"] == {"a": "up == 0"}
    for wrong in (["a"], {"a": 1}, {"a": ""}, "x"):
        with pytest.raises(options.OptionError, match="holds"):
            limits.complete_policy({"holds": wrong}, 1)


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
        "packages of 66 nodes: n000, n001, n002, n003, n004 and 61 more",
        "  upgrade: dkms 3, nvidia-smi 2.0-1",
        "packages of 1 node: odd",
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
