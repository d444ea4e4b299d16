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
  - C(gpg) on the node reads the keys, and what it reads is what is written, as gpg exports it. An expired or revoked
    key is another one than expected, and so is a file that has one key more.
requirements:
  - C(gpg) on the node
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
attributes:
  check_mode:
    support: full
    details:
      - The key is fetched and compared as in a run.
      - On a node without gpg, which a run needs, the file's digest is compared and a warning says that no fingerprint
        was.
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
    description: The file to write, in binary form where its name ends in C(.gpg), as apt takes it, else armored.
      Required with O(state=present).
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
import hashlib
import os
import re
import tempfile
from http.client import HTTPException
from urllib.parse import unquote

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_native
from ansible.module_utils.urls import ConnectionError as UrlsConnectionError
from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import files
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.urls import mask_credentials

ARGUMENT_SPEC = dict(
    state=dict(type="str", choices=["present", "absent"], default="present"),
    path=dict(type="path"),
    url=dict(type="str"),
    content=dict(type="str", no_log=False),
    fingerprints=dict(type="list", elements="str", default=[]),
    sha256=dict(type="str"),
    keyrings=dict(type="list", elements="path", default=[], no_log=False),
    timeout_s=dict(type="int", default=30),
)
LARGEST = 4 * 1024 * 1024
MODE = 0o644
BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
WITHOUT_GPG = "gpg is not installed on this node, and compares keys. %s Next step: install %s."
# Letters of gpg's field of validity (doc/DETAILS of GnuPG).
UNFIT = {"e": "expired", "r": "revoked", "d": "disabled", "i": "invalid"}


class NotAKeyring(ValueError):
    """gpg does not read the bytes as public keys; the message says why."""


class Gpg:
    """gpg with a home of its own in the module's directory. No agent and no keyboxd is started."""

    def __init__(self, module, path: str):
        self.module, self.path = module, path
        self.home = tempfile.mkdtemp(prefix="gpufleet-gpg-", dir=module.tmpdir)
        # GnuPG 2.4 hands a new home to keyboxd unless it finds this file
        open(os.path.join(self.home, "common.conf"), "w", encoding="ascii").close()

    def run(self, *words: str, data: bytes | None = None) -> tuple[int, bytes, str]:
        command = [self.path, "--homedir", self.home, "--batch", "--no-tty", "--no-autostart", "--no-options"]
        environ = {"LC_ALL": "C", "GNUPGHOME": self.home}
        rc, out, err = self.module.run_command(
            command + list(words), data=data, binary_data=True, encoding=None, environ_update=environ
        )
        return rc, out, to_native(err)

    def read_keys(self, data: bytes) -> dict[str, str]:
        """Return the primary keys of a file with what makes each unfit, such as ``expired``, or an empty string.

        Raises:
            NotAKeyring: A part of it is no public key: gpg prints the keys before that part, and its status counts.
        """
        rc, out, err = self.run("--show-keys", "--with-colons", data=data)
        keys = parse_keys(to_native(out))
        if rc or not keys:
            lines = [line for line in err.splitlines() if "created" not in line]
            raise NotAKeyring(lines[-1].strip() if lines else "it is empty")
        return keys

    def export_keys(self, data: bytes, fingerprints: list[str], is_armored: bool) -> bytes:
        """Return some keys of a file in one of the two forms."""
        keyring = ["--no-default-keyring", "--keyring", tempfile.mkstemp(dir=self.home)[1]]
        rc, dummy, err = self.run(*keyring, "--import", data=data)
        if not rc:
            form = ["--armor"] if is_armored else []
            rc, out, err = self.run(*keyring, *form, "--export", *fingerprints)
            if not rc and out:
                return out
        raise NotAKeyring(to_native(err).strip().splitlines()[-1])


def parse_keys(listing: str) -> dict[str, str]:
    """Return the keys of gpg's listing with colons, as :meth:`Gpg.read_keys` does; a secret key is none."""
    keys, validity = {}, None
    for fields in (line.split(":") for line in listing.splitlines()):
        if fields[0] in ("sec", "ssb"):
            raise NotAKeyring("it has a secret key, which belongs on the machine that signs and on no other")
        if fields[0] == "pub":
            validity = fields[1]
        elif fields[0] == "fpr" and validity is not None:  # those that follow are of its subkeys
            keys[fields[9]] = UNFIT.get(validity, "")
            validity = None
    return keys


def normalize_fingerprint(fingerprint: str) -> str | None:
    """Return a fingerprint in hexadecimal capitals alone, None when it is not a whole one."""
    text = re.sub(r"[\s:]", "", fingerprint).upper()
    text = text[2:] if text.startswith("0X") else text
    return text if re.match(r"^([0-9A-F]{40}|[0-9A-F]{64})$", text) else None


def find_problem(keys: dict[str, str], wanted: list[str]) -> tuple[str, str] | None:
    """Return why keys are not the expected ones, as ``(found, expected)``. Each has to be a wanted one, and fit."""
    if wanted and not set(keys) <= set(wanted):
        return "fingerprint %s" % ", ".join(sorted(keys)), "fingerprint %s" % " or ".join(wanted)
    unfit = ["%s, which is %s" % (name, why) for name, why in sorted(keys.items()) if why]
    return ("fingerprint %s" % ", ".join(unfit), "a key that signs today") if unfit else None


def find_passwords(url: str | None) -> set[str]:
    """Return the password of a URL, as it is written there and as it is sent."""
    login = re.match(r"[a-z]+://[^/:@]*:([^/]*)@", url or "")
    return {login.group(1), unquote(login.group(1))} - {""} if login else set()


def fetch_key(module) -> tuple[bytes, str]:
    """Return the key file and the words for where it comes from."""
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


def describe_keys(gpg: Gpg, data: bytes | None) -> str:
    """Return the fingerprints of a file, for a difference."""
    if data is None:
        return ""
    try:
        return "".join("%s\n" % name for name in sorted(gpg.read_keys(data)))
    except NotAKeyring as exc:
        return "%s\n" % exc


def require_gpg(module) -> Gpg | None:
    """Return gpg, or None in check mode on a node without it, after a warning."""
    path = module.get_bin_path("gpg")
    if path:
        return Gpg(module, path)
    package = "gnupg2" if module.get_bin_path("rpm") else "gpg"
    if not module.check_mode:
        module.fail_json(msg=WITHOUT_GPG % ("Nothing was written.", package))
    module.warn(WITHOUT_GPG % ("No fingerprint was compared.", package))
    return None


def refuse_key(module, source: str, found: str, expected: str) -> None:
    module.fail_json(
        msg=(
            "%s is not the expected key: found %s, expected %s. Nothing was written. Next step: do not trust that "
            "place until you know why; if the key was changed, set the new fingerprint." % (source, found, expected)
        ),
        found=found,
        expected=expected,
    )


def write_key(module, wanted: list[str]) -> None:
    path, digest = module.params["path"], (module.params["sha256"] or "").strip().lower()
    if not wanted and not digest:
        module.fail_json(
            msg=(
                "Nothing says which key %s has to be. Nothing was written. Next step: set its "
                "fingerprint or its sha256." % path
            )
        )
    data, source = fetch_key(module)
    found_digest = hashlib.sha256(data).hexdigest()
    if digest and found_digest != digest:
        refuse_key(module, source, "sha256 %s" % found_digest, "sha256 %s" % digest)
    gpg = require_gpg(module)
    if gpg is None:
        module.exit_json(changed=True, path=path, fingerprints=wanted)
    try:
        keys = gpg.read_keys(data)
        problem = find_problem(keys, wanted)
        if problem:
            refuse_key(module, source, *problem)
        after = gpg.export_keys(data, list(keys), not path.endswith(".gpg"))
        changed = not files.is_written(path, after, MODE)
        diff = {"before_header": path, "after_header": path}
        diff.update(before=describe_keys(gpg, files.read_bytes(path)), after=describe_keys(gpg, after))
        if changed and not module.check_mode:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            files.write_atomically(path, after, MODE)
        module.exit_json(changed=changed, path=path, fingerprints=sorted(keys), diff=diff)
    except NotAKeyring as exc:
        refuse_key(module, source, "no OpenPGP public key (%s)" % exc, "an OpenPGP public key")


def remove_keys(module, unwanted: list[str]) -> None:
    if not unwanted:
        module.fail_json(msg="state=absent needs fingerprints: nothing was changed.")
    names = sorted(set(name for pattern in module.params["keyrings"] for name in glob.glob(pattern)))
    contents = dict((name, files.read_bytes(name)) for name in names if os.path.isfile(name))
    gpg = require_gpg(module) if contents else None
    changes, diffs = [], []
    for path, data in contents.items() if gpg else ():
        try:
            keys = gpg.read_keys(data)
            left = sorted(set(keys) - set(unwanted))
            if len(left) == len(keys):
                continue
            after = gpg.export_keys(data, left, BEGIN in data) if left else None
        except NotAKeyring as exc:
            if not any(bytes.fromhex(name) in data for name in unwanted):
                continue  # no keyring, or one of a kind that apt does not read either
            module.fail_json(
                msg=(
                    "%s holds a key that is not to be trusted, and cannot be changed here: %s. Next step: remove the "
                    "key from it with gpg, or the file, and run again." % (path, exc)
                )
            )
        changes.append({"path": path, "fingerprints": sorted(set(keys) - set(left)), "removed": after is None})
        diff = {"before_header": path, "after_header": path}
        diffs.append(dict(diff, before=describe_keys(gpg, data), after=describe_keys(gpg, after)))
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
    module.no_log_values.update(find_passwords(module.params["url"]))
    given = dict((text, normalize_fingerprint(text)) for text in module.params["fingerprints"])
    short = sorted(text for text, whole in given.items() if not whole)
    if short:
        module.fail_json(
            msg=(
                "%s is no whole fingerprint: nothing was changed. Next step: write all of its 40 digits; a "
                "short id proves nothing." % (", ".join(short))
            )
        )
    try:
        (write_key if module.params["state"] == "present" else remove_keys)(module, sorted(set(given.values())))
    except OSError as exc:
        module.fail_json(
            msg="%s: %s. Next step: run as root (become), and look at the file system." % (exc.filename, exc.strerror)
        )


if __name__ == "__main__":
    main()
