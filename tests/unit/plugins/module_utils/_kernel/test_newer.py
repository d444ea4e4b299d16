# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XIDs since a position: the ring alone where it is whole, and the same answer as the reading of the whole log."""

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._kernel import kernel_log, newer

pytestmark = pytest.mark.pythons

BOOT = "11111111-2222-3333-4444-555555555555"
XID = "NVRM: Xid (PCI:0000:02:00): %d, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SXID = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Non-fatal, Link 30 LTSSM Fault Up"
SEVERITY = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 0 Engine instance 30 Sub-engine instance 00"


class Node:
    def __init__(self, root):
        self.root = root
        self.lines = []
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "dev").mkdir()
        self.boot(BOOT)

    def boot(self, boot_id):
        (self.root / "proc/sys/kernel/random/boot_id").write_text(boot_id + "\n")

    def log(self, *texts, first=None, flags="-"):
        number = len(self.lines) if first is None else first
        self.lines += [
            "4,%d,%d,%s;%s\n" % (number + step, (number + step) * 1000, flags, text) for step, text in enumerate(texts)
        ]
        (self.root / "dev/kmsg").write_text("".join(self.lines))

    def read(self, position=None):
        return newer.read(str(self.root), lambda argv, timeout=0: (127, "", "not found"), position, lambda: 1000.0)


@pytest.fixture(name="node")
def _node(tmp_path):
    node = Node(tmp_path)
    node.log("Linux version 6.1.0", XID % 79, *["usb %d" % number for number in range(100)])
    return node


def codes(found):
    return [(event["kind"], event.get("xid", event.get("sxid")), event["seq"]) for event in found["events"]]


def test_without_a_position_all_of_the_log(node):
    found = node.read()
    assert codes(found) == [("xid", 79, 1)] and found["position"]["seq"] == 101 and found["complete"] is True


def test_what_is_new_and_as_the_whole_log_tells_it(node):
    position = node.read()["position"]
    with mock.patch.object(kernel_log, "read", side_effect=AssertionError("the whole log is not read")):
        assert codes(node.read(position)) == [] and node.read(position)["position"] == position
        node.log(XID % 31, "usb", XID % 79)
        found = node.read(position)
        assert codes(found) == [("xid", 31, 102), ("xid", 79, 104)] and found["position"]["seq"] == 104
        assert codes(node.read(found["position"])) == []
    whole = kernel_log.read(str(node.root), lambda argv, timeout=0: (127, "", ""), position, lambda: 1000.0)
    assert whole["position"] == found["position"]
    assert [event["text"] for event in whole["events"]] == [event["text"] for event in found["events"]]


def test_a_line_that_belongs_to_one_before_the_position_is_no_second_error(node):
    node.log(SXID)
    position = node.read(node.read()["position"])["position"]
    node.log(SEVERITY, XID % 13)
    assert codes(node.read(position)) == [("xid", 13, 104)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node, position: position.update(boot_id="another"),
        lambda node, position: position.update(seq=None),
        lambda node, position: position.update(monotonic_us=1),  # this record is newer: it is another log
        lambda node, position: position.update(seq=500),
        lambda node, position: (node.lines.clear(), node.log("usb", first=200)),  # overwritten in between
        lambda node, position: node.log("usb", first=300),  # a gap after it
    ],
)
def test_anything_else_is_for_the_reading_of_the_whole_log(node, spoil):
    position = node.read()["position"]
    spoil(node, position)
    with mock.patch.object(kernel_log, "read", return_value="all") as whole:
        assert node.read(position) == "all" and whole.call_args[0][2] == position


def test_without_a_log(node):
    (node.root / "dev/kmsg").unlink()
    assert node.read({"boot_id": BOOT, "seq": 3, "monotonic_us": 3000})["position"] is None


def test_records_that_processes_wrote_are_not_counted(node):
    position = node.read()["position"]
    node.lines.append("12,102,102000,-;%s\n" % (XID % 79))
    node.log("usb")
    assert codes(node.read(position)) == [] and node.read(position)["position"]["seq"] == 103
