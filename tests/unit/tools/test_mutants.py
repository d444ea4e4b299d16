# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mutants of tests/tools/mutants fit the code and the tests that they name."""

from __future__ import annotations

import pytest

from tests.tools.common import ROOT
from tests.tools.mutants import catalogue

MUTANTS = catalogue.read()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies_to_its_file(mutant):
    assert catalogue.applied(mutant, ROOT) != (ROOT / mutant.file).read_text(encoding="utf-8")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_tests_of_a_mutant_exist(mutant):
    for test in mutant.tests:
        path, dummy, name = test.partition("::")
        assert path.startswith("tests/unit/") and (ROOT / path).exists(), test
        assert not name or "def {0}(".format(name.partition("[")[0]) in (ROOT / path).read_text(encoding="utf-8"), test


def test_mutants_change_different_places():
    places = [(mutant.file, mutant.before) for mutant in MUTANTS]
    assert len(places) == len(set(places)) >= 40
