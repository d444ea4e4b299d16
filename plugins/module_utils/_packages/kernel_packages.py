# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task of kernel_packages: read, decide (``_packages.kernel_set``), act, and read back."""

from __future__ import annotations

import os
import re
import time

from .._kernel import boot_default, kernels
from .._node import files
from .._node.files import write_atomically
from . import holds, kernel_set, systems
from .apt import Apt
from .dnf import Dnf
from .manager import NO_NAMES, parse_os_release
from .transaction import WORDS

PIN = "/etc/apt/preferences.d/gpufleet-kernel.pref"
UNATTENDED = "/etc/apt/apt.conf.d/52gpufleet-kernel-hold"
RECORD = holds.KERNEL_RECORD


class Refused(Exception):
    """Nothing was changed; the text says why and what to do."""


def manager_of(runner, root="/", **options) -> Apt | Dnf:
    """dnf on the systems of Red Hat's family, apt elsewhere."""
    system = parse_os_release(files.read_text(files.under(root, "/etc/os-release")) or "")
    return (Dnf if systems.family_of(system) == "dnf" else Apt)(runner, root=root, **options)


class KernelPackages:
    """``params`` are the module's options."""

    def __init__(self, params, manager, runner, root="/", uname=os.uname, clock=time.time) -> None:
        self.params = params
        self.manager = manager
        self.runner = runner
        self.root = root
        self.uname = uname
        self.clock = clock
        self.patterns = list(params["patterns"] or kernel_set.PATTERNS[manager.name])
        self.actions = []

    def path(self, name) -> str:
        return files.under(self.root, name)

    def run(self, acting) -> dict:
        installed = self.manager.list_installed()
        journal, broken = self.manager.find_interrupted(installed)
        if self.params["state"] in ("held", "free"):  # no transaction: the others do not matter
            broken = [name for name in broken if kernel_set.is_kernel(name, self.patterns)]
        if journal or broken:
            raise Refused(
                "an interrupted run of the package manager left these half done: %s. Next step: %s, then run again"
                % (", ".join(broken or journal), WORDS[self.manager.name]["by_hand"])
            )
        if self.params["state"] in ("held", "staged", "followed"):
            self.refuse_unheld(installed)
        states = {
            "held": self.hold,
            "free": self.free,
            "staged": self.stage,
            "followed": self.follow,
            "removed": self.remove,
            "updated": self.update,
        }
        states[self.params["state"]](installed, acting)
        return self.answer(self.manager.list_installed() if acting else installed)

    def refuse_unheld(self, installed) -> None:
        """Refuse where a hold would not hold the kernel that runs."""
        names, running = kernel_set.installed_names(installed, self.patterns), self.uname().release
        # Packages that are named cannot be told to be the running kernel's; those that are found have to be.
        found = names if self.params["patterns"] else kernel_set.packages_with(installed, running, self.manager.name)
        if not found or not self.params["patterns"] and not kernel_set.has_image(found):
            raise Refused(
                "the hold would not hold the kernel that runs, %s: its image belongs to none of the packages that "
                "would be held (%s). Next step: name its packages in patterns (kernel_hold_patterns), or boot a kernel "
                "of the distribution" % (running, ", ".join(sorted(names)) or "none")
            )

    # states

    def hold(self, installed, acting) -> None:
        problem = self.manager.hold_problem()
        if problem:
            raise Refused("the kernel cannot be held: %s. Next step: %s" % problem)
        names = kernel_set.installed_names(installed, self.patterns)
        loose = sorted(name for name in names if not installed[name]["hold"])
        self.mark("hold", loose, acting)
        for path, content in self.contents(names):
            self.write(path, content, acting)
        if acting:
            self.record(names, loose)

    def free(self, installed, acting) -> None:
        held = sorted(name for name in kernel_set.installed_names(installed, self.patterns) if installed[name]["hold"])
        self.mark("unhold", held, acting)
        for path, content in self.contents({}):
            self.write(path, content, acting)

    def stage(self, installed, acting):
        """Bring a kernel and its headers; the kernel that runs stays the default, and everything is held again whatever
        happens.
        """
        wanted, arguments = self.find(installed)
        if not wanted:
            return self.hold(installed, acting)
        transaction = self.manager.simulate(arguments)
        refusals = kernel_set.staging_refusals(transaction, wanted, self.patterns, self.manager.name)
        if refusals:
            raise Refused(
                "kernel %s is not staged: %s. Next step: look at what these packages depend on"
                % (self.params["kernel"], "; ".join(refusals))
            )
        running, bringing = self.uname().release, ", ".join(sorted(wanted))
        besides = kernel_set.find_others(transaction, self.patterns, self.manager.name)
        if besides:
            bringing += " and, new on this node, what they depend on: " + ", ".join(besides)
        if not acting:
            self.actions += ["keep kernel %s the default" % running, "install " + bringing]
            return None
        # Before the package's script makes a new menu, in which the newest kernel comes first.
        if boot_default.set_default(self.root, self.runner, running, self.uname):
            self.actions.append("made kernel %s the default" % running)
        try:
            # The module is imported or built by the step that follows, and not in the middle of the transaction.
            self.manager.change(arguments, options=self.manager.deferred_dkms_options())
            self.actions.append("installed " + bringing)
        finally:
            self.hold(self.manager.list_installed(), True)
            if boot_default.set_default(self.root, self.runner, running, self.uname):
                self.actions.append("made kernel %s the default again" % running)
        if self.params["kernel"] not in kernels.find_installed(self.root):
            raise Refused(
                "the packages of kernel %s were installed, and it cannot boot: its image or its modules are not there"
                % self.params["kernel"]
            )
        return None

    def find(self, installed) -> tuple[dict, list]:
        """The packages of the wanted kernel that are not there yet, with their versions, and the words that ask for
        them.
        """
        release = self.params["kernel"]
        must, may = kernel_set.packages_of(release, self.manager.name, installed, self.uname().release)
        names = list(must) + list(may)
        index = self.manager.index(NO_NAMES, names)
        while self.manager.name == "apt":
            more = kernel_set.find_needs(index, list(index), self.patterns)
            more = [name for name in more if name not in names]
            if not more:
                break
            names += more
            index.update(self.manager.index(NO_NAMES, more))
        if self.manager.name == "dnf":
            wanted = dict(
                (name, version)
                for name, version in must.items()
                if version not in kernel_set.versions_of(installed.get(name))
            )
            lacking = [
                name
                for name, version in wanted.items()
                if version not in [item["version"].split(":", 1)[-1] for item in index.get(name, [])]
            ]
        else:
            wanted = dict(
                (name, kernel_set.find_newest(index, name))
                for name in names
                if not installed.get(name, {}).get("installed")
            )
            lacking = [name for name in must if name in wanted and not wanted[name]]
            wanted = dict((name, version) for name, version in wanted.items() if version)
        if lacking:
            command = {
                "apt": "apt-cache search --names-only '^linux-image-'",
                "dnf": "dnf list --showduplicates kernel-core",
            }[self.manager.name]
            raise Refused(
                "kernel %s is not to be had: there is no %s. Next step: name a kernel that the repositories offer (%s)"
                % (release, ", ".join(sorted(lacking)), command)
            )
        return wanted, self.manager.arguments(wanted)

    def follow(self, installed, acting):
        """Let the metapackages stand for the kernel that boots next; one that nothing stands for leaves them as they
        are.
        """
        release, found = self.params["kernel"], kernels.read(self.root, self.runner, self.uname)
        if release != found["next_boot"]:
            raise Refused(
                "the metapackages do not follow kernel %s: %s boots next (%s). Next step: make it the default "
                "(module boot_kernel)" % (release, found["next_boot"] or "an unknown one", found["next_boot_source"])
            )
        index, metas = self.metapackages(installed)
        wanted = kernel_set.find_followers(index, installed, metas, release)
        if not wanted:
            return self.hold(installed, acting)
        arguments = self.manager.arguments(wanted)
        refusals = kernel_set.following_refusals(self.manager.simulate(arguments), wanted)
        if refusals:
            raise Refused(
                "the metapackages do not follow kernel %s: %s. Next step: look at what they depend on "
                "(apt-cache show %s)" % (release, "; ".join(refusals), " ".join(sorted(wanted)))
            )
        if acting:
            try:
                self.manager.change(arguments, options=self.manager.deferred_dkms_options())
            finally:
                self.hold(self.manager.list_installed(), True)
        self.actions.insert(0, "brought %s" % ", ".join("%s to %s" % item for item in sorted(wanted.items())))
        return None

    def metapackages(self, installed) -> tuple[dict, list]:
        metas = kernel_set.find_metapackages(installed, self.patterns, self.manager.name)
        return self.manager.index(NO_NAMES, metas) if metas else {}, metas

    def remove(self, installed, acting) -> None:
        """Take a kernel away that neither runs nor boots next."""
        release, found = self.params["kernel"], kernels.read(self.root, self.runner, self.uname)
        if release in (found["running"], found["next_boot"]) or found["next_boot"] is None:
            raise Refused(
                "kernel %s is not removed: %s runs and %s boots next (%s). Next step: make another kernel the default "
                "(module boot_kernel)"
                % (release, found["running"], found["next_boot"] or "an unknown one", found["next_boot_source"])
            )
        names = kernel_set.packages_with(installed, release, self.manager.name)
        if self.manager.name == "dnf":
            version = (kernels.split_el_release(release) or (release, ""))[0]
            names = ["%s-%s" % (name, version) for name in names]
        index, metas = self.metapackages(installed)
        bound = kernel_set.standing_for(index, installed, metas, release) if names else []
        if bound:
            raise Refused(
                "kernel %s is not removed: %s stand for it. Next step: let them follow the kernel that boots next "
                "(kernel_packages with state=followed and kernel=%s)" % (release, ", ".join(bound), found["next_boot"])
            )
        if names:
            transaction = self.manager.simulate(names, action="remove")
            users = kernel_set.staging_refusals(dict(transaction, remove=[]), {}, self.patterns, self.manager.name)
            users += [
                "the transaction would install %s" % name
                for name in kernel_set.find_others(transaction, self.patterns, self.manager.name)
            ]
            gone = [
                item["name"] for item in transaction["remove"] if not kernel_set.is_kernel(item["name"], self.patterns)
            ]
            if users or gone:
                raise Refused(
                    "kernel %s is not removed: %s. Next step: look at what needs its packages"
                    % (release, "; ".join(users + (["these would go with it: %s" % ", ".join(gone)] if gone else [])))
                )
            self.do("remove %s" % ", ".join(names), lambda: self.manager.change(names, action="remove"), acting)

    def update(self, installed, acting) -> None:
        """Apply the security updates of everything but what is held, the kernel and the driver."""
        if self.manager.name != "apt":
            raise Refused(
                "security updates are applied on systems with apt alone. Next step: use dnf upgrade --security with "
                "the kernel and the driver locked"
            )
        security = self.manager.security(
            [name for name, item in installed.items() if item["installed"] and ":" not in name]
        )
        wanted = kernel_set.security_wanted(installed, security, self.patterns, self.manager.name)
        if not wanted:
            return
        arguments = self.manager.arguments(wanted)
        refusals = kernel_set.security_refusals(self.manager.simulate(arguments), wanted, installed, self.patterns)
        if refusals:
            raise Refused(
                "no security update is applied: %s. Next step: find which of %s needs that, and apply "
                "the others by hand" % ("; ".join(refusals), ", ".join(sorted(wanted)))
            )
        self.do(
            "update %s" % ", ".join("%s to %s" % item for item in sorted(wanted.items())),
            lambda: self.manager.change(arguments),
            acting,
        )
        if acting:
            now = self.manager.list_installed()
            off = sorted(name for name, version in wanted.items() if now.get(name, {}).get("version") != version)
            if off:
                raise Refused(
                    "security updates were applied, and these packages do not have the version that was asked for: %s"
                    % ", ".join(off)
                )

    # acting

    def contents(self, held) -> list[tuple]:
        """``[(path, content)]`` of the files beside the holds."""
        exclude = bool(held) and self.params["exclude_unattended"]
        if self.manager.name == "apt":
            return [
                (PIN, kernel_set.render_pin(held, self.releases()) if held and self.params["pin"] else None),
                (UNATTENDED, self.render_unattended() if exclude else None),
            ]
        text = files.read_text(self.path(self.manager.unattended_file))
        return (
            [(self.manager.unattended_file, holds.render_automatic(text, exclude, ("kernel*",)))]
            if text is not None
            else []
        )

    def render_unattended(self) -> str:
        return holds.render_unattended(["^" + pattern for pattern in self.patterns], "kernel_packages", "kernel")

    def releases(self) -> list[str]:
        return [release for release in kernels.find_installed(self.root) if re.match(r"\d", release)]

    def write(self, name, content, acting) -> None:
        path = self.path(name)
        if files.read_text(path) == content:
            return
        if content is None:
            self.do("remove %s" % name, lambda: os.unlink(path), acting)
            return
        if acting:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        self.do("write %s" % name, lambda: write_atomically(path, content), acting)

    def mark(self, action, names, acting) -> None:
        self.actions += holds.describe_marks(action, names, self.manager.find_lock_package())
        if acting and names:
            self.manager.mark(action, names)

    def do(self, what, function, acting) -> None:
        if acting:
            function()
        self.actions.append(what)

    def record(self, names, mine) -> None:
        text = files.read_text(self.path(RECORD))
        new = holds.update_record(holds.parse_record(text), names, self.clock(), mine)
        if new != holds.parse_record(text):
            os.makedirs(os.path.dirname(self.path(RECORD)), exist_ok=True)
            write_atomically(self.path(RECORD), holds.render_record(new))

    # telling

    def answer(self, installed) -> dict:
        held = dict(
            (name, version)
            for name, version in kernel_set.installed_names(installed, self.patterns).items()
            if installed[name]["hold"]
        )
        rows = []
        if held:
            record = holds.parse_record(files.read_text(self.path(RECORD)))
            rows = holds.report_holds(
                record,
                held,
                self.manager.index(NO_NAMES, sorted(held)),
                self.manager.security(sorted(held)),
                self.manager.name,
                self.clock(),
            )
        ages = [row["age_days"] for row in rows if row["age_days"] is not None]
        return {
            "changed": bool(self.actions),
            "actions": self.actions,
            "kernels": kernels.read(self.root, self.runner, self.uname),
            "holds": rows,
            "held_days": max(ages) if ages else None,
            "security_kept_out": kernel_set.kept_out(rows),
        }
