# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container runtimes of a node and the NVIDIA Container Toolkit, with their versions."""

from __future__ import annotations

import os
import re

from .._node import files

PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
TOOLKIT = "nvidia-ctk"
# Runtime: the program that says which version it is.
PROGRAMS = {"containerd": "containerd", "crio": "crio", "docker": "dockerd", "podman": "podman"}
VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)?)")
ASK_S = 20
# Runtimes that another program carries and configures: where it is, what it writes for its containerd or dockerd, and
# what has it give GPUs to containers. Sources: the pages of k3s, RKE2, k0s and MicroK8s on NVIDIA's runtime, and the
# README of the Docker snap.
RESTARTED = "install the toolkit, and restart %s: it looks for nvidia-container-runtime whenever it starts"
CARRIED = {
    "k3s": (
        ("/usr/local/bin/k3s", "/usr/bin/k3s", "/opt/bin/k3s"),
        ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml",),
        RESTARTED % "k3s or k3s-agent",
    ),
    "RKE2": (
        ("/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2", "/var/lib/rancher/rke2/bin/containerd"),
        ("/var/lib/rancher/rke2/agent/etc/containerd/config.toml",),
        RESTARTED % "rke2-agent or rke2-server",
    ),
    "k0s": (
        ("/usr/local/bin/k0s", "/usr/bin/k0s"),
        ("/etc/k0s/containerd.d", "/etc/k0s/containerd.toml"),
        "write /etc/k0s/containerd.d/nvidia.toml with nvidia-ctk runtime configure, and restart k0s",
    ),
    "MicroK8s": (
        ("/snap/bin/microk8s", "/var/lib/snapd/snap/bin/microk8s"),
        ("/var/snap/microk8s/current/args/containerd.toml", "/var/snap/microk8s/current/args/containerd-template.toml"),
        "run microk8s enable nvidia, which configures its containerd",
    ),
    "the Docker snap": (
        ("/snap/bin/docker", "/var/lib/snapd/snap/bin/docker"),
        ("/var/snap/docker/current/config/daemon.json",),
        "run snap restart docker once the driver is loaded: it configures NVIDIA's runtime whenever it starts",
    ),
}


def program(root, name) -> str | None:
    """The path of a program below the root; None where there is none."""
    for place in PLACES:
        path = files.resolve(root, "%s/%s" % (place, name))
        if path and os.path.isfile(files.under(root, path)):
            return "%s/%s" % (place, name)
    return None


def version(root, runner, path) -> str | None:
    """Return the version in a program's output: the first number with dots; None without one."""
    rc, out, err = runner([files.under(root, path), "--version"], ASK_S)
    found = VERSION.search(out or err) if rc == 0 else None
    return found.group(1) if found else None


def read(root, runner) -> dict:
    """``{"toolkit": {"path", "version"}|None, "runtimes": {name: {"path", "version"}}, "carried": {name: ready}}``."""
    found = {}
    for name, binary in PROGRAMS.items():
        path = program(root, binary)
        if path:
            found[name] = {"path": path, "version": version(root, runner, path)}
    path = program(root, TOOLKIT)
    return {
        "toolkit": {"path": path, "version": version(root, runner, path)} if path else None,
        "runtimes": found,
        "carried": dict(
            (name, any(map(lambda path: has_nvidia(root, path), configs)))
            for name, (programs, configs, dummy) in CARRIED.items()
            if any(os.path.lexists(files.under(root, path)) for path in programs)
        ),
    }


def has_nvidia(root, path) -> bool:
    """Return whether the configuration that a runtime reads names NVIDIA's runtime; PATH may be a directory of them."""
    there = files.under(root, path)
    paths = [os.path.join(there, name) for name in files.listing(there) or []] if os.path.isdir(there) else [there]
    lines = [line for item in paths for line in (files.read_text(item) or "").splitlines()]
    return any("nvidia-container-runtime" in line for line in lines if not line.lstrip().startswith("#"))
