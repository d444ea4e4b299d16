# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of driver packages: read, let ``_packages.packages`` decide, act through a package manager, read back."""

from __future__ import annotations

import os
import re
import time

from .._dkms import act as dkms_act
from .._dkms import dkms
from .._node import boot_expectation, files
from .._node.files import write_atomically
from . import flavour, floors, holds, needs, package_read, packages, pins, transaction
from .manager import NO_NAMES, ManagerError
from .package_state import State, Wish


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
        self.state = State(manager.name)
        self.actions = []
        self.repaired = False
        self.unkept = []
        self.started = time.time()
        self.words = transaction.WORDS[manager.name]

    # reading and deciding

    def plan(self):
        """Everything that is known before anything is changed."""
        options, manager = self.options, self.manager
        table, refusals = packages.decide_system(manager.os_release(), options["source"])
        plan = {
            "table": table, "installed": {}, "index": {}, "journal": [], "broken": [], "resolved": None, "refusals": refusals, "lacking": [], "flavour": None,
            "keep": {}, "before": {}, "keep_new": {},
            "arguments": [], "removable": list(options["allow_removal"]), "disk": {}, "download_bytes": 0, "transaction": transaction.nothing(),
        }
        if table is None:
            return plan
        self.state = state = package_read.read(manager, self.wish, table)
        plan["lacking"] = self.lacking()
        plan["refusals"] += plan["lacking"]
        plan.update(installed=state.installed, index=state.index, journal=list(state.journal), broken=list(state.broken))
        if options["state"] == "absent":
            self.plan_removal(plan)
        else:
            self.plan_presence(plan)
        return plan

    def lacking(self):
        """Refusals for what the driver needs beside its packages, as far as that is asked for, and for a driver that is another's business."""
        owned = needs.decide_owner(self.state.operator) if self.options["state"] != "resolved" else []
        return owned + needs.decide(self.options["require"], self.state.gpus, self.state.headers, self.words["headers"])

    def plan_removal(self, plan):
        targets = packages.installed_driver(plan["table"], plan["installed"])
        if not targets:
            return
        plan["arguments"] = targets
        plan["removable"] += targets
        plan["transaction"] = self.simulate(plan, "remove")
        plan["refusals"] += transaction.decide(plan["transaction"], {}, plan["installed"], plan["index"], plan["removable"], plan["table"])

    def plan_presence(self, plan):
        resolved = self.resolve(plan)
        plan["resolved"] = resolved
        plan["refusals"] += resolved["refusals"]
        resolved["trees"] = self.tree_names(resolved)
        resolved["module_archives"] = []
        if not resolved["resolvable"]:
            return
        stream = self.stream_change(plan, resolved)
        problem = self.state.hold_problem if self.options["hold"] and self.options["state"] == "present" else None
        if problem:
            plan["refusals"].append(packages.refusal("no_hold", [], problem[0], "holds that hold", "The driver cannot be held: %s." % problem[0], problem[1]))
        if plan["refusals"]:
            return
        plan["removable"] += resolved["obsolete"]
        plan["arguments"] = self.manager.arguments(resolved["packages"], resolved["obsolete"], stream)
        if transaction.differences(plan["installed"], resolved["packages"]) or resolved["obsolete"] or stream:
            plan["transaction"] = self.simulate(plan, "install")
            if plan["refusals"]:
                return
            plan["refusals"] += transaction.decide(
                plan["transaction"], resolved["packages"], plan["installed"], plan["index"], plan["removable"], plan["table"])
        else:
            self.read_dkms_name(resolved)
        if self.options["state"] == "downloaded" or not transaction.is_empty(plan["transaction"]):
            self.plan_disk(plan)
        if self.options["keep"] and self.manager.keeps and self.options["state"] in ("downloaded", "present"):
            self.plan_keep(plan)

    def resolve(self, plan):
        """The set, of the flavour that was asked for or that the GPUs ask for, at or above every floor."""
        options = self.options
        plan["flavour"] = chosen = flavour.decide(self.state.gpus, options["version"], options["flavour"])
        variant = (chosen["flavour"] or "open") + ("-prebuilt" if options["kernel_module"] == "prebuilt" else "")
        resolved = packages.resolve(
            plan["table"], plan["index"], plan["installed"], options["version"], variant,
            options["extra_packages"], self.state.kernels, options["components"])
        resolved["refusals"] = chosen["refusals"] + resolved["refusals"] + floors.decide(resolved["upstream"] or options["version"], self.floors())
        resolved["resolvable"] = resolved["resolvable"] and not resolved["refusals"]
        resolved["flavour"] = chosen["flavour"]
        return resolved

    def floors(self):
        """Return the minimum versions: those declared, and those that the containers that run now require."""
        declared = [dict(floor, require=floor.get("require_cuda")) for floor in self.options["floors"]]
        return declared + list(self.state.workloads)

    def stream_change(self, plan, resolved):
        """The module stream that has to be enabled and is not; the repository may have it under its rolling name alone, or no module."""
        if not resolved["stream"]:
            return None
        module, name = resolved["stream"].split(":", 1)
        known = self.state.streams
        there = next((stream for stream in (name, resolved["rolling_stream"]) if stream in known), None)
        resolved["stream"] = "%s:%s" % (module, there) if there else None
        if known and not there:
            plan["refusals"].append(packages.no_stream(resolved, module, name, known))
        return resolved["stream"] if there and self.state.enabled_stream != there else None

    def tree_names(self, resolved):
        """Return the name of an exported DKMS tree of this driver, for every kernel that can boot; None when a part is not known."""
        if not resolved["resolvable"] or not resolved["dkms_name"]:
            return {}
        names = {}
        for kernel, compiler in self.state.compilers.items():
            names[kernel] = dkms.tree_name(resolved["dkms_name"], resolved["dkms_version"], kernel, self.state.architecture, compiler) if compiler else None
        return names

    def find_module_archives(self, plan):
        """The files that hold the module's source, where the manager has them."""
        resolved, manager = plan["resolved"], self.manager
        if resolved and resolved["dkms_name"] and manager.keeps:
            named = dict(item for item in resolved["packages"].items() if re.search(packages.SOURCE_PATTERN, item[0]))
            found = manager.cached(named, plan["index"])
            found.update((key, item["path"]) for key, item in manager.store.index().items() if key in named.items())
            resolved["module_archives"] = sorted(found.values())

    def read_dkms_name(self, resolved):
        """Read the name that the installed package gives its module: a mirror's own package may give another than the table has."""
        names = dkms_act.find_names(self.manager.root, resolved["dkms_version"]) if resolved["dkms_name"] else []
        if len(names) == 1 and names[0] != resolved["dkms_name"]:
            resolved["dkms_name"] = names[0]
            resolved["trees"] = self.tree_names(resolved)

    def simulate(self, plan, action):
        try:
            return self.manager.simulate(plan["arguments"], action, self.manager.fix_options(plan["broken"]))
        except ManagerError as exc:
            why, name = "; ".join(exc.unmet) or str(exc), self.manager.name
            plan["refusals"].append(packages.refusal(
                "no_solution", exc.packages, exc.output,
                "%s finds a transaction" % name, "%s finds no way to the resolved set: %s." % (name, why.rstrip(".")),
                "look at what %s names here; %s tell what stands in the way" % (name, transaction.WORDS[name]["holds"])))
            return plan["transaction"]

    def plan_disk(self, plan):
        """Room for the archives, the packages and the DKMS build, each on the file system it goes to.

        Archives are brought so that the packages can be installed next, on a node that was drained for it: there has to be room for that already.
        """
        if plan["refusals"]:
            return
        options = self.manager.download_options(plan["broken"]) if self.options["state"] == "downloaded" else self.manager.fix_options(plan["broken"])
        missing = self.manager.to_download(plan["arguments"], options)
        plan["download_bytes"] = sum(missing.values())
        changed = [item for kind in ("install", "upgrade", "downgrade") for item in plan["transaction"][kind]]
        others = [item["name"] for item in changed if item["name"] not in plan["index"]]
        sizes = dict(plan["index"], **(self.manager.index(NO_NAMES, others) if others else {}))
        delta = None if transaction.is_empty(plan["transaction"]) else 0
        for item in changed:
            new = [record["installed_kib"] for record in sizes.get(item["name"], []) if record["version"] == item["version"]]
            old = plan["installed"].get(item["name"], {})
            delta += (new[0] if new else 0) * 1024 - (old["size_kib"] * 1024 if old.get("installed") else 0)
        builds = bool(plan["resolved"]["dkms_name"]) and not transaction.is_empty(plan["transaction"])
        needs = transaction.disk_needs(
            plan["download_bytes"], delta, len(self.state.kernels), self.state.initrd_bytes, builds, self.manager.name)
        plan["disk"] = needs
        free = self.manager.filesystems(needs)
        plan["refusals"] += transaction.decide_disk(
            needs, free, self.options["min_free_mib"] * packages.MIB, self.manager.name, self.options["min_free_boot_mib"] * packages.MIB)

    def plan_keep(self, plan):
        """Plan the node's store of packages: those installed that would be changed, to roll back, and those that take their place."""
        manager, after = self.manager, plan["resolved"]["packages"]
        changes = not transaction.is_empty(plan["transaction"])
        before = plan["before"] = packages.driver_versions(plan["table"], plan["installed"]) if changes else {}
        due, new = manager.unkept(before), manager.unkept(after)
        cached = manager.cached(dict(due, **new), plan["index"])
        plan["keep"], lost = packages.obtainable(due, cached, plan["index"])
        plan["keep_new"], dummy = packages.obtainable(new, cached, plan["index"])
        if lost:
            plan["refusals"].append(packages.cannot_keep(lost))

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
        """Return the content that the pin file should have: None when it should not be there, False when it is left as it is."""
        if self.options["state"] == "absent" or self.options["pin"] is False:
            return None
        if self.options["state"] != "present" or self.options["pin"] is None:
            return False
        return pins.pin_content(self.manager.name, plan["table"], plan["resolved"])

    def unattended_wanted(self, plan):
        """The same for the file that keeps unattended upgrades from the driver."""
        exclude = self.options["exclude_unattended"]
        if exclude is None or self.options["state"] not in ("present", "absent"):
            return False
        text = self.state.texts.get(self.manager.unattended_file)
        return pins.unattended_content(self.manager.name, text, exclude and self.options["state"] == "present")

    def files_due(self, plan):
        """``[(path, content or None)]`` of the files that are not as they should be."""
        pairs = [(self.options["pin_file"], self.pin_wanted(plan)), (self.manager.unattended_file, self.unattended_wanted(plan))]
        return [(path, content) for path, content in pairs if content is not False and self.state.texts.get(path) != content]

    def would_change(self, plan):
        state = self.options["state"]
        if state == "resolved":
            return False
        if state == "downloaded":
            return plan["download_bytes"] > 0 or bool(plan["keep"] or plan["keep_new"])
        holds = any(self.hold_changes(plan, self.foreseen(plan))) if plan["resolved"] else False
        kept = plan["keep"] or plan["keep_new"]
        return bool(plan["journal"] or plan["broken"] or not transaction.is_empty(plan["transaction"]) or holds or kept or self.files_due(plan))

    def answer(self, plan):
        """The part of the result that every way out has."""
        resolved = plan["resolved"]
        unresolved = [item["message"] for item in resolved["refusals"]] if resolved else []
        return {
            "resolvable": resolved["resolvable"] if resolved else None, "reason": " ".join(unresolved), "resolved": resolved,
            "transaction": plan["transaction"], "refusals": plan["refusals"], "disk": plan["disk"], "download_bytes": plan["download_bytes"],
            "gpus": plan["flavour"]["gpus"] if plan["flavour"] else [], "flavour_reason": plan["flavour"]["reason"] if plan["flavour"] else "",
            "unkept": self.unkept, "actions": self.actions, "repaired": self.repaired or bool(plan["journal"] or plan["broken"]),
        }

    def difference(self, plan, changed):
        """Return what --diff shows: package versions, and the pin."""
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
        parts += [(path, self.state.texts.get(path) or "", content or "") for path, content in self.files_due(plan)]
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
            return self.keeping(plan, "keep") + (["download %d MiB of packages" % -(-plan["download_bytes"] // packages.MIB)] if plan["download_bytes"] else [])
        sentences = self.keeping(plan, "keep")
        if plan["journal"] or plan["broken"]:
            sentences.append("finish an interrupted %s run: %s" % (self.words["repair"], ", ".join(plan["journal"] + plan["broken"])))
        sentences += transaction.action_sentences(plan["transaction"])
        if self.options["state"] == "resolved":
            return sentences
        hold, unhold = self.hold_changes(plan, self.foreseen(plan)) if plan["resolved"] else ([], [])
        sentences += ["hold %s" % ", ".join(hold)] if hold else []
        sentences += ["lift the hold of %s" % ", ".join(unhold)] if unhold else []
        return sentences + ["%s %s" % ("remove" if content is None else "write", path) for path, content in self.files_due(plan)]

    def keeping(self, plan, what):
        listing = ", ".join("%s %s" % item for item in sorted(plan[what].items()))
        return ["keep for the way back: %s" % listing] if listing else []

    def held(self, installed, plan):
        """``{name: version}`` of the driver's packages that are held."""
        names = packages.installed_driver(plan["table"], installed) if plan["table"] else []
        return dict((name, installed[name]["version"]) for name in names if installed[name]["hold"])

    def holds(self, plan, installed=None):
        """How old the holds are, and what they keep out."""
        held = self.held(plan["installed"] if installed is None else installed, plan)
        if not held:
            return []
        record = holds.parse(files.read_text(self.manager.path(holds.RECORD)))
        return holds.report(record, held, plan["index"], self.manager.security(held), self.manager.name, time.time())

    # acting

    def record_holds(self, plan, installed):
        """Keep the time since when each package is held. It is no change of the node."""
        path = self.manager.path(holds.RECORD)
        text = files.read_text(path)
        held, before = self.held(installed, plan), self.held(plan["installed"], plan)
        record = holds.update(holds.parse(text), held, time.time(), [name for name in held if held[name] != before.get(name)])
        if record != holds.parse(text):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, holds.render(record))

    def expects_another(self, plan):
        """Return whether the node checks itself at boot, and expects another driver than the one that is wanted here."""
        if self.options["state"] != "present" or not plan["resolved"]["upstream"]:
            return False
        return self.state.expected_driver not in (None, plan["resolved"]["upstream"])

    def record_expectation(self, plan):
        """Expect the driver that is installed now: the reboot into it would fail otherwise."""
        if self.expects_another(plan):
            boot_expectation.keep_driver(self.manager.path(boot_expectation.PATH), plan["resolved"]["upstream"])
            self.actions.append("wrote driver %s into %s" % (plan["resolved"]["upstream"], boot_expectation.PATH))

    def repair(self, plan):
        """Finish an interrupted run of the package manager; answers whether the plan has to be made again."""
        if not plan["journal"] and not plan["broken"]:
            return False
        self.repaired = True
        self.actions.append("finished an interrupted %s run (journal: %s; not configured: %s)" % (
            self.words["repair"], ", ".join(plan["journal"]) or "empty", ", ".join(plan["broken"]) or "none"))
        error = self.manager.configure()
        if error:
            self.actions.append("%s did not finish: %s" % (self.words["finish"], error))
        return True

    def act(self, plan):
        self.keep(plan)
        if self.options["state"] == "downloaded":
            if plan["download_bytes"]:
                self.manager.download(plan["arguments"], self.manager.download_options(plan["broken"]))
            self.actions = self.foresee(plan)
            self.keep_new(plan)
            return
        try:
            if not transaction.is_empty(plan["transaction"]) or plan["broken"]:
                self.run_transaction(plan)
        finally:
            self.restore_holds(plan)
        self.write_files(plan)
        self.keep_new(plan)

    def keep(self, plan):
        """The way back first: without it nothing is begun."""
        wrong = self.manager.keep(plan["keep"], plan["index"]) if plan["keep"] else {}
        if wrong:
            raise ChangeFailed("The driver that is installed cannot be kept for the way back: %s. Nothing was changed. Next step: %s." % (
                "; ".join("%s: %s" % item for item in sorted(wrong.items())), packages.KEEP_STEP))
        self.actions += self.keeping(plan, "keep")

    def keep_new(self, plan):
        """Keep the packages that were downloaded, from the cache. One that cannot be kept is told, and is no failure: it is in the cache."""
        self.unkept = sorted(self.manager.keep(plan["keep_new"], plan["index"])) if plan["keep_new"] else []
        if plan["before"] and self.options["state"] == "present":
            self.manager.store.forget(set(plan["before"].items()) | set(plan["resolved"]["packages"].items()))

    def run_transaction(self, plan):
        options = self.manager.fix_options(plan["broken"])
        if self.options["dkms_build"] == "deferred":
            options += self.manager.deferred_dkms_options()
        try:
            self.manager.change(plan["arguments"], "remove" if self.options["state"] == "absent" else "install", options)
        except ManagerError as exc:
            raise ChangeFailed("%s. Next step: read the output, repair its cause, run again." % exc, output=exc.output, **self.build_log(plan)) from exc
        self.actions += transaction.action_sentences(plan["transaction"])

    def build_log(self, plan):
        """The end of make.log when a DKMS build of this run failed."""
        resolved = plan["resolved"]
        path = dkms.log_path(self.manager.root, resolved["dkms_name"], resolved["dkms_version"]) if resolved and resolved["dkms_name"] else None
        if not path or os.stat(self.manager.path(path)).st_mtime < self.started - 1:
            return {}
        return {"make_log": path, "make_log_tail": dkms.log_tail(self.manager.root, path)}

    def restore_holds(self, plan):
        """The hold of what is changed is dropped, or is one of the old version: put back what was held, then bring the set's own to what is asked."""
        installed = self.manager.installed()
        held_before = [name for name, have in plan["installed"].items() if have["hold"]]
        hold, unhold = self.hold_changes(plan, installed)
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
        for path, content in self.files_due(plan):
            if content is None:
                os.unlink(self.manager.path(path))
            else:
                write_atomically(self.manager.path(path), content)
            self.actions.append("%s %s" % ("remove" if content is None else "write", path))

    def verify(self, plan):
        """Read back: success of the package manager proves nothing."""
        installed = self.manager.installed()
        if self.options["state"] == "downloaded":
            left = self.manager.to_download(plan["arguments"], self.manager.download_options(plan["broken"]))
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
                raise ChangeFailed("%s ended well, and yet these packages are not as resolved: %s. Next step: %s of them on the node." % (
                    self.manager.name, listing, self.words["policy"]))
            self.read_dkms_name(plan["resolved"])
            hold, unhold = self.hold_changes(plan, installed)
            if hold or unhold:
                raise ChangeFailed("%s did not take: %s." % (self.words["hold"], ", ".join(hold + unhold)))
        return installed
