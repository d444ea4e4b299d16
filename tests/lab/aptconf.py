# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines' apt configuration, made from the host's: same mirrors and proxies, a stock machine's components."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from .common import run

NODE_COMPONENTS = ("main", "non-free-firmware")
DRIVER_COMPONENTS = ("contrib", "non-free")
# What of the host's apt settings says how to reach a mirror. The rest (hooks, caches, languages) is the host's own
# affair.
_REACHING = re.compile(
    r"^Acquire::(?:(?:http|https|ftp|socks5h|tor)\b|Check-Valid-Until|Check-Date|Retries|ForceIPv[46]|"
    r"AllowInsecureRepositories)",
    re.I,
)


@dataclass(frozen=True)
class Source:
    """One entry of apt's sources: where from, what of it, and the options that go with it (in deb822 spelling)."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)


def parse_deb822(text: str) -> list[Source]:
    """The enabled binary sources of a .sources file."""
    found = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        values: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and key:
                values[key] += "\n" + line.rstrip()
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.strip().lower()
                values[key] = value.strip()
        if values.get("enabled", "yes").lower() in ("no", "false", "0") or "deb" not in values.get("types", "").split():
            continue
        options = {
            name: values[name.lower()]
            for name in ("Signed-By", "Trusted", "Check-Valid-Until")
            if name.lower() in values
        }
        uris, suites, components = (tuple(values.get(name, "").split()) for name in ("uris", "suites", "components"))
        found.append(Source(uris, suites, components, options))
    return found


def parse_list(text: str) -> list[Source]:
    """The enabled binary sources of a one-line style .list file."""
    spelling = {"signed-by": "Signed-By", "trusted": "Trusted", "check-valid-until": "Check-Valid-Until"}
    found = []
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)", line.strip())
        if not match:
            continue
        options = dict(option.split("=", 1) for option in (match[1] or "").split() if "=" in option)
        found.append(
            Source(
                (match[2],),
                (match[3],),
                tuple(match[4].split()),
                {spelling[k]: v for k, v in options.items() if k in spelling},
            )
        )
    return found


def node_sources(host: list[Source], suite: str) -> list[Source]:
    """Where a machine of this suite gets its packages: the host's mirrors where it has the suite, else Debian's own."""
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    found = []
    for source in host:
        suites = tuple(name for name in source.suites if name in wanted)
        if suites and "main" in source.components:
            found.append(replace(source, suites=suites, components=NODE_COMPONENTS))
    missing = wanted - {name for source in found for name in source.suites}
    keyring = {"Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg"}
    archive = sorted(missing - {f"{suite}-security"})
    if archive:
        base = next((source for source in found if suite in source.suites), None)
        uris, options = (base.uris, base.options) if base else (("http://deb.debian.org/debian",), keyring)
        found.append(Source(uris, tuple(archive), NODE_COMPONENTS, options))
    if f"{suite}-security" in missing:
        found.append(
            Source(("http://deb.debian.org/debian-security",), (f"{suite}-security",), NODE_COMPONENTS, keyring)
        )
    return found


def driver_sources(node: list[Source], suite: str) -> list[Source]:
    """What has to be added, for a while, to see the NVIDIA packages: more components, and backports."""
    found = [replace(source, components=DRIVER_COMPONENTS) for source in node]
    base = next(source for source in node if suite in source.suites)
    found.append(replace(base, suites=(f"{suite}-backports",), components=NODE_COMPONENTS + DRIVER_COMPONENTS))
    return found


def deb822(sources: list[Source], kind: str = "deb") -> str:
    stanzas = []
    for source in sources:
        lines = [
            f"Types: {kind}",
            f"URIs: {' '.join(source.uris)}",
            f"Suites: {' '.join(source.suites)}",
            f"Components: {' '.join(source.components)}",
        ]
        lines += [f"{name}: {value}" for name, value in sorted(source.options.items())]
        stanzas.append("\n".join(lines))
    return "\n\n".join(stanzas) + "\n"


def keyrings(sources: list[Source]) -> list[str]:
    """Files the sources are signed by, which have to exist on the machine too."""
    return sorted(
        {value for source in sources for value in [source.options.get("Signed-By", "")] if value.startswith("/")}
    )


def reaching(dump: str) -> str:
    """Those lines of 'apt-config dump' that say how to reach a mirror (proxies, certificates, tolerance of old
    indexes).
    """
    return "".join(
        line + "\n" for line in dump.splitlines() if _REACHING.match(line) and not line.rstrip().endswith('"";')
    )


def driver_pin(version: str) -> str:
    """apt preferences that make every binary package of the driver's source come in one version."""
    return f"Package: src:nvidia-graphics-drivers\nPin: version {version}\nPin-Priority: 1001\n"


def read_host(etc: Path = Path("/etc/apt")) -> list[Source]:
    found: list[Source] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if path.suffix == ".sources" and path.is_file():
            found += parse_deb822(path.read_text(encoding="utf-8", errors="replace"))
        elif (path.suffix == ".list") and path.is_file():
            found += parse_list(path.read_text(encoding="utf-8", errors="replace"))
    return found


def host_settings() -> str:
    return reaching(run("apt-config", "dump").stdout)
