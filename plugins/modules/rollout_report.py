#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rollout_report action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout_report
short_description: Write the report of a rollout and fail when it is not complete
version_added: 1.0.0
description:
  - Writes C(report.json) (schema C(gpufleet.report/1)), C(report.md), C(junit.xml), the self-contained page
    C(report.html) and, for Prometheus, C(rollout.prom) into the directory of the rollout, and prints a summary table,
    what to do next, and where the report is. The same files are kept up to date while the rollout runs.
  - With O(end=true) it closes the run. A node that is still in flight then is recorded as C(lost). The table is left to
    a later task, so that it is printed last. Of a rollout with several controllers, the part of this one is closed.
  - The verdict is C(complete) if every node is C(done) or C(skipped). It is C(failed) if a node is failed, rolled back,
    quarantined or lost, C(incomplete) if nodes are pending, and C(running) while the rollout runs.
attributes:
  check_mode:
    support: full
    details:
      - Prints the table and writes nothing. With O(end=true) it prints the packages that would be installed.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
  - gpufleet.lifecycle._attributes.rollout
  - gpufleet.lifecycle._attributes.telling
author:
  - gpufleet contributors (@gpufleet)
options:
  rollout_id:
    description:
      - The name of the rollout.
      - The rollout that was planned last when empty.
    type: str
    default: ''
  end:
    description:
      - Close the run. Refused for a rollout that another controller runs.
    type: bool
    default: false
  fail_unless_complete:
    description:
      - Fail if the verdict is not C(complete).
    type: bool
    default: true
  between_jobs:
    description:
      - What this run wrote with O(end=true) is shown. A rollout with several controllers is C(running) then while
        nodes can still start, since other jobs may have them.
      - Without it, a rollout that no controller runs is judged as it stands, and its report is written again. One with
        several controllers is ended if it has nothing left to do.
    type: bool
    default: false
  previews:
    description:
      - The results of M(gpufleet.lifecycle.driver_packages) by node, for the summary in check mode with O(end=true).
    type: dict
    default: {}
  planned:
    description:
      - RV(gpufleet.lifecycle.rollout_plan#module:nodes) of M(gpufleet.lifecycle.rollout_plan), for RV(blame) in check
        mode with O(end=true).
    type: dict
    default: {}
  dest:
    description:
      - A directory on the controller for a copy of the report.
    type: path
seealso:
  - module: gpufleet.lifecycle.rollout_plan
"""

EXAMPLES = r"""
---
- name: Show the report of the last rollout
  gpufleet.lifecycle.rollout_report:
    artifact_dir: /var/lib/gpufleet-controller
    fail_unless_complete: false
"""

RETURN = r"""
---
blame:
  description:
    - The failure message for each host of the play that has to fail.
    - These are the failed nodes, and C(localhost) unless the verdict is C(complete). If C(localhost) is not in the
      play, nodes that did not start fail instead, and if there are none, the host of the task.
    - In check mode these are the nodes that O(planned) leaves out as failed, lost or in quarantine, and C(localhost) if
      there are any.
  returned: with O(end=true)
  type: dict
  sample: {"gpu-r2-1": "gpu-r2-1 is rolled_back: GPU 3 does not answer"}
verdict:
  description: V(complete), V(failed), V(incomplete) or V(running).
  returned: when a rollout was found
  type: str
several:
  description: Whether the plan was made for several controllers. The end of one of them then does not end the rollout.
  returned: when a report was made
  type: bool
plan:
  description: The digest of the plan that was carried out.
  returned: when a report was made
  type: str
run: {description: The id of its run., returned: when a report was made, type: str}
table:
  description: The summary as it was printed.
  returned: without O(end=true)
  type: list
  elements: str
directory:
  description: The directory of the report.
  returned: when a rollout was found
  type: str
files:
  description: The names of the report's files in it. There are others beside them.
  returned: when a report was made
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._rollout_options import TELLING

ARGUMENT_SPEC = dict(
    rollout_id=dict(type="str", default=""),
    artifact_dir=dict(type="path", required=True),
    ledger=dict(type="str", default=""),
    end=dict(type="bool", default=False),
    fail_unless_complete=dict(type="bool", default=True),
    between_jobs=dict(type="bool", default=False),
    previews=dict(type="dict", default={}),
    planned=dict(type="dict", default={}),
    dest=dict(type="path"),
    **TELLING,
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "rollout_report runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which "
            "was not found: call it by its full name, gpufleet.lifecycle.rollout_report, in a task."
        )
    )


if __name__ == "__main__":
    main()
