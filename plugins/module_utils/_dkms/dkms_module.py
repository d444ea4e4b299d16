# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task of dkms_module: options in, the plan for the state they ask for, and its result."""

from __future__ import annotations

import contextlib
import os
import time

from .._kernel import kernels
from .._node import files, lock
from . import act, dkms, plan, tree_archives, trees
from .act import ActError, Tree
from .workshop import Workshop, refuse_without_room


def at_once(held, make) -> dict | None:
    """Return the result of a task that looks and acts in one go, where nothing else changes the node: its state is read
    once less.

    Else None.

    ``held`` is the node's lock, ``make`` makes the task for the lock's descriptor. Looking without the lock comes first
    only where it is not free.
    """
    try:
        held.acquire()
    except (lock.LockTimeout, PermissionError):
        return None
    try:
        if act.wait_for_others(time.monotonic()):
            return None
        result = make(held.fd).run()
    finally:
        held.release()
    return dict(result, lock_waited_s=held.waited_s if result["changed"] else None)


class DkmsModule:
    """Runs once: ``due()`` and ``preview()`` only read, ``run()`` changes. They decide by the same plan."""

    def __init__(self, params, runner, root="/", arch=None) -> None:
        self.params, self.runner, self.root = params, runner, root
        self.version, self.state = params["version"], params["state"]
        self.installed = kernels.find_installed(root)
        self.arch = arch

    def due(self) -> bool:
        """True when there is something to do or something to complain of: both are decided again under the lock."""
        try:
            return self.preview()["changed"]
        except (ActError, tree_archives.TreeError):
            return True

    def preview(self) -> dict:
        return self._go(acting=False)

    def run(self) -> dict:
        return self._go(acting=True)

    def _go(self, acting) -> dict:
        if self.state == "imported":
            return self._import(acting)
        name = self.params["name"] or self._only_name()
        if name is None:
            return self._result(None, [], {}, {}, False)
        return {"built": self._build, "absent": self._remove, "exported": self._export, "prepared": self._prepare}[
            self.state
        ](name, acting)

    # what the task is about

    def _only_name(self) -> str | None:
        names = act.find_names(self.root, self.version)
        if len(names) == 1:
            return names[0]
        if not names and self.state == "absent":
            return None
        if not names:
            raise ActError(
                "This node has no NVIDIA module of version %s: there is none in %s, and no source in /usr/src. "
                "Next step: install the driver's DKMS package of that version." % (self.version, dkms.TREE)
            )
        raise ActError(
            "This node has several NVIDIA modules of version %s: %s. Next step: say which one with the option 'name'."
            % (self.version, ", ".join(names))
        )

    def _tree(self, name) -> Tree:
        return Tree(name, self.version, self.runner, self.root, self.params["build_timeout_s"], self.arch)

    def _kernels(self) -> list[str]:
        wanted = self.params["kernels"]
        if wanted is None:
            if not self.installed:
                raise ActError(
                    "No kernel that can boot was found: nothing in /lib/modules has an image in /boot. Next step: "
                    "install a kernel, or name the kernels."
                )
            return list(self.installed)
        for kernel in wanted:
            if self.state != "absent" and not os.path.isdir(os.path.join(self.root, "lib/modules", kernel)):
                raise ActError(
                    "Kernel %s is not installed: there is no /lib/modules/%s. Installed are: %s."
                    % (kernel, kernel, ", ".join(self.installed) or "none")
                )
        return list(wanted)

    def _view(self, name, wanted) -> dict:
        view = act.read_view(self.root, self.runner, name, self.version, wanted)
        unreadable = sorted(set(item["error"] for item in view["modules"].values() if item and item["error"]))
        if unreadable and self.state != "absent":
            raise ActError("The kernel modules on disk cannot be read: %s." % "; ".join(unreadable))
        return view

    # the states

    def asks(self) -> tuple[dict, dict]:
        """``(needs, compiles)``, before anything is started: names of archives by kernel, those that the controller has
        and this node needs, and those that no one has.
        """
        name = self.params["name"] or self._only_name()
        wanted = self._kernels()
        missing, offered = self._missing(name, wanted, self._view(name, wanted)), self._find_offered(name)
        return tuple(
            dict((kernel, found) for kernel, found in missing.items() if (found in offered) is there)
            for there in (True, False)
        )

    def _missing(self, name, wanted, view) -> dict[str, str]:
        """Return the names, by kernel, of the archives that this node could use and does not have."""
        due = (
            plan.find_unprepared(wanted, view, self.version)
            if self.state == "prepared"
            else plan.find_uncompiled(wanted, view, self.version)
        )
        names = {} if self.params["force"] else self._archive_names(name, due)
        mine = tree_archives.source_digest(self.root, name, self.version) if names else None
        paths = dict((kernel, os.path.join(self._store(), found)) for kernel, found in names.items())
        return dict(
            (kernel, names[kernel])
            for kernel, path in paths.items()
            if not tree_archives.read_whole_digest(path)
            or tree_archives.other_source(tree_archives.read_source(path), mine)
        )

    def _find_offered(self, name) -> list[str]:
        """The archives of the controller, but for those that were surely built from other source than this node has."""
        sources = self.params.get("archives_sources") or {}
        mine = tree_archives.source_digest(self.root, name, self.version) if sources else None
        return [
            found
            for found in self.params.get("archives_offered") or []
            if not tree_archives.other_source(sources.get(found), mine)
        ]

    def _coming(self, name, wanted, view) -> list[str]:
        """Kernels whose archives the controller would bring, for check mode."""
        offered = self._find_offered(name)
        return [kernel for kernel, found in self._missing(name, wanted, view).items() if found in offered]

    def _archive_names(self, name, wanted) -> dict[str, str]:
        tree = self._tree(name)
        compilers = tree.node(wanted)["compilers"] if wanted else {}
        return dict(
            (kernel, dkms.tree_name(name, self.version, kernel, tree.arch, compilers[kernel]))
            for kernel in wanted
            if compilers[kernel]
        )

    def _store(self) -> str:
        return files.under(self.root, self.params.get("store_dir") or tree_archives.STORE)

    def _find_kept(self, tree, wanted, place=None) -> tuple[dict, list]:
        """``(archives, unfit)``: the whole archives of the store by kernel, those that fit this node, and why the
        others do not.

        With a ``place`` (:class:`workplace.Workplace`) each archive is read only once, and becomes a directory there
        for DKMS: that is what is named then.
        """
        archives, unfit = {}, []
        for kernel, found in sorted(self._archive_names(tree.name, wanted).items()):
            path = os.path.join(self._store(), found)
            digest = tree_archives.read_promised_digest(path) if place else tree_archives.read_whole_digest(path)
            if not digest:
                continue
            taken = place.directory("kept-%s" % kernel) if place else None
            try:
                tree.judge(path, [kernel], tree_archives.read_source(path), path, digest, taken)
                archives[kernel] = taken or path
            except tree_archives.TreeError as exc:
                if tree_archives.read_whole_digest(path):
                    unfit.append("%s: %s" % (path, exc))
        return archives, unfit

    def _build(self, name, acting) -> dict:
        with tree_archives.private_copies(self.params["import_files"] or []) as copies, self._place(acting) as place:
            return self._build_with(copies, name, acting, place)

    def _place(self, acting):
        return tree_archives.Workplace(self.root) if acting else contextlib.nullcontext()

    def _build_with(self, copies, name, acting, place) -> dict:
        tree, wanted = self._tree(name), self._kernels()
        view = self._view(name, wanted)
        archives = self._judge_copies(tree, copies, wanted, place)
        due = (
            []
            if self.params["force"]
            else [kernel for kernel in plan.find_uncompiled(wanted, view, self.version) if kernel not in archives]
        )
        kept, unfit = self._find_kept(tree, due, place)
        archives.update(kept)
        coming = [] if acting else self._coming(name, wanted, view)
        steps, problems = plan.plan_build(
            wanted, view, name, self.version, self.params["force"], sorted(archives) + coming
        )
        self._refuse(problems, view, steps)
        if tree.find_staged():
            steps.append(plan.step("unstage"))
        self._perform(tree, steps, acting, archives)
        now = tree.verify_present(wanted) if acting and steps else None
        compiled, warnings = self._publish(
            tree, [item["kernel"] for item in steps if item["action"] == "build"], acting
        )
        stale = (
            plan.remove_stale((now or view)["entries"], name, self.version) if self.params.get("remove_stale") else []
        )
        self._perform(tree, stale, acting)
        for item in stale if acting else []:
            Tree(
                name, item["version"], self.runner, self.root, self.params["build_timeout_s"], self.arch
            ).verify_absent(wanted, True)
        if stale and acting:
            now = tree.verify_present(wanted)
        forget = self._forget(acting) if self.params.get("remove_stale") else []
        done = steps + stale + forget
        return dict(
            self._result(name, done, view, now, bool(done), wanted), compiled=compiled, unfit=unfit, warnings=warnings
        )

    def _publish(self, tree, built, acting) -> tuple[list, list]:
        """Return ``(archives, warnings)`` of what was compiled here, for other nodes.

        The node itself does not need them.
        """
        compilers = tree.node(built)["compilers"] if built else {}
        archives, warnings = [], []
        for kernel in built if acting and self.params.get("publish") else []:
            try:
                archives += [tree.export(kernel, self._made_store(), compilers[kernel])] if compilers[kernel] else []
            except (ActError, tree_archives.TreeError, OSError) as exc:
                warnings.append(
                    "%s %s was compiled for kernel %s, and its archive cannot be kept for other nodes: %s"
                    % (tree.name, tree.version, kernel, exc)
                )
        return archives, warnings

    def _made_store(self) -> str:
        return files.own_directory(self.root, self.params.get("store_dir") or tree_archives.STORE)

    def _forget(self, acting) -> list[dict]:
        """Take out of the store what no way forth or back needs any more."""
        directory = self._store()
        kept = [(name, -os.stat(os.path.join(directory, name)).st_mtime) for name in files.listing(directory) or []]
        steps = [
            plan.step("forget", path=os.path.join(directory, name))
            for name in tree_archives.find_superfluous(kept, self.version, self.installed)
        ]
        for item in steps if acting else []:
            for path in (item["path"], item["path"] + ".sha256"):
                if os.path.lexists(path):
                    os.unlink(path)
        return steps

    def _prepare(self, name, acting) -> dict:
        """Archives for every kernel, without anything being installed; and of what is installed now, for the way
        back.
        """
        tree, wanted = self._tree(name), self._kernels()
        view = self._view(name, wanted)
        due = plan.find_unprepared(wanted, view, self.version)
        compilers = tree.node(due)["compilers"]
        unknown = [kernel for kernel in due if not compilers[kernel]]
        if unknown:
            raise ActError(
                "The compiler of kernel %s is not known: its configuration is neither with its headers nor in /boot."
                % ", ".join(unknown)
            )
        fitting, unfit = self._find_kept(tree, due)
        coming = [] if acting else self._coming(name, wanted, view)
        steps, problems = plan.plan_archives(due, view, sorted(fitting) + coming)
        self._refuse(problems, view, steps)
        replaced = plan.find_replaced(view["entries"], self.version, wanted)
        back = [
            (Tree(other, version, self.runner, self.root, arch=self.arch), kernel)
            for other, version, kernel in replaced
        ]
        back = [(old, kernel) for old, kernel in back if not self._exported_before(old, kernel)]
        keep = [plan.step("keep", kernel, name=old.name, version=old.version) for old, kernel in back]
        compiled = []
        if acting and (keep or steps):
            for old, kernel in back:
                old.export(kernel, self._made_store(), old.node([kernel])["compilers"][kernel])
            compiled = self._compile(tree, [item["kernel"] for item in steps], compilers)
        done = keep + steps
        return dict(self._result(name, done, view, None, bool(done), wanted), compiled=compiled, unfit=unfit)

    def _exported_before(self, old, kernel) -> dict[str, str] | None:
        compiler = old.node([kernel])["compilers"][kernel]
        if not compiler:
            raise ActError(
                "The compiler of kernel %s is not known: its configuration is neither with its headers nor in /boot."
                % kernel
            )
        return old.find_export(kernel, self._store(), compiler)

    def _compile(self, tree, wanted, compilers) -> list[dict]:
        if not wanted:
            return []
        refuse_without_room(tree, wanted)
        with Workshop(tree, self.params.get("source_packages") or []) as workshop:
            return [workshop.compile(kernel, self._made_store(), compilers[kernel]) for kernel in wanted]

    @staticmethod
    def _judge_copies(tree, copies, allowed, place=None) -> dict[str, str]:
        """The archives that fit this node, by kernel; one that does not is refused.

        With a ``place`` as in :meth:`_find_kept`.
        """
        archives = {}
        for number, item in enumerate(copies):
            taken = place.directory("given-%d" % number) if place else None
            try:
                for kernel in tree.judge(item["copy"], allowed, item["source"], item["path"], item["sha256"], taken):
                    archives[kernel] = taken or item["copy"]
            except tree_archives.TreeError as exc:
                raise tree_archives.TreeError(
                    "The archive %s does not fit this node: %s." % (item["path"], exc)
                ) from exc
        return archives

    def _remove(self, name, acting) -> dict:
        tree = self._tree(name)
        wanted = self._kernels() if self.params["kernels"] is not None else list(self.installed)
        view = self._view(name, wanted)
        steps, problems = plan.absent(self.params["kernels"], view, name, self.version)
        self._refuse(problems, view, [item for item in steps if item["action"] != "clear"])
        if tree.find_staged() and self.params["kernels"] is None:
            steps.append(plan.step("unstage"))
        self._perform(tree, steps, acting)
        now = tree.verify_absent(wanted, self.params["kernels"] is None) if acting and steps else None
        return self._result(name, steps, view, now, bool(steps), wanted)

    def _export(self, name, acting) -> dict:
        tree, wanted = self._tree(name), self._kernels()
        view = self._view(name, wanted)
        ready = [kernel for kernel in wanted if view["states"][kernel] in ("built", "installed")]
        missing = ["kernel %s is '%s'" % (kernel, view["states"][kernel]) for kernel in wanted if kernel not in ready]
        if not ready or (missing and self.params["kernels"] is not None):
            raise ActError(
                "%s %s cannot be exported: %s. Next step: build it first." % (name, self.version, "; ".join(missing))
            )
        directory = self.params["export_dir"]
        if not os.path.isdir(directory):
            raise ActError("The directory %s (export_dir) is not there. Next step: make it." % directory)
        compilers = tree.node(ready)["compilers"]
        unknown = [kernel for kernel in ready if not compilers[kernel]]
        if unknown:
            raise ActError(
                "The compiler of kernel %s is not known: its configuration is neither with its headers nor in /boot."
                % ", ".join(unknown)
            )
        exported, steps = [], []
        for kernel in ready:
            found = None if self.params["force"] else tree.find_export(kernel, directory, compilers[kernel])
            if found is None:
                steps.append(plan.step("export", kernel))
                found = (
                    tree.export(kernel, directory, compilers[kernel])
                    if acting
                    else {"kernel": kernel, "path": None, "sha256": None}
                )
            exported.append(found)
        return dict(self._result(name, steps, view, None, bool(steps), wanted), exported=exported)

    def _import(self, acting) -> dict:
        with tree_archives.private_copies(self.params["import_files"]) as copies, self._place(acting) as place:
            return self._import_copies(copies, acting, place)

    @staticmethod
    def _archive_name(item) -> str:
        try:
            return trees.inspect_archive(item["copy"])["name"]
        except tree_archives.TreeError as exc:
            raise tree_archives.TreeError("The archive %s cannot be used: %s." % (item["path"], exc)) from exc

    def _import_copies(self, copies, acting, place) -> dict:
        name = self.params["name"] or self._archive_name(copies[0])
        tree = self._tree(name)
        archives = self._judge_copies(tree, copies, self._kernels(), place)
        missing = [kernel for kernel in self.params["kernels"] or [] if kernel not in archives]
        if missing:
            raise ActError("None of the archives is for kernel %s. Nothing was changed." % ", ".join(missing))
        wanted = sorted(archives)
        view = self._view(name, wanted)
        if all(plan.is_settled(view, kernel, self.version) for kernel in wanted) and not self.params["force"]:
            steps = [plan.step("unstage")] if tree.find_staged() and not tree.must_stage(self.runner) else []
        elif tree.must_stage(self.runner):
            same = not self.params["force"] and tree.staged_holds([item["copy"] for item in copies])
            steps = [] if same else [plan.step("stage")]
            if acting and steps:
                tree.stage([item["copy"] for item in copies])
            return self._result(name, steps, view, None, bool(steps), wanted)
        else:
            steps, problems = plan.plan_import(wanted, view, name, self.version, self.params["force"])
            self._refuse(problems, view, steps)
            if tree.find_staged():
                steps.append(plan.step("unstage"))
        self._perform(tree, steps, acting, archives)
        now = tree.verify_present(wanted) if acting and steps else None
        return self._result(name, steps, view, now, bool(steps), wanted)

    # what they share

    def _refuse(self, problems, view, steps) -> None:
        if steps and not view["available"]:
            problems = ["dkms is not installed. Install the package dkms."] + problems
        if problems:
            raise ActError("%s Nothing was changed." % " ".join(problems), problems=problems)

    @staticmethod
    def _perform(tree, steps, acting, archives=None) -> None:
        done = []
        for item in steps if acting else []:
            try:
                if item["action"] == "unstage":
                    tree.unstage()
                else:
                    tree.perform(item, archives)
            except ActError as exc:
                exc.details.update(changed=bool(done), steps=done)
                raise
            done.append(item)

    def _result(self, name, steps, view, now, changed, wanted=()) -> dict:
        before = dict((kernel, plan.describe(kernel, view)) for kernel in wanted)
        if now is not None:
            after = dict((kernel, plan.describe(kernel, now)) for kernel in wanted)
        else:
            after = dict((kernel, plan.predict_line(kernel, steps, view, self.version)) for kernel in wanted)
        actions = [item["action"] for item in steps]
        staged = self._tree(name).find_staged() if name else None
        if "unstage" in actions:
            staged = None
        elif "stage" in actions:
            staged = tree_archives.make_staging_path(name, self.version)
        return {
            "changed": changed,
            "name": name,
            "steps": steps,
            "staged": staged,
            "lock_waited_s": None,
            "kernels": dict((kernel, {"before": before[kernel], "after": after[kernel]}) for kernel in wanted),
            "stale": plan.stale((now or view)["entries"], name, self.version) if view else [],
            "diff": {
                "before": {"kernels": before, "steps": []},
                "after": {
                    "kernels": after,
                    "steps": ["%s %s" % (item["action"], item["kernel"] or "") for item in steps],
                },
            },
        }
