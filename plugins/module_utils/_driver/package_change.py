# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""A change of driver packages: read, let ``_driver.packages`` decide, act through ``_driver.apt``, read back."""

from __future__ import annotations

import os
import time

from . import dkms, files, kernels, packages, pins, transaction
from .apt import AptError, write_atomically


class ChangeFailed(Exception):
    """The change did not end as it should have; ``details`` go to the caller as they are."""

    def __init__(self, message, **details):
        self.details = details
        super().__init__(message)


class PackageChange:
    """One call of the module. ``options`` are the module's, ``apt`` an :class:`_driver.apt.Apt`."""

    def __init__(self, apt, options):
        self.apt = apt
        self.options = options
        self.actions = []
        self.repaired = False
        self.started = time.time()

    # reading and deciding

    def plan(self):
        """Everything that is known before anything is changed."""
        options, apt = self.options, self.apt
        os_release = apt.os_release()
        plan = {
            "table": packages.table_for(os_release), "installed": {}, "index": {}, "journal": [], "broken": [], "resolved": None, "refusals": [],
            "arguments": [], "removable": list(options["allow_removal"]), "disk": {}, "download_bytes": 0,
            "transaction": transaction.nothing(),
        }
        if plan["table"] is None:
            found = os_release.get("PRETTY_NAME") or " ".join(os_release.get(key, "") for key in ("ID", "VERSION_ID")).strip() or "unknown"
            plan["refusals"].append(packages.refusal(
                "unsupported_os", [], found, packages.supported_text(), "Operating system %s is not supported by this version of the collection." % found,
                "use one of: %s" % packages.supported_text()))
            return plan
        plan["installed"] = apt.installed()
        plan["journal"], plan["broken"] = apt.interrupted(plan["installed"])
        plan["index"] = apt.index(plan["table"]["name_pattern"], options["extra_packages"])
        if options["state"] == "absent":
            self.plan_removal(plan)
        else:
            self.plan_presence(plan)
        return plan

    def plan_removal(self, plan):
        targets = packages.installed_driver(plan["table"], plan["installed"])
        if not targets:
            return
        plan["arguments"] = targets
        plan["removable"] += targets
        plan["transaction"] = self.simulate(plan, "remove")
        plan["refusals"] += transaction.decide(plan["transaction"], {}, plan["installed"], plan["index"], plan["removable"])

    def plan_presence(self, plan):
        options = self.options
        resolved = packages.resolve(plan["table"], plan["index"], plan["installed"], options["version"], options["flavour"], options["extra_packages"])
        plan["resolved"] = resolved
        plan["refusals"] += resolved["refusals"]
        resolved["trees"] = self.tree_names(resolved)
        if not resolved["resolvable"]:
            return
        plan["removable"] += resolved["obsolete"]
        plan["arguments"] = ["%s=%s" % item for item in sorted(resolved["packages"].items())] + ["%s-" % name for name in resolved["obsolete"]]
        if transaction.differences(plan["installed"], resolved["packages"]) or resolved["obsolete"]:
            plan["transaction"] = self.simulate(plan, "install")
            if plan["refusals"]:
                return
            plan["refusals"] += transaction.decide(
                plan["transaction"], resolved["packages"], plan["installed"], plan["index"], plan["removable"])
        if options["state"] == "downloaded" or not transaction.is_empty(plan["transaction"]):
            self.plan_disk(plan)

    def tree_names(self, resolved):
        """What an exported DKMS tree of this driver is called, for every kernel that can boot; None when a part is not known."""
        if not resolved["resolvable"]:
            return {}
        names = {}
        for kernel in self.apt.kernels():
            compiler = dkms.compiler_id(dkms.kernel_config(self.apt.root, kernel))
            names[kernel] = dkms.tree_name(resolved["dkms_name"], resolved["dkms_version"], kernel, kernels.architecture(), compiler) if compiler else None
        return names

    def simulate(self, plan, action):
        try:
            return self.apt.simulate(plan["arguments"], action, self.fix_options(plan))
        except AptError as exc:
            why = "; ".join(exc.unmet) or str(exc)
            plan["refusals"].append(packages.refusal(
                "no_solution", sorted(set(line.split(" ", 1)[0] for line in exc.unmet)), exc.output, "apt finds a transaction",
                "apt finds no way to the resolved set: %s." % why.rstrip("."),
                "look at what apt names here; apt-mark showhold and apt-cache policy tell what stands in the way"))
            return plan["transaction"]

    def fix_options(self, plan):
        return ["--fix-broken"] if plan["broken"] else []

    def download_options(self, plan):
        return ["--reinstall"] + self.fix_options(plan)

    def plan_disk(self, plan):
        """Room for the archives, the packages and the DKMS build, each on the file system it goes to."""
        only_archives = self.options["state"] == "downloaded"
        if plan["refusals"]:
            return
        missing = self.apt.to_download(plan["arguments"], self.download_options(plan) if only_archives else self.fix_options(plan))
        plan["download_bytes"] = sum(missing.values())
        delta = 0
        if not only_archives:
            changed = [item for kind in ("install", "upgrade", "downgrade") for item in plan["transaction"][kind]]
            sizes = self.apt.index("(?!)", [item["name"] for item in changed])
            for item in changed:
                new = [record["installed_kib"] for record in sizes.get(item["name"], []) if record["version"] == item["version"]]
                old = plan["installed"].get(item["name"], {})
                delta += (new[0] if new else 0) * 1024 - (old["size_kib"] * 1024 if old.get("installed") else 0)
        needs = transaction.disk_needs(plan["download_bytes"], delta, len(self.apt.kernels()), self.apt.initrd_bytes(), with_build=not only_archives)
        plan["disk"] = needs
        plan["refusals"] += transaction.decide_disk(needs, self.apt.filesystems(needs), self.options["min_free_mib"] * packages.MIB)

    # what is wanted beside the packages

    def hold_changes(self, plan, installed):
        """``(hold, unhold)``: names whose hold differs from what is asked."""
        if self.options["state"] != "present" or self.options["hold"] is None:
            return [], []
        mine = [name for name in plan["resolved"]["packages"] if installed.get(name, {}).get("installed")]
        held = [name for name in mine if installed[name]["hold"]]
        if self.options["hold"]:
            return sorted(set(mine) - set(held)), []
        return [], sorted(held)

    def pin_wanted(self, plan):
        """The content the pin file should have: None when it should not be there, False when it is nobody's business."""
        if self.options["state"] == "absent" or self.options["pin"] is False:
            return None
        if self.options["state"] != "present" or self.options["pin"] is None:
            return False
        return pins.render_pin(plan["table"], plan["resolved"]["sources"])

    def pin_differs(self, plan):
        wanted = self.pin_wanted(plan)
        return wanted is not False and files.read_text(self.apt.path(self.options["pin_file"])) != wanted

    def would_change(self, plan):
        state = self.options["state"]
        if state == "resolved":
            return False
        if state == "downloaded":
            return plan["download_bytes"] > 0
        holds = any(self.hold_changes(plan, self.foreseen(plan))) if plan["resolved"] else False
        return bool(plan["journal"] or plan["broken"] or not transaction.is_empty(plan["transaction"]) or holds or self.pin_differs(plan))

    def answer(self, plan):
        """The part of the result that every way out has."""
        resolved = plan["resolved"]
        unresolved = [item["message"] for item in resolved["refusals"]] if resolved else []
        return {
            "resolvable": resolved["resolvable"] if resolved else None, "reason": " ".join(unresolved), "resolved": resolved,
            "transaction": plan["transaction"], "refusals": plan["refusals"], "disk": plan["disk"], "download_bytes": plan["download_bytes"],
            "actions": self.actions, "repaired": self.repaired or bool(plan["journal"] or plan["broken"]),
        }

    def difference(self, plan, changed):
        """What --diff shows: package versions, and the pin."""
        if not changed or self.options["state"] not in ("present", "absent"):
            return []
        before = packages.driver_versions(plan["table"], plan["installed"])
        after = dict(before)
        for item in plan["transaction"]["remove"]:
            after.pop(item["name"], None)
        for kind in ("install", "upgrade", "downgrade"):
            after.update((item["name"], item["version"]) for item in plan["transaction"][kind])
        texts = ["".join("%s %s\n" % item for item in sorted(versions.items())) for versions in (before, after)]
        parts = [("driver packages", texts[0], texts[1])]
        if self.pin_differs(plan):
            path = self.options["pin_file"]
            parts.append((path, files.read_text(self.apt.path(path)) or "", self.pin_wanted(plan) or ""))
        return [{"before_header": name, "after_header": name, "before": old, "after": new} for name, old, new in parts]

    def foreseen(self, plan):
        """The installed packages as a run would leave them, holds put back."""
        after = dict(plan["installed"])
        for item in plan["transaction"]["install"]:
            after[item["name"]] = {"installed": True, "hold": False}
        return after

    def foresee(self, plan):
        """The sentences of what a run would do, for check mode."""
        if self.options["state"] == "downloaded":
            return ["download %d MiB of packages" % -(-plan["download_bytes"] // packages.MIB)] if plan["download_bytes"] else []
        sentences = ["finish an interrupted dpkg run: %s" % ", ".join(plan["journal"] + plan["broken"])] if plan["journal"] or plan["broken"] else []
        sentences += transaction.action_sentences(plan["transaction"])
        if self.options["state"] == "resolved":
            return sentences
        hold, unhold = self.hold_changes(plan, self.foreseen(plan)) if plan["resolved"] else ([], [])
        sentences += ["hold %s" % ", ".join(hold)] if hold else []
        sentences += ["lift the hold of %s" % ", ".join(unhold)] if unhold else []
        if self.pin_differs(plan):
            sentences.append("%s %s" % ("write" if self.pin_wanted(plan) else "remove", self.options["pin_file"]))
        return sentences

    # acting

    def repair(self, plan):
        """Finish an interrupted dpkg; answers whether the plan has to be made again."""
        if not plan["journal"] and not plan["broken"]:
            return False
        self.repaired = True
        self.actions.append("finished an interrupted dpkg run (journal: %s; not configured: %s)" % (
            ", ".join(plan["journal"]) or "empty", ", ".join(plan["broken"]) or "none"))
        error = self.apt.configure()
        if error:
            self.actions.append("dpkg --configure -a did not finish: %s" % error)
        return True

    def act(self, plan):
        if self.options["state"] == "downloaded":
            self.apt.change(plan["arguments"], options=self.download_options(plan) + ["--download-only"])
            self.actions += self.foresee(plan)
            return
        try:
            if not transaction.is_empty(plan["transaction"]) or plan["broken"]:
                self.run_transaction(plan)
        finally:
            self.restore_holds(plan)
        if self.pin_differs(plan):
            self.write_pin(plan)

    def run_transaction(self, plan):
        options = self.fix_options(plan)
        if self.options["dkms_build"] == "deferred":
            options += self.apt.deferred_dkms_options()
        try:
            self.apt.change(plan["arguments"], "remove" if self.options["state"] == "absent" else "install", options)
        except AptError as exc:
            raise ChangeFailed("%s. Next step: read the output, repair its cause, run again." % exc, output=exc.output, **self.build_log(plan)) from exc
        self.actions += transaction.action_sentences(plan["transaction"])

    def build_log(self, plan):
        """The end of make.log when a DKMS build of this run failed."""
        resolved = plan["resolved"]
        path = dkms.log_path(self.apt.root, resolved["dkms_name"], resolved["dkms_version"]) if resolved else None
        if not path or os.stat(self.apt.path(path)).st_mtime < self.started - 1:
            return {}
        return {"make_log": path, "make_log_tail": dkms.log_tail(self.apt.root, path)}

    def restore_holds(self, plan):
        """apt drops the hold of what it changes: put back what was held, then bring the set's own to what is asked."""
        installed = self.apt.installed()
        held_before = [name for name, have in plan["installed"].items() if have["hold"]]
        hold, unhold = self.hold_changes(plan, installed)
        lost = [name for name in held_before if name not in unhold and installed.get(name, {}).get("installed") and not installed[name]["hold"]]
        wanted = set(hold) | set(lost)
        self.apt.mark("hold", wanted)
        self.apt.mark("unhold", unhold)
        if set(hold) - set(held_before):
            self.actions.append("hold %s" % ", ".join(sorted(set(hold) - set(held_before))))
        if unhold:
            self.actions.append("lift the hold of %s" % ", ".join(unhold))

    def write_pin(self, plan):
        path, content = self.apt.path(self.options["pin_file"]), self.pin_wanted(plan)
        if content is None:
            os.unlink(path)
            self.actions.append("removed %s" % self.options["pin_file"])
            return
        write_atomically(path, content)
        self.actions.append("wrote %s: %s alone" % (self.options["pin_file"], plan["resolved"]["upstream"]))

    def verify(self, plan):
        """Read back: success of the package manager proves nothing."""
        installed = self.apt.installed()
        if self.options["state"] == "downloaded":
            left = self.apt.to_download(plan["arguments"], self.download_options(plan))
            if left:
                raise ChangeFailed("Still not in the package cache after the download: %s." % ", ".join(sorted(left)))
        elif self.options["state"] == "absent":
            left = packages.installed_driver(plan["table"], installed)
            if left:
                raise ChangeFailed("Still installed after the removal: %s." % ", ".join(left))
        elif self.options["state"] == "present":
            wrong = transaction.differences(installed, plan["resolved"]["packages"])
            if wrong:
                expected = plan["resolved"]["packages"]
                listing = ", ".join("%s %s (expected %s)" % (name, found, expected[name]) for name, found in sorted(wrong.items()))
                raise ChangeFailed("apt ended well, and yet these packages are not as resolved: %s. Next step: apt-cache policy of them on the node." % listing)
            hold, unhold = self.hold_changes(plan, installed)
            if hold or unhold:
                raise ChangeFailed("apt-mark did not take: %s." % ", ".join(hold + unhold))
        return installed
