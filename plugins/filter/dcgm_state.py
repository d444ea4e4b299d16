# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer a question about DCGM or its exporter on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: dcgm_state
short_description: Answer a question about DCGM or its exporter on a node
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Internal to the roles C(nvidia_dcgm) and C(nvidia_dcgm_exporter).
options:
  _input:
    description: The arguments of the function that answers the question.
    type: dict
    required: true
"""

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import (
    catalog,
    counters,
    engine,
    listeners,
    manifests,
    proof,
    versions,
)


def _add_sentence(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer, refusal=catalog.make_sentence(answer["refusals"]))


def decide_packages(offered: str, installed: str, **given: Any) -> dict[str, Any]:
    found = versions.decide(
        available=versions.parse_offered(offered), present=versions.parse_installed(installed), **given
    )
    return _add_sentence(found)


QUESTIONS = {
    "packages": decide_packages,
    "installed": lambda snapshot, program: _add_sentence(versions.decide(snapshot, program=program)),
    "package_names": versions.list_packages,
    "engine": engine.decide,
    "counters": lambda profiling, exporter: counters.render(profiling, versions.parse_exporter_version(exporter)),
    "counters_check": lambda text, profiling, exporter: counters.check(
        text, profiling, versions.parse_exporter_version(exporter)
    ),
    "image": lambda image, version: _add_sentence(
        {"refusals": versions.check_image(image, versions.upstream(version))}
    ),
    "image_reference": lambda image: _add_sentence({"refusals": versions.split_image(image)[2]}),
    "port": lambda **given: _add_sentence({"refusals": listeners.decide(**given)}),
    "port_served": listeners.is_served,
    "exporter": lambda text, **given: proof.decide(fields=counters.check(text, True)["fields"], **given),
    "job_table": lambda snapshot, discovery: engine.render_job_table(snapshot, engine.parse_discovery(discovery) or {}),
    "chart_values": lambda **options: manifests.make_chart_values(options),
    "manifests": lambda **options: manifests.plain(options),
}


def answer_dcgm_question(given: dict[str, Any], question: str) -> Any:
    if question not in QUESTIONS:
        raise AnsibleFilterError("dcgm_state answers %s; found %s" % (", ".join(QUESTIONS), question))
    return QUESTIONS[question](**given)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"dcgm_state": answer_dcgm_question}
