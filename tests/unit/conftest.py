# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make this checkout importable as ansible_collections.gpufleet.lifecycle, on any Python and with or without Ansible.

Under ansible-test the collection loader is already there and nothing is done. Under plain pytest two empty packages
stand where the path .../ansible_collections/gpufleet would, and the checkout is the third. ``tests`` is importable from
the root too. Helpers of tests are imported by their whole name,
``ansible_collections.gpufleet.lifecycle.tests.unit...``: the test directories are not on sys.path and two test files
may have the same name.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import pathlib
import sys
import types

import pytest

try:
    from hypothesis import settings
except ImportError:  # ansible-test's own environment has no hypothesis; the tests that use it say so themselves
    settings = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLLECTION = "ansible_collections.gpufleet.lifecycle"


def _package(name, path):
    module = types.ModuleType(name)
    module.__path__ = path
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = path
    module.__package__ = name
    sys.modules[name] = module
    parent, dot, child = name.rpartition(".")
    if dot:
        setattr(sys.modules[parent], child, module)


def _install_collection():
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    try:
        importlib.import_module(COLLECTION + ".plugins")
        return
    except ImportError:
        pass
    parts = COLLECTION.split(".")
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        try:
            importlib.import_module(name)
        except ImportError:
            _package(name, [])
    _package(COLLECTION, [str(ROOT)])
    importlib.invalidate_caches()


_install_collection()

# To compile all tests and rewrite their assertions takes longer than to import them; that is kept, and not beside the
# sources.
if not sys.pycache_prefix:
    sys.pycache_prefix = str(importlib.import_module("tests.tools.common").cache_root() / "pycache")
    sys.dont_write_bytecode = False

if settings is not None:
    # The machines that run this are slow and shared: time says nothing there. A failure prints what reproduces it.
    # Every run tries the same examples, so that a change is judged by what it changed: `make test` a few, test-slow
    # more. `make search` looks for others.
    for name, examples in (("quick", 25), ("full", 100), ("search", 5000)):
        settings.register_profile(
            name, deadline=None, print_blob=True, database=None, max_examples=examples, derandomize=name != "search"
        )
    settings.load_profile("quick")


@pytest.fixture(scope="session")
def collection_root():
    """The root of the checkout, which is the root of the collection."""
    return ROOT


@pytest.fixture
def clean_environment(monkeypatch):
    """The environment without anything that steers Ansible, the simulator or the lab from outside."""
    for name in list(os.environ):
        if name.startswith(("ANSIBLE_", "GPUSIM_", "GPUFLEET_")) and name != "GPUFLEET_CACHE":
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """Simulated nodes that were booted once, to be copied."""
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture
def make_node(tmp_path, templates):
    """Makes simulated nodes and cleans up behind them."""
    simnode = importlib.import_module(COLLECTION + ".tests.unit.sim.simnode")
    nodes = []

    def make(model="h100-sxm", gpus=None, name="node-1"):
        nodes.append(simnode.Node(tmp_path / ("root%d" % len(nodes)), simnode.built(), templates, model, gpus, name))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()
