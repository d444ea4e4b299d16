# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The panels of Grafana's dashboards: rows of (title, kind, unit, description, queries). Pure data.

In a query SEL stands for the labels that the variables choose, ENV for the environment alone, and TARGET for the mean
utilization that is aimed at. Where a mean is shown, a percentile and the maximum stand beside it.
"""

from __future__ import annotations

from tests.tools.panels.capacity import CAPACITY, HEAT
from tests.tools.panels.fleet import FLEET
from tests.tools.panels.gpu import GPU
from tests.tools.panels.node import NODE
from tests.tools.panels.work import QUEUES, ROLLOUT

# Name of the file: (title, variables beside those that all have, rows).
DASHBOARDS = {
    "fleet": ("GPU fleet", (), FLEET),
    "node": ("GPU node", ("node",), NODE),
    "gpu": ("GPU", ("node", "gpu"), GPU),
    "rollout": ("Rollouts", (), ROLLOUT),
    "queues": ("Queues of GPUs", (), QUEUES),
    "capacity": ("Capacity and cost of GPUs", (), CAPACITY),
    "power": ("Power and cooling by rack", (), HEAT),
}
