# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node gathers for a bundle: every part on its own, bounded, without secrets, and what is missing by name."""

from __future__ import annotations

import functools
import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import capture, evidence
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver import clocks

from .. import recordings

pytestmark = pytest.mark.pythons

XML = "<nvidia_smi_log>\n<process_info><process_name>%s</process_name></process_info>\n</nvidia_smi_log>\n"
UUID = "GPU-5d2f3c1a-0b8e-4f6a-9a53-2f1d8f5f7c10"


def no_command(argv, timeout=60):
    return 127, "", "%s: command not found" % argv[0]


def value(what):
    return {"value": what, "rc": 0}


def snapshot(**gpu):
    known = {
        "index": 0,
        "uuid": value(UUID),
        "compute_processes": value([{"pid": 4711, "used_bytes": 1024}]),
        "graphics_processes": value([]),
    }
    return {"status": "ok", "message": "", "gpus": [dict(known, **gpu)]}


def smi(text="", state="ok", **fields):
    def take(argv, timeout_s, limit):
        assert argv == ["nvidia-smi", "-q", "-x"]
        return capture.Captured(
            **dict(dict(state=state, rc=0, data=text.encode(), truncated=False, left_behind=None, message=""), **fields)
        )

    return take


@pytest.fixture
def root(tmp_path):
    recordings.write(tmp_path, "/proc/sys/kernel/random/boot_id", "3c9f0000-52a0-4d0e-8d1b-6f6a3f1d2c11\n")
    recordings.write(tmp_path, "/proc/4711/comm", "python3\n")
    recordings.write(tmp_path, "/proc/4711/status", "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")
    recordings.write(tmp_path, "/proc/4711/cmdline", "python3\0--token=hunter2\0")
    recordings.write(tmp_path, "/proc/4711/environ", "TOKEN=hunter2\0")
    recordings.write(tmp_path, "/proc/4711/cgroup", "0::/system.slice/train.service\n")
    recordings.write(
        tmp_path,
        "/dev/kmsg",
        (
            "6,0,0,-;Linux version 6.1.0\n6,1,10,-;Command line: nvidia.token=hunter2\n"
            "12,2,20,-;NVRM: said a process, hunter2\n"
            "6,3,1500000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
            "6,4,2000000,-;usb 1-1: new device\n"
        ),
    )
    (tmp_path / "proc" / "4711" / "fd").mkdir()
    (tmp_path / "proc" / "4711" / "fd" / "5").symlink_to("/dev/nvidia0")
    return tmp_path


def gather(root, shot=None, take=None, **reading):
    document = dict({"snapshot": snapshot() if shot is None else shot, "problems": {}}, **reading)
    found = evidence.gather_parts(document, str(root), no_command, 10, 5, take or smi(XML % "/usr/bin/python3"))
    return found["files"], dict((entry["part"], entry["reason"]) for entry in found["missing"])


@pytest.fixture
def as_root(monkeypatch):
    monkeypatch.setattr(evidence.os, "geteuid", lambda: 0)


def test_a_node_that_tells_everything(root, as_root):
    files, missing = gather(root)
    assert missing == {}
    assert json.loads(files["processes.json"]["text"]) == {
        "left_out": 0,
        "processes": [
            {
                "pid": 4711,
                "uid": 1000,
                "comm": "python3",
                "unit": "train.service",
                "cgroup": "/system.slice/train.service",
                "devices": ["/dev/nvidia0"],
                "gpus": [{"gpu": UUID, "kind": "compute", "used_bytes": 1024}],
            }
        ],
    }
    log = files["kernel.log"]["text"].splitlines()
    assert log == [
        "# source: kmsg",
        "# read to its end",
        "# The last 1 lines about the NVIDIA driver, of at most 10.",
        "[    1.500000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "# The last 3 lines of the kernel, of at most 10; 1 that may hold secrets were left out.",
        "[    0.000000] Linux version 6.1.0",
        "[    1.500000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "[    2.000000] usb 1-1: new device",
    ]
    assert files["nvidia-smi.xml"]["text"] == XML % "python3"
    assert not any(entry["truncated"] for entry in files.values())


def test_no_secret_of_a_command_line_is_taken(root, as_root):
    files, dummy = gather(root, take=smi(XML % "python3 --token=hunter2"))
    assert "hunter2" not in json.dumps(files)
    assert files["nvidia-smi.xml"]["note"] == "process names are cut to the program"


def test_who_is_not_root_does_not_see_all_and_says_so(root, monkeypatch):
    monkeypatch.setattr(evidence.os, "geteuid", lambda: 1000)
    files, missing = gather(root)
    assert "not root (uid 1000)" in missing["processes.json"] and "processes.json" in files


def test_an_unreadable_log_costs_itself_alone(root, as_root):
    os.unlink(str(root / "dev" / "kmsg"))
    files, missing = gather(root)
    assert set(files) == {"processes.json", "nvidia-smi.xml"}
    assert "/dev/kmsg does not exist" in missing["kernel.log"] and "become: true" in missing["kernel.log"]


def test_a_log_that_is_too_long_is_cut_and_says_so(root, as_root, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_LOG", 150)
    entry = gather(root)[0]["kernel.log"]
    assert (len(entry["text"]), entry["truncated"], entry["note"]) == (150, True, "cut after 150 bytes")
    assert "79, GPU has" in entry["text"], "the driver's lines come first"


def test_nvidia_smi_that_is_not_there(root, as_root):
    files, missing = gather(root, take=smi(state="absent", message="nvidia-smi: command not found"))
    assert missing == {"nvidia-smi.xml": "nvidia-smi: command not found"} and "nvidia-smi.xml" not in files


def test_nvidia_smi_that_hangs_leaves_what_it_wrote(root, as_root):
    files, missing = gather(
        root,
        take=smi(
            "<nvidia_smi_log>\n<gpu>", state="timeout", rc=None, left_behind=9, message="hangs; 9 was left behind"
        ),
    )
    assert missing == {"nvidia-smi.xml": "hangs; 9 was left behind"}
    assert (files["nvidia-smi.xml"]["truncated"], files["nvidia-smi.xml"]["note"]) == (True, "hangs; 9 was left behind")


def test_nvidia_smi_that_complains_is_no_file(root, as_root):
    files, missing = gather(
        root,
        take=smi(
            "Failed to initialize NVML", state="failed", rc=18, message="answered rc 18: Failed to initialize NVML"
        ),
    )
    assert "nvidia-smi.xml" not in files and "rc 18" in missing["nvidia-smi.xml"]


SLEEPS = "#!/bin/sh\necho '<nvidia_smi_log>'\ntouch %s\nexec sleep 600\n"


def test_nvidia_smi_really_hanging(root, as_root, monkeypatch, tmp_path):
    """Through the real capture: a command of that name which sleeps."""
    tool = recordings.write(tmp_path, "/bin/nvidia-smi", SLEEPS % (tmp_path / "said"))
    tool.chmod(0o755)
    monkeypatch.setattr(evidence, "NVIDIA_SMI", [str(tool)])
    take = functools.partial(capture.run, clock=clocks.over_when((tmp_path / "said").exists))
    found = evidence.gather_parts({"snapshot": snapshot()}, str(root), no_command, 10, 1, take)
    assert found["missing"] == [{"part": "nvidia-smi.xml", "reason": "%s did not end within 1 s" % (tool,)}]
    assert found["files"]["nvidia-smi.xml"]["text"] == "<nvidia_smi_log>\n"


@pytest.mark.parametrize("status", ["timeout", "stuck"])
def test_nvidia_smi_is_not_started_beside_an_nvml_that_hangs(root, as_root, status):
    files, missing = gather(root, {"status": status, "message": "it hangs"}, take=lambda *args: pytest.fail("started"))
    assert "not started: NVML hangs already (%s)" % status in missing["nvidia-smi.xml"]
    assert missing["reading.json: snapshot"] == "NVML: %s: it hangs" % status
    assert set(files) == {"processes.json", "kernel.log"}


@pytest.mark.parametrize("shot", [None, [], {}, "x"])
def test_a_reading_without_a_snapshot(root, as_root, shot):
    found = evidence.gather_parts(
        {"snapshot": shot, "problems": {"system": "burst"}}, str(root), no_command, 10, 5, smi(XML % "x")
    )
    missing = dict((entry["part"], entry["reason"]) for entry in found["missing"])
    assert missing["reading.json: system"] == "burst" and "reading.json: snapshot" in missing
    assert set(found["files"]) == {"processes.json", "kernel.log", "nvidia-smi.xml"}


def test_processes_that_nvml_does_not_tell(root, as_root):
    dummy, missing = gather(root, snapshot(compute_processes={"value": None, "rc": 4, "error": "NO_PERMISSION"}))
    assert missing == {"processes.json": "NVML does not tell the compute processes of %s: NO_PERMISSION" % UUID}


def test_a_process_that_is_gone_has_its_number(root, as_root):
    files, dummy = gather(root, snapshot(compute_processes=value([{"pid": 99, "used_bytes": None}])))
    gone = [row for row in json.loads(files["processes.json"]["text"])["processes"] if row["pid"] == 99]
    assert [(row["comm"], row["uid"], row["gpus"][0]["used_bytes"]) for row in gone] == [(None, None, None)]


def test_too_many_processes_are_cut_and_counted(root, as_root, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_PROCESSES", 3)
    entry = gather(root, snapshot(graphics_processes=value([{"pid": pid, "used_bytes": 1} for pid in range(10, 19)])))[
        0
    ]["processes.json"]
    assert (entry["truncated"], entry["note"]) == (True, "7 processes were left out")
    assert len(json.loads(entry["text"])["processes"]) == 3


def test_a_part_that_bursts_costs_itself_alone(root, as_root, monkeypatch):
    def burst(*args):
        raise RuntimeError("a surprise")

    monkeypatch.setattr(evidence.holders, "read_holders", burst)
    files, missing = gather(root)
    assert missing == {"processes.json": "RuntimeError: a surprise"} and set(files) == {"kernel.log", "nvidia-smi.xml"}


def test_a_proc_that_cannot_be_listed(root, as_root, monkeypatch):
    monkeypatch.setattr(evidence.holders, "read_holders", lambda root: None)
    files, missing = gather(root)
    assert "cannot be listed" in missing["processes.json"]
    assert [row["pid"] for row in json.loads(files["processes.json"]["text"])["processes"]] == [4711], (
        "NVML still names it"
    )
