# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exchange compiled kernel modules between the controller and the host that the task is delegated to."""

from __future__ import annotations

import os

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.versions import upstream
from ansible_collections.gpufleet.lifecycle.plugins.modules.dkms_archives import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller, _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives import (
    ArchiveError,
    Claims,
    Record,
    builders_agree,
    receive,
    send,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import StoreError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import NodeActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result, display

MODULE = "gpufleet.lifecycle.dkms_archives"
# Seconds to wait for another node of this controller that compiles or fetches the same archive.
TIMEOUT_S = 3600


class ActionModule(NodeActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        self.node = str((task_vars or {}).get("inventory_hostname") or "localhost")
        self.host = str(self._task.delegate_to or self.node)
        directory = os.path.expanduser(os.path.expandvars(str(args["directory"])))
        path = str(self._task.args.get("path") or self._task.args["directory"])  # its ~ is the home over there
        agree = builders_agree(self, task_vars)
        result.update(changed=False, fetched=[], stored=[], archives=[])
        try:
            result["archives"] = there = self.read_archives(
                {"directory": args["directory"], "versions": args["versions"], "path": path}, task_vars
            )
            lacking = tree_archives.find_lacking(there, self.describe_archives(directory, args["versions"]))
            self.fetch(directory, path, Record(args["ledger"], directory, agree).choose(lacking), result)
            here = self.describe_archives(directory, args["versions"])
            self.store(directory, path, tree_archives.find_lacking(here, there), result, task_vars)
        except (ArchiveError, StoreError, AnsibleError, OSError) as exc:
            result["warnings"] = [
                "The modules for driver %s were not exchanged with the artifact host %s: %s. Nodes of other "
                "controllers compile them too." % (", ".join(args["versions"]), self.host, exc)
            ]
        result["changed"] = bool(result["fetched"] or result["stored"])
        return clean_result(result)

    def read_archives(self, args, task_vars) -> list[dict]:
        try:
            answer = self.run_module(MODULE, args, task_vars)
        except AnsibleConnectionFailure as exc:
            raise ArchiveError("it cannot be reached (%s)" % (redaction.describe(exc),)) from None
        if answer.get("failed") or "archives" not in answer:
            raise ArchiveError(answer.get("msg") or "it gave no answer")
        try:
            versions = [upstream(version) for version in args["versions"]]
            archives = _host_answers.check_archives(answer["archives"], versions)
        except _host_answers.AnswerError as exc:
            raise ArchiveError("its answer cannot be used: %s" % exc) from exc
        return [archive._asdict() for archive in archives]

    @staticmethod
    def describe_archives(directory, versions) -> list[dict]:
        try:
            return tree_archives.describe_archives(directory, versions)
        except OSError as exc:
            raise ArchiveError("%s on the controller cannot be read: %s" % (directory, exc.strerror)) from exc

    def fetch(self, directory, path, archives, result) -> None:
        """Bring archives to the controller, one node at a time."""
        for item in archives:
            name = item["name"]
            if self._task.check_mode:
                result["fetched"].append(name)
                continue
            os.makedirs(directory, exist_ok=True)
            with Claims(directory, [name], self.node, TIMEOUT_S, self.tell, _controller.pause) as claims:
                if name not in claims.held or os.path.exists(os.path.join(directory, name + ".sha256")):
                    continue  # another node of this controller brought it meanwhile
                receive(
                    directory,
                    _host_answers.Archive(**item),
                    lambda target, name=name: self._connection.fetch_file(os.path.join(path, name), target),
                )
            result["fetched"].append(name)

    def store(self, directory, path, archives, result, task_vars) -> None:
        """Bring archives to the host."""
        names = [item["name"] for item in archives]
        if names and not self._task.check_mode:
            made = send(self, directory, names, path, {}, task_vars)
            if made.get("failed"):
                raise ArchiveError(made.get("msg") or "%s cannot be written" % path)
        result["stored"] = names

    def tell(self, holder) -> None:
        display.display("%s: waits for the module that node %s compiles or brings" % (self.node, holder), stderr=True)
