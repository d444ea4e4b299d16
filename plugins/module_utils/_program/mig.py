# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG layout that this node keeps for itself: read from its own file, made under its lock."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Dict

from .._mig import config, task
from .._node import files, holders, lock
from .._nvml import binding


class Unusable(Exception):
    """The node's configuration cannot be used; the text names the file and says why."""


class NotDone(Exception):
    """Nothing could be decided, and nothing was changed; the text says why."""


def run(path: str, check: bool, timeout_s: int, node_lock: lock.NodeLock) -> Dict[str, Any]:
    """The result of the MIG task (as module gpu_mig answers it) for the configuration in the file PATH, under NODE_LOCK
    unless CHECK.
    """
    options = dict(read_layout(path), state=task.PRESENT)
    tools = task.Tools(timeout_s, stuck_file=binding.STUCK_FILE)
    try:
        with contextlib.nullcontext() if check else node_lock:
            return task.run(options, check, tools, holders.name_holders)
    except task.TaskError as exc:
        raise NotDone(str(exc)) from exc


def read_layout(path: str) -> Dict[str, Any]:
    """{"config", "config_name"}, or {"layout"} (as the option of gpu_mig), of the file PATH, which must be root's alone
    to change.
    """
    try:
        text = files.read_owned(path)
    except files.NotOwned as exc:
        raise Unusable("%s is not used: %s" % (path, exc)) from exc
    except OSError as exc:
        raise Unusable("%s cannot be read: %s" % (path, exc.strerror)) from exc
    except ValueError as exc:
        raise Unusable("%s cannot be used: %s" % (path, exc)) from exc
    try:
        document = json.loads(text)
        if "layout" in document:
            found = {"layout": document["layout"]}
            for number, entry in enumerate(found["layout"]):
                config.selection("layout[%d]" % (number,), entry)
            if not found["layout"]:
                raise ValueError("layout is empty")
        else:
            found = {"config": document["config"], "config_name": document["config_name"]}
            config.choose(config.parse(found["config"]), found["config_name"])
    except (ValueError, KeyError, TypeError) as exc:
        raise Unusable(
            "%s cannot be used: %s. Write it again with the role gpufleet.lifecycle.nvidia_mig"
            % (
                path,
                exc
                if isinstance(exc, config.ConfigError)
                else "expected JSON with config and config_name, or with layout (%s)" % (exc,),
            )
        ) from exc
    return found


def difference(result: Dict[str, Any]) -> str:
    """Return the GPUs that differ from their layouts, each with what was found and what is expected."""
    return "; ".join(
        "GPU %s (%s) has %s; expected %s"
        % (row["index"], row["pci_bus_id"], task.describe_layout(row["before"]), task.describe_layout(row["wanted"]))
        for row in result["gpus"]
        if row["changed"]
    )
