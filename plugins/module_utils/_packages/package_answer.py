# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what a plan for driver packages does, or did: sentences, the difference, and the module's result. Pure."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence

from . import driver_family, transaction
from .package_plan import Plan
from .package_state import State, Versions

# --- sentences -------------------------------------------------------------------------------------------------------


def keeping(kept: Versions) -> List[str]:
    return ["keep for the way back: %s" % ", ".join("%s %s" % item for item in sorted(kept.items()))] if kept else []


def downloading(size: int) -> List[str]:
    return ["download %d MiB of packages" % -(-size // transaction.MIB)] if size else []


def holding(names: Iterable[str]) -> List[str]:
    listing = ", ".join(sorted(names))
    return ["hold %s" % listing] if listing else []


def lifting(names: Iterable[str]) -> List[str]:
    listing = ", ".join(sorted(names))
    return ["lift the hold of %s" % listing] if listing else []


def writing(path: str, content: Optional[str]) -> str:
    return "%s %s" % ("remove" if content is None else "write", path)


def finished(state: State) -> str:
    what, journal = transaction.WORDS[state.manager]["repair"], ", ".join(state.journal) or "empty"
    broken = ", ".join(state.broken) or "none"
    return "finished an interrupted %s run (journal: %s; not configured: %s)" % (what, journal, broken)


def finishing(state: State) -> List[str]:
    if not state.interrupted:
        return []
    what = transaction.WORDS[state.manager]["repair"]
    return ["finish an interrupted %s run: %s" % (what, ", ".join(state.journal + state.broken))]


def foresee(plan: Plan) -> List[str]:
    """The sentences of what carrying it out does, in their order. A run that ends well says the same."""
    if plan.wish.state == "downloaded":
        return keeping(plan.keep) + downloading(plan.download_bytes)
    sentences = keeping(plan.keep) + finishing(plan.state) + transaction.action_sentences(plan.transaction)
    return sentences + holding(plan.hold) + lifting(plan.lift) + [writing(path, text) for path, text in plan.files]


# --- the result ------------------------------------------------------------------------------------------------------


def answer(plan: Plan, done: Sequence[str], repaired: bool, unkept: Sequence[str] = ()) -> Dict[str, Any]:
    """The part of the result that every way out has."""
    resolved, chosen = plan.resolved, plan.flavour
    return {
        "resolvable": resolved["resolvable"] if resolved else None,
        "reason": " ".join(item["message"] for item in resolved["refusals"]) if resolved else "",
        "resolved": resolved,
        "transaction": plan.transaction,
        "refusals": list(plan.refusals),
        "disk": plan.disk,
        "download_bytes": plan.download_bytes,
        "gpus": chosen["gpus"] if chosen else [],
        "flavour_reason": chosen["reason"] if chosen else "",
        "unkept": list(unkept),
        "actions": list(done),
        "repaired": repaired,
    }


def refusal_text(plan: Plan, done: Sequence[str]) -> str:
    """Return why nothing is changed, and each next step."""
    what = transaction.WORDS[plan.state.manager]["repair"]
    before = "Only an interrupted %s run was finished." % what if done else "Nothing was changed."
    return " ".join([before] + ["%s Next step: %s." % (item["message"], item["next_step"]) for item in plan.refusals])


def difference(plan: Plan) -> List[Dict[str, str]]:
    """Return what --diff shows: package versions, and the files."""
    if plan.wish.state not in ("present", "absent"):
        return []
    before = driver_family.driver_versions(plan.state.table, plan.state.installed)
    after = dict(before)
    for item in plan.transaction["remove"]:
        after.pop(item["name"], None)
    for kind in ("install", "upgrade", "downgrade"):
        after.update((item["name"], item["version"]) for item in plan.transaction[kind])
    old, new = ("".join("%s %s\n" % item for item in sorted(versions.items())) for versions in (before, after))
    parts = [("driver packages", old, new)]
    parts += [(path, plan.state.texts.get(path) or "", content or "") for path, content in plan.files]
    return [{"before_header": name, "after_header": name, "before": old, "after": new} for name, old, new in parts]
