# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The project looks at itself: Ansible's commands of this environment, and the checkout's files."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.tools import common

BIN = pathlib.Path(sys.executable).parent


def run(command, **settings):
    """Run a command of this environment to its end; its failure is the test's, with all it said."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=1800,
        check=False,
        **settings,
    )
    assert done.returncode == 0, "{0} answered {1}:\n{2}\n{3}".format(
        " ".join(command), done.returncode, done.stdout, done.stderr
    )
    return done.stdout


@pytest.fixture(scope="session")
def tracked():
    """Every file of the project, as paths relative to its root."""
    return common.tracked_files()


def ansible_environment(collections_path, home):
    """A bare environment for Ansible's commands: nothing of the user's, no configuration file of the checkout's."""
    settings = pathlib.Path(str(home)) / "empty.cfg"
    settings.write_text("", encoding="utf-8")
    return {
        "PATH": "{0}{1}{2}".format(BIN, os.pathsep, os.environ["PATH"]),
        "HOME": str(home),
        "ANSIBLE_CONFIG": str(settings),
        "ANSIBLE_COLLECTIONS_PATH": str(collections_path),
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",  # what is installed stays as it was installed
    }


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    """The collection's tarball, built from a clean copy of the project's files."""
    place = tmp_path_factory.mktemp("build")
    copy = common.copy_checkout(place / "checkout")
    run(
        ["ansible-galaxy", "collection", "build", "--output-path", str(place), str(copy)],
        env=ansible_environment("/nonexistent", place),
        cwd=str(place),
    )
    (tarball,) = place.glob("*.tar.gz")
    return tarball


@pytest.fixture(scope="session")
def installed(artifact, tmp_path_factory):
    """Where the tarball was installed, with no network: the collections path."""
    place = tmp_path_factory.mktemp("installed")
    run(
        [
            "ansible-galaxy",
            "collection",
            "install",
            "--offline",
            "--no-cache",
            "-p",
            str(place / "collections"),
            str(artifact),
        ],
        env=ansible_environment(place / "collections", place),
        cwd=str(place),
    )
    return place / "collections"


@pytest.fixture(scope="session")
def module_documentation(installed, collection_root):
    """What ansible-doc says of every module, from the installed tarball. Name without the collection's to its entry."""
    names = sorted(path.stem for path in (collection_root / "plugins" / "modules").glob("*.py"))
    assert names, "the collection has no modules"
    full = ["gpufleet.lifecycle." + name for name in names]
    answer = run(
        ["ansible-doc", "--json", "-t", "module", *full],
        env=ansible_environment(installed, installed.parent),
        cwd=str(installed),
    )
    documented = json.loads(answer)
    assert sorted(documented) == full
    return {name.rpartition(".")[2]: entry for name, entry in documented.items()}
