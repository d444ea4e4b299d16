# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading of a node: every section in one document, and one that breaks costs no other."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import reading
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import loaded
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import identity

pytestmark = pytest.mark.pythons

SECTIONS = ("audit", "system", "kernel_log")


def no_command(argv, timeout=60):
    return 127, "", "%s: command not found" % argv[0]


@pytest.fixture
def root(tmp_path):
    random = tmp_path / "proc" / "sys" / "kernel" / "random"
    random.mkdir(parents=True)
    (random / "boot_id").write_text("3c9f0000-52a0-4d0e-8d1b-6f6a3f1d2c11\n")
    (tmp_path / "proc" / "uptime").write_text("61.50 100.00\n")
    return tmp_path


def test_every_section_is_there_and_the_snapshot_is_the_one_given(root):
    document = reading.gather_reading({"a": "snapshot"}, str(root), no_command)
    assert (document["schema"], document["boot_id"], document["uptime_s"], document["snapshot"]) == (
        "gpufleet.reading/1",
        "3c9f0000-52a0-4d0e-8d1b-6f6a3f1d2c11",
        61.5,
        {"a": "snapshot"},
    )
    took = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.strptime(
        document["time"], "%Y-%m-%dT%H:%M:%S%z"
    )
    assert datetime.timedelta() <= took < datetime.timedelta(hours=1)
    for section in SECTIONS:
        assert document[section]["schema"].startswith("gpufleet."), section
    assert document["problems"] == {}


def test_the_kernel_log_is_read_since_the_watermark(root, monkeypatch):
    seen = []
    monkeypatch.setattr(reading.kernel_log, "read", lambda *args: seen.append(args) or {"events": []})
    reading.gather_reading({}, str(root), no_command, {"boot_id": "b", "seq": 4})
    assert seen == [(str(root), no_command, {"boot_id": "b", "seq": 4})]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_reader_that_breaks_costs_its_own_section_and_is_named(root, monkeypatch, section):
    def burst(*args, **options):
        raise RuntimeError("a surprise")

    monkeypatch.setattr(getattr(reading, section), "read", burst)
    document = reading.gather_reading({}, str(root), no_command)
    assert document[section] is None
    assert document["problems"] == {section: "RuntimeError: a surprise"}
    assert all(document[other] is not None for other in SECTIONS if other != section)


@pytest.mark.parametrize("text", ["", "soon\n"])
def test_an_uptime_that_cannot_be_read_is_none(root, text):
    (root / "proc" / "uptime").write_text(text)
    assert loaded.read_uptime(str(root)) is None
    assert loaded.read_uptime(str(root / "nowhere")) is None and identity.read_boot_id(str(root / "nowhere")) is None
