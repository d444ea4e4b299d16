# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test changes in the collection of its stub nodes changes nothing in the checkout."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection

NAME = "roles/nvidia_fabricmanager/tasks/main.yml"


def test_a_file_that_is_put_in_the_place_of_a_link_leaves_the_checkouts_alone(tmp_path):
    kept = (collection.STUB / NAME).read_text()
    collection.make(tmp_path)
    assert (tmp_path / NAME).is_symlink()
    try:
        collection.put(tmp_path / NAME, "another")
        assert (collection.STUB / NAME).read_text() == kept and (tmp_path / NAME).read_text() == "another"
    finally:
        if (collection.STUB / NAME).read_text() != kept:
            (collection.STUB / NAME).write_text(kept)
