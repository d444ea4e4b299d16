# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a ledger: its tables, the names that it accepts, and values and times as it stores them."""

from __future__ import annotations

import functools
import json
import re

try:
    import sqlalchemy as sa
except ImportError:  # refused when a ledger is opened, with the next step
    sa = None


def dump_json(value) -> str:
    """Return the JSON text of a value, equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def format_time(now) -> str:
    """Return a UTC time in the format of a rollout's documents.

    The order of such times as text is their order in time.
    """
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000)


ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}")


class LedgerError(Exception):
    """The ledger cannot be used in this way; the message says what to do."""


def check_id(rollout_id) -> str:
    """Refuse a rollout id that cannot be the name of a directory."""
    if not ROLLOUT_ID.fullmatch(rollout_id or ""):
        raise LedgerError(
            "rollout_id is %r, which cannot be the name of a directory; expected up to 100 letters, digits and . _ + ~ "
            "-." % (rollout_id,)
        )
    return rollout_id


def check_node(name) -> str:
    """Refuse the name of a node that cannot be the name of a directory."""
    if not NODE_NAME.fullmatch(name or ""):
        raise LedgerError(
            "The node name %r cannot be the name of a directory; expected letters, digits and . _ : -." % (name,)
        )
    return name


SCHEMA_VERSION = "2"


@functools.lru_cache(maxsize=None)
def define_tables():
    """Return the tables, the same for every engine.

    A function, so that this module can be imported without SQLAlchemy.
    """
    meta = sa.MetaData()
    ident = sa.String(200)
    time_text = sa.String(32)
    sa.Table(
        "gpufleet_meta", meta, sa.Column("name", ident, primary_key=True), sa.Column("value", sa.Text, nullable=False)
    )
    sa.Table(
        "gpufleet_rollout",
        meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("planned", time_text),  # when it was planned last; null in a row that is only locked
        sa.Column("head", sa.Text),  # the view without its nodes, as JSON
        sa.Column("owner", sa.Text),  # the controller that runs it, as JSON
    )
    sa.Table(
        "gpufleet_node",
        meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("name", sa.String(260), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("orphaned", sa.Boolean, nullable=False),
        sa.Column("position", sa.Integer),
        sa.Column("canary", sa.Boolean, nullable=False),
        sa.Column("body", sa.Text, nullable=False),  # the whole node as JSON
        sa.Column("domains", sa.Text, nullable=False),  # its failure domains as JSON
        # For the next pending nodes without reading all of them. There is no other index of states: PostgreSQL would
        # use that one while it has no statistics.
        sa.Index("gpufleet_node_place", "rollout_id", "state", "position"),
        # It has only the canaries.
        sa.Index(
            "gpufleet_node_canary",
            "rollout_id",
            "canary",
            postgresql_where=sa.text("canary IS true"),
            sqlite_where=sa.text("canary IS 1"),
        ),
    )
    sa.Table(
        "gpufleet_member",
        meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("member", sa.String(40), primary_key=True),
        sa.Column("run", sa.String(40), nullable=False),
        sa.Column("body", sa.Text, nullable=False),  # the whole member as JSON
    )
    sa.Table(
        "gpufleet_event",
        meta,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("rollout_id", ident, nullable=False),
        sa.Column("time", time_text, nullable=False),
        sa.Column("node", sa.String(260)),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("token", sa.String(40), nullable=False),  # of the transaction that wrote it
        sa.Column("body", sa.Text, nullable=False),
        sa.Index("gpufleet_event_rollout", "rollout_id", "id"),
    )
    sa.Table(
        "gpufleet_document",
        meta,
        sa.Column("rollout_id", ident, primary_key=True),
        sa.Column("node", sa.String(260), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("time", time_text, nullable=False),
        # Of the transaction that stored it. Of a node's documents of one name the newest has the largest.
        sa.Column("sequence", sa.Integer, nullable=False, default=0, index=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    return meta
