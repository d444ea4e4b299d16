# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the module nvidia_ctk: what nvidia-ctk would write is made in a directory aside and compared, and written
only where it differs.
"""

from __future__ import annotations

import os
import tempfile

from .._node import cdi, files
from . import decide, runtimes

CONFIGURED, REFRESHED = "configured", "refreshed"
CDI_FILE = "/var/run/cdi/nvidia.yaml"
# From before a runtime's files change until it has read them. A boot, which starts it with the files, removes them.
MARKS = "/run/gpufleet-restart-"
CALL_S, RESTART_S = 120, 180


class CtkError(Exception):
    """Something did not end as it should have; the message says what and the next step."""


class Ctk:
    """One run of the module. ``params`` are its options, ``runner`` calls commands."""

    def __init__(self, params, runner, root="/") -> None:
        self.params, self.runner, self.root = params, runner, root
        self.found = runtimes.read(root, runner)
        wanted = params["runtimes"] if params["state"] == CONFIGURED else []
        self.plan = decide.decide(self.found, wanted)
        if params["state"] == REFRESHED:
            self.plan["refusals"] = [
                item for item in self.plan["refusals"] if item["id"].startswith(("no_toolkit", "toolkit_"))
            ]
            self.plan["runtimes"] = []

    # ---- what would be written ----

    def differences(self) -> tuple[list, dict]:
        """``(runtimes whose files differ, {path: (before, after)})``; what nvidia-ctk writes is made in a directory
        aside, and nothing else is touched.
        """
        changes, due = {}, []
        with tempfile.TemporaryDirectory(prefix="gpufleet-ctk-") as place:
            for name in self.plan["runtimes"]:
                mine = self.foresee_change(name, os.path.join(place, name)) if name in decide.CONFIGURED else {}
                changes.update(mine)
                if mine:
                    due.append(name)
            changes.update(self.foreseen_cdi(os.path.join(place, "cdi")))
        return due, changes

    def foresee_change(self, name, place) -> dict[str, tuple]:
        paths = decide.CONFIGURED[name]["files"]
        before = dict((path, files.read_text(files.under(self.root, path))) for path in paths)
        drop_ins = os.path.dirname(paths[1]) if len(paths) > 1 else None
        for path, text in before.items():
            copy = files.under(place, path)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            if text is not None:
                # The main file names the directory of the others, which is aside too.
                write(
                    copy,
                    text.replace(files.under(self.root, drop_ins), files.under(place, drop_ins)) if drop_ins else text,
                )
        self.call(
            decide.command(
                self.found["toolkit"], name, lambda path: files.under(place, path), self.params["default_runtime"]
            ),
            "configure %s" % name,
        )
        after = dict((path, files.read_text(files.under(place, path))) for path in paths)
        if drop_ins:
            after = dict(
                (path, text and text.replace(files.under(place, drop_ins), files.under(self.root, drop_ins)))
                for path, text in after.items()
            )
        return dict((path, (before[path], text)) for path, text in after.items() if text != before[path])

    def foreseen_cdi(self, place) -> dict[str, tuple]:
        """The files of CDI: one for the GPUs, and with it perhaps others of the same stem; those that are no longer
        made go.
        """
        os.makedirs(place)
        target = self.params["cdi_file"]
        self.call(
            [
                self.found["toolkit"]["path"],
                "cdi",
                "generate",
                "--output=%s" % os.path.join(place, os.path.basename(target)),
            ],
            "make the CDI file",
        )
        made = dict((name, files.read_text(os.path.join(place, name))) for name in files.listing(place) or [])
        if not made.get(os.path.basename(target)):
            raise CtkError(
                "nvidia-ctk cdi generate wrote no file. Next step: run it on the node, and see that the "
                "driver is loaded"
            )
        directory = os.path.dirname(target)
        stem, ending = os.path.splitext(os.path.basename(target))
        there = [
            name
            for name in files.listing(files.under(self.root, directory)) or []
            if name.startswith(stem + ".") and name.endswith(ending)
        ]
        changes = {}
        for name in sorted(set(made) | set(there)):
            path = "%s/%s" % (directory, name)
            before = files.read_text(files.under(self.root, path))
            if before != made.get(name):
                changes[path] = (before, made.get(name))
        return changes

    def call(self, argv, what) -> None:
        rc, out, err = self.runner([files.under(self.root, argv[0])] + argv[1:], CALL_S)
        if rc:
            lines = (err.strip() or out.strip() or "it said nothing").splitlines()
            raise CtkError(
                "nvidia-ctk could not %s (rc %s: %s). Next step: run %s on the node"
                % (what, rc, lines[-1], " ".join(argv[:3]))
            )

    # ---- doing it ----

    def pending(self) -> list[str]:
        """Runtimes that an earlier run configured and did not restart."""
        return [
            name
            for name in decide.CONFIGURED
            if self.params["restart"] and os.path.exists(files.under(self.root, MARKS + name))
        ]

    def busy(self, due) -> str:
        """Return the reason not to restart a runtime now; empty if it may be restarted."""
        ends = [name for name in due if name in decide.ENDS_CONTAINERS]
        if not (ends and self.params["restart"] and self.params["in_use"]):
            return ""
        return "%s has to be restarted, which ends its containers, and %s" % (" and ".join(ends), self.params["in_use"])

    def act(self, due, changes) -> list[str]:
        """Write, restart and read back; what was done, in sentences."""
        actions = []
        for name in due:
            if self.params["restart"]:
                files.write_atomically(files.under(self.root, MARKS + name), "\n", 0o600)
            self.call(
                decide.command(
                    self.found["toolkit"],
                    name,
                    lambda path: files.under(self.root, path),
                    self.params["default_runtime"],
                ),
                "configure %s" % name,
            )
            actions.append("configure %s" % name)
        for path, (dummy, text) in changes.items():
            if not os.path.dirname(path) == os.path.dirname(self.params["cdi_file"]):
                continue
            target = files.under(self.root, path)
            if text is None:
                os.unlink(target)
            else:
                os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
                files.write_atomically(target, text)
            actions.append("%s %s" % ("remove" if text is None else "write", path))
        left, again = self.differences()
        if left or again:
            raise CtkError(
                "what nvidia-ctk writes is another thing each time: %s. Next step: compare the files with what "
                "nvidia-ctk makes" % (", ".join(sorted(again)),)
            )
        return actions + [self.restart(name) for name in self.pending()]

    def restart(self, name) -> str:
        unit = decide.CONFIGURED[name]["unit"]
        rc, out, dummy = self.runner(["systemctl", "show", "--property=ActiveState", "--value", unit], CALL_S)
        if rc == 0 and out.strip() in ("inactive", ""):
            os.unlink(files.under(self.root, MARKS + name))
            return "leave %s stopped" % unit
        rc, out, err = self.runner(["systemctl", "restart", unit], RESTART_S)
        state = self.runner(["systemctl", "show", "--property=ActiveState", "--value", unit], CALL_S)[1].strip()
        if rc or state != "active":
            raise CtkError(
                "%s is %s after its restart, expected active (%s). Next step: look at journalctl -u %s; "
                "nvidia-ctk wrote %s"
                % (
                    unit,
                    state or "not known",
                    (err or out).strip() or "it said nothing",
                    unit,
                    ", ".join(decide.CONFIGURED[name]["files"]),
                )
            )
        os.unlink(files.under(self.root, MARKS + name))
        return "restart %s" % unit

    def devices(self) -> list[str]:
        """The devices that the CDI file names."""
        found = cdi.read(self.root) or {"specs": []}
        paths = (self.params["cdi_file"], files.resolve(self.root, self.params["cdi_file"]))
        return next((spec["devices"] or [] for spec in found["specs"] if spec["path"] in paths), [])


def write(path, text) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
