# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an Ansible inventory to the machines that stand for its GPU hosts. Pure, but for asking ansible-inventory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .common import LabError, environment
from .config import CHECKOUT, FIRST_FREE_HOST, SUITE, SUITES, Lab

DEFAULT_MODEL = "h100-sxm"
DEFAULT_COUNT = 8


@dataclass(frozen=True)
class Machine:
    """One lab machine: what the host of that name in the inventory is to look like."""

    name: str
    host_number: int
    model: str = DEFAULT_MODEL
    gpus: int = DEFAULT_COUNT
    suite: str = SUITE

    def as_dict(self) -> dict:
        return asdict(self)


def members(groups: dict, name: str) -> list[str]:
    """The hosts of a group and of all groups below it, in the inventory's order, each once."""
    found: dict[str, None] = {}
    seen: set[str] = set()

    def walk(group: str) -> None:
        if group in seen:
            return
        seen.add(group)
        entry = groups.get(group) or {}
        for host in entry.get("hosts", []):
            found.setdefault(host)
        for child in entry.get("children", []):
            walk(child)

    walk(name)
    return list(found)


def gpu_hosts(groups: dict) -> list[str]:
    """The hosts to make machines for: group gpu_nodes, or all hosts where there is no such group."""
    names = members(groups, "gpu_nodes") if "gpu_nodes" in groups else members(groups, "all")
    variables = groups.get("_meta", {}).get("hostvars", {})
    return [name for name in names if variables.get(name, {}).get("ansible_connection") != "local"]


def _whole(name: str, what: str, value, low: int, high: int) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
        raise LabError(
            f"host {name}: {what} is {value!r}; expected a whole number from {low} to {high}, written out "
            f"in the inventory"
        )
    return int(text)


def addresses(names: list[str], variables: dict, taken: dict[str, int]) -> dict[str, int]:
    """The last number of each host's address: what the inventory says, else what its machine has, else a free one."""
    found: dict[str, int] = {}
    for name in names:
        wanted = variables.get(name, {}).get("lab_address")
        if wanted is not None:
            found[name] = _whole(name, "lab_address", wanted, 2, 254)
        elif name in taken:
            found[name] = taken[name]
    used = set(found.values()) | {number for name, number in taken.items() if name not in found}
    free = (number for number in range(FIRST_FREE_HOST, 255) if number not in used)
    for name in names:
        if name not in found:
            number = next(free, None)
            if number is None:
                raise LabError(f"host {name}: no free address left in the lab's network")
            found[name] = number
    owners = {number: name for name, number in taken.items() if name not in found}
    for name in names:
        other = owners.setdefault(found[name], name)
        if other != name:
            raise LabError(f"hosts {other} and {name} both have lab_address {found[name]}: give one of them another")
    return found


def machines(groups: dict, taken: dict[str, int] | None = None) -> list[Machine]:
    """The machines for an inventory. `taken` are addresses that running machines have, by name: they keep them."""
    variables = groups.get("_meta", {}).get("hostvars", {})
    names = gpu_hosts(groups)
    if not names:
        raise LabError("the inventory has no host in group gpu_nodes (or in all): there is no machine to make")
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?", name):
            raise LabError(
                f"host {name!r}: the lab takes names of letters, digits, dots and hyphens, as a host name is"
            )
    numbers = addresses(names, variables, taken or {})
    found = []
    for name in names:
        values = variables.get(name, {})
        model = str(values.get("lab_gpu_model", DEFAULT_MODEL))
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", model):
            raise LabError(f"host {name}: lab_gpu_model is {model!r}; expected a model's name such as {DEFAULT_MODEL}")
        suite = values.get("lab_suite", SUITE)
        if suite not in SUITES:
            raise LabError(f"host {name}: lab_suite is {suite!r}; the lab has images of {' and '.join(SUITES)}")
        found.append(
            Machine(
                name,
                numbers[name],
                model,
                _whole(name, "lab_gpu_count", values.get("lab_gpu_count", DEFAULT_COUNT), 0, 16),
                suite,
            )
        )
    return found


def rehearsal_overlay(lab: Lab, found: list[Machine]) -> dict[str, dict]:
    """The files of an inventory directory that points hosts at their lab machines, and says nothing else about them.

    The variables are in host_vars, since a user's own host_vars would win over variables in the hosts file.
    """
    files: dict[str, dict] = {"hosts.json": {"all": {"hosts": {machine.name: {} for machine in found}}}}
    for machine in found:
        files[f"host_vars/{machine.name}.json"] = {"ansible_host": lab.address(machine.host_number), **connection(lab)}
    return files


def astray(overlay: dict[str, dict], groups: dict) -> list[str]:
    """What, with all of the user's variables in, would not go to the lab after all: 'host: variable is value'."""
    variables = groups.get("_meta", {}).get("hostvars", {})
    found = []
    for path, wanted in sorted(overlay.items()):
        if path.startswith("host_vars/"):
            name = path[len("host_vars/") : -len(".json")]
            seen = variables.get(name, {})
            found += [f"{name}: {key} is {seen.get(key)!r}" for key, value in wanted.items() if seen.get(key) != value]
            # Other spellings of the same settings, which win over the ones above.
            other = (
                "ansible_ssh_host",
                "ansible_ssh_port",
                "ansible_ssh_user",
                "ansible_private_key_file",
                "ansible_ssh_extra_args",
                "ansible_ssh_executable",
            )
            found += [f"{name}: {key} is {seen[key]!r}" for key in other if key in seen]
    return found


def connection(lab: Lab) -> dict[str, object]:
    return {
        "ansible_connection": "ssh",
        "ansible_port": 22,
        "ansible_user": "fleet",
        "ansible_ssh_private_key_file": str(lab.key),
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={lab.known_hosts} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        ),
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def selected(found: list[Machine], source: Path, names: Sequence[str]) -> list[Machine]:
    """Return the machines of the inventory SOURCE that have these names, or all if none is given."""
    unknown = [name for name in names if name not in {machine.name for machine in found}]
    if unknown:
        raise LabError(
            f"{source} has no GPU host {', '.join(unknown)}; it has: {', '.join(machine.name for machine in found)}"
        )
    return [machine for machine in found if not names or machine.name in names]


def tool(name: str) -> str:
    """Return the path of an Ansible program of the environment that the lab runs in."""
    found = shutil.which(name)
    if not found:
        raise LabError(f"{name} is not on PATH: run the lab by 'tests/tools/nox.sh -s main -- python3 -m tests.lab'")
    return found


def read(*sources: Path, playbook_dir: Path | None = None) -> dict:
    """What 'ansible-inventory --list' says of inventories; a file ending in .list.json is taken as its output."""
    for source in sources:
        if not source.exists():
            raise LabError(f"no inventory at {source}")
    if len(sources) == 1 and sources[0].name.endswith(".list.json"):
        return json.loads(sources[0].read_text(encoding="utf-8"))
    command = [tool("ansible-inventory"), *(word for source in sources for word in ("-i", str(source))), "--list"]
    command += ["--playbook-dir", str(playbook_dir)] if playbook_dir else []
    settings = environment(ANSIBLE_CONFIG=os.environ.get("ANSIBLE_CONFIG", str(CHECKOUT / "ansible.cfg")))
    done = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, env=settings, timeout=120, check=False)
    if done.returncode != 0:
        raise LabError(f"ansible-inventory cannot read {', '.join(map(str, sources))}: {done.stderr.strip()}")
    return json.loads(done.stdout)
