# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role nvidia_container_toolkit on a simulated node, with a stand-in for nvidia-ctk that asks the simulator's
NVML.
"""

from __future__ import annotations

import pathlib

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import cdi
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._containers import containernode
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node

pytestmark = pytest.mark.slow

SERVICE, WATCH, OWN = "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path", "gpufleet-cdi-refresh.service"
THERE = ("loaded", "inactive", "dead", "success", "disabled")


@pytest.fixture(name="node")
def _node(healthy, tmp_path):
    """A node with podman and a toolkit that has the unit."""
    node = simulated_node.SimulatedNode(
        tmp_path / "node",
        healthy().copy(tmp_path / "root"),
        ["nvidia_container_toolkit"],
        ["plugins/module_utils/_containers"],
    )
    node.rooted("nvidia_ctk")
    containernode.toolkit(node.root, "1.18.1")
    containernode.runtime(node.root, "podman", "4.3.1")
    node.unit(SERVICE, *THERE)
    node.unit(WATCH, *THERE)
    (node.root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    (node.root / "var").mkdir(exist_ok=True)
    (node.root / "var/run").symlink_to("../run")
    yield node
    node.close()


def play(node, *options, **variables):
    root = pathlib.Path(str(node.root))
    paths = dict(
        __nvidia_container_toolkit_program=str(root / "usr/bin/nvidia-ctk"),
        __nvidia_container_toolkit_units=str(root / "etc/systemd/system"),
    )
    return node.play(
        "nvidia_container_toolkit", *options, nvidia_container_toolkit_install=False, **dict(paths, **variables)
    )


def devices(node):
    """The devices of the CDI file, by their UUIDs."""
    (spec,) = cdi.read(str(node.root))["specs"]
    assert spec["path"] == "/run/cdi/nvidia.yaml"
    return {name for name in spec["devices"] if name.startswith(("GPU-", "MIG-"))}


@pytest.fixture(name="settled")
def _settled(node):
    """The node after the role has run."""
    result = play(node)
    assert result.rc == 0, result.output
    return node


@pytest.mark.cores
def test_podman_gets_the_gpus(node):
    """Foreseen, done, nothing left to do; the file has what NVML has, and is made at each boot after fabric manager and
    MIG layout.
    """
    foreseen = play(node, "--check")
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert cdi.read(str(node.root))["specs"] == [] and node.log == [] and foreseen.changed > 0
    done = play(node)
    assert (done.rc, done.changed) == (0, foreseen.changed), done.output
    assert devices(node) == {node.world.uuid(0), node.world.uuid(1)}
    assert [line for line in node.log if line != "daemon-reload"] == [
        "enable " + SERVICE,
        "enable " + WATCH,
        "start " + WATCH,
    ]
    drop_in = (node.root / "etc/systemd/system" / (SERVICE + ".d") / "gpufleet.conf").read_text()
    (after,) = [line for line in drop_in.splitlines() if line.startswith("After=")]
    assert {"nvidia-fabricmanager.service", "gpufleet-mig.service"} <= set(after[len("After=") :].split())
    again = play(node)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_toolkit_without_the_unit_gets_one(node):
    containernode.toolkit(node.root, "1.17.8")
    node.services(units={name: words for name, words in node.state["units"].items() if "cdi-refresh" not in name})
    node.unit(OWN, *THERE)
    done = play(node)
    assert done.rc == 0, done.output
    assert "cdi generate --output=/var/run/cdi/nvidia.yaml" in (node.root / "etc/systemd/system" / OWN).read_text()
    assert "enable " + OWN in node.log
    # a newer toolkit brings its own
    containernode.toolkit(node.root, "1.18.1")
    node.unit(SERVICE, *THERE)
    node.unit(WATCH, *THERE)
    assert play(node).rc == 0 and not (node.root / "etc/systemd/system" / OWN).exists()


def test_after_another_mig_layout(settled):
    """The file is stale until it is refreshed, and then has the MIG devices in the place of their GPU."""
    world = settled.world
    before = devices(settled)
    world.node.sim("mig", "--gpu", "1", "3g.40gb", "1g.10gb")
    refreshed = settled.play(
        "nvidia_container_toolkit",
        tasks_from="refresh",
        __nvidia_container_toolkit_program=str(settled.root / "usr/bin/nvidia-ctk"),
    )
    assert (refreshed.rc, refreshed.changed) == (0, 1), refreshed.output
    after = devices(settled)
    assert world.uuid(0) in after and world.uuid(1) not in after and len(after) == 3 and before != after
    assert len([name for name in after if name.startswith("MIG-")]) == 2


def test_a_file_that_nvidia_ctk_wrote_and_nvml_does_not_confirm(settled):
    """An old file in another directory names a GPU that is not there: no run passes until it is gone."""
    text = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: GPU-gone\n  containerEdits: {env: [A=b]}\n"
    settled.world.write("etc/cdi/nvidia.yaml", text)
    result = play(settled)
    assert result.rc != 0 and "GPU-gone" in result.words and "/etc/cdi/nvidia.yaml" in result.words
    assert "gpu-1" in result.words


@pytest.mark.parametrize(
    "make,variables,words",
    [
        (
            lambda node: containernode.toolkit(node.root, "1.13.5"),
            {},
            ("1.13.5", "1.14.0", "nvidia_container_toolkit_version"),
        ),
        (
            lambda node: None,
            {"nvidia_container_toolkit_runtimes": ["podman", "docker"]},
            ("docker is wanted and not installed", "Next step"),
        ),
        (lambda node: (node.root / "usr/bin/podman").unlink(), {}, ("install a container runtime first",)),
        (lambda node: (node.root / "usr/bin/nvidia-ctk").unlink(), {}, ("nvidia-ctk is not installed",)),
    ],
)
def test_what_is_refused(node, make, variables, words):
    make(node)
    result = play(node, **variables)
    assert result.rc != 0 and cdi.read(str(node.root))["specs"] == [] and node.log == []
    for word in words:
        assert word in result.words


def test_a_refresh_where_there_is_no_toolkit(node):
    (node.root / "usr/bin/nvidia-ctk").unlink()
    result = node.play(
        "nvidia_container_toolkit",
        tasks_from="refresh",
        __nvidia_container_toolkit_program=str(node.root / "usr/bin/nvidia-ctk"),
    )
    assert (result.rc, result.changed) == (0, 0) and "no NVIDIA Container Toolkit" in result.words, result.output


def test_check_mode_where_there_is_nothing_yet(node):
    (node.root / "usr/bin/nvidia-ctk").unlink()
    result = play(node, "--check")
    assert (result.rc, result.changed) == (0, 1), result.output
