# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_ctk does on a node below a directory: with the stand-in for nvidia-ctk, on the simulator's NVML."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._containers import ctk
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import cdi
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._containers import containernode
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

CDI = "run/cdi/nvidia.yaml"
CONTAINERD, DROP_IN, DAEMON = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/99-nvidia.toml",
    "etc/docker/daemon.json",
)
OPTIONS = {
    "state": "configured",
    "runtimes": [],
    "default_runtime": None,
    "cdi_file": "/run/cdi/nvidia.yaml",
    "restart": True,
    "in_use": "",
}


@pytest.fixture(name="booted", scope="module")
def _booted(tmp_path_factory):
    base = tmp_path_factory.mktemp("containers")
    node = simnode.Node(base / "h100", simnode.built(), base, "h100-sxm", 2).booted(simnode.NEW)
    yield node
    node.close()


@pytest.fixture(name="node")
def _node(booted, tmp_path):
    """A copy of a node with a driver and two GPUs, the toolkit, and no runtime."""
    root = tmp_path / "root"
    shutil.copytree(str(booted.root), str(root), symlinks=True, ignore=shutil.ignore_patterns("dev"))
    containernode.toolkit(root, "1.18.1")
    node = simnode.Node(root, booted.build, booted.templates, "h100-sxm", 2)
    node.prepared = True
    yield node
    node.close()


class Run:
    """One run of the module's task on the node, as the module does it."""

    def __init__(self, node, runner=None, check=False, **options):
        self.runner = runner or containernode.NodeRunner()
        self.task = ctk.Ctk(dict(OPTIONS, **options), self.runner, str(node.root))
        self.refused = [item["id"] for item in self.task.plan["refusals"]]
        if self.refused:
            return
        self.due, self.changes = self.task.differences()
        self.pending = self.task.pending()
        self.actions = []
        if not check and (self.due or self.changes or self.pending):
            self.actions = self.task.act(self.due, self.changes)

    @property
    def changed(self):
        return bool(self.changes or self.pending)


def content(node):
    """Every file of the configuration and of CDI."""
    root = pathlib.Path(str(node.root))
    return {
        str(path.relative_to(root)): path.read_text()
        for part in ("etc/containerd", "etc/crio", "etc/docker", "run/cdi", "run")
        for path in sorted((root / part).glob("**/*" if part != "run" else "gpufleet-*"))
        if path.is_file()
    }


def uuids(node):
    return node.ask("[n.nvmlDeviceGetUUID(handle(i)) for i in range(n.nvmlDeviceGetCount())]")


def test_podman_reads_the_cdi_file_by_itself(node):
    """Foreseen, done, nothing left to do; the file names the GPUs that NVML has, and podman is not restarted."""
    containernode.runtime(node.root, "podman", "4.3.1")
    foreseen = Run(node, check=True)
    assert foreseen.changed and content(node) == {} and list(foreseen.changes) == ["/run/cdi/nvidia.yaml"]
    done = Run(node)
    assert (
        done.changes == foreseen.changes
        and done.actions == ["write /run/cdi/nvidia.yaml"]
        and not done.runner.made("systemctl")
    )
    (spec,) = cdi.read(str(node.root))["specs"]
    assert set(spec["devices"]) == {"0", "1", "all"} | set(uuids(node)) and done.task.devices() == spec["devices"]
    again = Run(node)
    assert not again.changed and again.actions == []
    assert not again.runner.made("nvidia-ctk", "runtime")


@pytest.mark.parametrize("version,paths", [("1.18.1", {CONTAINERD, DROP_IN}), ("1.17.8", {CONTAINERD})])
def test_containerd_is_configured_and_restarted_once(node, version, paths):
    containernode.toolkit(node.root, version)
    containernode.runtime(node.root, "containerd", "1.7.24")
    node.write(CONTAINERD, 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "mine"\n')
    before = content(node)
    foreseen = Run(node, check=True)
    assert content(node) == before and foreseen.due == ["containerd"]
    assert {path.lstrip("/") for path in foreseen.changes} == paths | {CDI}

    done = Run(node, containernode.NodeRunner({"containerd.service": "active"}))
    assert done.actions == ["configure containerd", "write /run/cdi/nvidia.yaml", "restart containerd.service"]
    after = content(node)
    assert set(after) == paths | {CDI} and 'sandbox_image = "mine"' in after[CONTAINERD]
    assert {path: text for path, (dummy, text) in done.changes.items()} == {
        "/" + path: text for path, text in after.items()
    }
    assert "gpufleet-ctk-" not in "".join(after.values()), "a path of the directory aside"
    again = Run(node, containernode.NodeRunner({"containerd.service": "active"}))
    assert not again.changed and not again.runner.made("systemctl")


def test_what_docker_had_stays(node):
    containernode.runtime(node.root, "dockerd", "28.2.2")
    node.write(DAEMON, '{"live-restore": true}\n')
    done = Run(node, containernode.NodeRunner({"docker.service": "active"}), default_runtime="docker")
    assert "restart docker.service" in done.actions
    found = json.loads(node.read(DAEMON))
    assert found["live-restore"] is True and found["features"] == {"cdi": True} and found["default-runtime"] == "nvidia"


def test_a_runtime_that_is_not_started_stays_so(node):
    containernode.runtime(node.root, "crio", "1.28.1")
    done = Run(node)
    assert "leave crio.service stopped" in done.actions and not done.runner.made("systemctl", "restart")
    assert not Run(node).changed


@pytest.mark.parametrize(
    "restart,in_use,busy",
    [(True, "processes compute: pid 7.", True), (True, "", False), (False, "processes compute: pid 7.", False)],
)
def test_docker_is_not_restarted_while_the_gpus_are_in_use(node, restart, in_use, busy):
    containernode.runtime(node.root, "dockerd", "28.2.2")
    containernode.runtime(node.root, "containerd", "1.7.24")
    run = Run(node, check=True, restart=restart, in_use=in_use)
    words = run.task.busy(run.due + run.pending)
    assert bool(words) is busy and (not busy or "pid 7" in words and "docker" in words)
    assert run.task.busy(["containerd"]) == ""


def test_a_restart_that_failed_is_done_again(node):
    """And one that an earlier run did not come to."""
    containernode.runtime(node.root, "containerd", "1.7.24")
    with pytest.raises(ctk.CtkError) as failed:
        Run(node, containernode.NodeRunner({"containerd.service": "active"}, after_restart="failed"))
    for words in (
        "containerd.service is failed",
        "expected active",
        "journalctl -u containerd.service",
        "/etc/containerd/config.toml",
    ):
        assert words in str(failed.value)
    again = Run(node, containernode.NodeRunner({"containerd.service": "failed"}))
    assert again.changed and again.due == [] and again.actions == ["restart containerd.service"]
    assert not Run(node).changed


def test_without_a_restart_nothing_waits_for_one(node):
    containernode.runtime(node.root, "containerd", "1.7.24")
    done = Run(node, restart=False)
    assert not done.runner.made("systemctl") and not Run(node, restart=False).changed


def test_only_the_cdi_file_is_refreshed(node):
    """After a GPU left: no runtime is looked at, and the file that was of the other GPUs is written again."""
    containernode.runtime(node.root, "containerd", "1.7.24")
    first = Run(node, state="refreshed")
    assert first.actions == ["write /run/cdi/nvidia.yaml"] and not first.runner.made("nvidia-ctk", "runtime")
    assert not Run(node, state="refreshed").changed
    node.sim("inject", "gpu-missing", "--gpu", "1")
    stale = Run(node, check=True, state="refreshed")
    assert stale.changed and len(stale.task.devices()) == 5
    assert len(Run(node, state="refreshed").task.devices()) == 3


def test_files_of_the_same_stem_that_are_no_longer_made_go(node):
    node.write("run/cdi/nvidia.coherent.yaml", "kind: nvidia.com/gpu.coherent\n")
    node.write("run/cdi/mine.yaml", "kind: example.com/nic\n")
    done = Run(node, state="refreshed")
    assert sorted(done.actions) == ["remove /run/cdi/nvidia.coherent.yaml", "write /run/cdi/nvidia.yaml"]
    assert set(content(node)) == {CDI, "run/cdi/mine.yaml"}


def test_a_driver_that_does_not_answer(node):
    Run(node, state="refreshed")
    before = content(node)
    node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    with pytest.raises(ctk.CtkError) as failed:
        Run(node, state="refreshed")
    assert "could not make the CDI file" in str(failed.value) and "Next step" in str(failed.value)
    assert content(node) == before


def test_a_configuration_that_nvidia_ctk_does_not_read(node):
    containernode.runtime(node.root, "dockerd", "28.2.2")
    node.write(DAEMON, "{")
    with pytest.raises(ctk.CtkError) as failed:
        Run(node)
    assert "could not configure docker" in str(failed.value) and node.read(DAEMON) == "{"


def test_no_file_at_all(node):
    containernode.program(node.root, "nvidia-ctk", 'case "$*" in *--version*) echo CLI version 1.18.1;; esac')
    with pytest.raises(ctk.CtkError) as failed:
        Run(node, state="refreshed")
    assert "wrote no file" in str(failed.value)


def test_what_never_settles_is_said(node):
    """nvidia-ctk that writes another thing each time would have every run change the node."""
    containernode.program(
        node.root,
        "nvidia-ctk",
        """case "$*" in
*--version*) echo CLI version 1.18.1;;
*--output=*) for word; do case $word in --output=*) date +%s%N > "${word#--output=}";; esac; done;;
esac""",
    )
    with pytest.raises(ctk.CtkError) as failed:
        Run(node, state="refreshed")
    assert "/run/cdi/nvidia.yaml" in str(failed.value) and "another thing each time" in str(failed.value)


@pytest.mark.parametrize("state,refused", [("configured", ["no_toolkit"]), ("refreshed", ["no_toolkit"])])
def test_without_the_toolkit(node, state, refused):
    containernode.runtime(node.root, "podman", "4.3.1")
    pathlib.Path(str(node.root), "usr/bin/nvidia-ctk").unlink()
    assert Run(node, state=state).refused == refused


def test_a_runtime_that_is_not_there_is_no_matter_of_a_refresh(node):
    assert Run(node, state="refreshed", runtimes=["docker"]).refused == []
    assert Run(node, runtimes=["docker"]).refused == ["runtime_missing"]
