# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_info costs a node with eight simulated GPUs, measured against ansible.builtin.ping in the same run.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.gpu_info [--rounds N] [--keep DIR]

Both modules go the same way: ansible-playbook, a local connection with pipelining, and an interpreter that notes bytes
and CPU. They take turns, so that whatever else the machine does meets both alike. Exits with 1 if a limit is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
RATIO_LIMIT = 2.0
BYTES_LIMIT = 250 * 1000
GPUS = 8

PLAYBOOK = """
- name: Take turns
  hosts: all
  gather_facts: false
  tasks:
    - name: Look whether Ansible reaches the node
      ansible.builtin.ping:

    - name: Read the GPUs
      gpufleet.lifecycle.gpu_info:
        fail_if_unavailable: true
      register: gpus

    - name: Keep what was read
      ansible.builtin.copy:
        dest: "{{ answer }}"
        content: "{{ gpus.snapshot | to_json }}"
        mode: "0600"
      delegate_to: localhost
      vars:
        ansible_python_interpreter: "{{ ansible_playbook_python }}"
      when: answer | length > 0
"""


def prepare(place):
    """A simulated node below PLACE, booted; its environment."""
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

    templates = place / "templates"
    templates.mkdir()
    node = simnode.Node(place / "node", simnode.built(), templates, "h100-sxm", GPUS, "bench")
    node.firmware(simnode.OLD)
    node.booted()
    return node


def play(place, node, python, rounds):
    """The notes of ROUNDS turns, and the last snapshot."""
    notes = place / "notes.jsonl"
    wrapper = place / "python"
    wrapper.write_text(
        "#!/bin/sh\nexec env GPUSIM_ROOT=%s LD_LIBRARY_PATH=%s %s %s %s %s \"$@\"\n"
        % tuple(
            shlex.quote(str(part))
            for part in (
                node.root,
                node.environment["LD_LIBRARY_PATH"],
                python,
                pathlib.Path(__file__).with_name("interpreter.py"),
                notes,
                python,
            )
        )
    )
    wrapper.chmod(0o700)
    (place / "playbook.yml").write_text("---\n" + PLAYBOOK.lstrip("\n"))
    command = [
        os.path.join(os.path.dirname(sys.executable), "ansible-playbook"),
        "-i",
        "bench,",
        "-c",
        "local",
        str(place / "playbook.yml"),
        "-e",
        json.dumps(
            {"ansible_python_interpreter": str(wrapper), "ansible_remote_tmp": str(place / "tmp"), "answer": ""}
        ),
    ]
    environment = dict(
        os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_PIPELINING="true", LC_ALL="C.UTF-8"
    )
    for number in range(rounds):
        last = number == rounds - 1
        extra = ["-e", json.dumps({"answer": str(place / "snapshot.json")})] if last else []
        done = subprocess.run(
            command + extra,
            env=environment,
            cwd=str(ROOT),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit("the play failed:\n%s" % (done.stdout,))
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    return [line for line in lines if line["module"]], json.loads((place / "snapshot.json").read_text())


def judge(lines, snapshot):
    """(a report as text lines, whether every limit is kept)."""
    pings = [line for line in lines if line["module"] == "ping"]
    infos = [line for line in lines if line["module"] == "gpu_info"]
    # The first turn sends the binding: two calls. It is shown and not counted.
    first, cached = infos[:2], infos[2:]
    pings = pings[1:]
    ping_cpu = statistics.median(line["cpu_s"] for line in pings)
    info_cpu = statistics.median(line["cpu_s"] for line in cached)
    ratio = info_cpu / ping_cpu
    largest = max(line["bytes"] for line in cached)
    enough = snapshot["status"] == "ok" and len(snapshot["gpus"]) == GPUS and snapshot["simulated"]
    report = [
        "gpus read                     %8d   (%s, driver %s, binding %s %s)"
        % (
            len(snapshot["gpus"]),
            snapshot["status"],
            snapshot["system"]["driver_version"]["value"],
            snapshot["binding"]["source"],
            snapshot["binding"]["version"],
        ),
        "turns counted                 %8d" % (len(cached),),
        "ping, CPU, median             %8.1f ms" % (ping_cpu * 1000,),
        "gpu_info, CPU, median         %8.1f ms   (first time: %s)"
        % (info_cpu * 1000, " + ".join("%.1f ms" % (line["cpu_s"] * 1000,) for line in first)),
        "gpu_info / ping               %8.2f      (limit %.1f)" % (ratio, RATIO_LIMIT),
        "gpu_info, sent, largest       %8d B    (limit %d; first time: %s; ping %d)"
        % (
            largest,
            BYTES_LIMIT,
            " + ".join(str(line["bytes"]) for line in first),
            max(line["bytes"] for line in pings),
        ),
    ]
    return report, enough and ratio <= RATIO_LIMIT and largest < BYTES_LIMIT and len(cached) == len(pings)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=16, help="turns, the first included (default %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="the node's interpreter (default: this one)")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds is %d; expected at least 3" % (options.rounds,))
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as name:
        place = pathlib.Path(name)
        node = prepare(place)
        try:
            report, kept = judge(*play(place, node, options.python, options.rounds))
        finally:
            node.close()
    print("\n".join(report))
    print("limits kept" if kept else "LIMIT NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
