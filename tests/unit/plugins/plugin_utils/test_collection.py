# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the collection that runs: which file says it, and what counts as unknown."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _collection

pytestmark = pytest.mark.cores

MANIFEST = json.dumps({"collection_info": {"namespace": "gpufleet", "name": "lifecycle", "version": "1.2.3-rc1"}})


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"MANIFEST.json": MANIFEST}, "1.2.3-rc1"),
        ({"galaxy.yml": "---\nversion: 1.3.0\n"}, "1.3.0"),
        ({"MANIFEST.json": MANIFEST, "galaxy.yml": "version: 9.9.9\n"}, "1.2.3-rc1"),
        ({"MANIFEST.json": "{", "galaxy.yml": "version: 9.9.9\n"}, ""),
        ({"MANIFEST.json": "[]"}, ""),
        ({"MANIFEST.json": "{}"}, ""),
        ({"galaxy.yml": "version: [\n"}, ""),
        ({"galaxy.yml": ""}, ""),
        ({"galaxy.yml": "name: lifecycle\n"}, ""),
        ({"galaxy.yml": "version: 1.3\n"}, ""),
        ({"galaxy.yml": "version:\n"}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_which_file_says_the_version(tmp_path, files, found):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert _collection.version(tmp_path) == found


def test_the_version_is_that_of_the_collection_around_it(collection_root):
    assert _collection.version() == yaml.safe_load((collection_root / "galaxy.yml").read_text())["version"]
