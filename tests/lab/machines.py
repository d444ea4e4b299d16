# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring machines up and down, and tell how they are."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import image, layers, network, processes, supervisor
from . import machine as build
from .common import LabError, elapsed, environment, locked, need_root, read_json, run, say, write_json, write_whole
from .config import CHECKOUT, Lab
from .inventory import Machine, machines, read, selected

DEFAULT_INVENTORY = CHECKOUT / "inventories/lab"
PATIENCE = 600.0  # seconds a machine has to come up in
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def existing(lab: Lab) -> dict[str, Machine]:
    return {spec["machine"]["name"]: Machine(**spec["machine"]) for spec in supervisor.specs(lab)}


def chosen(lab: Lab, names: list[str]) -> list[Machine]:
    """The machines of these names, or all of the lab's."""
    have = existing(lab)
    unknown = [name for name in names if name not in have]
    if unknown:
        raise LabError(
            f"no machine {', '.join(unknown)} in this lab; there is: {', '.join(have) or 'none (run up first)'}"
        )
    return [have[name] for name in names] if names else list(have.values())


def suites(inventory: Path) -> list[str]:
    """The suites that an inventory's machines are of, each once."""
    return list(dict.fromkeys(machine.suite for machine in machines(read(inventory))))


def running(lab: Lab, name: str) -> bool:
    return bool(processes.tagged(lab.tag(name), whole=True))


def ssh_keys(lab: Lab, wanted: list[Machine]) -> None:
    """One user key for the lab and one host key for each machine name; they live as long as the checkout's .lab."""
    (lab.ssh / "hosts").mkdir(parents=True, exist_ok=True)
    if not lab.state_link.exists():
        lab.state_link.symlink_to(lab.state, target_is_directory=True)
    lab.ssh.chmod(0o700)
    for path, comment in [
        (lab.key, "gpufleet-lab"),
        *((lab.ssh / "hosts" / machine.name, machine.name) for machine in wanted),
    ]:
        if not path.with_name(path.name + ".pub").exists():
            path.unlink(missing_ok=True)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path)


def _write_ssh_files(lab: Lab) -> None:
    found = {
        machine: (lab.ssh / "hosts" / f"{machine.name}.pub").read_text(encoding="ascii")
        for machine in existing(lab).values()
    }
    write_whole(lab.known_hosts, build.known_hosts(lab, found))
    write_whole(lab.ssh_config, build.ssh_config(lab, list(found)))


def system_state(lab: Lab, name: str) -> str:
    """What systemd in the machine says of itself: running, degraded, starting, ... or 'off' and 'unreachable'."""
    leader = processes.leader(lab.tag(name))
    if leader is None:
        return "off"
    words = build.enter(leader, ["systemctl", "is-system-running"])
    try:
        return (
            subprocess.run(
                words, capture_output=True, text=True, timeout=20, env=environment(), check=False
            ).stdout.strip()
            or "starting"
        )
    except subprocess.TimeoutExpired:
        return "unreachable"


def failed_units(lab: Lab, name: str) -> list[str]:
    leader = processes.leader(lab.tag(name))
    if leader is None:
        return []
    done = run(
        *build.enter(leader, ["systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager"]),
        check=False,
    )
    return [line.split()[0] for line in done.stdout.splitlines() if line.split()]


def answers(lab: Lab, machine: Machine) -> bool:
    """Whether one can log in and become root, as Ansible will."""
    words = build.ssh(lab, machine, ["sudo", "-n", "true"])
    try:
        return subprocess.run(words, capture_output=True, timeout=60, env=environment(), check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else ""


def wait_for(lab: Lab, machine: Machine, keeper: subprocess.Popen, start: float) -> str:
    """Wait until a machine has booted and answers over ssh, or its supervisor has ended; return its state."""
    directory = lab.node_dir(machine.name)
    deadline = time.monotonic() + PATIENCE
    state = "off"
    while time.monotonic() < deadline:
        state = system_state(lab, machine.name)
        if state in ("running", "degraded") and answers(lab, machine):
            units = failed_units(lab, machine.name) if state == "degraded" else []
            say(
                f"{machine.name} is {state} after {elapsed(start)}"
                + (f": failed units {', '.join(units)}" if units else "")
            )
            return state
        if keeper.poll() is not None:
            break
        time.sleep(0.3)
    logs = _tail(directory / "supervisor.log") or _tail(directory / "console.log")
    raise LabError(f"{machine.name} did not come up (state: {state}); its logs are in {directory}:\n{logs}")


def _start(lab: Lab, wanted: list[Machine]) -> None:
    start = time.monotonic()
    keepers = [supervisor.start(lab, machine.name) for machine in wanted]
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=8)
    try:
        waiting = [pool.submit(wait_for, lab, *each, start) for each in zip(wanted, keepers, strict=True)]
        problems = [str(error) for error in (each.exception() for each in waiting) if error]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interruption does not wait for the machines
    if problems:
        raise LabError("\n".join(problems))


def images(lab: Lab, wanted: list[Machine]) -> dict[str, list[str]]:
    """The image's directories for each suite that machines are of.

    What is missing is built first; a suite that none asks for is not.
    """
    suites = dict.fromkeys(machine.suite for machine in wanted)
    return {suite: [str(path) for path in layers.roots(image.ensure(lab, suite), lab.images)] for suite in suites}


def up(lab: Lab, inventory: Path, names: list[str]) -> list[Machine]:
    """Make and start the machines of an inventory, or those with these names, that are not running yet."""
    need_root()
    wanted = machines(read(inventory), {name: machine.host_number for name, machine in existing(lab).items()})
    wanted = selected(wanted, inventory, names)
    parts = images(lab, wanted)
    with locked(lab.state / "lock", "starts or stops machines"):
        have = existing(lab)
        for machine in wanted:
            if machine.name in have and have[machine.name] != machine and running(lab, machine.name):
                raise LabError(
                    f"{machine.name} is running with other hardware or another address than {inventory} says: "
                    f"run 'down' first"
                )
        ssh_keys(lab, wanted)
        network.up(lab)
        fresh = [machine for machine in wanted if not running(lab, machine.name)]
        for machine in fresh:
            _specify(lab, machine, parts[machine.suite])
        _write_ssh_files(lab)
        if fresh:
            say(f"starting {', '.join(machine.name for machine in fresh)}")
            _start(lab, fresh)
        kept = [machine.name for machine in wanted if machine not in fresh]
        if kept:
            say(f"already running: {', '.join(kept)}")
    return wanted


def _specify(lab: Lab, machine: Machine, parts: list[str]) -> None:
    """Say what a machine is made from.

    One that was powered off keeps its disk, unless it is to be another machine now.
    """
    path = lab.node_dir(machine.name) / "spec.json"
    before = read_json(path)
    whole = (path.parent / "identified").exists()
    if (
        whole
        and before
        and before["machine"] == machine.as_dict()
        and all(Path(part).is_dir() for part in before["layers"])
    ):
        return
    _wipe(lab, machine.name)
    write_json(path, {"machine": machine.as_dict(), "layers": parts})


def _wipe(lab: Lab, name: str) -> None:
    shutil.rmtree(lab.node_dir(name), ignore_errors=True)


def reset(lab: Lab, names: list[str]) -> None:
    """Give machines a fresh disk from the present image."""
    need_root()
    parts = images(lab, chosen(lab, names))
    with locked(lab.state / "lock", "starts or stops machines"):
        doomed = chosen(lab, names)
        for machine in doomed:
            processes.kill(lab.tag(machine.name), whole=True)
            network.unplug(build.port(lab, machine))
            _wipe(lab, machine.name)
            write_json(
                lab.node_dir(machine.name) / "spec.json", {"machine": machine.as_dict(), "layers": parts[machine.suite]}
            )
        network.up(lab)
        _write_ssh_files(lab)
        _start(lab, doomed)


def own_mounts(lab: Lab, mounts: str) -> list[str]:
    """Mount points below the lab's state directory, deepest first, from /proc/self/mountinfo."""
    places = [line.split()[4].replace("\\040", " ") for line in mounts.splitlines()]
    return sorted((place for place in places if place.startswith(f"{lab.nodes}/")), reverse=True)


def down(lab: Lab) -> None:
    """End all machines and remove every trace of the lab but its keys and reports."""
    need_root()
    with locked(lab.state / "lock", "starts or stops machines"):
        names = sorted(path.name for path in lab.nodes.iterdir()) if lab.nodes.is_dir() else []
        for socket in Path("/").glob(build.control_path(lab, "*").lstrip("/")):
            run("ssh", "-F", "/dev/null", "-O", "exit", "-S", socket, "none", check=False)
            socket.unlink(missing_ok=True)
        processes.kill(lab.tag(), whole=False)
        for place in own_mounts(lab, Path("/proc/self/mountinfo").read_text(encoding="utf-8")):
            run("umount", "--lazy", place)
        network.down(lab)
        supervisor.remove_cgroups(lab)
        shutil.rmtree(lab.nodes, ignore_errors=True)
        if lab.nodes.exists():
            raise LabError(f"{lab.nodes} could not be removed")
        for path in (lab.known_hosts, lab.ssh_config, lab.temporary):
            path.unlink(missing_ok=True)
    say(f"down: {', '.join(names)}" if names else "nothing was up")


@contextlib.contextmanager
def temporary(lab: Lab, keep: bool):
    """Remove the lab at the end, however that comes about, unless it is to be kept or there were machines before.

    What a run left that was killed is removed first.
    """
    need_root()
    if lab.temporary.exists():
        say("removing what an earlier run left that was killed")
        down(lab)
    if keep or existing(lab):
        yield
        return
    write_whole(lab.temporary, "")
    try:
        yield
    finally:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
        try:
            down(lab)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def entered(lab: Lab, name: str, words: list[str]) -> list[str]:
    """The command that runs another one in a machine as root."""
    (machine,) = chosen(lab, [name])
    leader = processes.leader(lab.tag(machine.name))
    if leader is None:
        raise LabError(f"{name} is not running: see 'python3 -m tests.lab status'")
    return build.enter(leader, words)


def execute(lab: Lab, name: str, words: list[str]) -> int:
    """Run a command in a machine as root and hand its exit status on."""
    command = entered(lab, name, words)
    sys.stdout.flush()
    return subprocess.run(command, env=environment(), check=False).returncode


def output(lab: Lab, name: str, words: list[str]) -> str:
    """What a command prints in a machine, where it runs as root; nothing if it fails."""
    done = subprocess.run(entered(lab, name, words), env=environment(), check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def status(lab: Lab) -> list[dict]:
    """How each machine is."""
    found = []
    for machine in existing(lab).values():
        told = read_json(lab.node_dir(machine.name) / "state.json", {})
        state = (
            system_state(lab, machine.name)
            if running(lab, machine.name)
            else "failed"
            if told.get("state") == "failed"
            else "off"
        )
        entry = {"name": machine.name, "address": lab.address(machine.host_number), "state": state}
        found.append(
            entry
            | {"suite": machine.suite, "model": machine.model, "gpus": machine.gpus, "boots": told.get("boots", 0)}
        )
    return found
