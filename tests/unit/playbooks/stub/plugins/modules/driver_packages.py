# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import lock


def install(module, node, version):
    """The node with the version on its disk; whoever comes meanwhile waits for it, as with the real module."""
    time.sleep(node.get("slow_s", 0))
    node = stubnode.wait(node, "install " + version)
    if node.get("waits_in_install"):
        stubnode.note(node, "waits")
        stubnode.wait_while(lambda: stubnode.load().get("waits_in_install"), "told to go on with the installation")
        node = stubnode.load()
    if version in node.get("half_installs", []):
        node["disk"] = "half of %s" % version
    if version in node.get("half_installs", []) + node.get("cannot_install", []):
        stubnode.note(node, "failed to install %s" % version)
        module.fail_json(msg="the build of %s failed" % version)
    if node.get("hangs_in_install"):
        stubnode.note(node, "hangs")
        stubnode.wait_while(lambda: stubnode.load().get("hangs_in_install"), "told that the installation ends")
        module.fail_json(msg="it hung")
    node["disk"] = version
    stubnode.note(node, "installed %s" % version)
    return node


def main():
    # What the real role gives it besides is for the real module.
    rest = dict(
        flavour="str",
        extra_packages="list",
        hold="bool",
        pin="bool",
        keep="bool",
        repair="bool",
        dkms_build="str",
        require="list",
        min_free_mib="int",
        min_free_boot_mib="int",
        min_free_var_mib="int",
        lock_timeout_s="int",
        apt_lock_timeout_s="int",
        apt_lock_look_s="int",
        repository_ready="bool",
        require_available="bool",
        step="str",
        kernel_module="str",
        kernel="str",
        source="str",
        components="list",
        floors="list",
        running_floors="bool",
        exclude_unattended="bool",
    )
    spec = dict((name, dict(type=kind)) for name, kind in rest.items())
    module = AnsibleModule(
        argument_spec=dict(spec, version=dict(type="str"), state=dict(type="str")), supports_check_mode=True
    )
    node, version = stubnode.load(), module.params["version"]
    if module.params["state"] == "unlocked":
        module.exit_json(changed=False)
    resolved = {
        "packages": {"nvidia-kernel-dkms": version + "-1"},
        "upstream": version,
        "dkms_name": "nvidia-current-open",
        "trees": {"6.1.0-1-amd64": stubnode.archive(version)},
        "module_archives": ["/a/nvidia-kernel-dkms.deb"],
    }
    if module.params["state"] == "downloaded":
        if node.get("half_done") and not module.params["repair"]:
            module.fail_json(msg="An interrupted dpkg run left nvidia-kernel-dkms half done. Nothing was changed.")
        if node.get("cannot_prestage"):
            module.fail_json(msg="Nothing was changed. %s" % node["cannot_prestage"])
        stubnode.take(node, "download")
        # No line in its log: nothing that serves is touched.
        node["downloaded"] = version
        node["busy"] = node.get("busy_after_prestage", node.get("busy", False))
        stubnode.store(node)
        module.exit_json(changed=False, resolved=resolved)
    if module.check_mode and node.get("no_index"):
        if module.params["require_available"]:
            module.fail_json(msg="%s Next step: update the package index." % node["no_index"])
        # As the real module's check mode, which a bring-up needs: there the sources may be yet to come.
        module.exit_json(
            changed=True,
            resolvable=False,
            reason=node["no_index"],
            refusals=[{"next_step": "update the package index"}],
            resolved=dict(resolved, packages={}),
            transaction=dict.fromkeys(("install", "upgrade", "downgrade", "remove"), []),
        )
    changed = node["disk"] != version
    if not module.check_mode and changed:
        try:
            with lock.NodeLock(
                os.path.join(stubnode.directory(), "lock"), {"module": "driver_packages"}, timeout_s=600
            ):
                node = stubnode.load()  # whoever had the lock may have done it
                changed = node["disk"] != version
                node = install(module, node, version) if changed else node
        except lock.LockTimeout as exc:
            module.fail_json(msg=str(exc))
    if not module.check_mode and node["disk"] in node.get("unreachable_with", []):
        node["unreachable"] = True
        stubnode.store(node)
    transaction = {"install": [], "upgrade": ["nvidia-kernel-dkms"] if changed else [], "downgrade": [], "remove": []}
    module.exit_json(changed=changed, resolvable=True, reason="", transaction=transaction, resolved=resolved)


if __name__ == "__main__":
    main()
