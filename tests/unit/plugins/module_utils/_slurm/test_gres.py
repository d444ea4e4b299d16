# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a node as generic resources, and what is done with the files of Slurm's configuration: truth tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import gres, gres_config, records, states
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm.gres_data import (
    BOARD,
    H100,
    MINORS,
    missing,
    one,
    row,
    snapshot,
    value,
    whole,
)

SLICE = H100 + "_1g.10gb"


def test_capabilities_are_read_by_place():
    found = gres.capabilities(MINORS + "config 1\nmonitor 2\nnonsense\ngpu0/gi1/access x\n")
    assert found[0, 1, None] == 12 and found[0, 1, 0] == 13 and found[1, 0, None] == 138
    assert gres.capabilities("") == gres.capabilities(None) == {}


@pytest.mark.parametrize(
    ("model", "profile", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "", "nvidia_a100-sxm4-40gb"),
        (BOARD, "", H100),
        (BOARD, "1g.10gb", SLICE),
        (BOARD, "1g.10gb+me", H100 + "_1g.10gb.me"),
        (BOARD, "1c.3g.40gb", H100 + "_1c.3g.40gb"),
        ("NVIDIA RTX(TM) / X,Y:Z", "", "nvidia_rtx_tm_x_y_z"),
    ],
)
def test_types_are_those_of_slurms_own_detection(model, profile, name):
    assert gres.type_name(model, profile) == name


def test_a_whole_gpu_is_its_device_file_by_its_minor_number_and_a_mig_device_has_three():
    gpus = gres.of_snapshot(snapshot(whole(0, minor=3), one(1, (1, 0, "1g.10gb"), (2, 0, "3g.40gb"))), MINORS)
    assert gres.lines("n1", gpus) == [
        "NodeName=n1 AutoDetect=off Name=gpu Type=%s File=/dev/nvidia3" % H100,
        (
            "NodeName=n1 AutoDetect=off Name=gpu Type=%s "
            "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap147,/dev/nvidia-caps/nvidia-cap148" % SLICE
        ),
        (
            "NodeName=n1 AutoDetect=off Name=gpu Type=%s_3g.40gb "
            "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap156,/dev/nvidia-caps/nvidia-cap157" % H100
        ),
    ]
    assert gres.counts(gpus) == {H100: 1, SLICE: 1, H100 + "_3g.40gb": 1}
    assert gres.value(gres.counts(gpus)) == "gpu:%s:1,gpu:%s:1,gpu:%s_3g.40gb:1" % (H100, SLICE, H100)
    assert records.gres_counts(gres.value(gres.counts(gpus))) == gres.counts(gpus), "as Slurm tells it again"


def test_a_cluster_may_have_names_of_its_own_and_none():
    gpus = gres.of_snapshot(snapshot(whole(0), one(1, (1, 0, "1g.10gb"))), MINORS, {H100: "h100", SLICE: ""})
    assert gres.value(gres.counts(gpus)) == "gpu:1,gpu:h100:1" and " Type=" not in gres.lines("n1", gpus)[1]
    assert gres.plan_counts(gpus, [row(0, {"1g.10gb": 7})], {H100: "h100", SLICE: ""}) == {"": 8}
    with pytest.raises(gres.GresError):
        gres.of_snapshot(snapshot(whole(0)), "", {H100: "a:b"})


def test_a_node_whose_gpus_have_no_devices_detects_none_either():
    gpus = gres.of_snapshot(snapshot(one(0)), "")
    assert gres.value(gres.counts(gpus)) == "" and gres.lines("n1", gpus) == ["NodeName=n1 AutoDetect=off"]


@pytest.mark.parametrize(
    "gpu",
    [
        dict(whole(0), name=missing(15)),
        dict(whole(0), minor_number=missing(3)),
        dict(whole(0), minor_number=value(None)),
        {key: answer for key, answer in whole(0).items() if key != "minor_number"},
        dict(whole(0), mig_mode_current=missing(999)),
        dict(whole(0), mig_mode_current=value(None)),
        {key: answer for key, answer in whole(0).items() if key != "mig_mode_current"},
        dict(one(0), mig_instances=missing(15)),
        dict(one(0), mig_instances=value(None)),
        one(0, (9, 0, "1g.10gb")),  # an instance that mig-minors does not list
        one(0, (1, 7, "1g.10gb")),
        one(0, (1, 0, "Device")),
    ],
)
def test_what_was_not_read_is_refused(gpu):
    with pytest.raises(gres.GresError):
        gres.of_snapshot(snapshot(whole(1), gpu), MINORS)


@pytest.mark.parametrize("read", [None, {}, {"gpus": []}, snapshot(whole(0), whole(1, minor=0))])
def test_no_gpus_and_two_with_one_device_file_are_refused(read):
    with pytest.raises(gres.GresError):
        gres.of_snapshot(read, MINORS)


@pytest.mark.parametrize("rc", [2, 3, 13])
def test_a_driver_or_gpu_without_mig_is_a_whole_gpu(rc):
    assert gres.counts(
        gres.of_snapshot(snapshot(dict(whole(0), mig_mode_current=missing(rc), mig_instances=missing(rc))))
    ) == {H100: 1}


@pytest.mark.parametrize("node", ["", "n[1-3]", "../n1", "n1,n2", "n 1", None])
def test_a_file_is_named_after_one_node(node):
    assert gres.node_problem(node)
    with pytest.raises(gres.GresError):
        gres.lines(node, [])


def test_a_layout_says_what_stays_and_what_there_will_be():
    gpus = gres.of_snapshot(snapshot(whole(0), whole(1), one(2, (1, 0, "1g.10gb"))), MINORS)
    same = row(2, {"1g.10gb": 1}, before={"1g.10gb": 1})
    layout = [row(0, {"1g.10gb": 2, "3g.40gb": 1, "0c.1g.10gb": 1}), row(2, None, before={"1g.10gb": 1})]
    assert gres.counts(gres.staying(gpus, layout)) == {H100: 1}
    assert gres.plan_counts(gpus, layout) == {H100: 2, SLICE: 2, H100 + "_3g.40gb": 1}
    assert (
        gres.counts(gres.staying(gpus, [same]))
        == gres.plan_counts(gpus, [same])
        == gres.plan_counts(gpus, [])
        == {H100: 2, SLICE: 1}
    )


@pytest.mark.parametrize(
    "bad", [row(9, {"1g.10gb": 1}), dict(row(0, {}), wanted=None), dict(row(0, {}), before=None), {"gpu": None}]
)
def test_a_layout_of_another_node_is_refused(bad):
    gpus = gres.of_snapshot(snapshot(whole(0)))
    for ask in (gres.staying, gres.plan_counts):
        with pytest.raises(gres.GresError):
            ask(gpus, [bad])


# What Slurm has, what stays, and whether it has to be told first.
ORDER = [
    ({"a": 8}, {"a": 8}, False),
    ({"a": 8}, {"a": 7}, True),
    ({"a": 8}, {}, True),
    ({"a": 7}, {"a": 8}, False),
    ({}, {"a": 8}, False),
    ({}, {}, False),
    ({"a": 1, "b": 7}, {"a": 1}, True),
    ({"a": 1}, {"a": 1, "b": 7}, False),
    ({"a": 8}, {"b": 56}, True),  # more of another type
    ({"": 8}, {"a": 8}, False),  # without a type: any
    ({"": 8}, {"a": 4, "b": 3}, True),
    ({"": 1, "a": 1}, {"a": 1}, True),
]


@pytest.mark.parametrize(("configured", "kept", "first"), ORDER)
def test_who_is_told_first(configured, kept, first):
    assert gres_config.controller_first(configured, kept) is first


COUNTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9))


@given(COUNTS, COUNTS, COUNTS)
def test_slurm_never_has_more_than_the_node(configured, kept, gained):
    """From a node that Slurm has right, through what stays, to what there is in the end: at no moment it registers
    with fewer devices."""
    before = {kind: kept.get(kind, 0) + configured.get(kind, 0) for kind in "abc"}
    after = {kind: kept.get(kind, 0) + gained.get(kind, 0) for kind in "abc"}
    told = kept if gres_config.controller_first(before, kept) else before
    assert not gres_config.exceeds(told, before) and not gres_config.exceeds(told, kept)
    assert not gres_config.exceeds(told, after)
    assert gres_config.controller_first(before, kept) == any(configured.values()), (
        "and it is told first only when something goes"
    )
    assert not gres_config.controller_first(after, after)


@pytest.mark.parametrize(
    ("line", "counts", "after"),
    [
        (
            "NodeName=n1 CPUs=8 Gres=gpu:a:8 State=UNKNOWN",
            {"b": 2, "a": 1},
            "NodeName=n1 CPUs=8 Gres=gpu:a:1,gpu:b:2 State=UNKNOWN",
        ),
        ("NodeName=n1 gres=gpu:a:8(S:0-1),nvme:2,shard:a:4", {"b": 2}, "NodeName=n1 Gres=gpu:b:2,nvme:2,shard:a:4"),
        ("NodeName=n1 Gres=gpu:8", {}, "NodeName=n1"),
        ("NodeName=n1 Gres=gpu CPUs=2", {"": 3}, "NodeName=n1 Gres=gpu:3 CPUs=2"),
        ("NodeName=n1 Gres=nvme:1", {}, "NodeName=n1 Gres=nvme:1"),
        ("NodeName=n1 CPUs=8", {"a": 1}, "NodeName=n1 CPUs=8 Gres=gpu:a:1"),
        ("NodeName=n1 CPUs=8", {}, "NodeName=n1 CPUs=8"),
        # The grammar of slurm.conf: comments, quotes, blanks around the equals sign, escapes, continued lines.
        ("NodeName=n1 CPUs=8 # two PSUs", {"a": 1}, "NodeName=n1 CPUs=8 Gres=gpu:a:1 # two PSUs"),
        ("NodeName=n1 #Gres=gpu:a:4", {"a": 8}, "NodeName=n1 Gres=gpu:a:8 #Gres=gpu:a:4"),
        ("NodeName=n1 Gres=gpu:a:1 # Gres=gpu:a:4", {}, "NodeName=n1 # Gres=gpu:a:4"),
        ('NodeName = n1 Gres = "gpu:a:1,nvme:1" CPUs=2', {"b": 1}, "NodeName = n1 Gres=gpu:b:1,nvme:1 CPUs=2"),
        ('NodeName=n1 Reason="Gres=gpu:a:9" CPUs=2', {"b": 1}, 'NodeName=n1 Reason="Gres=gpu:a:9" CPUs=2 Gres=gpu:b:1'),
        ("NodeName=n1 Reason=a\\#b Gres=gpu:1", {"b": 2}, "NodeName=n1 Reason=a\\#b Gres=gpu:b:2"),
        (
            "NodeName=n1 \\ # why\n CPUs=2 \\ \n Weight=1",
            {"b": 2},
            "NodeName=n1 \\ # why\n CPUs=2 \\ \n Weight=1 Gres=gpu:b:2",
        ),
        # Types are compared as Slurm compares them, and stay.
        ("NodeName=n1 Gres=gpu:a100:8", {"nvidia_a100-sxm4-80gb": 8}, "NodeName=n1 Gres=gpu:a100:8"),
        ("NodeName=n1 Gres=gpu:8(S:0-1)", {"nvidia_a100-sxm4-80gb": 8}, "NodeName=n1 Gres=gpu:8(S:0-1)"),
    ],
)
def test_the_gpus_of_a_line_are_set_and_the_rest_of_it_stays(line, counts, after):
    assert gres_config.with_gres(line, counts) == after == gres_config.with_gres(after, counts)


def test_the_file_of_the_node_keeps_what_else_stands_there():
    text = "# ours\nNodeName=n1 CPUs=8 \\\n   Gres=gpu:a:1\nPartitionName=p Nodes=n1\n"
    new = gres_config.node_text(text, "n1", {"b": 2})
    assert new.splitlines()[1:] == [
        "# ours",
        "NodeName=n1 CPUs=8 \\",
        "   Gres=gpu:b:2",
        "PartitionName=p Nodes=n1",
    ] and new.startswith("# Kept by gpufleet")
    assert gres_config.node_text(new, "n1", {"b": 2}) == new, "the header stands there once"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("NodeName=n1 CPUs=8\n", 1),
        ("  nodename=n1\n", 1),
        ("NodeName=n10 CPUs=8\n", 0),
        ("NodeName=n[1-2] CPUs=8\n", 0),
        ("# NodeName=n1\n", 0),
        (None, 0),
        ("NodeName=n1 CPUs=8\nNodeName=n1 CPUs=4\n", 2),
        ("NodeName=DEFAULT CPUs=8\n NodeName = \"n1\"\n", 1),
        ("NodeName=\\\n n1\n", 1),
        ("# a comment goes on \\\nNodeName=n1\n", 1),
        ("PartitionName=p \\\nNodeName=n1\n", 0),
    ],
)
def test_the_line_of_a_node(text, number):
    assert len(gres_config.node_lines(text, "n1")) == number


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("n1", True),
        ("n[1-3]", True),
        ("n[2-3],n1", True),
        ("n[2,4-6,1]", True),
        ("n[01-03]", False),
        ("n[2-3]", False),
        ("[l-n]1", False),
        ("n10,n[10-11]", False),
        ("DEFAULT", False),
    ],
)
def test_a_list_of_hosts_has_the_node(hosts, found):
    assert gres_config.covers(hosts, "n1") is found
    assert gres_config.defines("nodename=%s # n1\n" % hosts, "n1") is found


def test_a_list_of_hosts_may_have_several_ranges():
    assert gres_config.covers("r[1-2]-n[01-10]x", "r2-n07x") and not gres_config.covers("r[1-2]-n[01-10]x", "r2-n7x")


@pytest.mark.parametrize(
    ("configured", "counts", "names"),
    [
        ({"a100": 8}, {"nvidia_a100-sxm4-80gb": 8}, {"nvidia_a100-sxm4-80gb": "a100"}),
        ({"A100": 8}, {"nvidia_a100-sxm4-80gb": 7}, {"nvidia_a100-sxm4-80gb": "A100"}),
        ({"": 8}, {"nvidia_a100-sxm4-80gb": 8}, {}),
        ({"a100": 8}, {"a100": 8}, {}),
        ({"h100": 8}, {"nvidia_a100-sxm4-80gb": 8}, {}),
        ({"a100": 8}, {"x_a100": 7, "x_a100_1g.10gb": 7}, {"x_a100": "a100"}),
        (
            {"a100": 7, "1g.10gb": 7},
            {"x_a100": 7, "x_a100_1g.10gb": 7},
            {"x_a100": "a100", "x_a100_1g.10gb": "1g.10gb"},
        ),
    ],
)
def test_types_that_jobs_ask_for_stay(configured, counts, names):
    assert gres_config.names(configured, counts) == names
    assert gres_config.rename_counts(counts, names) == {
        names.get(kind, kind): number for kind, number in counts.items()
    }


def test_includes_are_read_as_slurm_reads_them():
    text = "Include a.conf\n  include /x/../y/b.conf # why\n#Include c.conf\nIncludes d\nNodeName=n1\n"
    assert gres_config.find_included(text, "/etc/slurm") == ["/etc/slurm/a.conf", "/y/b.conf"]
    assert gres_config.find_included("INCLUDE \\\n %c.conf", "/e", gres_config.cluster_of("clustername = hpc # x")) == [
        "/e/hpc.conf"
    ]


def seen(**more):
    return dict(
        {
            "directory": "/d",
            "writable": True,
            "slurm_conf": "/etc/slurm/slurm.conf",
            "gres_conf": "/etc/slurm/gres.conf",
            "includes": ["/d/n1.conf", "/d/n1.gres.conf"],
            "node_file": "NodeName=n1 Gres=gpu:a:8\n",
            "gres_file": "# empty\n",
            "reconfigure": True,
            "restart": False,
            "version": "23.11.0",
        },
        **more,
    )


NOWHERE = {"directory": "", "writable": None, "includes": None, "node_file": None, "gres_file": None}


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, 0),
        (NOWHERE, 1),
        ({"writable": None}, 1),
        ({"writable": False}, 1),
        ({"includes": None}, 2),
        ({"includes": ["/d/n1.conf"]}, 1),
        ({"includes": ["/d/n1.gres.conf"]}, 1),
        ({"node_file": None}, 1),
        ({"node_file": "NodeName=n2\n"}, 1),
        ({"elsewhere": ["/etc/slurm/slurm.conf"]}, 1),
        ({"reconfigure": False}, 1),
        ({"gres_file": None}, 0),
        ({"slurm_conf": "/d/n1.conf"}, 1),
        ({"gres_conf": "/d/n1.gres.conf"}, 1),
        ({"writable": None, "includes": None, "node_file": None, "reconfigure": False}, 5),
    ],
)
def test_what_cannot_be_written(more, wrong):
    assert len(gres_config.problems(seen(**more), "n1")) == wrong


def record(listing, state="IDLE+DRAIN"):
    return records.node("n1", "host1", states.parse(state), "", "", listing, "", 0, "", "", [], "22.05.8")


LINE = ["NodeName=n1 AutoDetect=off Name=gpu Type=a File=/dev/nvidia0"]
OTHER = ["NodeName=n1 AutoDetect=off Name=gpu Type=b File=/dev/nvidia0"]
CLOSED, OPEN = "IDLE+DRAIN", "IDLE"
FILE = {"gres_file": LINE[0] + "\n"}


@pytest.mark.parametrize(
    ("state", "has", "where", "counts", "more", "action"),
    [
        # Before the drain: whatever is to be written has to be writable.
        ("checked", "gpu:a:1", OPEN, {"a": 1}, FILE, "nothing"),
        ("checked", "gpu:a:1", OPEN, {"a": 1}, NOWHERE, "nothing"),
        ("checked", "gpu:a:1", OPEN, {"a": 1}, {}, "do"),
        ("checked", "gpu:a:1", OPEN, {"a": 1}, {"includes": []}, "refuse"),
        ("checked", "gpu:a:1", OPEN, {"b": 1}, NOWHERE, "refuse"),
        ("checked", "gpu:a:1", OPEN, {"b": 1}, {"reconfigure": False}, "refuse"),
        ("checked", "gpu:a:1", OPEN, {"b": 1}, {"writable": False}, "refuse"),
        ("checked", "gpu:a:1", OPEN, {"b": 1}, {}, "do"),
        ("checked", "", OPEN, {"b": 1}, NOWHERE, "refuse"),
        # What stays: Slurm is told if it has more, or gres.conf has a line of what goes.
        ("reduced", "gpu:a:8", CLOSED, {"a": 1}, {}, "do"),
        ("reduced", "gpu:a:8", CLOSED, {"a": 1}, NOWHERE, "refuse"),
        ("reduced", "gpu:a:8", OPEN, {"a": 1}, {}, "refuse"),
        ("reduced", "gpu:a:1", CLOSED, {"a": 1}, {}, "nothing"),
        ("reduced", "gpu:a:1", CLOSED, {"a": 1}, FILE, "nothing"),
        ("reduced", "gpu:a:1", CLOSED, {"a": 1, "b": 7}, NOWHERE, "nothing"),
        ("reduced", "gpu:a:1", CLOSED, {"a": 1}, {"gres_file": OTHER[0]}, "do"),
        ("reduced", "(null)", CLOSED, {}, NOWHERE, "nothing"),
        # What there is.
        ("present", "gpu:a:1", OPEN, {"a": 1}, FILE, "nothing"),
        ("present", "gpu:a:1", OPEN, {"a": 1}, NOWHERE, "nothing"),
        ("present", "gpu:a:1", OPEN, {"a": 1}, {}, "do"),
        ("present", "gpu:a:1", CLOSED, {"a": 1}, {"gres_file": OTHER[0]}, "do"),
        ("present", "gpu:a:1", CLOSED, {"b": 7}, {}, "do"),
        ("present", "gpu:a:1", CLOSED, {}, {}, "do"),
        ("present", "gpu:a:1", OPEN, {"nvidia_a": 1}, {}, "nothing"),
        ("present", "gpu:1", OPEN, {"nvidia_a": 1}, FILE, "nothing"),
        ("present", "gpu:b:1", CLOSED, {"nvidia_a": 1}, FILE, "do"),
        ("present", "gpu:a:2", CLOSED, {"a": 1, "a_3g.40gb": 1}, FILE, "do"),
        ("present", "gpu:a:1", OPEN, {"b": 7}, {}, "refuse"),
        ("present", "gpu:a:1", CLOSED, {"b": 7}, NOWHERE, "refuse"),
        ("present", "gpu:a:1", CLOSED, {"b": 7}, {"node_file": ""}, "refuse"),
    ],
)
def test_what_is_done(state, has, where, counts, more, action):
    assert gres_config.decide(state, record(has, where), counts, LINE, seen(**more)).action == action


def test_a_refusal_has_the_lines_to_write():
    said = gres_config.decide("checked", record("gpu:a:1"), {"b": 7}, OTHER, seen(**NOWHERE)).reason
    assert "Gres=gpu:b:7" in said and OTHER[0] in said.splitlines() and "scontrol reconfigure" in said
    said = gres_config.decide("checked", record("gpu:a:1"), {"b": 7}, [], seen(includes=[])).reason
    assert (
        "Include n1.conf"
        in gres_config.decide("checked", record(""), {"b": 1}, [], seen(includes=[], slurm_conf="/d/slurm.conf")).reason
    )
    assert "Include /d/n1.conf" in said and "Include /d/n1.gres.conf" in said and "check mode" in said


@pytest.mark.parametrize(
    ("version", "configured", "counts", "needed"),
    [
        ("22.05.8", {"a": 4}, {"a": 1}, True),
        ("23.02.7", {"a": 1}, {"a": 4}, True),
        ("22.05.8", {"a": 4}, {"a": 4, "b": 0}, False),
        ("22.05.8", {}, {"a": 4}, False),
        ("23.11.0", {"a": 4}, {"a": 1}, False),
        ("24.05.1-1", {"a": 4}, {"b": 1}, False),
        ("", {"a": 4}, {"a": 1}, True),
        (None, {"a": 4}, {"a": 1}, True),
        ("unknown", {"a": 4}, {"a": 1}, True),
    ],
)
def test_whether_slurmctld_takes_gpus_only_when_it_starts(version, configured, counts, needed):
    assert gres_config.needs_restart(version, configured, counts) is needed


@pytest.mark.parametrize(("restart", "action"), [(False, "refuse"), (True, "do")])
def test_a_restart_has_to_be_permitted(restart, action):
    told = gres_config.decide("checked", record("gpu:a:4"), {"a": 1}, [], seen(version="22.05.8", restart=restart))
    assert told.action == action
