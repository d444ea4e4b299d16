# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module dkms_module, brings it the archives of the controller that save the node a compilation, and keeps
what it compiles for the others.
"""

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _archives, _controller, _host_answers
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives import (
    ArchiveError,
    Claims,
    Record,
    receive,
    send,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import StoreError
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._node_action import Background, NodeActionBase
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result, display

MODULE = "gpufleet.lifecycle.dkms_module"
STATES = ("built", "prepared")
BUILD_TIMEOUT_S = 3600
LOCK_TIMEOUT_S = 600
# Answers whose time a call that changes something without compiling, or one archive on its way, has at most.
WORK = 4


class ActionModule(NodeActionBase):
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars)
        _controller.require()
        args = dict(self._task.args)
        # What compiles goes on where the connection breaks. What only asks, or takes what is there, is over sooner than
        # a job begins.
        self.background = Background(self)
        for name in ("archives_offered", "archives_sources", "asked"):
            if name in args:
                raise AnsibleActionFail(
                    "%s: set by the action plugin, not by a playbook; remove it from the task" % (name,)
                )
        given, url = args.pop("archive_dir", None), args.pop("ledger", None)
        self.builds = boolean(args.pop("builder", None) or False, strict=False)
        if not given:
            return clean_result(dict(result, **self.background.run(MODULE, args, task_vars)))
        self.node = (task_vars or {}).get("inventory_hostname")
        self.answer_s = _controller.answer_timeout(self, task_vars)
        if args.get("state", "built") not in STATES or args.get("import_files"):
            raise AnsibleActionFail(
                "%s: archive_dir goes with state=%s and without import_files" % (self.node, " or ".join(STATES))
            )
        directory = os.path.expanduser(os.path.expandvars(str(given)))
        try:
            self.record = Record(url, directory, _archives.builders_agree(self, task_vars))
            return clean_result(dict(result, **self.with_directory(directory, args, task_vars)))
        except StoreError as exc:
            raise AnsibleActionFail("%s: %s" % (self.node, exc)) from exc
        except ArchiveError as exc:
            raise AnsibleActionFail(
                "%s: the directory %s (archive_dir) on the controller %s" % (self.node, directory, exc)
            ) from exc
        except _host_answers.AnswerError as exc:
            raise AnsibleActionFail(
                "%s: its answer to dkms_module cannot be used: %s. Nothing was sent or compiled. Examine the node."
                % (self.node, exc)
            ) from exc

    def with_directory(self, directory, args, task_vars) -> dict:
        """Ask the node what it needs, have at most one node compile a missing archive, bring the others, and run the
        module.
        """
        version = str(args.get("version") or "")
        store = args.get("store_dir") or tree_archives.STORE
        offer = self.offer(directory, version)
        before = dict((name, self.stamp(directory, name)) for name in offer["archives_offered"])
        answer = self.module(dict(args, **offer), task_vars)
        if answer.get("failed") or self._task.check_mode:
            return answer
        needs = _host_answers.check_names(
            answer.get("needs_archives"), [version], offer["archives_offered"], "needs_archives"
        )
        compiles = _host_answers.check_names(answer.get("compiles"), [version], what="compiles")
        if not (needs or compiles):
            return answer
        warnings = list(answer.get("warnings") or [])
        # What the controller has already, of other source, is not replaced: no other node waits for it.
        claimed = [name for name in compiles if not tree_archives.read_whole_digest(os.path.join(directory, name))]
        with Claims(
            directory,
            claimed,
            self.node,
            int(args.get("build_timeout_s") or BUILD_TIMEOUT_S),
            self.tell,
            _controller.pause,
            take=self.builds,
        ) as claims:
            offer = self.offer(directory, version)
            # What another node compiled meanwhile. Whether it is of the right source the node sees.
            arrived = set(
                name
                for name in claimed
                if name in offer["archives_offered"] and self.stamp(directory, name) != before.get(name)
            )
            needed = sorted(set(needs) | arrived)
            failed = self.bring(directory, needed, store, task_vars)
            if failed:
                return failed
            answer = self.background.run(MODULE, dict(args, asked=True, **offer), task_vars)
            warnings += list(answer.get("warnings") or [])
            if self.builds:
                warnings += self.keep(directory, version, compiles, claims.held, answer.get("compiled"), store)
        if warnings:
            answer["warnings"] = warnings
        if needed and not answer.get("failed") and args.get("state") == "prepared":
            answer["changed"] = True
        return dict(answer, received=needed, waited_for=claims.waited_for)

    def module(self, args, task_vars) -> dict:
        """Ask the node what it needs. Where it needs nothing it does the work at once, which compiles nothing."""
        seconds = WORK * self.answer_s + int(args.get("lock_timeout_s") or LOCK_TIMEOUT_S)
        with _controller.limit(seconds, self.node):
            return self.run_module(MODULE, args, task_vars)

    def tell(self, holder) -> None:
        display.display("%s: waits for the module that node %s compiles" % (self.node, holder), stderr=True)

    def offer(self, directory, version) -> dict:
        """Return the options about the directory for the node."""
        names = self.record.list_offered(directory, version)
        sources = dict(
            (name, found)
            for name, found in ((name, tree_archives.read_source(os.path.join(directory, name))) for name in names)
            if found
        )
        return dict({"archives_offered": names}, **({"archives_sources": sources} if sources else {}))

    @staticmethod
    def stamp(directory, name) -> int | None:
        """Tells an archive from one of the same name that took its place."""
        try:
            return os.stat(os.path.join(directory, name + ".sha256")).st_mtime_ns
        except OSError:
            return None

    def bring(self, directory, names, store, task_vars) -> dict | None:
        """Send archives, each before its digest; answers the failure, if one."""
        if not names:
            return None
        made = send(self, directory, names, store, {"owner": "root", "group": "root"}, task_vars)
        if not made.get("failed"):
            return None
        return dict(made, msg="%s: the archives could not be brought to %s: %s" % (self.node, store, made.get("msg")))

    def keep(self, directory, version, compiles, held, compiled, store) -> list[str]:
        """Bring home what was compiled; answers warnings, for the node itself is well without it.

        COMPILES: the archives that the node said it would compile. HELD: those of them that no other node compiles.
        """
        try:
            archives = _host_answers.check_archives(compiled, [version], compiles, "compiled")
        except _host_answers.AnswerError as exc:
            return [self.not_kept("an archive", directory, exc)]
        warnings = []
        for archive in archives:
            # Where the controller said that archives lie, whatever path the node answered.
            path = os.path.join(store, archive.name)
            if archive.name not in held and not tree_archives.read_whole_digest(os.path.join(directory, archive.name)):
                continue
            try:
                with _controller.limit(WORK * self.answer_s, self.node):
                    receive(
                        directory,
                        archive,
                        lambda target, path=path: self._connection.fetch_file(path, target),
                        lambda place, archive=archive: self.record.add(self.node, archive, place),
                        compare=self.record.agree > 1,
                    )
            except (ArchiveError, AnsibleError, OSError) as exc:
                warnings.append(self.not_kept(path, directory, exc))
        return warnings

    def not_kept(self, what, directory, why) -> str:
        return (
            "%s: %s was compiled and could not be brought to %s on the controller, so that other nodes compile too: %s"
            % (self.node, what, directory, redaction.describe(why))
        )
