# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changing the DKMS tree, step by step, and reading back what came of it."""

from __future__ import annotations

import glob
import os
import shutil
import time

from .._kernel import kernels, modules, secureboot
from .._node import dpkg, files
from . import dkms, plan, tree_archives, trees

COMMAND_TIMEOUT_S = 900
POLL_S = 2


class ActError(Exception):
    """A step that failed. ``details`` goes into the module's result."""

    def __init__(self, message, **details) -> None:
        super().__init__(message)
        self.details = details


def read_view(root, runner, name, version, wanted_kernels) -> dict:
    """Everything a plan needs, read now."""
    state = dkms.read(root, runner)
    if not state["available"] and state["error"] != "dkms is not installed":
        raise ActError("The state of DKMS cannot be read: %s. Next step: run dkms status on the node." % state["error"])
    if state["unparsed"]:
        raise ActError(
            "dkms status has a line of an unknown form, so the state of the modules is not known: '%s'. Nothing was "
            "changed. Next step: run dkms status on the node." % state["unparsed"][0]
        )
    states = dict((kernel, dkms.state_of(state["entries"], name, version, kernel)) for kernel in wanted_kernels)
    if "unknown" in states.values():
        said = sorted(set(dkms.describe(entry) for entry in state["entries"] if entry["kernel"] in wanted_kernels))
        raise ActError(
            "dkms status says something of %s %s that is not known: %s. Nothing was changed. Next step: run dkms "
            "status on the node." % (name, version, "; ".join(said))
        )
    return {
        "available": state["available"],
        "entries": state["entries"],
        "leftovers": state["leftovers"],
        "states": states,
        "modules": dict((kernel, modules.read(root, kernel, runner)) for kernel in wanted_kernels),
        "headers": dict((kernel, kernels.headers_present(root, kernel)) for kernel in wanted_kernels),
        "source": source_conf(root, name, version) is not None,
    }


def source_conf(root, name, version) -> str | None:
    """The dkms.conf of the module's source on the node, or None."""
    return files.read_text(files.under(root, "/usr/src/%s-%s/dkms.conf" % (name, version)))


def find_names(root, version) -> list[str]:
    """Names of NVIDIA modules of a version that the node has, in the DKMS tree or as source."""
    found = set(name for name, other in dkms.list_trees(root) if other == version)
    for path in glob.glob(files.under(root, "/usr/src/nvidia*-%s/dkms.conf" % glob.escape(version))):
        found.add(os.path.basename(os.path.dirname(path))[: -len(version) - 1])
    return sorted(name for name in found if dkms.is_driver(root, name, version))


def wait_for_others(deadline, proc="/proc") -> list[dict]:
    """Wait for dkms processes that do not know our lock (a package's script, a person); what is left at the
    deadline.
    """
    while True:
        others = dkms.find_running(proc)
        if not others or time.monotonic() >= deadline:
            return others
        time.sleep(POLL_S)


class Tree:
    """One module version on one node, and the steps that change it."""

    def __init__(self, name, version, runner, root="/", build_timeout_s=3600, arch=None) -> None:
        self.name, self.version, self.runner, self.root = name, version, runner, root
        self.build_timeout_s = build_timeout_s
        self.arch = arch or kernels.architecture()

    def perform(self, item, archives=None) -> None:
        """Do one step; raises ActError with the reason and the end of the log."""
        action, kernel = item["action"], item["kernel"]
        if action == "clear":
            self.clear(item["path"], item.get("version"))
        elif action == "load":
            self.load(kernel, archives[kernel])
        else:
            timeout = self.build_timeout_s if action == "build" else COMMAND_TIMEOUT_S
            # older ones have no unbuild; build adds again what remove unregistered
            verb = "remove" if action == "unbuild" else action
            argv = dkms.make_command(
                verb,
                self.name,
                item.get("version", self.version),
                kernel,
                self.arch if kernel else None,
                item.get("force", False),
            )
            rc, out, err = self.runner(argv, timeout)
            if rc:
                raise self.failure(action, kernel, rc, out, err)

    def failure(self, action, kernel, rc, out, err) -> ActError:
        log = (
            dkms.log_path(self.root, self.name, self.version, kernel, self.arch)
            if action in ("build", "install")
            else None
        )
        tail = dkms.log_tail(self.root, log)
        text = "dkms %s of %s %s%s failed with rc %s: %s." % (
            action,
            self.name,
            self.version,
            " for kernel %s" % kernel if kernel else "",
            rc,
            dkms.meaning(rc),
        )
        if rc in (1, 21) and kernel and not kernels.headers_present(self.root, kernel):
            text += " The headers of kernel %s are not installed. Next step: install %s." % (
                kernel,
                kernels.headers_package(kernel),
            )
        elif dkms.is_excluded(rc):
            text += (
                " Next step: leave kernel %s out of the list, or remove it; it has no module and must not be booted."
                % kernel
            )
        elif tail:
            text += (
                " Next step: read the end of %s below, mend the cause and run again; what the failed build "
                "left is cleared then." % log
            )
        said = "\n".join(part for part in (out.strip(), err.strip()) if part)
        if said:
            text += "\ndkms said:\n%s" % said
        if tail:
            text += "\nThe last %d lines of %s:\n%s" % (len(tail), log, "\n".join(tail))
        return ActError(
            text,
            kernel=kernel,
            action=action,
            rc=rc,
            rc_meaning=dkms.meaning(rc),
            stdout=out,
            stderr=err,
            make_log=tail,
            make_log_path=log,
        )

    def clear(self, path, version=None) -> None:
        """Remove what a build left inside this module version's tree, or the tree of another version as a whole."""
        base = dkms.directory_of(self.name, self.version) + "/"
        real = files.resolve(self.root, path)
        if not (path.startswith(base) or version and path == dkms.directory_of(self.name, version)) or (
            real is not None and real != path
        ):
            raise ActError("%s is not a directory of the DKMS tree %s, and is not removed." % (path, base))
        if real is not None:
            shutil.rmtree(files.under(self.root, path))
            above = os.path.dirname(files.under(self.root, path))
            if path.count("/") > base.count("/") and not files.listing(above):
                os.rmdir(above)

    def load(self, kernel, taken) -> None:
        """Give DKMS what was built for a kernel, out of the directory that :meth:`judge` filled.

        It is what ``dkms ldtarball --force`` does of an archive without source, for this kernel and nothing else: the
        module is added where it is not, and the directory of the kernel is put in its place. Moved and not unpacked, it
        is never there by half, and costs next to nothing.
        """
        base = files.under(self.root, dkms.TREE, self.name, self.version)
        if not os.path.lexists(os.path.join(base, "source")):
            rc, out, err = self.runner(dkms.make_command("add", self.name, self.version), COMMAND_TIMEOUT_S)
            if rc or not os.path.lexists(os.path.join(base, "source")):
                raise self.failure("add", kernel, rc, out, err)
        target = os.path.join(base, kernel, self.arch)
        if os.path.islink(os.path.dirname(target)) or os.path.islink(target):
            raise ActError(
                "%s is a link or lies below one, and nothing is put in its place. Next step: look at that path."
                % target,
                kernel=kernel,
            )
        if os.path.lexists(target):
            shutil.rmtree(target)
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        shutil.move(os.path.join(taken, kernel, self.arch), target)

    def export(self, kernel, directory, compiler, apart=None) -> dict[str, str]:
        """Write one kernel's built modules and their digest; the archive appears under its name only when it is whole
        and right.

        ``directory`` is on the node; ``apart`` are the directories of a tree that is not DKMS's own, see
        :func:`dkms.command`.
        """
        target = os.path.join(directory, dkms.tree_name(self.name, self.version, kernel, self.arch, compiler))
        temporary = os.path.join(directory, ".%d.dkms.tar.gz" % os.getpid())
        try:
            rc, out, err = self.runner(
                dkms.export_command(self.name, self.version, kernel, self.arch, temporary, apart), COMMAND_TIMEOUT_S
            )
            if rc:
                raise self.failure("mktarball", kernel, rc, out, err)
            tree, described = trees.examine_archive(temporary, self.runner)
            if (kernel, self.arch) not in tree["kernels"] or not tree["kernels"][(kernel, self.arch)]["module"]:
                raise ActError(
                    "The archive that dkms mktarball wrote holds no main NVIDIA kernel module for kernel %s (%s)."
                    % (kernel, self.arch),
                    kernel=kernel,
                )
            found = described[(kernel, self.arch)]
            if found["version"] != self.version or not modules.made_for(kernel, found):
                raise ActError(
                    "The archive that dkms mktarball wrote holds version %s for '%s', not %s for kernel %s."
                    % (found["version"], found["vermagic"], self.version, kernel),
                    kernel=kernel,
                )
            digest = tree_archives.sha256_of(temporary)
            source = (
                tree_archives.digest_below(os.path.join(apart[1], "%s-%s" % (self.name, self.version)))
                if apart
                else tree_archives.source_digest(self.root, self.name, self.version)
            )
            tree_archives.write_sha256(target, digest, source)
            os.replace(temporary, target)
        except tree_archives.TreeError as exc:
            raise ActError(
                "The archive that dkms mktarball wrote for kernel %s cannot be used: %s." % (kernel, exc), kernel=kernel
            ) from exc
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        return {"kernel": kernel, "path": target, "sha256": digest, "source": source}

    def find_export(self, kernel, directory, compiler) -> dict[str, str] | None:
        """The archive of an earlier export, when it is there and whole; else None."""
        path = os.path.join(directory, dkms.tree_name(self.name, self.version, kernel, self.arch, compiler))
        digest = tree_archives.read_whole_digest(path)
        return (
            {"kernel": kernel, "path": path, "sha256": digest, "source": tree_archives.read_source(path)}
            if digest
            else None
        )

    def verify_present(self, wanted_kernels) -> dict:
        """Read back: DKMS's state and the module file's own version. Apt and dkms may both say that all is well."""
        now = read_view(self.root, self.runner, self.name, self.version, wanted_kernels)
        wrong = [kernel for kernel in wanted_kernels if not plan.is_settled(now, kernel, self.version)]
        if wrong:
            raise ActError(
                "%s %s is not in place, though every command ended well: %s."
                % (
                    self.name,
                    self.version,
                    "; ".join("kernel %s: %s" % (kernel, plan.describe(kernel, now)) for kernel in wrong),
                ),
                kernels=wrong,
            )
        return now

    def verify_absent(self, wanted_kernels, whole) -> dict:
        now = read_view(self.root, self.runner, self.name, self.version, wanted_kernels)
        left = [
            kernel
            for kernel in wanted_kernels
            if now["states"][kernel] not in ("absent", "added") or self.file_left(now, kernel)
        ]
        if left or (
            whole and any((entry["name"], entry["version"]) == (self.name, self.version) for entry in now["entries"])
        ):
            raise ActError(
                "%s %s is still there, though every command ended well: %s."
                % (
                    self.name,
                    self.version,
                    "; ".join("kernel %s: %s" % (kernel, plan.describe(kernel, now)) for kernel in left)
                    or "its DKMS tree",
                ),
                kernels=left,
            )
        return now

    def file_left(self, now, kernel) -> bool:
        """True when a module file of this version is still in DKMS's directory and no other DKMS module accounts for
        it.
        """
        if any(
            entry["kernel"] == kernel and entry["version"] == self.version and entry["name"] != self.name
            for entry in now["entries"]
        ):
            return False
        return any(
            "/updates/dkms/" in item["path"] and item["version"] == self.version
            for item in list_candidates(now["modules"][kernel])
        )

    def find_staged(self) -> str | None:
        path = tree_archives.make_staging_path(self.name, self.version)
        return path if os.path.lexists(files.under(self.root, path)) else None

    def unstage(self) -> None:
        path = files.under(self.root, tree_archives.make_staging_path(self.name, self.version))
        os.unlink(path)
        if not files.listing(os.path.dirname(path)):
            os.rmdir(os.path.dirname(path))

    def stage(self, copies) -> None:
        """Put archives where the package's own script takes a prebuilt tree from; False when the same is there
        already.
        """
        target = files.under(self.root, tree_archives.make_staging_path(self.name, self.version))
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        with files.replace_whole(target) as temporary:
            if len(copies) == 1:
                shutil.copyfile(copies[0], temporary)
            else:
                trees.merge_archives(copies, temporary)

    def staged_holds(self, contents) -> bool:
        """True when what is staged holds the same modules as some archives (kernel, member and size and digest of
        each).
        """
        path = self.find_staged()
        if not path:
            return False
        try:
            return trees.read_fingerprint([files.under(self.root, path)]) == trees.read_fingerprint(contents)
        except tree_archives.TreeError:
            return False

    def must_stage(self, runner) -> bool:
        """True while the source is not there, or its package is not configured: the package's script would throw an
        import away.
        """
        if source_conf(self.root, self.name, self.version) is None:
            return True
        state = dpkg.read_packages(self.root, runner)
        return any(
            "kernel" in item["package"] and item["package"].startswith("nvidia") for item in state["interrupted"]
        )

    def node(self, wanted_kernels) -> dict:
        """Return the facts of the node that an archive is compared with."""
        return {
            "name": self.name,
            "version": self.version,
            "kernels": list(wanted_kernels),
            "arch": self.arch,
            "compilers": dict(
                (kernel, dkms.compiler_id(dkms.kernel_config(self.root, kernel))) for kernel in wanted_kernels
            ),
            "conf": source_conf(self.root, self.name, self.version),
            "secure_boot": secureboot.read(self.root, self.runner),
        }

    def judge(self, copy, wanted_kernels, source=None, path="", sha256=None, take=None) -> list[str]:
        """The kernels an archive holds; raises TreeError when it does not fit this node, or is not the one of that
        digest.

        The directory ``take`` gets what :meth:`load` needs.
        """
        tree, described = trees.examine_archive(copy, self.runner, sha256, take)
        trees.name_compiler(tree, path)
        why = trees.find_refusals(tree, self.node(wanted_kernels), described)
        if source and tree_archives.other_source(
            source, tree_archives.source_digest(self.root, self.name, self.version)
        ):
            why.append(
                "it was built from other source of the same version than this node has, as of another "
                "revision of the package"
            )
        if why:
            raise tree_archives.TreeError("; ".join(why))
        return [kernel for kernel, dummy in sorted(tree["kernels"])]


def list_candidates(item) -> list[dict]:
    return [item] + item.get("others", []) if item else []
