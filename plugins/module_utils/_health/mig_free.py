# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that NVML does not report while MIG instances exist, taken from a reading of the same boot without
instances."""

from __future__ import annotations

from . import compare, model, policy
from .baseline import check_baseline
from .model import NOT_APPLICABLE, UNKNOWN
from .nodefacts import Checks

IDENT = "baseline.mig_free"
# Values that are NOT_SUPPORTED while instances exist.
HIDDEN = ("remapped_rows", "remap_histogram", "ecc_volatile_corrected", "ecc_volatile_uncorrected")
# The checks that read them, or volatile ECC errors, which a GPU in MIG mode may not tell either.
HIDES = {
    "gpu.ecc_volatile": "ecc_volatile_uncorrected",
    "gpu.ecc_volatile_corrected": "ecc_volatile_corrected",
    "gpu.remap_failure": "remapped_rows",
    "gpu.remap_pending": "remapped_rows",
    "gpu.remap_uncorrectable": "remapped_rows",
    "gpu.bank_availability": "remap_histogram",
}
# What the expectation "mig_hidden" accepts: of a GPU with instances, and of one in MIG mode without any.
VOLATILE_ECC, ALL = "volatile_ecc", "all"
ACCEPTED = {VOLATILE_ECC: ("ecc_volatile_corrected", "ecc_volatile_uncorrected"), ALL: tuple(HIDES.values())}


def check_usable(document, reading, node, rules) -> dict | None:
    """Describe DOCUMENT (a baseline document) beside a READING: {"document", "problem", "time"}; None without one.

    Both are of one boot, so that its age is by the uptime of the node: two controllers may have read it, each by its
    own clock. Raises BaselineError if it is not a baseline.
    """
    if document is None:
        return None
    check_baseline(document, node)
    taken = document.get("time")
    problem = ""
    limit = rules["limits"]["mig_free_reading_age_max_h"]
    boot_id, age_s = model.item(reading, "boot_id"), compare.uptime_between(reading, document)
    if not boot_id or document.get("boot_id") != boot_id:
        problem = "it is of boot %s, and this is boot %s" % (document.get("boot_id"), boot_id)
    elif age_s is None:
        problem = "how old it is is not known: the uptime of the node is missing, or less than it was then"
    elif age_s / 3600.0 > limit:
        problem = "it was taken %.1f hours ago, at most %s are accepted" % (age_s / 3600.0, limit)
    return {"document": document, "problem": problem, "time": taken}


def graft_hidden_values(snapshot, found) -> dict | None:
    """SNAPSHOT with the hidden values of the earlier reading, where MIG hides them now; a new document."""
    if not found or found["problem"] or not isinstance(snapshot, dict):
        return snapshot
    earlier = model.by_uuid(model.item(found["document"], "snapshot"))
    gpus = []
    for gpu in model.gpus(snapshot):
        old = earlier.get(model.uuid(gpu))
        if old is not None and model.reading(gpu, "mig_mode_current").value == 1:
            for key in HIDDEN:
                if model.reading(gpu, key).rc == model.NOT_SUPPORTED and model.reading(old, key).known:
                    gpu = dict(gpu, **{key: dict(old[key], read=found["time"])})
        gpus.append(gpu)
    return dict(snapshot, gpus=gpus)


def accept_hidden(checks, ctx) -> list[dict]:
    """CHECKS where the caller accepts, with the expectation "mig_hidden", that NVML hides values of GPUs in MIG mode.

    Only what MIG hides is accepted, of GPUs that are known to be in MIG mode: such a check does not apply then.
    """
    accepted = ACCEPTED.get(model.item(ctx.expect, "mig_hidden"), ())
    gpus = dict((model.entity(gpu), gpu) for gpu in model.gpus(ctx.snapshot))
    return [_not_now(check) if _hide_check(check, gpus.get(check["entity"]), accepted) else check for check in checks]


def _hide_check(check, gpu, accepted) -> bool:
    key = HIDES.get(check["id"])
    return (
        key in accepted
        and gpu is not None
        and check["status"] == UNKNOWN
        and model.reading(gpu, key).rc == model.NOT_SUPPORTED
        and model.reading(gpu, "mig_mode_current").value == 1
    )


def _not_now(check) -> dict:
    return dict(
        check,
        status=NOT_APPLICABLE,
        action="none",
        message="Not told of a GPU in MIG mode; to be read while the instances are destroyed.",
    )


def check_mig_free(ctx) -> dict:
    """Tell if the given reading without MIG instances can be used."""
    checks = Checks(IDENT, source="baseline")
    found = model.item(ctx.expect, "mig_free")
    wanted = "a reading of this boot, at most %s hours old" % (policy.find_limit(ctx, "mig_free_reading_age_max_h"),)
    if found is None:
        return checks.none("No reading without MIG instances was given.")
    if found["problem"]:
        return checks.unknown(
            found["time"],
            wanted,
            "The reading without MIG instances does not count: %s. Take one with gpu_health while the "
            "instances are destroyed." % (found["problem"],),
        )
    return checks.good(found["time"], wanted)


ROWS = (
    model.node_row(
        IDENT,
        check_mig_free,
        "A reading taken while no MIG instance existed, if one is given, is of this boot and recent",
        ("expect.mig_free", "reading.boot_id", "reading.uptime_s"),
        "nvml.h, nvmlDeviceGetRemappedRows: not supported while MIG instances exist",
    ),
)
