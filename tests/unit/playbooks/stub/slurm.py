# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""scontrol and squeue of the control-flow tests: DIRECTORY COMMAND WORD... The node n-NAME is the file of NAME; its C(jobs) is how many hold it."""

from __future__ import annotations

import json
import os
import sys


def main():
    nodes, command, *words = sys.argv[1:]
    fields = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    name = fields.get("nodename") or fields.get("nodelist") or words[2]
    path = os.path.join(nodes, name[2:], "node.json")
    if not name.startswith("n-") or not os.path.exists(path):
        sys.exit("slurm_update error: Invalid node name specified")
    with open(path, encoding="utf-8") as stream:
        node = json.load(stream)
    slurm = node.setdefault("slurm", {})
    if "--json" in words:
        sys.exit("scontrol: unrecognized option '--json'")
    if slurm.get("away") or (slurm.get("refuses") and fields.get("state") == slurm["refuses"]):
        sys.exit("slurm_load_node error: Unable to contact slurm controller (connect failure)")
    if command == "squeue":
        for number in range(node.get("jobs", 0)):
            print("%d|kim|batch|RUNNING|1:00" % (4711 + number))
    elif words[0] == "show":
        print("NodeName=%s CPUAlloc=%d\n   Gres=%s\n   NodeHostName=%s Version=22.05.8" % (name, node.get("jobs", 0), slurm.get("gres", "(null)"), name[2:]))
        print("   State=%s\n   BootTime=2026-11-21T08:00:00" % slurm.get("state", "IDLE"))
        if slurm.get("reason"):
            print("   Reason=%s [root@2026-11-21T22:47:07]" % slurm["reason"])
    else:
        drains = fields["state"] == "drain"
        slurm.update(state="IDLE+DRAIN" if drains else "IDLE", reason=fields.get("reason", ""))
        slurm.setdefault("log", []).append("%s %s" % (fields["state"], slurm["reason"]) if drains else fields["state"])
        # What happens on it while its jobs are waited for, such as that they end; and what is changed in Slurm once it serves again.
        node.update(node.get("after_drain", {}) if drains else {})
        slurm.update({} if drains else slurm.pop("after_resume", {}))
        new = "%s.%d" % (path, os.getpid())
        with open(new, "w", encoding="utf-8") as stream:
            json.dump(node, stream)
        os.rename(new, path)


if __name__ == "__main__":
    main()
