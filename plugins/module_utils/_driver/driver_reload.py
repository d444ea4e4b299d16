# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reload the driver: read, decide (``_driver.reload``), stop, unload, load, read back, and start again what was
stopped.
"""

from __future__ import annotations

import os
import time

from .._kernel import kernels, loaded, modules, secureboot
from .._node import files, holders, hung, pcilink, switch_managers, units
from .._node.runner import Runner
from . import driver_files, reload

SETTLE_STEP_S = 0.5
COMMAND_S = 60
# What is loaded where nothing was.
FIRST = (loaded.MAIN_MODULE, "nvidia_uvm")


class Impossible(Exception):
    """The facts after the services were stopped do not allow a reload."""

    def __init__(self, reasons) -> None:
        self.reasons = reasons
        super().__init__(reload.make_sentence(reasons))


class Failed(Exception):
    """A step failed; ``lines`` say which."""

    def __init__(self, lines) -> None:
        self.lines = lines
        super().__init__("; ".join(lines))


def read_reload(root, runner, services, uname=os.uname) -> dict:
    kernel = kernels.read(root, runner, uname)
    return {
        "kernel": kernel,
        "loaded": loaded.read_driver(root),
        "module": modules.read(root, kernel["running"], runner),
        "references": loaded.read_references(root),
        "holders": holders.read_holders(root),
        "services": units.show(runner, services),
        "hung": hung.read_hung_tasks(root),
        "nvswitches": pcilink.read_links(root)[1],
        "nvlink_managers": switch_managers.read_managers(root),
        "gsp_firmware": driver_files.read_firmware(root),
        "gsp_disabled": driver_files.is_firmware_disabled(root),
        "secure_boot": secureboot.read(root, runner),
        "framebuffers": files.read_text(files.under(root, "/proc/fb")),
    }


class DriverReload:
    """One run of module driver_reload. ``params`` are the module's options."""

    def __init__(self, params, runner=None, root="/", uname=os.uname, sleep=time.sleep) -> None:
        self.params = params
        self.runner = runner or Runner()
        self.root = root
        self.uname = uname
        self.sleep = sleep
        self.stopped = []
        self.unloaded = []
        self.actions = []

    def look(self) -> tuple[dict, dict]:
        facts = read_reload(self.root, self.runner, self.params["services"], self.uname)
        return facts, reload.decide_reload(facts, self.params)

    def preview(self) -> dict:
        """Return what would be done, in sentences; nothing is done."""
        facts, plan = self.look()
        if plan["action"] == reload.RELOAD:
            self.actions = ["stop %s" % name for name in plan["stop"]] + ["unload %s" % name for name in plan["unload"]]
            self.actions += ["load %s" % name for name in self.to_load(plan["unload"])] + [
                "start %s" % name for name in reversed(plan["stop"])
            ]
        return self.answer(facts, plan, plan["action"] == reload.RELOAD)

    def run(self) -> dict:
        facts, plan = self.look()
        if plan["action"] != reload.RELOAD:
            return self.answer(facts, plan, False)
        problems = []
        try:
            self.stop(plan["stop"])
            self.check_free()
            self.unload(plan["unload"])
            self.load(self.to_load(plan["unload"]))
            self.prove(plan["version"])
        except Impossible as exc:
            plan = dict(plan, reasons=exc.reasons, action=reload.judge_reload(exc.reasons, self.params["policy"]))
        except Failed as exc:
            problems += exc.lines
        finally:
            problems += [line for line in self.restore() if line not in problems]
        # A node that is to reboot anyway may leave something for the boot to bring back.
        if problems and plan["action"] != reload.REBOOT:
            plan = dict(plan, action=reload.REFUSE)
        return dict(self.answer(facts, plan, bool(self.actions)), problems=problems)

    def answer(self, facts, plan, changed) -> dict:
        pending = [item for item in plan["reasons"] if item["reboot_helps"]]
        return {
            "changed": changed,
            "action": plan["action"],
            "why": plan["why"],
            "reasons": plan["reasons"],
            "reboot_required": plan["action"] == reload.REBOOT,
            "reboot_reason": "; ".join(item["message"] for item in pending) if plan["action"] == reload.REBOOT else "",
            "holders": facts["holders"],
            "references": facts["references"],
            "services": plan["stop"],
            "kernel_modules": plan["unload"],
            "version_before": facts["loaded"]["version"],
            "version": loaded.read_driver(self.root)["version"],
            "version_on_disk": plan["version"],
            "actions": self.actions,
            "problems": [],
        }

    @staticmethod
    def to_load(unloaded) -> list[str]:
        return list(reversed(unloaded)) or list(FIRST)

    def stop(self, services) -> None:
        for name in services:
            # Noted first: a stop that fails half-way is started again, too.
            self.stopped.append(name)
            self.act("stop %s" % name, ["systemctl", "stop", name], self.params["stop_timeout_s"])

    def check_free(self) -> None:
        """Require that no process holds the GPUs any more, and that every reference is another module's; one that is
        ending gets a moment.
        """
        deadline = self.params["settle_s"]
        while True:
            found = list(
                reload.holder_reasons({"holders": holders.read_holders(self.root), "hung": [], "services": {}}, [])
            )
            found = found or list(reload.reference_reasons(loaded.read_references(self.root), False))
            if not found:
                return
            if deadline <= 0:
                raise Impossible(found)
            self.sleep(SETTLE_STEP_S)
            deadline -= SETTLE_STEP_S

    def unload(self, names) -> None:
        for name in names:
            table = loaded.read_references(self.root)
            if table is None or name not in table:
                continue  # it went with the one that used it
            if table[name]["refcnt"] != 0:
                raise Impossible(
                    [
                        reload.explain_holder(
                            "unexplained_reference",
                            "module %s is in use again (%s references, holders: %s)"
                            % (name, table[name]["refcnt"], ", ".join(table[name]["holders"] or []) or "none"),
                            "reboot the node",
                        )
                    ]
                )
            rc, dummy, err = self.runner(["rmmod", name], COMMAND_S)
            if rc:
                raise Impossible(
                    [
                        reload.explain_holder(
                            "unload_failed",
                            "module %s was not unloaded (rmmod answered rc %s: %s)" % (name, rc, err.strip()),
                            "reboot the node",
                        )
                    ]
                )
            self.unloaded.append(name)
            self.actions.append("unload %s" % name)

    def load(self, names) -> None:
        lines = []
        for name in names:
            try:
                self.act("load %s" % name, ["modprobe", name], COMMAND_S)
            except Failed as exc:
                lines += exc.lines
                if name == loaded.MAIN_MODULE:
                    break
            else:
                self.unloaded = [other for other in self.unloaded if other != name]
        if lines:
            raise Failed(lines)

    def prove(self, version) -> None:
        now = loaded.read_driver(self.root)
        if now["state"] != "loaded" or now["version"] != version:
            raise Failed(
                [
                    "after the reload %s is loaded, expected driver %s"
                    % ("driver %s" % now["version"] if now["version"] else "no driver (%s)" % now["state"], version)
                ]
            )

    def restore(self) -> list[str]:
        """Load again what was unloaded and is still missing, and start what was stopped, the last one first; answers
        what did not work.
        """
        problems = []
        if self.unloaded:
            try:
                self.load(
                    [
                        name
                        for name in self.to_load(self.unloaded)
                        if name not in (loaded.read_references(self.root) or {})
                    ]
                )
            except Failed as exc:
                problems += exc.lines
        for name in reversed(self.stopped):
            try:
                self.act("start %s" % name, ["systemctl", "start", name], self.params["stop_timeout_s"])
            except Failed as exc:
                problems += exc.lines
        return problems

    def act(self, what, argv, timeout) -> None:
        rc, out, err = self.runner(argv, timeout)
        if rc:
            raise Failed(
                [
                    "could not %s (%s answered rc %s: %s)"
                    % (what, " ".join(argv[:2]), rc, (err or out).strip() or "it said nothing")
                ]
            )
        self.actions.append(what)
