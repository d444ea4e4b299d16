# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ledgers for the tests of a rollout's rules: `make test` takes SQLite, the slow tests PostgreSQL as well.

What the two databases could do differently is tested in _ledger, where both are quick tests.
"""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request):
    """The kind of database that the ledger of a test has."""
    return request.param
