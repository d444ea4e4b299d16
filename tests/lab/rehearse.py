# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run somebody's own playbook and variables on lab machines instead of their GPU hosts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from . import machines
from .common import LabError, elapsed, environment, say, write_json
from .config import CHECKOUT, Lab
from .inventory import Machine, astray, gpu_hosts, members, read, rehearsal_overlay, tool


def left_out(groups: dict) -> list[str]:
    """Hosts of the inventory that no machine stands for: the playbook would reach the real ones."""
    ours = set(gpu_hosts(groups))
    variables = groups.get("_meta", {}).get("hostvars", {})
    return [
        name
        for name in members(groups, "all")
        if name not in ours and variables.get(name, {}).get("ansible_connection") != "local"
    ]


def apart(lab: Lab) -> dict[str, str]:
    """Variables that keep a rehearsal apart from the real fleet: ledgers and baselines of its own, compiled modules of
    the lab's cache.
    """
    return {"gpufleet_artifact_dir": str(lab.state / "rehearsed"), "nvidia_driver_tree_dir": str(lab.trees)}


def command(
    program: str,
    inventory: Path,
    overlay: Path,
    playbook: Path,
    names: list[str],
    extra: list[str],
    variables: dict[str, str],
) -> list[str]:
    """ansible-playbook with the lab's addresses laid over the inventory, and the real hosts out of reach."""
    limit = ["--limit", ",".join([*names, "localhost"])]
    return [
        program,
        "-i",
        str(inventory),
        "-i",
        str(overlay),
        *limit,
        "-e",
        json.dumps(variables),
        *extra,
        str(playbook),
    ]


def run(lab: Lab, inventory: Path, playbook: Path, extra: list[str]) -> int:
    for what, path in (("inventory", inventory), ("playbook", playbook)):
        if not path.exists():
            raise LabError(f"no {what} at {path}")
    for word in extra:
        if word == "-l" or word.startswith("--limit") or (word.startswith("-l") and not word.startswith("--")):
            raise LabError(
                "a rehearsal sets --limit itself, so that no real host is reached; take hosts out with your own "
                "inventory instead"
            )
    groups = read(inventory)
    found: list[Machine] = machines.up(lab, inventory, [])
    overlay = lab.state / "rehearse"
    files = rehearsal_overlay(lab, found)
    shutil.rmtree(overlay, ignore_errors=True)
    for name, content in files.items():
        write_json(overlay / name, content)
    wrong = astray(files, read(inventory, overlay, playbook_dir=playbook.parent))
    if wrong:
        raise LabError(
            "the rehearsal would not stay in the lab, as variables beside the playbook or in the inventory win: "
            + "; ".join(wrong)
        )
    say(
        f"rehearsing {playbook} on {len(found)} machines: "
        f"{', '.join(f'{each.name} ({each.model} x{each.gpus})' for each in found)}"
    )
    others = left_out(groups)
    if others:
        say(f"left out, as they are no GPU hosts: {', '.join(others)}")
    start = time.monotonic()
    words = command(
        tool("ansible-playbook"), inventory, overlay, playbook, [each.name for each in found], extra, apart(lab)
    )
    say(shlex.join(words))
    settings = {"ANSIBLE_CONFIG": os.environ.get("ANSIBLE_CONFIG", str(CHECKOUT / "ansible.cfg"))}
    code = subprocess.run(words, env=environment(**settings), check=False).returncode
    say(
        f"ansible-playbook ended with {code} after {elapsed(start)}; the machines are left as they are: look at them, "
        f"then 'python3 -m tests.lab down'"
    )
    return code
