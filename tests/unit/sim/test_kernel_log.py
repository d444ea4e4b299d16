# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated kernel log, which the collection's own reader reads, too."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernel_log, kmsg

RECORD = re.compile(r"^(\d+),(\d+),(\d+),-;(.*)$")


def records(node):
    return [RECORD.match(line).groups() for line in node.read("dev/kmsg").splitlines()]


def reading(node, watermark=None):
    return kernel_log.read(str(node.root), watermark=watermark)


def test_a_boot_begins_a_log(booted):
    found = records(booted)
    assert [int(sequence) for _level, sequence, _moment, _text in found] == list(range(len(found)))
    moments = [int(moment) for _level, _sequence, moment, _text in found]
    assert moments == sorted(moments)
    assert "Linux version 6.1.0-50-amd64" in found[0][3]
    assert any(
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.216.03" in text
        for _level, _sequence, _moment, text in found
    )
    assert not (booted.root / "run/gpusim/kmsg").exists()


def test_loads_and_faults_append(booted):
    before = len(records(booted))
    booted.sim("inject", "xid", "94", "--gpu", "0")
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    booted.tool("modprobe", "nvidia")
    texts = [text for _level, _sequence, _moment, text in records(booted)[before:]]
    assert "Xid (PCI:0000:1b:00): 94" in texts[0]
    assert "unloading" in texts[1]
    assert "loading NVIDIA UNIX" in texts[-1]
    assert records(booted)[before][0] == "3" and records(booted)[-1][0] == "6"


def test_any_line_can_be_written(booted):
    booted.sim(
        "log", "--gpu", "1", "--level", "4", "NVRM: GPU at PCI:{pci}: odd \x1b bytes \\ and \u00e9", "two\nlines"
    )
    assert [(level, text) for level, _sequence, _moment, text in records(booted)[-3:]] == [
        ("4", "NVRM: GPU at PCI:0000:43:00: odd \\x1b bytes \\x5c and \u00e9"),
        ("4", "two"),
        ("4", "lines"),
    ]
    assert booted.sim("kmsg").stdout.endswith(
        "] NVRM: GPU at PCI:0000:43:00: odd \x1b bytes \\ and \u00e9\n"
        + "".join(
            "[%5d.%06d] %s\n" % (int(moment) // 1000000, int(moment) % 1000000, text)
            for _level, _sequence, moment, text in records(booted)[-2:]
        )
    )
    ring = kmsg.read(str(booted.root / "dev/kmsg"))
    assert ring.state == "ok"
    assert ring.records[-3].text == "NVRM: GPU at PCI:0000:43:00: odd \x1b bytes \\ and \u00e9"


def test_the_collections_reader_understands_it(booted):
    before = reading(booted)
    assert (before["source"], before["complete"], before["events"]) == ("kmsg", True, before["events"])
    booted.sim("inject", "xid", "79", "--gpu", "2")
    after = reading(booted, before["position"])
    assert after["complete"] is True
    assert [(event["kind"], event["xid"], event["pci"]) for event in after["events"] if event["kind"] == "xid"] == [
        ("xid", 79, "0000:52:00.0")
    ]
    assert reading(booted, after["position"])["events"] == []


def test_a_ring_that_wrapped(booted):
    position = reading(booted)["position"]
    booted.sim("log", *["filler %d" % number for number in range(5)])
    left = int(booted.sim("log", "--forget", str(position["seq"] + 3)).stdout.split()[0])
    assert left == len(records(booted)) == 3
    assert reading(booted, position)["complete"] is not True
    booted.sim("log", "the numbers go on")
    assert int(records(booted)[-1][1]) == position["seq"] + 6


def test_a_device_is_not_written_over(node):
    node.kernel()
    (node.root / "dev").mkdir()
    (node.root / "dev/kmsg").symlink_to("/dev/null")
    done = node.sim("boot", check=False)
    assert done.returncode == 2 and "no regular file" in done.stderr
