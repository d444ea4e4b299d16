# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.schema import (
    LedgerError,
    check_node,
    format_time,
)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "-x", "a\n", None])
def test_names_that_would_leave_the_directory_are_refused(tmp_path, name):
    with pytest.raises(LedgerError):
        Ledger(str(tmp_path), name)
    with pytest.raises(LedgerError):
        check_node(name)


def test_times_of_the_ledger_compare_as_texts():
    first = datetime.datetime(2026, 1, 1, 9, 59, 59, 999000, tzinfo=datetime.timezone.utc)
    moments = [first + datetime.timedelta(milliseconds=number) for number in (0, 1, 1001, 86400000)]
    assert sorted(format_time(moment) for moment in moments) == [format_time(moment) for moment in moments]
