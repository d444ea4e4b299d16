# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of shared code, and which of them may import which.

An import that is not in the table is a decision: make it here, or move the code.
"""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
OURS = "ansible_collections.gpufleet.lifecycle."
PLACES = ("plugins/module_utils", "plugins/plugin_utils")

# Package: those it imports. Every row stands below the rows that it names, so that no two packages import each other.
ARROWS = {
    "_node": (),
    "_kernel": ("_node",),
    "_dkms": ("_node", "_kernel"),
    "_packages": ("_node", "_kernel", "_dkms"),
    "_driver": ("_node", "_kernel", "_dkms", "_packages"),
    "_nvml": (),
    "_mig": ("_nvml",),
    "_reset": ("_node", "_kernel", "_driver", "_nvml"),
    "_smoke": ("_nvml",),
    "_slurm": ("_mig", "_node"),
    "_containers": ("_node",),
    "_health": ("_node", "_kernel"),
    "_program": ("_node", "_kernel", "_packages", "_driver", "_nvml", "_mig", "_health"),
    "_kube": (),
    "_inventory": ("_kube", "_node", "_slurm"),
    "_report": ("_health",),
    "_ledger": (),
    "_rollout": ("_node", "_mig", "_report", "_ledger"),
    "_rollout_report": ("_report", "_ledger", "_rollout"),
    "_monitoring": (),
    "_capacity": ("_monitoring", "_report"),
    "_dcgm": (),
    "_runbooks": ("_node", "_health", "_report", "_ledger", "_rollout"),
}


def packages():
    """{name of a package: its path}"""
    return {
        path.name: path for place in PLACES for path in (ROOT / place).iterdir() if (path / "__init__.py").is_file()
    }


def imported(path):
    """The full names of everything that a file imports from the collection, from its root on:
    plugins.module_utils._node.files.
    """
    package = list(path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = OURS + ".".join(package[: len(package) - node.level + 1]) if node.level else node.module
            if node.level and node.module:
                base += "." + node.module
            names = ["%s.%s" % (base, alias.name) for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith(OURS):
                yield name[len(OURS) :]


def arrows(name, path):
    """The other packages that the files of one import, each with an example."""
    found = {}
    for file in sorted(path.rglob("*.py")):
        for module in imported(file):
            words = module.split(".")
            if (
                words[:2] in [place.split("/") for place in PLACES]
                and len(words) > 2
                and words[2] in packages()
                and words[2] != name
            ):
                found.setdefault(words[2], "%s imports %s" % (file.relative_to(ROOT), module))
    return found


def test_every_package_has_a_row_and_every_row_a_package():
    assert set(ARROWS) == set(packages())


@pytest.mark.parametrize("name", sorted(ARROWS))
def test_a_package_imports_those_of_its_row_and_no_others(name):
    found = arrows(name, packages()[name])
    assert set(found) == set(ARROWS[name]), found


def test_no_two_packages_import_each_other():
    order = list(ARROWS)
    assert [
        (name, other) for name, others in ARROWS.items() for other in others if order.index(other) >= order.index(name)
    ] == []


def test_an_import_that_is_not_in_the_table_is_found(tmp_path, monkeypatch):
    """Both ways to write one, at any depth."""
    for name in packages():
        (tmp_path / PLACES[0] / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / PLACES[0] / "_health" / "checks").mkdir()
    (tmp_path / PLACES[0] / "_health" / "checks" / "a.py").write_text("from ..._driver import audit\n")
    (tmp_path / PLACES[0] / "_health" / "b.py").write_text(
        "from %splugins.module_utils._slurm.slurm_node import SlurmNode\n" % OURS
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "packages", lambda: dict.fromkeys(ARROWS))
    assert set(arrows("_health", tmp_path / PLACES[0] / "_health")) == {"_driver", "_slurm"}


def test_contributing_says_what_goes_into_each():
    table = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## Where a new line goes")[2]
        .partition("\n## ")[0]
    )
    assert [name for name, path in packages().items() if "`%s/`" % path.relative_to(ROOT) not in table] == []
