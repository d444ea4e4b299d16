# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules as Ansible packed them, for all runs of the tests: a run packs each module once, with all that it
imports, and forgets it at its end.

They lie in the directory C(GPUFLEET_MODULES). Ansible finds a package by the name of its module: those whose source is
a test's own are named in C(GPUFLEET_OWN_MODULES) and stay out.
"""

from __future__ import annotations

import contextlib
import os
import pathlib

from ansible import constants


def directory():
    """Where the packages of all runs are."""
    return pathlib.Path(os.environ["GPUFLEET_MODULES"])


def fetch():
    """Before the first task: what other runs packed."""
    copy(directory(), packed())


def keep():
    """At the end: what this run packed."""
    copy(packed(), directory())


def packed():
    """Where this run has its packages."""
    return pathlib.Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache"


def copy(source, target):
    """Whole files only: a link appears at once, and what another run made meanwhile is the same."""
    own = tuple(os.environ.get("GPUFLEET_OWN_MODULES", "").split())
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*"):
        if (
            path.is_dir()
            or path.suffix in (".lock", ".part")
            or path.name.endswith("-part")
            or path.name.partition("-")[0].rpartition(".")[2] in own
        ):
            continue
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(path, target / path.name)
