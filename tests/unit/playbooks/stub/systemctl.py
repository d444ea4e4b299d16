# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd would say of the services of a stub node: systemctl show|start|stop|is-active NAME..."""

from __future__ import annotations

import json
import os
import sys
import time

PATH = os.path.join(os.environ["GPUFLEET_STUB_NODE"], "node.json")


def store():
    """Whoever reads it meanwhile finds the old one or the new one. The journal is that of stubnode.py."""
    new = "%s.%d" % (PATH, os.getpid())
    with open(new, "w", encoding="utf-8") as output:
        json.dump(node, output)
    os.rename(new, PATH)
    line = json.dumps([time.monotonic(), node["running"], node["loaded"], node["disk"], node["boots"], node["log"][-1]])
    with open(os.path.join(os.path.dirname(PATH), "journal"), "a", encoding="utf-8") as output:
        output.write(line + "\n")


with open(PATH, encoding="utf-8") as stream:
    node = json.load(stream)
words = [word for word in sys.argv[1:] if not word.startswith("-")]
deadline = time.monotonic() + 1800
while words[0] in node.get("waits_at", []):
    if time.monotonic() > deadline:
        sys.exit("this node was never told to go on at %r" % words[0])
    if "waits" not in node["log"]:
        node["log"].append("waits")
        store()
    time.sleep(0.2)
    with open(PATH, encoding="utf-8") as stream:
        node = json.load(stream)
command, names = words[0], [name if "." in name else name + ".service" for name in words[1:]]
if command == "show":
    known = node["enabled"] + ["nvidia-persistenced.service"]
    blocks = []
    for name in names:
        load, runs = "loaded" if name in known else "not-found", name in node["running"]
        active, sub = ("active", "running") if runs else ("inactive", "dead")
        blocks.append(
            load
            if "--value" in sys.argv
            else "Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nResult=success\nType=simple"
            % (name, load, active, sub)
        )
    print("\n\n".join(blocks))
elif command == "start" and node["loaded"] in node.get("no_service_with", []):
    print("the stub was told so", file=sys.stderr)
    sys.exit(1)
elif command in ("start", "stop", "restart"):
    for name in names:
        if command != "stop" and name not in node["running"]:
            node["running"].append(name)
        if command == "stop" and name in node["running"]:
            node["running"].remove(name)
        node["log"].append("%s %s" % (command, name))
        node["faults"] = [fault for fault in node.get("faults", []) if fault.get("until") != "%s %s" % (command, name)]
    store()
elif command in ("enable", "daemon-reload"):
    node["enabled"] += [name for name in names if name not in node["enabled"]]
    node["log"].append(" ".join([command, *names]))
    store()
elif command == "is-enabled":
    known = names[0] in node["enabled"]
    print("enabled" if known else "not-found")
    sys.exit(0 if known else 4)
elif command == "is-active":
    sys.exit(0 if set(names) <= set(node["running"]) else 3)
