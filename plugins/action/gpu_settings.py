# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the NVML binding, and of a baseline the part that is needed, to the node and runs the module gpu_settings
there.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _settings_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase

# What the module reads of each GPU in a baseline.
KEYS = ("uuid", "mig_mode_current", "applications_clocks_default_mhz") + tuple(
    key for setting in settings.TABLE for key in setting.getter
)


def cut_baseline(baseline) -> dict:
    """The BASELINE without all that the node does not need: kernel log, audit and readings are long."""
    gpus = [dict((key, gpu[key]) for key in KEYS if key in gpu) for gpu in baseline["snapshot"]["gpus"]]
    return {"schema": baseline["schema"], "node": baseline["node"], "snapshot": {"gpus": gpus}}


class ActionModule(NvmlActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        dummy, args = self.validate_argument_spec(
            argument_spec=options.ARGUMENT_SPEC, mutually_exclusive=options.MUTUALLY_EXCLUSIVE
        )
        node = str(task_vars.get("inventory_hostname") or "localhost")
        problem = options.contradiction(args)
        if problem:
            raise AnsibleActionFail("%s: %s" % (node, problem))
        request = dict(
            (name, given)
            for name, given in args.items()
            if given is not None and name not in ("baseline", "baseline_file")
        )
        if args["state"] == "restored":
            request["baseline"] = cut_baseline(self.baseline(args, node))
        result.update(self.execute_nvml("gpufleet.lifecycle.gpu_settings", request, task_vars))
        return result

    def baseline(self, args, node):
        """The baseline of the task. One that cannot be used is told before the node is asked anything."""
        try:
            if args.get("baseline_file"):
                return _judging.baseline(self._loader.path_dwim(args["baseline_file"]), node)
            _health.check_baseline(args["baseline"], node)
        except (_health.BaselineError, _judging.InputError) as exc:
            raise AnsibleActionFail("%s: %s" % (node, exc)) from exc
        return args["baseline"]
