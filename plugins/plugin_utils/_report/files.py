# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report files: each is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _artifacts
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text


def json_text(document: object, dense: bool = False) -> str:
    """A document as JSON, its fields in the order they have; DENSE on one line, which takes a fraction of the time and
    space. What steers a terminal is escaped.
    """
    written = json.dumps(document, indent=None if dense else 2, ensure_ascii=False)
    return text.UNSAFE.sub(lambda found: found[0] if found[0] == "\n" else "\\u%04x" % ord(found[0]), written) + "\n"


def write(directory: str, contents: dict[str, str], mode: int = 0o600) -> dict[str, bool]:
    """Write CONTENTS (name -> text) into DIRECTORY, all prepared before the first is replaced.

    Returns {name: whether it changed}.

    A directory that is not there is made, with the rights to enter that go with MODE.
    """
    os.makedirs(directory, mode=0o750 if mode & 0o040 else 0o700, exist_ok=True)
    ready = []
    try:
        for name, content in contents.items():
            data = content.encode("utf-8", "backslashreplace")
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=directory)
            ready.append((temporary, name, data))
            with os.fdopen(handle, "wb") as stream:
                os.fchmod(stream.fileno(), mode)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        changed = {}
        for temporary, name, data in ready:
            path = os.path.join(directory, name)
            changed[name] = not _is_unchanged(path, data, mode)
            os.replace(temporary, path)
    finally:
        for temporary, dummy, dummy2 in ready:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return changed


def _is_unchanged(path, data, mode) -> bool:
    try:
        return os.lstat(path).st_mode & 0o7777 == mode and _artifacts.read_file(path, len(data)) == data
    except OSError:
        return False
