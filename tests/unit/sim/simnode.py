# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated node in a directory: what the tests of the simulator work on. No root and no machine needed."""

from __future__ import annotations

import atexit
import hashlib
import json
import lzma
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

SIM = pathlib.Path(__file__).resolve().parents[2] / "sim"
RELEASE = "6.1.0-50-amd64"
OLD, NEW = "535.216.03", "535.261.03"
FILES = {
    "nvidia": "nvidia-current",
    "nvidia_modeset": "nvidia-current-modeset",
    "nvidia_drm": "nvidia-current-drm",
    "nvidia_uvm": "nvidia-current-uvm",
}

LIMIT_S = 600

PRELUDE = """
import ctypes, json
import pynvml as n

def rc(function, *arguments):
    try:
        function(*arguments)
    except n.NVMLError as error:
        return error.value
    return 0

def value(function, *arguments):
    try:
        return function(*arguments)
    except n.NVMLError as error:
        return "rc %d" % error.value

def text(function, *arguments):
    answer = value(function, *arguments)
    return answer.decode() if isinstance(answer, bytes) else answer

def handle(index=0):
    return n.nvmlDeviceGetHandleByIndex(index)

def field(number, index=0, scope=0):
    item = n.nvmlDeviceGetFieldValues(handle(index), [(number, scope)])[0]
    return item.value.uiVal if item.nvmlReturn == 0 else "rc %d" % item.nvmlReturn
"""


def run(command, **options):
    """Run a program to its end, with its output as text. It may fail, and only a mistake takes as long as LIMIT_S."""
    usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        command, **{**usual, "universal_newlines": True, "timeout": LIMIT_S, "check": False, **options}
    )


def wait_for(condition, seconds=LIMIT_S):
    """Wait until it is so, which takes a moment."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def signals(pid, kind):
    """Signals of a process, as the kernel counts them in /proc/PID/status: SigBlk, those it holds back, or ShdPnd,
    those that wait for it.
    """
    with open("/proc/%d/status" % pid, encoding="ascii") as stream:
        mask = int(next(line.split()[1] for line in stream if line.startswith(kind + ":")), 16)
    return {number for number in range(1, 65) if mask >> number - 1 & 1}


def wait_for_a_hang(pid):
    """Wait until a process is in a call that never ends: only there it holds all signals back that it can."""
    wait_for(lambda: {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= signals(pid, "SigBlk"))


def built():
    """The simulator's compiled parts, compiled once for each state of their sources."""
    sources = hashlib.sha256()
    for path in [SIM / "build.sh", *sorted((SIM / "src").iterdir())]:
        sources.update(b"%s\0%s\0" % (path.name.encode(), path.read_bytes()))
    place = wheels.cache() / "sim-tests" / sources.hexdigest()[:32]
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=str(place.parent))
        subprocess.run([str(SIM / "build.sh"), fresh], check=True, timeout=LIMIT_S)
        try:
            os.rename(fresh, str(place))
        except OSError:
            shutil.rmtree(fresh)  # another test run was first
    return place


def functions():
    """The functions of the library by name, with the first driver branch that has each."""
    rows = re.findall(rb"(nvml\w+) (\d{3})\n", (built() / "libnvidia-ml.so.1").read_bytes())
    return {name.decode(): int(first) for name, first in rows}


def module_image(version, release, licence="NVIDIA", name="nvidia"):
    """The bytes of a kernel module as far as modinfo reads it: an ELF file with a .modinfo section."""
    info = "".join(
        "%s=%s\0" % item
        for item in (
            ("license", licence),
            ("version", version),
            ("name", name),
            ("vermagic", release + " SMP preempt mod_unload modversions "),
        )
    ).encode()
    names = b"\0.modinfo\0.shstrtab\0"
    info_at = 64
    names_at = info_at + len(info)
    headers_at = (names_at + len(names) + 7) // 8 * 8
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, headers_at, 0, 64, 0, 0, 64, 3, 2)
    section = struct.Struct("<IIQQQQIIQQ")
    table = section.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    table += section.pack(1, 1, 2, 0, info_at, len(info), 0, 0, 1, 0)
    table += section.pack(10, 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    body = header + info + names
    return body + bytes(headers_at - len(body)) + table


class Server:
    """The process that runs commands and programs for the tests (server.py); it is started when it is first asked."""

    def __init__(self):
        self.process = None
        self.one_at_a_time = threading.Lock()

    def start(self):
        command = [sys.executable, str(pathlib.Path(__file__).with_name("server.py")), str(SIM)]
        # A session of its own: whoever gives up waiting ends all that it has started.
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=str(wheels.cache() / "pycache"))
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            start_new_session=True,
        )

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def run(self, words, environment, **request):
        """Run it to its end. It does what no test waits for, so nothing but a mistake takes as long as LIMIT_S."""
        with self.one_at_a_time, tempfile.NamedTemporaryFile("r", encoding="utf-8") as out, tempfile.NamedTemporaryFile(
            "r", encoding="utf-8"
        ) as err:
            if self.process is None or self.process.poll() is not None:
                self.start()
            request.update(environment=environment, stdout=out.name, stderr=err.name)
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
                self.close()
                raise subprocess.TimeoutExpired(words, LIMIT_S, out.read(), err.read())
            return subprocess.CompletedProcess(words, int(self.process.stdout.readline()), out.read(), err.read())


SERVER = Server()
atexit.register(SERVER.close)


class Node:
    """One directory that the simulator takes for the root of a node."""

    def __init__(self, root, build, templates, model="h100-sxm", gpus=None, name="node-1"):
        self.root = pathlib.Path(str(root))
        self.build = build
        self.templates = templates
        self.hardware = (model, gpus, name)
        self.prepared = False
        self.started = []

    def prepare(self):
        """Installs the library and describes the hardware, once, when the node is first used."""
        if self.prepared:
            return
        self.prepared = True
        library = self.root / "usr/local/lib"
        (library / "gpusim").mkdir(parents=True)
        for target in (library, library / "gpusim"):
            shutil.copy(str(self.build / "libnvidia-ml.so.1"), str(target / "libnvidia-ml.so.1"))
        model, gpus, name = self.hardware
        self.sim("init", "--model", model, "--node", name, *([] if gpus is None else ["--gpus", str(gpus)]))

    # ---- what is installed ----

    def kernel(self, release=RELEASE):
        self.write("boot/vmlinuz-" + release, "")

    def module(
        self,
        version=OLD,
        release=RELEASE,
        names=tuple(FILES),
        licence="NVIDIA",
        magic=None,
        compress=False,
        folder="updates/dkms",
    ):
        self.prepare()
        for name in names:
            data = module_image(version, magic or release, licence, name)
            place = self.root / "lib/modules" / release / folder / (FILES[name] + (".ko.xz" if compress else ".ko"))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(lzma.compress(data, check=lzma.CHECK_CRC32) if compress else data)
        base = self.root / "lib/modules" / release
        paths = sorted(str(path.relative_to(base)) for path in base.rglob("*.ko*"))
        (base / "modules.dep").write_text("".join(path + ":\n" for path in paths))

    def library(self, version):
        """Debian's layout: the file in nvidia/current, a link of the soname beside it. None takes it away."""
        self.prepare()
        place = self.root / "usr/lib/x86_64-linux-gnu/nvidia/current"
        shutil.rmtree(str(place), ignore_errors=True)
        if version:
            place.mkdir(parents=True)
            (place / ("libnvidia-ml.so." + version)).write_bytes(b"")
            os.symlink("libnvidia-ml.so." + version, str(place / "libnvidia-ml.so.1"))

    def firmware(self, version):
        self.write("lib/firmware/nvidia/%s/gsp_tu10x.bin" % version, "")

    def write(self, name, text):
        self.prepare()
        place = self.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def read(self, name):
        return (self.root / name).read_text()

    def booted(self, version=OLD):
        """The usual state: driver and library of one version, booted.

        A fresh node is copied from one that did it before.
        """
        key = "-".join(str(part) for part in self.hardware + (version,))
        template = self.templates / key
        fresh = not self.prepared
        if fresh and template.exists():
            shutil.copytree(str(template), str(self.root), symlinks=True)
            self.prepared = True
            return self
        self.kernel()
        self.module(version)
        self.library(version)
        self.sim("boot")
        if fresh:
            shutil.copytree(str(self.root), str(template), symlinks=True)
        return self

    # ---- running things ----

    @property
    def environment(self):
        result = {key: text for key, text in os.environ.items() if not key.startswith(("GPUSIM_", "PYTHON", "LD_"))}
        # What Python compiled is kept for the next process, and not beside the sources.
        result.update(
            GPUSIM_ROOT=str(self.root),
            LD_LIBRARY_PATH=str(self.root / "usr/local/lib"),
            LC_ALL="C",
            PYTHONPYCACHEPREFIX=str(wheels.cache() / "pycache"),
        )
        return result

    def tool(self, name, *arguments, check=True):
        self.prepare()
        done = SERVER.run([name, *arguments], self.environment, name=name, arguments=list(arguments))
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def sim(self, *arguments, **keywords):
        return self.tool("gpusim", *arguments, **keywords)

    def client(self, code, wheel=wheels.VERSIONS[-1]):
        """Arguments and environment of a process that has run the prelude and initialized NVML."""
        environment = self.environment
        environment["PYTHONPATH"] = str(wheels.path(wheel))
        return [sys.executable, "-c", PRELUDE + code], environment

    def python(self, code, wheel=wheels.VERSIONS[-1]):
        done = SERVER.run(
            ["python3", "-c", code],
            self.environment,
            code=PRELUDE + code,
            binding=str(wheels.path(wheel)),
            library=str(self.root / "usr/local/lib/libnvidia-ml.so.1"),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ask(self, expression, wheel=wheels.VERSIONS[-1]):
        """The value of an expression after nvmlInit()."""
        return self.python("n.nvmlInit()\nprint(json.dumps(%s))" % expression, wheel)

    def init_rc(self, wheel=wheels.VERSIONS[-1]):
        return self.python("print(json.dumps(rc(n.nvmlInit)))", wheel)

    def persistenced(self, *arguments):
        done = run([str(self.build / "nvidia-persistenced")] + list(arguments), env=self.environment)
        if done.returncode == 0 and self.pid_file.exists():
            self.started.append(int(self.pid_file.read_text()))
        return done

    @property
    def pid_file(self):
        return self.root / "run/nvidia-persistenced/nvidia-persistenced.pid"

    def close(self):
        if (self.root / "run/gpusim/processes.ini").exists():
            self.sim("clear", check=False)
        for pid in self.started:
            try:
                with open("/proc/%d/comm" % pid, encoding="ascii") as stream:
                    if stream.read().startswith("nvidia-persiste"):
                        os.kill(pid, signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue
