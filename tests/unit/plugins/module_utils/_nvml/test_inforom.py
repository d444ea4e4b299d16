# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of the InfoROM: for how long, for whom, and what is read again."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import inforom, session, snapshot
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import fake_nvml, wheels

pytestmark = pytest.mark.pythons

SLOW = ("nvmlDeviceValidateInforom", "nvmlDeviceGetInforomConfigurationChecksum")
DRIVER = ["boot", 7]
GOOD = {
    "inforom_image_version": {"value": "G520.0200.00.05", "rc": 0},
    "inforom_config_checksum": {"value": 123, "rc": 0},
    "inforom_valid": {"value": True, "rc": 0},
}
UNSUPPORTED = {"value": None, "rc": 3, "error": "NOT_SUPPORTED"}


def in_this_process(work, dummy_deadline_s, dummy_stuck_file):
    return session.Outcome("ok", work(lambda where: None), "")


@pytest.fixture(name="node")
def _node(tmp_path, monkeypatch):
    """A node with two GPUs; it answers how often the slow calls were made in one snapshot."""
    driver = list(DRIVER)
    monkeypatch.setattr(snapshot, "loaded_driver", lambda: list(driver))

    def take(gather=None, describes=True, **options):
        library = fake_nvml.FakeNvml(**options)
        nvml = fake_nvml.install(wheels.load(wheels.VERSIONS[-1]), library)
        taken = snapshot.take(
            stuck_file=str(tmp_path / "stuck"),
            gather=gather,
            load=lambda: (nvml, {}),
            runner=in_this_process,
            describes=describes,
        )
        take.gpus = taken["gpus"]
        return sum(library.calls.count(name) for name in SLOW)

    take.driver, take.place = driver, tmp_path / "stuck.inforom"
    return take


def test_inforom_is_read_once_while_the_driver_is_loaded(node):
    assert node() == 4
    first = [{key: gpu[key] for key in GOOD} for gpu in node.gpus]
    assert node() == 0
    assert [{key: gpu[key] for key in GOOD} for gpu in node.gpus] == first


@pytest.mark.parametrize("part, value", [(0, "another boot"), (1, 8)])
def test_inforom_is_read_again_after_a_reboot_or_a_reload(node, part, value):
    node()
    node.driver[part] = value
    assert node() == 4


def test_inforom_is_read_each_time_while_no_module_is_loaded(node):
    node.driver[1] = None
    assert node() == node() == 4 and not node.place.exists()


def test_verdict_reads_the_inforom_each_time_and_keeps_nothing(node):
    assert node(describes=False) == 4 and not node.place.exists()
    node()
    assert node(describes=False) == 4


def test_snapshot_without_the_inforom_changes_nothing_that_is_kept(node):
    node()
    before = node.place.read_bytes()
    assert node(gather=["!inforom"]) == 0 and node.place.read_bytes() == before
    assert "inforom_valid" not in node.gpus[0]


@pytest.mark.parametrize(
    "key, answer",
    [
        ("inforom_valid", {"value": False, "rc": 0}),
        ("inforom_valid", UNSUPPORTED),
        ("inforom_config_checksum", UNSUPPORTED),
        ("inforom_config_checksum", {"value": True, "rc": 0}),
        ("inforom_image_version", {"value": "", "rc": 0, "more": 1}),
    ],
)
def test_only_a_gpu_with_good_answers_is_kept(tmp_path, key, answer):
    stuck_file = str(tmp_path / "stuck")
    gpus = [dict(GOOD, uuid={"value": name, "rc": 0}) for name in ("GPU-a", "GPU-b")]
    gpus[1][key] = answer
    assert inforom.remember(stuck_file, DRIVER, gpus) is None
    assert inforom.recall(stuck_file, DRIVER) == {"GPU-a": GOOD}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"driver": ["boot", 7]}', '{"driver": ["boot", 7], "gpus": []}']
)
def test_note_of_another_shape_counts_as_none(tmp_path, text):
    (tmp_path / "stuck.inforom").write_text(text)
    assert inforom.recall(str(tmp_path / "stuck"), DRIVER) == {}


def test_answer_that_was_changed_in_the_note_is_not_believed(tmp_path):
    wrong = dict(GOOD, inforom_valid={"value": "yes", "rc": 0})
    (tmp_path / "stuck.inforom").write_text(json.dumps({"driver": DRIVER, "gpus": {"GPU-a": wrong, "GPU-b": GOOD}}))
    assert inforom.recall(str(tmp_path / "stuck"), DRIVER) == {"GPU-b": GOOD}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_note_of_another_user_is_not_believed(tmp_path):
    inforom.remember(str(tmp_path / "stuck"), DRIVER, [dict(GOOD, uuid={"value": "GPU-a"})])
    os.chown(str(tmp_path / "stuck.inforom"), 65534, 65534)
    assert inforom.recall(str(tmp_path / "stuck"), DRIVER) == {}


def test_place_that_cannot_be_written_costs_time_alone(node, tmp_path):
    (tmp_path / "stuck.inforom").mkdir()
    assert node() == node() == 4
    assert inforom.remember(str(tmp_path / "stuck"), DRIVER, []) is not None
