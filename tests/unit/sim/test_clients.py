# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs by others, from the package index and from Debian, read the simulated GPUs as they read real ones."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import termios
import time
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode
from tests.tools import common


@pytest.fixture(scope="module")
def clients():
    """Directory of the programs; not being able to install them is a failure."""
    return common.environment("clients") / "bin"


@pytest.fixture(scope="module")
def debian():
    """Directory of what Debian has of them; not being able to unpack it is a failure."""
    done = subprocess.run(
        [str(simnode.SIM / "debian_clients.sh")],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        timeout=600,
        check=True,
    )
    return pathlib.Path(done.stdout.strip())


def run(node, *command, **more):
    environment = dict(node.environment, COLUMNS="120", LINES="60", TERM="dumb", **more)
    return subprocess.run(
        [str(part) for part in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=simnode.LIMIT_S,
        check=False,
    )


def test_nvitop(booted, clients):
    booted.sim("inject", "stray-process", "--gpu", "1")
    done = run(booted, clients / "nvitop", "-1", "--no-unicode")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Driver Version: %s" % simnode.OLD in done.stdout
    assert done.stdout.count("H100 80GB HBM3") == 8
    assert "71W / 700W" in done.stdout
    assert "1024MiB / 79.65GiB" in done.stdout
    assert "sleep infinity" in done.stdout


def test_gpustat(booted, clients):
    booted.sim("inject", "stray-process", "--gpu", "1", "--value", "2048")
    done = run(booted, clients / "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["driver_version"] == simnode.OLD
    assert [gpu["index"] for gpu in answer["gpus"]] == list(range(8))
    assert {
        (gpu["name"], gpu["memory.total"], gpu["temperature.gpu"], gpu["power.draw"], gpu["fan.speed"])
        for gpu in answer["gpus"]
    } == {("NVIDIA H100 80GB HBM3", 81559, 31, 71, None)}
    assert [len(gpu["processes"]) for gpu in answer["gpus"]] == [0, 1, 0, 0, 0, 0, 0, 0]
    assert answer["gpus"][1]["processes"][0]["gpu_memory_usage"] == 2048


def test_on_a_node_with_mig_devices(booted, clients):
    """3g, 2g, 1g, 1g on GPU 1, and a process on the second of them."""
    booted.sim("mig", "--gpu", "1", "3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
    booted.sim("inject", "stray-process", "--gpu", "1", "--mig", "3")
    done = run(booted, clients / "nvitop", "-1", "--no-unicode")
    assert (done.returncode, done.stderr) == (0, "")
    devices = [line.split()[1:7] for line in done.stdout.splitlines() if " @ GI/CI:" in line]
    assert [device[:2] for device in devices] == [
        ["1:0", "3g.40gb"],
        ["1:1", "2g.20gb"],
        ["1:2", "1g.10gb"],
        ["1:3", "1g.10gb"],
    ]
    assert (
        "1024MiB / 20096MiB" in done.stdout and "0B / 39.50GiB" in done.stdout and done.stdout.count("/  9984MiB") == 2
    )
    assert [line.split()[1] for line in done.stdout.splitlines() if "sleep infinity" in line] == ["1:1"]
    done = run(booted, clients / "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["gpus"][1]
    assert (answer["memory.used"], answer["utilization.gpu"], len(answer["processes"])) == (1024, None, 1)


@pytest.mark.parametrize("program, arguments", [("nvitop", ["-1"]), ("gpustat", ["--json"])])
def test_without_a_driver_they_fail(node, clients, program, arguments):
    node.kernel()
    node.library(simnode.OLD)
    node.sim("boot")
    assert run(node, clients / program, *arguments).returncode != 0


def test_on_a_board_with_less(make_node, clients):
    node = make_node("l4").booted()
    assert run(node, clients / "nvitop", "-1", "--no-unicode").stdout.count(" L4 ") == 4
    assert len(json.loads(run(node, clients / "gpustat", "--json").stdout)["gpus"]) == 4


# ---- Debian's ----


def lstopo(node, debian):
    """What hwloc finds: the devices of NVML, and the table of bandwidths between them if there is one."""
    (plugins,) = debian.glob("usr/lib/*/hwloc")
    done = run(node, "lstopo-no-graphics", "--whole-io", "--of", "xml", HWLOC_PLUGINS_PATH=str(plugins))
    assert done.returncode == 0, done.stderr
    tree = ElementTree.fromstring(done.stdout)
    devices = {
        item.get("name"): {info.get("name"): info.get("value") for info in item.findall("info")}
        for item in tree.iter("object")
        if item.get("subtype") == "NVML"
    }
    table = tree.find("distances2[@name='NVLinkBandwidth']")
    values = (
        [int(word) for part in table.findall("u64values") for word in part.text.split()] if table is not None else []
    )
    return devices, values


def test_hwloc(booted, debian):
    devices, _values = lstopo(booted, debian)
    assert sorted(devices) == ["nvml%d" % gpu for gpu in range(8)]
    assert {device["GPUModel"] for device in devices.values()} == {"NVIDIA H100 80GB HBM3"}
    assert len({device["NVIDIAUUID"] for device in devices.values()}) == 8
    assert [devices["nvml%d" % gpu]["NVIDIAUUID"] for gpu in range(8)] == booted.ask(
        "[text(n.nvmlDeviceGetUUID, handle(gpu)) for gpu in range(8)]"
    )


def test_hwloc_finds_the_same_bandwidth_both_ways(make_node, debian):
    node = make_node("a100-sxm").booted()
    _devices, values = lstopo(node, debian)
    # MB/s: a GPU to itself, and the four links that lead to each other one.
    assert values == [1000000 if gpu == other else 200000 for gpu in range(4) for other in range(4)]


def screen(node, command, until):
    """What a program draws on a terminal until all of it is there; it is ended by its key q."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 70, 200, 0, 0))
    environment = dict(node.environment, TERM="xterm", HOME=str(node.root))
    process = subprocess.Popen(
        [str(part) for part in command],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    drawn = b""
    end = time.monotonic() + simnode.LIMIT_S

    def text():
        return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]", b" ", drawn).decode("utf-8", "replace")

    try:
        while not until(text()):
            # Some draw again and again, whatever there is to show.
            assert time.monotonic() < end, "it does not draw what is waited for:\n" + text()[-20000:]
            assert select.select([master], [], [], simnode.LIMIT_S)[0], "it draws nothing more:\n" + text()
            part = os.read(master, 65536)
            assert part, text()
            drawn += part
        os.write(master, b"q")
        while process.poll() is None:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    os.read(master, 65536)
                except OSError:
                    break
        return text(), process.wait(simnode.LIMIT_S)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_nvtop(booted, debian):
    booted.sim("inject", "stray-process", "--gpu", "1")
    text, status = screen(
        booted, [debian / "usr/bin/nvtop"], lambda text: "sleep infinity" in text and "Device 7" in text
    )
    assert status == 0
    assert re.findall(r"Device (\d) +\[([^]]+)\]", text)[:8] == [
        (str(gpu), "NVIDIA H100 80GB HBM3") for gpu in range(8)
    ]
    assert re.search(r"GEN +5@16x", text)
    assert re.search(r"POW +71 / 700 W", text)
    assert re.search(r"\d+ \S+ +1 +Compute +0% +1024MiB", text)


def test_btop(booted, debian):
    """It is Debian 13's, whatever this machine runs, so it is started with that Debian's C library."""
    root = debian / "trixie"
    (loader,) = root.glob("usr/lib*/ld-linux-*.so.*")
    (libraries,) = root.glob("usr/lib/*-linux-gnu")
    settings = booted.root / ".config/btop/btop.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text('shown_boxes = "cpu gpu0 gpu1"\nshow_gpu_info = "On"\nupdate_ms = 100\n', encoding="utf-8")
    booted.sim("inject", "stray-process", "--gpu", "1")
    path = "%s:%s" % (libraries, booted.environment["LD_LIBRARY_PATH"])
    text, status = screen(
        booted,
        [loader, "--library-path", path, root / "usr/bin/btop", "--utf-force"],
        lambda text: re.search(r" gpu1 .* RX:", text, re.DOTALL),
    )
    assert status == 0
    # A graph of each GPU, and a box of each of two.
    assert {int(gpu) for gpu in re.findall(r" GPU +(\d) ", text)} == set(range(8))
    boxes = re.split(r" gpu[01] ", text)[1:3]
    assert [re.search(r"Used: \W+ ([\d.]+ \w+)", box).group(1) for box in boxes] == ["480 MiB", "1.46 GiB"]
    for box in boxes:
        for words in (r" H100 80GB HBM3 ", r" 31 °C", r" 71 W", r"Total: +79\.6 GiB", r"P-state: +P ?0"):
            assert re.search(words, box), (words, box)
