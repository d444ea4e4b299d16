# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the packages of DCGM that fit a node's driver, and list the problems. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import catalog

NUMBERS = re.compile(r"(?:^|[\s:])(\d+(?:\.\d+)+)")
Numbers = t.Tuple[int, ...]
# An image's reference, by the OCI distribution specification, and the digests that the image specification registers.
HOST = r"(?:[a-zA-Z0-9][a-zA-Z0-9.-]*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
REPOSITORY = re.compile(r"(?:%s/)?[a-z0-9][a-z0-9._/-]*" % HOST)
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


def upstream(version: t.Any) -> str:
    """Return a version without epoch, revision and words before it, such as 4.4.1 for 1:4.4.1-1; empty if none."""
    found = NUMBERS.search(str(version or ""))
    return found.group(1) if found else ""


def parse_numbers(version: t.Any) -> Numbers:
    """Return the numbers of a version, for comparison."""
    return tuple(int(part) for part in upstream(version).split(".") if part)


def parse_offered(text: str) -> t.Dict[str, t.List[str]]:
    """Return the versions of every package of the output of apt-cache madison, the newest first."""
    found: t.Dict[str, t.List[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and cells[1] not in found.setdefault(cells[0], []):
            found[cells[0]].append(cells[1])
    return {name: sorted(known, key=_make_sort_key, reverse=True) for name, known in found.items()}


def _make_sort_key(version: str) -> t.Tuple[int, Numbers, Numbers]:
    epoch, colon, rest = version.rpartition(":")
    revision = rest.rpartition("-")[2] if "-" in rest else ""
    return (
        int(epoch) if colon and epoch.isdigit() else 0,
        parse_numbers(rest),
        tuple(map(int, re.findall(r"\d+", revision))),
    )


def parse_installed(text: str) -> t.Dict[str, str]:
    """Return the installed packages of the output of dpkg-query with the format NAME, status and version, by tabs."""
    rows = [line.split("\t") for line in text.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1].endswith("installed") and "not-" not in row[1]}


def list_packages() -> t.List[str]:
    """Return the names of all packages of DCGM that the data knows, for any CUDA."""
    data = catalog.load("packages")
    patterns = data["packages"] + data["diagnostics"]
    return sorted(
        {name % cuda if "%s" in name else name for name in patterns for cuda in data["cuda"]} | set(data["before"])
    )


def read_driver(snapshot: t.Mapping[str, t.Any]) -> t.Tuple[t.Optional[str], t.Optional[int]]:
    """Return the version of the loaded driver and its CUDA major, each None if NVML does not tell it."""
    system = snapshot.get("system") or {}
    version = (system.get("driver_version") or {}).get("value")
    cuda = parse_numbers((system.get("cuda_driver_version") or {}).get("value"))
    return version, cuda[0] if cuda else None


def decide(
    snapshot: t.Mapping[str, t.Any],
    wanted: str = "",
    available: t.Optional[t.Mapping[str, t.List[str]]] = None,
    present: t.Optional[t.Mapping[str, str]] = None,
    diagnostics: bool = True,
    program: str = "",
) -> t.Dict[str, t.Any]:
    """Return the packages of DCGM for a node, and why it is refused.

    AVAILABLE is None where nothing is to be installed; PROGRAM is then what dcgmi says of its version.
    """
    version, cuda = read_driver(snapshot)
    answer: t.Dict[str, t.Any] = {
        "driver": version,
        "cuda": cuda,
        "version": "",
        "packages": [],
        "names": [],
        "replaced": [],
        "left_out": [],
        "due": False,
        "refusals": [],
    }
    row, refused = _find_row(version, cuda)
    if refused:
        return dict(answer, refusals=[refused])
    if available is None:
        answer["version"] = upstream(program)
        answer["refusals"] = check_pair(answer["version"], version, cuda, row)
        return answer
    return _plan_install(answer, row, wanted, available, dict(present or {}), diagnostics)


def _find_row(
    version: t.Optional[str], cuda: t.Optional[int]
) -> t.Tuple[t.Dict[str, t.Any], t.Optional[t.Dict[str, t.Any]]]:
    """Return the row of the data for a driver, or why there is none."""
    rows = catalog.load("packages")["cuda"]
    if not version or cuda is None:
        return {}, catalog.make_refusal(
            "driver_unknown",
            "The driver does not tell its version and its CUDA version.",
            "driver %s, CUDA %s" % (version or "unknown", cuda or "unknown"),
            "a loaded driver",
            "load the driver (role nvidia_driver), and run again",
        )
    if cuda not in rows:
        return {}, catalog.make_refusal(
            "cuda_unknown",
            "No package of DCGM is known for this driver.",
            "driver %s, CUDA %d" % (version, cuda),
            "CUDA %s" % ", ".join(map(str, rows)),
            "update this collection, or install another driver",
        )
    return rows[cuda], None


def check_pair(
    dcgm: str, version: t.Optional[str], cuda: t.Optional[int], row: t.Mapping[str, t.Any]
) -> t.List[t.Dict[str, t.Any]]:
    """Return what stands against DCGM in this version on this driver; an unknown version does."""
    major = catalog.load("packages")["major"]
    found, need = parse_numbers(dcgm), "DCGM %s or newer for driver %s (CUDA %s)" % (row["dcgm"], version, cuda)
    if len(found) < 2:
        return [
            catalog.make_refusal(
                "dcgm_unknown",
                "The version of DCGM is not known.",
                dcgm or "none",
                need,
                "install DCGM: nvidia_dcgm_install, or its packages",
            )
        ]
    if found[0] != major:
        return [
            catalog.make_refusal(
                "dcgm_major",
                "This is not DCGM %d." % major,
                "DCGM " + dcgm,
                need,
                "set nvidia_dcgm_version to a version of DCGM %d, or leave it empty" % major,
            )
        ]
    if found < parse_numbers(row["dcgm"])[: len(found)]:
        return [
            catalog.make_refusal(
                "dcgm_too_old",
                "DCGM is older than the driver needs.",
                "DCGM " + dcgm,
                need,
                "set nvidia_dcgm_version to %s or newer, or leave it empty" % row["dcgm"],
            )
        ]
    if parse_numbers(version) < parse_numbers(row["driver"]):
        return [
            catalog.make_refusal(
                "driver_too_old",
                "The driver is older than DCGM needs.",
                "driver %s" % version,
                "driver %s or newer for DCGM %s with CUDA %s" % (row["driver"], dcgm, cuda),
                "install a newer driver (role nvidia_driver)",
            )
        ]
    return []


def _select_versions(known: t.Iterable[str], wanted: str) -> t.List[str]:
    """Return the versions that are WANTED, which may lack epoch and revision."""
    return [
        one for one in known if not wanted or wanted in (one, one.partition(":")[2] or one) or wanted == upstream(one)
    ]


def _plan_install(
    answer: t.Dict[str, t.Any],
    row: t.Mapping[str, t.Any],
    wanted: str,
    available: t.Mapping[str, t.List[str]],
    present: t.Dict[str, str],
    diagnostics: bool,
) -> t.Dict[str, t.Any]:
    data, cuda = catalog.load("packages"), answer["cuda"]
    names = [name % cuda if "%s" in name else name for name in data["packages"]]
    more = [name % cuda if "%s" in name else name for name in data["diagnostics"]] if diagnostics else []
    kept = present.get(names[1]) if not wanted and present.get(names[0]) == present.get(names[1]) else None
    known = [kept] if kept else _select_versions(available.get(names[1], []), wanted)
    if not known:
        refused = check_pair(wanted, answer["driver"], cuda, row) if wanted else []
        answer["refusals"] = refused or [
            catalog.make_refusal(
                "not_offered",
                "DCGM is not offered to this node.",
                ", ".join(available.get(names[1], [])) or "none",
                "%s%s" % (names[1], " " + wanted if wanted else ""),
                "set up NVIDIA's CUDA repository (role nvidia_repository), or name a version that it has",
            )
        ]
        return answer
    full = known[0]
    answer["version"] = upstream(full)
    answer["refusals"] = check_pair(answer["version"], answer["driver"], cuda, row)
    missing = [name for name in names if full not in available.get(name, []) and present.get(name) != full]
    if missing and not answer["refusals"]:
        answer["refusals"] = [
            catalog.make_refusal(
                "not_offered",
                "A part of DCGM is not offered in this version.",
                "no %s %s" % (missing[0], full),
                "%s in one version" % " and ".join(names),
                "complete the mirror, or name another version in nvidia_dcgm_version",
            )
        ]
    there = [name for name in more if full in available.get(name, []) or present.get(name) == full]
    answer.update(
        names=names + there,
        packages=["%s=%s" % (name, full) for name in names + there],
        full=full,
        left_out=[name for name in more if name not in there],
        due=any(present.get(name) != full for name in names + there),
        replaced=sorted(name for name in present if name in list_packages() and name not in names + more),
    )
    return answer


def parse_exporter_version(text: str) -> str:
    """Return the version of the exporter of an image, whose tag is such as 4.5.3-4.8.2-distroless, or of a package."""
    tag = re.search(r":\d+\.\d+\.\d+-(\d+\.\d+\.\d+)(?:-|$)", text.partition("@")[0])
    return tag.group(1) if tag else "" if "/" in text else upstream(text)


def split_image(image: str) -> t.Tuple[str, str, t.List[t.Dict[str, t.Any]]]:
    """Return the repository of an exporter's image, its tag with its digest if it has one, and what is wrong with it.

    The tag begins with the version of DCGM that the exporter was built with.
    """
    reference, pinned, digest = image.partition("@")
    repository, dummy, tag = reference.rpartition(":")
    refusals = []
    if pinned and not DIGEST.fullmatch(digest):
        refusals.append(
            catalog.make_refusal(
                "image_digest",
                "The image of the exporter has something after its tag that is no digest.",
                image,
                "sha256: with 64, or sha512: with 128 digits of 0-9a-f after the @",
                "give the digest that the registry names, or leave it out, in nvidia_dcgm_exporter_image",
            )
        )
    elif not REPOSITORY.fullmatch(repository) or not TAG.fullmatch(tag) or len(parse_numbers(tag)) < 3:
        refusals.append(
            catalog.make_refusal(
                "image_version",
                "The image of the exporter does not tell its version.",
                image,
                "a tag such as 4.5.3-4.8.2-distroless",
                "name the tag in nvidia_dcgm_exporter_image",
            )
        )
    return repository, tag + pinned + digest, refusals


def check_image(image: str, engine: str) -> t.List[t.Dict[str, t.Any]]:
    """Return what stands against an exporter of this image beside an engine of this version.

    A client may be older than the engine in minor version, not newer.
    """
    dummy, tag, refusals = split_image(image)
    if refusals:
        return refusals
    built, runs = parse_numbers(tag), parse_numbers(engine)
    if len(runs) < 2:
        return [
            catalog.make_refusal(
                "engine_version",
                "The version of the engine is not known.",
                engine or "none",
                "DCGM %d" % built[0],
                "run the role nvidia_dcgm first",
            )
        ]
    if built[0] != runs[0] or built[:2] > runs[:2]:
        return [
            catalog.make_refusal(
                "image_pair",
                "The exporter was built with a DCGM that is not the engine's.",
                "DCGM " + upstream(tag),
                "DCGM %d.%d or older of the same major" % runs[:2],
                "name an image for DCGM %d.%d in nvidia_dcgm_exporter_image, or upgrade DCGM" % runs[:2],
            )
        ]
    return []
