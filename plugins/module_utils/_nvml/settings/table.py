# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a GPU: the option, the calls and the rules of each, and the calls themselves.

A new setting is an entry of TABLE here, its option in the documentation of gpu_settings, and its cases in the tests.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Tuple

from .. import calls, codes
from ..selection import value

# The codes with which a board or driver says that it has no such setting.
UNSUPPORTED = (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.DEPRECATED)
LOAD = "driver unload or reboot; without persistence mode also when the last program closes the GPU"
COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive_process": 3}
UNLOCKED = "unlocked"
DEFAULT = "default"


class WishError(ValueError):
    """The task or the baseline asks for something that cannot be understood; the text names it."""


class Setting:
    """One setting. Values are those of NVML (milliwatts, numbers of modes); show() gives those of the options."""

    def __init__(
        self,
        name: str,
        setter: str,
        spec: Dict[str, Any],
        support: str,
        getter: Tuple[str, ...] = (),
        resetter: Optional[str] = None,
        default_key: Optional[str] = None,
        pending_until: Optional[str] = None,
        lost_at: str = LOAD,
        disturbs: bool = True,
        ends: bool = False,
    ) -> None:
        """Describe a setting.

        Args:
            name: Its option.
            setter: The function of NVML (nvml.h).
            spec: The argument spec of the option.
            support: The boards and drivers that have it, as NVIDIA says.
            getter: The keys of the snapshot that show it; none if NVML cannot read it.
            resetter: The function that goes back to the default.
            default_key: The key of the snapshot with the board's default.
            pending_until: What a change waits for.
            lost_at: What takes it away again.
            disturbs: Whether programs on the GPU feel a change.
            ends: Whether newer boards and drivers no longer have it.
        """
        self.name, self.setter, self.spec, self.support, self.getter = name, setter, spec, support, getter
        self.resetter, self.default_key, self.pending_until = resetter, default_key, pending_until
        self.lost_at, self.disturbs, self.ends = lost_at, disturbs, ends

    def parse(self, given: Any) -> Any:
        """Return the value of an option. Raises WishError."""
        return int(given)

    def show(self, content: Any) -> Any:
        """Return a value as the option has it."""
        return content

    def is_valid(self, wanted: Any) -> bool:
        """Return whether a value of a snapshot is one that can be set."""
        return is_count(wanted)

    def read_value(self, gpu: Dict[str, Any]) -> Dict[str, Any]:
        """Return the value in a snapshot, or the code in its place."""
        parts = [gpu.get(key) or codes.missing(codes.UNREADABLE) for key in self.getter]
        for part in parts:
            if part["rc"] != codes.SUCCESS:
                return part
        return self.combine(parts)

    def combine(self, parts: List[Dict[str, Any]]) -> Dict[str, Any]:
        return parts[0]

    def is_missing(self, gpu: Dict[str, Any], rc: int) -> bool:
        """Return whether RC says that the GPU has no such setting, and not that it could not be read."""
        return rc in UNSUPPORTED

    def get_requested(self, found: Any) -> Any:
        """Return the part of a found value that was set last, even if it waits for a reset."""
        return found

    def get_current(self, found: Any) -> Any:
        """Return the part of a found value that is in force."""
        return found

    def make_after(self, found: Any, wanted: Any) -> Any:
        """Return the found value as it will be once WANTED is set."""
        return wanted

    def read_default(self, gpu: Dict[str, Any]) -> Any:
        """Return the board's default, None if NVML does not tell it."""
        wanted = value(gpu, self.default_key)
        return wanted if self.is_valid(wanted) else None

    def refuse(self, gpu: Dict[str, Any], wanted: Any, daemon: bool) -> Optional[str]:
        """Return why WANTED cannot be set on this GPU; None if nothing is known against it.

        DAEMON: whether nvidia-persistenced runs.
        """
        return None

    def list_arguments(self, wanted: Any) -> List[int]:
        """Return the arguments of the setter after the GPU."""
        return [wanted]


class Mode(Setting):
    """A setting that is on or off."""

    def show(self, content: Any) -> Any:
        if isinstance(content, dict):
            return dict((key, bool(mode)) for key, mode in content.items())
        return None if content is None else bool(content)


class PersistenceMode(Mode):
    def refuse(self, gpu: Dict[str, Any], wanted: Any, daemon: bool) -> Optional[str]:
        if not daemon:
            return None
        return "nvidia-persistenced runs and decides on the mode; %s" % (
            "start it without --no-persistence-mode (role nvidia_persistenced)"
            if wanted
            else "stop and disable its unit, or take a new baseline",
        )


class EccMode(Mode):
    """Its value is {"current", "pending"}."""

    def combine(self, parts: List[Dict[str, Any]]) -> Dict[str, Any]:
        return codes.value({"current": parts[0]["value"], "pending": parts[1]["value"]})

    def get_requested(self, found: Any) -> Any:
        return found["pending"]

    def get_current(self, found: Any) -> Any:
        return found["current"]

    def make_after(self, found: Any, wanted: Any) -> Any:
        return {"current": found["current"], "pending": wanted}


class ComputeMode(Setting):
    def parse(self, given: Any) -> Any:
        return COMPUTE_MODES[given]

    def show(self, content: Any) -> Any:
        if content is None:
            return None
        return dict((number, word) for word, number in COMPUTE_MODES.items()).get(content, str(content))

    def is_missing(self, gpu: Dict[str, Any], rc: int) -> bool:
        # A GPU in MIG mode has no compute mode of its own: NVML then refuses its handle as an invalid argument.
        return super().is_missing(gpu, rc) or (rc == codes.INVALID_ARGUMENT and value(gpu, "mig_mode_current") == 1)

    def refuse(self, gpu: Dict[str, Any], wanted: Any, daemon: bool) -> Optional[str]:
        mig = gpu.get("mig_mode_current") or codes.missing(codes.UNREADABLE)
        if mig["rc"] == codes.SUCCESS and mig["value"]:
            return (
                "the GPU is in MIG mode, and NVML sets the compute mode of MIG devices only; leave compute_mode out, "
                "or switch MIG off first"
            )
        if mig["rc"] not in (codes.SUCCESS,) + UNSUPPORTED:
            return "whether the GPU is in MIG mode is not known (%s); look for NVRM lines in the kernel log" % (
                mig.get("error"),
            )
        return None


class PowerLimit(Setting):
    def parse(self, given: Any) -> Any:
        if given == DEFAULT:
            return DEFAULT
        try:
            watts = float(given)
        except ValueError:
            watts = 0.0
        if not 0 < watts < 1000000:
            raise WishError("power_limit_w is %r; expected a number of watts, or default" % (given,))
        return int(round(watts * 1000))

    def show(self, content: Any) -> Any:
        return content if content in (None, DEFAULT) else content / 1000.0

    def refuse(self, gpu: Dict[str, Any], wanted: Any, daemon: bool) -> Optional[str]:
        low, high = value(gpu, "power_limit_min_mw"), value(gpu, "power_limit_max_mw")
        if low is None or high is None:
            return "NVML does not tell the range of power limits of this board; look at nvidia-smi -q -d POWER"
        if not low <= wanted <= high:
            return "the board takes %s to %s W; choose a limit in this range" % tuple(
                format_value(self.show(limit)) for limit in (low, high)
            )
        return None


class ApplicationClocks(Setting):
    """Its value is {"graphics", "mem"}."""

    def parse(self, given: Any) -> Any:
        if given.get("default"):
            return DEFAULT
        clocks = {"graphics": given.get("graphics"), "mem": given.get("memory")}
        if not all(isinstance(clock, int) and clock > 0 for clock in clocks.values()):
            raise WishError("application_clocks_mhz needs default: true, or graphics and memory in MHz")
        return clocks

    def show(self, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        return {"graphics": content["graphics"], "memory": content["mem"]}

    def is_valid(self, wanted: Any) -> bool:
        return isinstance(wanted, dict) and all(is_count(wanted.get(key)) for key in ("graphics", "mem"))

    def combine(self, parts: List[Dict[str, Any]]) -> Dict[str, Any]:
        found = parts[0]["value"]
        if isinstance(found, dict) and None in found.values():
            return codes.missing(codes.NOT_SUPPORTED)
        return parts[0]

    def refuse(self, gpu: Dict[str, Any], wanted: Any, daemon: bool) -> Optional[str]:
        return refuse_clocks(gpu, wanted)

    def list_arguments(self, wanted: Any) -> List[int]:
        return [wanted["mem"], wanted["graphics"]]


class LockedClocks(Setting):
    """Its value is {"min", "max"} or UNLOCKED. KIND is the clock, as the snapshot names it."""

    def __init__(self, name: str, kind: str, setter: str, resetter: str, support: str) -> None:
        super().__init__(
            name,
            setter,
            {
                "type": "dict",
                "options": {
                    "min": {"type": "int"},
                    "max": {"type": "int"},
                    "unlocked": {"type": "bool", "default": False},
                },
                "required_together": [("min", "max")],
            },
            support + "; NVML has no function that reads them",
            resetter=resetter,
        )
        self.kind = kind

    def parse(self, given: Any) -> Any:
        if given.get("unlocked"):
            return UNLOCKED
        low, high = given.get("min"), given.get("max")
        if not isinstance(low, int) or not isinstance(high, int) or not 1 < low <= high:
            raise WishError("%s needs unlocked: true, or min and max in MHz, min no higher than max" % (self.name,))
        return {"min": low, "max": high}

    def refuse(self, gpu: Dict[str, Any], wanted: Any, daemon: bool) -> Optional[str]:
        return None if wanted == UNLOCKED else refuse_clocks(gpu, {self.kind: wanted["max"]})

    def list_arguments(self, wanted: Any) -> List[int]:
        return [wanted["min"], wanted["max"]]


def refuse_clocks(gpu: Dict[str, Any], wanted: Dict[str, int]) -> Optional[str]:
    """Return which of the clocks is higher than the board allows; None if none is."""
    limits = value(gpu, "clocks_max_mhz") or {}
    for kind in sorted(wanted):
        if limits.get(kind) is not None and wanted[kind] > limits[kind]:
            return "the %s clock of this board is %d MHz at most; choose a lower one" % (
                {"mem": "memory"}.get(kind, kind),
                limits[kind],
            )
    return None


def is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def format_value(content: Any) -> str:
    """Return a value, as show() gives it, for a sentence."""
    if content is None:
        return "no known value"
    if isinstance(content, dict):
        return ", ".join("%s %s" % (key, format_value(content[key])) for key in sorted(content))
    if isinstance(content, bool):
        return "on" if content else "off"
    return ("%.3f" % (content,)).rstrip("0").rstrip(".") if isinstance(content, float) else str(content)


# In the order of setting: with persistence mode on first, what follows is not lost again when this process ends.
TABLE = (
    PersistenceMode(
        "persistence_mode",
        "nvmlDeviceSetPersistenceMode",
        {"type": "bool"},
        "Linux; where nvidia-persistenced runs, it keeps the mode and is not overridden",
        ("persistence_mode",),
        lost_at="driver unload or reboot",
        disturbs=False,
    ),
    ComputeMode(
        "compute_mode",
        "nvmlDeviceSetComputeMode",
        {"type": "str", "choices": ["default", "exclusive_process", "prohibited"]},
        "all; not for the GPU itself while it is in MIG mode",
        ("compute_mode",),
    ),
    PowerLimit(
        "power_limit_w",
        "nvmlDeviceSetPowerManagementLimit",
        {"type": "str"},
        "boards with power management, within the limits that the board states",
        ("power_limit_mw",),
        default_key="power_limit_default_mw",
    ),
    ApplicationClocks(
        "application_clocks_mhz",
        "nvmlDeviceSetApplicationsClocks",
        {
            "type": "dict",
            "options": {
                "graphics": {"type": "int"},
                "memory": {"type": "int"},
                "default": {"type": "bool", "default": False},
            },
            "required_together": [("graphics", "memory")],
        },
        "older boards and drivers; newer ones answer NOT_SUPPORTED or DEPRECATED",
        ("applications_clocks_mhz",),
        resetter="nvmlDeviceResetApplicationsClocks",
        default_key="applications_clocks_default_mhz",
        ends=True,
    ),
    LockedClocks(
        "locked_graphics_clocks_mhz",
        "graphics",
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
        "Volta and newer",
    ),
    LockedClocks(
        "locked_memory_clocks_mhz",
        "mem",
        "nvmlDeviceSetMemoryLockedClocks",
        "nvmlDeviceResetMemoryLockedClocks",
        "Ampere and newer",
    ),
    EccMode(
        "ecc_mode",
        "nvmlDeviceSetEccMode",
        {"type": "bool"},
        "boards with ECC memory",
        ("ecc_mode_current", "ecc_mode_pending"),
        pending_until="GPU reset or reboot",
        lost_at="never (it is in the InfoROM)",
        disturbs=False,
    ),
)
BY_NAME = dict((setting.name, setting) for setting in TABLE)
NAMES = tuple(setting.name for setting in TABLE)
# What is read to decide, and to prove what was set.
GATHER = ("modes", "power", "clocks", "ecc", "mig", "processes")


def act(nvml: Any, steps: List[Dict[str, Any]], progress: Any = None) -> List[Dict[str, Any]]:
    """Do the steps of a plan with the binding module NVML and one nvmlInit. Return an answer for each, in their order.

    A step is {"gpu": UUID, "setting", "symbol", "arguments", "optional"}; its answer {"rc", "error", "detail", "tried"}
    of the setter. After a step of a GPU that failed, its other steps are not tried; an optional one that is not
    supported has not failed.
    """
    reader = calls.Reader(nvml, progress)
    started = reader.call("nvmlInit")
    if started["rc"] != codes.SUCCESS:
        return [make_answer(started, False) for dummy in steps]
    failed = {}
    answers = []
    try:
        for step in steps:
            uuid = step["gpu"]
            if uuid in failed:
                answers.append(make_answer(failed[uuid], False))
                continue
            # By UUID: numbers and handles may have moved since the snapshot.
            handle = reader.call("nvmlDeviceGetHandleByUUID", uuid)
            done = handle
            if handle["rc"] == codes.SUCCESS:
                done = reader.guard(
                    "%s of %s" % (step["symbol"], uuid),
                    lambda step=step, handle=handle: reader.raw(
                        step["symbol"], handle["value"], *[ctypes.c_uint(argument) for argument in step["arguments"]]
                    ),
                )
            answers.append(make_answer(done, True))
            if done["rc"] != codes.SUCCESS and not (step["optional"] and done["rc"] in UNSUPPORTED):
                failed[uuid] = done
    finally:
        reader.call("nvmlShutdown")
    return answers


def make_answer(found: Dict[str, Any], tried: bool) -> Dict[str, Any]:
    return {"rc": found["rc"], "error": codes.name(found["rc"]), "detail": found.get("detail"), "tried": tried}
