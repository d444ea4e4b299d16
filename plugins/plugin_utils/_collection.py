# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the collection that runs, read from the file that says it."""

from __future__ import annotations

import json
import pathlib

import yaml

# Where Ansible loaded this file from, also if a folder there is a link.
ROOT = pathlib.Path(__file__).parents[2]


def version(root=ROOT) -> str:
    """Return the version of the collection in ROOT, empty if it cannot be read.

    An installed collection has MANIFEST.json, and a checkout galaxy.yml.
    """
    installed, checkout = pathlib.Path(root) / "MANIFEST.json", pathlib.Path(root) / "galaxy.yml"
    try:
        found = (
            json.loads(installed.read_text(encoding="utf-8"))["collection_info"]
            if installed.exists()
            else yaml.safe_load(checkout.read_text(encoding="utf-8"))
        )["version"]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return ""
    return found.strip() if isinstance(found, str) else ""
