# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check at boot, before the scheduler starts, that this node has what it should have: one verdict (schema
gpufleet.health/1).

Reading, checks and policy are those of gpu_health; only the MIG layout is compared with the node's own file, since
there is no baseline.
"""

from __future__ import annotations

import functools
import json
import os
import pkgutil
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _health
from .._driver import reading
from .._health import model, registry
from .._health.checks import hardware
from .._mig import plan, read, task
from .._node import boot_expectation, claim, identity
from .._nvml import binding, snapshot
from . import mig

RESULT = boot_expectation.RESULT
LAYOUT = "gpu.mig_layout"
UNUSABLE_LAYOUT = boot_expectation.UNUSABLE_LAYOUT
POLL_S = 5
CLOCKS_S = 600
TABLES = ("boards", "sxid", "xid")
# How the ids of checks begin that are not made at boot: services and the CDI file come up at the same time, links of
# network adapters later, and what makes the GPUs work is gpu_smoke's.
LEFT_OUT = ("node.units", "node.cdi", "node.infiniband", "smoke.")


class Wanted(NamedTuple):
    """The expectation of the node: the document, and the MIG layout.

    The layout is {"config", "config_name"}; None if the expectation names no file of layouts.
    """

    document: Dict[str, Any]
    layout: Optional[Dict[str, Any]]


class Outcome(NamedTuple):
    """The verdict, and what keeps it from being one: a problem of boot_expectation, UNUSABLE_LAYOUT, or None."""

    health: Dict[str, Any]
    problem: Optional[str]


def run(
    path: str,
    look: Callable[[], Dict[str, Any]],
    tables: Dict[str, Any],
    name: str,
    fabric_timeout_s: float = 0,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """The verdict about this node, called NAME, by the expectation in the file PATH.

    LOOK answers the reading, TABLES are the collection's data files by name. Without a usable expectation nothing is
    read: there is nothing to compare it with. Where GPUs that join their NVLink fabric are all that keeps the node from
    passing, which takes a while after a boot, it is read again for FABRIC_TIMEOUT_S seconds.
    """
    try:
        wanted = read_expected(path)
    except boot_expectation.Unusable as exc:
        return Outcome(make_refusal(exc.problem, str(exc), path, name), exc.problem)
    except mig.Unusable as exc:
        return Outcome(make_refusal(UNUSABLE_LAYOUT, str(exc), path, name), UNUSABLE_LAYOUT)
    end = clock() + fabric_timeout_s
    health = judge(look(), wanted, tables, name, reading.read_time())
    while _health.joining(health["checks"]) and clock() < end:
        sleep(POLL_S)
        health = judge(look(), wanted, tables, name, reading.read_time())
    return Outcome(health, None)


def read_expected(path: str) -> Wanted:
    """Return the content of the file PATH, and the layout that it names. Raises boot_expectation.Unusable,
    mig.Unusable."""
    document = boot_expectation.read_expectation(path)
    strange = sorted(set(document["hardware"]) - set(hardware.NODE_KEYS + hardware.GPU_KEYS))
    if strange:
        raise boot_expectation.Unusable(
            boot_expectation.MALFORMED,
            "%s: hardware has %s; expected %s"
            % (path, ", ".join(strange), ", ".join(hardware.NODE_KEYS + hardware.GPU_KEYS)),
        )
    try:
        _health.check_policy(document["policy"])
    except _health.PolicyError as exc:
        raise boot_expectation.Unusable(boot_expectation.MALFORMED, "%s: policy: %s" % (path, exc)) from exc
    if is_clock_behind(path):
        # Whether a waiver is over cannot be told.
        policy = dict((key, value) for key, value in document["policy"].items() if key != "waivers")
        document = dict(document, policy=policy)
    return Wanted(document, mig.read_layout(document["mig_file"]) if document["mig_file"] else None)


def is_clock_behind(path: str) -> bool:
    """Tell if it is earlier by the clock than when the file PATH was written, as after a board was exchanged."""
    return os.stat(path).st_mtime > time.time() + CLOCKS_S


def look(timeout_s: int) -> Dict[str, Any]:
    """The reading of this node, with the MIG layout of each GPU. NVML is asked in a child with a deadline."""
    return reading.gather_reading(
        snapshot.take(deadline_s=timeout_s, stuck_file=binding.STUCK_FILE, more=(read.read_layout,))
    )


def judge(taken: Dict[str, Any], wanted: Wanted, tables: Dict[str, Any], name: str, now: str) -> Dict[str, Any]:
    """The verdict about the reading TAKEN of the node called NAME at the time NOW, by gpu_health's judges and the
    layout.
    """
    expect: Dict[str, Any] = {"hardware": wanted.document["hardware"]}
    if wanted.layout is not None:
        # The layout is made before this check, and NVML tells less of a GPU that has instances.
        expect["mig_hidden"] = "all"
    return _health.evaluate(
        taken,
        policy=wanted.document["policy"],
        tables=tables,
        expected_driver=wanted.document["driver_version"],
        phase="adhoc",
        node=name,
        now=now,
        expect=expect,
        table=rows(wanted.layout),
    )


def rows(layout: Optional[Dict[str, Any]]) -> Tuple[model.Row, ...]:
    """The rows to judge by: those of gpu_health without LEFT_OUT; its row about the MIG layout is about LAYOUT."""
    found = tuple(row for row in registry.TABLE if not row.ident.startswith(LEFT_OUT))
    if layout is None:
        return found
    return tuple(
        row._replace(scope="node", judge=functools.partial(layouts, wanted=layout)) if row.ident == LAYOUT else row
        for row in found
    )


def layouts(ctx: model.Context, wanted: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A check for each GPU: whether it has the WANTED layout, {"config", "config_name"}, as `mig assert` decides it."""
    found = model.gpus(ctx.snapshot)
    if not found:
        return [
            model.check(
                LAYOUT,
                model.NODE,
                model.UNKNOWN,
                None,
                wanted["config_name"],
                message="The MIG layout cannot be read without a GPU. See nvml.answers.",
            )
        ]
    try:
        each = task.layouts_of(dict(wanted, state=task.PRESENT), found)
    except task.TaskError as exc:
        return [model.check(LAYOUT, model.NODE, model.FAIL, None, wanted["config_name"], message=str(exc))]
    return [make_check(plan.decide(gpu, layout, {}), model.entity(gpu)) for gpu, layout in zip(found, each)]


def make_check(item: plan.Plan, entity: str) -> Dict[str, Any]:
    """The check of the GPU ENTITY whose way to its layout is the plan ITEM."""
    before, after = task.describe_layout(item.before), task.describe_layout(item.wanted)
    if item.status == plan.SAME:
        return model.check(LAYOUT, entity, model.PASS, before, after)
    if item.problems and all(problem.code == "unreadable" for problem in item.problems):
        return model.check(LAYOUT, entity, model.UNKNOWN, before, after, message=item.problems[0].message)
    action = (
        "reset_gpu"
        if item.status == plan.PENDING or any(problem.code == "reset_pending" for problem in item.problems)
        else "restore_setting"
    )
    return model.check(
        LAYOUT,
        entity,
        model.FAIL,
        before,
        after,
        "policy",
        action,
        "%s has %s; expected %s. Look at systemctl status gpufleet-mig.service. %s"
        % (entity, before, after, "; ".join(problem.message for problem in item.problems)),
    )


def make_refusal(problem: str, text: str, path: str, name: str) -> Dict[str, Any]:
    """The verdict about a node of which nothing is known: unknown, with the one check boot.PROBLEM."""
    ident = "boot." + problem
    row = model.node_row(
        ident,
        lambda ctx: model.check(ident, model.NODE, model.UNKNOWN, path, boot_expectation.SCHEMA, message=text),
        "What the node should have is known",
        ("the file of the expectation",),
        "this collection",
    )
    return _health.evaluate({"boot_id": identity.read_boot_id()}, node=name, now=reading.read_time(), table=(row,))


def tables_of(package: str, names: Sequence[str] = TABLES) -> Dict[str, Any]:
    """The data files that the program carries below PACKAGE, by name.

    The judges call what is missing or damaged unknown.
    """
    found = {}
    for name in names:
        try:
            found[name] = json.loads((pkgutil.get_data(package, "data/%s.json" % (name,)) or b"").decode("utf-8"))
        except (OSError, ValueError):
            continue
    return found


def forget(path: str) -> None:
    """Remove the verdict of an earlier run, which must not be taken for this one's if it does not come to its end."""
    if os.path.lexists(path):
        os.unlink(path)


def keep(path: str, health: Dict[str, Any]) -> None:
    """Write the whole verdict to the file PATH, which is there whole or not at all. OSError where it cannot be."""
    claim.write_state_file(
        os.path.dirname(path), os.path.basename(path), json.dumps(health, indent=4, sort_keys=True) + "\n"
    )
