#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the health_report action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: health_report
short_description: Write the health of a fleet as JSON, Markdown, JUnit XML and one HTML page
version_added: 1.0.0
description:
  - Takes what M(gpufleet.lifecycle.gpu_health) answered for every node, also for those that failed or could not be
    reached, and writes reports on the controller. No node is contacted.
  - It runs once for all hosts of the play.
  - A node for which there is no verdict is V(unknown), so is a fleet with such a node, and a fleet without nodes.
  - GPUs that differ from most GPUs of their model in driver, VBIOS, memory, power limit, NVLinks or PCIe width are
    reported as odd ones out. That is a notice and changes no verdict.
  - Each file is replaced whole. The same results and O(time) give the same bytes.
attributes:
  check_mode:
    support: full
    details:
      - Writes nothing and returns what it would. A play that only looks sets C(check_mode=false) to have its report all
        the same.
  diff_mode:
    support: none
  bypass_host_loop:
    description: Runs once for all hosts of a task.
    support: full
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
author:
  - gpufleet contributors (@gpufleet)
options:
  dest:
    description:
      - The directory on the controller for the reports. It is made if it is not there.
      - The files are C(report.json) (schema C(gpufleet.precheck/1), its first field is the verdict), C(report.md),
        C(report.html) and C(junit.xml).
    type: path
    required: true
  nodes:
    description:
      - The names of all nodes that the report shall be about. One without a result is in it as missing.
    type: list
    elements: str
    required: true
  variable:
    description:
      - The variable under which each node registered its result of M(gpufleet.lifecycle.gpu_health).
      - One of O(variable) and O(results) is required, and not both.
    type: str
  results:
    description:
      - The results by name of the node.
    type: dict
  fail_on:
    description:
      - The verdicts that fail a node, for RV(failed_nodes). A node without a verdict is always among them.
    type: list
    elements: str
    choices: [fail, unknown]
    default: [fail, unknown]
  formats:
    description:
      - What to write.
    type: list
    elements: str
    choices: [html, json, junit, markdown]
    default: [html, json, junit, markdown]
  mode:
    description:
      - The permissions of the files. They name machines, serial numbers and versions.
    type: str
    choices: ['0600', '0640']
    default: '0600'
  keep_others:
    description:
      - Leave the report in O(dest) as it is where it knows nodes of the inventory that are not among O(nodes), as after
        C(--limit), and write into the directory C(limited) beside it.
    type: bool
    default: false
  asked:
    description:
      - How the run was asked for, such as the expected driver version and the policy. The reports show it at their end;
        empty values are left out.
      - If it has C(baselines), the directory with a baseline of each node, the nodes that were judged without one are
        named, and the task fails if none was compared.
    type: dict
    default: {}
  time:
    description:
      - When the report was made, in UTC, such as V(2026-12-31T12:00:00Z). Now, if it is not given.
    type: str
seealso:
  - module: gpufleet.lifecycle.gpu_health
"""

EXAMPLES = r"""
---
- name: Judge the node
  gpufleet.lifecycle.gpu_health:
    fail_on: []
  become: true
  register: looked
  ignore_unreachable: true

- name: Write the report about all nodes
  gpufleet.lifecycle.health_report:
    dest: /var/lib/gpufleet-controller/health
    nodes: "{{ ansible_play_hosts_all }}"
    variable: looked
"""

RETURN = r"""
---
verdict:
  description: V(fail) if any node fails, else V(unknown) if any is unknown or has no verdict, else V(pass).
  returned: always
  type: str
  sample: unknown
counts:
  description:
    - The number of nodes by verdict (C(fail), C(unknown), C(pass)) and by state (C(judged), C(unreachable), C(failed),
      C(missing)), of all C(nodes), and of C(notices).
  returned: always
  type: dict
  sample: {fail: 0, unknown: 1, pass: 3, judged: 3, unreachable: 1, failed: 0, missing: 0, nodes: 4, notices: 0}
failed_nodes:
  description: The nodes that fail by O(fail_on), and those without a verdict.
  returned: always
  type: list
  elements: str
  sample: [gpu-a-3]
table:
  description: The summary as it was printed.
  returned: always
  type: list
  elements: str
files:
  description: The path of each report by its format.
  returned: always
  type: dict
  sample: {json: /var/lib/gpufleet-controller/health/report.json}
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    dest=dict(type="path", required=True),
    nodes=dict(type="list", elements="str", required=True),
    variable=dict(type="str"),
    results=dict(type="dict"),
    fail_on=dict(type="list", elements="str", choices=["fail", "unknown"], default=["fail", "unknown"]),
    formats=dict(
        type="list",
        elements="str",
        choices=["html", "json", "junit", "markdown"],
        default=["html", "json", "junit", "markdown"],
    ),
    mode=dict(type="str", choices=["0600", "0640"], default="0600"),
    keep_others=dict(type="bool", default=False),
    asked=dict(type="dict", default={}),
    time=dict(type="str"),
)


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC, mutually_exclusive=[("variable", "results")], supports_check_mode=True
    )
    module.fail_json(
        msg=(
            "health_report runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which was "
            "not found: call it by its full name, gpufleet.lifecycle.health_report, in a task."
        )
    )


if __name__ == "__main__":
    main()
