# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkout answers to the collection's name, whatever Python runs the tests."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.pythons, pytest.mark.cores]


def test_collection_name_leads_to_this_checkout(collection_root):
    collection = importlib.import_module("ansible_collections.gpufleet.lifecycle")
    assert [pathlib.Path(entry).resolve() for entry in collection.__path__] == [collection_root]


def test_tests_package_is_importable_from_the_root(collection_root):
    tests = importlib.import_module("tests")
    assert str(collection_root / "tests") in [str(pathlib.Path(entry)) for entry in tests.__path__]


def test_node_interpreters_have_no_ansible(collection_root):
    """What is claimed for Python 3.8 is only shown where Ansible cannot be imported by accident."""
    answer = subprocess.run(
        [sys.executable, "-c", "import ansible"],
        cwd=str(collection_root),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    environment = pathlib.Path(sys.prefix).name
    if environment in ("py38", "pynewest"):
        assert answer.returncode != 0
    else:
        assert answer.returncode == 0, "the controller's environments have Ansible"
