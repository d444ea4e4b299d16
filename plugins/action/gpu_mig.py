# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the NVML binding, and the wanted layout from a file or a baseline, to the node and runs the module gpu_mig
there.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _mig_options as options
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import baseline as baselines
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import config
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging, _mig_file
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._nvml_action import NvmlActionBase

PASSED = ("state", "config", "config_name", "layout", "timeout_s", "lock_timeout_s", "rollout_id", "step")


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
        request = dict((name, args[name]) for name in PASSED if args.get(name) is not None)
        try:
            request.update(self.find_documents(args, node))
        except (config.ConfigError, baselines.BaselineProblem, _health.BaselineError, _judging.InputError) as exc:
            raise AnsibleActionFail("%s: %s; nothing was changed" % (node, exc)) from exc
        result.update(self.execute_nvml("gpufleet.lifecycle.gpu_mig", request, task_vars))
        return result

    def find_documents(self, args, node) -> dict:
        """Return the options that replace a file or a baseline for the node.

        An unusable one is refused before the node is asked anything.
        """
        if args["state"] == options.RESTORED:
            found = args.get("baseline")
            if args.get("baseline_file"):
                found = _judging.baseline(self._loader.path_dwim(args["baseline_file"]), node)
            else:
                _health.check_baseline(found, node)
            return {"state": options.PRESENT, "layout": baselines.entries(found.get("snapshot"), args["instances"])}
        if args["state"] != options.PRESENT:
            return {}
        if args.get("layout"):
            for number, entry in enumerate(args["layout"]):
                config.selection("layout[%d]" % (number,), entry)
            return {}
        document = args["config"]
        if args.get("config_file"):
            document = _mig_file.read_mig_file(self._loader.path_dwim(args["config_file"]))
        config.choose(config.parse(document), args["config_name"])
        # Only the configuration that is wanted travels.
        return {
            "config": {
                "version": config.VERSION,
                "mig-configs": {args["config_name"]: document["mig-configs"][args["config_name"]]},
            }
        }
