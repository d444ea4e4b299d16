# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of the collection on a node are written under its lock, all of them or, where one cannot be compared, none."""

from __future__ import annotations

import os
import stat

from . import files, lock

ARGUMENTS = dict({"files": {"type": "dict", "required": True}}, **lock.ARGUMENTS)
MODE = 0o644
LONGEST = 1024 * 1024


class FilesError(Exception):
    """Nothing was changed; the message says why."""


def problem(path, content):
    """Return the problem of a file that is to be written; empty if it can be written."""
    if not os.path.isabs(path):
        return "%s is no absolute path" % path
    if not isinstance(content, str):
        return "%s has no text but %s" % (path, type(content).__name__)
    return "%s would be longer than %d bytes" % (path, LONGEST) if len(content.encode("utf-8")) > LONGEST else ""


def compared(content, found):
    """(due, what is there as text) of a file.

    FOUND: (text, mode, whether it is this user's) as it lies there, None where nothing does.
    """
    return found != (content, MODE, True), found[0] if found else ""


def look(path):
    """(text, mode, whether it is this user's) of a file; None where there is none."""
    try:
        about = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(about.st_mode):
        raise FilesError(
            "%s is no regular file; expected one, or nothing. Nothing was changed. Next step: look who made it." % path
        )
    with open(path, "rb") as stream:
        text = stream.read(LONGEST + 1).decode("utf-8", "replace")
    return text, stat.S_IMODE(about.st_mode), about.st_uid == os.geteuid()


def work(contents, check):
    """The result of the module."""
    wrong = [words for words in (problem(path, content) for path, content in contents.items()) if words]
    if wrong:
        raise FilesError("%s. Nothing was changed." % "; ".join(wrong))
    seen = dict((path, compared(content, look(path))) for path, content in contents.items())
    due = [path for path, (is_due, dummy) in seen.items() if is_due]
    for path in [] if check else due:
        write(path, contents[path])
    diff = [
        {"before_header": path, "after_header": path, "before": seen[path][1], "after": contents[path]} for path in due
    ]
    return {"changed": bool(due), "written": due, "diff": diff}


def write(path, content):
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        os.makedirs(directory)
        os.chmod(directory, 0o755)  # whatever the umask
    files.write_atomically(path, content, MODE)
    os.chown(path, os.geteuid(), os.getegid())  # a file that is equal is left alone, no matter who owns it


def perform(params, check, lock_path=lock.DEFAULT_PATH):
    if check:
        return work(params["files"], True)
    owner = {"module": "node_files", "rollout_id": params["rollout_id"], "step": params["step"]}
    with lock.NodeLock(path=lock_path, owner=owner, timeout_s=params["lock_timeout_s"]):
        return work(params["files"], False)
