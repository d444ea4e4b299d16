# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task does to a cluster, and what it says when it cannot."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands, slurm_node
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers, fake_slurm
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm.fake_slurm import Cluster

pytestmark = pytest.mark.pythons

OURS = "gpufleet:tok-1 driver upgrade"
DRAINS = "scontrol update nodename=n1 state=drain reason=" + OURS
RESUMES = "scontrol update nodename=n1 state=resume"
KIM = ("12", "kim", 300, "RUNNING")


def told(cluster):
    return str(cluster.failure)


def test_an_idle_node_is_drained_and_resumed():
    cluster = Cluster()
    result = cluster.do("drained", timeout_s=60)
    assert cluster.failure is None and cluster.calls == [DRAINS]
    assert (result["changed"], result["drained"], result["mark"]) == (
        True,
        True,
        {"owner": "ours", "token": "tok-1", "previous": None},
    )
    assert result["diff"] == {
        "before": {"state": "IDLE", "reason": ""},
        "after": {"state": "IDLE+DRAIN", "reason": OURS},
    }
    again = cluster.do("drained", timeout_s=60)
    assert (again["changed"], again["drained"], cluster.calls) == (False, True, [DRAINS])
    back = cluster.do("resumed", expected_gpus=4)
    assert (back["changed"], back["drained"], back["mark"]["owner"], cluster.calls[1:]) == (
        True,
        False,
        "none",
        [RESUMES],
    )
    assert cluster.do("resumed")["changed"] is False and len(cluster.calls) == 2


def test_jobs_are_waited_for_and_named_when_the_time_is_over():
    cluster = Cluster(jobs=[KIM])
    result = cluster.do("drained", timeout_s=600)
    assert cluster.failure is None and result["drained"] and 300 <= cluster.now <= 320
    cluster = Cluster(jobs=[KIM, ("13", "lee", 9999, "SUSPENDED")])
    result = cluster.do("drained", timeout_s=400)
    assert told(cluster).startswith(
        "n1 is not empty after 400 s, 1 job holds it: job 13 (user lee, partition batch, SUSPENDED, "
    )
    assert "left). The drain was lifted again." in told(cluster)
    assert (result["waiting"], result["drained"], [job["id"] for job in result["blockers"]]) == (True, False, ["13"])
    assert cluster.calls == [DRAINS, RESUMES] and result["mark"]["owner"] == "none"
    assert cluster.now <= 420


def test_the_drain_stays_after_the_timeout_where_that_is_wanted():
    cluster = Cluster(jobs=[KIM])
    result = cluster.do("drained", timeout_s=60, on_timeout="keep")
    assert cluster.calls == [DRAINS] and result["mark"]["owner"] == "ours" and "It stays drained." in told(cluster)


def test_nothing_is_waited_for_without_time():
    cluster = Cluster(jobs=[KIM])
    result = cluster.do("drained")
    assert cluster.failure is None and cluster.now == 0 and cluster.calls == [DRAINS]
    assert (result["drained"], result["work"], [job["user"] for job in result["blockers"]]) == (False, "busy", ["kim"])


def test_a_drain_of_an_operator_stays_and_is_told():
    cluster = Cluster("IDLE+DRAIN", "bad fan", "kim")
    result = cluster.do("drained", timeout_s=60)
    assert cluster.failure is None and result["drained"] and not result["changed"]
    assert result["mark"] == {"owner": "operator", "token": None, "previous": "bad fan"}
    assert result["left"] == ['n1 was drained before (IDLE+DRAIN, "bad fan" by kim), and stays so']
    back = cluster.do("resumed")
    assert cluster.calls == [] and not back["changed"]
    assert back["left"] == ['n1 is kept out of service by another user (IDLE+DRAIN, "bad fan" by kim): it stays so']
    busy = Cluster("IDLE+DRAIN", "bad fan", "kim", jobs=[KIM])
    busy.do("drained", timeout_s=60)
    assert busy.calls == [] and "It stays drained." in told(busy), "nothing that is not ours is lifted"


def test_a_reason_that_somebody_changed_meanwhile_is_theirs():
    cluster = Cluster(jobs=[KIM])
    cluster.later = [(50, lambda it: setattr(it, "reason", "mine now"))]
    result = cluster.do("drained", timeout_s=600)
    assert cluster.failure is None and result["mark"]["owner"] == "operator"
    assert "now drained by another user" in result["left"][0]
    assert cluster.do("resumed")["changed"] is False and cluster.state == "IDLE+DRAIN"


def test_an_operator_who_resumes_the_node_meanwhile_is_not_overruled():
    cluster = Cluster(jobs=[KIM])
    cluster.later = [(50, lambda it: (setattr(it, "state", "IDLE"), setattr(it, "reason", "")))]
    cluster.do("drained", timeout_s=600)
    assert "is not drained any more" in told(cluster) and cluster.calls == [DRAINS]


def test_a_part_of_the_time_ends_without_a_verdict():
    cluster = Cluster(jobs=[KIM])
    result = cluster.do("drained", timeout_s=60, part={"waited_s": 0, "owner": "none", "more": True})
    assert cluster.failure is None and cluster.calls == [DRAINS]
    assert (result["drained"], result["waiting"], result["mark"]["owner"]) == (False, False, "ours")
    result = cluster.do("drained", timeout_s=60, part={"waited_s": 60, "owner": "ours", "more": False})
    assert told(cluster).startswith("n1 is not empty after 120 s, 1 job holds it") and result["waiting"]
    assert cluster.calls == [DRAINS, RESUMES]
    window = Cluster(jobs=[KIM])
    window.do("drained", method="job", timeout_s=60, part={"waited_s": 0, "owner": "none", "more": True})
    assert window.failure is None and window.own == {"77": "PENDING"}, "it keeps its place in the queue"


@pytest.mark.parametrize("seconds", [0, 60])
def test_what_an_earlier_part_closed_is_not_closed_again(seconds):
    part = {"waited_s": 60, "owner": "ours", "more": True}
    cluster = Cluster(jobs=[KIM])
    cluster.do("drained", timeout_s=seconds, part=part)
    assert "n1 is not drained any more (MIXED, no reason given): another user resumed it" in told(cluster)
    assert cluster.calls == []
    cluster = Cluster("IDLE+DRAIN", "bad fan", "kim")
    result = cluster.do("drained", timeout_s=seconds, part=part)
    assert result["left"] == ['n1 is now drained by another user (IDLE+DRAIN, "bad fan" by kim), and stays so']
    assert result["drained"]
    assert cluster.do("drained", timeout_s=seconds, part=dict(part, owner="operator"))["left"] == [], (
        "it was told by then"
    )


def test_two_at_the_same_time():
    cluster = Cluster()
    cluster.answers = {
        "state=drain": lambda it: (setattr(it, "state", "IDLE+DRAIN"), setattr(it, "reason", "theirs"), (0, "", ""))[-1]
    }
    cluster.do("drained", timeout_s=60)
    assert "another user changed it at the same time" in told(cluster)


@pytest.mark.parametrize(
    ("cluster", "options", "words"),
    [
        (Cluster("DOWN", "bad fan", "kim"), {}, "it is DOWN and not drained"),
        (Cluster("IDLE+REBOOT_REQUESTED"), {}, "scontrol cancel_reboot n1"),
        (Cluster("FUTURE"), {}, "FUTURE node"),
        (
            Cluster(),
            {"expected_gpus": 8},
            "since it could not be resumed afterwards: Slurm has 4 GPUs for it (Gres=gpu:a100:4), and the node has 8",
        ),
        (Cluster(), {"expected_gres": {"h100": 4}}, "and the node has 4 h100"),
    ],
)
def test_what_is_refused_before_anything_is_done(cluster, options, words):
    result = cluster.do("drained", timeout_s=60, **options)
    assert words in told(cluster) and cluster.calls == [] and not result["changed"]


@pytest.mark.parametrize("count", [-1, -2])
def test_gpus_that_could_not_be_counted_agree_with_no_number(count):
    unread = (
        "Slurm has 4 GPUs for it (Gres=gpu:a100:4), and how many GPUs and MIG devices the node has is not known: they "
        "could not be counted"
    )
    cluster = Cluster()
    cluster.do("drained", timeout_s=60, expected_gpus=count)
    assert "n1 was not drained, since it could not be resumed afterwards: " + unread in told(cluster)
    assert cluster.calls == []
    assert "nvidia-smi -L" in told(cluster), "the next step"
    drained = Cluster("IDLE+DRAIN", OURS)
    drained.do("resumed", expected_gpus=count)
    assert "n1 was not resumed and stays drained: " + unread in told(drained) and drained.calls == []
    for cluster, back in ((Cluster(gres="(null)"), [DRAINS, RESUMES]), (Cluster("IDLE+DRAIN", "bad fan", "kim"), [])):
        cluster.do("drained", expected_gpus=count)
        cluster.do("resumed", expected_gpus=count)
        assert cluster.failure is None and cluster.calls == back, "where nothing is compared nothing has to be known"


def test_check_mode_does_nothing_and_says_what_it_would():
    cluster = Cluster(jobs=[KIM])
    result = cluster.do("drained", check_mode=True, timeout_s=60, reservation_minutes=10, method="job")
    assert cluster.calls == [] and cluster.now == 0 and result["changed"] and result["mark"]["owner"] == "ours"
    assert not result["drained"]
    assert result["diff"]["after"] == {"state": "MIXED+DRAIN", "reason": OURS}
    assert not Cluster("IDLE+DRAIN", "bad fan").do("drained", check_mode=True)["changed"]
    drained = Cluster("IDLE+DRAIN", OURS)
    result = drained.do("resumed", check_mode=True)
    assert drained.calls == [] and result["changed"] and result["diff"]["after"] == {"state": "IDLE", "reason": ""}
    drained.do("resumed", check_mode=True, expected_gpus=3)
    assert "and the node has 3" in told(drained)
    result = drained.do("rebooting", check_mode=True)
    assert drained.calls == [] and result["changed"]


def test_slurm_may_be_away_for_a_while():
    cluster = Cluster(jobs=[KIM])
    cluster.later = [(50, lambda it: it.answers.update(scontrol=answers.AWAY)), (100, lambda it: it.answers.clear())]
    result = cluster.do("drained", timeout_s=600)
    assert cluster.failure is None and result["drained"]
    cluster = Cluster(jobs=[KIM])
    cluster.later = [(50, lambda it: it.answers.update(scontrol=answers.AWAY))]
    result = cluster.do("drained", timeout_s=600)
    assert "slurmctld does not answer login" in told(cluster) and result["mark"]["owner"] == "ours", (
        "whoever cleans up knows of the drain"
    )
    first = Cluster()
    first.answers = {"scontrol": answers.AWAY}
    first.do("drained", timeout_s=600)
    assert "slurmctld does not answer" in told(first) and first.now == 0 and first.calls == [], (
        "before anything is drained it is told at once"
    )


# resumed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"expected_gpus": 3},
            "n1 was not resumed and stays drained: Slurm has 4 GPUs for it (Gres=gpu:a100:4), and the node has 3",
        ),
        ({"expected_gres": {"a100": 4, "h100": 1}}, "and the node has 4 a100, 1 h100"),
    ],
)
def test_a_node_whose_gpus_are_not_those_of_slurm_is_not_resumed(options, words):
    cluster = Cluster("IDLE+DRAIN", OURS)
    cluster.do("resumed", timeout_s=60, **options)
    assert words in told(cluster) and cluster.calls == []


def test_a_node_of_which_slurmd_reports_less_is_not_resumed():
    cluster = Cluster("IDLE+DRAIN+INVALID_REG", OURS + ", gres/gpu count reported lower than configured (3 < 4)")
    cluster.do("resumed", timeout_s=60)
    assert "slurmd reports less than Slurm has configured" in told(cluster) and "(3 < 4)" in told(cluster)
    assert cluster.calls == []


SHORT = "gres/gpu count reported lower than configured (0 < 4)"


@pytest.mark.parametrize(
    ("owner", "calls", "fails", "left"),
    [("ours", [DRAINS, RESUMES], False, 0), ("operator", [DRAINS], False, 1), ("unknown", [DRAINS], True, 0)],
)
def test_drain_whose_reason_slurm_replaced_is_resumed_by_the_record_or_fails(owner, calls, fails, left):
    cluster = Cluster()
    cluster.do("drained")
    cluster.reason, cluster.user = SHORT, "slurm"
    result = cluster.do("resumed", owner=owner, expected_gpus=4)
    assert (cluster.calls, bool(cluster.failure), len(result["left"])) == (calls, fails, left)


def test_reason_that_slurm_replaces_while_jobs_end_is_no_other_users():
    cluster = Cluster(jobs=[KIM])
    cluster.later = [(60, lambda it: vars(it).update(reason=SHORT, user="slurm"))]
    result = cluster.do("drained", timeout_s=600)
    assert cluster.failure is None and result["drained"] and result["mark"]["owner"] == "ours" and not result["left"]


def test_node_that_slurm_drains_again_after_its_resume_is_under_our_mark():
    cluster = Cluster("IDLE+DRAIN", OURS)
    cluster.answers["state=resume"] = lambda it: vars(it).update(reason=SHORT, user="slurm") or (0, "", "")
    result = cluster.do("resumed", expected_gpus=4)
    assert cluster.failure and cluster.reason.startswith("gpufleet:tok-1 ") and result["mark"]["owner"] == "ours"


def test_node_that_slurm_itself_had_drained_stays_so():
    cluster = Cluster("IDLE+DRAIN", SHORT, "slurm")
    result = cluster.do("drained", owner="unknown")
    assert (cluster.calls, result["mark"]["owner"], len(result["left"])) == ([], "operator", 1)


def test_slurmd_is_waited_for():
    cluster = Cluster("IDLE+DRAIN+NOT_RESPONDING", OURS)
    cluster.later = [(50, lambda it: setattr(it, "state", "IDLE+DRAIN"))]
    assert cluster.do("resumed", timeout_s=60)["changed"] and cluster.calls == [RESUMES]
    cluster = Cluster("IDLE+DRAIN+NOT_RESPONDING", OURS)
    cluster.do("resumed", timeout_s=60)
    assert "its slurmd does not answer" in told(cluster) and cluster.calls == [] and cluster.now >= 60


def test_a_node_whose_slurmd_is_dead_is_drained_again():
    """While it is drained, Slurm does not see it; once it is resumed it does."""
    cluster = Cluster("IDLE+DRAIN", OURS)

    def deaf(it):
        it.calls.append("resume")
        it.state, it.reason = "IDLE+NOT_RESPONDING", ""
        return 0, "", ""

    cluster.answers = {"state=resume": deaf}
    result = cluster.do("resumed")
    assert "n1 was resumed and does not serve (IDLE+NOT_RESPONDING), so that the drain was put back" in told(cluster)
    assert cluster.calls == ["resume", DRAINS] and result["mark"]["owner"] == "ours"
    assert slurm_node.SETTLE_S <= cluster.now < slurm_node.SETTLE_S + 20
    slow = Cluster("IDLE+DRAIN", OURS)
    slow.answers = dict(cluster.answers)
    slow.later = [(5, lambda it: setattr(it, "state", "IDLE"))]
    assert slow.do("resumed", poll_s=1)["changed"] and slow.failure is None, "it may take a moment to answer"


# one job of our own, a reservation


def test_a_job_of_our_own_makes_the_window():
    cluster = Cluster(jobs=[KIM])
    cluster.later = [(310, lambda it: it.own.update({"77": "RUNNING"}))]
    result = cluster.do("drained", method="job", timeout_s=900)
    assert cluster.failure is None and result["drained"] and result["job"] == "77"
    assert [call.split()[0] for call in cluster.calls] == ["sbatch", "scontrol", "scancel"], (
        "it works until the scheduler made the window"
    )
    assert "--exclusive --nodes=1 --nodelist=n1" in cluster.calls[0] and cluster.calls[1] == DRAINS
    idle = Cluster()
    idle.do("drained", method="job", timeout_s=900)
    assert idle.calls == [DRAINS], "an idle node needs none"


def test_a_window_that_does_not_come_leaves_nothing_behind():
    cluster = Cluster(jobs=[KIM])
    result = cluster.do("drained", method="job", timeout_s=60)
    assert "1 job holds it: job 12 (user kim" in told(cluster) and cluster.own == {}
    assert result["mark"]["owner"] == "none"
    assert [call.split()[0] for call in cluster.calls] == ["sbatch", "scancel"]
    waiting = Cluster(jobs=[KIM])
    result = waiting.do("drained", method="job")
    assert waiting.own == {"77": "PENDING"} and not result["drained"] and waiting.failure is None
    assert waiting.do("drained", method="job")["changed"] is False and len(waiting.calls) == 1, (
        "one job, however often it is asked"
    )
    waiting.do("resumed", method="job")
    assert waiting.own == {}, "what a dead controller left in the queue"


def test_a_reservation_of_our_own():
    cluster = Cluster()
    result = cluster.do("drained", reservation_minutes=90)
    assert result["reservation"] == "gpufleet_tok-1_n1" and cluster.reservations == {"gpufleet_tok-1_n1"}
    assert cluster.calls[0] == (
        "scontrol create reservation ReservationName=gpufleet_tok-1_n1 StartTime=now Duration=90 Users=root Nodes=n1 "
        "Flags=MAINT,IGNORE_JOBS"
    )
    cluster.do("drained", reservation_minutes=90)
    assert len(cluster.calls) == 2, "once"
    cluster.reservations.add("of somebody else")
    cluster.do("resumed", reservation_minutes=90)
    assert cluster.reservations == {"of somebody else"}
    busy = Cluster(jobs=[KIM])
    busy.do("drained", reservation_minutes=90, timeout_s=60)
    assert "is not empty" in told(busy) and busy.reservations == set()


# rebooting


def test_slurm_reboots_it_and_it_does_not_serve_after_that():
    cluster = Cluster("IDLE+DRAIN", OURS)

    def back(it):
        it.state, it.reason, it.boot = "DOWN", OURS + " : reboot issued : reboot complete", "2026-11-21T09:00:00"

    cluster.later = [(50, back)]
    result = cluster.do("rebooting", timeout_s=600)
    assert cluster.failure is None and result["changed"]
    assert cluster.calls[0] == "scontrol reboot ASAP nextstate=DOWN reason=%s n1" % OURS
    assert cluster.calls[1] == DRAINS and result["mark"]["owner"] == "ours" and result["drained"], (
        "Slurm took the drain away with the reboot"
    )
    assert not any("RESUME" in call for call in cluster.calls)


def test_a_reboot_that_does_not_end():
    cluster = Cluster("IDLE+DRAIN", OURS)
    cluster.later = [
        (50, lambda it: (setattr(it, "state", "DOWN"), setattr(it, "reason", OURS + " : reboot timed out")))
    ]
    result = cluster.do("rebooting", timeout_s=100)
    assert "has not come back from its reboot after 100 s" in told(cluster) and result["mark"]["owner"] == "ours"
    assert "DRAIN" in cluster.state


@pytest.mark.parametrize(
    "cluster", [Cluster(), Cluster("IDLE+DRAIN", "bad fan"), Cluster("IDLE+DRAIN", OURS, jobs=[KIM])]
)
def test_only_what_we_drained_and_what_is_empty_is_rebooted(cluster):
    cluster.do("rebooting", timeout_s=60)
    assert "was not rebooted" in told(cluster) and cluster.calls == []


# info, and bad input


def test_many_nodes_in_few_calls_and_the_idle_ones_first():
    names = ["n%03d" % number for number in range(1000)]
    asked = []

    def run(words, timeout):
        if "--json" in words:
            return answers.NO_JSON
        asked.append(words)
        parts = [
            "NodeName=%s CPUAlloc=0\n   State=%s\n\n" % (name, "MIXED" if name < "n500" else "IDLE")
            for name in words[3].split(",")
        ]
        return 0, "".join(parts), ""

    work = slurm_node.SlurmNode(commands.Slurm(run=run), dict(fake_slurm.OPTIONS, node_name=None, node_names=names))
    result = work.run()
    assert len(asked) == 5 and [item["node"] for item in result["nodes"]] == names[500:] + names[:500]
    assert {item["work"] for item in result["nodes"][:500]} == {"idle"}
    work = slurm_node.SlurmNode(Cluster().slurm(), dict(fake_slurm.OPTIONS, node_name=None, node_names=["n1", "nope"]))
    with pytest.raises(commands.SlurmError, match="Slurm knows no node nope"):
        work.run()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"state": "drained", "token": None}, "state drained needs a token"),
        ({"state": "drained", "token": "a b"}, "token is 'a b'"),
        ({"node_name": None}, "node_name is missing"),
        ({"node_name": "", "state": "resumed"}, "node_name is missing"),
        ({"timeout_s": -1}, "timeout_s is -1"),
        ({"reservation_minutes": -1}, "reservation_minutes is -1"),
        ({"slice_s": 0}, "slice_s is 0: expected 1 or more"),
        ({"poll_s": 0.0}, "poll_s is 0.0"),
        ({}, ""),
        ({"node_name": None, "node_names": ["a"], "token": None}, ""),
    ],
)
def test_options_that_make_no_sense(options, words):
    text = slurm_node.contradiction(dict(fake_slurm.OPTIONS, **options))
    assert text.startswith(words) and bool(text) == bool(words)
