# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that keeps one machine: it holds the machine's mounts, starts it, starts it again when it reboots.

It runs detached in a mount namespace of its own, so its end, however it comes about, takes the mounts along; and the
kernel ends the machine when its supervisor is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import image, layers, network
from . import machine as build
from .common import LabError, environment, read_json, run, write_json
from .config import Lab
from .inventory import Machine
from .processes import MARK

QUICK = 5.0  # a machine that wants a reboot sooner than this after its start, many times, is going round in circles
SIMULATOR = "/usr/local/sbin/gpusim"


def command(lab: Lab, name: str) -> list[str]:
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.lab", "_supervise", name]
    # a host run by systemd: a scope of its own, whose cgroups the machine may manage
    if Path("/run/systemd/system").is_dir():
        unit = f"--unit=gpufleet-lab{lab.number}-{name.replace('.', '-')}-{int(time.time())}"
        words = ["systemd-run", "--scope", "--quiet", "--collect", unit, "--property=Delegate=yes", *words]
    return words


def start(lab: Lab, name: str) -> subprocess.Popen:
    """Start a machine's supervisor and return it: the machine is off once it has ended."""
    directory = lab.node_dir(name)
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "supervisor.log", "ab") as log:
        extra = {MARK: lab.tag(name), "PYTHONDONTWRITEBYTECODE": "1"}
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.Popen(
            command(lab, name), **streams, env=environment(**extra), cwd=lab.checkout, start_new_session=True
        )


def cgroup_dirs(lab: Lab, mounts: str, own: str) -> list[Path]:
    """Where the lab's control groups go on a host without systemd, from /proc/self/mountinfo and /proc/self/cgroup."""
    paths = {}
    for line in own.splitlines():
        _number, controllers, path = line.split(":", 2)
        paths[controllers] = path
    found = []
    for line in mounts.splitlines():
        before, after = line.split(" - ", 1)
        kind, _source, options = after.split(" ", 2)
        where = before.split()[4]
        if kind == "cgroup2":
            key = ""
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            key = "name=systemd"
        else:
            continue
        found.append(Path(where + paths.get(key, "/").rstrip("/"), f"gpufleet-lab{lab.number}"))
    return found


def own_cgroup_dirs(lab: Lab) -> list[Path]:
    return cgroup_dirs(
        lab,
        Path("/proc/self/mountinfo").read_text(encoding="utf-8"),
        Path("/proc/self/cgroup").read_text(encoding="utf-8"),
    )


def _own_cgroup(lab: Lab, name: str) -> None:
    if Path("/run/systemd/system").is_dir():
        return
    for directory in own_cgroup_dirs(lab):
        group = directory / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text(f"{os.getpid()}\n", encoding="ascii")


def remove_cgroups(lab: Lab, patience: float = 20) -> None:
    """Remove the lab's control groups, ending what may still be in them: a machine takes a moment to end with its
    supervisor.
    """
    deadline = time.monotonic() + patience
    while True:
        left = []
        for directory in own_cgroup_dirs(lab):
            for path, _directories, _files in os.walk(directory, topdown=False):
                try:
                    for pid in Path(path, "cgroup.procs").read_text(encoding="ascii").split():
                        os.kill(int(pid), signal.SIGKILL)
                    os.rmdir(path)
                except OSError:  # it has a process that is still ending, or a group below it has
                    left.append(path)
        if not left:
            return
        if time.monotonic() > deadline:
            raise LabError(f"control group {left[0]} does not empty although its processes were killed")
        time.sleep(0.1)


def specs(lab: Lab) -> list[dict]:
    """What each existing machine was made from: {machine, layers}."""
    found = [read_json(path) for path in sorted(lab.nodes.glob("*/spec.json"))]
    return [spec for spec in found if spec]


def _host_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace") if Path(path).exists() else ""


def identify(lab: Lab, machine: Machine, others: list[Machine], root: Path) -> None:
    """Make the fresh root this machine's."""
    keys = {
        "host_private": (lab.ssh / "hosts" / machine.name).read_text(encoding="ascii"),
        "host_public": (lab.ssh / "hosts" / f"{machine.name}.pub").read_text(encoding="ascii"),
        "user_public": (lab.ssh / "id_ed25519.pub").read_text(encoding="ascii"),
    }
    foreign = build.foreign_hosts(_host_text("/etc/hosts"), {os.uname().nodename})
    resolv = build.resolv_conf(_host_text("/etc/resolv.conf"), _host_text("/run/systemd/resolve/resolv.conf"))
    owners = {
        line.split(":")[0]: line.split(":")[2:4]
        for line in (root / "etc/passwd").read_text(encoding="utf-8").splitlines()
    }
    for file in build.identity(lab, machine, others, foreign, resolv, network.mtu(), keys):
        target = root / file.path
        target.unlink(missing_ok=True)
        uid, gid = (int(number) for number in owners[file.owner])
        if not target.parent.exists():
            target.parent.mkdir(parents=True, mode=0o700 if file.mode & 0o077 == 0 else 0o755)
            os.chown(target.parent, uid, gid)
        target.write_text(file.text, encoding="utf-8")
        target.chmod(file.mode)
        os.chown(target, uid, gid)
    image.use_own_mirrors(root, machine.suite)
    with layers.chroot_mounts(root):
        run("chroot", root, SIMULATOR, "init", *build.simulator_settings(machine))


def supervise(lab: Lab, name: str) -> int:
    """Be the supervisor of one machine until it is powered off."""
    spec = read_json(lab.node_dir(name) / "spec.json")
    if spec is None:
        raise LabError(f"no machine '{name}' in {lab.nodes}")
    machine = Machine(**spec["machine"])
    directory = lab.node_dir(name)
    _own_cgroup(lab, name)
    fresh = not (directory / "identified").exists()
    if fresh:
        for part in ("upper", "work"):
            shutil.rmtree(directory / part, ignore_errors=True)
    root = directory / "root"
    lower = [Path(path) for path in spec["layers"]]
    layers.mount(lower, directory / "upper", directory / "work", root)
    if fresh:
        identify(lab, machine, [Machine(**other["machine"]) for other in specs(lab)], root)
        (directory / "identified").touch()
    boots = quick = 0
    while True:
        boots += 1
        write_json(directory / "state.json", {"state": "running", "boots": boots, "supervisor": os.getpid()})
        began = time.monotonic()
        with open(directory / "console.log", "ab") as console:
            words = build.nspawn(lab, machine, root)
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
            code = child.wait()
        quick = quick + 1 if time.monotonic() - began < QUICK else 0
        if code == build.REBOOT and quick < 5:
            continue
        state = "off" if code == 0 else "failed"
        write_json(directory / "state.json", {"state": state, "boots": boots, "code": code})
        return 0 if code == 0 else 1
