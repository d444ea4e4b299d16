# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_log_shipping: what it writes, removes, restarts and refuses, with the real rsyslogd as the judge."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import types

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring.servers import free_port
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import log_daemons, simulated_node
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import Role

pytestmark = pytest.mark.slow

RUNS = ["loaded", "active", "running", "success", "enabled"]
STOPPED = ["loaded", "inactive", "dead", "success", "disabled"]
JOURNALD_UNIT, RSYSLOG_UNIT, SENDER = "systemd-journald.service", "rsyslog.service", "systemd-journal-upload.service"
UNITS = {JOURNALD_UNIT: RUNS, RSYSLOG_UNIT: RUNS, SENDER: STOPPED}
JOURNALD, UPLOAD, UPLOAD_UNIT, RSYSLOG = (
    "systemd/journald.conf.d/60-gpufleet.conf",
    "systemd/journal-upload.conf.d/60-gpufleet.conf",
    "systemd/system/systemd-journal-upload.service.d/60-gpufleet.conf",
    "60-gpufleet.conf",
)


@pytest.fixture(name="node")
def _node(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    world = types.SimpleNamespace(root=root, model="h100-sxm", units={}, daemons={}, close=lambda: None)
    found = simulated_node.SimulatedNode(tmp_path / "node", world, ["gpu_log_shipping"])
    for unit, words in UNITS.items():
        found.unit(unit, *words)
    yield found
    found.close()


def variables_of(node, **given):
    known = {
        "gpu_log_shipping_install": False,
        "gpu_log_shipping_host": "127.0.0.1",
        "gpu_log_shipping_protocol": "tcp",
        "__gpu_log_shipping_answer_s": 1,
        "__gpu_log_shipping_rsyslogd": log_daemons.RSYSLOGD,
        "__gpu_log_shipping_rsyslog_conf": str(node.root / RSYSLOG),
        "__gpu_log_shipping_systemd": str(node.root / "systemd"),
    }
    return dict(known, **given)


def play(node, *options, **given):
    return node.play("gpu_log_shipping", *options, **variables_of(node, **given))


def files(node):
    paths = (path for path in pathlib.Path(str(node.root)).rglob("*.conf") if path.is_file())
    return {str(path.relative_to(node.root)): path.read_text(encoding="utf-8") for path in paths}


def acted(node):
    """What systemctl was asked since the last time."""
    found = [line for line in node.log if line != "daemon-reload"]
    node.services(log=[])
    return found


def test_set_up_changed_to_another_method_and_removed(node):
    with contextlib.closing(socket.socket()) as host:
        host.bind(("127.0.0.1", 0))
        host.listen()
        port = host.getsockname()[1]
        foreseen = play(node, "--check", "--diff", gpu_log_shipping_port=port)
        assert (foreseen.rc, files(node)) == (0, {}) and foreseen.changed >= 3, foreseen.output
        assert "$msg contains" in foreseen.output and "SystemMaxUse=2G" in foreseen.output and acted(node) == []
        done = play(node, gpu_log_shipping_port=port)
        assert done.rc == 0 and "does not answer" not in done.words, done.output
        assert set(files(node)) == {JOURNALD, RSYSLOG}
        assert "ForwardToSyslog=yes" in files(node)[JOURNALD]
        assert acted(node) == ["restart " + JOURNALD_UNIT, "restart " + RSYSLOG_UNIT]
        again = play(node, gpu_log_shipping_port=port)
        assert (again.rc, again.changed, acted(node)) == (0, 0, []), again.output

    other = play(node, gpu_log_shipping_method="journal_upload", gpu_log_shipping_port=port)
    assert other.rc == 0 and "does not answer at port %d" % port in other.words, other.output
    assert set(files(node)) == {JOURNALD, UPLOAD, UPLOAD_UNIT}
    assert "URL=http://127.0.0.1:%d\n" % port in files(node)[UPLOAD] and "Forward" not in files(node)[JOURNALD]
    assert acted(node) == ["restart " + JOURNALD_UNIT, "restart " + RSYSLOG_UNIT, "start " + SENDER, "enable " + SENDER]

    gone = play(node, gpu_log_shipping_state="absent", gpu_log_shipping_host="")
    assert (gone.rc, files(node)) == (0, {}), gone.output
    assert sorted(acted(node)) == ["disable " + SENDER, "restart " + JOURNALD_UNIT, "stop " + SENDER]
    again = play(node, gpu_log_shipping_state="absent", gpu_log_shipping_host="")
    assert (again.rc, again.changed, acted(node)) == (0, 0, []), again.output


def test_what_rsyslog_refuses_leaves_the_old_file(node):
    old = pathlib.Path(str(node.root)) / RSYSLOG
    old.write_text("# old\n", encoding="utf-8")
    done = play(node, __gpu_log_shipping_queue_lines="many")
    assert done.rc != 0 and "failed to validate" in done.words, done.output
    assert old.read_text(encoding="utf-8") == "# old\n" and acted(node) == []


REFUSED = [
    ({"gpu_log_shipping_host": ""}, "gpu_log_shipping_host is empty"),
    ({"gpu_log_shipping_programs": ["ss'hd"]}, "expected texts without quotes"),
    ({"gpu_log_shipping_kernel_patterns": ["NVRM\n"]}, "expected texts without quotes"),
    ({"gpu_log_shipping_queue_size": "1 GB"}, "gpu_log_shipping_queue_size is 1 GB, expected such as 1g"),
    ({"gpu_log_shipping_port": 70000}, "gpu_log_shipping_port is 70000"),
    ({"gpu_log_shipping_kernel_patterns": [], "gpu_log_shipping_programs": []}, "no line would be sent"),
    ({"gpu_log_shipping_protocol": "tls"}, "gpu_log_shipping_ca_file not given"),
    (
        {"gpu_log_shipping_protocol": "tls", "gpu_log_shipping_ca_file": "/nowhere/ca.pem"},
        "/nowhere/ca.pem (gpu_log_shipping_ca_file) is not there",
    ),
    (
        {
            "gpu_log_shipping_protocol": "tls",
            "gpu_log_shipping_method": "journal_upload",
            "gpu_log_shipping_ca_file": "/ca.pem",
        },
        "gpu_log_shipping_cert_file, gpu_log_shipping_key_file not given",
    ),
]


def test_what_cannot_be_shipped_is_refused(node):
    cases = [[node.include("gpu_log_shipping", **variables_of(node, **given))] for given, dummy in REFUSED]
    reasons, result = node.cases(*cases)
    for (given, words), reason in zip(REFUSED, reasons):
        assert words in reason and "Nothing was changed." in reason, (given, result.output)
    assert files(node) == {} and acted(node) == []


@pytest.mark.parametrize("mode, fine", [(0o600, True), (0o640, True), (0o644, False), (0o660, False)])
def test_a_key_that_others_can_read_is_refused(node, tmp_path, mode, fine):
    made = log_daemons.certificates(tmp_path, "node.example")["node.example"]
    pathlib.Path(made["key"]).chmod(mode)
    paths = {"gpu_log_shipping_%s_file" % name: path for name, path in made.items()}
    done = play(node, gpu_log_shipping_protocol="tls", gpu_log_shipping_port=free_port(), **paths)
    assert (done.rc == 0) is fine, done.output
    written = files(node)
    assert (RSYSLOG in written) is fine
    if fine:
        assert 'StreamDriver.KeyFile="%s"' % made["key"] in written[RSYSLOG]
        assert "PRIVATE KEY" not in "".join(written.values())
    else:
        assert "expected root and 0600" in done.words


def test_the_upload_reads_copies_of_the_files_and_is_started_for_ever():
    files_of = {"gpu_log_shipping_%s_file" % name: "/etc/tls/%s.pem" % name for name in ("ca", "cert", "key")}
    role = Role("gpu_log_shipping", gpu_log_shipping_method="journal_upload", gpu_log_shipping_host="logs", **files_of)
    unit, settings = role.render("journal-upload-unit.conf.j2"), role.render("journal-upload.conf.j2")
    for name in ("ca", "cert", "key"):
        assert "LoadCredential=%s.pem:/etc/tls/%s.pem\n" % (name, name) in unit
        assert "=/run/credentials/systemd-journal-upload.service/%s.pem\n" % name in settings
    assert "URL=https://logs:19532\n" in settings
    assert "StartLimitIntervalSec=0" in unit and "Restart=always" in unit
    assert role["__gpu_log_shipping_packages"] == ["systemd-journal-remote"]


@pytest.mark.parametrize(
    "given, packages, port",
    [
        ({}, ["rsyslog", "rsyslog-gnutls"], 6514),
        ({"gpu_log_shipping_protocol": "tcp"}, ["rsyslog"], 514),
        ({"gpu_log_shipping_port": 1514}, ["rsyslog", "rsyslog-gnutls"], 1514),
    ],
)
def test_packages_and_port_follow_the_protocol(given, packages, port):
    role = Role("gpu_log_shipping", gpu_log_shipping_host="logs", **given)
    assert role["__gpu_log_shipping_packages"] == packages
    assert 'port="%d"' % port in role.render("rsyslog.conf.j2")
