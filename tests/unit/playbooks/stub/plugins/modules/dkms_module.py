# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module is in place already; its action, which offers what the controller has, is the real one."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str"),
            state=dict(type="str", default="built"),
            source_packages=dict(type="list", elements="str"),
            archives_sources=dict(type="dict"),
            version=dict(type="str"),
            archives_offered=dict(type="list", elements="str", default=[]),
            remove_stale=dict(type="bool"),
            lock_timeout_s=dict(type="int"),
            step=dict(type="str"),
        ),
        supports_check_mode=True,
    )
    node, offered = stubnode.load(), ", ".join(module.params["archives_offered"])
    if module.params["state"] == "prepared":
        node["prepared"] = {"offered": offered, "source_packages": module.params["source_packages"]}
        stubnode.store(node)
    else:
        stubnode.note(node, "was offered %s" % offered)
    module.exit_json(changed=False, stale=[])


if __name__ == "__main__":
    main()
