# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Thresholds, what is strict, and waivers.

The thresholds come from a data file; what is given here is the strictest.
"""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import math

from . import model

SCHEMA = "gpufleet.health-policy/1"
# For every threshold, what is used where the data file has no row for it: nothing is accepted that need not be.
STRICTEST = {
    "ecc_volatile_uncorrected_max": 0,
    "memory_total_tolerance_percent": 0,
    "mig_free_reading_age_max_h": 0,
    "ecc_corrected_per_minute": 0,
    "ecc_corrected_since_load": 0,
    "remap_uncorrectable_max": 1,
    "bank_partial_max": 0,
    "bank_low_max": 0,
    "bank_none_max": 0,
    "retired_pages_max": 0,
    "retired_pages_fail_max": 0,
    "clocks_max_tolerance_percent": 0,
    "temperature_gpu_max_c": 0,
    "temperature_memory_max_c": 0,
    "temperature_margin_min_c": 5,
    "temperature_idle_rise_c": 0,
    "memory_reserved_rise_mib": 0,
    "memory_used_rise_mib": 0,
    "processes_max": 0,
    "pcie_generation_loss_max": 0,
    "pcie_width_loss_max": 0,
    "pcie_replays_per_minute": 0,
    "pcie_replays_since_load": 0,
    "pcie_aer_correctable_per_minute": 0,
    "pcie_aer_correctable_since_boot": 0,
    "pcie_aer_uncorrectable_per_minute": 0,
    "pcie_aer_uncorrectable_since_boot": 0,
    "nvlink_recoveries_max": 0,
    "nvlink_failed_recoveries_max": 0,
    "nvlink_symbols_per_minute": 0,
    "nvlink_symbols_since_load": 0,
    "nvlink_crc_per_minute": 0,
    "nvlink_crc_since_load": 0,
    "nvlink_replays_per_minute": 0,
    "nvlink_replays_since_load": 0,
    "fabric_grace_s": 0,
    # What has to be asked for.
    "imex_required": 0,
    "cdi_required": 0,
    "infiniband_active_ports_min": 0,
    # gpu_smoke.
    "smoke_required": 0,
    "smoke_tolerance_percent": 0,
    "smoke_mad_factor": 0,
    "smoke_noise_max_percent": 0,
    "smoke_repetitions_min": 5,
    "smoke_peers_min": 3,
    "smoke_peers_tolerance_percent": 0,
    "smoke_peers_noise_max_percent": 0,
    "smoke_temperature_difference_c": 0,
    "smoke_clock_difference_percent": 0,
    # The kernel log.
    "kernel_log_reach_min_h": 1000000,
    "network_link_downs_max": 0,
    # The file systems that an installation writes to.
    "room_var_min_mib": 1000000,
    "room_usr_min_mib": 1000000,
    "room_boot_min_mib": 1000000,
    "room_inodes_min": 1000000,
    "xid_burst_s": 0,
    "xid_warn_bursts_max": 0,
}
# What a policy may hold beside thresholds.
SPECIAL = ("schema", "models", "strict", "waivers")


class PolicyError(Exception):
    """The policy cannot be followed; the text says what is wrong in it, path is the way to that place in it."""

    def __init__(self, text, path=()) -> None:
        super().__init__(text)
        self.path = tuple(path)


def find_limit(ctx, key, gpu=None) -> float:
    """The threshold KEY, for the model of GPU if the policy has another one for it.

    Raises KeyError for a key that is not declared.
    """
    rules = ctx.policy
    value = rules["limits"][key]
    if gpu is None:
        return value
    special = [entry for entry in rules["models"] if key in entry["limits"]]
    if not special:
        return value
    name = model.reading(gpu, "name").value
    if not isinstance(name, str):
        # Which threshold holds for a GPU without a name is not known.
        return STRICTEST[key]
    fitting = [entry for entry in special if fnmatch.fnmatchcase(name.lower(), entry["pattern"].lower())]
    if not fitting:
        return value
    # The longest pattern is the most special one; the order in the policy means nothing.
    return max(fitting, key=lambda entry: (len(entry["pattern"]), entry["pattern"]))["limits"][key]


def complete(policy, known=(), rows=None) -> dict:
    """POLICY with the strictest value for what it does not say.

    KNOWN are the ids of all checks, ROWS those of the data file with bounds.

    {"limits": {key: number}, "models": [{"pattern", "limits"}], "strict": [pattern], "waivers": [...]}.
    """
    full = {"limits": dict(STRICTEST), "models": [], "strict": [], "waivers": []}
    if policy is None:
        return full
    if not isinstance(policy, dict):
        raise PolicyError("the health policy is a %s, expected a dictionary" % (type(policy).__name__,))
    bounds = dict(
        (key, value)
        for key, value in dict(policy, **(rows or {})).items()
        if isinstance(value, dict) and key in STRICTEST
    )
    for key, value in policy.items():
        if key == "schema":
            if value != SCHEMA:
                raise PolicyError("the health policy has schema %r, expected %r" % (value, SCHEMA), (key,))
        elif key == "models":
            full["models"] = [
                _of_model(pattern, limits, bounds)
                for pattern, limits in sorted(_require_dictionary(value, (key,)).items())
            ]
        elif key == "strict":
            full["strict"] = [
                _parse_strict(number, entry, known) for number, entry in enumerate(_require_list(value, (key,)))
            ]
        elif key == "waivers":
            full["waivers"] = [
                parse_waiver(number, entry, known) for number, entry in enumerate(_require_list(value, (key,)))
            ]
        elif key in STRICTEST:
            full["limits"][key] = _parse_threshold(value, bounds.get(key, {}), (key,))
        else:
            raise PolicyError(
                "the health policy has the unknown entry %r; known: %s"
                % (key, ", ".join(sorted(list(STRICTEST) + list(SPECIAL)))),
                (key,),
            )
    return full


def _require_dictionary(value, path) -> dict:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise PolicyError("the health policy says %s = %r, expected a dictionary" % (".".join(path), value), path)
    return value


def _require_list(value, path) -> list:
    if not isinstance(value, list):
        raise PolicyError("the health policy says %s = %r, expected a list" % (".".join(path), value), path)
    return value


def _parse_threshold(value, row, path) -> float:
    """A number within the bounds of its ROW; VALUE may be such a row of the data file itself, {"value", "minimum",
    "maximum", ...}.
    """
    if isinstance(value, dict):
        value, path = value.get("value"), path + ("value",)
    name = ".".join(path)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise PolicyError("the health policy says %s = %r, expected a number" % (name, value), path)
    low, high = row.get("minimum", 0), row.get("maximum")
    if low is not None and value < low:
        raise PolicyError("the health policy says %s = %r, expected a number of at least %s" % (name, value, low), path)
    if high is not None and value > high:
        raise PolicyError("the health policy says %s = %r, expected a number of at most %s" % (name, value, high), path)
    return value


def _of_model(pattern, limits, bounds) -> dict:
    path = ("models", pattern)
    result = {}
    for key, value in _require_dictionary(limits, path).items():
        if key not in STRICTEST:
            raise PolicyError(
                "the health policy has the unknown entry %r for the model %r; known: %s"
                % (key, pattern, ", ".join(sorted(STRICTEST))),
                path + (key,),
            )
        result[key] = _parse_threshold(value, bounds.get(key, {}), path + (key,))
    return {"pattern": pattern, "limits": result}


def _parse_strict(number, entry, known) -> str:
    path = ("strict", number)
    if not isinstance(entry, str) or not entry:
        raise PolicyError("strict[%d] is %r, expected the id of a check or a pattern of ids" % (number, entry), path)
    if not any(fnmatch.fnmatchcase(ident, entry) for ident in known):
        raise PolicyError(
            "strict[%d] is %r, and there is no such check; %s" % (number, entry, suggest_ids(entry, known)), path
        )
    return entry


def suggest_ids(ident, known) -> str:
    """Return the ids that may have been meant."""
    like = difflib.get_close_matches(ident, sorted(known), 5, 0.4)
    return "%sdocs/reference/health-checks.md lists all" % (
        "the nearest are %s; " % (", ".join(like),) if like else "",
    )


# What says that there is a reading at all.
UNWAIVABLE = ("reading.complete", "nvml.answers")


def parse_waiver(number, entry, known=()) -> dict:
    """A waiver names the check, a reason and an expiry; otherwise it is refused."""
    path = ("waivers", number)
    if not isinstance(entry, dict):
        raise PolicyError("waivers[%d] is no dictionary" % (number,), path)
    if isinstance(entry.get("expires"), datetime.date):
        # Unquoted in YAML.
        entry = dict(
            entry,
            expires=entry["expires"].strftime(
                "%Y-%m-%dT%H:%M:%SZ" if isinstance(entry["expires"], datetime.datetime) else "%Y-%m-%d"
            ),
        )
    for key in ("check", "reason", "expires"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise PolicyError("waivers[%d] has no %s; a waiver names check, reason and expires" % (number, key), path)
    strange = sorted(set(entry) - set(("check", "entity", "reason", "expires")), key=str)
    if strange:
        raise PolicyError(
            "waivers[%d] has the unknown entry %r; a waiver names check, entity, reason and expires"
            % (number, strange[0]),
            path + (strange[0],),
        )
    if entry["check"] not in known:
        raise PolicyError(
            "waivers[%d].check is %r, and there is no such check; %s"
            % (number, entry["check"], suggest_ids(entry["check"], known)),
            path + ("check",),
        )
    if entry["check"] in UNWAIVABLE:
        raise PolicyError(
            "waivers[%d].check is %s, which cannot be waived: of a node that cannot be read nothing is known, "
            "whatever is accepted" % (number, entry["check"]),
            path + ("check",),
        )
    entity = entry.get("entity")
    if entity is not None and not isinstance(entity, str):
        raise PolicyError(
            "waivers[%d].entity is %r, expected a text such as the UUID of a GPU" % (number, entity), path + ("entity",)
        )
    return {
        "check": entry["check"],
        "entity": entity or None,
        "reason": entry["reason"],
        "expires": entry["expires"],
        "until": parse_moment(entry["expires"], "waivers[%d].expires" % (number,), path + ("expires",)),
    }


def parse_moment(text, where, path=()) -> datetime.datetime:
    """A time in UTC out of 2026-12-31 (the end of that day) or 2026-12-31T12:00:00Z."""
    for layout, days in (("%Y-%m-%dT%H:%M:%SZ", 0), ("%Y-%m-%d", 1)):
        try:
            return datetime.datetime.strptime(text, layout) + datetime.timedelta(days=days)
        except (ValueError, OverflowError):
            continue
    raise PolicyError(
        "%s is %r, expected a UTC date like 2026-12-31 or time like 2026-12-31T12:00:00Z" % (where, text), path
    )


def find_latest(now, *others) -> str:
    """Return the latest of NOW and of OTHERS, leaving out what is no time: a clock that was set back revives no waiver
    that has expired.
    """
    found = [(parse_moment(now, "the present time"), now)]
    for text in others:
        try:
            found.append((parse_moment(text, "a time"), text))
        except (PolicyError, TypeError):
            continue
    return max(found)[1]


def apply_policy(checks, rules, now) -> list[dict]:
    """The checks by the rules: notices that are strict fail, and those that a live waiver names are waived; an expired
    one explains itself.
    """
    return apply_waivers(apply_strict(checks, rules), rules["waivers"], now)


def apply_strict(checks, rules) -> list[dict]:
    return [_tighten_check(check, rules["strict"]) for check in checks]


def _tighten_check(check, strict) -> dict:
    if (
        check["status"] != model.PASS
        or not check["notice"]
        or not any(fnmatch.fnmatchcase(check["id"], pattern) for pattern in strict)
    ):
        return check
    return dict(
        check,
        status=model.FAIL,
        notice=False,
        source="policy",
        action="hold" if check["action"] == "none" else check["action"],
    )


def apply_waivers(checks, waivers, now) -> list[dict]:
    if not waivers:
        return checks
    present = parse_moment(now, "the present time")
    result = []
    for check in checks:
        check = dict(check)
        if check["status"] in (model.FAIL, model.UNKNOWN):
            for entry in waivers:
                if entry["check"] == check["id"] and entry["entity"] in (None, check["entity"]):
                    if present < entry["until"]:
                        check.update(
                            message="Waived until %s (%s); it was %s: %s"
                            % (entry["expires"], entry["reason"], check["status"], check["message"]),
                            status="waived",
                            action="none",
                            waiver={"reason": entry["reason"], "expires": entry["expires"]},
                        )
                        break
                    check["message"] += " (The waiver for it, %r, expired on %s: repair it, or renew the waiver.)" % (
                        entry["reason"],
                        entry["expires"],
                    )
        result.append(check)
    return result
