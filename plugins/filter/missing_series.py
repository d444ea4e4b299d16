# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series that a Prometheus lacks."""

from __future__ import annotations

DOCUMENTATION = r"""
name: missing_series
short_description: Tell which series of which exporters a Prometheus lacks
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Compares the names of the series that a Prometheus has with those that the rules of the collection read.
  - An exporter that has all of its series is left out.
options:
  _input:
    description: The names of the series, as C(/api/v1/label/__name__/values) of Prometheus answers them.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
---
- name: Ask Prometheus which series it has
  ansible.builtin.uri:
    url: http://localhost:9090/api/v1/label/__name__/values
  register: names

- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ names.json.data | gpufleet.lifecycle.missing_series }}"
"""

RETURN = r"""
---
_value:
  description: The exporters of which series are missing.
  type: list
  elements: dict
  contains:
    exporter:
      description: Its name.
      type: str
    all:
      description: Whether none of its series is there.
      type: bool
    series:
      description: The names of those that are missing.
      type: list
      elements: str
    alerts:
      description: The alerts that read them and cannot see without them.
      type: list
      elements: str
    install:
      description: Where the exporter comes from.
      type: str
    line:
      description: All of it in a sentence.
      type: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import missing


def missing_series(names):
    if isinstance(names, (str, dict)) or not all(isinstance(name, str) for name in names):
        raise AnsibleFilterError("missing_series needs a list of names of series")
    found = missing.report(names)
    return [dict(one, line=line) for one, line in zip(found, missing.lines(found))]


class FilterModule:
    def filters(self):
        return {"missing_series": missing_series}
