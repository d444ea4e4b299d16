# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters file, who has the exporter's port, and the files for Kubernetes."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import counters, listeners, manifests, versions
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog as monitoring

MOVING = "DCGM_FI_DEV_POWER_USAGE, gauge, Power\n"


@pytest.mark.parametrize("profiling", [False, True])
def test_the_collections_own_file(profiling):
    text = counters.render(profiling)
    found = counters.check(text, profiling)
    assert found["errors"] == [] and found["message"] == ""
    assert any(field.startswith("DCGM_FI_PROF_") for field in found["fields"]) == profiling
    for field in (
        "ECC_DBE_VOL_TOTAL",
        "ROW_REMAP_FAILURE",
        "THERMAL_VIOLATION",
        "PCIE_REPLAY_COUNTER",
        "XID_ERRORS",
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    ):
        assert "DCGM_FI_DEV_" + field in found["fields"]
    assert {"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_GPU_HEALTH_STATUS"} <= set(
        found["fields"]
    )


def test_every_series_that_the_alerts_and_dashboards_read_is_served():
    """Without profiling the utilisation under MIG alone is missing."""
    read = set(monitoring.exporters()["dcgm-exporter"]["series"])
    served = {
        profiling: set(counters.check(counters.render(profiling, "4.8.2"), True, "4.8.2")["fields"])
        for profiling in (False, True)
    }
    assert read - served[True] == set() and read - served[False] == {"DCGM_FI_PROF_GR_ENGINE_ACTIVE"}


@pytest.mark.parametrize(
    "text, ident, line",
    [
        ("DCGM_FI_DEV_GPU_TEMP, gauge\n", "fields", 1),
        ("DCGM_FI_DEV_GPU_TEMP\n", "fields", 1),
        ("# DCGM_FI, comment\n\nDCGM_FI_DEV_GPU_TEMP, gauge, Temperature, in C\n", "comma", 3),
        ('DCGM_FI_DEV_GPU_TEMP, gauge, "Temperature, in C"\n', "quote", 1),
        ("DCGM_FI_DEV_GPU_TEMP, gauges, Temperature\n", "type", 1),
        ("DCGM_FI_DEV_GPU_TEMP, , Temperature\n", "type", 1),
        ("DCGM_FI_DEV_GPU_TEMP, gauge,\n", "help", 1),
        ("GPU_TEMP, gauge, Temperature\n", "field", 1),
        (" # not a comment, gauge, Temperature\n", "field", 1),
        ("DCGM_EXP_NO_SUCH_COUNT, counter, Unknown\n", "field", 1),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, A\nDCGM_FI_DEV_GPU_TEMP, gauge, A\n", "twice", 2),
        ("DCGM_FI_PROF_SM_ACTIVE, gauge, Active\n", "profiling", 1),
        ("DCGM_FI_DEV_GPU_TEMPERATUR, gauge, Misspelt\n", "field", 1),
        ("\tDCGM_FI_DEV_GPU_TEMP, gauge, A tab\n", "field", 1),
        (" \n", "fields", 1),
        ('DCGM_FI_DEV_GPU_TEMP,gauge,"Temperature" of the GPU\n', "quote", 1),
        ('DCGM_FI_DEV_GPU_TEMP,gauge,Temper"ature\n', "quote", 1),
    ],
)
def test_a_line_that_the_exporter_cannot_take(text, ident, line):
    found = counters.check(text + MOVING, False)
    assert [(one["id"], one["line"]) for one in found["errors"]] == [(ident, line)]
    assert "Line %d " % line in found["message"] and "expected" in found["message"]


@pytest.mark.parametrize(
    "text",
    [
        'DCGM_FI_DEV_GPU_TEMP,gauge,"Temperature, in C"\n',
        'DCGM_FI_DEV_GPU_TEMP,gauge,"The ""hot"" spot"\n',
        "  DCGM_FI_DEV_GPU_TEMP  ,   gauge , Temperature \r\n\r\n",
        "#x\nDCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n",
        "DCGM_EXP_P2P_STATUS, gauge, Links\n",
    ],
)
def test_a_line_that_the_exporter_takes(text):
    assert counters.check(text + MOVING, False)["errors"] == []


@pytest.mark.parametrize(
    ("exporter", "version", "has_threshold"),
    [
        ("nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04", "4.1.3", False),
        ("registry:5000/dcgm-exporter:4.3.1-4.4.0-ubi9", "4.4.0", False),
        ("dcgm-exporter:4.4.0-4.5.0", "4.5.0", True),
        ("r/dcgm-exporter:4.5.3-4.8.2-distroless@sha256:00", "4.8.2", True),
        ("r/dcgm-exporter:latest", "", False),
        ("r:5000/dcgm-exporter", "", False),
        ("4.8.2-1", "4.8.2", True),
        ("1:4.4.1-1", "4.4.1", False),
        ("", "", False),
    ],
)
def test_the_own_file_has_what_the_exporter_knows(exporter, version, has_threshold):
    assert versions.parse_exporter_version(exporter) == version
    text = counters.render(True, version)
    assert ("DCGM_FI_DEV_THRESHOLD_SRM" in text) is has_threshold
    assert counters.check(text, True, version)["errors"] == []
    newest = counters.check(counters.render(True, "4.8.2"), True, version)["errors"]
    assert {one["id"] for one in newest} == (set() if has_threshold or not version else {"version"})


@pytest.mark.parametrize("text", ["", "# nothing\n", "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"])
def test_a_file_by_which_nothing_could_be_proven(text):
    assert [one["id"] for one in counters.check(text, False)["errors"]] == ["moving"]


def test_every_line_is_judged():
    assert [one["line"] for one in counters.check("a\nb\n" + MOVING + "c\n", False)["errors"]] == [1, 2, 4]


def socket(address, users=""):
    return "LISTEN 0 4096 %s 0.0.0.0:* %s\n" % (address, users)


UNIT = "nvidia-dcgm-exporter.service"
OURS, OTHER = 'users:(("dcgm-exporter",pid=9,fd=3))', 'users:(("python3",pid=41,fd=3))'


@pytest.mark.parametrize(
    "text, active, refused",
    [
        ("", False, False),
        (socket("0.0.0.0:22", OTHER), False, False),
        (socket("0.0.0.0:19400", OTHER) + socket("0.0.0.0:940", OTHER), False, False),
        (socket("*:9400", OURS), True, False),
        # another exporter, such as one in a container that no unit of ours runs
        (socket("*:9400", OURS), False, True),
        (socket("*:9400", OTHER), True, True),
        (socket("[::]:9400", OTHER), False, True),
        (socket("127.0.0.1:9400"), True, True),
        (socket("0.0.0.0:9400", OURS) + socket("[::1]:9400", OTHER), True, True),
        # any user can call a program so
        (socket("*:9400", OURS + " uid:1000 ino:1 sk:1"), True, True),
        (socket("*:9400", OURS + " uid:1000 ino:1 sk:1 cgroup:/user.slice/user-1000.slice"), True, True),
        (socket("*:9400", OURS + " uid:1000 ino:1 sk:1 cgroup:/system.slice/cron.service <->"), True, True),
        (socket("*:9400", OURS + " uid:1000 ino:1 sk:1 cgroup:/system.slice/" + UNIT + "x <->"), True, True),
        (socket("*:9400", OURS + " uid:990 ino:1 sk:1 cgroup:/system.slice/" + UNIT + " <->"), True, False),
        (socket("*:9400", OURS + " uid:990 ino:1 sk:1 cgroup:/system.slice/" + UNIT + "/libpod <->"), True, False),
        (socket("*:9400", OURS + " ino:1 sk:1 cgroup:/system.slice/docker-1.scope <->"), True, False),
    ],
)
def test_who_has_the_port(text, active, refused):
    found = listeners.decide(text, 9400, active, UNIT)
    if active:
        assert listeners.is_served(text, 9400, UNIT) is not refused
    assert [one["id"] for one in found] == (["port_taken"] if refused else [])
    assert not refused or OTHER not in text or "python3 (pid 41)" in found[0]["found"]


OPTIONS = {
    "image": "r:5000/dcgm-exporter:4.5.3-4.8.2",
    "namespace": "m",
    "port": 9401,
    "interval": 15,
    "engine": "localhost:5555",
    "counters": "# c\n",
    "profiling": False,
    "node_selector": {"gpu": "yes"},
    "tolerations": [{"operator": "Exists"}],
    "runtime_class": "nvidia",
}


@pytest.mark.parametrize("digest", ["", "@sha256:" + "ab" * 32])
def test_values_for_the_chart(digest):
    """The chart joins repository and tag by a colon (deployment/templates/daemonset.yaml of dcgm-exporter)."""
    found = yaml.safe_load(manifests.make_chart_values(dict(OPTIONS, image=OPTIONS["image"] + digest)))
    assert found["image"] == {"repository": "r:5000/dcgm-exporter", "tag": "4.5.3-4.8.2" + digest}
    assert found["arguments"] == ["-f", manifests.FILE, "-a", ":9401", "-c", "15000", "-r", "localhost:5555"]
    assert (
        found["hostNetwork"] is True and found["customMetrics"] == "# c\n" and found["nodeSelector"] == {"gpu": "yes"}
    )


@pytest.mark.parametrize("profiling", [False, True])
def test_plain_manifests(profiling):
    text = manifests.plain(dict(OPTIONS, profiling=profiling))
    config, daemons, service = list(yaml.safe_load_all(text))
    pod = daemons["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (
        config["data"] == {"counters": "# c\n"}
        and pod["hostNetwork"] is True
        and pod["terminationGracePeriodSeconds"] >= 300
    )
    assert container["args"][-2:] == ["-r", "localhost:5555"] and pod["runtimeClassName"] == "nvidia"
    assert ("SYS_ADMIN" in str(container["securityContext"])) == profiling and "&" not in text
    assert service["spec"]["selector"].items() <= daemons["spec"]["template"]["metadata"]["labels"].items()
    assert {one["name"] for one in service["spec"]["ports"]} == {"metrics"}
