# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report files: each is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile


def json_text(document: object, dense: bool = False) -> str:
    """A document as JSON, its fields in the order they have; DENSE on one line, which takes a fraction of the time and
    space.
    """
    return json.dumps(document, indent=None if dense else 2, ensure_ascii=False) + "\n"


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
            changed[name] = not _same(path, data, mode)
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


def _same(path, data, mode):
    try:
        with open(path, "rb") as stream:
            return (
                not os.path.islink(path)
                and os.fstat(stream.fileno()).st_mode & 0o7777 == mode
                and stream.read() == data
            )
    except OSError:
        return False
