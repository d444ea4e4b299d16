# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the nodes of Slurm into hosts. Pure: the text of scontrol or the JSON of slurmrestd in, hosts out."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import records, states
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory.hosts import (
    Hosts,
    InventoryProblem,
    Names,
    make_host,
    parse_place,
    select_usable,
)

Record = t.Dict[str, t.Any]
NEXT = (
    "Expected the output of 'scontrol --all show node', with or without --json, "
    "or slurmrestd's answer to /slurm/VERSION/nodes. %s"
)


def parse(text: str, asked: str) -> t.List[Record]:
    """The nodes of an answer that is whole; ASKED says in messages where it came from."""
    if not text.strip() or text.strip().startswith("No nodes in the system"):
        raise InventoryProblem(
            "%s answered nothing: no node in it. %s"
            % (asked, NEXT % "See whether slurmctld knows nodes (sinfo), and ask again.")
        )
    return _from_json(text, asked) if text.lstrip()[:1] in "{[" else _from_text(text, asked)


def _from_text(text: str, asked: str) -> t.List[Record]:
    parts = re.split(r"(?m)^(?=NodeName=)", text)
    if parts[0].strip() or len(parts) < 2:
        raise InventoryProblem(
            "%s answered something else than nodes: it begins with %r. %s"
            % (asked, text.strip().splitlines()[0][:80], NEXT % "Correct what is asked.")
        )
    found = []
    for part in parts[1:]:
        name = re.match(r"NodeName=(\S*)", part).group(1)
        # scontrol ends a node with an empty line, or with its only line (--oneliner); a text that was cut off does not.
        ends = r"\n[ \t\r]*\n\s*\Z" if re.search(r"\n[ \t]+\S", part) else r"\n\Z"
        if not name or not re.search(r"(?m)^\s*(.*\s)?State=\S", part) or not re.search(ends, part):
            raise InventoryProblem(
                "%s gave half an answer: node %s has no state, or its lines break off. %s"
                % (asked, name or "without a name", NEXT % "Fetch it again, whole.")
            )
        found += records.from_text(part)
    return found


def _from_json(text: str, asked: str) -> t.List[Record]:
    try:
        answer = json.loads(text)
    except ValueError as exc:
        raise InventoryProblem(
            "%s gave half an answer, or no JSON at all (%s). %s" % (asked, exc, NEXT % "Fetch it again, whole.")
        ) from exc
    nodes = answer.get("nodes") if isinstance(answer, dict) else None
    nodes = nodes.get("nodes") if isinstance(nodes, dict) else nodes
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if errors:
        first = errors[0] if isinstance(errors, list) else errors
        words = first.get("description") or first.get("error") or first if isinstance(first, dict) else first
        raise InventoryProblem(
            "%s answered with an error: %s. What came with it is not used. Put that right in Slurm or in the token, "
            "and ask again." % (asked, " ".join(str(words).split())[:300])
        )
    if not isinstance(nodes, list):
        raise InventoryProblem(
            "%s answered something else than nodes: its JSON has no list named nodes. %s"
            % (asked, NEXT % "Correct what is asked.")
        )
    for number, item in enumerate(nodes):
        if (
            not isinstance(item, dict)
            or not isinstance(item.get("name"), str)
            or not item["name"]
            or not item.get("state")
        ):
            raise InventoryProblem(
                "%s gave half an answer: number %d of its nodes has no name or no state. %s"
                % (asked, number + 1, NEXT % "See what version of Slurm answers, and fetch it again.")
            )
    try:
        return records.from_json(text)
    except (records.NotJson, TypeError, AttributeError, KeyError) as exc:
        raise InventoryProblem(
            "%s answered nodes in a form that is not known (%s). %s"
            % (asked, exc, NEXT % "Save the text of scontrol instead.")
        ) from exc


def require_whole(found: t.Sequence[Record], members: t.Iterable[str], asked: str) -> None:
    """Refuse an answer of scontrol that lacks nodes which sinfo names."""
    missing = sorted(set(members) - {record["name"] for record in found})
    if missing:
        raise InventoryProblem(
            "%s gave half an answer: sinfo names %s%s, and scontrol does not. The cluster may just have been "
            "reconfigured: ask again; if it stays so, look at "
            "the log of slurmctld."
            % (asked, ", ".join(missing[:5]), " and %d more" % (len(missing) - 5) if len(missing) > 5 else "")
        )


def hosts(
    found: t.Sequence[Record], asked: str, names: Names, gpus_only: bool = False, partitions: t.Sequence[str] = ()
) -> Hosts:
    """A host for each node, in the groups of its partitions, its state and its GPUs."""
    chosen: Hosts = {}
    known = {each for record in found for each in record["partitions"]}
    absent = sorted(set(partitions) - known)
    if absent:
        raise InventoryProblem(
            "%s knows no partition %s; it has %s. Correct partitions."
            % (asked, ", ".join(absent), ", ".join(sorted(known)) or "none")
        )
    seen: t.Set[str] = set()
    for record in found:
        if record["name"] in seen:
            raise InventoryProblem(
                "%s names node %s twice; expected each once. Fetch it again." % (asked, record["name"])
            )
        seen.add(record["name"])
        gpus = records.gres_counts(record["gres"])
        if (gpus_only and not sum(gpus.values())) or (partitions and not set(partitions) & set(record["partitions"])):
            continue
        chosen[record["name"]] = make_host(_make_variables(record, gpus), _make_groups(record, gpus, names))
    return select_usable(chosen, names)


def _make_variables(record: Record, gpus: t.Dict[str, int]) -> t.Dict[str, t.Any]:
    state = record["state"]
    return {
        "slurm_node": record["name"],
        "slurm_hostname": parse_place(record["hostname"]),
        "slurm_state": states.text(state),
        "slurm_state_base": state.base,
        "slurm_state_flags": sorted(state.flags),
        "slurm_drain": states.is_closed(state),
        "slurm_work": states.work(state, record["alloc_cpus"]),
        "slurm_partitions": list(record["partitions"]),
        "slurm_gres": record["gres"],
        "slurm_gres_used": record["gres_used"],
        "slurm_gpus": sum(gpus.values()),
        "slurm_gpu_types": gpus,
        "slurm_reason": record["reason"],
        "slurm_reason_user": record["reason_user"],
        "slurm_version": record["version"],
    }


def _make_groups(record: Record, gpus: t.Dict[str, int], names: Names) -> t.List[str]:
    made = ["slurm"] + [names.group("slurm_partition", each) for each in record["partitions"]]
    made += [names.group("slurm_state", each) for each in [record["state"].base] + sorted(record["state"].flags)]
    if sum(gpus.values()):
        made.append("slurm_gpu")
    return made + [names.group("slurm_gres", each) for each, count in gpus.items() if each and count]
