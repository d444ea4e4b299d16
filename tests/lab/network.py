# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's bridge on the host, made by up, removed by down and found by its name alone, and the kernel settings that
machines need: raised for the first lab, put back with the last.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from .common import LabError, read_json, run, write_json
from .config import BRIDGES, HIGHEST_LAB_ID, REGISTRY, Lab

# Every systemd takes a dozen inotify instances (inotify(7)): ten machines use up the kernel's default of 128.
HOST_SETTINGS = {"fs/inotify/max_user_instances": 4096}
HOST_RECORD = "host.json"


def ruleset(lab: Lab) -> str:
    """nftables: let machines out under the host's address, and keep their packets to what fits through its way out."""
    return f"""\
table ip {lab.table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {lab.subnet} oifname != "{lab.bridge}" masquerade
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{lab.bridge}" tcp flags syn tcp option maxseg size set rt mtu
  }}
}}
"""


def accept_rules(lab: Lab) -> list[list[str]]:
    """For hosts whose iptables drop what is forwarded (Docker does so): the rules that let the lab's packets
    through.
    """
    comment = ["-m", "comment", "--comment", lab.table, "-j", "ACCEPT"]
    return [["FORWARD", "-i", lab.bridge, *comment], ["FORWARD", "-o", lab.bridge, *comment]]


def route_mtu(route: list[dict], links: list[dict]) -> int:
    """The MTU of the device that leads out, from 'ip -j route' and 'ip -j link'."""
    sizes = {link["ifname"]: link["mtu"] for link in links}
    for entry in route:
        if entry.get("dst") == "default":
            return int(sizes.get(entry.get("dev"), 1500))
    return 1500


def outward(routes: list[dict]) -> list[str]:
    """Return the devices that packets of the machines may come back on, from 'ip -j route'."""
    hops = [hop for entry in routes for hop in entry.get("nexthops", [entry])]
    return sorted({hop["dev"] for hop in hops if "dev" in hop and not hop["dev"].startswith(BRIDGES)})


def clash(lab: Lab, addresses: list[dict]) -> str | None:
    """The device that already has an address in the lab's subnet, if another than the bridge does."""
    subnet = ipaddress.ip_network(lab.subnet)
    for link in addresses:
        for entry in link.get("addr_info", []):
            if (
                entry.get("family") == "inet"
                and link["ifname"] != lab.bridge
                and ipaddress.ip_address(entry["local"]) in subnet
            ):
                return link["ifname"]
    return None


def _ip(*words: str) -> list[dict]:
    return json.loads(run("ip", "-j", *words).stdout or "[]")


def exists(lab: Lab) -> bool:
    return (
        Path(f"/sys/class/net/{lab.bridge}").exists()
        or run("ip", "link", "show", lab.bridge, check=False).returncode == 0
    )


def mtu() -> int:
    return route_mtu(_ip("route", "show", "default"), _ip("link"))


def owner(lab: Lab, registry: Path = REGISTRY) -> str:
    """The checkout that has the lab's number on this machine; empty when nobody has it, or nothing of that lab is
    left.
    """
    held = read_json(registry / f"{lab.number}.json", {}).get("checkout", "")
    return held if held and Path(held).is_dir() and exists(lab) else ""


def _claims() -> list[Path]:
    return list(REGISTRY.glob("[0-9]*.json"))


def claim(lab: Lab) -> None:
    """Take the lab's number on this machine, or say who has it."""
    other = owner(lab)
    if other and other != str(lab.checkout):
        raise LabError(
            f"lab {lab.number} (network {lab.subnet}) belongs to the checkout {other}: run 'python3 -m "
            f"tests.lab down' there, "
            "or set GPUFLEET_LAB_ID to another number here"
        )
    write_json(REGISTRY / f"{lab.number}.json", {"checkout": str(lab.checkout)})


def unused(lab: Lab, first: int, owned=owner) -> int:
    """The lowest lab number from `first` up that nobody has: neither another checkout, nor somebody at work in this
    one.
    """
    for number in range(first, HIGHEST_LAB_ID + 1):
        if not owned(replace(lab, number=number)):
            return number
    raise LabError(
        f"no lab number from {first} to {HIGHEST_LAB_ID} is free: end a lab with GPUFLEET_LAB_ID=N python3 "
        f"-m tests.lab down"
    )


@contextlib.contextmanager
def registry_locked():
    """Keep other labs of this machine from coming or going meanwhile. A lock on a directory leaves no file."""
    descriptor = os.open(REGISTRY.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _legacy_forward_drops() -> bool:
    done = run("iptables", "-S", "FORWARD", check=False) if _has_iptables() else None
    return bool(done and done.returncode == 0 and "-P FORWARD DROP" in done.stdout)


def _has_iptables() -> bool:
    return any(Path(path, "iptables").exists() for path in ("/usr/sbin", "/sbin", "/usr/bin"))


def forwarding_setting(device: str) -> str:
    """Return the setting that lets packets from one device be forwarded.

    net/ipv4/ip_forward sets it for every device, and accept_redirects too (inet_forward_change() in the kernel's
    net/ipv4/devinet.c): putting that back would not put those back.
    """
    return f"net/ipv4/conf/{device}/forwarding"


def raise_settings(registry: Path, devices: Iterable[str], proc: Path = Path("/proc/sys")) -> None:
    """Raise what is lower. Each value before is on disk before it is changed, and the first one stays recorded."""
    for name, least in {**HOST_SETTINGS, **{forwarding_setting(device): 1 for device in devices}}.items():
        path = proc / name
        before = int(path.read_text(encoding="ascii"))
        if before < least:
            write_json(registry / HOST_RECORD, {name: [before, least], **read_json(registry / HOST_RECORD, {})})
            path.write_text(f"{least}\n", encoding="ascii")


def restore_settings(registry: Path, proc: Path = Path("/proc/sys")) -> None:
    """Put back what was raised, unless somebody has changed it since, or the device is gone."""
    for name, (before, least) in read_json(registry / HOST_RECORD, {}).items():
        path = proc / name
        if path.exists() and int(path.read_text(encoding="ascii")) == least:
            path.write_text(f"{before}\n", encoding="ascii")
    (registry / HOST_RECORD).unlink(missing_ok=True)


def up(lab: Lab) -> None:
    """Make the bridge and let machines out. Everything is found again by the lab's number, or was recorded before."""
    with registry_locked():
        _up(lab)


def _up(lab: Lab) -> None:
    claim(lab)
    other = clash(lab, _ip("address"))
    if other:
        raise LabError(
            f"{other} already has an address in the lab's network {lab.subnet}: set GPUFLEET_LAB_ID to another number"
        )
    if not exists(lab):
        run("ip", "link", "add", lab.bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    run("ip", "link", "set", lab.bridge, "mtu", mtu(), "up")
    run("ip", "address", "replace", f"{lab.gateway}/24", "dev", lab.bridge)
    run("nft", "delete", "table", "ip", lab.table, check=False)
    run("nft", "-f", "-", stdin=ruleset(lab))
    if _legacy_forward_drops():
        for rule in accept_rules(lab):
            if run("iptables", "-C", *rule, check=False).returncode != 0:
                run("iptables", "-I", *rule)
    raise_settings(REGISTRY, [lab.bridge, *outward(_ip("route"))])


def unplug(device: str) -> None:
    """Remove the device of a machine that was killed: the kernel takes a moment to do so by itself, and a new machine
    wants the name.
    """
    run("ip", "link", "delete", device, check=False)


def down(lab: Lab) -> None:
    """Remove all of it; what is not there is no error."""
    with registry_locked():
        _down(lab)


def _down(lab: Lab) -> None:
    holder = read_json(REGISTRY / f"{lab.number}.json", {}).get("checkout", str(lab.checkout))
    if holder != str(lab.checkout) and Path(holder).is_dir():
        return
    if exists(lab):
        run("ip", "link", "delete", lab.bridge)
    run("nft", "delete", "table", "ip", lab.table, check=False)
    if _has_iptables():
        for rule in accept_rules(lab):
            while run("iptables", "-C", *rule, check=False).returncode == 0:
                run("iptables", "-D", *rule)
    (REGISTRY / f"{lab.number}.json").unlink(missing_ok=True)
    if REGISTRY.is_dir() and not any(owner(replace(lab, number=int(path.stem))) for path in _claims()):
        restore_settings(REGISTRY)
        shutil.rmtree(REGISTRY)
