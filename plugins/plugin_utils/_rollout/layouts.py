# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG layout that a plan wants for each node, in canonical form. Pure.

A layout is {"name", "config"}, a configuration in the format of nvidia-mig-parted, or {"name", "layout"}, a list as for
the option of gpu_mig. In this form layouts with the same meaning are equal, which the digest of a plan needs.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import baseline as baselines
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import config
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import probes
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.limits import list_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout.order import PlanError

END = "Nothing was changed."
NAMED = 3  # nodes whose refusal is printed in full


def canonical_document(document: t.Any, name: str) -> t.Dict[str, t.Any]:
    """Return the configuration NAME of DOCUMENT as its own document. Raises ConfigError if it cannot be used."""
    entries = []
    for entry in config.choose(config.parse(document), name):
        made: t.Dict[str, t.Any] = {
            "devices": entry.devices if entry.devices == config.ALL else list(entry.devices),
            "mig-enabled": entry.enabled,
        }
        if entry.filters is not None:
            made["device-filter"] = list(entry.filters)
        if entry.enabled:
            made["mig-devices"] = dict(entry.wanted)
        entries.append(made)
    return {"version": config.VERSION, "mig-configs": {name: entries}}


def find_layouts(given: t.Mapping[str, t.Any], read: t.Callable[[str], t.Any]) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the layout of each node.

    GIVEN is {node: {"name", "configs", "file"}}, its nvidia_mig_config, nvidia_mig_configs and nvidia_mig_config_file.
    READ returns the document of a file. A layout without a source, with two, or that cannot be used, is refused.
    """
    found, known = {}, {}
    for node, one in given.items():
        one = one or {}
        name, configs, file = one.get("name"), one.get("configs"), one.get("file")
        if not isinstance(name, str) or not name.strip():
            raise PlanError(
                "nvidia_mig_config of %s is %s; expected the name of its MIG layout. %s"
                % (node, repr(name) if name else "empty", END)
            )
        if bool(configs) == bool(file):
            raise PlanError(
                "%s of nvidia_mig_configs and nvidia_mig_config_file is set for %s; expected one of the two, such as "
                "%s (docs/runbooks/mig.md makes a file of all layouts that a node can have). %s"
                % ("Neither" if not configs else "Each", node, config.EXAMPLE, END)
            )
        try:
            if file and (file, name) not in known:
                known[file, name] = canonical_document(read(str(file)), name)
            found[node] = {"name": name, "config": known[file, name] if file else canonical_document(configs, name)}
        except config.ConfigError as exc:
            raise PlanError(
                "The MIG layout of %s cannot be used: %s. Correct nvidia_mig_config, or the layout itself. "
                "%s" % (node, exc, END)
            ) from exc
    return found


def refuse_unfit(looks: t.Mapping[str, t.Any]) -> None:
    """Refuse layouts that GPUs cannot have. LOOKS: for each node the result of gpu_mig in check mode."""
    unfit = {node: why for node, look in looks.items() for why in [probes.layout_looked_at(look)[2]] if why}
    if unfit:
        names = sorted(unfit)
        said = {node: unfit[node].removeprefix(node + ": ").removesuffix(END).rstrip(". ") for node in names[:NAMED]}
        raise PlanError(
            "%s cannot have the MIG layout that is wanted: %s %s"
            % (list_names(names), " ".join("%s: %s." % one for one in said.items()), END)
        )


def find_layouts_before(
    rollout_id: str, nodes: t.Iterable[t.Any], baseline_of: t.Callable[[str], t.Any]
) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the layouts that the rollout found on those of its NODES that started and whose layout it changes.

    BASELINE_OF returns the baseline of a node; None if there is none, so that nothing was changed on it.
    """
    found = {}
    for node in nodes:
        baseline = baseline_of(node.name) if node.layout and node.attempt else None
        if baseline is None:
            continue
        try:
            found[node.name] = {"name": "before %s" % rollout_id, "layout": baselines.entries(baseline.get("snapshot"))}
        except baselines.BaselineProblem as exc:
            raise PlanError(
                "Rollout %s recorded no earlier MIG layout of %s: %s. Make its layout with gpufleet.lifecycle.mig, or "
                "leave the node out. %s" % (rollout_id, node.name, exc, END)
            ) from exc
    return found
