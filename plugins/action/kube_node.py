# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a node of a Kubernetes cluster out of service and put it back, from the controller."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.modules.kube_node import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import change, client, gpus, pods, session
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import KubeError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.drain import Drain
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.resume import Resume
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars or {})
        dummy, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        name = options["node_name"] or str((task_vars or {}).get("inventory_hostname") or "")
        work = None
        _controller.require()
        try:
            wanted = check_options(options)
            cluster = client.Cluster.connect(options["kubeconfig"], options["context"], options["request_timeout_s"])
            check, api = bool(self._task.check_mode), client.Api(cluster)
            work = session.Session(api, name, options["token"], check, sleep=_controller.pause)
            run_state(work, options, wanted)
        except KubeError as exc:
            result.update(failed=True, msg=str(exc), why=exc.why)
        if work is not None:
            result.update(work.answer())
        result.setdefault("changed", False)
        if not self._task.diff:
            result.pop("diff", None)
        return clean_result(result)


def check_options(options: dict[str, Any]) -> change.Change:
    """Return the labels, annotations and taints that were asked for. Options that do not go together are an error."""
    state = options["state"]
    if state in ("cordoned", "drained", "resumed") and not options["token"].strip():
        raise KubeError(
            "state=%s needs a token, such as the name of the rollout: by it the mark on the node is known again."
            % (state,)
        )
    if options["token"] != options["token"].strip() or not options["token"].isprintable():
        raise KubeError("The token %r has blanks at its ends or unprintable characters." % (options["token"],))
    asked = [key for key in ("labels", "annotations", "taints") if options[key]]
    if state == "read" and asked:
        raise KubeError("state=read changes nothing, and %s was given: use state=present." % (", ".join(asked),))
    for key in ("timeout_s", "request_timeout_s", "grace_period_s"):
        if options[key] is not None and options[key] < (1 if key == "request_timeout_s" else 0):
            raise KubeError("%s is %d, expected a number of seconds." % (key, options[key]))
    problems = gpus.find_label_problems(options["device_plugin_pods"])
    if problems:
        raise KubeError("device_plugin_pods: %s." % ("; ".join(problems),))
    return change.wanted(options["labels"], options["annotations"], options["taints"])


def run_state(work: session.Session, options: dict[str, Any], wanted: change.Change) -> None:
    """Bring the node into the state that was asked for."""
    policy = pods.Policy(
        options["scope"], options["daemonset_pods"], options["unmanaged_pods"], options["emptydir_pods"]
    )
    want = gpus.Want(
        options["expected_gpus"],
        options["compare_gpus"],
        options["expected_mig"],
        tuple(options["device_plugin_pods"]),
        options["restart_device_plugin"],
        options["timeout_s"],
    )
    if options["state"] == "read":
        work.read_pods(policy)
    elif options["state"] == "present":
        work.bring(wanted)
    elif options["state"] == "resumed":
        Resume(work, wanted, want, options["lays_out"]).run()
    elif options["state"] == "cordoned":
        Drain(work, options, wanted, policy).cordon()
    else:
        Drain(work, options, wanted, policy, want).run()
