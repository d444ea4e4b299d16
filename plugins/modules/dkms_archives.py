#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: dkms_archives
short_description: Exchange compiled kernel modules between the controller and another host
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Roles and playbooks of this collection call it. Its options may change in any release.
  - Brings the archives that M(gpufleet.lifecycle.dkms_module) keeps on the controller to the host that the task is
    delegated to, and those that this host has and the controller lacks to the controller. Several controllers, or
    controllers that do not outlive their run, thereby compile a module once.
  - Each archive is compared with its sha256 digest, and appears under its name when it is whole.
  - A host that cannot be reached or written to is a warning, since the node then compiles by itself.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - The archives of both sides are compared, and none is brought.
  diff_mode:
    support: none
options:
  directory:
    description: The directory of the archives on the controller, as
      O(gpufleet.lifecycle.dkms_module#module:archive_dir).
    type: path
    required: true
  path:
    description: The directory of the archives on the host. The same path as O(directory) when left out.
    type: path
  versions:
    description:
      - The versions of the driver whose archives are exchanged, such as V(535.261.03). Of the version of a package, the
        driver's counts.
      - An archive of the same name that differs on the two sides stays as it is on both.
    type: list
    elements: str
    required: true
  ledger:
    description:
      - The URL of the ledger, as C(rollout_ledger). The file of the artifact directory,
        the parent of O(directory), when left out.
      - Only archives that it records as a builder's are brought to the controller.
    type: str
notes:
  - Run it without C(become), as a user that may write on the host.
seealso:
  - module: gpufleet.lifecycle.dkms_module
  - module: gpufleet.lifecycle.artifact_store
"""

EXAMPLES = r"""
- name: Have what other controllers compiled, and give them what this one has
  gpufleet.lifecycle.dkms_archives:
    directory: /srv/gpufleet/dkms
    versions: [535.261.03]
  delegate_to: store.example.com
"""

RETURN = r"""
fetched:
  description: Names of the archives that were brought to the controller.
  returned: success
  type: list
  elements: str
stored:
  description: Names of the archives that were brought to the host.
  returned: success
  type: list
  elements: str
archives:
  description: The archives that the host had before, with their digests and those of the source that they were compiled
    from.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the file.
      type: str
    sha256:
      description: Its digest, as noted beside it.
      type: str
    source:
      description: The digest of the source, V(null) if it was not noted.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives

ARGUMENT_SPEC = {
    "directory": {"type": "path", "required": True},
    "path": {"type": "path"},
    "versions": {"type": "list", "elements": "str", "required": True},
    "ledger": {"type": "str"},
}


def main() -> None:
    """List the archives of the host; the action plugin brings them."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path = module.params["path"] or module.params["directory"]
    try:
        archives = tree_archives.describe_archives(path, module.params["versions"])
    except OSError as exc:
        module.fail_json(msg="%s cannot be read: %s" % (path, exc.strerror or exc))
    module.exit_json(changed=False, archives=archives)


if __name__ == "__main__":
    main()
