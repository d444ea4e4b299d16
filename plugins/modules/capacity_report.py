#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the capacity_report action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: capacity_report
short_description: Write a report on the capacity and cost of a fleet of GPUs from the history in Prometheus
version_added: 1.0.0
description:
  - Asks the HTTP API of Prometheus for what the recording rules of the role C(gpu_monitoring) wrote, and writes
    C(capacity.json) (schema C(gpufleet.capacity/1)), C(capacity.md), the self-contained page C(capacity.html) with
    charts, and a C(capacity_TABLE.csv) for each table. No node is contacted.
  - Utilization of the fleet and of each group has its 95th percentile and its maximum beside its mean. GPU-hours, their
    cost, and the cost of idle GPUs are sums of what was seen; hours without data count for nothing, and the report says
    which they are.
  - A trend is a straight line through the daily demand of the fleet, of each model and of each class. It is told with
    its error, the earliest, likely and latest day on which it meets the capacity, and by when to order. With too little
    history, or without recent data, none is told.
  - Each file is replaced whole, after every question was answered. Any answer that is missing or not whole fails the
    task, and the report that was there stays.
requirements:
  - pygal >= 3.0.5 (on the controller, for the charts)
attributes:
  check_mode:
    support: full
    details:
      - Asks Prometheus and prints the tables, and writes nothing.
  diff_mode:
    support: none
extends_documentation_fragment:
  - gpufleet.lifecycle._attributes
  - gpufleet.lifecycle._attributes.controller_only
author:
  - gpufleet contributors (@gpufleet)
options:
  url:
    description:
      - The base of the HTTP API of Prometheus, or of what speaks it, such as V(https://prometheus.example.com). Without
        user and password.
    type: str
    required: true
  headers:
    description:
      - Headers to send along, such as C(Authorization). They are secrets, and go to O(url) alone; redirects are not
        followed.
    type: dict
    default: {}
  timeout:
    description:
      - Seconds that one question may take.
    type: float
    default: 60.0
  days:
    description:
      - The days before now that the report is about, from 1 to 730.
    type: str
    default: '90'
  groups:
    description:
      - The labels of nodes by which utilization, hours and cost are told, among V(node), V(rack), V(model), V(class),
        V(team) and V(environment).
      - Trends are told of those of V(model) and V(class) that are among them.
    type: list
    elements: str
    default: [node, model, class, team]
  environment:
    description:
      - The label C(environment) of the nodes that the report is about; of all if it is empty.
    type: str
    default: ''
  price:
    description:
      - The price of an hour of a GPU, in the currency of your choice.
      - C(gpufleet:price_gpu_hour) of Prometheus if it is empty, which is the threshold C(price_gpu_hour) of
        C(gpu_monitoring). If that is not there either, no cost is given.
    type: str
    default: ''
  lead_days:
    description:
      - Days from an order to GPUs that work. Without it, no date to order by is given.
    type: str
    default: ''
  target:
    description:
      - The share of the GPUs that may work in the mean of a day. Capacity is met above it. V(0.6), the threshold
        C(utilization_target) of C(gpu_monitoring), if it is empty.
    type: str
    default: ''
  peak_target:
    description:
      - The share of the GPUs that may work in the busiest hours of a day. V(0.95) if it is empty.
    type: str
    default: ''
  dest:
    description:
      - The directory on the controller for the report. It is made if it is not there.
    type: path
    required: true
  mode:
    description:
      - The permissions of the files. They name machines and teams.
    type: str
    choices: ['0600', '0640']
    default: '0600'
  time:
    description:
      - When the report is made, in UTC, such as V(2026-12-31T12:00:00Z). Now, if it is not given. The window ends with
        the last whole hour before it.
    type: str
seealso:
  - module: gpufleet.lifecycle.health_report
  - name: Prometheus HTTP API
    description: Instant and range queries.
    link: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

EXAMPLES = r"""
---
- name: Write the report on capacity
  gpufleet.lifecycle.capacity_report:
    url: https://prometheus.example.com
    price: "2.10"
    lead_days: "120"
    dest: /var/lib/gpufleet-controller/capacity
"""

RETURN = r"""
---
verdict:
  description:
    - V(met) if any demand has met its capacity, V(order) if any is to be ordered for by now, V(unknown) if that of any
      cannot be told, else V(enough).
  returned: when the report could be made
  type: str
  sample: enough
notes:
  description: The ids of what the report does not know.
  returned: when the report could be made
  type: list
  elements: str
  sample: [no_price, gaps]
table:
  description: The summary as it was printed.
  returned: when the report could be made
  type: list
  elements: str
files:
  description: The paths of the files by their names.
  returned: when the report could be made
  type: dict
  sample: {capacity.json: /var/lib/gpufleet-controller/capacity/capacity.json}
code:
  description:
    - Why there is no report. V(option), an option cannot be used. V(library), pygal is missing. V(away), Prometheus did
      not answer. V(error), it answered an error, or was none. V(partial), its answer was not whole. V(empty), it has no
      history of GPUs. V(directory), the report cannot be written.
  returned: when it failed
  type: str
  sample: away
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC = dict(
    url=dict(type="str", required=True),
    headers=dict(type="dict", default={}, no_log=True),
    timeout=dict(type="float", default=60.0),
    days=dict(type="str", default="90"),
    groups=dict(type="list", elements="str", default=["node", "model", "class", "team"]),
    environment=dict(type="str", default=""),
    price=dict(type="str", default=""),
    lead_days=dict(type="str", default=""),
    target=dict(type="str", default=""),
    peak_target=dict(type="str", default=""),
    dest=dict(type="path", required=True),
    mode=dict(type="str", choices=["0600", "0640"], default="0600"),
    time=dict(type="str"),
)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(
        msg=(
            "capacity_report runs on the controller, as an action plugin of the collection gpufleet.lifecycle, which "
            "was not found: call it by its full name, gpufleet.lifecycle.capacity_report, in a task."
        )
    )


if __name__ == "__main__":
    main()
