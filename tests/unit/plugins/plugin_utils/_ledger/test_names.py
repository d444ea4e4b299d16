# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.names import LedgerError, check_node


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "-x", "a\n", None])
def test_names_that_would_leave_the_directory_are_refused(tmp_path, name):
    with pytest.raises(LedgerError):
        Ledger(str(tmp_path), name)
    with pytest.raises(LedgerError):
        check_node(name)
