# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of shared code and which may import which, and which modules take the lock of a node."""

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
    "_kube": ("_mig",),
    "_inventory": ("_kube", "_node", "_slurm"),
    "_report": ("_health",),
    "_ledger": ("_node",),
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


LOCK = "plugins/module_utils/_node/lock.py"
CONTROLLER = "it runs on the controller, where the ledger decides"
READS = "it reads alone"
WITHOUT = {
    "artifact_store": CONTROLLER,
    "capacity_report": CONTROLLER,
    "dkms_archives": CONTROLLER,
    "health_report": CONTROLLER,
    "kube_node": CONTROLLER + "; its own marks on the node in Kubernetes say whose they are",
    "playbook_variables": CONTROLLER,
    "quarantine_record": CONTROLLER,
    "rollout_control": CONTROLLER,
    "rollout_gate": CONTROLLER,
    "rollout_node": CONTROLLER,
    "rollout_plan": CONTROLLER,
    "rollout_report": CONTROLLER,
    "rollout_step": CONTROLLER,
    "slurm_gres": "it changes a service host and no node",
    "slurm_node": "it asks Slurm; its reason there says whose drain it is",
    "driver_audit": READS,
    "gpu_evidence": READS,
    "gpu_info": READS,
    "gpu_smoke": "its programs end with it, and leave nothing",
    "hold_info": READS,
    "node_program": "its action asks the node for its claim before the file takes its place",
    "repository_key": "the key that is wanted is the same for every controller; the file is checked and replaced whole",
}


def modules():
    return sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py") if path.stem != "__init__")


def locked(name):
    """Whether the module, or something of the project that it imports, takes the lock."""
    files, ahead = set(), [ROOT / "plugins" / "modules" / (name + ".py")]
    while ahead:
        file = ahead.pop()
        if file not in files:
            files.add(file)
            ahead += [path for module in imported(file) for path in files_of(module)]
    return any("NodeLock(" in file.read_text(encoding="utf-8") for file in files - {ROOT / LOCK})


def files_of(module):
    """Return the file of an imported module, or of the module that an imported name stands in."""
    path = ROOT / module.replace(".", "/")
    found = (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py"))
    return [file for file in found if file.is_file()]


@pytest.mark.parametrize("name", modules())
def test_a_module_takes_the_lock_of_the_node_or_says_why_not(name):
    assert name in WITHOUT or locked(name)


def test_no_reason_outlives_its_module():
    assert set(WITHOUT) <= set(modules())
