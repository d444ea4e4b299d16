# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: artifact_store
short_description: Keep a directory of artifacts of the controller on another host
version_added: 1.0.0
author: gpufleet contributors (@gpufleet)
description:
  - Roles and playbooks of this collection call it. Its options may change in any release.
  - Copies the files of a directory on the controller, such as a bundle of M(gpufleet.lifecycle.gpu_evidence), to the
    host that the task is delegated to, for controllers that do not outlive their run.
  - The copy is there whole or not at all, readable by its owner and group alone, and what the host wrote is compared
    with what was sent by sha256.
  - A directory that exists is never written to. If it holds the same files, nothing is done; otherwise the copy gets a
    number. With O(edition) an older edition is replaced as a whole.
  - An artifact host that cannot be reached fails the task. It does not make the node of the task unreachable.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - The host is asked whether it has the copy, and nothing is written.
  diff_mode:
    support: none
options:
  src:
    description: The directory on the controller. Files below 64 MiB in it are copied; anything else in it fails the
      task.
    type: path
    required: true
  path:
    description: The directory to make on the host. Those above it are made if they are not there.
    type: path
    required: true
  names:
    description: The names of the files that are copied. All of the directory when empty.
    type: list
    elements: str
    default: []
  edition:
    description:
      - The name of a JSON file among them, such as C(report.json), by whose fields C(rollout_id) and C(ledger) it is
        known of what the directory is an edition, and by C(events) which one is newer.
      - An older edition on the host is replaced, all files at once. A newer one stays, as the report of another
        controller of the same rollout may be. What is of another rollout or ledger stays too, and the copy gets a
        number.
      - O(path) is then a link to a directory in a hidden one beside it.
    type: str
    default: ''
  required:
    description: Whether a copy that cannot be made fails the task. Otherwise that is a warning.
    type: bool
    default: true
  files:
    description:
      - Set by the action plugin, not for playbooks.
      - The files, compressed and in base64.
    type: dict
notes:
  - Run it without C(become), as a user that may write on the artifact host.
seealso:
  - module: gpufleet.lifecycle.gpu_evidence
"""

EXAMPLES = r"""
- name: Keep what the node tells before its services are stopped
  gpufleet.lifecycle.gpu_evidence:
    artifact_dir: /tmp/gpufleet
    rollout_id: upgrade-535.261.03
    moment: before
  become: true
  register: evidence

- name: Keep it where it outlives the controller
  gpufleet.lifecycle.artifact_store:
    src: "{{ evidence.bundle }}"
    path: "/srv/gpufleet/evidence/upgrade-535.261.03/{{ inventory_hostname }}/{{ evidence.bundle | basename }}"
  delegate_to: artifacts.example.com

- name: Keep the report of a rollout there, in the place of an older one
  gpufleet.lifecycle.artifact_store:
    src: "{{ report.directory }}"
    names: "{{ report.files }}"
    path: /srv/gpufleet/reports/upgrade-535.261.03
    edition: report.json
    required: false
  delegate_to: artifacts.example.com
"""

RETURN = r"""
path:
  description: The directory on the host; empty in check mode if there is none yet, and if the copy could not be made
    and need not be.
  returned: success
  type: str
  sample: /srv/gpufleet/evidence/upgrade-535.261.03/gpu-r1-1/1-before
newer:
  description: Whether the host has a newer edition, which was left as it is.
  returned: success
  type: bool
files:
  description: The files of the directory on the host, as read there.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the file.
      type: str
    bytes:
      description: Its size in bytes.
      type: int
    sha256:
      description: Its digest.
      type: str
"""

import functools
import json
import os
import zlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts

ARGUMENT_SPEC = {
    "src": {"type": "path", "required": True},
    "path": {"type": "path", "required": True},
    "names": {"type": "list", "elements": "str", "default": []},
    "edition": {"type": "str", "default": ""},
    "required": {"type": "bool", "default": True},
    "files": {"type": "dict"},
}


def keep(path, files, name="", check_mode=False):
    """(changed, path of the directory that holds FILES, whether a newer edition is there).

    The path is empty if check mode made none. NAME: the file that says which edition they are.
    """
    if name:
        return _artifacts.replace(path, files, functools.partial(edition, name), check_mode)
    found = _artifacts.find(path, files)
    if found or check_mode:
        return not found, found or "", False
    return True, _artifacts.write(path, files), False


def edition(name, files):
    """((rollout, ledger), number) of FILES, as the file NAME among them says; (None, -1) if it does not."""
    try:
        found = json.loads(files[name].decode("utf-8"))
        return (str(found["rollout_id"]), str(found["ledger"])), int(found["events"])
    except (KeyError, ValueError, TypeError):
        return None, -1


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path, sent = os.path.abspath(module.params["path"]), module.params["files"]
    if not sent:
        module.fail_json(msg="files: set by the action plugin; expected the files of %s" % (module.params["src"],))
    bad = sorted(name for name in sent if not _artifacts.NAME.fullmatch(name))
    if bad:
        module.fail_json(
            msg="%s is no name of a file; expected letters, digits and . _ + ~ : @ = , - with no . or - first"
            % (ascii(bad[0]),)
        )
    try:
        files = dict((name, _artifacts.unpack(text)) for name, text in sent.items())
    except (ValueError, zlib.error) as exc:
        module.fail_json(msg="the files of %s did not arrive whole: %s. Run it again." % (module.params["src"], exc))
    name = module.params["edition"]
    if name and edition(name, files)[0] is None:
        module.fail_json(
            msg="%s of %s does not say which edition it is; expected JSON with rollout_id, ledger and events"
            % (name, module.params["src"])
        )
    try:
        changed, given, newer = keep(path, files, name, module.check_mode)
        listed = _artifacts.describe_files(_artifacts.read(given)) if given else []
    except OSError as exc:
        module.fail_json(
            msg=(
                "%s (%d bytes) cannot be written by user %d: %s. Make room there, or let that user write "
                "there, and run again."
                % (path, sum(len(data) for data in files.values()), os.geteuid(), exc.strerror or exc)
            )
        )
    module.exit_json(changed=changed, path=given, newer=newer, files=listed)


if __name__ == "__main__":
    main()
