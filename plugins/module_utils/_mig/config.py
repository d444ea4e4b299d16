# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of MIG layouts, in the format of nvidia-mig-parted (version v1), and which GPU gets which layout.

Accepted and refused is what nvidia-mig-parted's own parser accepts and refuses (api/spec/v1 of its release 0.15.0, and
parseMigProfile of go-nvlib). A null where a number is expected is 0, as encoding/json of Go reads it. Differences:

- a key that stands twice is refused (the controller's YAML reader sees it; a parsed document no longer shows it);
- an empty document, and one with a version and no configurations, is refused when a configuration is asked of it;
- a name with no compute slice, or with more than its GPU instance has, is refused before a GPU is asked;
- every GPU has to be matched by an entry, also when a layout is applied.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import names

VERSION = "v1"
ALL = "all"
FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")
# A number of 32 bits as Go's ParseUint reads it with base 0.
NUMBER = re.compile(r"0[xX]_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|[1-9][0-9]*(?:_[0-9]+)*|0")


# For messages: what an operator sets who has set nothing yet.
EXAMPLE = (
    "nvidia_mig_configs: {version: v1, mig-configs: {all-1g.10gb: [{devices: all, mig-enabled: true, "
    "mig-devices: {1g.10gb: 7}}]}}"
)


class ConfigError(ValueError):
    """A configuration that cannot be used; the text names the place, what was found and what was expected."""


class Entry(NamedTuple):
    """One entry of a configuration.

    Of a GPU it asks for one of FILTERS (None: any), and to be among DEVICES: "all" or positions in PCI order; or, in
    place of both, to have one of the names GPUS (UUID, PCI address, NVML index) or the model MODEL. It wants MIG on or
    off and so many DEVICES_WANTED by name.
    """

    filters: Optional[Tuple[str, ...]]
    devices: Any
    gpus: Tuple[str, ...]
    model: Optional[str]
    enabled: bool
    wanted: Dict[str, int]


class Layout(NamedTuple):
    """The wanted state of one GPU: MIG on or off, and the number of MIG devices of each name."""

    enabled: bool
    devices: Dict[str, int]


def parse(document: Any) -> Dict[str, Tuple[Entry, ...]]:
    """The configurations of DOCUMENT by name."""
    if not isinstance(document, dict):
        raise ConfigError(
            "the MIG configuration is %s; expected a mapping with version and mig-configs" % (_kind(document),)
        )
    if "version" not in document:
        raise ConfigError("the MIG configuration has no version; expected version: %s" % (VERSION,))
    if document["version"] != VERSION:
        raise ConfigError("the MIG configuration has version %r; expected %s" % (document["version"], VERSION))
    for key in document:
        if key not in ("version", "mig-configs"):
            raise ConfigError(
                "the MIG configuration has the unknown field %r; expected version and mig-configs" % (key,)
            )
    if "mig-configs" not in document:
        return {}
    configs = document["mig-configs"]
    if not isinstance(configs, dict) or not configs:
        raise ConfigError("mig-configs is %s; expected at least one named configuration" % (_kind(configs),))
    return dict((str(name), _entries("mig-configs.%s" % (name,), entries)) for name, entries in configs.items())


def _entries(where: str, entries: Any) -> Tuple[Entry, ...]:
    if not isinstance(entries, list) or not entries:
        raise ConfigError("%s is %s; expected a list with at least one entry" % (where, _kind(entries)))
    return tuple(_entry("%s[%d]" % (where, number), entry) for number, entry in enumerate(entries))


def _entry(where: str, entry: Any) -> Entry:
    if not isinstance(entry, dict):
        raise ConfigError("%s is %s; expected a mapping" % (where, _kind(entry)))
    for key in entry:
        if key not in FIELDS:
            raise ConfigError("%s has the unknown field %r; expected %s" % (where, key, ", ".join(FIELDS)))
    for key in ("devices", "mig-enabled"):
        if key not in entry:
            raise ConfigError("%s lacks the field %s" % (where, key))
    enabled = _read_enabled(where + ".mig-enabled", entry["mig-enabled"])
    return Entry(
        _filters(where, entry.get("device-filter")),
        _positions(where, entry["devices"]),
        (),
        None,
        enabled,
        find_devices(where, enabled, entry.get("mig-devices")),
    )


def _read_enabled(where: str, value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError("%s is %r; expected true or false" % (where, value))
    return value


def _positions(where: str, devices: Any) -> Any:
    if devices == ALL:
        return devices
    numbers = [_integer(item) for item in devices] if isinstance(devices, list) else [None]
    if None in numbers:
        raise ConfigError("%s.devices is %r; expected all, or a list of positions such as [0, 1]" % (where, devices))
    return tuple(numbers)


def _integer(value: Any) -> Optional[int]:
    """VALUE as encoding/json of Go reads it into an integer: null is 0; None for what it refuses."""
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        return None
    return int(value or 0) if (value or 0) == int(value or 0) else None


def _filters(where: str, given: Any) -> Optional[Tuple[str, ...]]:
    if given in (None, "", []):
        return None
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not all(isinstance(item, (str, type(None))) for item in listed):
        raise ConfigError(
            "%s.device-filter is %r; expected a text such as 0x233010DE, or a list of them" % (where, given)
        )
    return tuple(item or "" for item in listed)


def find_devices(where: str, enabled: bool, devices: Any) -> Dict[str, int]:
    """The devices that an entry wants, by name. The size of a layout that MIG off leaves no room for is refused."""
    if devices is None:
        if enabled:
            raise ConfigError("%s has MIG on and no mig-devices; expected them, {} for none" % (where,))
        return {}
    if not isinstance(devices, dict):
        raise ConfigError(
            "%s.mig-devices is %s; expected counts by name, such as {1g.10gb: 7}" % (where, _kind(devices))
        )
    counts = dict((name, _integer(count)) for name, count in devices.items())
    for name, count in counts.items():
        try:
            names.parse(name)
        except names.NameProblem as exc:
            raise ConfigError("%s.mig-devices: %s" % (where, exc)) from exc
        if count is None or count < 0:
            raise ConfigError("%s.mig-devices has %r of %s; expected a number from 0 on" % (where, devices[name], name))
    if devices and not any(counts.values()):
        raise ConfigError("%s.mig-devices has 0 of everything; expected at least one device, or {}" % (where,))
    if devices and not enabled:
        raise ConfigError("%s has mig-devices and MIG off; expected mig-enabled: true, or no devices" % (where,))
    return dict((name, count) for name, count in counts.items() if count)


def choose(configs: Dict[str, Tuple[Entry, ...]], name: str) -> Tuple[Entry, ...]:
    """The entries of the configuration NAME."""
    if name not in configs:
        raise ConfigError(
            "there is no MIG configuration %r; there are %s" % (name, ", ".join(sorted(configs)) or "none")
        )
    return configs[name]


def selection(where: str, given: Dict[str, Any]) -> Entry:
    """The entry of a task's own list: {"gpus", "model", "mig_enabled", "mig_devices"}, by name or model in place of
    positions.
    """
    enabled = _read_enabled(where + ".mig_enabled", given["mig_enabled"])
    return Entry(
        None,
        ALL,
        tuple(str(gpu) for gpu in given.get("gpus") or ()),
        given.get("model") or None,
        enabled,
        find_devices(where, enabled, given.get("mig_devices")),
    )


class Target(NamedTuple):
    """The properties by which a layout selects a GPU: position in PCI order, ids as 0xDDDDVVVV, names (lower case) and
    model."""

    position: int
    device_id: str
    subsystem_id: str
    names: Tuple[str, ...]
    model: str


def matches(entry: Entry, target: Target) -> bool:
    """Return whether ENTRY is about the GPU."""
    if entry.gpus and not any(name.strip().lower() in target.names for name in entry.gpus):
        return False
    if entry.model is not None and entry.model != target.model:
        return False
    if entry.devices != ALL and target.position not in entry.devices:
        return False
    return entry.filters is None or any(_passes(item, target) for item in entry.filters)


def _passes(text: str, target: Target) -> bool:
    """A filter is a device id, with or without that of the subsystem, as DeviceID of nvidia-mig-parted reads it.

    Another text matches nothing, as there.
    """
    parts = text.split(":")
    if len(parts) > 2 or not all(NUMBER.fullmatch(part) for part in parts):
        return False
    ids = [int(part, 0) for part in (target.device_id, target.subsystem_id)[: len(parts)] if NUMBER.fullmatch(part)]
    return [int(part, 0) for part in parts] == ids


def layout_of(entries: Tuple[Entry, ...], target: Target) -> Optional[Layout]:
    """The layout of the last entry that is about the GPU; None where none is."""
    found = None
    for entry in entries:
        if matches(entry, target):
            found = Layout(entry.enabled, dict(entry.wanted))
    return found


def unmatched_names(entries: Tuple[Entry, ...], targets: List[Target]) -> List[str]:
    """The GPUs that entries name and the node does not have."""
    known = set(name for target in targets for name in target.names)
    return sorted(set(name for entry in entries for name in entry.gpus if name.strip().lower() not in known))


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, (dict, list)) and not value:
        return "an empty %s" % ("mapping" if isinstance(value, dict) else "list",)
    return {dict: "a mapping", list: "a list", str: "a text", bool: "a truth value"}.get(type(value), "a number")
