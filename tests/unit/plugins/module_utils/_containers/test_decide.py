# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth table of container runtimes: which are configured, and what is refused before anything is changed."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._containers import decide, runtimes
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._containers import containernode

pytestmark = pytest.mark.pythons


def found(toolkit="1.18.1", **versions):
    return {
        "toolkit": toolkit and {"path": "/usr/bin/nvidia-ctk", "version": None if toolkit == "?" else toolkit},
        "runtimes": {name: {"path": "/usr/bin/" + name, "version": version} for name, version in versions.items()},
    }


@pytest.mark.parametrize(
    "facts,wanted,names,refused",
    [
        (found(podman="4.3.1"), [], ["podman"], []),
        (found(podman="4.3.1", docker="28.2.2", containerd="1.7.24"), [], ["containerd", "docker", "podman"], []),
        (found(podman="4.3.1", docker="20.10.24"), ["podman"], ["podman"], []),
        (found(), [], [], ["no_runtime"]),
        (found(podman="4.3.1"), ["docker"], ["docker"], ["runtime_missing"]),
        (found(podman="4.3.1"), ["docker", "crio"], ["crio", "docker"], ["runtime_missing", "runtime_missing"]),
        (found(podman=None), [], ["podman"], ["runtime_unknown"]),
        (found(podman="4.0.3"), [], ["podman"], ["runtime_too_old"]),
        (found(docker="20.10.24"), [], ["docker"], ["runtime_too_old"]),
        (found(containerd="1.6.20"), [], ["containerd"], ["runtime_too_old"]),
        (found(crio="1.22.5"), [], ["crio"], ["runtime_too_old"]),
        (found(None, podman="4.3.1"), [], ["podman"], ["no_toolkit"]),
        (found("?", podman="4.3.1"), [], ["podman"], ["toolkit_unknown"]),
        (found("1.13.5", podman="4.3.1"), [], ["podman"], ["toolkit_too_old"]),
        (found("1.13.5", docker="28.0.0"), [], ["docker"], ["toolkit_too_old"]),
        (found("1.14.6", docker="25.0.0"), [], ["docker"], ["toolkit_too_old"]),
        (found("1.15.0", docker="25.0.0"), [], ["docker"], []),
        (found("1.14.6", containerd="1.7.0"), [], ["containerd"], []),
        (found("1.17.4", containerd="1.7.24"), [], ["containerd"], []),
        (found("1.14.3", containerd="1.7.24"), [], ["containerd"], ["toolkit_too_old"]),
        (found("1.17.3", containerd="2.0.0"), [], ["containerd"], ["toolkit_too_old"]),
        (found("1.17.4", containerd="2.0.0"), [], ["containerd"], []),
        (found("1.9.0", containerd="2.1.0"), [], ["containerd"], ["toolkit_too_old"]),
    ],
)
def test_what_is_configured_and_what_is_refused(facts, wanted, names, refused):
    answer = decide.decide(facts, wanted)
    assert answer["runtimes"] == names
    assert [item["id"] for item in answer["refusals"]] == refused
    for item in answer["refusals"]:
        assert item["message"] and item["next_step"] and "expected" in item and "found" in item
    words = decide.sentence(answer["refusals"])
    assert all(item["next_step"] in words for item in answer["refusals"])


K3S, RKE2 = "/usr/local/bin/k3s", "/var/lib/rancher/rke2/bin/containerd"
NVIDIA = 'BinaryName = "/usr/bin/nvidia-container-runtime"\n'


@pytest.mark.parametrize(
    ("program", "config", "name"),
    [
        (K3S, "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "k3s"),
        (RKE2, "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "RKE2"),
        ("/usr/local/bin/k0s", "/etc/k0s/containerd.d/nvidia.toml", "k0s"),
        ("/snap/bin/microk8s", "/var/snap/microk8s/current/args/containerd-template.toml", "MicroK8s"),
        ("/snap/bin/docker", "/var/snap/docker/current/config/daemon.json", "the Docker snap"),
    ],
)
@pytest.mark.parametrize("text", [None, "", "# " + NVIDIA, NVIDIA])
def test_a_runtime_that_another_program_carries_is_judged_by_what_it_reads(tmp_path, program, config, name, text):
    containernode.toolkit(tmp_path, "1.18.1")
    for path, content in ((program, ""), (config, text)):
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            place.write_text(content)
    read = runtimes.read(str(tmp_path), containernode.NodeRunner())
    answer = decide.decide(read, [])
    assert read["carried"] == {name: text == NVIDIA} and answer["runtimes"] == []
    refused = [(item["id"], item["found"]) for item in answer["refusals"]]
    assert refused == ([] if text == NVIDIA else [("runtime_carried", name)])
    assert decide.decide(dict(read, runtimes=found(podman="4.3.1")["runtimes"]), [])["refusals"] == []


def test_every_runtime_has_its_floors_and_its_program():
    assert set(decide.FLOORS) == set(runtimes.PROGRAMS) and set(decide.CONFIGURED) == set(decide.FLOORS) - {"podman"}
    for row in decide.FLOORS.values():
        assert row["toolkit"][0][0] == "0" and not any(
            decide.older(floor, decide.OLDEST_TOOLKIT) for _since, floor in row["toolkit"]
        )


@pytest.mark.parametrize(
    "version,name,words",
    [
        (
            "1.18.1",
            "containerd",
            [
                "--config=/x/etc/containerd/config.toml",
                "--drop-in-config=/x/etc/containerd/conf.d/99-nvidia.toml",
                "--cdi.enabled",
            ],
        ),
        ("1.17.8", "containerd", ["--config=/x/etc/containerd/config.toml", "--cdi.enabled"]),
        (
            "1.18.1",
            "crio",
            ["--config=/x/etc/crio/crio.conf", "--drop-in-config=/x/etc/crio/crio.conf.d/99-nvidia.toml"],
        ),
        ("1.20.0", "docker", ["--config=/x/etc/docker/daemon.json", "--cdi.enabled"]),
    ],
)
def test_the_call(version, name, words):
    toolkit = {"path": "/usr/bin/nvidia-ctk", "version": version}
    argv = decide.command(toolkit, name, lambda path: "/x" + path, None)
    assert argv == ["/usr/bin/nvidia-ctk", "runtime", "configure", "--runtime=" + name] + words
    assert decide.command(toolkit, name, lambda path: "/x" + path, name) == argv + ["--set-as-default"]


def test_versions_are_numbers():
    assert decide.older("1.9.0", "1.14.0") and not decide.older("1.18.0", "1.18") and not decide.older("1.18", "1.18.0")


@pytest.mark.parametrize(
    "binary,version",
    [
        ("containerd", "2.1.4"),
        ("containerd", "1.7.24"),
        ("crio", "1.28.1"),
        ("dockerd", "28.2.2"),
        ("dockerd", "20.10.24+dfsg1"),
        ("podman", "4.3.1"),
    ],
)
def test_what_programs_print(tmp_path, binary, version):
    containernode.runtime(tmp_path, binary, version)
    read = runtimes.read(str(tmp_path), containernode.NodeRunner())
    name = next(iter(read["runtimes"]))
    one = read["runtimes"][name]
    assert len(read["runtimes"]) == 1
    assert runtimes.PROGRAMS[name] == binary and one == {"path": "/usr/bin/" + binary, "version": version.split("+")[0]}
    assert read["toolkit"] is None


def test_a_program_that_says_nothing(tmp_path):
    containernode.program(tmp_path, "podman", "exit 1")
    containernode.toolkit(tmp_path, "1.18.1")
    read = runtimes.read(str(tmp_path), containernode.NodeRunner())
    assert read == {
        "toolkit": {"path": "/usr/bin/nvidia-ctk", "version": "1.18.1"},
        "runtimes": {"podman": {"path": "/usr/bin/podman", "version": None}},
        "carried": {},
    }
