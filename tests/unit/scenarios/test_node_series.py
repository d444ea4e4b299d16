# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a simulated node writes for node_exporter: a fault changes the series that are about it, and no others."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import types
import typing as t

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import readings, textfile
from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios import world as w
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

CONTRACT = json.loads((w.DATA / "node_series.json").read_text())
DATA = {"node_series": CONTRACT, "xid": w.TABLES["xid"]}
NOW = 1772366400.0  # 2026-03-01T12:00:00Z
LATER = 3600.0
LINE = re.compile(r"gpufleet_(\w+?)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
OFF = {
    "config": {"version": "v1", "mig-configs": {"off": [{"devices": "all", "mig-enabled": False}]}},
    "config_name": "off",
}
# Labels that say which GPU or software it is: those are other series, but not other words for a test.
IDENTITY = {"UUID", "serial", "part_number", "vbios", "name", "driver", "kernel", "kernel_module", "boot_id"}
# The series of a GPU that NVML tells.
OF_GPU = ("gpu_info", "gpu_recovery_action", "gpu_temperature_limit_celsius", "gpu_fabric_state", "mig_layout_matches")


class Packages:
    """The programs of a world, and the package manager of a node that holds its kernel and keeps an update out."""

    def __init__(self, world):
        self.world, self.asked = world, []
        self.held, self.update = "hi", "2"

    def __call__(self, argv, timeout=60):
        if argv[:2] == ["dpkg-query", "-W"]:
            self.asked.append(argv[0])
            return 0, "%s |linux-image-amd64|amd64|1|linux-signed-amd64|10\n" % self.held, ""
        if argv[:2] == ["apt-cache", "show"]:
            return 0, "Package: linux-image-amd64\nVersion: %s\nFilename: pool/x.deb\n" % self.update, ""
        if argv[:2] == ["apt-cache", "policy"]:
            known = " *** 1 500\n        500 http://deb bookworm/main amd64 Packages\n"
            waits = "     %s 500\n        500 http://deb bookworm-security/main amd64 Packages\n" % self.update
            return 0, "linux-image-amd64:\n  Installed: 1\n  Version table:\n%s%s" % (waits, known), ""
        return self.world(argv, timeout)


class Node:
    """A world, with all that its series tell of."""

    def __init__(self, world, make=True):
        self.world, self.root, self.clock = world, world.root, NOW
        self.packages = Packages(world)
        own = str(self.root / "var/lib/gpufleet")
        self.sources = readings.Sources(
            own,
            *(
                str(self.root / path)
                for path in ("etc/gpufleet/boot-check.json", "run/boot.json", "etc/gpufleet/mig.json")
            ),
            digests=(str(self.root / "etc/gpufleet"),),
            timeout_s=30,
        )
        if make:
            self.make()

    def make(self):
        document = {
            "schema": boot_expectation.SCHEMA,
            "driver_version": w.DRIVER,
            "hardware": {"gpus": 2},
            "mig_file": None,
            "policy": {},
        }
        self.world.write("etc/gpufleet/boot-check.json", boot_expectation.render_document(document))
        self.world.write("etc/gpufleet/mig.json", json.dumps(OFF))
        self.world.write("etc/unit", "as written\n")
        digest = hashlib.sha256(b"as written\n").hexdigest()
        self.world.write("etc/gpufleet/role.sha256", "%s  %s\n" % (digest, self.root / "etc/unit"))
        checks = [{"id": "gpu.xid", "entity": "node", "status": "fail"}]
        health = {"schema": "gpufleet.health/1", "verdict": "fail", "time": "2026-03-01T11:00:00Z", "checks": checks}
        self.world.write("run/boot.json", json.dumps(health))
        self.world.write(
            "var/lib/gpufleet/kernel-holds.json",
            json.dumps({"linux-image-amd64": {"version": "1", "since": NOW - 86400, "exact": True}}),
        )
        marker = {"node": w.NODE, "time": "2026-02-28T12:00:00Z", "reason": "test"}
        self.world.write("var/lib/gpufleet/quarantine.json", json.dumps(marker))
        (self.root / "out").mkdir()

    def run(self):
        """The outcome of a run."""
        take = functools.partial(snapshot.take, load=w.binding(self.world.library))

        def taken(**options):
            return take(**dict(options, stuck_file=self.world.stuck_file, deadline_s=self.world.deadline_s))

        uname = types.SimpleNamespace(release=simnode.RELEASE, machine="x86_64")
        read = functools.partial(readings.read_parts, runner=self.packages, take=taken, uname=lambda: uname)
        with self.world.environment():
            return textfile.run(self.sources, str(self.root / "out"), DATA, str(self.root), lambda: self.clock, read)

    def series(self):
        """{words: value} of what it writes."""
        self.run()
        return said((self.root / "out/gpufleet.prom").read_text())


def said(text):
    """{name and words of the labels: value} of the lines of a file."""
    result = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.match(line).groups()
            given = dict(LABEL.findall(labels or ""))
            words = [("gpu" if label == "gpu" else "") + text for label, text in given.items() if label not in IDENTITY]
            assert " ".join([name] + words) not in result, line
            result[" ".join([name] + words)] = float(value)
    return result


def claim(state):
    return json.dumps(
        {
            "schema": "gpufleet.claim/1",
            "ledger": "l",
            "rollout_id": "r",
            "run": "1",
            "plan": "p",
            "controller": "c",
            "time": "t",
            "state": state,
            "attempt": 1,
        }
    )


Making = t.Union[str, t.Callable[[t.Any], t.Any]]


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done to a node, and the series whose values it changes: to these, or None for one that is gone."""

    name: str
    make: Making
    changes: t.Mapping[str, t.Optional[float]]


def gone(*names):
    return dict.fromkeys(names)


def write(path, text):
    return lambda node: node.world.write(path, text)


FAULTS = (
    Fault("XID 79", "inject xid 79 --gpu 1", {"xid_code_total gpu1 79": 1, "xid_total gpu1 reboot": 1}),
    Fault("XID 13", "inject xid 13 --gpu 1", {"xid_total gpu1 app": 1}),
    Fault("an XID that is in no table", "inject xid 999 --gpu 0", {"xid_total gpu0 hold": 1}),
    Fault("a fatal error of a switch", "inject sxid 20034 --fatal", {"sxid_total yes": 1}),
    Fault(
        "a GPU is lost",
        "inject gpu-lost --gpu 1",
        dict(gone(*["%s gpu1" % name for name in OF_GPU]), **{"xid_code_total gpu1 79": 1, "xid_total gpu1 reboot": 1}),
    ),
    Fault(
        "NVML lists one GPU",
        "inject gpu-missing --gpu 1",
        dict(gone(*["%s gpu1" % name for name in OF_GPU]), gpus_present=1),
    ),
    Fault("the driver asks for a reboot", "inject recovery-action --gpu 1", {"gpu_recovery_action gpu1": 2}),
    Fault("a GPU does not join its fabric", "inject fabric-stuck --value 2 --gpu 1", {"gpu_fabric_state gpu1": 2}),
    Fault(
        "a limit is not told",
        "inject error nvmlDeviceGetTemperatureThreshold 3 --gpu 1",
        gone("gpu_temperature_limit_celsius gpu1"),
    ),
    Fault(
        "NVML does not start",
        "inject error nvmlInitWithFlags 9",
        dict(gone("gpus_present", *["%s gpu%d" % (name, gpu) for name in OF_GPU for gpu in (0, 1)]), nvml_answers=0),
    ),
    Fault(
        "a MIG layout that nobody wanted",
        lambda node: node.world.node.sim("mig", "--gpu", "1", "3g.40gb"),
        {"mig_layout_matches gpu1": 0},
    ),
    Fault(
        "another wanted layout that cannot be used",
        write("etc/gpufleet/mig.json", "{"),
        gone("mig_layout_matches gpu0", "mig_layout_matches gpu1"),
    ),
    Fault("the module is of another driver", lambda node: node.world.modules(w.NEWER), {"next_kernel_has_driver": 0}),
    Fault(
        "more GPUs are expected",
        lambda node: setattr(node, "sources", node.sources._replace(gpus=8)),
        {"gpus_expected": 8},
    ),
    Fault("no expectation", lambda node: node.world.remove("etc/gpufleet/boot-check.json"), gone("gpus_expected")),
    Fault(
        "a rollout holds the node",
        write("var/lib/gpufleet/claim.json", claim("held")),
        {"node_out_of_service rollout": 1},
    ),
    Fault(
        "a claim that cannot be read", write("var/lib/gpufleet/claim.json", "{"), gone("node_out_of_service rollout")
    ),
    Fault(
        "the node returned to service",
        lambda node: node.world.remove("var/lib/gpufleet/quarantine.json"),
        {"node_out_of_service quarantine": 0, "quarantine_start_timestamp_seconds": None},
    ),
    Fault(
        "a newer verdict",
        write(
            "var/lib/gpufleet/verdict.json",
            json.dumps(
                {"schema": "gpufleet.health/1", "verdict": "pass", "time": "2026-03-01T11:30:00Z", "checks": []}
            ),
        ),
        {
            "health_verdict pass": 1,
            "health_verdict fail": 0,
            "health_verdict_timestamp_seconds": 1772364600,
            "health_check_failed gpu.xid": None,
        },
    ),
    Fault("a file of ours was changed", write("etc/unit", "by hand\n"), {"changed_files": 1}),
    Fault("a list of digests that cannot be read", write("etc/gpufleet/role.sha256", "?\n"), gone("changed_files")),
)


@pytest.fixture(name="template", scope="module")
def _template(healthy):
    return healthy().world


@pytest.fixture(name="node")
def _node(template, tmp_path):
    world = template.copy(tmp_path / "root")
    yield Node(world)
    world.close()


def changes(before, after):
    """What differs, but for the time: {words: value, None for what is gone}."""
    return {
        name: after.get(name)
        for name in set(before) | set(after)
        if before.get(name) != after.get(name) and name != "textfile_timestamp_seconds"
    }


def do(node, make):
    if callable(make):
        make(node)
    else:
        node.world.sim(*make.split())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_the_series_that_are_about_it_and_no_others(fault, node):
    before = node.series()
    do(node, fault.make)
    assert changes(before, node.series()) == dict(fault.changes)


def test_a_node_that_is_known_tells_every_series_of_the_contract_and_no_other(node):
    told = {name.split()[0] for name in node.series()}
    assert told == {row["name"][len("gpufleet_") :] for row in CONTRACT["series"]}


def test_a_second_run_tells_the_same_and_asks_the_package_manager_no_second_time(node):
    before = node.series()
    assert node.packages.asked == ["dpkg-query"]
    assert changes(before, node.series()) == {} and node.packages.asked == ["dpkg-query"]
    node.clock += LATER
    assert changes(before, node.series()) == {
        "hold_age_seconds kernel": 86400 + LATER,
        "held_security_update_age_seconds": LATER,
    }
    node.packages.held = "ii"
    node.world.write("var/lib/dpkg/status", "another\n")
    assert changes(before, node.series()) == {"hold_age_seconds kernel": 0, "held_security_updates kernel": 0}, (
        "and the age of what is held out is 0 again"
    )
    assert node.packages.asked == ["dpkg-query"] * 2


def test_counters_of_a_boot_never_go_down(node):
    node.world.sim("inject", "xid", "79", "--gpu", "1")
    before = node.series()
    log = node.root / "dev/kmsg"
    lines = log.read_text().splitlines(True)
    log.write_text(lines[-1])  # the ring was overwritten
    assert changes(before, node.series()) == {}
    node.world.sim("inject", "xid", "79", "--gpu", "1")
    assert node.series()["xid_code_total gpu1 79"] == before["xid_code_total gpu1 79"] + 1
    boot_id = node.root / "proc/sys/kernel/random/boot_id"
    boot_id.write_text("99999999-2222-3333-4444-555555555555\n")
    log.write_text("6,0,1,-;Linux version 6.1.0\n")
    again = node.series()
    assert again["xid_code_total gpu1 79"] == 0 and again["xid_total gpu1 reboot"] == 0, "a new boot"


def test_nvml_that_hangs_leaves_no_old_value_and_the_file_is_written(node):
    before = node.series()
    node.world.sim("inject", "xid", "79", "--gpu", "1")
    node.world.sim("inject", "hang", "nvmlInitWithFlags", "600")
    node.world.deadline_s = 1
    node.clock += 60
    after = node.series()
    assert after["textfile_timestamp_seconds"] == NOW + 60 and after["nvml_answers"] == 0
    assert [name for name in after if name.split()[0] in OF_GPU + ("gpus_present",)] == []
    assert after["xid_code_total gpu1 79"] == before["xid_code_total gpu1 79"] + 1, (
        "the kernel's log has nothing to do with NVML"
    )


@pytest.mark.parametrize("broken", ["gpus", "on_disk", "holds", "find_changed_files"])
def test_a_reader_that_breaks_costs_its_part_alone(node, broken, monkeypatch):
    before = node.series()

    def breaks(*dummy):
        raise RuntimeError("broken")

    monkeypatch.setattr(readings, broken, breaks)
    part = {"gpus": "snapshot", "on_disk": "modules", "find_changed_files": "changed_files"}.get(broken, broken)
    assert [problem.split(":")[0] for problem in node.run().problems] == [part]
    lost = {name.split()[0] for name, value in changes(before, node.series()).items() if value is None}
    assert (
        lost
        == {
            "gpus": set(OF_GPU) | {"gpus_present"},
            "on_disk": {"next_kernel_has_driver"},
            "holds": {"hold_age_seconds", "held_security_updates", "held_security_update_age_seconds"},
            "find_changed_files": {"changed_files"},
        }[broken]
    )


# ---- the file ----


def test_the_file_is_whole_and_readable_by_everybody(node):
    mask = os.umask(0o077)
    try:
        node.run()
    finally:
        os.umask(mask)
    out = node.root / "out"
    assert [path.name for path in out.iterdir()] == ["gpufleet.prom"]
    assert (out / "gpufleet.prom").stat().st_mode & 0o7777 == 0o644


def test_what_a_run_that_was_killed_left_is_no_hindrance(node):
    (node.root / "target").write_text("old\n")
    os.symlink(str(node.root / "target"), str(node.root / "out/gpufleet.prom.123.tmp"))
    node.run()
    assert (node.root / "target").read_text() == "old\n", "no link is followed"
    assert [path.name for path in (node.root / "out").iterdir()] == ["gpufleet.prom"]


def test_a_directory_that_is_not_there_is_told_and_what_was_counted_is_kept(node):
    node.world.sim("inject", "xid", "79", "--gpu", "1")
    (node.root / "out").rmdir()
    with pytest.raises(OSError):
        node.run()
    assert not (node.root / "out").exists()
    (node.root / "out").mkdir()
    (node.root / "dev/kmsg").write_text((node.root / "dev/kmsg").read_text().splitlines(True)[-1])
    assert node.series()["xid_code_total gpu1 79"] == 1


def test_an_old_file_stays_where_the_new_one_cannot_be_written(node, monkeypatch):
    node.run()
    before = (node.root / "out/gpufleet.prom").read_text()
    monkeypatch.setattr(textfile.os, "fsync", functools.partial(_refused, "fsync"))
    node.clock += 60
    with pytest.raises(OSError):
        textfile.write(str(node.root / "out"), "new\n")
    assert (node.root / "out/gpufleet.prom").read_text() == before
    assert [path.name for path in (node.root / "out").iterdir()] == ["gpufleet.prom"]


def _refused(what, *dummy):
    raise OSError(5, what)


def test_what_was_counted_and_cannot_be_kept_is_a_failure_and_the_series_are_written(node):
    own = pathlib.Path(node.sources.state_dir)
    for path in own.iterdir():
        path.unlink()
    own.rmdir()
    own.write_text("")  # a file in the place of the directory
    outcome = node.run()
    assert outcome.failed and any("kept" in problem for problem in outcome.problems)
    assert said((node.root / "out/gpufleet.prom").read_text())["nvml_answers"] == 1
