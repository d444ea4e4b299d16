# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of simulated nodes are reset: what takes effect, each refusal and failure, what an interrupted run leaves."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._reset.resetnode import (
    ids,
    process,
    reset,
    statuses,
)

pytestmark = pytest.mark.pythons

ECC = "[n.nvmlDeviceGetEccMode(handle(i)) for i in range(n.nvmlDeviceGetCount())]"
NOTE = "var/lib/gpufleet/reset.json"


@pytest.fixture
def make(make_node):
    """Makes booted nodes, with nvidia-smi where the module looks for it."""

    def new(model="a100-sxm", gpus=2, version="535.216.03"):
        node = make_node(model, gpus).booted(version)
        node.write("usr/bin/nvidia-smi", "")
        (node.root / "usr/bin/nvidia-smi").chmod(0o755)
        return node

    return new


@pytest.fixture
def node(make):
    return make()


@pytest.fixture
def due(node):
    """Two A100; the ECC mode of GPU 1 waits."""
    node.ask("n.nvmlDeviceSetEccMode(handle(1), 0)")
    return node


def calls(result, word="--gpu-reset"):
    return [call for call in result["called"] if word in call]


def test_check_reset_check_reset(due):
    """Check mode says what comes, one command resets what is due, NVML shows it, and then nothing is due any more."""
    first = reset(due, check=True, when_needed=True)
    assert (first["changed"], first["action"], statuses(first), first["called"]) == (True, "reset", ["planned"], [])
    assert due.ask(ECC) == [[1, 1], [1, 0]] and not (due.root / NOTE).exists()
    second = reset(due, when_needed=True, reason="ECC")
    assert (second["changed"], second["action"], statuses(second)) == (True, "reset", ["reset"])
    assert "failed" not in second
    (row,) = second["gpus"]
    assert (row["needs"], row["evidence"], row["added"]) == (["ecc_mode"], ["ecc_mode"], False)
    assert (row["uuid"], second["reason"]) == (due.ask("text(n.nvmlDeviceGetUUID, handle(1))"), "ECC")
    assert due.ask(ECC) == [[1, 1], [0, 0]] and [call[-1] for call in calls(second)] == [row["uuid"]]
    assert (first["gpus"][0]["before"], first["gpus"][0]["after"]) == (row["before"], row["after"])
    assert first["diff"] == second["diff"]
    assert second["diff"]["after"] == {
        row["uuid"]: {"ecc_mode": {"current": 0, "pending": 0}, "volatile_ecc_errors": None}
    }
    assert first["actions"] == second["actions"]
    assert not (due.root / NOTE).exists() and second["interrupted"] is None and second["simulated"] is True
    for check in (True, False):
        again = reset(due, check=check, when_needed=True)
        assert (again["changed"], again["action"], again["gpus"], again["called"]) == (False, "none", [], [])
        assert "failed" not in again


def test_a_gpu_on_which_nothing_has_to_change_is_not_proven(node):
    result = reset(node, gpus=["0"])
    assert (result["changed"], statuses(result), len(result["warnings"])) == (True, ["unproven"], 1)
    assert "failed" not in result


def test_eight_gpus_are_one_command(make):
    node = make("h100-sxm", 8)
    node.ask("[n.nvmlDeviceSetEccMode(handle(i), 0) for i in range(8)]")
    result = reset(node, when_needed=True)
    assert statuses(result) == ["reset"] * 8 and len(calls(result)) == 1 and node.ask(ECC) == [[0, 0]] * 8


def test_repairs_and_a_recovery_that_the_driver_asks_for(make):
    node = make("h100-sxm", 3, "575.57.08")
    node.sim("inject", "recovery-action", "--gpu", "0", "--value", "4")
    node.sim("inject", "remap-pending", "--gpu", "2")
    result = reset(node, when_needed=True)
    assert "failed" not in result and statuses(result) == ["reset", "reset"], result["msg"]
    assert [row["needs"] for row in result["gpus"]] == [["recovery_action"], ["recovery_action", "remapped_rows"]]
    assert reset(node, when_needed=True)["action"] == "none"


def test_a_gpu_that_answers_nothing_until_it_is_reset(node):
    node.sim("inject", "reset-required", "--gpu", "1")
    assert ids(reset(node, gpus=["1"])) == ["nvlink_unknown"]
    result = reset(node)
    assert "failed" not in result and statuses(result) == ["unproven", "reset"] and result["gpus"][1]["gpu"] == "1"


# ---- NVLink and MIG ----


def test_gpus_joined_by_nvlink_are_reset_together(make):
    node = make("v100-sxm", 3)
    node.ask("n.nvmlDeviceSetEccMode(handle(0), 0)")
    foreseen, result = reset(node, check=True, when_needed=True), reset(node, when_needed=True)
    others = node.ask("[text(n.nvmlDeviceGetUUID, handle(i)) for i in (1, 2)]")
    assert result["joined_by_nvlink"] == foreseen["joined_by_nvlink"] == others
    assert "failed" not in result and statuses(result) == ["reset", "unproven", "unproven"]


@pytest.mark.parametrize("manager, together", [(True, 1), (False, 2), (None, 2)])
def test_nvswitches_without_a_fabric_manager(make, manager, together):
    node = make("h100-sxm", 2)
    node.sim("inject", "set", "fabric_manager", "1" if manager else "0")
    result = reset(node, gpus=["0"], manager=manager)
    assert "failed" not in result and len(result["gpus"]) == together


def test_what_nvidia_smi_demands_and_was_not_foreseen_is_a_failure(make):
    """The fabric manager ended, and systemd still says that it runs."""
    node = make("h100-sxm", 2)
    node.sim("inject", "set", "fabric_manager", "0")
    result = reset(node, gpus=["0"], manager=True)
    assert (ids(result, "problems"), result["changed"], result["command"]["rc"]) == (["command_failed"], False, 255)


def test_mig_instances_go_only_where_that_is_allowed(node):
    node.sim("mig", "--gpu", "0", "3g.20gb", "3g.20gb")
    for check in (True, False):
        refused = reset(node, check=check)
        assert (ids(refused), refused["changed"], refused["called"]) == (["mig_instances"], False, [])
        assert statuses(refused) == ["not_reset"] * 2
    assert refused["failed"] is True and refused["reasons"][0]["message"].count("MIG-") == 2
    result = reset(node, destroy_mig=True)
    assert "failed" not in result and result["gpus"][0]["evidence"] == ["mig_instances"]
    assert statuses(result) == ["reset", "unproven"]
    assert result["gpus"][0]["after"]["mig_mode"] == {"current": 1, "pending": 1}


def test_a_mig_mode_that_waits_as_it_does_before_hopper(node):
    mode = "n.nvmlDeviceGetMigMode(handle(1))"
    node.ask("value(n.nvmlDeviceSetMigMode, handle(1), 1)")
    assert node.ask(mode) == [0, 1]
    result = reset(node, when_needed=True)
    assert "failed" not in result and statuses(result) == ["reset"] and result["gpus"][0]["evidence"] == ["mig_mode"]
    assert node.ask(mode) == [1, 1] and reset(node, when_needed=True)["action"] == "none"


# ---- refusals: nothing is called ----


@pytest.mark.parametrize(
    "setup, reason",
    [
        (lambda node: process(node, 812, "python3"), "holder"),
        (lambda node: process(node, 812, "nv-hostengine", "nvidia-dcgm.service"), "dcgm_holder"),
        (lambda node: node.write("sys/module/nvidia_drm/parameters/modeset", "Y\n"), "drm_holds"),
        (lambda node: (node.root / "usr/bin/nvidia-smi").unlink(), "no_command"),
        (lambda node: node.write("sys/module/nvidia/refcnt", "9\n"), "unexplained_reference"),
        (lambda node: (node.root / "sys/module/nvidia/holders/gsched").symlink_to("../../gsched"), "foreign_module"),
        (lambda node: node.sim("inject", "gpu-lost", "--gpu", "1"), "gpu_lost"),
        (lambda node: node.sim("inject", "error", "nvmlDeviceGetEccMode", "999"), "need_unknown"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_what_is_refused_before_anything_is_done(due, setup, reason):
    setup(due)
    settings = due.root / "run/gpusim/settings.ini"
    before = settings.read_text() if settings.exists() else None
    for check in (True, False):
        result = reset(due, check=check, when_needed=reason == "need_unknown")
        assert result["failed"] is True and reason in ids(result), result["msg"]
        assert (result["changed"], result["action"], result["called"], result["actions"]) == (False, "refuse", [], [])
        assert all(item["message"] and item["next_step"] for item in result["reasons"])
    assert (settings.read_text() if settings.exists() else None) == before and not (due.root / NOTE).exists()


def test_a_recovery_that_takes_a_reboot_is_refused(make):
    node = make("h100-sxm", 2, "575.57.08")
    node.sim("inject", "recovery-action", "--gpu", "0")
    assert ids(reset(node, when_needed=True)) == ids(reset(node)) == ["beyond_reset"]


@pytest.mark.parametrize("wanted", [["7"], ["all", "0"]])
def test_gpus_that_are_not_there(node, wanted):
    result = reset(node, gpus=wanted)
    assert result["refused"] is True and result["called"] == []


def test_a_node_whose_nvml_does_not_start(node):
    node.sim("inject", "error", "nvmlInitWithFlags", "999")
    assert reset(node)["refused"] is True


# ---- the reset itself fails, or says that it did not ----


@pytest.mark.parametrize(
    "outcome, problems, changed",
    [
        ("fails", ["command_failed", "mode_pending", "kernel_log"], False),
        ("ignored", ["mode_pending"], True),
        ("loses", ["gpu_missing"], True),
        ("xid", ["kernel_log"], True),
    ],
)
def test_a_reset_that_went_wrong(due, outcome, problems, changed):
    due.sim("inject", "reset-outcome", outcome, "--gpu", "1")
    result = reset(due, when_needed=True)
    assert result["failed"] is True and ids(result, "problems") == problems and statuses(result) == ["failed"]
    assert result["changed"] is changed
    assert all(item["message"] and item["next_step"] for item in result["problems"])
    assert result["command"]["rc"] == (255 if outcome == "fails" else 0) and not (due.root / NOTE).exists()


def test_a_board_without_reset(due):
    due.sim("inject", "reset-unsupported", "--gpu", "1")
    result = reset(due, when_needed=True)
    assert ids(result, "problems") == ["command_failed", "mode_pending"]
    assert (result["changed"], result["command"]["rc"]) == (False, 3)


def test_a_client_that_proc_does_not_show(due):
    """It is nvidia-smi that refuses then, and nothing has changed."""
    due.sim("inject", "stray-process", "--gpu", "1")
    due.write("sys/module/nvidia/refcnt", "2\n")
    due.write("sys/module/nvidia_uvm/refcnt", "0\n")
    result = reset(due, when_needed=True)
    assert (ids(result, "problems"), result["changed"]) == (["command_failed", "mode_pending"], False)
    assert "In use by another client" in result["command"]["said"]


def test_nvml_that_does_not_answer_afterwards(due):
    result = reset(
        due,
        when_needed=True,
        on={"--gpu-reset": {"when": "after", "sim": ["gpusim", "inject", "error", "nvmlInitWithFlags", "999"]}},
    )
    assert ids(result, "problems") == ["nvml_unreadable"] and statuses(result) == ["failed"]
    assert result["gpus"][0]["after"] is None and result["changed"] is True


# ---- nvidia-smi that does not end ----


def test_a_command_that_hangs_is_ended_and_the_gpus_are_read(due):
    due.sim("inject", "reset-outcome", "hangs", "--gpu", "1")
    result = reset(due, when_needed=True, reset_timeout_s=1)
    assert ids(result, "problems") == ["command_timeout", "mode_pending"] and result["command"]["state"] == "timeout"
    assert (result["command"]["left_behind"], result["changed"], statuses(result)) == (None, True, ["failed"])


def test_a_command_that_cannot_be_ended_is_left_behind_and_named(due):
    """Nothing more is called behind it, and the note stays for the next run."""
    due.tool("nvidia-smi", "-pm", "1", "-i", "1")
    answer = ["timeout", None, "", False, 4242, "nvidia-smi did not end within 1 s; its process 4242 cannot be ended"]
    result = reset(due, when_needed=True, on={"--gpu-reset": {"when": "instead", "answer": answer}})
    assert result["command"]["left_behind"] == 4242 and ids(result, "problems")[0] == "command_timeout"
    assert "4242" in result["problems"][0]["message"]
    assert len(calls(result, "-pm")) == 1 and json.loads((due.root / NOTE).read_text())["phase"] == "resetting"


def test_nothing_is_called_behind_a_change_of_persistence_mode_that_hangs(due):
    due.tool("nvidia-smi", "-pm", "1")
    answer = ["timeout", None, "", False, 4242, "nvidia-smi did not end within 60 s; its process 4242 cannot be ended"]
    result = reset(due, on={"0": {"when": "instead", "answer": answer}})
    assert ids(result, "problems") == ["persistence_off"] and len(result["called"]) == 1
    assert "4242" in result["msg"] and (due.root / NOTE).exists()


# ---- persistence mode ----

MODE = "[n.nvmlDeviceGetPersistenceMode(handle(i)) for i in range(n.nvmlDeviceGetCount())]"


def test_persistence_mode_goes_off_and_on_again_where_it_was(due):
    due.tool("nvidia-smi", "-pm", "1", "-i", "1")
    foreseen, result = reset(due, check=True), reset(due)
    assert "failed" not in result and due.ask(MODE) == [0, 1] and foreseen["actions"] == result["actions"]
    assert [call[1:3] for call in result["called"]] == [["-pm", "0"], ["--gpu-reset", "-i"], ["-pm", "1"]]


def test_the_daemon_lets_go_and_comes_back(due):
    due.persistenced()
    process(due, 700, "nvidia-persiste", "nvidia-persistenced.service", ["/dev/nvidia0", "/dev/nvidia1"])
    result = reset(due, when_needed=True)
    assert "failed" not in result and due.ask(MODE) == [1, 1] and statuses(result) == ["reset"]


def test_work_that_begins_in_between_stops_it(due):
    """The second look, right before the reset, sees it; persistence mode is put back."""
    due.tool("nvidia-smi", "-pm", "1")
    result = reset(due, gpus=["0"], on={"-pm": {"when": "before", "appears": 900}})
    assert (ids(result), result["changed"], calls(result), statuses(result)) == (["holder"], False, [], ["not_reset"])
    assert due.ask(MODE) == [1, 1] and not (due.root / NOTE).exists()


@pytest.mark.parametrize(
    "word, problems, mode", [("0", ["persistence_off"], [1, 1]), ("1", ["persistence_on", "persistence_on"], [1, 0])]
)
def test_persistence_mode_that_cannot_be_changed(due, word, problems, mode):
    due.tool("nvidia-smi", "-pm", "1")
    answer = ["failed", 255, "Unable to set persistence mode", False, None, "nvidia-smi answered rc 255"]
    result = reset(due, when_needed=True, on={word: {"when": "instead", "answer": answer}})
    assert ids(result, "problems") == problems and result["failed"] is True and due.ask(MODE) == mode
    assert bool(calls(result)) is (word == "1") and (due.root / NOTE).exists() is (word == "1")


def test_persistence_mode_that_only_says_that_it_is_on(due):
    due.tool("nvidia-smi", "-pm", "1", "-i", "1")
    answer = ["ok", 0, "All done.", False, None, ""]
    result = reset(due, when_needed=True, on={"1": {"when": "instead", "answer": answer}})
    assert ids(result, "problems") == ["persistence_on"] and (due.root / NOTE).exists()


# ---- interrupted ----


@pytest.mark.parametrize("moment, still_due", [("before", True), ("after", False)])
def test_a_run_that_was_killed_is_told_and_put_right_by_the_next_one(due, moment, still_due):
    due.tool("nvidia-smi", "-pm", "1", "-i", "1")
    assert reset(due, when_needed=True, reason="ECC", on={"--gpu-reset": {"when": moment, "killed": True}}) is None
    assert due.ask(MODE) == [0, 0] and (due.root / NOTE).exists()
    foreseen = reset(due, check=True, when_needed=True)
    result = reset(due, when_needed=True)
    uuid = due.ask("text(n.nvmlDeviceGetUUID, handle(1))")
    note = result["interrupted"]
    assert (note["phase"], note["gpus"], note["persistence"]) == ("resetting", [uuid], [uuid])
    assert note["reason"] == "ECC" and foreseen["interrupted"] == note
    assert "failed" not in result and (result["action"] == "reset") is still_due
    assert foreseen["actions"] == result["actions"]
    assert (result["changed"], foreseen["changed"]) == (True, True)
    assert due.ask(MODE) == [0, 1] and due.ask(ECC)[1] == [0, 0]
    again = reset(due, when_needed=True)
    assert (again["changed"], again["interrupted"]) == (False, None) and not (due.root / NOTE).exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "gpufleet.reset/1", "boot_id": "another", "gpus": [], "persistence": []}']
)
def test_a_note_that_says_nothing_is_none(due, text):
    (due.root / NOTE).parent.mkdir(parents=True)
    (due.root / NOTE).write_text(text)
    result = reset(due, when_needed=True)
    assert result["interrupted"] is None and "failed" not in result and not (due.root / NOTE).exists()


def test_nothing_is_reset_where_no_note_can_be_kept(due):
    due.write("var/lib/gpufleet", "")
    result = reset(due, when_needed=True)
    assert result["refused"] is True and result["called"] == [] and due.ask(ECC)[1] == [1, 0]


def test_a_log_without_a_position_is_told(due):
    (due.root / "dev/kmsg").unlink()
    result = reset(due, when_needed=True)
    assert "failed" not in result and statuses(result) == ["reset"] and len(result["warnings"]) == 1
