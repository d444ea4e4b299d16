# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's NVML binding, which is sent to the nodes."""

from __future__ import annotations

import base64
import collections
import hashlib
import importlib.machinery
import importlib.metadata
import os

DISTRIBUTION = "nvidia-ml-py"
DATA_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_data")

Binding = collections.namedtuple("Binding", ["source", "version", "digest"])


class BindingError(Exception):
    """The controller has no binding to send; the text says why and what to do."""


def find() -> Binding:
    """Return pynvml.py of nvidia-ml-py and of nothing else that calls itself pynvml.

    Raises:
        BindingError: it is not installed, or another package replaced it.
    """
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
    return Binding(source, distribution.version, hashlib.sha256(source).hexdigest())


def _record_hash(source: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(source).digest()).rstrip(b"=").decode("ascii")
