# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables: which packages of DCGM fit which driver, and which exporter fits which engine."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._dcgm import catalog, versions

P = "datacenter-gpu-manager-4-"
CORE, DIAG = P + "core", P + "proprietary"


def snapshot(driver, cuda):
    return {"system": {"driver_version": {"value": driver, "rc": 0}, "cuda_driver_version": {"value": cuda, "rc": 0}}}


R580, R535 = snapshot("580.95.05", "13.0"), snapshot("535.216.03", "12.2")


def offers(*found, cuda=13):
    names = (CORE, P + "cuda%d" % cuda, DIAG, DIAG + "-cuda%d" % cuda)
    return {name: list(found) for name in names}


def ids(answer):
    return [one["id"] for one in answer["refusals"]]


@pytest.mark.parametrize(
    "driver, cuda, dcgm, refused",
    [
        ("580.65.06", "13.0", "4.4.0", []),
        ("580.95.05", "13.0", "4.5.3", []),
        ("580.95.05", "13.0", "4.3.1", ["dcgm_too_old"]),
        ("580.65.05", "13.0", "4.4.0", ["driver_too_old"]),
        ("535.216.03", "12.2", "4.0.0", []),
        ("525.60.13", "12.0", "4.2.3", []),
        ("525.60.12", "12.0", "4.2.3", ["driver_too_old"]),
        ("470.256.02", "11.4", "4.2.3", []),
        ("450.51.06", "11.0", "4.2.3", ["driver_too_old"]),
        ("390.157", "9.1", "4.2.3", ["cuda_unknown"]),
        ("650.10", "14.0", "4.5.3", ["cuda_unknown"]),
        (None, "13.0", "4.5.3", ["driver_unknown"]),
        ("580.95.05", None, "4.5.3", ["driver_unknown"]),
        ("580.95.05", "13.0", "3.3.9", ["dcgm_major"]),
        ("580.95.05", "13.0", "5.0.0", ["dcgm_major"]),
        ("580.95.05", "13.0", "", ["dcgm_unknown"]),
        ("580.95.05", "13.0", "no version", ["dcgm_unknown"]),
    ],
)
def test_the_pair_of_a_dcgm_that_is_there_and_the_driver(driver, cuda, dcgm, refused):
    answer = versions.decide(snapshot(driver, cuda), program="dcgmi  version: %s" % dcgm)
    assert ids(answer) == refused and answer["packages"] == []
    for one in answer["refusals"]:
        assert one["found"] and one["expected"] and one["next_step"]


@pytest.mark.parametrize(
    "wanted, available, present, full, refused",
    [
        ("", offers("1:4.5.3-1", "1:4.4.1-1"), {}, "1:4.5.3-1", []),
        ("4.4.1", offers("1:4.5.3-1", "1:4.4.1-1"), {}, "1:4.4.1-1", []),
        ("4.4.1-1", offers("1:4.5.3-1", "1:4.4.1-1"), {}, "1:4.4.1-1", []),
        ("1:4.4.1-1", offers("1:4.5.3-1", "1:4.4.1-1"), {}, "1:4.4.1-1", []),
        # what is installed stays, whether it is offered any more or not
        ("", offers("1:4.5.3-1"), {CORE: "1:4.4.1-1", P + "cuda13": "1:4.4.1-1"}, "1:4.4.1-1", []),
        # half of an installation is none
        ("", offers("1:4.5.3-1"), {CORE: "1:4.4.1-1"}, "1:4.5.3-1", []),
        ("4.4", offers("1:4.4.1-1"), {}, None, ["not_offered"]),
        ("4.6.0", offers("1:4.5.3-1"), {}, None, ["not_offered"]),
        ("", {}, {}, None, ["not_offered"]),
        # the version that is wanted says why the package for this CUDA is not there
        ("4.2.3", {CORE: ["1:4.2.3-1"]}, {}, None, ["dcgm_too_old"]),
        ("3.3.9", {CORE: ["1:4.2.3-1"]}, {}, None, ["dcgm_major"]),
        ("", {P + "cuda13": ["1:4.5.3-1"], CORE: ["1:4.4.1-1"]}, {}, "1:4.5.3-1", ["not_offered"]),
    ],
)
def test_which_version_is_installed(wanted, available, present, full, refused):
    answer = versions.decide(R580, wanted, available, present)
    assert (answer.get("full"), ids(answer)) == (full, refused)


def test_the_newest_that_is_offered_whatever_the_order():
    text = "".join(
        " %s | 1:4.%s-1 | file:/mirror Packages\n" % (P + "cuda13", minor) for minor in ("4.1", "10.0", "5.3", "4.1")
    )
    assert versions.parse_offered(text) == {P + "cuda13": ["1:4.10.0-1", "1:4.5.3-1", "1:4.4.1-1"]}
    assert versions.parse_offered("N: Unable to locate package\n") == {}


@pytest.mark.parametrize("driver, cuda", [(R535, 12), (R580, 13)])
def test_the_package_follows_the_cuda_of_the_driver(driver, cuda):
    answer = versions.decide(driver, "", offers("1:4.5.3-1", cuda=cuda), {})
    assert answer["packages"] == [
        name + "=1:4.5.3-1" for name in (CORE, P + "cuda%d" % cuda, DIAG, DIAG + "-cuda%d" % cuda)
    ]
    assert answer["due"] and answer["replaced"] == answer["left_out"] == []


def test_what_is_replaced():
    """DCGM 3, and the parts for the CUDA of the driver before; nothing that is no part of DCGM."""
    there = versions.parse_installed(
        "datacenter-gpu-manager\tinstall ok installed\t1:3.3.9\n"
        "datacenter-gpu-manager-4-cuda12\thold ok installed\t1:4.5.3-1\n"
        "datacenter-gpu-manager-4-proprietary-cuda12\tinstall ok installed\t1:4.5.3-1\n"
        "datacenter-gpu-manager-config\tdeinstall ok config-files\t3.3.9\n"
        "datacenter-gpu-manager-4-cuda11\tunknown ok not-installed\t\n"
        "bash\tinstall ok installed\t5.2\n"
    )
    assert set(there) == {"datacenter-gpu-manager", P + "cuda12", DIAG + "-cuda12", "bash"}
    answer = versions.decide(R580, "", offers("1:4.5.3-1"), there)
    assert answer["replaced"] == ["datacenter-gpu-manager", P + "cuda12", DIAG + "-cuda12"]


def test_parts_that_are_not_offered_are_left_out_and_named():
    answer = versions.decide(R580, "", {name: ["1:4.5.3-1"] for name in (CORE, P + "cuda13")}, {})
    assert answer["left_out"] == [DIAG, DIAG + "-cuda13"] and answer["names"] == [CORE, P + "cuda13"]
    assert answer["refusals"] == [] and versions.decide(R580, "", offers("1:4.5.3-1"), {}, False)["left_out"] == []


def test_no_restart_is_due_where_all_is_installed():
    there = dict.fromkeys(offers(""), "1:4.5.3-1")
    assert versions.decide(R580, "", offers("1:4.5.3-1"), there)["due"] is False
    assert versions.decide(R580, "4.6.0", offers("1:4.6.0-1"), there)["due"] is True


@pytest.mark.parametrize(
    "image, engine, refused",
    [
        ("r/k8s/dcgm-exporter:4.5.3-4.8.2-distroless", "4.5.3", []),
        ("r/k8s/dcgm-exporter:4.4.1-4.5.0", "4.5.3", []),
        ("r:5000/dcgm-exporter:4.5.3-4.8.2@sha256:" + "ab" * 32, "4.5.1", []),
        ("r/dcgm-exporter:4.5.3-4.8.2@sha512:" + "ab" * 64, "4.5.1", []),
        ("r/dcgm-exporter:4.5.3-4.8.2@sha256:" + "ab" * 32, "4.4.1", ["image_pair"]),
        ("r/dcgm-exporter:4.5.3-4.8.2@sha256:ab", "4.5.1", ["image_digest"]),
        ("r/dcgm-exporter:4.5.3-4.8.2@sha256:" + "AB" * 32, "4.5.1", ["image_digest"]),
        ("r/dcgm-exporter:4.5.3-4.8.2@sha256:" + "ab" * 33, "4.5.1", ["image_digest"]),
        ("r/dcgm-exporter:4.5.3-4.8.2@sha256:" + "ab" * 32 + "\n", "4.5.1", ["image_digest"]),
        ("r/dcgm-exporter:4.5.3-4.8.2@md5:" + "ab" * 16, "4.5.1", ["image_digest"]),
        ("r/dcgm-exporter:4.5.3-4.8.2@", "4.5.1", ["image_digest"]),
        ("r/dcgm-exporter:4.5.3-4.8.2 --privileged", "4.5.3", ["image_version"]),
        ("--privileged r/dcgm-exporter:4.5.3-4.8.2", "4.5.3", ["image_version"]),
        ("--env=x/dcgm-exporter:4.5.3-4.8.2", "4.5.3", ["image_version"]),
        ("r/dcgm-exporter:4.5.3-4.8.2\n", "4.5.3", ["image_version"]),
        ("r/dcgm-exporter:4.5.3-4.8.2", "4.4.1", ["image_pair"]),
        ("r/dcgm-exporter:3.3.9-3.6.1", "4.5.3", ["image_pair"]),
        ("r/dcgm-exporter:4.5.3-4.8.2", "", ["engine_version"]),
        ("r/dcgm-exporter:latest", "4.5.3", ["image_version"]),
        ("r/dcgm-exporter", "4.5.3", ["image_version"]),
        ("r:5000/dcgm-exporter", "4.5.3", ["image_version"]),
        ("r/dcgm-exporter@sha256:4.5.3", "4.5.3", ["image_digest"]),
        ("r/dcgm-exporter@sha256:" + "ab" * 32, "4.5.3", ["image_version"]),
    ],
)
def test_the_pair_of_exporter_and_engine(image, engine, refused):
    assert [one["id"] for one in versions.check_image(image, engine)] == refused


def test_every_row_of_the_data_says_where_it_is_from():
    rows = catalog.load("packages")["cuda"]
    assert rows and all(set(row) == {"driver", "dcgm", "source"} and len(row["source"]) > 20 for row in rows.values())


def test_a_refusal_in_words_has_what_was_found_and_expected():
    words = catalog.make_sentence(versions.decide(R580, program="4.2.3")["refusals"])
    for part in ("4.2.3", "4.4.0", "580.95.05", "Next step"):
        assert part in words
    assert catalog.make_sentence([]) == ""
