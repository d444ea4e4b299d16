# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells a test that lets two transactions meet when one waits for the other."""

from __future__ import annotations

import os

import sqlalchemy


def waits(ledger):
    """Return True if a transaction waits for a lock of the ledger's database, by the kernel or the server."""
    if ledger.store.sqlite:
        lock = ":%d " % os.stat(ledger.store.file + ".turn").st_ino
        with open("/proc/locks", encoding="ascii") as stream:
            return any(" -> " in line and lock in line for line in stream)
    engine = sqlalchemy.create_engine(ledger.store.url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar() > 0
