# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles nvidia_dcgm and nvidia_dcgm_exporter on a simulated node, with stand-ins for engine, dcgmi and exporter.

A run of Ansible costs seconds: the cases of a test are cases of one run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.roles import dcgm_node, simulated_node, stand_in_dcgm
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import Role

ENGINE, EXPORTER = dcgm_node.ENGINE, dcgm_node.EXPORTER
UNITS = "etc/systemd/system"
ENGINE_FILE, EXPORTER_FILE = ("%s/%s.d/gpufleet.conf" % (UNITS, unit) for unit in (ENGINE, EXPORTER))
COUNTERS = "etc/dcgm-exporter/gpufleet-counters.csv"
QUADLET = "etc/containers/systemd/nvidia-dcgm-exporter.container"
SERVICE = "%s/%s" % (UNITS, EXPORTER)
# Tasks of both roles that change something on a node that has the packages.
CHANGES = 6


@pytest.fixture(name="node")
def _node(healthy, tmp_path):
    node = dcgm_node.DcgmNode(tmp_path / "node", healthy().copy(tmp_path / "root"))
    yield node
    node.close()


def there(node):
    """The files that the roles may write."""
    return {name for name in (ENGINE_FILE, EXPORTER_FILE, COUNTERS, QUADLET, SERVICE) if node.file(name).exists()}


def lines(node, name):
    return node.file(name).read_text().splitlines()


@pytest.mark.slow
def test_engine_and_exporter_from_nothing_to_a_proven_end(node):
    """Foreseen, done, nothing left to do."""
    foreseen = node.both("--check")
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert foreseen.changed == CHANGES and node.log == [] and there(node) == set(), foreseen.output

    done = node.both()
    assert (done.rc, done.changed) == (0, foreseen.changed), done.output
    assert there(node) == {ENGINE_FILE, EXPORTER_FILE, COUNTERS} and node.exporter.scrapes >= 2
    assert {"enable " + ENGINE, "start " + ENGINE, "enable " + EXPORTER, "start " + EXPORTER} == set(node.log) - {
        "daemon-reload"
    }
    assert node.log.count("daemon-reload") == 2
    calls = len(node.log)
    for name in (ENGINE_FILE, EXPORTER_FILE):
        assert {"SendSIGKILL=no", "Restart=always", "TimeoutStopSec=90"} <= set(lines(node, name)), name
    assert {"Wants=nvidia-dcgm.service", "After=nvidia-dcgm.service", "StandardOutput=journal"} <= set(
        lines(node, EXPORTER_FILE)
    )
    assert [
        line for line in lines(node, EXPORTER_FILE) if line.startswith("ExecStart=") and " -r localhost:5555" in line
    ]

    again = node.both()
    assert (again.rc, again.changed) == (0, 0) and len(node.log) == calls, again.output


@pytest.mark.slow
def test_what_is_refused_changes_nothing(node):
    """Each with what was found and what was expected; the counters file that is there stays."""
    old = node.file(COUNTERS)
    old.parent.mkdir(parents=True)
    old.write_text("# old\n")
    files = {
        "two": "DCGM_FI_DEV_GPU_TEMP, gauge\n",
        "type": "# a comment\n\nDCGM_FI_DEV_GPU_TEMP, gauges, Help\n",
        "comma": "DCGM_FI_DEV_POWER_USAGE, gauge, Power\nDCGM_FI_DEV_GPU_TEMP, gauge, Temperature, in C\n",
    }
    for name, text in files.items():
        node.file(name).write_text(text)
    dcgm, exporter = "nvidia_dcgm", "nvidia_dcgm_exporter"
    taken = 'LISTEN 0 128 *:%d *:* users:(("node-red",pid=41,fd=3))\n' % node.exporter.port
    image = "nvcr.io/nvidia/k8s/dcgm-exporter:"
    cases = {
        "older than the driver needs": (
            node.case(dcgm, node.write("dcgm-version", "4.2.3")),
            ["4.2.3", "4.4.0", "580.95.05"],
        ),
        "no version": (node.case(dcgm, node.write("dcgm-version", "")), ["none"]),
        "two fields": (
            node.case(
                exporter, node.write("dcgm-version", "4.4.1"), nvidia_dcgm_exporter_counters_file=str(node.file("two"))
            ),
            ["Line 1", "2 fields"],
        ),
        "type": (node.case(exporter, nvidia_dcgm_exporter_counters_file=str(node.file("type"))), ["Line 3", "gauges"]),
        "comma": (
            node.case(exporter, nvidia_dcgm_exporter_counters_file=str(node.file("comma"))),
            ["Line 2", "4 fields"],
        ),
        "port": (node.case(exporter, node.write("sockets", taken)), ["node-red (pid 41)", str(node.exporter.port)]),
        "podman": (
            node.case(
                exporter,
                node.write("sockets", dcgm_node.FREE),
                node.write("podman", "4.3.1"),
                nvidia_dcgm_exporter_form="quadlet",
                nvidia_dcgm_exporter_image=image + "4.4.1-4.5.0",
            ),
            ["podman is 4.3.1", "4.4"],
        ),
        "docker": (
            node.case(exporter, nvidia_dcgm_exporter_form="docker", nvidia_dcgm_exporter_image=image + "4.5.3-4.8.2"),
            ["DCGM 4.5.3", "DCGM 4.4"],
        ),
        "no directory": (
            node.case(exporter, nvidia_dcgm_exporter_form="kubernetes"),
            ["nvidia_dcgm_exporter_manifest_dir"],
        ),
        "digest": (
            node.case(
                exporter,
                nvidia_dcgm_exporter_form="kubernetes",
                nvidia_dcgm_exporter_manifest_dir=str(node.file("manifests")),
                nvidia_dcgm_exporter_image=image + "4.4.1-4.5.0@sha256:ab",
            ),
            ["sha256:ab"],
        ),
    }
    node.program("podman", 'echo "podman version $(cat "%s/podman")"' % node.root)
    said, result = node.cases(*(case for case, dummy in cases.values()))
    for (name, (dummy, words)), message in zip(cases.items(), said):
        for word in [*words, "gpu-1", "Nothing was changed"]:
            assert word in message, (name, word, message)
    assert node.log == [] and there(node) == {COUNTERS} and old.read_text() == "# old\n", result.output


@pytest.mark.slow
def test_what_the_proof_finds(node):
    """A GPU that is not seen; an engine that stands still, is down, or is older than the MIG layout; another form."""
    first, second = node.world.uuid(0), node.world.uuid(1)
    sim = "GPUSIM_ROOT=%s %s %s gpusim" % (node.root, sys.executable, simulated_node.ROOT / "tests/sim/main.py")
    layout = {"ansible.builtin.shell": sim + " mig --gpu 1 3g.40gb 1g.10gb"}

    def unit(name, state):
        return {"ansible.builtin.systemd_service": {"name": name, "state": state}}

    def prove(*before):
        return node.case("nvidia_dcgm_exporter", *before, tasks_from="prove")

    def faults(**known):
        return node.write(stand_in_dcgm.FAULTS, json.dumps(known))

    said, result = node.cases(
        prove(unit(ENGINE, "started"), unit(EXPORTER, "started"), faults(blind=second, blank=["DCGM_FI_DEV_FB_USED"])),
        prove(faults(stuck=True)),
        prove(faults(), layout),
        prove(unit(ENGINE, "restarted")),
        # of a user, who took the port and the program's name while the unit was started again
        prove(node.write("impostor", "")),
        prove({"ansible.builtin.file": {"path": str(node.file("impostor")), "state": "absent"}}),
        node.case(
            "nvidia_dcgm_exporter",
            {"ansible.builtin.file": {"path": str(node.file(COUNTERS).parent), "state": "directory"}},
            tasks_from="jobs",
            nvidia_dcgm_exporter_job_mapping_dir="/run/jobs",
        ),
        prove(unit(ENGINE, "stopped")),
        # the unit of the form before is removed, and a restart that is due from an earlier run is not forgotten
        *(
            node.case("nvidia_dcgm_exporter", tasks_from="files", nvidia_dcgm_exporter_form=form)
            for form in ("docker", "quadlet")
        ),
        node.case("nvidia_dcgm_exporter", tasks_from="unit", nvidia_dcgm_exporter_form="quadlet"),
        node.case("nvidia_dcgm", unit(ENGINE, "started"), node.write("run/dcgm-restart", ""), tasks_from="unit"),
    )
    blind, stuck, stale, restarted, impostor, alone, jobs, down, *rest = said
    assert "port %d" % node.exporter.port in impostor and alone == "", result.output
    assert second in blind and "1 of the 2" in blind and "DCGM_FI_DEV_FB_USED of " + first in blind
    assert "did not move" in stuck and first in stuck and second in stuck
    assert "MIG instance 7 of " + second in stale and first not in stale
    assert restarted == jobs == "", result.output
    known = [line.split() for line in lines(node, "etc/dcgm-exporter/gpufleet-gpus")[1:]]
    assert [first, "0"] in known and ["minor:0", "0"] in known and {"1.2", "1.7"} <= {line[1] for line in known}
    assert "D! /run/jobs 0755 root root -" in lines(node, "run/tmpfiles.conf")
    for name in ("etc/prolog.d", "etc/epilog.d"):
        assert os.access(str(node.file(name) / "gpufleet-dcgm-jobs.sh"), os.X_OK), name
    assert "engine does not answer" in down and "exporter" not in down
    assert rest == ["", "", "", ""], result.output
    assert there(node) == {COUNTERS, QUADLET, ENGINE_FILE}
    assert node.log.count("restart " + EXPORTER) == 1 and node.log[-1] == "restart " + ENGINE
    assert not (node.file("run/dcgm-restart").exists() or node.file("run/dcgm-exporter-restart").exists())


IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"


@pytest.mark.parametrize(
    "template, exec_start",
    [
        ("gpufleet.conf.j2", "ExecStart="),
        ("nvidia-dcgm-exporter.container.j2", "Exec="),
        ("nvidia-dcgm-exporter.service.j2", "ExecStart="),
    ],
)
def test_every_form_asks_the_engine_and_is_never_killed(template, exec_start):
    text = Role("nvidia_dcgm_exporter").render(template)
    known = text.splitlines()
    assert {"SendSIGKILL=no", "Restart=always", "TimeoutStopSec=90", "RestartSec=10", "StandardOutput=journal"} <= set(
        known
    )
    assert "PartOf=nvidia-dcgm.service" in known and "StartLimitIntervalSec=0" in known
    for key in ("Wants=", "After="):
        assert [line for line in known if line.startswith(key) and "nvidia-dcgm.service" in line], key
    run = [line for line in known if line.startswith(exec_start)][-1]
    assert "-f /etc/dcgm-exporter/gpufleet-counters.csv -a :9400 -c 30000 -r localhost:5555" in run
    assert not any(line.startswith("KillMode") or "docker kill" in line for line in known)


def test_containers_have_time_to_end_and_see_what_they_read():
    """podman and docker send a SIGKILL after ten seconds of their own."""
    role = Role("nvidia_dcgm_exporter", nvidia_dcgm_exporter_web_config_file="/etc/web.yml")
    quadlet, docker = role.render("nvidia-dcgm-exporter.container.j2"), role.render("nvidia-dcgm-exporter.service.j2")
    assert "PodmanArgs=--stop-timeout=86400\n" in quadlet and "Network=host\n" in quadlet
    assert "Image=%s\n" % IMAGE in quadlet
    assert "--stop-timeout=-1" in docker and "docker stop -t -1 nvidia-dcgm-exporter" in docker and IMAGE in docker
    for path in ("/etc/web.yml", "/etc/dcgm-exporter/gpufleet-counters.csv"):
        assert "Volume={0}:{0}:ro\n".format(path) in quadlet and "--volume={0}:{0}:ro ".format(path) in docker


def test_the_engine_is_never_killed():
    known = Role("nvidia_dcgm", nvidia_dcgm_stop_timeout=7).render("gpufleet.conf.j2").splitlines()
    assert {"SendSIGKILL=no", "Restart=always", "TimeoutStopSec=7", "StartLimitIntervalSec=0"} <= set(known)


def monitoring(tmp_path, inventory, *options):
    """The playbook monitoring."""
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": inventory}))
    collections = subprocess.run(
        [str(simulated_node.ROOT / "tests/tools/collections.sh")], capture_output=True, text=True, check=True
    )
    settings = {"COLLECTIONS_PATH": collections.stdout.strip(), "INJECT_FACT_VARS": "false", "NOCOLOR": "1"}
    environment = dict(os.environ, **{"ANSIBLE_" + name: value for name, value in settings.items()})
    words = ["-i", tmp_path / "hosts.yml", "gpufleet.lifecycle.monitoring", *options]
    return simulated_node.ansible_playbook(tmp_path, environment, *words)


def plays(tmp_path, inventory, *options):
    """The hosts of each play, and what Ansible says."""
    done = monitoring(tmp_path, inventory, "--list-hosts", *options)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("  play #")[1:]
    return [part.partition("hosts (")[2].split()[1:] for part in parts], done.stderr


@pytest.mark.parametrize(
    "groups, options, found, shipping",
    [
        ({}, [], [], []),
        ({"gpu_dcgm": {"hosts": {"g1": {}}}}, [], ["g1"], []),
        ({"gpu_dcgm": {"hosts": {"g1": {}}}}, ["-e", "monitoring_dcgm_hosts=g2"], ["g2"], []),
        ({"gpu_logs": {"hosts": {"g1": {}}}}, [], [], ["g1"]),
        ({"gpu_logs": {"hosts": {"g1": {}}}}, ["-e", "monitoring_log_hosts=g2"], [], ["g2"]),
        ({}, ["-e", json.dumps({"monitoring_dcgm_hosts": "g1\ng2\n", "monitoring_hosts": " \n"})], ["g1", "g2"], []),
        ({}, ["-e", json.dumps({"monitoring_dcgm_hosts": ["g1", "g2"], "monitoring_hosts": ["p1"]})], ["g1", "g2"], []),
    ],
)
def test_the_playbook_takes_the_nodes_that_are_named(tmp_path, groups, options, found, shipping):
    """Without a group and a variable, none, and Ansible warns of nothing."""
    inventory = {
        "hosts": {"p1": {}, "g1": {}, "g2": {}},
        "children": {"gpu_monitoring": {"hosts": {"p1": {}}}, **groups},
    }
    hosts, said = plays(tmp_path, inventory, *options)
    no_series = []  # monitoring_textfile_hosts names no node
    checking = ["g1", "g2", "localhost", "p1"]  # all of them, and in there those that are named
    assert [sorted(one) for one in hosts] == [checking, ["localhost"], checking, found, no_series, shipping, ["p1"]]
    assert "WARNING" not in said


@pytest.mark.parametrize(
    "groups, options, refused",
    [
        (["gpu_dcgm"], [], "g1"),
        (["gpu_logs"], [], "g1"),
        (["gpu_dcgm"], ["-e", '{"monitoring_dcgm_hosts": ["g2"]}'], "g2"),
        ([], ["-e", "monitoring_textfile_hosts=g2"], "g2"),
        ([], ["-e", "monitoring_log_hosts=p1", "-e", "monitoring_hosts=g1,p1"], "g1"),
    ],
)
def test_the_variables_of_all_that_are_named_are_checked(tmp_path, groups, options, refused):
    wrong = {"gpufleet_answer_timeout": "soon"}
    inventory = {
        "hosts": {"p1": {}, "g1": wrong, "g2": wrong},
        "children": {"gpu_monitoring": {"hosts": {"p1": {}}}, **{name: {"hosts": {"g1": {}}} for name in groups}},
    }
    done = monitoring(tmp_path, inventory, "--check", "--limit", "p1," + refused, *options)
    assert done.returncode == 2 and "gpufleet_answer_timeout of %s is" % refused in done.stdout + done.stderr
