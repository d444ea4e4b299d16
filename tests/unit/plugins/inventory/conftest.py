# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's own commands on an inventory file, in a directory of their own."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
BIN = pathlib.Path(sys.executable).parent

# Ansible's inventory of each file by itself, in one process: what it answers, or the error that it ends with.
READER = """
import json, sys
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.inventory.manager import InventoryManager
init_plugin_loader()
for path in sys.argv[1:]:
    try:
        inventory = InventoryManager(DataLoader(), sources=[path])
        answer = {"hosts": sorted(host.name for host in inventory.get_hosts()), "error": ""}
    except Exception as exc:
        answer = {"hosts": [], "error": str(exc) or repr(exc)}
    print(json.dumps(answer), flush=True)
    print("end of " + path, file=sys.stderr, flush=True)
"""


class Ansible:
    """Runs commands as a user would who has nothing configured."""

    def __init__(self, directory):
        self.directory = directory
        collections = directory / "collections" / "ansible_collections" / "gpufleet"
        collections.mkdir(parents=True)
        (collections / "lifecycle").symlink_to(ROOT)
        (directory / "empty.cfg").write_text("")
        self.environment = {
            "PATH": "%s%s%s" % (BIN, os.pathsep, os.environ["PATH"]),
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(directory / "empty.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
            "ANSIBLE_INJECT_FACT_VARS": "false",  # or the playbooks refuse to run
        }

    def file(self, name, **options):
        """An inventory file, as JSON, which is YAML."""
        path = self.directory / name
        path.write_text(json.dumps(options))
        return path

    def call(self, *words, **environment):
        """(exit status, standard output, standard error)."""
        done = subprocess.run(
            [str(BIN / words[0]), *map(str, words[1:])],
            cwd=str(self.directory),
            env=dict(self.environment, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def inventory(self, *words, **environment):
        """The answer of ansible-inventory, and what it said beside it."""
        code, out, err = self.call("ansible-inventory", *words, **environment)
        assert code == 0, err
        return out, err

    def read(self, paths, **environment):
        """For each file ({"hosts": ..., "error": ...}, what was said beside it)."""
        environment = dict(self.environment, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true", **environment)
        done = subprocess.run(
            [sys.executable, "-c", READER, *map(str, paths)],
            cwd=str(self.directory),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said, rest = [], done.stderr
        for path in paths:
            words, dummy, rest = rest.partition("end of %s\n" % path)
            said.append(" ".join(words.split()))
        return list(zip(map(json.loads, done.stdout.splitlines()), said))

    def list(self, path, **environment):
        """({group: its hosts}, {host: its variables}) of an inventory file that is read without a warning."""
        out, err = self.inventory("-i", path, "--list", **environment)
        assert "WARNING" not in err, err
        found = json.loads(out)
        groups = {
            name: group.get("hosts", [])
            for name, group in found.items()
            if name not in ("_meta", "all") and "hosts" in group
        }
        return groups, found["_meta"]["hostvars"]


@pytest.fixture
def ansible(tmp_path):
    return Ansible(tmp_path)
