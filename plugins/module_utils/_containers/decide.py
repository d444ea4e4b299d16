# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which container runtimes to configure, and list the problems. Pure functions."""

from __future__ import annotations

import re

from . import runtimes

# What nvidia-ctk changes for a runtime: its files, how CDI is enabled, and the unit that reads them. Podman reads CDI's
# files by itself.
CONFIGURED = {
    "containerd": {
        "files": ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
        "cdi": True,
        "unit": "containerd.service",
    },
    "crio": {
        "files": ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"),
        "cdi": False,
        "unit": "crio.service",
    },
    "docker": {"files": ("/etc/docker/daemon.json",), "cdi": True, "unit": "docker.service"},
}
# Those whose containers end with a restart.
ENDS_CONTAINERS = ("docker",)
# From this version on nvidia-ctk writes files of its own (drop-ins) for containerd and CRI-O.
DROP_INS = "1.18.0"
# The oldest toolkit that the collection uses: it makes CDI files that every user can read, and configures containerd.
OLDEST_TOOLKIT = "1.14.0"
# Runtime: the oldest version of it that knows CDI, and, by its own version, the oldest toolkit that configures it.
# Sources: the NVIDIA Container Toolkit (option cdi.enabled in 1.14.4, for Docker mended in 1.15.0; containerd's
# configuration 3 in 1.17.4), and the CDI pages of the runtimes.
FLOORS = {
    "containerd": {"runtime": "1.7.0", "toolkit": (("0", "1.14.4"), ("2.0.0", "1.17.4"))},
    "crio": {"runtime": "1.23.0", "toolkit": (("0", "1.14.0"),)},
    "docker": {"runtime": "25.0.0", "toolkit": (("0", "1.15.0"),)},
    "podman": {"runtime": "4.1.0", "toolkit": (("0", "1.14.0"),)},
}


def number(version) -> tuple[int, ...]:
    """A version of numbers and dots as three numbers that can be compared."""
    return tuple(([int(part) for part in re.findall(r"\d+", version)] + [0, 0, 0])[:3])


def older(version, floor) -> bool:
    return number(version) < number(floor)


def refusal(ident, found, expected, message, next_step) -> dict:
    return {"id": ident, "found": found, "expected": expected, "message": message, "next_step": next_step}


def toolkit_floor(name, version) -> str:
    """The oldest toolkit for this runtime in this version."""
    return [toolkit for since, toolkit in FLOORS[name]["toolkit"] if not older(version, since)][-1]


def decide(found, wanted) -> dict[str, list]:
    """``{"runtimes": [name], "refusals": [...]}`` of what :func:`runtimes.read` found.

    WANTED names runtimes; if empty, those that are there.
    """
    toolkit, refusals = found["toolkit"], []
    if toolkit is None:
        refusals.append(
            refusal(
                "no_toolkit",
                None,
                OLDEST_TOOLKIT,
                "nvidia-ctk is not installed.",
                "install the package nvidia-container-toolkit",
            )
        )
    elif toolkit["version"] is None:
        refusals.append(
            refusal(
                "toolkit_unknown",
                None,
                OLDEST_TOOLKIT,
                "%s does not tell its version." % toolkit["path"],
                "run %s --version on the node" % toolkit["path"],
            )
        )
    elif older(toolkit["version"], OLDEST_TOOLKIT):
        refusals.append(too_old(toolkit["version"], OLDEST_TOOLKIT, "the CDI files that are made here"))
    names = sorted(set(wanted)) or sorted(found["runtimes"])
    carried = found.get("carried") or {}
    if not names and not carried:
        refusals.append(
            refusal(
                "no_runtime",
                [],
                sorted(FLOORS),
                "none of the runtimes %s is installed." % ", ".join(sorted(FLOORS)),
                "install a container runtime first",
            )
        )
    for name, is_ready in sorted(carried.items()) if not names else ():
        if not is_ready:
            configs, step = runtimes.CARRIED[name][1:]
            refusals.append(
                refusal(
                    "runtime_carried",
                    name,
                    configs,
                    "%s carries a runtime of its own, and %s does not name NVIDIA's." % (name, " or ".join(configs)),
                    step,
                )
            )
    for name in names:
        refusals += of_runtime(name, found["runtimes"].get(name), toolkit)
    return {"runtimes": names, "refusals": refusals}


def too_old(version, floor, needed_by) -> dict[str, str]:
    return refusal(
        "toolkit_too_old",
        version,
        floor,
        "the NVIDIA Container Toolkit is %s, and %s need %s." % (version, needed_by, floor),
        "set nvidia_container_toolkit_version to %s or newer" % floor,
    )


def of_runtime(name, runtime, toolkit) -> list[dict]:
    if runtime is None:
        return [
            refusal(
                "runtime_missing",
                None,
                name,
                "%s is wanted and not installed." % name,
                "install %s first, or leave it out of the runtimes" % name,
            )
        ]
    if runtime["version"] is None:
        return [
            refusal(
                "runtime_unknown",
                None,
                FLOORS[name]["runtime"],
                "%s does not tell its version." % runtime["path"],
                "run %s --version on the node" % runtime["path"],
            )
        ]
    floor = FLOORS[name]["runtime"]
    if older(runtime["version"], floor):
        return [
            refusal(
                "runtime_too_old",
                runtime["version"],
                floor,
                "%s is %s, and knows CDI from %s on." % (name, runtime["version"], floor),
                "upgrade %s, or name the other runtimes" % name,
            )
        ]
    if (
        toolkit
        and toolkit["version"]
        and older(toolkit["version"], toolkit_floor(name, runtime["version"]))
        and not older(toolkit["version"], OLDEST_TOOLKIT)
    ):
        return [
            too_old(toolkit["version"], toolkit_floor(name, runtime["version"]), "%s %s" % (name, runtime["version"]))
        ]
    return []


def command(toolkit, name, place, default) -> list[str]:
    """The call of nvidia-ctk that configures a runtime. PLACE maps a path of CONFIGURED to where it is."""
    config, drop_in = (list(CONFIGURED[name]["files"]) + [None])[:2]
    argv = [toolkit["path"], "runtime", "configure", "--runtime=%s" % name, "--config=%s" % place(config)]
    if drop_in and not older(toolkit["version"], DROP_INS):
        argv.append("--drop-in-config=%s" % place(drop_in))
    return (
        argv
        + (["--cdi.enabled"] if CONFIGURED[name]["cdi"] else [])
        + (["--set-as-default"] if default == name else [])
    )


def sentence(refusals) -> str:
    """The refusals for an operator, each with what to do next."""
    return " ".join(
        "%s Next step: %s." % (item["message"][0].upper() + item["message"][1:], item["next_step"]) for item in refusals
    )
