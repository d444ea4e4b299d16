# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container Device Interface: the files that tell container runtimes how to hand over GPUs, as CDI's own cache reads
them (pkg/cdi/cache.go and spec.go of container-device-interface).

The standard library reads no YAML, so the part of it that such files are written in is read here. A file in another
part of it is not known; it is never taken for one without devices.
"""

from __future__ import annotations

import json
import os
import re

from . import files

# A device of a later directory overrides one of the same kind and name.
DIRECTORIES = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
ENDINGS = (".yaml", ".json")
KIND = re.compile(r"""["']?kind["']?\s*:\s*["']?([A-Za-z0-9./_-]+)""")
LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
# What CDI accepts (pkg/cdi/version.go, pkg/parser and the validate functions of pkg/cdi). Its parser refuses a file for
# one field that it does not know, and a runtime knows no version that came after it.
VERSIONS = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_KIND = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_FIELDS = {
    "spec": "cdiVersion kind annotations devices containerEdits",
    "device": "name annotations containerEdits",
    "containerEdits": "env deviceNodes hooks mounts intelRdt additionalGids netDevices",
    "deviceNodes": "path hostPath type major minor fileMode permissions uid gid",
    "mounts": "hostPath containerPath options type",
    "hooks": "hookName path args env timeout",
}
QUOTED = r'"(?:\\.|[^"\\])*"|\'(?:\'\'|[^\'])*\''
_LISTS = ("deviceNodes", "mounts", "hooks")
_LINE = re.compile(r"((?:%s|[^\"'\s]|\s(?!#)|[\"'])*)" % QUOTED)
_KEY = re.compile(r"(%s|[^\s\"'\[\]{},#&*!|>@`-][^#]*?):(?:\s+(.*))?" % QUOTED)
_FLOW = re.compile(r"%s|[^\s{}\[\],:\"'](?:[^{}\[\],:]|:(?!\s))*" % QUOTED)


def read(root) -> dict[str, list] | None:
    """``{"specs": [...]}``, a spec for each file; None when a directory is there and cannot be read.

    A spec has ``path``, ``kind``, ``devices`` (the names that a runtime gets from this file), ``conflicts`` (files of
    the same directory that name the same devices, which no runtime gets then), ``overridden`` (files of later
    directories that name the same devices), ``versions`` (of the driver, by the libraries that it hands over), and
    ``missing`` (paths that it hands over and that are not there). A file that cannot be read has None for devices.
    """
    specs, seen = [], set()
    for priority, directory in enumerate(DIRECTORIES):
        where = files.resolve(root, directory)
        if where is None or where in seen:
            continue
        seen.add(where)
        names = files.listing(files.under(root, where))
        if names is None:
            return None
        paths = ["%s/%s" % (where, name) for name in sorted(names) if name.endswith(ENDINGS)]
        specs += [(priority, load(root, path)) for path in paths if not os.path.isdir(files.under(root, path))]
    owners = {}
    for priority, spec in specs:
        for name in spec["devices"] or ():
            owners.setdefault((spec["kind"], name), []).append((priority, spec["path"]))
    return {"specs": [describe(root, priority, spec, owners) for priority, spec in specs]}


def load(root, path) -> dict:
    """The file as CDI parses it: ``devices`` {name: paths of the host} and the paths that are ``common`` to them; no
    device where CDI refuses the file, None where that is not known.
    """
    text = files.read_text(files.under(root, path)) or ""
    try:
        document = parse(text)
        devices = [(str(item["name"]), item.get("containerEdits") or {}) for item in document.get("devices") or []]
        handed = dict((name, host_paths(edits)) for name, edits in devices)
        is_valid = len(handed) == len(devices) and all(any(edits.values()) for dummy, edits in devices)
        is_valid = is_valid and accepts(document)
        if is_valid and document["cdiVersion"] not in VERSIONS:
            raise ValueError("a version of CDI that is not known here")
        common = host_paths(document.get("containerEdits") or {})
        return {"path": path, "kind": document["kind"], "devices": handed if is_valid else {}, "common": common}
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        kind = KIND.search(text)
        return {"path": path, "kind": kind.group(1) if kind else None, "devices": None}


def accepts(document) -> bool:
    """Tell if CDI takes the document of a file; with one mistake none of its devices is there."""
    devices = document.get("devices") or []
    edits = [item.get("containerEdits") or {} for item in [document] + devices]
    nodes, mounts, hooks = ([one for part in edits for one in part.get(key) or []] for key in _LISTS)
    return (
        _VERSION.fullmatch(document.get("cdiVersion") or "") is not None
        and _KIND.fullmatch(document["kind"]) is not None
        and all(_DEVICE.fullmatch(str(item["name"])) for item in devices)
        and all(str(text).find("=") > 0 for part in edits for text in part.get("env") or [])
        and all(one.get("path") and one.get("type") in (None, "", "b", "c", "u", "p") for one in nodes)
        and all(one.get("hostPath") and one.get("containerPath") for one in mounts)
        and all(one.get("path") and one.get("hookName") in _HOOKS for one in hooks)
        and _has_only("spec", [document])
        and _has_only("device", devices)
        and _has_only("containerEdits", edits)
        and all(_has_only(key, found) for key, found in zip(_LISTS, (nodes, mounts, hooks)))
    )


def _has_only(part, items) -> bool:
    """Tell if items have no fields but those of a PART of the format. Their case does not matter."""
    known = _FIELDS[part].lower().split()
    return all(name.lower() in known for item in items for name in item)


def host_paths(edits) -> list[str]:
    """The paths of the host that a runtime needs for EDITS. It makes a device node of known numbers by itself."""
    nodes = [item for item in edits.get("deviceNodes") or [] if not (item.get("type") and item.get("major"))]
    found = [item.get("hostPath") or item["path"] for item in nodes]
    found += [item["hostPath"] for item in edits.get("mounts") or []]
    return found + [item["path"] for item in edits.get("hooks") or []]


def describe(root, priority, spec, owners) -> dict:
    """What a runtime gets from SPEC; OWNERS: {(kind, name): [(priority, path)]} of the devices of all files."""
    found = dict(path=spec["path"], kind=spec["kind"], devices=None, versions=None, missing=None)
    names, conflicts, overridden = [], set(), set()
    for name in spec["devices"] or ():
        rows = owners[spec["kind"], name]
        later = set(path for rank, path in rows if rank > priority)
        overridden |= later
        conflicts |= set(path for rank, path in rows if rank == priority and path != spec["path"])
        # A conflict takes the device away, also where a later directory has it.
        if not later and len(set(rank for rank, dummy in rows)) == len(rows):
            names.append(name)
    found.update(conflicts=sorted(conflicts), overridden=sorted(overridden))
    if spec["devices"] is None:
        return found
    handed = sorted(set(path for name in names for path in spec["devices"][name] + spec["common"]))
    return dict(
        found,
        devices=sorted(names),
        versions=sorted(set(match.group(1) for match in map(LIBRARY.search, handed) if match)),
        missing=[path for path in handed if path[:1] == "/" and not os.path.lexists(files.under(root, path))],
    )


# ---- YAML ----


def parse(text) -> dict | list:
    """The document of JSON, or of YAML with blocks, and with flow collections within a line. ValueError for others."""
    if text.lstrip()[:1] == "{":
        return _flow(text)
    lines = []
    for line in text.splitlines():
        content = "" if line.lstrip()[:1] == "#" else _LINE.match(line).group(1).rstrip()
        if content.strip() and content != "---":
            lines.append((len(content) - len(content.lstrip(" ")), content.lstrip(" ")))
    document = _block(lines, lines[0][0])
    if lines:
        raise ValueError("a line that is no part of the document: %s" % (lines[0][1],))
    return document


def _block(lines, indent) -> dict | list:
    found = [] if _item(lines[0][1]) else {}
    while lines and lines[0][0] == indent and _item(lines[0][1]) == isinstance(found, list):
        text = lines.pop(0)[1]
        if isinstance(found, list):
            rest = text[1:].lstrip()
            if rest and (_item(rest) or rest[0] not in "{[" and _KEY.fullmatch(rest)):
                inner = indent + len(text) - len(rest)
                lines.insert(0, (inner, rest))
                found.append(_block(lines, inner))
            else:
                found.append(_value(lines, indent + 1, rest))
            continue
        match = _KEY.fullmatch(text)
        key = _flow(match.group(1)) if match else None
        if not match or key in found:
            raise ValueError("no key, or one a second time: %s" % (text,))
        # A list may stand as far left as its key.
        beside = bool(lines) and lines[0][0] == indent and _item(lines[0][1])
        found[key] = _value(lines, indent if beside else indent + 1, match.group(2) or "")
    return found


def _item(text) -> bool:
    return text == "-" or text.startswith("- ")


def _value(lines, least, text):
    """What stands behind a key or a dash: in its line, or in the lines below, from column LEAST on."""
    if text:
        return _flow(text)
    return _block(lines, lines[0][0]) if lines and lines[0][0] >= least else None


def _flow(text):
    """A scalar, a flow collection or JSON; what has another meaning in YAML is refused."""
    if text[:1] in "&*!|>@`%":
        raise ValueError("not read here: %s" % (text,))
    if text.lstrip()[:1] not in ("{", "[", '"', "'"):
        return int(text) if text.isdigit() else text

    def quote_match(match) -> str:
        word = match.group().strip()
        if word[0] == "'":
            word = json.dumps(word[1:-1].replace("''", "'"))
        return word if word[0] == '"' or re.fullmatch(r"-?[0-9.]+|true|false|null", word) else json.dumps(word)

    return json.loads(_FLOW.sub(quote_match, text))
