# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done to the DKMS tree, as a truth table."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import plan as dkms_plan

OLD, NEW, K, N = "535.216.03", "535.261.03", "6.1.0-56-amd64", "nvidia-current"


def module(version=NEW, kernel=K, error=None):
    return {"version": version, "vermagic": kernel + " SMP", "error": error, "path": "/x"}


def entry(version=NEW, kernel=K, state="installed"):
    return {
        "name": N,
        "version": version,
        "kernel": kernel,
        "arch": "x86_64",
        "state": state,
        "note": "",
        "origin": None,
    }


def view(state="installed", item=None, entries=(), headers=True, leftovers=(), source=True):
    return {
        "available": True,
        "states": {K: state},
        "modules": {K: item},
        "entries": list(entries),
        "headers": {K: headers},
        "leftovers": list(leftovers),
        "source": source,
    }


def actions(steps):
    return [item["action"] for item in steps]


@pytest.mark.parametrize(
    ("state", "item", "force", "expected", "forced"),
    [
        ("installed", module(), False, [], None),
        ("installed", module(), True, ["unbuild", "build", "install"], True),
        ("installed", None, False, ["install"], True),
        ("installed", module(OLD), False, ["install"], True),
        ("installed", module(kernel="6.1.0-1"), False, ["install"], True),
        ("installed", module(error="unreadable"), False, ["install"], True),
        ("differs", module(OLD), False, ["install"], True),
        ("built", None, False, ["install"], False),
        ("built", module(OLD), False, ["install"], True),
        ("incomplete", None, False, ["unbuild", "build", "install"], False),
        ("added", None, False, ["build", "install"], False),
        ("broken", None, False, ["build", "install"], False),
        ("absent", None, False, ["add", "build", "install"], False),
        ("absent", module(OLD), False, ["add", "build", "install"], True),
    ],
)
def test_built(state, item, force, expected, forced):
    steps, problems = dkms_plan.plan_build([K], view(state, item), N, NEW, force)
    assert actions(steps) == expected and problems == []
    if forced is not None:
        assert steps[-1]["force"] is forced


@pytest.mark.parametrize(
    ("state", "item", "expected"),
    [
        ("absent", None, ["load", "install"]),
        ("added", None, ["load", "install"]),
        ("incomplete", None, ["unbuild", "load", "install"]),
        ("built", None, ["install"]),
        ("installed", module(), []),
        ("installed", module(OLD), ["install"]),
    ],
)
def test_an_archive_takes_the_place_of_a_compilation_alone(state, item, expected):
    steps, problems = dkms_plan.plan_build([K], view(state, item, headers=False), N, NEW, archived=[K])
    assert actions(steps) == expected and problems == [], "and needs no headers"
    assert dkms_plan.find_uncompiled([K], view(state, item), NEW) == ([K] if "load" in expected else [])


def test_what_has_no_archive_is_compiled_and_force_compiles_all():
    other = "6.1.0-49-amd64"
    both = view("absent")
    for part, value in (("states", "absent"), ("modules", None), ("headers", True)):
        both[part][other] = value
    steps, problems = dkms_plan.plan_build([other, K], both, N, NEW, archived=[K])
    assert [(item["action"], item["kernel"]) for item in steps] == [
        ("add", None),
        ("build", other),
        ("install", other),
        ("load", K),
        ("install", K),
    ] and problems == []
    assert actions(dkms_plan.plan_build([K], view("absent"), N, NEW, True, [K])[0]) == ["add", "build", "install"]


def test_an_archive_without_the_source_is_no_module():
    assert "Install the package" in dkms_plan.plan_build([K], view("absent", source=False), N, NEW, archived=[K])[1][0]


def test_other_versions_are_removed_as_a_whole_and_say_nothing_of_this_one():
    entries = [entry(), entry(OLD, state="built"), entry(OLD, "6.1.0-49-amd64", "built")]
    steps = dkms_plan.remove_stale(entries, N, NEW)
    assert steps == [{"action": "remove", "kernel": None, "version": OLD}]
    (step,) = dkms_plan.remove_stale([entry(OLD, None, "broken")], N, NEW)
    assert (step["action"], step["version"], step["path"]) == ("clear", OLD, "/var/lib/dkms/%s/%s" % (N, OLD))
    steps, dummy = dkms_plan.absent(None, view("broken", entries=[entry(NEW, None, "broken")]), N, NEW)
    assert [(step["action"], step["path"]) for step in steps] == [("clear", "/var/lib/dkms/%s/%s" % (N, NEW))]
    assert (
        dkms_plan.predict_line(K, steps, view("installed", module(), entries), NEW)
        == "installed, module on disk: " + NEW
    )


@pytest.mark.parametrize(
    ("state", "headers", "source", "words"),
    [
        ("added", False, True, "Install linux-headers-6.1.0-56-amd64"),
        ("absent", True, False, "nothing at /usr/src/nvidia-current-535.261.03"),
        ("built", False, False, None),
        ("installed", False, False, None),
    ],
)
def test_what_stops_a_build(state, headers, source, words):
    problems = dkms_plan.plan_build([K], view(state, None, headers=headers, source=source), N, NEW)[1]
    assert [words in problem for problem in problems] == ([True] if words else [])


def test_another_version_gives_way():
    steps = dkms_plan.plan_build(
        [K], view("built", module(OLD), entries=[entry(OLD), entry(NEW, state="built")]), N, NEW
    )[0]
    assert actions(steps) == ["uninstall", "install"] and steps[0]["version"] == OLD


def test_a_kernel_that_is_settled_is_left_alone():
    both = view("installed", module())
    both["states"]["k2"], both["modules"]["k2"], both["headers"]["k2"] = "added", None, True
    steps = dkms_plan.plan_build([K, "k2"], both, N, NEW)[0]
    assert [(item["action"], item["kernel"]) for item in steps] == [("build", "k2"), ("install", "k2")]


LEFT = {"name": N, "version": NEW, "kernel": K, "arch": "x86_64", "path": "/var/lib/dkms/x", "reason": "interrupted"}


@pytest.mark.parametrize(
    ("leftover", "expected"),
    [
        (LEFT, True),
        (dict(LEFT, kernel=None), True),
        (dict(LEFT, version=OLD), False),
        (dict(LEFT, name="nvidia"), False),
    ],
)
def test_what_was_left_is_cleared_first(leftover, expected):
    for steps in (
        dkms_plan.plan_build([K], view("added", None, leftovers=[leftover]), N, NEW)[0],
        dkms_plan.plan_import([K], view("added", None, leftovers=[leftover]), N, NEW)[0],
    ):
        assert (actions(steps)[0] == "clear") is expected


def test_what_was_left_is_cleared_even_when_nothing_is_to_be_built():
    assert actions(dkms_plan.plan_build([K], view("installed", module(), leftovers=[LEFT]), N, NEW)[0]) == ["clear"]


@pytest.mark.parametrize(
    ("state", "item", "force", "expected"),
    [
        ("installed", module(), False, []),
        ("installed", module(), True, ["unbuild", "load", "install"]),
        ("added", None, False, ["load", "install"]),
        ("absent", None, False, ["load", "install"]),
        ("built", None, False, ["install"]),
        ("incomplete", None, False, ["unbuild", "load", "install"]),
        ("installed", None, False, ["install"]),
    ],
)
def test_imported(state, item, force, expected):
    assert actions(dkms_plan.plan_import([K], view(state, item), N, NEW, force)[0]) == expected


@pytest.mark.parametrize(
    ("kernels", "entries", "expected"),
    [
        (None, [], []),
        (None, [entry()], ["remove"]),
        (None, [entry(OLD)], []),
        ([K], [entry()], ["unbuild"]),
        ([K], [entry(kernel="other")], []),
        ([K], [entry(OLD)], []),
    ],
)
def test_absent(kernels, entries, expected):
    assert actions(dkms_plan.absent(kernels, view("x", None, entries=entries), N, NEW)[0]) == expected


def test_stale_versions():
    entries = [
        entry(),
        entry(OLD, state="built"),
        entry(OLD, kernel="k2", state="built"),
        dict(entry("1"), name="nvidia"),
    ]
    assert dkms_plan.stale(entries, N, NEW) == [
        {"name": N, "version": OLD, "kernels": [{"kernel": K, "state": "built"}, {"kernel": "k2", "state": "built"}]}
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], "installed, module on disk: 535.261.03"),
        ([dkms_plan.step("install", K)], "installed, module on disk: 535.261.03"),
        ([dkms_plan.step("install", "other")], "installed, module on disk: 535.261.03"),
        ([dkms_plan.step("remove")], "absent, module on disk: none"),
        ([dkms_plan.step("unbuild", K)], "absent, module on disk: none"),
    ],
)
def test_the_prediction(steps, expected):
    assert dkms_plan.predict_line(K, steps, view("installed", module()), NEW) == expected


def test_the_prediction_for_a_version_that_is_not_the_one_on_disk():
    assert (
        dkms_plan.predict_line(K, [dkms_plan.step("install", K)], view("added", None), NEW)
        == "installed, module on disk: 535.261.03"
    )
    assert (
        dkms_plan.predict_line(K, [dkms_plan.step("remove")], view("built", module(NEW)), OLD)
        == "absent, module on disk: 535.261.03"
    )
