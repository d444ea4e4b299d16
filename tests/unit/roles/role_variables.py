# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A role's variables and templates, as a play would have them."""

from __future__ import annotations

import inspect
import pathlib

from ansible import template as ansible_template
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROOT = pathlib.Path(__file__).resolve().parents[3]


def load(loader, path):
    trusted = (
        {"trusted_as_template": True}
        if "trusted_as_template" in inspect.signature(loader.load_from_file).parameters
        else {}
    )
    return loader.load_from_file(str(path), **trusted) or {}


class Role:
    """The variables of a role: its defaults, the named files of its vars, and what the caller gives."""

    def __init__(self, name, files=("main",), **given):
        self.directory = ROOT / "roles" / name
        self.loader = DataLoader()
        self.variables = load(self.loader, self.directory / "defaults/main.yml")
        for part in files:
            self.variables.update(load(self.loader, self.directory / ("vars/%s.yml" % part)))
        self.variables.update(given, ansible_managed="Ansible managed")
        self.templar = Templar(self.loader, variables=self.variables)

    def __getitem__(self, name):
        return self.templar.template(self.variables[name])

    def say(self, text):
        trust = getattr(ansible_template, "trust_as_template", str)
        return self.templar.template(trust(text))

    def render(self, name):
        return self.say((self.directory / "templates" / name).read_text(encoding="utf-8"))
