# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm asked by its commands, over ssh, by URL and from a file; each way in which the place gives no answer."""

from __future__ import annotations

import json
import os

import pytest

pytest.importorskip("ansible", reason="slurmrestd is asked with Ansible's own client")

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import hosts, sources
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm import answers
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils import webserver

pytestmark = pytest.mark.cores

TEXT = answers.DRAINING + answers.REBOOTING
SECRET = "eyJ0.of-the-test"


class Login:
    """A machine with Slurm's commands; SAYS: what each of them answers."""

    def __init__(self, **says):
        self.says = dict({"scontrol": (0, TEXT, ""), "sinfo": (0, "n1\nn1\nn2\n", "")}, **says)
        self.calls = []

    def __call__(self, words, timeout):
        self.calls.append(words)
        line = " ".join(words)
        return next(answer for name, answer in self.says.items() if name in line)


def names(answer):
    found, asked = answer
    assert asked
    return [record["name"] for record in found]


def test_the_commands_are_asked_for_all_nodes_those_in_hidden_partitions_too():
    login = Login()
    assert names(sources.by_commands(run=login)) == ["n1", "n2"]
    assert login.calls == [
        ["scontrol", "--all", "show", "node"],
        ["sinfo", "--all", "--noheader", "--Node", "--format=%N"],
    ]


def test_ssh_asks_no_question_and_the_remote_shell_gets_quoted_words():
    login = Login()
    assert names(sources.by_commands("ops@login", ["-i", "/k"], "/opt/slurm/bin", run=login)) == ["n1", "n2"]
    words = login.calls[0]
    assert words[0] == "ssh" and "BatchMode=yes" in words and words[-4:-1] == ["/k", "ops@login", "--"]
    assert words[-1].endswith("scontrol --all show node") and "PATH=/opt/slurm/bin:" in words[-1]


def test_notice_beside_the_nodes_is_a_warning(monkeypatch):
    told = []
    monkeypatch.setattr(sources.display, "warning", told.append)
    notice = "scontrol: error: Ignoring ControlMachine since SlurmctldHost is set.\n"
    assert names(sources.by_commands("login", run=Login(scontrol=(0, TEXT, notice)))) == ["n1", "n2"]
    assert len(told) == 1 and notice.strip() in told[0]


SILENT = {
    "no scontrol": {"scontrol": (127, "", "scontrol: command not found")},
    "slurmctld is away": {"scontrol": answers.AWAY},
    "munge": {"scontrol": answers.NO_MUNGE},
    "no configuration": {"scontrol": answers.NO_CONFIG},
    "nothing": {"scontrol": (0, "", "")},
    "no nodes": {"scontrol": (0, "No nodes in the system\n", "")},
    "half": {"scontrol": (0, TEXT[:-20], "")},
    "sinfo fails": {"sinfo": (1, "", "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n")},
    "sinfo knows more": {"sinfo": (0, "n1\nn9\n", "")},
}


@pytest.mark.parametrize("says", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("host", ["", "login"])
def test_commands_that_give_no_whole_answer_are_a_problem_that_names_the_machine(says, host):
    with pytest.raises(hosts.InventoryProblem, match="scontrol on %s" % (host or "the controller")):
        sources.by_commands(host, run=Login(**says))


@pytest.mark.parametrize(
    "answer",
    [
        (255, "", "ops@login: Permission denied (publickey).\n"),
        (255, "", "ssh: connect to host login port 22: Connection refused\n"),
        (124, "", "\nssh: still running after 60 s, killed"),
        (127, "", "ssh: command not found"),
    ],
)
def test_ssh_that_does_not_get_there_is_not_taken_for_slurm(answer):
    with pytest.raises(hosts.InventoryProblem, match="ssh") as caught:
        sources.by_commands("login", run=Login(ssh=answer, scontrol=answer))
    assert "slurmctld" not in str(caught.value)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "$(x)"])
def test_a_destination_that_is_none_reaches_no_ssh(host):
    login = Login()
    with pytest.raises(hosts.InventoryProblem, match="ssh_host"):
        sources.by_commands(host, run=login)
    assert login.calls == []


@pytest.fixture
def server():
    one = webserver.Server()
    one.start()
    yield one
    one.stop()


def url(server):
    return "http://127.0.0.1:%d/slurm/v0.0.40/nodes" % server.port


def test_slurmrestd_is_asked_with_user_and_token(server):
    server.answer = lambda number: (200, answers.JSON_23.encode(), {})
    assert names(sources.by_url(url(server), "kim", SECRET, 10)) == ["n1"]
    path, headers, dummy = server.requests[0]
    sent = {name.lower(): value for name, value in headers.items()}
    assert (path, sent["x-slurm-user-name"], sent["x-slurm-user-token"]) == ("/slurm/v0.0.40/nodes", "kim", SECRET)


def test_a_large_cluster_fits(server):
    one = json.loads(answers.JSON_23)["nodes"][0]
    many = json.dumps({"nodes": [dict(one, name="n%d" % number, comment="x" * 400) for number in range(3000)]})
    assert len(many) > sources._web.LARGEST
    server.answer = lambda number: (200, many.encode(), {})
    assert len(names(sources.by_url(url(server), "", "", 60))) == 3000


@pytest.mark.parametrize(
    "answer",
    [
        (401, b"", {}),
        (403, b"", {}),
        (404, b"", {}),
        (500, b"", {}),
        (302, b"", {"Location": "/"}),
        (204, b"", {}),
        (200, b"", {}),
        (200, b"<html>", {}),
        (200, b"{}", {}),
        (200, b'{"nodes": []', {}),
        "cut",
    ],
)
def test_slurmrestd_that_gives_no_whole_answer_is_a_problem_without_the_token(server, answer):
    server.answer = lambda number: answer
    with pytest.raises(hosts.InventoryProblem, match="slurmrestd at 127.0.0.1:%d" % server.port) as caught:
        sources.by_url(url(server), "kim", SECRET, 10)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("wrong", ["slurm.example.com", "ftp://x/nodes", "http://kim:secret@x/nodes"])
def test_a_url_that_cannot_be_used_is_refused(wrong):
    with pytest.raises(hosts.InventoryProblem, match="url cannot be used") as caught:
        sources.by_url(wrong, "", "", 1)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("age, most, well", [(10, 60, True), (61, 60, False), (10**6, 0, True)])
def test_a_file_is_used_as_long_as_it_is_young(tmp_path, age, most, well):
    path = tmp_path / "nodes.txt"
    path.write_text(TEXT)
    os.utime(path, (1000, 1000))
    if well:
        assert names(sources.by_file(str(path), most, now=1000 + age)) == ["n1", "n2"]
    else:
        with pytest.raises(hosts.InventoryProblem, match="file_max_age"):
            sources.by_file(str(path), most, now=1000 + age)


def test_a_file_that_is_not_there_is_a_problem(tmp_path):
    with pytest.raises(hosts.InventoryProblem, match="the file"):
        sources.by_file(str(tmp_path / "nodes.txt"), 60)


@pytest.mark.parametrize("user, token", [("kim", SECRET + "\n"), ("kim", SECRET + "\nX: y"), ("kim\n", SECRET)])
def test_token_that_cannot_be_sent_is_refused_unsent_and_unseen(server, user, token):
    with pytest.raises(hosts.InventoryProblem) as caught:
        sources.by_url(url(server), user, token, 10)
    assert SECRET not in str(caught.value) and "X-SLURM-USER" in str(caught.value) and not server.requests


def test_server_that_repeats_the_token_does_not_make_it_known(server):
    said = json.dumps({"errors": [{"description": "who is %s \x1b[2K" % SECRET}]})
    server.answer = lambda number: (200, said.encode(), {})
    with pytest.raises(hosts.InventoryProblem) as caught:
        sources.by_url(url(server), "kim", SECRET, 10)
    assert SECRET not in str(caught.value) and str(caught.value).isprintable()
    assert caught.value.__context__ is None or caught.value.__suppress_context__
