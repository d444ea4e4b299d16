# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables: whether engine and exporter have every GPU and MIG instance, and whether the values are fresh."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import counters, engine, proof

GPUS = ["GPU-0000000%d-0000-0000-0000-000000000000" % index for index in range(8)]
FIELDS = [
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
]
ENERGY = FIELDS[3]


def snapshot(mig=None, gpus=8):
    """NVML with GPUS GPUs; MIG maps the index of a GPU to its instances."""
    return {
        "status": "ok",
        "count": {"value": gpus, "rc": 0},
        "gpus": [
            {
                "uuid": {"value": GPUS[index], "rc": 0},
                "mig_mode_current": {"value": int(index in (mig or {})), "rc": 0},
                "mig_instances": {"value": [{"gpu_instance": one} for one in (mig or {}).get(index, [])], "rc": 0},
            }
            for index in range(gpus)
        ],
    }


def serve(entities=None, energy=0, **values):
    """What an exporter serves for (UUID, instance or None); VALUES are those of a field in the place of 1."""
    text = []
    for field in FIELDS:
        text.append("# TYPE %s gauge" % field)
        for uuid, instance in entities if entities is not None else [(uuid, None) for uuid in GPUS]:
            more = "" if instance is None else ',GPU_I_PROFILE="1g",GPU_I_ID="%s"' % instance
            value = values.get(field, 1 + energy if field == ENERGY else 1)
            text.append(
                '%s{gpu="0",UUID="%s",modelName="H100, \\"80 GB\\""%s,Hostname="n"} %s' % (field, uuid, more, value)
            )
    return "\n".join(text) + "\n"


def judge(first, second=None, known=None):
    return proof.decide(known or snapshot(), FIELDS, first, serve(energy=1) if second is None else second)


def test_all_eight_are_fresh():
    answer = judge(serve())
    assert answer["proven"] and answer["message"] == "" and (answer["found"], answer["expected"]) == (8, 8)


def test_seven_of_eight_names_the_missing_one():
    seven = [(uuid, None) for uuid in GPUS[:-1]]
    answer = judge(serve(seven), serve(seven, energy=1))
    assert not answer["proven"] and answer["missing"] == [GPUS[7]] and answer["found"] == 7
    assert GPUS[7] in answer["message"] and GPUS[0] not in answer["message"]


@pytest.mark.parametrize(
    "value",
    [
        "9223372036854775792",
        "9223372036854775793",
        "9223372036854775794",
        "9223372036854775795",
        "9.223372036854776e+18",
        "2147483632",
        "2147483634",
        "1.40737488355328e+14",
        "140737488355330",
        "NaN",
    ],
)
def test_a_blank_value_is_missing(value):
    second = serve(energy=1, DCGM_FI_DEV_FB_USED=value)
    answer = judge(serve(), second)
    assert not answer["proven"] and answer["fresh"] and "DCGM_FI_DEV_FB_USED of " + GPUS[0] in answer["blank"]
    assert len(answer["blank"]) == 8


@pytest.mark.parametrize("value", ["0", "2147483631", "140737488355327", "81559"])
def test_a_value_that_is_none_of_the_blanks(value):
    assert judge(serve(), serve(energy=1, DCGM_FI_DEV_FB_USED=value))["proven"]


def test_series_that_are_all_blank_are_no_series():
    blank = dict.fromkeys(FIELDS, "9223372036854775794")
    assert judge(serve(**blank), serve(**blank))["missing"] == GPUS


@pytest.mark.parametrize(
    "first, second",
    [
        (serve(), serve()),
        # blank before or after is not known to have moved
        (serve(**{ENERGY: "9223372036854775794"}), serve(energy=5)),
        (serve(), serve(**{ENERGY: "9223372036854775794"})),
        (serve([]), serve(energy=5)),
    ],
)
def test_values_that_did_not_move_are_stale(first, second):
    answer = judge(first, second)
    assert (
        not answer["fresh"] and not answer["proven"] and answer["stale"] == GPUS and "did not move" in answer["message"]
    )


def test_one_gpu_of_eight_that_stands_still():
    mixed = serve([(uuid, None) for uuid in GPUS[:7]], energy=1) + serve([(GPUS[7], None)])
    assert judge(serve(), mixed)["stale"] == [GPUS[7]]


def test_without_a_second_scrape_nothing_is_fresh():
    answer = proof.decide(snapshot(), FIELDS, serve())
    assert answer["complete"] and not answer["fresh"] and not answer["proven"] and answer["message"]


INSTANCES = [(uuid, None) for uuid in GPUS[1:]] + [(GPUS[0], "1"), (GPUS[0], "2")]


@pytest.mark.parametrize(
    "served, missing, unexpected",
    [
        (INSTANCES, [], []),
        # the GPU has series of its own too
        ([*INSTANCES, (GPUS[0], None)], [], []),
        (INSTANCES[:-1], ["MIG instance 2 of " + GPUS[0]], []),
        # the layout before: an instance that is gone
        ([*INSTANCES, (GPUS[0], "9")], [], ["MIG instance 9 of " + GPUS[0]]),
        # before there was one
        ([(uuid, None) for uuid in GPUS], ["MIG instance 1 of " + GPUS[0], "MIG instance 2 of " + GPUS[0]], []),
        # instances on a GPU that has none any more
        ([*INSTANCES[1:], (GPUS[1], "1")], [GPUS[1]], ["MIG instance 1 of " + GPUS[1]]),
    ],
)
def test_mig_instances(served, missing, unexpected):
    answer = judge(serve(served), serve(served, energy=1), snapshot({0: [2, 1]}))
    assert (answer["missing"], answer["unexpected"]) == (missing, unexpected)
    assert answer["complete"] == (not missing and not unexpected)


def test_a_gpu_in_mig_mode_without_instances_is_served_as_a_whole():
    assert judge(serve(), known=snapshot({0: []}))["proven"]


def test_a_gpu_that_nvml_does_not_have():
    answer = judge(serve(), known=snapshot(gpus=7))
    assert not answer["proven"] and answer["unexpected"] == [GPUS[7]]


def broken(change):
    known = copy.deepcopy(snapshot({0: [1]}))
    change(known)
    return known


@pytest.mark.parametrize(
    "change",
    [
        lambda known: known.update(status="error"),
        lambda known: known.update(gpus=[]),
        lambda known: known["count"].update(value=None),
        lambda known: known["count"].update(value=9),
        lambda known: known["gpus"][3]["uuid"].update(value=None),
    ],
)
def test_where_nvml_does_not_tell_nothing_is_proven(change):
    answer = judge(serve(), known=broken(change))
    assert not answer["proven"] and not answer["complete"] and "NVML" in answer["message"]
    assert not engine.decide(broken(change), table(GPUS), 0)["proven"]


def test_where_mig_instances_are_not_told_nothing_is_proven():
    known = broken(lambda one: one["gpus"][0]["mig_instances"].update(value=None))
    assert not judge(serve(), known=known)["complete"]


def test_a_line_that_cannot_be_read_is_not_skipped():
    answer = judge(serve(), serve(energy=1) + "DCGM_FI_DEV_GPU_TEMP{gpu=0} forty\n")
    assert not answer["proven"] and "cannot be read" in answer["message"]


@pytest.mark.parametrize(
    "line, sample",
    [
        ('a{b="c"} 1', ("a", {"b": "c"}, 1.0)),
        ('a{b="c",} 1', ("a", {"b": "c"}, 1.0)),
        ('a { b = "c" , d="e" } 1.5e3 1700000000000', ("a", {"b": "c", "d": "e"}, 1500.0)),
        (r'a{b="x\\y\"z\n"} +Inf', ("a", {"b": 'x\\y"z\n'}, float("inf"))),
        ('a{b="},{"} 0', ("a", {"b": "},{"}, 0.0)),
        ("a 2", ("a", {}, 2.0)),
        ('a{b="c} 1', None),
        ("a{b=c} 1", None),
        ("a", None),
        ('a{b="c"}', None),
        ("1a 2", None),
        ("a 1 2 3", None),
    ],
)
def test_lines_of_the_text_format(line, sample):
    samples, unread = proof.parse_series("# HELP a b\n\n" + line + "\n")
    assert [tuple(one) for one in samples] == ([sample] if sample else []) and unread == ([] if sample else [3])


def table(uuids, head="%d GPUs found."):
    line = "+--------+----------------------+"
    rows = [head % len(uuids), line, "| GPU ID | Device Information   |", line]
    for index, uuid in enumerate(uuids):
        rows += [
            "| %d      | Name: <<<NULL>>> |" % index,
            "|        | PCI Bus ID: 0 |",
            "|        | Device UUID: %s |" % uuid,
            line,
        ]
    return "\n".join([*rows, "2 NvSwitches found.", line, "| Switch ID |", line, "| 8        |", line, "0 CPUs found."])


@pytest.mark.parametrize(
    "text, rc, proven, found, missing",
    [
        (table(GPUS), 0, True, 8, []),
        (table(GPUS, "%d GPUs found (Active)."), 223, True, 8, []),
        (table(list(reversed(GPUS))), 0, True, 8, []),
        (table(GPUS[:7]), 0, False, 7, [GPUS[7]]),
        (table([]), 0, False, 0, GPUS),
        # the table ends before the number that it names, or is another
        (table(GPUS[:7], "8 GPUs found.%.0s"), 0, False, None, []),
        (table([*GPUS[:7], GPUS[0]]), 0, False, None, []),
        ("Error: unable to establish a connection to the specified host: localhost", 255, False, None, []),
        ("", 0, False, None, []),
    ],
)
def test_what_the_engine_says_of_its_gpus(text, rc, proven, found, missing):
    answer = engine.decide(snapshot(), text, rc)
    assert (answer["proven"], answer["found"], answer["missing"]) == (proven, found, missing)
    assert bool(answer["message"]) != proven
    if proven:
        assert sorted(answer["ids"].values()) == list(range(8))


def test_an_engine_with_a_gpu_that_nvml_does_not_have():
    assert not engine.decide(snapshot(gpus=7), table(GPUS), 0)["proven"]


def test_the_proof_has_what_it_needs_in_the_counters_file():
    fields = counters.check(counters.render(False), False)["fields"]
    assert set(FIELDS) <= set(fields)
