# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one evaluation of all rules costs Prometheus, for 1,000 nodes with 8 GPUs.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rules [--nodes N]

Debian's promtool evaluates the rules over a fleet's series, of which every hundredth node is sick: once every 5 minutes
of 150, so that the windows of an hour are full for most evaluations. What it costs to read the series is measured with
a rule that does nothing, and taken off. Windows of a day are measured apart, with the series that have one. Rules that
are evaluated less often count by their share. CPU seconds are counted, since the machine may be busy. Exits with 1 if a
limit is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.tools.common import ROOT

sys.path.insert(0, str(ROOT / ".lab" / "collections"))

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, rules

SHARE_LIMIT = 0.25  # of the interval, for one evaluation of all rules
SCRAPE_S, EVERY_M = 30, 5
# Minutes of the run, and evaluations by which its cost is divided: not the first ones, whose windows are hardly filled.
HOURS, DAY = (150, 24), (24 * 60 + 1, 1)
GPUS, DISKS, FANS = range(8), range(8), range(12)
VALUES = {
    "up": 1,
    "gpufleet_nvml_answers": 1,
    "gpufleet_gpus_present": 8,
    "gpufleet_gpus_expected": 8,
    "gpufleet_gpu_fabric_state": 3,
    "gpufleet_mig_layout_matches": 1,
    "gpufleet_next_kernel_has_driver": 1,
    "node_infiniband_state_id": 4,
    "node_filesystem_avail_bytes": 50,
    "node_filesystem_size_bytes": 100,
    "DCGM_FI_DEV_GPU_TEMP": 60,
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": 30,
    "DCGM_FI_DEV_GPU_UTIL": 90,
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
}
RISING, RISING_WHERE_SICK = ("CONSUMPTION", "_timestamp_seconds"), ("_total", "_TOTAL")
SICK = {"gpufleet_gpus_present": 7, "DCGM_FI_DEV_GPU_TEMP": 95, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1}


# How the names of series begin, and the labels of each of a node.
EACH_GPU = ['gpu="%d",UUID="GPU-%d"' % (gpu, gpu) for gpu in GPUS]
CAUSES = ("hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown", "power_cap")
PLACES = {
    "DCGM_EXP_CLOCK_EVENTS_COUNT": ['%s,clock_event="%s"' % (gpu, cause) for gpu in EACH_GPU for cause in CAUSES],
    "DCGM_": ['%s,hpc_job="7"' % gpu for gpu in EACH_GPU],
    "node_infiniband_": ['device="mlx5_%d",port="1"' % port for port in GPUS],
    "node_filesystem_": ['mountpoint="/%d",fstype="ext4"' % disk for disk in DISKS],
    "nvme_": ['device="nvme%d"' % disk for disk in DISKS],
    "ipmi_fan": ['name="Fan %d"' % fan for fan in FANS],
    "ipmi_sensor_state": ['name="PSU %d",type="Power Supply"' % psu for psu in range(6)],
    "ipmi_temperature_celsius": ['name="Inlet"', 'name="CPU 1"', 'name="CPU 2"'],
    "up": ['job="gpufleet-%s"' % job for job in ("node", "dcgm", "ipmi")],
}


def list_labels(name: str, told: dict[str, dict]) -> list[str]:
    """Return the labels of each series of that name on one node. TOLD: those of the node's own series."""
    if name not in told:
        return next((found for start, found in PLACES.items() if name.startswith(start)), [""])
    found = EACH_GPU if "gpu" in told[name] else [""]
    for label, about in told[name].items():
        if label not in ("gpu", "UUID"):
            values = about.get("values", ["x"])
            found = ['%s,%s="%s"' % (one, label, value) for one in found for value in values]
    return [one.lstrip(",") for one in found]


def list_names() -> list[str]:
    """Return the series of nodes that the rules read, but those that they record."""
    text = rules.render({"rack_power_limit_watts": 40000})
    fleet = ("ALERTS", "kube_", "slurm_", "gpufleet_rollout_", "DCGM_FI_PROF_")  # of no node, or of MIG instances
    return sorted(name for name in catalog.series() if name in text and not name.startswith(fleet))


def write_series(path: pathlib.Path, names: list[str], nodes: int, minutes: int) -> int:
    """Write the test for promtool; return the number of its series."""
    told = {one["name"]: one.get("labels") or {} for one in catalog.node_series()}
    samples, written = minutes * 60 // SCRAPE_S, 0
    with path.open("w") as out:
        out.write("rule_files: [RULES]\nevaluation_interval: %dm\n" % (EVERY_M if minutes < 1440 else 1440))
        out.write("tests:\n- interval: %ds\n  input_series:\n" % SCRAPE_S)
        for node in range(nodes):
            where = 'environment="prod",rack="r%d",node="n%d",class="train",model="h100",team="t"' % (node // 8, node)
            for name in names:
                sick = node % 100 == 99
                value = SICK.get(name, VALUES.get(name, 0)) if sick else VALUES.get(name, 0)
                step = SCRAPE_S if name.endswith(RISING) or sick and name.endswith(RISING_WHERE_SICK) else 0
                for labels in list_labels(name, told):
                    series = "%s{%s}" % (name, ",".join(filter(None, (where, labels))))
                    out.write("  - {series: %s, values: %d+%dx%d}\n" % (json.dumps(series), value, step, samples))
                    written += 1
        out.write("  promql_expr_test:\n  - {expr: vector(1), eval_time: %dm, exp_samples: [{value: 1}]}\n" % minutes)
    return written


def measure(place: pathlib.Path, test: pathlib.Path, rule_file: str) -> float:
    """Return the CPU seconds of promtool with a rule file."""
    own = place / ("with-" + test.name)
    with test.open() as given, own.open("w") as out:
        out.write(given.readline().replace("RULES", rule_file))
        out.writelines(given)
    before = os.times()
    done = subprocess.run(["promtool", "test", "rules", own.name], cwd=place, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    thresholds = catalog.thresholds({"rack_power_limit_watts": 40000})
    interval_s = thresholds["evaluation_interval"]["value"]
    groups = rules.groups(thresholds)
    days = ["node_infiniband_state_id"]
    total = 0.0
    with tempfile.TemporaryDirectory() as base:
        place = pathlib.Path(base)
        nothing = [{"name": "none", "rules": [{"record": "x:x", "expr": "vector(1)"}]}]
        often = [group for group in groups if group["name"] != rules.SLOW_GROUP]
        for name, some in (("none", nothing), ("often", often), ("all", groups)):
            (place / (name + ".yml")).write_text(json.dumps({"groups": some}))
        for title, names, (minutes, parts) in (("hours", list_names(), HOURS), ("a day", days, DAY)):
            test = place / "series.yml"
            written = write_series(test, names, nodes, minutes)
            none, often_s, all_s = (measure(place, test, name + ".yml") / parts for name in ("none", "often", "all"))
            cost, slow = often_s - none, (all_s - often_s) * interval_s / rules.SLOW_S
            told = (title, written, cost, slow)
            print("windows of %s: %d series, %.2f CPU seconds for an evaluation, and %.2f for the slow rules" % told)
            total += cost + slow
    limit_s = interval_s * SHARE_LIMIT
    print("%d nodes: %.2f CPU seconds for an evaluation of all rules; at most %.1f" % (nodes, total, limit_s))
    sys.exit(0 if total <= limit_s else 1)


if __name__ == "__main__":
    main()
