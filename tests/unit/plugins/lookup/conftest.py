# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookups as Ansible's loader makes them, without the loader."""

from __future__ import annotations

import pytest
import yaml


@pytest.fixture
def ask():
    """Run the lookup of a module with the options of its documentation."""

    def run(module, *terms, variables=None, **given):
        options = yaml.safe_load(module.DOCUMENTATION)["options"]
        assert set(given) < set(options)
        values = {**{name: option.get("default") for name, option in options.items()}, **given}
        lookup = type(
            "Lookup",
            (module.LookupModule,),
            {
                "set_options": lambda self, task_keys=None, var_options=None, direct=None: None,
                "get_option": lambda self, option, hostvars=None: values[option],
            },
        )
        return lookup().run(list(terms), variables, **given)

    return run
