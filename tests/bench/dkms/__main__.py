# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What importing a compiled kernel module costs a node, against compiling it: real packages, real DKMS, on one machine
of the lab.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.dkms [--limit 100]

Both are the same task of dkms_module on the same node, first without and then with the archive in the node's store.
What counts is the CPU time (user and system) of the module with all its children. Compiling takes minutes; the cores
may be busy with other things, since time on them is counted and not time on the clock.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.lab import config, machines
from tests.lab.common import run
from tests.lab.play import play

NODE, VERSION = "gpu-r1-1", "535.261.03"
INTERPRETER = Path(__file__).resolve().parents[1] / "gpu_info" / "interpreter.py"
NOTES = "/root/bench-notes.jsonl"
FLEETS = (10, 100, 1000)


def module(name, counted=False, **options):
    task = {
        "name": name,
        "gpufleet.lifecycle.dkms_module": dict({"name": "nvidia-current", "version": VERSION}, **options),
    }
    return dict(task, vars={"ansible_python_interpreter": "/root/bench-python"}) if counted else task


def tasks():
    wrapper = "#!/bin/sh\nexec /usr/bin/python3 /root/bench-interpreter.py %s /usr/bin/python3 \"$@\"\n" % NOTES
    return [
        {
            "name": "Offer the driver's packages",
            "ansible.builtin.include_role": {"name": "gpufleet.lifecycle.nvidia_repository"},
        },
        {"name": "Install them", "gpufleet.lifecycle.driver_packages": {"version": VERSION, "dkms_build": "deferred"}},
        {
            "name": "Count what the module costs",
            "ansible.builtin.copy": {"src": str(INTERPRETER), "dest": "/root/bench-interpreter.py", "mode": "0600"},
        },
        {
            "name": "By an interpreter of its own",
            "ansible.builtin.copy": {"content": wrapper, "dest": "/root/bench-python", "mode": "0700"},
        },
        module("Compile", counted=True),
        {
            "name": "Make a place",
            "ansible.builtin.file": {"path": "/var/lib/gpufleet/dkms", "state": "directory", "mode": "0755"},
        },
        module("Keep it", state="exported", export_dir="/var/lib/gpufleet/dkms"),
        module("Remove it", state="absent"),
        module("Import", counted=True),
        {"name": "Bring the notes", "ansible.builtin.fetch": {"src": NOTES, "dest": "{{ bench_notes }}", "flat": True}},
    ]


def measure(lab, notes):
    """``(compile, import)`` in seconds of CPU."""
    run(str(config.CHECKOUT / "tests/tools/collections.sh"))
    inventory = config.CHECKOUT / "inventories" / "lab"
    machines.up(lab, inventory, [NODE])
    machines.reset(lab, [NODE])
    outcome = play(
        [{"hosts": NODE, "become": True, "gather_facts": True, "tasks": tasks()}],
        inventory,
        {"bench_notes": str(notes)},
    )
    if outcome.rc != 0:
        raise SystemExit("the play failed:\n%s" % outcome.tail())
    seconds = [json.loads(line)["cpu_s"] for line in notes.read_text(encoding="utf-8").splitlines()]
    # Pipelining sends one call for each task; a task that asks first would send two.
    if len(seconds) != 2:
        raise SystemExit("expected the cost of two calls and got %s" % seconds)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--limit", type=float, default=100.0, help="how many times less an import has to cost (default 100)"
    )
    arguments = parser.parse_args()
    lab = config.current()
    notes = lab.state / "bench-dkms.jsonl"
    notes.unlink(missing_ok=True)
    try:
        compiled, imported = measure(lab, notes)
    finally:
        machines.down(lab)
        run("rm", "-f", notes)
    ratio = compiled / imported
    print(
        "driver %s on %s (real DKMS, nothing simulated in what is measured), CPU of the node in seconds:"
        % (VERSION, NODE)
    )
    print(
        "  compile %8.1f\n  import  %8.1f    %.0f times less (limit %.0f)"
        % (compiled, imported, ratio, arguments.limit)
    )
    for nodes in FLEETS:
        each, once = nodes * compiled, compiled + (nodes - 1) * imported
        print("  %5d nodes: each compiles %9.0f, one for all %7.0f: %.0f times less" % (nodes, each, once, each / once))
    kept = ratio >= arguments.limit
    print("limit kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
