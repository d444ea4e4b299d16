# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look up the decisions of the roles about DCGM and its exporter."""

from __future__ import annotations

DOCUMENTATION = r"""
name: dcgm_state
short_description: Tell what fits a node's driver, and what DCGM and its exporter have proven
version_added: 1.0.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Answers the questions of the roles C(nvidia_dcgm) and C(nvidia_dcgm_exporter), which have no other decisions than
    these.
  - Nothing is read of a node, and nothing is changed. What is not known is never an answer that lets a role go on.
options:
  _terms:
    description:
      - V(packages) tells which packages of DCGM fit the driver, by O(snapshot), O(version), O(offered) and
        O(installed), or whether the DCGM that is there fits it, by O(program).
      - V(package_names) are the names of all packages of DCGM that are known.
      - V(engine) tells whether the engine has the GPUs that NVML has, by O(snapshot), O(discovery) and O(rc).
      - V(counters) is the collection's counters file, by O(profiling).
      - V(counters_check) tells what is wrong with the counters file O(text).
      - V(image) tells what stands against the image O(image) beside the engine in O(version).
      - V(image_reference) tells what is wrong with the image O(image) itself.
      - V(port) tells what stands against the port O(port), by O(sockets) and O(active).
      - V(exporter) tells whether the series in O(first) and O(second) are whole and fresh, by O(snapshot) and O(text).
      - V(job_table) is the text that says which file of the job mapping is whose, by O(snapshot) and O(discovery).
        Empty if that is not known.
      - V(chart_values) and V(manifests) are texts for Kubernetes, by O(kubernetes).
    type: list
    elements: str
    required: true
  snapshot:
    description: The snapshot that M(gpufleet.lifecycle.gpu_info) returned.
    type: dict
    default: {}
  version:
    description: A version of DCGM. Any if empty.
    type: str
    default: ''
  install:
    description: Whether DCGM is to be installed. Otherwise the one that is there is judged.
    type: bool
    default: true
  offered:
    description: The output of C(apt-cache madison) for the packages.
    type: str
    default: ''
  installed:
    description: The output of C(dpkg-query) for the packages, with name, status and version by tabs.
    type: str
    default: ''
  program:
    description: What C(dcgmi --version) says.
    type: str
    default: ''
  diagnostics:
    description: Whether the packages of C(dcgmi diag) beyond level 1 are wanted.
    type: bool
    default: true
  discovery:
    description: The output of C(dcgmi discovery -l), asked with C(--host).
    type: str
    default: ''
  error:
    description: Its error output.
    type: str
    default: ''
  rc:
    description: Its exit status. It is not 0 for reasons too that say nothing of the GPUs, so that the output decides.
    type: int
    default: 0
  profiling:
    description: Whether C(DCGM_FI_PROF_*) fields are wanted.
    type: bool
    default: false
  text:
    description: A counters file.
    type: str
    default: ''
  exporter:
    description: The image of the exporter, or the version of its package, whose fields count.
    type: str
    default: ''
  image:
    description: The image of the exporter, with a tag, and with a digest after it where it is pinned.
    type: str
    default: ''
  port:
    description: The port of the exporter.
    type: int
    default: 9400
  sockets:
    description: The output of C(ss -Hltnp).
    type: str
    default: ''
  active:
    description: Whether the exporter's own unit runs.
    type: bool
    default: false
  first:
    description: What the exporter served.
    type: str
    default: ''
  second:
    description: What it served later. Without it, nothing is fresh.
    type: str
  kubernetes:
    description:
      - C(image), C(namespace), C(port), C(interval), C(engine), C(counters), C(profiling), C(node_selector),
        C(tolerations) and C(runtime_class).
    type: dict
    default: {}
"""

EXAMPLES = r"""
---
- name: Fail unless the engine has every GPU
  ansible.builtin.assert:
    that: state.proven
    fail_msg: "{{ state.message }}"
  vars:
    state: "{{ lookup('gpufleet.lifecycle.dcgm_state', 'engine', snapshot=info.snapshot, discovery=asked.stdout) }}"
"""

RETURN = r"""
---
_raw:
  description:
    - What was asked for, in its order. Judgements are dictionaries with C(message) or C(refusal), in words, empty if
      nothing is wrong.
  type: list
  elements: raw
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import (
    catalog,
    counters,
    engine,
    jobs,
    listeners,
    manifests,
    proof,
    versions,
)

QUESTIONS = (
    "packages",
    "package_names",
    "engine",
    "counters",
    "counters_check",
    "image",
    "image_reference",
    "port",
    "exporter",
    "job_table",
    "chart_values",
    "manifests",
)


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        unknown = [term for term in terms if term not in QUESTIONS]
        if unknown or not terms:
            raise AnsibleLookupError(
                "dcgm_state answers %s; found %s" % (", ".join(QUESTIONS), ", ".join(map(str, unknown)) or "nothing")
            )
        return [getattr(self, "_" + term)() for term in terms]

    def _packages(self):
        wanted = self.get_option("install")
        found = versions.decide(
            self.get_option("snapshot"),
            self.get_option("version"),
            versions.offered(self.get_option("offered")) if wanted else None,
            versions.installed(self.get_option("installed")),
            self.get_option("diagnostics"),
            self.get_option("program"),
        )
        return dict(found, refusal=catalog.sentence(found["refusals"]))

    def _package_names(self):
        return versions.candidates()

    def _engine(self):
        return engine.decide(
            self.get_option("snapshot"), self.get_option("discovery"), self.get_option("rc"), self.get_option("error")
        )

    def _counters(self):
        return counters.render(self.get_option("profiling"), versions.exporter(self.get_option("exporter")))

    def _counters_check(self):
        exporter = versions.exporter(self.get_option("exporter"))
        return counters.check(self.get_option("text"), self.get_option("profiling"), exporter)

    def _image(self):
        found = versions.client(self.get_option("image"), versions.upstream(self.get_option("version")))
        return {"refusals": found, "refusal": catalog.sentence(found)}

    def _image_reference(self):
        found = versions.split_image(self.get_option("image"))[2]
        return {"refusals": found, "refusal": catalog.sentence(found)}

    def _port(self):
        found = listeners.decide(self.get_option("sockets"), self.get_option("port"), self.get_option("active"))
        return {"refusals": found, "refusal": catalog.sentence(found)}

    def _exporter(self):
        fields = counters.check(self.get_option("text"), True)["fields"]
        return proof.decide(self.get_option("snapshot"), fields, self.get_option("first"), self.get_option("second"))

    def _job_table(self):
        return jobs.table(self.get_option("snapshot"), engine.discovered(self.get_option("discovery")) or {})

    def _chart_values(self):
        return manifests.values(self.get_option("kubernetes"))

    def _manifests(self):
        return manifests.plain(self.get_option("kubernetes"))
