# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/benchmarks.md: every benchmark is on it, and every command on it is there."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
# Benchmarks that `make` has a target for are called by it.
TARGETS = {
    target: module.replace("tests.bench.", "")
    for target, module in re.findall(
        r"^([\w-]+):.*\n\t.* -m (tests\.bench\.[\w.]+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
}


def commands():
    """The modules that the page's commands run, and the targets of make, as modules."""
    modules = re.findall(r"python3\s-m\s(tests\.[\w.]+)", PAGE)
    return set(modules), {TARGETS[target] for target in re.findall(r"`make (bench[\w-]*)`", PAGE)}


def test_every_command_is_there():
    modules, targets = commands()
    assert len(modules) > 5 and len(targets) > 2
    for module in modules:
        place = ROOT.joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def test_every_benchmark_is_named():
    table = (ROOT / "tests" / "bench" / "README.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))
    modules, targets = commands()
    told = {module[len("tests.bench.") :] for module in modules if module.startswith("tests.bench.")}
    assert len(names) > 8 and names == told | targets
