# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places that Slurm's answer comes from: its commands here or over ssh, slurmrestd, or a file that was saved."""

from __future__ import annotations

import os
import re
import shlex
import time
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import runner as processes
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import commands
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import slurm
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory.hosts import InventoryProblem
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

LARGEST = 256 << 20  # 10,000 nodes are some 40 MiB of slurmrestd's JSON
SSH_CONNECT_S = 15
DESTINATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*")
Answer = t.Tuple[t.List[slurm.Record], str]  # the nodes, and who was asked in words
HERE = "Set ssh_host, url or file if Slurm's commands are elsewhere."


class OverSsh:
    """Runs commands on another machine; called as a Runner."""

    def __init__(
        self, host: str, args: t.Sequence[str] = (), bin_dir: str = "", run: t.Optional[t.Callable] = None
    ) -> None:
        if not DESTINATION.fullmatch(host):
            raise InventoryProblem("ssh_host is %r; expected a host, or user@host. Correct it." % (host,))
        self.host, self.args, self.run = host, list(args), run or processes.Runner()
        path = "%s:%s" % (bin_dir, processes.SEARCH_PATH) if bin_dir else processes.SEARCH_PATH
        self.env = ["env", "LC_ALL=C", "SLURM_TIME_FORMAT=standard", "PATH=" + path]

    def __call__(self, words: t.Sequence[str], timeout: int) -> t.Tuple[int, str, str]:
        remote = " ".join(shlex.quote(word) for word in self.env + list(words))
        options = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=%d" % SSH_CONNECT_S]
        code, out, err = self.run(["ssh", *options, *self.args, self.host, "--", remote], timeout)
        if processes.missing(code) and err.startswith("ssh:"):
            raise InventoryProblem(
                "There is no ssh on the controller to ask %s with (ssh_host). Install openssh-client, or set url or "
                "file." % self.host
            )
        if code in (255, processes.RC_TIMEOUT):
            raise InventoryProblem(
                "ssh does not get to %s (ssh_host): %s. See whether 'ssh %s true' works for this user without a "
                "question." % (self.host, " ".join(err.split())[-300:] or "no reason given", self.host)
            )
        return code, out, err


def by_commands(
    ssh_host: str = "", ssh_args: t.Sequence[str] = (), bin_dir: str = "", run: t.Optional[t.Callable] = None
) -> Answer:
    """The nodes that scontrol names, none of which sinfo knows and scontrol does not."""
    asked = "scontrol on %s" % (ssh_host or "the controller")
    over = OverSsh(ssh_host, ssh_args, bin_dir, run) if ssh_host else run
    cluster = commands.Slurm(over, bin_dir or None, host=ssh_host or "the controller")
    try:
        found = slurm.parse(cluster.all_nodes(), asked)
        slurm.require_whole(found, cluster.members(), asked)
    except commands.SlurmError as exc:
        raise InventoryProblem("%s gave no nodes. %s%s" % (asked, exc, "" if ssh_host else " " + HERE)) from exc
    for notice in cluster.notices:
        display.warning("%s printed a notice: %s" % (asked, redaction.redact(notice)))
    return found, asked


def by_url(url: str, user: str, token: str, timeout_s: int) -> Answer:
    """The nodes that slurmrestd names."""
    wrong = _web.complaint(url)
    if wrong:
        raise InventoryProblem(
            "url cannot be used: %s. Expected such as https://slurm.example.com:6820/slurm/v0.0.40/nodes." % wrong
        )
    asked = "slurmrestd at %s" % _web.place(url)
    headers = {"Accept": "application/json"}
    headers.update(
        {name: value for name, value in (("X-SLURM-USER-NAME", user), ("X-SLURM-USER-TOKEN", token)) if value}
    )
    try:
        answer = _web.request(url, timeout_s, headers=headers, largest=LARGEST)
    except _web.WebError as exc:
        raise InventoryProblem(
            "%s gave no nodes: %s. See whether it runs and can be reached from the controller." % (asked, exc)
        ) from exc
    if answer.status != 200:
        hint = {
            401: "The token is missing, wrong or expired: scontrol token makes one (SLURM_JWT).",
            404: "The path or the version of its API is another one: correct url.",
        }
        why = hint.get(answer.status, "Look at the log of slurmrestd.")
        raise InventoryProblem("%s answered %d; expected 200. %s" % (asked, answer.status, why))
    try:
        return slurm.parse(answer.body.decode("utf-8", "replace"), asked), asked
    except InventoryProblem as exc:
        # A server may repeat what it was sent.
        raise InventoryProblem(redaction.redact(exc, [token], 1000)) from None


def by_file(path: str, max_age_s: int, now: t.Optional[float] = None) -> Answer:
    """The nodes of an answer that was saved, not longer ago than is allowed."""
    asked = "the file %s" % path
    try:
        with open(path, encoding="utf-8", errors="replace") as opened:
            age = (time.time() if now is None else now) - os.fstat(opened.fileno()).st_mtime
            text = opened.read()
    except OSError as exc:
        raise InventoryProblem(
            "%s cannot be read: %s. Save an answer there: scontrol --all show node > %s" % (asked, exc.strerror, path)
        ) from exc
    if max_age_s and age > max_age_s:
        raise InventoryProblem(
            "%s is %d s old; expected at most %d s (file_max_age). Save it again, or raise file_max_age."
            % (asked, age, max_age_s)
        )
    return slurm.parse(text, asked), asked
