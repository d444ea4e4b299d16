# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that keep the package managers to one driver: apt preferences, and the exclusions of unattended
upgrades.
"""

from __future__ import annotations

import re

# Names of the driver's own packages, as unattended-upgrades reads them. Tools released apart from it keep getting their
# updates.
UNATTENDED_PATTERNS = (
    "^(lib|firmware-|xserver-xorg-video-)?nvidia-(?!persistenced|modprobe|settings|xconfig|container)",
    "^libcuda(1|debugger1)$",
    "^libnv(cuvid|optix)1$",
    "^linux-(modules|objects|signatures)-nvidia-",
    "^cuda-drivers",
)

# Everything that carries the driver's version in NVIDIA's rpm repository.
AUTOMATIC_EXCLUDES = (
    "cuda-drivers*",
    "kmod-nvidia-*",
    "libnvidia-*",
    "libnvsdm",
    "nvidia-driver*",
    "nvidia-fabric*",
    "nvidia-imex*",
    "nvidia-kmod-common",
    "nvidia-libXNVCtrl*",
    "nvidia-modprobe",
    "nvidia-open*",
    "nvidia-persistenced",
    "nvidia-settings",
    "nvidia-xconfig",
    "xorg-x11-nvidia",
)


def by_name(table: dict, resolved: dict) -> dict[str, str]:
    """The packages that only their names tell apart: prebuilt modules, several versions of which are built from one
    source.
    """
    pattern = table.get("prebuilt_pattern")
    return dict(
        (name, version) for name, version in resolved["packages"].items() if pattern and re.match(pattern, name)
    )


def render_pin(table: dict, versions: dict[str, str], names: dict[str, str] | None = None) -> str:
    """An apt preferences file that allows exactly one driver, and no other driver family.

    ``versions`` is ``{source package: version}``; a source of the driver that is not in it is not allowed at all.
    ``names`` is ``{package: version}`` of those that are allowed by name. The first stanza that fits a package decides.
    """
    known = [name for name in table["sources"] if "{" not in name]
    sources = [name for name in known if name in versions] + sorted(name for name in versions if name not in known)
    lines = ["Explanation: written by gpufleet.lifecycle (driver_packages); changes are overwritten."]
    for source in sources:
        lines += [
            "Explanation: the driver's packages, by source package, are allowed at this version alone.",
            "Package: src:%s" % source,
            "Pin: version %s" % versions[source],
            "Pin-Priority: 1001",
            "",
        ]
    for name, version in sorted((names or {}).items()):
        lines += [
            "Explanation: the prebuilt module of one kernel, allowed at this version alone.",
            "Package: %s" % name,
            "Pin: version %s" % version,
            "Pin-Priority: 1001",
            "",
        ]
    blocked = ["src:%s" % name for name in known + [name for name in sources if name not in known]]
    blocked += ["src:%s" % name for name in table["blocked_sources"]] + list(table["blocked_names"])
    lines += [
        "Explanation: every other version, and every other driver family of the archive, is not.",
        "Package: %s" % " ".join(blocked),
        "Pin: version *",
        "Pin-Priority: -1",
        "",
    ]
    return "\n".join(lines)


def render_unattended(patterns: tuple[str, ...] = UNATTENDED_PATTERNS) -> str:
    """An apt configuration file under which unattended-upgrades leaves the driver alone."""
    lines = [
        (
            "// Written by gpufleet.lifecycle (driver_packages); changes are overwritten. The driver changes only when "
            "somebody means it."
        ),
        "Unattended-Upgrade::Package-Blacklist {",
    ]
    return "\n".join(lines + ['    "%s";' % pattern for pattern in patterns] + ["};", ""])


def render_automatic(text: str, exclude: bool = True, patterns: tuple[str, ...] = AUTOMATIC_EXCLUDES) -> str:
    """``automatic.conf`` of dnf-automatic with the driver excluded from its updates, or no longer; other exclusions
    stay.
    """
    lines, section, base, at = text.splitlines(), None, None, None
    for number, line in enumerate(lines):
        header = re.match(r"^\s*\[(.+)\]\s*$", line)
        if header:
            section = header.group(1)
            base = number if section == "base" else base
        elif section == "base" and re.match(r"^\s*exclude(pkgs)?\s*=", line):
            at = number
    words = [word for word in re.split(r"[,\s]+", lines[at].split("=", 1)[1]) if word] if at is not None else []
    # In their order, as kernel and driver are excluded in the same line by two tasks.
    wanted = [word for word in words if exclude or word not in patterns]
    wanted += [word for word in patterns if exclude and word not in words]
    new = "excludepkgs = %s" % ", ".join(wanted) if wanted else None
    if at is not None:
        lines[at : at + 1] = [new] if new else []
    elif new and base is not None:
        lines.insert(base + 1, new)
    elif new:
        lines += ["[base]", new]
    return "".join("%s\n" % line for line in lines)


def pin_content(manager: str, table: dict, resolved: dict) -> str | None:
    """The file that keeps a package manager to one driver. None for dnf, whose version locks do that."""
    return render_pin(table, resolved["sources"], by_name(table, resolved)) if manager == "apt" else None


def unattended_content(manager: str, text: str | None, exclude: bool) -> str | None:
    """The file that keeps unattended upgrades from the driver, out of the TEXT it has; None when it should not be
    there.

    With dnf these are the settings of dnf-automatic; where it is not installed there is nothing to write.
    """
    if manager == "apt":
        return render_unattended() if exclude else None
    return None if text is None else render_automatic(text, exclude)
