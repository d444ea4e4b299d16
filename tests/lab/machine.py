# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes one root file system this machine and no other, and the command lines that start and reach it. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .config import REGISTRY, USER, Lab
from .inventory import Machine

REBOOT = 133  # what systemd-nspawn --keep-unit answers when the machine wants to start again
LOCAL_NAMES = ("localhost", "ip6-localhost", "ip6-loopback", "ip6-allnodes", "ip6-allrouters")


@dataclass(frozen=True)
class File:
    path: str
    text: str
    mode: int = 0o644
    owner: str = "root"


def host_name(name: str) -> str:
    """The machine's own short name."""
    return name.split(".", 1)[0].lower()


def unit_name(lab: Lab, machine: Machine) -> str:
    """A name for systemd-nspawn that no machine of another lab has.

    By number, since its network device is named after it.
    """
    return f"gf{lab.number}-{machine.host_number}"


def port(lab: Lab, machine: Machine) -> str:
    """The machine's network device on the host, as systemd-nspawn(1) names it (--network-bridge)."""
    return f"vb-{unit_name(lab, machine)}"


def machine_id(lab: Lab, name: str) -> str:
    return hashlib.md5(lab.tag(name).encode(), usedforsecurity=False).hexdigest()


def foreign_hosts(text: str, own_names: set[str]) -> list[str]:
    """Lines of the host's /etc/hosts that mean something on another machine too (a mirror's or proxy's address)."""
    kept = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if len(words) < 2 or words[0].startswith("127.") or words[0] in ("::1", "fe00::0", "ff02::1", "ff02::2"):
            continue
        names = [name for name in words[1:] if name not in own_names and name not in LOCAL_NAMES]
        if names:
            kept.append(f"{words[0]} {' '.join(names)}")
    return kept


def hosts_file(lab: Lab, machine: Machine, others: list[Machine], foreign: list[str]) -> str:
    names = [machine.name] if host_name(machine.name) == machine.name else [machine.name, host_name(machine.name)]
    lines = ["127.0.0.1 localhost", f"127.0.1.1 {' '.join(names)}"]
    lines += [f"{lab.address(other.host_number)} {other.name}" for other in others if other.name != machine.name]
    return "\n".join(lines + foreign) + "\n"


def resolv_conf(text: str, upstream: str = "") -> str:
    """The host's name servers.

    One on the host's loopback cannot be reached from a machine: then those behind it are taken.
    """

    def servers(content: str) -> list[str]:
        return [
            line.split()[1]
            for line in content.splitlines()
            if line.split()[:1] == ["nameserver"] and len(line.split()) > 1
        ]

    usable = [server for server in servers(text) if not server.startswith("127.") and server != "::1"]
    usable = usable or [server for server in servers(upstream) if not server.startswith("127.")]
    rest = [
        line for line in text.splitlines() if line.split()[:1] in (["search"], ["options"]) and "trust-ad" not in line
    ]
    return "\n".join([f"nameserver {server}" for server in usable] + rest) + "\n"


def network_file(lab: Lab, machine: Machine, mtu: int) -> str:
    return (
        f"[Match]\nName=host0\n\n[Link]\nMTUBytes={mtu}\n\n"
        f"[Network]\nAddress={lab.address(machine.host_number)}/24\nGateway={lab.gateway}\nIPv6AcceptRA=no\n"
        f"LinkLocalAddressing=no\n"
    )


def identity(
    lab: Lab, machine: Machine, others: list[Machine], foreign: list[str], resolv: str, mtu: int, keys: dict[str, str]
) -> list[File]:
    """The files that make a machine out of the image. `keys`: host_private, host_public, user_public."""
    return [
        File("etc/hostname", host_name(machine.name) + "\n"),
        File("etc/hosts", hosts_file(lab, machine, others, foreign)),
        File("etc/machine-id", machine_id(lab, machine.name) + "\n", 0o444),
        File("etc/resolv.conf", resolv),
        File("etc/systemd/network/10-lab.network", network_file(lab, machine, mtu)),
        File("etc/ssh/ssh_host_ed25519_key", keys["host_private"], 0o600),
        File("etc/ssh/ssh_host_ed25519_key.pub", keys["host_public"]),
        File(f"home/{USER}/.ssh/authorized_keys", keys["user_public"], 0o600, USER),
    ]


def nspawn(lab: Lab, machine: Machine, root: Path) -> list[str]:
    """Boot the machine in the foreground.

    It ends with REBOOT when it wants to be started again, and with whoever started it.
    """
    return [
        "setpriv",
        "--pdeathsig=KILL",
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        f"--machine={unit_name(lab, machine)}",
        f"--hostname={host_name(machine.name)}",
        f"--network-bridge={lab.bridge}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "-D",
        str(root),
        "--boot",
        "--console=read-only",
    ]


def enter(leader: int, words: list[str]) -> list[str]:
    """Run a command in a machine as root, without going over its network."""
    inside = [
        "/usr/bin/env",
        "-i",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "USER=root",
        "LANG=C.UTF-8",
    ]
    spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wdns=/"]
    return ["nsenter", f"--target={leader}", *spaces, "--", *inside, *words]


def ssh(lab: Lab, machine: Machine, words: list[str]) -> list[str]:
    options = {"UserKnownHostsFile": lab.known_hosts, "StrictHostKeyChecking": "yes", "IdentitiesOnly": "yes"}
    options |= {"BatchMode": "yes", "ConnectTimeout": "5", "LogLevel": "ERROR"}
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "/dev/null", "-i", str(lab.key), *flags, f"{USER}@{lab.address(machine.host_number)}", *words]


def known_hosts(lab: Lab, public_keys: dict[Machine, str]) -> str:
    lines = []
    for machine, key in sorted(public_keys.items(), key=lambda item: item[0].host_number):
        kind, blob = key.split()[:2]
        lines.append(f"{lab.address(machine.host_number)},{machine.name} {kind} {blob}")
    return "".join(line + "\n" for line in lines)


def control_path(lab: Lab, which: str) -> str:
    """Where a shared connection's socket lies, for those who share one (testinfra does); short, as sockets have to
    be.
    """
    return f"{REGISTRY}/ssh{lab.number}-{which}"


def ssh_config(lab: Lab, known: list[Machine]) -> str:
    """An OpenSSH configuration for people and for testinfra: ssh -F .lab/ssh/config NODE."""
    blocks = []
    for machine in sorted(known, key=lambda each: each.host_number):
        blocks.append(
            f"Host {machine.name}\n  HostName {lab.address(machine.host_number)}\n  User {USER}\n"
            f"  IdentityFile {lab.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {lab.known_hosts}\n  StrictHostKeyChecking yes\n"
            f"  ControlPath {control_path(lab, '%C')}\n"
        )
    return "\n".join(blocks)


def simulator_settings(machine: Machine) -> list[str]:
    """The simulator's words for the hardware this machine has."""
    return ["--model", machine.model, "--gpus", str(machine.gpus), "--node", machine.name]
