# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tell the kernel's packages, what keeps them as they are, and which changes around them are allowed.

Only data in, only data out.
"""

from __future__ import annotations

import re

from .._kernel import kernels
from .._node.versions import KEYS
from .driver_tables import EL_KERNEL
from .transaction import CHANGES

# Names of the kernel's packages, as regular expressions from the beginning of the name.
PATTERNS = {
    "apt": (
        "linux-image-",
        "linux-headers-",
        "linux-modules-(?!nvidia-[0-9])",
        "linux-(generic|virtual|lowlatency|aws|azure|gcp|oem)",
    ),
    "dnf": (EL_KERNEL + "$", "kernel-headers$"),
}
# What else comes with a kernel's headers.
TOOLS = {"apt": r"linux-(kbuild|compiler|base|libc-dev|bpf)", "dnf": r"kernel-(tools|srpm-macros)"}
# Packages of the driver, which only driver_packages changes.
DRIVER = (
    r"(lib|firmware-|xserver-xorg-video-|kmod-)?nvidia-(?!container)|libcuda|cuda-drivers|linux-(modules|objects|"
    r"signatures)-nvidia-[0-9]"
)
# A kernel's release in a package's name. Metapackages have none: linux-generic-hwe-24.04 has the system's.
VERSIONED = re.compile(r"-\d+\.\d+\.\d")
DNF_PARTS = ("core", "modules", "devel")
# dnf: the flavour, such as 64k or rt-debug, stands before the part.
PART = re.compile(r"^kernel(?:-(?P<flavour>.+?))??(?:-(?P<part>core|modules.*|devel.*|uki-.*|headers))?$")
BLOCKED = ("linux-image-*", "linux-headers-*", "linux-modules-[0-9]*")


def is_kernel(name, patterns) -> bool:
    return any(re.match(pattern, name) for pattern in patterns)


def installed_names(installed, patterns) -> dict[str, str]:
    """``{name: version}`` of the kernel's packages that are installed, and of what stands for an image that is."""
    return dict(
        (name, item["version"])
        for name, item in sorted(installed.items())
        if item["installed"]
        and (is_kernel(name, patterns) or name[:6] == "linux-" and "linux-image-" + name[6:] in installed)
    )


def versions_of(have) -> list[str]:
    """Every version of an installed package, without the epoch."""
    return [version.split(":", 1)[-1] for version in [have["version"]] + list(have.get("more") or [])] if have else []


def packages_with(installed, release, manager) -> list[str]:
    """Return the names of the installed packages that make one kernel; the headers that all share are not among
    them.
    """
    if manager == "apt":
        return sorted(
            name
            for name in installed
            if re.match(r"linux-[a-z-]+-%s(-unsigned)?$" % re.escape(release), name)
            and installed[name]["installed"]
            and is_kernel(name, PATTERNS["apt"])
        )
    version, flavour = kernels.split_el_release(release) or (release, "")
    found = []
    for name in sorted(name for name in installed if is_kernel(name, PATTERNS["dnf"])):
        part = PART.match(name)
        # A flavour of another vendor is in no release.
        same = (part.group("flavour") or "") == flavour or (not flavour and "+" not in release)
        if same and part.group("part") != "headers" and version in versions_of(installed[name]):
            found.append(name)
    return found


def has_image(names) -> bool:
    return any(re.match(r"linux-image-|kernel(?!.*-(modules|devel))", name) for name in names)


def packages_of(release, manager, installed=None, running="") -> tuple[dict, dict]:
    """The packages of one kernel to ask for: its image and the headers that DKMS needs; those that the archive may lack
    come second.

    With dnf, a kernel of the running one's flavour gets the packages that the running one has.
    """
    if manager == "dnf":
        version, flavour = kernels.split_el_release(release) or (release.rsplit(".", 1)[0], "")
        now = packages_with(installed or {}, running, manager)
        now = now if has_image(now) and (kernels.split_el_release(running) or ("", ""))[1] == flavour else []
        base = "kernel-" + (flavour and flavour + "-")
        names = set(now + [base + "modules", base + "devel"] if now else [base + part for part in DNF_PARTS])
        return dict.fromkeys(sorted(names), version), {}
    names = ["linux-image-%s" % release, "linux-headers-%s" % release]
    storage = (installed or {}).get("linux-modules-nvidia-fs-%s" % running, {}).get("installed")
    parts = ["linux-modules", "linux-modules-extra"] + (["linux-modules-nvidia-fs"] if storage else [])
    return dict.fromkeys(names), dict.fromkeys("%s-%s" % (part, release) for part in parts)


def find_newest(index, name) -> str | None:
    """The newest version of a package that can be downloaded; None without one."""
    found = [item["version"] for item in index.get(name, []) if item["downloadable"]]
    return max(found, key=KEYS["apt"]) if found else None


def find_needs(index, names, patterns) -> list[str]:
    """The kernel's own packages that these depend on, which a pin would keep away unless they are named, too."""
    found = set(
        name
        for known in names
        for item in index.get(known, [])
        for group in item["depends"]
        for name in group[:1]
        if is_kernel(name, patterns)
    )
    return sorted(found - set(names))


def _depends_on(item, release) -> bool:
    return any(re.match(r"linux-[a-z-]+-%s$" % re.escape(release), name) for group in item["depends"] for name in group)


def find_metapackages(installed, patterns, manager) -> list[str]:
    """The installed packages that stand for a kernel and have none themselves.

    dnf's are installed once for each kernel, as kernels are.
    """
    return sorted(
        name for name in installed_names(installed, patterns) if manager == "apt" and not VERSIONED.search(name)
    )


def find_followers(index, installed, metas, release) -> dict[str, str]:
    """``{name: version}``: the metapackages that are to change, so that they stand for this kernel; those that depend
    on such ones have their version.
    """
    found = {}
    for name in metas:
        versions = [item["version"] for item in index.get(name, []) if _depends_on(item, release)]
        if versions:
            found[name] = max(versions, key=KEYS["apt"])
    for name in metas:
        if name not in found:
            found.update(
                (name, item["version"])
                for item in index.get(name, [])
                if item["version"] in found.values()
                and any(other in found for group in item["depends"] for other in group)
            )
    return dict((name, version) for name, version in sorted(found.items()) if installed[name]["version"] != version)


def standing_for(index, installed, metas, release) -> list[str]:
    """The metapackages that, as they are installed, depend on this kernel."""
    return [
        name
        for name in metas
        if any(
            item["version"] == installed[name]["version"] and _depends_on(item, release) for item in index.get(name, [])
        )
    ]


def following_refusals(transaction, wanted) -> list[str]:
    """Refuse whatever else a transaction does that lets the metapackages follow."""
    changed = dict((item["name"], item["version"]) for kind in CHANGES for item in transaction[kind])
    rows = (
        ("change other packages", [name for name in changed if name not in wanted]),
        ("remove packages", [item["name"] for item in transaction["remove"]]),
        ("not bring what was asked for", [name for name, version in wanted.items() if changed.get(name) != version]),
    )
    return ["the transaction would %s: %s" % (what, ", ".join(sorted(names))) for what, names in rows if names]


def render_pin(held, releases=()) -> str:
    """An apt preferences file under which the installed kernel packages stay at their versions, and no other kernel
    comes. What belongs to ``releases``, the kernels of the node, may come, such as their headers.
    """
    lines = ["Explanation: written by gpufleet.lifecycle (kernel_packages); changes are overwritten."]
    for version in sorted(set(held.values())):
        lines += [
            "Explanation: the kernel's packages that are installed stay at this version.",
            "Package: %s" % " ".join(sorted(name for name in held if held[name] == version)),
            "Pin: version %s" % version,
            "Pin-Priority: 1001",
            "",
        ]
    own = set(
        found.group(1)
        for found in (re.match(r"linux-image-(?:unsigned-)?(\d.*?)(?:-unsigned)?$", name) for name in held)
        if found
    )
    own = sorted(own.union(releases))
    if own:
        # The headers that a kernel shares with its other flavours: 6.1.0-50-common, 6.1.0-50-common-rt, 6.8.0-60.
        common = sorted(set(re.match(r"[0-9.]+(-[0-9]+)?(\+[a-z0-9.]+)?", release).group(0) for release in own))
        lines += [
            "Explanation: what belongs to these kernels may come, such as headers that are not installed yet.",
            "Package: %s"
            % " ".join(
                ["linux-%s-%s*" % (kind, release) for release in own for kind in ("headers", "modules")]
                + ["linux-headers-%s%s" % (version, end) for version in common for end in ("", "-common*")]
            ),
            "Pin: version *",
            "Pin-Priority: 500",
            "",
        ]
    metas = sorted(name for name in held if not VERSIONED.search(name))
    lines += [
        "Explanation: no other kernel comes by itself.",
        "Package: %s" % " ".join(list(BLOCKED) + metas),
        "Pin: version *",
        "Pin-Priority: -1",
        "",
    ]
    return "\n".join(lines)


def find_others(transaction, patterns, manager) -> list[str]:
    """Return the new packages of a transaction that are not a kernel's: what the headers of a kernel depend on."""
    allowed = list(patterns) + [TOOLS[manager]]
    return sorted(item["name"] for item in transaction["install"] if not is_kernel(item["name"], allowed))


def staging_refusals(transaction, wanted, patterns, manager) -> list[str]:
    """Refuse a transaction that brings a kernel and changes a package that is there and not the kernel's, brings one of
    the driver, or removes one.
    """
    allowed, lines = list(patterns) + [TOOLS[manager]], []
    changed = sorted(
        item["name"]
        for kind in CHANGES
        for item in transaction[kind]
        if not is_kernel(item["name"], allowed) and (kind != "install" or re.match(DRIVER, item["name"]))
    )
    replaced = sorted(
        item["name"]
        for kind in ("upgrade", "downgrade")
        for item in transaction[kind]
        if is_kernel(item["name"], patterns)
    )
    removed = sorted(item["name"] for item in transaction["remove"])
    brought = set(item["name"] for kind in CHANGES for item in transaction[kind])
    for what, names in (
        ("change packages that are not the kernel's", changed),
        ("replace kernel packages that are installed", replaced),
        ("remove packages", removed),
        ("not bring what was asked for", sorted(name for name in wanted if name not in brought)),
    ):
        if names:
            lines.append("the transaction would %s: %s" % (what, ", ".join(names)))
    return lines


def security_wanted(installed, security, patterns, manager) -> dict[str, str]:
    """``{name: version}``: the newest security update of every package that is installed, not held, and not the
    kernel's or the driver's.
    """
    key, found = KEYS[manager], {}
    for name, versions in sorted((security or {}).items()):
        have = installed.get(name)
        if not have or not have["installed"] or have["hold"] or is_kernel(name, patterns) or re.match(DRIVER, name):
            continue
        newer = [version for version in versions if key(have["version"]) < key(version)]
        if newer:
            found[name] = max(newer, key=key)
    return found


def security_refusals(transaction, wanted, installed, patterns) -> list[str]:
    """Refuse a run of security updates that touches what is held, the kernel or the driver, removes, downgrades, or
    brings what is no such update.
    """
    changed = [item for kind in CHANGES for item in transaction[kind]]
    touched = changed + transaction["remove"]
    rows = (
        (
            "change packages that are held",
            [item["name"] for item in touched if installed.get(item["name"], {}).get("hold")],
        ),
        ("change the kernel", [item["name"] for item in touched if is_kernel(item["name"], patterns)]),
        ("change the driver", [item["name"] for item in touched if re.match(DRIVER, item["name"])]),
        ("remove packages", [item["name"] for item in transaction["remove"]]),
        ("downgrade packages", [item["name"] for item in transaction["downgrade"]]),
        (
            "upgrade packages for another reason",
            [item["name"] for item in transaction["upgrade"] if item["name"] not in wanted],
        ),
    )
    return ["the transaction would %s: %s" % (what, ", ".join(sorted(set(names)))) for what, names in rows if names]


def kept_out(rows) -> dict[str, str]:
    """Of a report on holds, the security updates that they keep out, the newest of each package."""
    return dict((row["package"], row["security"][0]) for row in rows if row["security"])
