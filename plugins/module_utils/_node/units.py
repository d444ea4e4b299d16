# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd units that serve GPUs, as systemd sees them now; one call for all of them."""

from __future__ import annotations

# What a GPU node may run. A unit that is not installed answers load "not-found", which is an answer.
WATCHED = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
    "nvidia-dcgm-exporter.service",
    "dcgm-exporter.service",
    "nvidia-mig-manager.service",
    "nvidia-cdi-refresh.service",
    "nvidia-powerd.service",
    "openibd.service",
)
# Units of these names are taken in too, as far as systemd has them in memory.
PATTERNS = ("nvidia-*.service", "*dcgm*.service", "gpufleet-*.service")
# Units of Type=oneshot that a timer or a path of this collection starts: systemd calls them activating while they work.
TIMED = ("gpufleet-textfile.service", "gpufleet-textfile-restart.service")
PROPERTIES = {
    "LoadState": "load",
    "ActiveState": "active",
    "SubState": "sub",
    "Result": "result",
    "UnitFileState": "enabled",
}


def read_units(runner) -> dict | None:
    """``{unit: {"load", "active", "sub", "result", "enabled"}|None}``; None when systemd cannot be asked.

    A single unit is None when systemd said nothing of it. Values are systemd's own words, None for an empty one.
    """
    rc, out, dummy = runner(
        ["systemctl", "show", "--no-pager", "--property=Id,Names,%s" % ",".join(PROPERTIES)]
        + list(WATCHED)
        + list(PATTERNS),
        20,
    )
    blocks = parse(out)
    if rc or not blocks:
        return None
    found = dict.fromkeys(WATCHED)
    for block in blocks:
        names = [block["Id"]] + [name for name in block.get("Names", "").split() if name in WATCHED]
        for name in names:
            found[name] = dict((ours, block.get(theirs) or None) for theirs, ours in PROPERTIES.items())
    return found


def show(runner, names, more=None) -> dict[str, dict] | None:
    """``{name: {..., "names": [its own name and its aliases]}}`` of exactly these units; None when systemd cannot be
    asked.

    MORE names further properties, by the words of systemd.
    """
    if not names:
        return {}
    properties = dict(PROPERTIES, **(more or {}))
    rc, out, dummy = runner(
        ["systemctl", "show", "--no-pager", "--property=Id,Names,%s" % ",".join(properties)] + list(names), 20
    )
    if rc:
        return None
    found = {}
    for block in parse(out):
        known = [block["Id"]] + block.get("Names", "").split()
        state = dict((ours, block.get(theirs) or None) for theirs, ours in properties.items())
        found.update((name, dict(state, names=known)) for name in names if name in known)
    return found if set(found) == set(names) else None


def parse(out) -> list[dict]:
    """The blocks of ``systemctl show`` for several units: Key=value lines, an empty line between two units."""
    blocks = []
    for part in out.split("\n\n"):
        lines = [line.partition("=") for line in part.splitlines()]
        block = dict((key, value) for key, equals, value in lines if equals)
        if block.get("Id"):
            blocks.append(block)
    return blocks
