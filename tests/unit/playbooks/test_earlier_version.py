# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout that an earlier version of the collection began, and that this one goes on with.

``earlier`` has what that version left when its controller was killed, recorded once with its own playbook and stub
nodes: a ledger of schema 1 and the files of four nodes. Of these a1 is done, a2 was being taken into quarantine, as it
was neither healthy with the new driver nor got the old one back, a3 was being installed, and a4 waits.
"""

from __future__ import annotations

import json
import pathlib
import sqlite3

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.conftest import NEW, OLD

EARLIER = pathlib.Path(__file__).resolve().parent / "earlier"


@pytest.fixture(name="left")
def _left(fleet):
    """The fleet as the earlier version left it, whose controller ran on this machine."""
    here = owner.place()
    words = {
        "PLACE": str(fleet.directory),
        "CONTROLLER": here["host"],
        "BOOT": here["boot_id"],
        "PID_NAMESPACE": here["pid_namespace"],
    }

    def text(name):
        found = (EARLIER / name).read_text()
        for word, meaning in words.items():
            found = found.replace(word, meaning)
        return found

    for name, told in json.loads(text("nodes.json")).items():
        fleet.add(name, **told["node"])
        for file, content in told["state"].items():
            (fleet.nodes / name / "state" / file).write_text(json.dumps(content))
    path = fleet.artifacts / "rollouts" / "ledger.sqlite"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as database:
        database.executescript(text("ledger.sql"))
    database.close()
    path.chmod(0o600)
    return fleet


def schema(fleet):
    with sqlite3.connect(fleet.artifacts / "rollouts" / "ledger.sqlite") as database:
        ((found,),) = database.execute("SELECT value FROM gpufleet_meta WHERE name = 'schema_version'")
    database.close()
    return found


def test_the_same_command_goes_on_where_the_earlier_version_was_killed(left):
    before = {name: left.read(name) for name in left.names}
    assert schema(left) == "1" and before["a1"]["loaded"] == NEW and before["a3"]["disk"] == NEW
    left.change("a2", cannot_install=[OLD, NEW])
    result = left.run("upgrade", rollout_max_down=2, rollout_failure_budget=3)
    assert schema(left) == "2"
    assert result.states == {"a1": "done", "a2": "quarantined", "a3": "done", "a4": "done"}, result.output
    assert result.rc == 2 and result.report["verdict"] == "failed"
    assert left.read("a1") == before["a1"], "what was proven is not done again"
    assert left.read("a3")["log"].count("installed " + NEW) == 1, "nor what was installed"
    assert left.read("a3")["loaded"] == left.read("a4")["loaded"] == NEW
    marker = json.loads((left.nodes / "a2" / "state" / "quarantine.json").read_text())
    assert marker["node"] == "a2" and marker["rollout_id"] == "upgrade-" + NEW
