# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that an exporter serves fresh series for every GPU and MIG instance that NVML has. Pure.

Two scrapes are compared: the exporter repeats its last values, also for an engine that has ended or reads nothing any
more.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import catalog, engine

# A GPU's UUID, and the id of a MIG instance on it or None.
Entity = t.Tuple[str, t.Optional[str]]
UUIDS = ("UUID", "gpu_uuid", "uuid")
INSTANCE = "GPU_I_ID"
SHOWN = 12
# The text format of Prometheus. prometheus_client has a parser for it and is no requirement of this collection.
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*\{(.*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?[ \t]*")
LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(t.NamedTuple):
    """One value of one series."""

    name: str
    labels: t.Dict[str, str]
    value: float


def parse_labels(text: str) -> t.Optional[t.Dict[str, str]]:
    """Return what stands between the braces; None if it is not a list of labels."""
    found: t.Dict[str, str] = {}
    position = 0
    while position < len(text):
        match = LABEL.match(text, position)
        if not match:
            return None if text[position:].strip() else found
        found[match.group(1)] = re.sub(r"\\.", lambda one: ESCAPES.get(one.group(0), one.group(0)), match.group(2))
        position = match.end()
    return found


def parse_series(text: str) -> t.Tuple[t.List[Sample], t.List[int]]:
    """Return the samples, and the numbers of the lines that cannot be read, which fail the proof."""
    samples: t.List[Sample] = []
    unread: t.List[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = SAMPLE.fullmatch(line.strip())
        known = parse_labels(match.group(2) or "") if match else None
        try:
            value = float(match.group(3)) if match else None
        except ValueError:
            value = None
        if match is None or known is None or value is None:
            unread.append(number)
        else:
            samples.append(Sample(match.group(1), known, value))
    return samples, unread


def is_blank(value: float) -> bool:
    """Return whether a number stands for a value that DCGM does not have."""
    return math.isnan(value) or any(one["from"] <= value <= one["to"] for one in catalog.load("counters")["blanks"])


def list_expected(snapshot: t.Mapping[str, t.Any]) -> t.Optional[t.List[Entity]]:
    """Return the GPUs and MIG instances that NVML has; None unless it tells them all.

    A GPU with MIG instances is told by these, one without as a whole, which is how the exporter serves them (-d f).
    """
    known = engine.list_gpus(snapshot)
    if known is None:
        return None
    found: t.List[Entity] = []
    for uuid, gpu in zip(known, snapshot["gpus"]):
        mode, instances = gpu.get("mig_mode_current") or {}, gpu.get("mig_instances") or {}
        if mode.get("value") and not isinstance(instances.get("value"), list):
            return None
        ids = sorted({str(one["gpu_instance"]) for one in instances.get("value") or []}, key=int)
        found.extend([(uuid, one) for one in ids] or [(uuid, None)])
    return found


def read_values(samples: t.Iterable[Sample]) -> t.Dict[Entity, t.Dict[str, t.List[float]]]:
    """Return the values by GPU or MIG instance and by name, without blank ones.

    Series of several jobs are several values.
    """
    found: t.Dict[Entity, t.Dict[str, t.List[float]]] = {}
    for sample in samples:
        uuid = next((sample.labels[name] for name in UUIDS if sample.labels.get(name)), None)
        if uuid and sample.name.startswith("DCGM_"):
            values = found.setdefault((uuid, sample.labels.get(INSTANCE) or None), {})
            values.setdefault(sample.name, [])
            if not is_blank(sample.value):
                values[sample.name].append(sample.value)
    return found


def describe_entity(entity: Entity) -> str:
    """Return a GPU or MIG instance in words."""
    return entity[0] if entity[1] is None else "MIG instance %s of %s" % (entity[1], entity[0])


def decide(
    snapshot: t.Mapping[str, t.Any], fields: t.Iterable[str], first: str, second: t.Optional[str] = None
) -> t.Dict[str, t.Any]:
    """Return whether every GPU has its series in the first scrape, and whether they are fresh in the second one."""
    answer: t.Dict[str, t.Any] = {
        "complete": False,
        "fresh": False,
        "proven": False,
        "expected": 0,
        "found": 0,
        "missing": [],
        "blank": [],
        "unexpected": [],
        "stale": [],
        "message": "",
    }
    wanted = list_expected(snapshot)
    if wanted is None:
        return dict(
            answer, message="NVML does not tell its GPUs and MIG instances, so that the series cannot be compared."
        )
    data, known = catalog.load("counters"), set(fields)
    samples, unread = parse_series(second if second is not None else first)
    now = read_values(samples)
    required = [one for one in data["required"] if one in known]
    answer.update(expected=len(wanted), found=len([one for one in wanted if one in now]))
    for entity in wanted:
        if entity not in now or not any(now[entity].values()):
            answer["missing"].append(describe_entity(entity))
        else:
            whole = now.get((entity[0], None), {})
            answer["blank"].extend(
                "%s of %s" % (field, describe_entity(entity))
                for field in required
                if not (now[entity].get(field) or whole.get(field))
            )
    uuids = {uuid for uuid, dummy in wanted}
    # A GPU with MIG instances may have series of its own beside theirs. An instance that NVML does not have is one of
    # an earlier layout.
    answer["unexpected"] = sorted(
        describe_entity(one) for one in now if one not in wanted and not (one[1] is None and one[0] in uuids)
    )
    answer["complete"] = not (unread or answer["missing"] or answer["blank"] or answer["unexpected"])
    if second is not None:
        before, unread_before = parse_series(first)
        then = read_values(before)
        answer["stale"] = [describe_entity(one) for one in wanted if not has_moved(one, then, now, data["moving"])]
        answer["fresh"] = not answer["stale"] and not unread_before
        unread = unread + unread_before
    answer["proven"] = answer["complete"] and answer["fresh"]
    answer["message"] = _make_sentence(answer, unread, second is not None)
    return answer


def has_moved(
    entity: Entity,
    then: t.Mapping[Entity, t.Mapping[str, t.List[float]]],
    now: t.Mapping[Entity, t.Mapping[str, t.List[float]]],
    fields: t.Iterable[str],
) -> bool:
    """Return whether a value that never stands still has moved; for a MIG instance also one of its GPU."""
    for one in (entity, (entity[0], None)):
        for field in fields:
            before, after = then.get(one, {}).get(field), now.get(one, {}).get(field)
            if before and after and set(before) != set(after):
                return True
    return False


def _make_sentence(answer: t.Mapping[str, t.Any], unread: t.List[int], both: bool) -> str:
    """Return what is not proven, in words; empty if all is."""
    parts = []
    for key, words in (
        ("missing", "no series for %s"),
        ("blank", "no value for %s"),
        ("unexpected", "series of what NVML does not have: %s"),
        ("stale", "values that did not move for %s, so that the engine behind them is taken for stale"),
    ):
        if answer[key]:
            shown = answer[key][:SHOWN] + (["%d more" % (len(answer[key]) - SHOWN)] if len(answer[key]) > SHOWN else [])
            parts.append(words % ", ".join(shown))
    if unread:
        parts.append("lines that cannot be read: %s" % ", ".join(map(str, unread[:SHOWN])))
    if not parts and not both:
        return "There was no second scrape, so that nothing is known of the age of the values."
    return (
        "The exporter serves %d of the %d GPUs and MIG instances that NVML has: %s."
        % (answer["found"], answer["expected"], "; ".join(parts))
        if parts
        else ""
    )
