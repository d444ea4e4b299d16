# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of mutants fits the code."""

from __future__ import annotations

import pytest

from tests.tools import mutate
from tests.tools.common import ROOT

MUTANTS = mutate.read_catalogue([])


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_mutant_applies_and_its_tests_exist(mutant):
    text = mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
    if mutant.file.endswith(".py"):
        compile(text, mutant.file, "exec")
    for test in mutant.tests:
        path, dummy, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or "def %s(" % name.partition("[")[0] in text


def test_mutant_whose_place_is_gone_is_refused():
    with pytest.raises(mutate.MutantError):
        MUTANTS[0].apply("")
