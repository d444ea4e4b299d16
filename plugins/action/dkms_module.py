# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module dkms_module, and brings it the archives of the controller that save the node a compilation."""

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import trees

MODULE = "gpufleet.lifecycle.dkms_module"
SUFFIX = ".dkms.tar.gz"
# Where archives lie on the node while it uses them. Nobody but root writes there, and a private copy of each is what is looked into.
NODE_DIRECTORY = "/var/lib/gpufleet/dkms-transfer"


def offered(directory, version):
    """Names of the archives of a version; the digest is written last, so that an archive with it is whole."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [name for name in names if name.endswith(SUFFIX) and "_%s_" % (version,) in name and name + ".sha256" in names]


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        for option in ("archives_offered", "archives_sources"):
            if option in args:
                raise AnsibleActionFail("%s: set by the action plugin, not by a playbook; remove it from the task" % option)
        given = args.pop("archive_dir", None)
        if not given:
            return dict(result, **self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars))
        node = (task_vars or {}).get("inventory_hostname")
        if args.get("state", "built") != "built" or args.get("import_files"):
            raise AnsibleActionFail("%s: archive_dir goes with state=built and without import_files" % (node,))
        directory = os.path.expanduser(os.path.expandvars(str(given)))
        try:
            names = offered(directory, args.get("version"))
        except OSError as exc:
            raise AnsibleActionFail("%s: the directory %s (archive_dir) on the controller cannot be read: %s" % (node, directory, exc.strerror)) from exc
        offer = {"archives_offered": names} if names else {}
        sources = dict((name, found) for name, found in ((name, trees.source_of(os.path.join(directory, name))) for name in names) if found)
        offer.update({"archives_sources": sources} if sources else {})
        answer = self._execute_module(module_name=MODULE, module_args=dict(args, **offer), task_vars=task_vars)
        if answer.get("failed") or not answer.get("needs_archives"):
            return dict(result, **answer)
        warnings = list(answer.get("warnings") or [])
        answer = self.with_archives([os.path.join(directory, name) for name in answer["needs_archives"]], args, task_vars)
        if warnings:
            answer["warnings"] = warnings + list(answer.get("warnings") or [])
        return dict(result, **answer)

    def with_archives(self, paths, args, task_vars):
        """The module's answer when it has these files of the controller; they are not left on the node."""
        made = self.file(task_vars, state="directory", owner="root", group="root", mode="0755")
        try:
            for path in [] if made.get("failed") else [path + end for path in paths for end in ("", ".sha256")]:
                made = self.copy(path, task_vars)
                if made.get("failed"):
                    break
            if made.get("failed"):
                return dict(made, msg="%s: the archives could not be brought to %s: %s" % (
                    task_vars["inventory_hostname"], NODE_DIRECTORY, made.get("msg")))
            there = [os.path.join(NODE_DIRECTORY, os.path.basename(path)) for path in paths]
            return self._execute_module(module_name=MODULE, module_args=dict(args, import_files=there), task_vars=task_vars)
        finally:
            self.file(task_vars, state="absent")

    def file(self, task_vars, **options):
        return self._execute_module(module_name="ansible.legacy.file", module_args=dict(options, path=NODE_DIRECTORY), task_vars=task_vars)

    def copy(self, path, task_vars):
        task = self._task.copy()
        task.args = {"src": path, "dest": NODE_DIRECTORY + "/", "owner": "root", "group": "root", "mode": "0644"}
        action = self._shared_loader_obj.action_loader.get(
            "ansible.legacy.copy", task=task, connection=self._connection, play_context=self._play_context, loader=self._loader, templar=self._templar,
            shared_loader_obj=self._shared_loader_obj)
        return action.run(task_vars=task_vars)
