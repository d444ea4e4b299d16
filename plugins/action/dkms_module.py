# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module dkms_module, brings it the archives of the controller that save the node a compilation, and keeps
what it compiles for the others.
"""

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import archive_store, digests, listing
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _background, _controller
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives import ArchiveError, Claims, receive, send
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import clean_result, display

MODULE = "gpufleet.lifecycle.dkms_module"
STATES = ("built", "prepared")
BUILD_TIMEOUT_S = 3600


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _controller.require()
        args = dict(self._task.args)
        # What compiles goes on where the connection breaks. What only asks, or takes what is there, is over sooner than
        # a job begins.
        self.background = _background.Background(self)
        for name in ("archives_offered", "archives_sources", "asked"):
            if name in args:
                raise AnsibleActionFail(
                    "%s: set by the action plugin, not by a playbook; remove it from the task" % (name,)
                )
        given = args.pop("archive_dir", None)
        if not given:
            return clean_result(dict(result, **self.background.run(MODULE, args, task_vars)))
        self.node = (task_vars or {}).get("inventory_hostname")
        if args.get("state", "built") not in STATES or args.get("import_files"):
            raise AnsibleActionFail(
                "%s: archive_dir goes with state=%s and without import_files" % (self.node, " or ".join(STATES))
            )
        directory = os.path.expanduser(os.path.expandvars(str(given)))
        try:
            return clean_result(dict(result, **self.with_directory(directory, args, task_vars)))
        except ArchiveError as exc:
            raise AnsibleActionFail(
                "%s: the directory %s (archive_dir) on the controller %s" % (self.node, directory, exc)
            ) from exc

    def with_directory(self, directory, args, task_vars):
        """Ask the node what it needs, have at most one node compile a missing archive, bring the others, and run the
        module.
        """
        version = args.get("version")
        offer = self.offer(directory, version)
        before = dict((name, self.stamp(directory, name)) for name in offer["archives_offered"])
        answer = self.module(dict(args, **offer), task_vars)
        if answer.get("failed") or not (answer.get("needs_archives") or answer.get("compiles")):
            return answer
        compiles, warnings = answer.get("compiles") or [], list(answer.get("warnings") or [])
        with Claims(
            directory,
            compiles,
            self.node,
            int(args.get("build_timeout_s") or BUILD_TIMEOUT_S),
            self.tell,
            _controller.pause,
        ) as claims:
            offer = self.offer(directory, version)
            # What another node compiled meanwhile. Whether it is of the right source the node sees.
            arrived = set(
                name
                for name in compiles
                if name in offer["archives_offered"] and self.stamp(directory, name) != before.get(name)
            )
            needed = sorted(set(answer.get("needs_archives") or []) | arrived)
            failed = self.bring(directory, needed, args.get("store_dir") or archive_store.STORE, task_vars)
            if failed:
                return failed
            answer = self.background.run(MODULE, dict(args, asked=True, **offer), task_vars)
            warnings += list(answer.get("warnings") or []) + self.keep(directory, answer.get("compiled") or [])
        if warnings:
            answer["warnings"] = warnings
        if needed and not answer.get("failed") and args.get("state") == "prepared":
            answer["changed"] = True
        return dict(answer, received=needed, waited_for=claims.waited_for)

    def module(self, args, task_vars):
        return self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)

    def tell(self, holder):
        display.display("%s: waits for the module that node %s compiles" % (self.node, holder))

    @staticmethod
    def offer(directory, version):
        """Return the options about the directory for the node."""
        try:
            names = listing.offered(directory, version)
        except OSError as exc:
            raise ArchiveError("cannot be read: %s" % (exc.strerror,)) from exc
        sources = dict(
            (name, found)
            for name, found in ((name, digests.source_of(os.path.join(directory, name))) for name in names)
            if found
        )
        return dict({"archives_offered": names}, **({"archives_sources": sources} if sources else {}))

    @staticmethod
    def stamp(directory, name):
        """Tells an archive from one of the same name that took its place."""
        try:
            return os.stat(os.path.join(directory, name + ".sha256")).st_mtime_ns
        except OSError:
            return None

    def bring(self, directory, names, store, task_vars):
        """Send archives, each before its digest; answers the failure, if one."""
        if not names:
            return None
        made = send(self, directory, names, store, {"owner": "root", "group": "root"}, task_vars)
        if not made.get("failed"):
            return None
        return dict(made, msg="%s: the archives could not be brought to %s: %s" % (self.node, store, made.get("msg")))

    def keep(self, directory, compiled):
        """Bring home what was compiled; answers warnings, for the node itself is well without it."""
        warnings = []
        for item in compiled:
            try:
                receive(directory, item, lambda path, item=item: self._connection.fetch_file(item["path"], path))
            except (ArchiveError, AnsibleError, OSError) as exc:
                warnings.append(
                    "%s: %s was compiled and could not be brought to %s on the controller, so that other "
                    "nodes compile too: %s" % (self.node, item["path"], directory, redaction.describe(exc))
                )
        return warnings
