# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the record of a node in quarantine on the controller."""

from __future__ import annotations

import contextlib
import json
import os
import re

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.modules.quarantine_record import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._runbooks import page, record

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")


def made_before(place, wanted):
    """The record in the directory PLACE that says the same of a node that did not answer then either, or None."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place), reverse=True):
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                found = json.loads(_artifacts.read_file(os.path.join(place, name, "record.json")).decode("utf-8"))
                if found["answered"] is False and found["reason"] == wanted["reason"]:
                    return os.path.join(place, name)
    return None


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        about = args["about"]
        for key, pattern in (("node", NODE), ("time", TIME)):
            if not pattern.fullmatch(str(about.get(key) or "")):
                raise AnsibleActionFail(
                    "about.%s is %r; expected %s"
                    % (key, about.get(key), {"node": "the name of a node"}.get(key, "a time in UTC"))
                )
        try:
            table = _judging.tables().get("xid")
        except _judging.InputError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        made = record.build(
            about, args["health"].get("health"), args["health"].get("baseline"), args["baseline"], table
        )
        place = os.path.join(os.path.abspath(os.path.expanduser(args["artifact_dir"])), "quarantine", about["node"])
        found = None if made["answered"] else made_before(place, made)
        result.update(record.entry(made), missing=made["missing"], changed=not found, path=found or "")
        if found or self._task.check_mode:
            return result
        files = {
            "record.json": (json.dumps(made, indent=2, sort_keys=True) + "\n").encode("utf-8", "backslashreplace"),
            "record.md": page.render(made).encode("utf-8", "backslashreplace"),
        }
        try:
            result["path"] = _artifacts.write(os.path.join(place, re.sub(r"[-:]", "", about["time"])), files)
        except OSError as exc:
            raise AnsibleActionFail(
                "%s: the record of its quarantine cannot be written below %s on the controller: %s. Make room there, "
                "or give gpufleet_artifact_dir a directory that can be written."
                % (about["node"], place, exc.strerror or exc)
            ) from exc
        result["msg"] = "%s: record kept in %s" % (about["node"], result["path"])
        return result
