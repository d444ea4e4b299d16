# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a node arrive at a real rsyslogd and a real systemd-journal-remote, with the files that the role writes."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

pytest.importorskip("ansible.template", reason="the files are rendered by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring.servers import free_port, until
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import log_daemons
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import Role

pytestmark = pytest.mark.slow

KERNEL, USER, AUTH, AUTHPRIV = 0, 1, 4, 10
SENT = [
    (KERNEL, "kernel", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."),
    (KERNEL, "kernel", "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
    (KERNEL, "kernel", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.261.03"),
    (KERNEL, "kernel", "nvidia 0000:3b:00.0: enabling device (0000 -> 0002)"),
    (AUTH, "sshd[811]", "Accepted publickey for alice from 10.0.0.9 port 40022 ssh2"),
    (AUTHPRIV, "sshd-session[812]", "pam_unix(sshd:session): session opened for user alice(uid=1000)"),
    (AUTHPRIV, "sudo[900]", "alice : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/usr/bin/nvidia-smi -r"),
]
KEPT = [
    (KERNEL, "kernel", "EXT4-fs (sda1): mounted filesystem with ordered data mode"),
    (KERNEL, "kernel", "mlx5_core 0000:9a:00.0: Port module event: module 0, Cable unplugged"),
    (USER, "kernel", "NVRM: Xid (PCI:0000:3b:00): 79, forged by a program"),
    (USER, "python3[77]", "the driver of nvidia is new"),
    (AUTH, "systemd-logind[5]", "New session 3 of user alice."),
]
LAST = (AUTH, "sudo", "the last line")


def role(host, **given):
    return Role(
        "gpu_log_shipping",
        gpu_log_shipping_host="127.0.0.1",
        gpu_log_shipping_port=host.port,
        **{"gpu_log_shipping_protocol": "tcp", "__gpu_log_shipping_retry": 1, **given},
    )


def node(base, host, **given):
    return log_daemons.Node(base / "node", role(host, **given).render("rsyslog.conf.j2"))


def named(lines):
    return [(program.partition("[")[0], text) for dummy, program, text in lines]


def arrived(host, text=LAST[2]):
    until(lambda: any(text in line for dummy, line in host.lines()), "%r has not arrived" % text)
    return host.lines()


def numbered(first, last):
    return [(KERNEL, "kernel", "NVRM: line %d" % number) for number in range(first, last)]


@pytest.fixture(name="host")
def _host(tmp_path):
    return log_daemons.Host(tmp_path / "host")


@pytest.mark.parametrize(
    "given, more",
    [
        ({}, []),
        ({"gpu_log_shipping_kernel_patterns": ["NVRM", "nvidia", "mlx5"]}, KEPT[1:2]),
        ({"gpu_log_shipping_programs": []}, None),
        ({"gpu_log_shipping_kernel_patterns": [], "gpu_log_shipping_programs": ["systemd-logind", "sudo"]}, None),
    ],
)
def test_the_chosen_lines_arrive_and_no_others(tmp_path, host, given, more):
    sent = node(tmp_path, host, **given)
    with host.running(), sent.running():
        last = (KERNEL, "kernel", "NVRM: " + LAST[2]) if given.get("gpu_log_shipping_programs") == [] else LAST
        sent.log(*SENT, *KEPT, last)
        found = arrived(host)
    if more is not None:
        assert sorted(found) == sorted(named([*SENT, *more, last]))
    elif given.get("gpu_log_shipping_kernel_patterns") == []:
        assert sorted(found) == sorted(named([SENT[6], KEPT[4], last]))
    else:
        assert sorted(found) == sorted(named([*SENT[:4], last]))
    assert all(text in sent.local() for dummy, text in named([*SENT, *KEPT])), (
        "they stay where they were written before"
    )


def test_a_host_that_is_away_blocks_nothing_and_nothing_is_lost(tmp_path, host):
    sent = node(tmp_path, host)
    with sent.running():
        with host.running():
            sent.log(*numbered(0, 10))
            arrived(host, "line 9")
        sent.log(*numbered(10, 3000))
        until(lambda: "line 2999" in sent.local(), "the other actions wait for a host that is away")
        with host.running():
            until(lambda: set(named(numbered(0, 3000))) <= set(host.lines()), "lines were lost")


def test_lines_wait_over_a_restart_of_the_node(tmp_path, host):
    """rsyslog itself may lose the one line that it has in its hands as it ends; the others are in the queue."""
    sent = node(tmp_path, host)
    with sent.running():
        sent.log(*numbered(0, 1000))
        until(lambda: "line 999" in sent.local(), "the other actions wait for a host that is away")
    assert any(name.startswith("gpufleet") for name in sent.queued())
    with host.running(), sent.running():
        until(lambda: set(named(numbered(1, 1000))) <= set(host.lines()), "lines were lost")


def test_what_finds_no_place_is_dropped_and_blocks_nothing(tmp_path, host):
    sent = node(tmp_path, host, gpu_log_shipping_queue_size="1m")
    text = "NVRM: " + "x" * 900
    with sent.running():
        sent.log(*((KERNEL, "kernel", "%s %d" % (text, number)) for number in range(3000)))
        until(lambda: "x 2999" in sent.local(), "the other actions wait for a host that is away")
        spool = sent.base / "spool"
        assert sum((spool / name).stat().st_size for name in sent.queued()) < 1.5 * 2**20


def test_lines_arrive_over_tls_at_the_host_of_that_name_alone(tmp_path):
    made = log_daemons.certificates(tmp_path, "logs.example", "node.example")
    host = log_daemons.Host(tmp_path / "host", made["logs.example"])
    mine = made["node.example"]
    files = {"gpu_log_shipping_%s_file" % name: path for name, path in mine.items()}
    tls = dict(files, gpu_log_shipping_protocol="tls")
    right = node(tmp_path / "right", host, gpu_log_shipping_peer="logs.example", **tls)
    wrong = node(tmp_path / "wrong", host, gpu_log_shipping_peer="other.example", **tls)
    with host.running():
        with wrong.running():
            wrong.log((AUTH, "sudo", "to the wrong host"))
            said = wrong.base / "rsyslogd.log"
            until(lambda: "not permitted" in said.read_text(encoding="utf-8"), "the name is not looked at")
        with right.running():
            right.log(LAST)
            found = arrived(host)
    assert found == [("sudo", LAST[2])]


def test_a_whole_journal_arrives(tmp_path):
    """systemd-journal-upload reads the file that the role writes in the place of /etc/systemd."""
    port = free_port()
    written = role(type("Port", (), {"port": port}), gpu_log_shipping_method="journal_upload")
    settings = tmp_path / "systemd/journal-upload.conf.d/60-gpufleet.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(written.render("journal-upload.conf.j2"), encoding="utf-8")
    for name in ("journal", "received"):
        (tmp_path / name).mkdir()
    exported = "".join(
        "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032x\nMESSAGE=%s\nSYSLOG_IDENTIFIER=%s\n\n"
        % (1700000000000000 + number, number + 1, 1, text, program)
        for number, (program, text) in enumerate(named([*SENT, *KEPT]))
    )
    remote, upload = (str(log_daemons.SYSTEMD / ("systemd-journal-" + name)) for name in ("remote", "upload"))
    journal = tmp_path / "journal/system.journal"
    subprocess.run([remote, "--output=%s" % journal, "-"], input=exported, text=True, check=True, capture_output=True)
    listening = [remote, "--listen-http=127.0.0.1:%d" % port, "--output=%s" % (tmp_path / "received")]
    sending = "mount --bind %s /etc/systemd && exec %s --directory=%s --save-state=%s" % (
        tmp_path / "systemd",
        upload,
        journal.parent,
        tmp_path / "state",
    )
    apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", sending]

    def received():
        command = ["journalctl", "--directory=%s" % (tmp_path / "received"), "--output=cat", "--quiet"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    with log_daemons.process(listening, tmp_path / "remote.log"), log_daemons.process(apart, tmp_path / "upload.log"):
        log = pathlib.Path(tmp_path / "upload.log")
        until(lambda: len(received()) >= len(SENT) + len(KEPT), "see %s" % log)
    assert received() == [text for dummy, text in named([*SENT, *KEPT])]
