# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""scontrol and squeue of the control-flow tests: DIRECTORY COMMAND WORD... The node n-NAME is the file of NAME; its
C(jobs) is how many hold it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys


def configured(nodes, name):
    """The Gres that slurmctld last read of the node in its files; None where no file has it."""
    path = os.path.join(os.path.dirname(nodes), "slurm", "now", name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as stream:
        return stream.read().splitlines()[-1].split()[0]


def reconfigure(nodes):
    """Read the files of the nodes; each Gres that changed is noted with the MIG devices that each GPU of the node had
    at that moment.
    """
    base = os.path.join(os.path.dirname(nodes), "slurm")
    with open(os.path.join(base, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file in sorted(os.listdir(os.path.join(base, "nodes"))):
            name = file[: -len(".conf")]
            if file.endswith(".gres.conf") or not file.endswith(".conf"):
                continue
            with open(os.path.join(base, "nodes", file), encoding="utf-8") as stream:
                found = re.search(r"(?m)^NodeName=\S+ .*Gres=(\S+)", stream.read())
            gres = found.group(1) if found else "(null)"
            with open(os.path.join(nodes, name[2:], "node.json"), encoding="utf-8") as stream:
                node = json.load(stream)
            if gres not in (configured(nodes, name) or node["slurm"]["gres"], node["slurm"].get("ignores")):
                with open(os.path.join(base, "now", name), "a", encoding="utf-8") as stream:
                    stream.write("%s %d\n" % (gres, node.get("mig_now", node.get("mig_devices", 0))))


def main():
    nodes, command, *words = sys.argv[1:]
    if words == ["show", "config"]:
        print("SLURM_CONF = %s" % os.path.join(os.path.dirname(nodes), "slurm", "slurm.conf"))
        print("SLURM_VERSION = 23.11.4")
        return
    if words == ["reconfigure"]:
        reconfigure(nodes)
        return
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
        gres = configured(nodes, name) or slurm.get("gres", "(null)")
        print(
            "NodeName=%s CPUAlloc=%d\n   Gres=%s\n   NodeHostName=%s Version=22.05.8"
            % (name, node.get("jobs", 0), gres, name[2:])
        )
        print("   State=%s\n   BootTime=2026-11-21T08:00:00" % slurm.get("state", "IDLE"))
        if slurm.get("reason"):
            short = "gres/gpu count reported lower than configured (0 < 8) [slurm@2026-11-21T22:47:07]"
            print(
                "   Reason=%s"
                % (short if node.get("registers_short") else slurm["reason"] + " [root@2026-11-21T22:47:07]")
            )
    else:
        drains = fields["state"] == "drain"
        slurm.update(state="IDLE+DRAIN" if drains else "IDLE", reason=fields.get("reason", ""))
        slurm.setdefault("log", []).append("%s %s" % (fields["state"], slurm["reason"]) if drains else fields["state"])
        # What happens on it while its jobs are waited for, such as that they end; and what is changed in Slurm once it
        # serves again.
        node.update(node.get("after_drain", {}) if drains else {})
        slurm.update({} if drains else slurm.pop("after_resume", {}))
        new = "%s.%d" % (path, os.getpid())
        with open(new, "w", encoding="utf-8") as stream:
            json.dump(node, stream)
        os.rename(new, path)


if __name__ == "__main__":
    main()
