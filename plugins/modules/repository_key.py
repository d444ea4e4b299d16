#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: repository_key
short_description: Write the key of a package repository once it is proven, or take an old one out of keyrings
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - With O(state=present) a public key is fetched or taken from the task, compared with the fingerprints or the digest
    that it has to have, and only then written. A key that is another one fails the task, and nothing of it is left on
    the node.
  - With O(state=absent) keys are taken out of keyring files. Other keys in those files stay; a file without any other
    key is removed.
  - Neither gpg nor another tool is needed on the node.
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - The key is fetched and compared as in a run.
  diff_mode:
    support: full
    details:
      - Files are shown as the fingerprints that they have.
options:
  state:
    description: Whether the keys are to be in O(path), or in none of the files of O(keyrings).
    type: str
    choices: [present, absent]
    default: present
  path:
    description: The file to write. Required with O(state=present).
    type: path
  url:
    description:
      - Where the node gets the key, with C(https:), C(http:), or C(file:) for a file on the node.
      - Exactly one of O(url) and O(content) is needed with O(state=present).
    type: str
  content:
    description: The key itself, armored.
    type: str
  fingerprints:
    description:
      - Whole fingerprints, such as V(EB693B3035CD5710E231E123A4B469963BF863CC). A short id is refused, as other keys
        can have the same.
      - With O(state=present) every key in the file has to be one of these. With O(state=absent) these are taken out.
    type: list
    elements: str
    default: []
  sha256:
    description: The digest that the file has to have where it comes from. One of O(fingerprints) and O(sha256) is
      needed with O(state=present).
    type: str
  format:
    description: How the file is written. apt takes V(binary) from files that end in C(.gpg), rpm takes V(armored).
    type: str
    choices: [binary, armored]
    default: binary
  keyrings:
    description: Files, or patterns of files, that O(state=absent) takes the keys out of. Those that are not there are
      no failure.
    type: list
    elements: path
    default: []
  timeout_s:
    description: Seconds after which a server that says nothing is given up.
    type: int
    default: 30
seealso:
  - module: gpufleet.lifecycle.driver_packages
"""

EXAMPLES = r"""
- name: Trust the key of NVIDIA's CUDA repository
  gpufleet.lifecycle.repository_key:
    path: /etc/apt/keyrings/nvidia-cuda.gpg
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]

- name: No longer trust the key that it had until 2022
  gpufleet.lifecycle.repository_key:
    state: absent
    fingerprints: [AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80]
    keyrings: [/etc/apt/trusted.gpg, /etc/apt/trusted.gpg.d/*, /etc/apt/keyrings/*]
"""

RETURN = r"""
path:
  description: The file that was written, or would be. Empty with O(state=absent).
  returned: success
  type: str
fingerprints:
  description: The keys that the file has, as read back from it; in check mode as they would be.
  returned: O(state=present)
  type: list
  elements: str
keyrings:
  description: The files that keys were taken out of.
  returned: O(state=absent)
  type: list
  elements: dict
  contains:
    path: {description: The file., type: str}
    fingerprints: {description: The keys that were taken out of it., type: list, elements: str}
    removed: {description: Whether the file was removed as nothing was left., type: bool}
"""

import glob
import os
import re
from http.client import HTTPException
from urllib.parse import unquote

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_native
from ansible.module_utils.urls import ConnectionError as UrlsConnectionError
from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import files
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.urls import mask_credentials
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import keyring

ARGUMENT_SPEC = dict(
    state=dict(type="str", choices=["present", "absent"], default="present"),
    path=dict(type="path"),
    url=dict(type="str"),
    content=dict(type="str", no_log=False),
    fingerprints=dict(type="list", elements="str", default=[]),
    sha256=dict(type="str"),
    format=dict(type="str", choices=["binary", "armored"], default="binary"),
    keyrings=dict(type="list", elements="path", default=[], no_log=False),
    timeout_s=dict(type="int", default=30),
)
LARGEST = 4 * 1024 * 1024
MODE = 0o644


def read_key_file(path) -> bytes | None:
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except FileNotFoundError:
        return None


def passwords(url) -> set:
    """The password of a URL, as it is written there and as it is sent."""
    login = re.match(r"[a-z]+://[^/:@]*:([^/]*)@", url or "")
    return {login.group(1), unquote(login.group(1))} - {""} if login else set()


def fetch(module) -> tuple[bytes, str]:
    if module.params["content"] is not None:
        return to_bytes(module.params["content"]), "the content of the task"
    url = module.params["url"]
    try:
        data = open_url(url, timeout=module.params["timeout_s"], http_agent="gpufleet.lifecycle").read(LARGEST)
    except (OSError, ValueError, HTTPException, UrlsConnectionError) as exc:
        module.fail_json(
            msg=(
                "%s cannot be had: %s. Nothing was written. Next step: look at it from this node, or name another "
                "place of the key." % (mask_credentials(url), mask_credentials(to_native(exc)))
            )
        )
    return data, mask_credentials(url)


def describe(data) -> str:
    """The fingerprints of a file, for a difference."""
    if data is None:
        return ""
    try:
        return "".join("%s\n" % name for name in keyring.fingerprints(data))
    except keyring.NotAKeyring as exc:
        return "%s\n" % exc


def present(module, wanted) -> None:
    path, digest = module.params["path"], module.params["sha256"]
    if not wanted and not digest:
        module.fail_json(
            msg=(
                "Nothing says which key %s has to be. Nothing was written. Next step: set its "
                "fingerprint or its sha256." % path
            )
        )
    data, source = fetch(module)
    why = keyring.problem(data, wanted, digest)
    if why:
        module.fail_json(
            msg=(
                "%s is not the expected key: found %s, expected %s. Nothing was written. Next step: do not trust that "
                "place until you know why; if the key was changed, set the new fingerprint." % (source, why[0], why[1])
            ),
            found=why[0],
            expected=why[1],
        )
    before, after = read_key_file(path), keyring.render_keys(data, module.params["format"])
    changed = before != after or os.stat(path).st_mode & 0o7777 != MODE
    diff = {"before_header": path, "after_header": path, "before": describe(before), "after": describe(after)}
    if changed and not module.check_mode:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        files.write_atomically(path, after, MODE)
    back = after if module.check_mode else read_key_file(path)
    if keyring.problem(back or b"", wanted):
        module.fail_json(
            msg="%s was written, and does not read back as the key of %s. Next step: look at the file system."
            % (path, source)
        )
    module.exit_json(changed=changed, path=path, fingerprints=keyring.fingerprints(back), diff=diff)


def absent(module, unwanted) -> None:
    if not unwanted:
        module.fail_json(msg="state=absent needs fingerprints: nothing was changed.")
    changes, diffs = [], []
    for path in sorted(set(name for pattern in module.params["keyrings"] for name in glob.glob(pattern))):
        data = read_key_file(path) if os.path.isfile(path) else None
        try:
            after = keyring.without(data, unwanted) if data else data
        except keyring.NotAKeyring as exc:
            if not any(bytes.fromhex(name) in data for name in unwanted):
                continue  # no keyring, or one of a kind that apt does not read either
            module.fail_json(
                msg=(
                    "%s holds a key that is not to be trusted, and cannot be changed here: %s. Next step: remove the "
                    "key from it with gpg, or the file, and run again." % (path, exc)
                )
            )
        if after == data:
            continue
        named = sorted(set(keyring.fingerprints(data)) & set(unwanted))
        changes.append({"path": path, "fingerprints": named, "removed": after is None})
        diffs.append({"before_header": path, "after_header": path, "before": describe(data), "after": describe(after)})
        if module.check_mode:
            continue
        if after is None:
            os.unlink(path)
        else:
            files.write_atomically(path, after, MODE)
    module.exit_json(changed=bool(changes), path="", keyrings=changes, diff=diffs)


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("url", "content")],
        required_if=[("state", "present", ["path"]), ("state", "present", ["url", "content"], True)],
    )
    # With -vvv Ansible prints the arguments of a module.
    module.no_log_values.update(passwords(module.params["url"]))
    given = dict((text, keyring.normal(text)) for text in module.params["fingerprints"])
    short = sorted(text for text, whole in given.items() if not whole)
    if short:
        module.fail_json(
            msg=(
                "%s is no whole fingerprint: nothing was changed. Next step: write all of its 40 digits; a "
                "short id proves nothing." % (", ".join(short))
            )
        )
    try:
        (present if module.params["state"] == "present" else absent)(module, sorted(set(given.values())))
    except OSError as exc:
        module.fail_json(
            msg="%s: %s. Next step: run as root (become), and look at the file system." % (exc.filename, exc.strerror)
        )


if __name__ == "__main__":
    main()
