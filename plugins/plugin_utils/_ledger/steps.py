# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a node through a rollout, their phases, and how far a node came with them. Pure."""

from __future__ import annotations

# For each step the phase of the ticket that it needs, and the state of a node in this step.
DRAIN, DOWN, RETURN = "drain", "down", "return"
PHASES = (DRAIN, DOWN, RETURN)
STEPS = {
    "evidence": (DRAIN, "draining"),
    "prestage": (DRAIN, "draining"),
    "drain": (DRAIN, "draining"),
    "stop": (DOWN, "down"),
    "mig_clear": (DOWN, "down"),
    "install": (DOWN, "down"),
    "prove": (DOWN, "down"),
    "reboot": (DOWN, "down"),
    "reload": (DOWN, "down"),
    "mig": (DOWN, "validating"),
    "validate": (DOWN, "validating"),
    "rollback_install": (DOWN, "down"),
    "rollback_prove": (DOWN, "down"),
    "rollback_reboot": (DOWN, "down"),
    "rollback_reload": (DOWN, "down"),
    "rollback_mig": (DOWN, "validating"),
    "rollback_validate": (DOWN, "validating"),
    "rollback_start": (DOWN, "validating"),
    "quarantine": (DOWN, "down"),
    "return": (RETURN, "validating"),
    "soak": (RETURN, "soaking"),
}
# Steps of a rollback that change the node. The closing steps start its services again, or keep it out of service.
PUTTING_BACK = (
    "rollback_install",
    "rollback_prove",
    "rollback_reboot",
    "rollback_reload",
    "rollback_mig",
    "rollback_validate",
)
CLOSING = ("rollback_start", "quarantine")
# Steps that need no ticket of their phase, and may begin after its expiry: a rollback is always allowed.
ALWAYS = PUTTING_BACK + CLOSING
# Steps that only read the node. The other steps of phase down, without the closing ones, may leave another driver,
# kernel or MIG layout on a node, or stopped services.
READING = ("validate", "rollback_validate")
CHANGING = tuple(name for name, (phase, dummy) in STEPS.items() if phase == DOWN and name not in CLOSING + READING)
# How far a dead controller came with a node: only its services were stopped; it was changed; it was being rolled back;
# it served again.
STOPPED, CHANGED, PUT_BACK, SERVING = RESUMES = ("stopped", "changed", "put_back", "serving")


def find_resume_step(steps) -> str:
    """Return how far a node came, by the names of its steps: one of RESUMES, or "" if nothing was done to it."""
    if any(name in PUTTING_BACK for name in steps):
        return PUT_BACK
    if any(STEPS[name][0] == RETURN for name in steps if name in STEPS):
        return SERVING
    done = [name for name in steps if name in STEPS and STEPS[name][0] == DOWN and name not in CLOSING]
    return CHANGED if any(name != "stop" for name in done) else STOPPED if done else ""
