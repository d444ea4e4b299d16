# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemctl of a simulated node below a directory: python systemctl.py ROOT COMMAND [UNIT]...

A unit that starts runs the program of its name in ROOT/on-start, if there is one, as the service would.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
FILE = ROOT / "services.json"
state = json.loads(FILE.read_text())
words = [word for word in sys.argv[2:] if not word.startswith("-")]
command, names = words[0], [name if "." in name else name + ".service" for name in words[1:]]
ABSENT = ["not-found", "inactive", "dead", "success", ""]


def set_unit(name, **change):
    load, active, sub, result, enabled = state["units"].get(name, ABSENT)
    new = dict({"active": active, "enabled": enabled}, **change)
    state["units"][name] = [
        load,
        new["active"],
        "running" if new["active"] == "active" else "dead",
        result,
        new["enabled"],
    ]


if command == "show":
    value = "--value" in sys.argv
    for name in names:
        load, active, sub, result, enabled = state["units"].get(name, ABSENT)
        print(
            load
            if value
            else "Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nResult=%s\nUnitFileState=%s\n"
            % (name, load, active, sub, result, enabled)
        )
elif command == "is-enabled":
    found = state["units"].get(names[0], ABSENT)[4]
    print(found or "disabled")
    sys.exit(0 if found == "enabled" else 1)
elif command == "is-active":
    found = state["units"].get(names[0], ABSENT)[1]
    print(found)
    sys.exit(0 if found == "active" else 3)
elif command in ("enable", "disable"):
    set_unit(names[0], enabled=command + "d")
    state["log"].append("%s %s" % (command, names[0]))
elif command == "mask":
    set_unit(names[0], enabled="masked")
    state["log"].append("mask " + names[0])
elif command in ("start", "restart", "stop"):
    state["log"].append("%s %s" % (command, names[0]))
    if state["units"].get(names[0], ABSENT)[0] == "not-found":
        sys.exit("Unit %s not found." % names[0])
    set_unit(names[0], active="inactive" if command == "stop" else "active")
    hook = ROOT / "on-start" / names[0]
    if command != "stop" and hook.exists():
        done = subprocess.run(["sh", str(hook)], check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            set_unit(names[0], active="failed")
            FILE.write_text(json.dumps(state))
            sys.exit("Job for %s failed because the control process exited with error code." % names[0])
elif command == "daemon-reload":
    state["log"].append(command)
FILE.write_text(json.dumps(state))
