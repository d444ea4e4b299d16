# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's NVML binding, and the code that reads the GPUs with it, as one archive for the nodes."""

from __future__ import annotations

import base64
import collections
import hashlib
import importlib.machinery
import importlib.metadata
import io
import json
import os
import zipfile

DISTRIBUTION = "nvidia-ml-py"
DATA_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_data")
CODE_DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "module_utils")
# The packages that call the binding. They import each other relative to their common parent, and nothing else of the
# collection.
PACKAGES = ("_nvml", "_mig")

# Version None: the archive has no binding, for the reason that PROBLEM tells, and the node's own is used.
Archive = collections.namedtuple("Archive", ["data", "digest", "version", "problem"], defaults=(None,))


class BindingError(Exception):
    """The controller has no binding to send; the text says why and what to do."""


def find():
    """(source of pynvml.py, version), of nvidia-ml-py and of nothing else that calls itself pynvml."""
    advice = "install %s in the Python environment that runs Ansible on the controller" % (DISTRIBUTION,)
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise BindingError("the controller has no %s; %s" % (DISTRIBUTION, advice)) from None
    try:
        # on disk, whatever this process has loaded under the name
        spec = importlib.machinery.PathFinder.find_spec("pynvml")
    except (ImportError, ValueError):
        spec = None
    origin = spec.origin if spec else None
    if not origin or os.path.basename(origin) != "pynvml.py":
        raise BindingError(
            "the controller's Python module pynvml (%s) is not that of %s; remove the package that shadows it"
            % (origin, DISTRIBUTION)
        )
    if os.path.realpath(origin) != os.path.realpath(str(distribution.locate_file("pynvml.py"))):
        raise BindingError(
            "the controller's Python module pynvml (%s) is not that of %s; remove the package that shadows it"
            % (origin, DISTRIBUTION)
        )
    recorded = [item.hash for item in distribution.files or [] if str(item) == "pynvml.py" and item.hash]
    with open(origin, "rb") as stream:
        source = stream.read()
    for expected in recorded:
        if expected.mode == "sha256" and _record_hash(source) != expected.value:
            raise BindingError(
                "%s is not the file that %s %s installed (another package called pynvml overwrote it?); re-install %s"
                % (origin, DISTRIBUTION, distribution.version, DISTRIBUTION)
            )
    return source, distribution.version


def _record_hash(source):
    return base64.urlsafe_b64encode(hashlib.sha256(source).digest()).rstrip(b"=").decode("ascii")


def files(directory, suffix):
    """The contents of the files at any depth of DIRECTORY whose names end in SUFFIX, by their paths in it."""
    found = {}
    for place, dummy, names in os.walk(directory):
        for name in names:
            if name.endswith(suffix):
                path = os.path.join(place, name)
                with open(path, "rb") as stream:
                    found[os.path.relpath(path, directory).replace(os.sep, "/")] = stream.read()
    return found


def build(source, version, data, code):
    """One archive of the binding's SOURCE (None for none), the DATA files and the CODE of this collection that uses the
    binding, by path.

    The same input gives the same bytes, on any day and machine with the same zlib.
    """
    members = {"manifest.json": json.dumps({"version": version}).encode("utf-8")}
    if source is not None:
        members["pynvml.py"] = source
    members.update(("data/" + name, content) for name, content in data.items())
    members.update(code)
    return pack(members)


def pack(members):
    """The bytes of a zip with MEMBERS, contents by path: the same on any day."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100600 << 16
            archive.writestr(entry, members[name], compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def code_files(packages=PACKAGES):
    """The Python files of PACKAGES, those that call the binding, by their paths below module_utils."""
    found = {}
    for package in packages:
        found.update(
            ("%s/%s" % (package, name), content)
            for name, content in files(os.path.join(CODE_DIRECTORY, package), ".py").items()
        )
    return found


def shipped():
    """The archive of this controller."""
    problem = None
    try:
        source, version = find()
    except (BindingError, OSError) as exc:
        source, version, problem = None, None, str(exc)
    data = build(source, version, files(DATA_DIRECTORY, ".json"), code_files())
    return Archive(data, hashlib.sha256(data).hexdigest(), version, problem)
