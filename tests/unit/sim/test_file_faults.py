# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that are files, MIG layouts by name, and lines of the kernel log."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, NEW = simnode.OLD, simnode.NEW
DPKG = "Package: %s\nStatus: install ok installed\nVersion: 1\n"


def tree(node):
    """Every file of the machine that a package or a build put there."""
    found = {}
    for base in ("usr/lib", "lib/modules", "var/lib/dpkg"):
        for folder, _folders, names in os.walk(str(node.root / base)):
            for name in names:
                path = os.path.join(folder, name)
                found[path] = os.readlink(path) if os.path.islink(path) else open(path, "rb").read()
    return found


@pytest.fixture
def installed(node):
    node.write(
        "var/lib/dpkg/status", "\n".join(DPKG % name for name in ("nvidia-driver", "libnvidia-ml1", "openssh-server"))
    )
    return node.booted("570.172.08")


def test_half_installed(installed):
    installed.sim("inject", "packages-half-installed")
    states = {}
    for paragraph in installed.read("var/lib/dpkg/status").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in paragraph.splitlines())
        states[lines["Package"]] = lines["Status"]
    assert states == {
        "nvidia-driver": "install reinstreq half-installed",
        "libnvidia-ml1": "install reinstreq half-installed",
        "openssh-server": "install ok installed",
    }


@pytest.mark.parametrize("compress", [False, True])
def test_wrong_kernel(node, compress):
    node.kernel()
    node.module(compress=compress)
    node.library(OLD)
    node.sim("boot")
    node.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    node.sim("inject", "module-wrong-kernel")
    assert "Exec format error" in node.tool("modprobe", "nvidia", check=False).stderr
    assert "version magic '7.2.1-61-amd75" in node.sim("kmsg").stdout
    node.sim("clear")
    node.tool("modprobe", "nvidia")
    assert node.init_rc() == 0


@pytest.mark.parametrize("name, words, rc", [("library-missing", (), 12), ("library-version", ("580.95.05",), 18)])
def test_libraries(installed, name, words, rc):
    before = tree(installed)
    installed.sim("inject", name, *words)
    assert installed.init_rc() == rc
    assert name in installed.sim("list").stdout
    installed.sim("clear", name)
    assert installed.init_rc() == 0
    assert tree(installed) == before


def test_a_module_that_was_not_built(installed):
    before = tree(installed)
    installed.sim("inject", "module-not-built")
    assert installed.init_rc() == 0  # the loaded module stays, until a boot
    installed.sim("boot")
    assert installed.init_rc() == 9
    installed.sim("clear")
    assert tree(installed) == before
    assert not (installed.root / "var/lib/gpusim/aside").exists()


# ---- MIG, retired pages, repair ----


def test_mig_layouts(installed):
    layout = (
        "[n.nvmlDeviceGetName(n.nvmlDeviceGetMigDeviceHandleByIndex(handle(1), i))[-7:] for i in range(7)"
        " if rc(n.nvmlDeviceGetMigDeviceHandleByIndex, handle(1), i) == 0]"
    )
    installed.sim("mig", "--gpu", "1", "3g.40gb", "2g.20gb", "1g.10gb")
    assert installed.ask(layout) == ["3g.40gb", "2g.20gb", "1g.10gb"]
    installed.sim("inject", "mig-layout-lost", "--gpu", "1")
    assert installed.ask("[%s, n.nvmlDeviceGetMigMode(handle(1))]" % layout) == [[], [1, 1]]
    installed.sim("clear")
    assert len(installed.ask(layout)) == 3
    installed.sim("mig", "--gpu", "1")
    assert installed.ask("n.nvmlDeviceGetMigMode(handle(1))") == [0, 0]


def test_a_layout_that_does_not_fit(installed):
    refused = installed.sim("mig", "--gpu", "1", "4g.40gb", "4g.40gb", check=False)
    assert refused.returncode == 2 and "rc 23" in refused.stderr


# ---- lines of the log ----


@pytest.mark.parametrize(
    "words, line",
    [
        (
            ("xid", "94", "--gpu", "1", "--mig", "5"),
            "NVRM: Xid (PCI:0000:43:00 GPU-I:05): 94, pid='<unknown>', name=<unknown>, injected by gpusim",
        ),
        (
            ("xid", "154", "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "--gpu", "0"),
            (
                "NVRM: Xid (PCI:0000:1b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from "
                "0x0 (None) to 0x1 (GPU Reset Required)"
            ),
        ),
        (
            ("sxid", "20034", "LTSSM Fault Up", "--link", "7", "--fatal"),
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 07 LTSSM Fault Up",
        ),
        (("sxid", "12028"), "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 00 injected by gpusim"),
    ],
)
def test_lines(installed, words, line):
    installed.sim("inject", *words)
    assert installed.read("dev/kmsg").splitlines()[-1].split(";", 1)[1] == line
    assert installed.sim("list").stdout == ""
