# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archives of compiled kernel modules that came from a builder, by their digests.

A document of the ledger for each. Neither a node nor the artifact host can write one.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import check_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import sa
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.text import dump_json, format_time

# Stands for the rollout of these documents: no id of a rollout begins like this.
OF_NO_ROLLOUT = "_archives"


def record_archive(database, builder: str, name: str, sha256: str, modules: str = "") -> None:
    """Record that BUILDER compiled the archive NAME with this digest. A record that is there stays.

    MODULES: the digest of what it brings without signatures; empty where that cannot be read.
    """
    check_node(builder)
    table = database.table["document"]

    def write(connection, dummy_repeated) -> None:
        key = (table.c.rollout_id == OF_NO_ROLLOUT, table.c.node == builder, table.c.name == sha256)
        if connection.execute(sa.select(table.c.name).where(*key)).first() is None:
            row = {
                "rollout_id": OF_NO_ROLLOUT,
                "node": builder,
                "name": sha256,
                "body": dump_json({"archive": name, "modules": modules}),
            }
            connection.execute(sa.insert(table).values(time=format_time(database.now(connection)), **row))

    database.transact(OF_NO_ROLLOUT, write)


def find_builders(database, archives: t.Mapping[str, str], agree: int = 1) -> dict[str, str]:
    """Return {name: builder} of those ARCHIVES ({name: digest}) that are recorded with their name and digest.

    AGREE: so many builders have to have compiled an archive of the name with the same modules.
    """
    table = database.table["document"]
    query = sa.select(table.c.node, table.c.name, table.c.body).where(table.c.rollout_id == OF_NO_ROLLOUT)
    if agree == 1:
        query = query.where(table.c.name.in_(sorted(set(archives.values()))))
    rows = database.query(lambda connection: connection.execute(query).all(), nothing=[]) if archives else []
    builders, modules, alike = {}, {}, {}
    for builder, sha256, body in rows:
        found = json.loads(body)
        key = found["archive"], sha256
        builders[key], modules[key] = builder, found.get("modules")
        alike.setdefault((found["archive"], found.get("modules")), set()).add(builder)
    return {
        name: builders[name, sha256]
        for name, sha256 in archives.items()
        if (name, sha256) in builders
        and (agree == 1 or modules[name, sha256] and len(alike[name, modules[name, sha256]]) >= agree)
    }
