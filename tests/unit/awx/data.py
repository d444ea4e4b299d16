# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of AWX, as it lies in awx/."""

from __future__ import annotations

import pathlib

import yaml

AWX = pathlib.Path(__file__).resolve().parents[3] / "awx"


def everything():
    """Every variable of awx/controller/."""
    found = {}
    for path in sorted((AWX / "controller").glob("*.yml")):
        more = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert not set(found) & set(more), "%s has a variable for the second time" % path.name
        found.update(more)
    return found


def named(variable):
    """{name: the entry} of one of its lists."""
    entries = everything()[variable]
    assert len({entry["name"] for entry in entries}) == len(entries), variable
    return {entry["name"]: entry for entry in entries}


def playbooks():
    """The names of the playbooks of the collection."""
    return sorted(path.stem for path in (AWX.parent / "playbooks").glob("*.yml"))


def survey(entry):
    """{variable: its question} of a template or a workflow."""
    spec = entry["survey_spec"]["spec"]
    assert len({question["variable"] for question in spec}) == len(spec), entry["name"]
    return {question["variable"]: question for question in spec}
