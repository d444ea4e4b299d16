# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of driver packages: read, let ``_packages.packages`` decide, act through a package manager, read back."""

from __future__ import annotations

import os
import re
import time

from .._dkms import dkms
from .._node import boot_expectation, files
from .._node.files import write_atomically
from . import holds, package_plan, package_read, package_task, packages, transaction
from .manager import ManagerError
from .package_state import Wish


class ChangeFailed(Exception):
    """The change did not end as it should have; ``details`` go to the caller as they are."""

    def __init__(self, message, **details):
        self.details = details
        super().__init__(message)


class PackageChange:
    """One call of the module. ``options`` are the module's, ``manager`` is an :class:`_packages.manager.Manager`."""

    def __init__(self, manager, options):
        self.manager = manager
        self.options = options
        self.wish = Wish.of(options)
        self.actions = []
        self.repaired = False
        self.unkept = []
        self.started = time.time()
        self.words = transaction.WORDS[manager.name]

    def plan(self):
        return package_task.make(self.manager, self.wish)

    def find_module_archives(self, plan):
        """The files that hold the module's source, where the manager has them."""
        resolved, manager = plan.resolved, self.manager
        if resolved and resolved["dkms_name"] and manager.keeps:
            named = dict(item for item in resolved["packages"].items() if re.search(packages.SOURCE_PATTERN, item[0]))
            found = manager.cached(named, plan.state.index)
            found.update((key, item["path"]) for key, item in manager.store.index().items() if key in named.items())
            resolved["module_archives"] = sorted(found.values())

    def answer(self, plan):
        """The part of the result that every way out has."""
        resolved = plan.resolved
        unresolved = [item["message"] for item in resolved["refusals"]] if resolved else []
        return {
            "resolvable": resolved["resolvable"] if resolved else None, "reason": " ".join(unresolved), "resolved": resolved,
            "transaction": plan.transaction, "refusals": list(plan.refusals), "disk": plan.disk, "download_bytes": plan.download_bytes,
            "gpus": plan.flavour["gpus"] if plan.flavour else [], "flavour_reason": plan.flavour["reason"] if plan.flavour else "",
            "unkept": self.unkept, "actions": self.actions, "repaired": self.repaired or bool(plan.state.journal or plan.state.broken),
        }

    def difference(self, plan, changed):
        """Return what --diff shows: package versions, and the pin."""
        if not changed or self.options["state"] not in ("present", "absent"):
            return []
        before = packages.driver_versions(plan.state.table, plan.state.installed)
        after = dict(before)
        for item in plan.transaction["remove"]:
            after.pop(item["name"], None)
        for kind in ("install", "upgrade", "downgrade"):
            after.update((item["name"], item["version"]) for item in plan.transaction[kind])
        texts = ["".join("%s %s\n" % item for item in sorted(versions.items())) for versions in (before, after)]
        parts = [("driver packages", texts[0], texts[1])]
        parts += [(path, plan.state.texts.get(path) or "", content or "") for path, content in plan.files]
        return [{"before_header": name, "after_header": name, "before": old, "after": new} for name, old, new in parts]

    def foresee(self, plan):
        """The sentences of what a run would do, for check mode."""
        if self.options["state"] == "downloaded":
            return self.keeping(plan, "keep") + (["download %d MiB of packages" % -(-plan.download_bytes // packages.MIB)] if plan.download_bytes else [])
        sentences = self.keeping(plan, "keep")
        if plan.state.journal or plan.state.broken:
            sentences.append("finish an interrupted %s run: %s" % (self.words["repair"], ", ".join(plan.state.journal + plan.state.broken)))
        sentences += transaction.action_sentences(plan.transaction)
        if self.options["state"] == "resolved":
            return sentences
        hold, unhold = plan.hold, plan.lift
        sentences += ["hold %s" % ", ".join(hold)] if hold else []
        sentences += ["lift the hold of %s" % ", ".join(unhold)] if unhold else []
        return sentences + ["%s %s" % ("remove" if content is None else "write", path) for path, content in plan.files]

    def keeping(self, plan, what):
        listing = ", ".join("%s %s" % item for item in sorted(getattr(plan, what).items()))
        return ["keep for the way back: %s" % listing] if listing else []

    def held(self, installed, plan):
        """``{name: version}`` of the driver's packages that are held."""
        names = packages.installed_driver(plan.state.table, installed) if plan.state.table else []
        return dict((name, installed[name]["version"]) for name in names if installed[name]["hold"])

    def holds(self, plan, installed=None):
        """How old the holds are, and what they keep out."""
        held = self.held(plan.state.installed if installed is None else installed, plan)
        if not held:
            return []
        record = holds.parse(files.read_text(self.manager.path(holds.RECORD)))
        return holds.report(record, held, plan.state.index, self.manager.security(held), self.manager.name, time.time())

    # acting

    def record_holds(self, plan, installed):
        """Keep the time since when each package is held. It is no change of the node."""
        path = self.manager.path(holds.RECORD)
        text = files.read_text(path)
        held, before = self.held(installed, plan), self.held(plan.state.installed, plan)
        record = holds.update(holds.parse(text), held, time.time(), [name for name in held if held[name] != before.get(name)])
        if record != holds.parse(text):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, holds.render(record))

    def record_expectation(self, plan):
        """Expect the driver that is installed now: the reboot into it would fail otherwise."""
        if plan.expect:
            boot_expectation.keep_driver(self.manager.path(boot_expectation.PATH), plan.resolved["upstream"])
            self.actions.append("wrote driver %s into %s" % (plan.resolved["upstream"], boot_expectation.PATH))

    def repair(self, plan):
        """Finish an interrupted run of the package manager; answers whether the plan has to be made again."""
        if not plan.state.journal and not plan.state.broken:
            return False
        self.repaired = True
        self.actions.append("finished an interrupted %s run (journal: %s; not configured: %s)" % (
            self.words["repair"], ", ".join(plan.state.journal) or "empty", ", ".join(plan.state.broken) or "none"))
        error = self.manager.configure()
        if error:
            self.actions.append("%s did not finish: %s" % (self.words["finish"], error))
        return True

    def act(self, plan):
        self.keep(plan)
        if self.options["state"] == "downloaded":
            if plan.download_bytes:
                self.manager.download(plan.arguments, self.manager.download_options(plan.state.broken))
            self.actions = self.foresee(plan)
            self.keep_new(plan)
            return
        try:
            if not transaction.is_empty(plan.transaction) or plan.state.broken:
                self.run_transaction(plan)
        finally:
            self.restore_holds(plan)
        self.write_files(plan)
        self.keep_new(plan)

    def keep(self, plan):
        """The way back first: without it nothing is begun."""
        wrong = self.manager.keep(plan.keep, plan.state.index) if plan.keep else {}
        if wrong:
            raise ChangeFailed("The driver that is installed cannot be kept for the way back: %s. Nothing was changed. Next step: %s." % (
                "; ".join("%s: %s" % item for item in sorted(wrong.items())), packages.KEEP_STEP))
        self.actions += self.keeping(plan, "keep")

    def keep_new(self, plan):
        """Keep the packages that were downloaded, from the cache. One that cannot be kept is told, and is no failure: it is in the cache."""
        self.unkept = sorted(self.manager.keep(plan.keep_new, plan.state.index)) if plan.keep_new else []
        if plan.before and self.options["state"] == "present":
            self.manager.store.forget(set(plan.before.items()) | set(plan.resolved["packages"].items()))

    def run_transaction(self, plan):
        options = self.manager.fix_options(plan.state.broken)
        if self.options["dkms_build"] == "deferred":
            options += self.manager.deferred_dkms_options()
        try:
            self.manager.change(plan.arguments, "remove" if self.options["state"] == "absent" else "install", options)
        except ManagerError as exc:
            raise ChangeFailed("%s. Next step: read the output, repair its cause, run again." % exc, output=exc.output, **self.build_log(plan)) from exc
        self.actions += transaction.action_sentences(plan.transaction)

    def build_log(self, plan):
        """The end of make.log when a DKMS build of this run failed."""
        resolved = plan.resolved
        path = dkms.log_path(self.manager.root, resolved["dkms_name"], resolved["dkms_version"]) if resolved and resolved["dkms_name"] else None
        if not path or os.stat(self.manager.path(path)).st_mtime < self.started - 1:
            return {}
        return {"make_log": path, "make_log_tail": dkms.log_tail(self.manager.root, path)}

    def restore_holds(self, plan):
        """The hold of what is changed is dropped, or is one of the old version: put back what was held, then bring the set's own to what is asked."""
        installed = self.manager.installed()
        held_before = [name for name, have in plan.state.installed.items() if have["hold"]]
        hold, unhold = package_plan.hold_changes(self.wish, plan.packages, installed)
        lost = [name for name in held_before if name not in unhold and installed.get(name, {}).get("installed") and not installed[name]["hold"]]
        wanted = set(hold) | set(lost)
        self.manager.mark("hold", wanted)
        self.manager.mark("unhold", unhold)
        self.manager.forget([name for name in held_before if not installed.get(name, {}).get("installed")])
        if set(hold) - set(held_before):
            self.actions.append("hold %s" % ", ".join(sorted(set(hold) - set(held_before))))
        if unhold:
            self.actions.append("lift the hold of %s" % ", ".join(unhold))

    def write_files(self, plan):
        for path, content in plan.files:
            if content is None:
                os.unlink(self.manager.path(path))
            else:
                write_atomically(self.manager.path(path), content)
            self.actions.append("%s %s" % ("remove" if content is None else "write", path))

    def verify(self, plan):
        """Read back: success of the package manager proves nothing."""
        installed = self.manager.installed()
        if self.options["state"] == "downloaded":
            left = self.manager.to_download(plan.arguments, self.manager.download_options(plan.state.broken))
            if left:
                raise ChangeFailed("Still not in the package cache after the download: %s." % ", ".join(sorted(left)))
        elif self.options["state"] == "absent":
            left = packages.installed_driver(plan.state.table, installed)
            if left:
                raise ChangeFailed("Still installed after the removal: %s." % ", ".join(left))
        elif self.options["state"] == "present":
            wrong = transaction.differences(installed, plan.resolved["packages"])
            if wrong:
                expected = plan.resolved["packages"]
                listing = ", ".join("%s %s (expected %s)" % (name, found, expected[name]) for name, found in sorted(wrong.items()))
                raise ChangeFailed("%s ended well, and yet these packages are not as resolved: %s. Next step: %s of them on the node." % (
                    self.manager.name, listing, self.words["policy"]))
            plan.resolved.update(package_plan.named(plan.resolved, package_read.read_dkms_names(self.manager, plan.resolved), plan.state))
            hold, unhold = package_plan.hold_changes(self.wish, plan.packages, installed)
            if hold or unhold:
                raise ChangeFailed("%s did not take: %s." % (self.words["hold"], ", ".join(hold + unhold)))
        return installed
