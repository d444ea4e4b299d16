# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small things every part of the lab uses: errors, output, commands, locks, files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


class LabError(Exception):
    """Something the person at the keyboard has to know: said without a traceback."""


_said = threading.Lock()


def say(text: str) -> None:
    with _said:
        print(f"lab: {text}", flush=True)


def warn(text: str) -> None:
    with _said:
        print(f"lab: {text}", file=sys.stderr, flush=True)


def elapsed(since: float) -> str:
    seconds = int(time.monotonic() - since)
    return f"{seconds // 60} min {seconds % 60:02d} s" if seconds >= 60 else f"{seconds} s"


def environment(**extra: str) -> dict[str, str]:
    """The caller's environment with English messages and no questions asked."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **extra}


def run(
    *command: object, check: bool = True, stdin: str | None = None, timeout: float | None = 120
) -> subprocess.CompletedProcess:
    """Run a short command and return what it printed. A failure is a LabError with the command's own words."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=timeout, env=environment(), check=False
        )
    except FileNotFoundError:
        raise LabError(f"{words[0]} is not installed: run 'make setup'") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"no answer from '{' '.join(words)}' in {timeout:.0f} s") from None
    if check and done.returncode != 0:
        raise LabError(f"'{' '.join(words)}' failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")
    return done


def run_logged(
    what: str,
    log: Path,
    *command: object,
    cwd: Path | None = None,
    every: float = 20,
    env: dict[str, str] | None = None,
) -> None:
    """Run a long command with its output in a log, saying now and then that it still runs.

    A failure shows the log's end.
    """
    words = [str(word) for word in command]
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as output:
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=cwd, env=env or environment()
        ) as child:
            try:
                while True:
                    try:
                        code = child.wait(timeout=every)
                        break
                    except subprocess.TimeoutExpired:
                        say(f"{what}: {elapsed(start)} so far")
            except BaseException:
                child.kill()
                raise
    if code != 0:
        tail = log.read_text(errors="replace").splitlines()[-25:]
        raise LabError("\n".join([f"{what} failed ({code}); the end of {log}:", *tail]))


@contextlib.contextmanager
def locked(path: Path, what: str):
    """Hold an exclusive lock, saying so when another process has it.

    The lock goes with the process, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def read_json(path: Path, default=None):
    """What a JSON file of the lab holds, or the default where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except ValueError as error:
        raise LabError(f"{path} is not the JSON the lab wrote ({error}): run 'python3 -m tests.lab down'") from error


def write_json(path: Path, data) -> None:
    write_whole(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def need_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab mounts file systems and makes a network bridge: run it as root")


def list_file(path: Path) -> list[str]:
    """The lines of a package list, comments and blank lines left out."""
    lines = (line.split("#", 1)[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]
