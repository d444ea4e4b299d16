# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of a cluster where no pod needs a GPU; each thing that it is asked to be is noted, and whether its device
plugin is restarted for it.
"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode

WORDS = (
    "node_name",
    "kubeconfig",
    "context",
    "state",
    "token",
    "reason",
    "scope",
    "daemonset_pods",
    "unmanaged_pods",
    "emptydir_pods",
    "operators",
    "compare_gpus",
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            {word: dict(type="str", no_log=False) for word in WORDS},
            timeout_s=dict(type="int"),
            expected_gpus=dict(type="int"),
            labels=dict(type="dict"),
            taints=dict(type="list", elements="dict"),
            device_plugin_pods=dict(type="list", elements="str"),
            restart_device_plugin=dict(type="bool", default=False),
            expected_mig=dict(type="dict"),
            lays_out=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
    )
    node, state = stubnode.load(), module.params["state"]
    if not module.check_mode:
        said = [state, module.params["restart_device_plugin"], module.params["lays_out"], module.params["expected_mig"]]
        node.setdefault("kube", []).append(said)
        stubnode.store(node)
    drained = state == "drained"
    module.exit_json(
        changed=True,
        drained=drained,
        state=state,
        blockers=[],
        mark={"owner": "ours" if drained else "none", "token": None, "previous": None},
    )


if __name__ == "__main__":
    main()
