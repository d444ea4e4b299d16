# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole simulated node below a directory: what the collection's own readers find there, and the verdict about it.

NVML is the simulator's library, called through the binding; the kernel log, /sys, /proc, /dev and the packages are
files below the directory, and modinfo and dpkg-query are the real ones. Only systemctl, dkms and the daemons' own
--version cannot be asked below a directory: they are answered for here with the text that they print. Nothing that the
readers make of it is made up.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import stat
import sys
import time
import types
import unittest.mock

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver import reading
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import hung
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.runner import Runner
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import session, snapshot
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import run as smoke_run
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import cutoff, wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

DRIVER, OLDER, NEWER = "580.95.05", "570.172.08", "590.48.01"
NODE, NOW, NCCL = "node-1", "2026-03-01T12:00:00Z", [350.0, 351.0, 349.5, 350.5, 350.2]
DATA = pathlib.Path(_health.__file__).resolve().parents[2] / "plugin_utils" / "_data"
POLICY = json.loads((DATA / "health_policy.json").read_text())
TABLES = {name: json.loads((DATA / (name + ".json")).read_text()) for name in ("boards", "xid", "sxid")}
LIBRARIES = "usr/lib/x86_64-linux-gnu/nvidia/current"
# What systemd says of the units that run on such a node: LoadState, ActiveState, SubState, Result, UnitFileState.
RUNS = ("loaded", "active", "running", "success", "enabled")
PACKAGES = ("nvidia-driver-bin", "nvidia-kernel-dkms", "libnvidia-ml1", "libcuda1")
PARAGRAPH = (
    "Package: %s\nStatus: %s\nPriority: optional\nSection: non-free/kernel\nMaintainer: nobody\nArchitecture: amd64\n"
    "Source: nvidia-graphics-drivers\nVersion: %s-1\nDescription: part of the driver\n"
)
PORT = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
IB = "sys/class/infiniband/mlx5_0/ports/1/"
# Boards of these models work with the open kernel modules alone.
OPEN_ONLY = ("b200", "rtx-pro-6000")
WITH_SWITCHES = ("h100-sxm", "h200", "b200")
# Their switches are managed through adapters, by a program that the fabric manager starts.
WITH_MANAGERS = ("b200",)
SUBNET_MANAGER, SUBNET_PROCESS = "opt/nvidia/nvlsm/sbin/nvlsm", "proc/812/comm"


def gpusim():
    """The simulator's command, as a module of this process."""
    if "gpusim.cli" not in sys.modules:
        sys.path.insert(0, str(simnode.SIM))
        try:
            importlib.import_module("gpusim.cli")
        finally:
            sys.path.remove(str(simnode.SIM))
    return sys.modules["gpusim.cli"]


class Compiled(importlib.machinery.SourceFileLoader):
    """Loads a module that was compiled before: every reading is a process of its own, and would compile the binding
    again.
    """

    def __init__(self, fullname, path):
        super().__init__(fullname, path)
        self.compiled = super().get_code(fullname)

    def get_code(self, fullname):
        return self.compiled


@functools.lru_cache(maxsize=None)
def loader(version):
    return Compiled("pynvml", str(wheels.path(version) / "pynvml.py"))


def binding(library, version=wheels.VERSIONS[-1]):
    """A loader of the binding, to be called in the child: the library of one node is loaded in no other process."""
    compiled = loader(version)

    def load(*_archive):
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        with open("/proc/self/maps", encoding="utf-8") as stream:
            others = {line.split()[-1] for line in stream if os.path.basename(library) in line} - {
                os.path.realpath(library)
            }
        if others:  # the binding finds by its name the one that was loaded first
            raise RuntimeError(
                "this process has loaded %s before: a test has to load the library in a process of its own"
                % ", ".join(sorted(others))
            )
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("pynvml", compiled))
        sys.modules["pynvml"] = module
        compiled.exec_module(module)
        return module, {"version": version, "source": "shipped"}

    return load


def copy_file(source, target):
    """A copy of a file; of a device file, another one of the same number."""
    about = os.lstat(source)
    if not stat.S_ISCHR(about.st_mode):
        return shutil.copy2(source, target)
    os.mknod(target, about.st_mode, about.st_rdev)
    os.chmod(target, stat.S_IMODE(about.st_mode))
    return target


class World:
    """One node, healthy at first."""

    def __init__(self, root, build, templates, model="h100-sxm", gpus=2, driver=DRIVER):
        self.node = simnode.Node(root, build, templates, model, gpus, NODE)
        self.root = pathlib.Path(str(root))
        self.model, self.driver = model, driver
        self.units = {"nvidia-persistenced.service": RUNS}
        self.dkms = "installed"
        self.daemons = {"nv-fabricmanager": driver}
        self.broken = {}
        self.deadline_s = 30
        self.hung_window_s = hung.WINDOW_S
        self.free_bytes = {}  # by path, of file systems that are all but full; None cannot be read

    # ---- making the node ----

    def build(self):
        node = self.node
        node.kernel()
        self.modules(self.driver)
        node.library(self.driver)
        node.firmware(self.driver)
        node.write(LIBRARIES + "/libcuda.so." + self.driver, "")
        os.symlink("libcuda.so." + self.driver, str(self.root / LIBRARIES / "libcuda.so.1"))
        shutil.copy(str(node.build / "libcuda.so.1"), str(self.root / "usr/local/lib/libcuda.so.1"))
        if self.model in WITH_SWITCHES:
            self.units["nvidia-fabricmanager.service"] = RUNS
            node.write("usr/bin/nv-fabricmanager", "")
        self.packages(dict.fromkeys(PACKAGES, self.driver))
        self.sim("boot")
        if self.model in WITH_MANAGERS:
            node.write(SUBNET_MANAGER, "")
            node.write(SUBNET_PROCESS, "nvlsm\n")
            node.write(os.path.dirname(SUBNET_PROCESS) + "/status", "Uid:\t0\t0\t0\t0\n")
        for name, text in PORT.items():
            self.write(IB + name, text + "\n")
        self.write(IB + "counters/link_downed", "0\n")
        self.write("sys/module/nvidia_peermem/initstate", "live\n")
        self.write_settings()
        return self

    def write_settings(self):
        """What somebody set, and the driver forgets when it goes."""
        self.write(
            "run/gpusim/settings.ini", "".join("[gpu %d]\npersistence = 1\n" % index for index in range(self.gpus))
        )

    def modules(self, version, licence=None):
        """The kernel modules on disk."""
        self.node.module(version, licence=licence or ("Dual MIT/GPL" if self.model in OPEN_ONLY else "NVIDIA"))

    def packages(self, versions, status="install ok installed"):
        self.write(
            "var/lib/dpkg/status",
            "\n".join(PARAGRAPH % (name, status, version) for name, version in sorted(versions.items())),
        )

    @property
    def gpus(self):
        return self.node.hardware[1]

    def copy(self, root):
        """The same node in another directory; what was started on this one is not on the other."""
        other = copy.copy(self)
        shutil.copytree(str(self.root), str(root), symlinks=True, copy_function=copy_file)
        other.node = copy.copy(self.node)
        other.node.root = other.root = pathlib.Path(str(root))
        other.node.started = []
        other.units, other.daemons, other.broken = dict(self.units), dict(self.daemons), dict(self.broken)
        other.free_bytes = dict(self.free_bytes)
        return other

    # ---- changing it ----

    @contextlib.contextmanager
    def environment(self):
        with unittest.mock.patch.dict(os.environ, {"GPUSIM_ROOT": str(self.root)}):
            yield

    def sim(self, *words, command="gpusim"):
        """One of the simulator's commands; what it printed."""
        out, err = io.StringIO(), io.StringIO()
        with self.environment(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            rc = gpusim().run(command, list(words))
        assert rc == 0, err.getvalue()
        return out.getvalue()

    def unload(self):
        self.sim("-r", "nvidia_uvm", "nvidia_drm", command="modprobe")

    def load(self):
        for name in ("nvidia_uvm", "nvidia_drm"):
            self.sim(name, command="modprobe")

    def write(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def remove(self, path):
        place = self.root / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(str(place))
        else:
            place.unlink()

    def unreadable(self, path):
        """A link to itself in the place of a file or directory: it is there, and not even root can read it."""
        if os.path.lexists(str(self.root / path)):
            self.remove(path)
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.basename(path), str(self.root / path))

    def uuid(self, gpu):
        return self.node_value(gpu, "uuid")

    def address(self, gpu):
        return gpusim().state.sysfs_address(self.node_value(gpu, "pci"))

    def node_value(self, gpu, key):
        with self.environment():
            return gpusim().state.gpu_value(gpu, key)

    # ---- programs ----

    def __call__(self, argv, timeout=60):
        """Runs a command as the readers do."""
        program = os.path.basename(argv[0])
        if program in self.broken:
            return self.broken[program], "", "%s: broken" % program
        if program in ("modinfo", "dpkg-query"):
            return Runner()(argv, timeout)
        if program == "systemctl":
            return 0, self.systemctl(argv), ""
        if program == "dkms":
            return 0, "nvidia-current/%s, %s, x86_64: %s\n" % (self.driver, simnode.RELEASE, self.dkms), ""
        if program in self.daemons:
            return (
                (0, "%s version is : %s\n" % (program, self.daemons[program]), "")
                if self.daemons[program]
                else (1, "", "")
            )
        return 127, "", "%s: command not found" % program

    def systemctl(self, argv):
        blocks = []
        for name in [word for word in argv if word.endswith(".service") and "*" not in word]:
            state = self.units.get(name, ("not-found", "inactive", "dead", "success", ""))
            if state is not None:
                blocks.append(
                    "Id=%s\nNames=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nResult=%s\nUnitFileState=%s\n"
                    % ((name, name) + state)
                )
        return "\n".join(blocks)

    # ---- reading ----

    @staticmethod
    def cut_off_in_a_hang():
        """Let the deadline of a child pass when the child hangs, and not before."""
        return unittest.mock.patch.object(session, "finish", cutoff.finish_when(session.finish))

    @property
    def library(self):
        return str(self.root / "usr/local/lib/libnvidia-ml.so.1")

    @property
    def stuck_file(self):
        return str(self.root / "stuck")

    def reading(self, watermark=None, more=()):
        """What the collection reads on this node; MORE is what snapshot.take takes."""
        uname = types.SimpleNamespace(release=simnode.RELEASE, machine="x86_64")
        with self.environment():
            taken = snapshot.take(
                deadline_s=self.deadline_s, stuck_file=self.stuck_file, load=binding(self.library), more=more
            )
        # The kernel that runs is the one thing that no file below the directory says.
        with unittest.mock.patch.object(
            reading.audit, "read", functools.partial(reading.audit.read, uname=lambda: uname)
        ), unittest.mock.patch.object(
            hung,
            "read_hung_tasks",
            functools.partial(hung.read_hung_tasks, window_s=self.hung_window_s, sleep=self.short_sleep),
        ), unittest.mock.patch.object(
            reading.system, "read", functools.partial(reading.system.read, statvfs=self.statvfs)
        ):
            return reading.gather_reading(taken, str(self.root), self, watermark)

    def statvfs(self, path):
        """As os.statvfs(): the file systems of this machine are not the node's."""
        inside = "/" + os.path.relpath(path, str(self.root))
        free = next((size for start, size in self.free_bytes.items() if inside.startswith(start)), 1 << 40)
        if free is None:
            raise OSError("Input/output error")
        return types.SimpleNamespace(f_bavail=free // 4096, f_frsize=4096, f_files=1 << 22, f_favail=1 << 21, f_flag=0)

    def short_sleep(self, seconds):
        time.sleep(min(seconds, self.hung_window_s))

    def at_work(self, level="t0", nccl=tuple(NCCL), **options):
        """What gpu_smoke measures on this node, with what a caller says of NCCL; the share of a GPU that hangs passes
        when it does.
        """
        with self.environment(), self.cut_off_in_a_hang():
            document, dummy = smoke_run.take(
                level=level,
                library_path=str(self.root / "usr/local/lib/libcuda.so.1"),
                load=binding(self.library),
                stuck_file=self.stuck_file,
                runner=self,
                **options,
            )
        if nccl is not None:
            document["nccl"] = {
                key: {"unit": "GB/s", "samples": list(nccl), "parameters": {}, "error": None}
                for key in ("node", "fleet")
            }
        return document

    def close(self):
        # What a fault made unreadable cannot be cleared either; the processes that it started are ended all the same.
        with contextlib.suppress(AssertionError, OSError):
            self.sim("clear")
        self.node.close()


def baseline_of(taken, smoke=None):
    return _health.baseline_of(taken, NODE, NOW, smoke)


def judge(taken, baseline=None, phase="post", rules=None, expect=None, smoke=None, expected=DRIVER, table=None):
    """The verdict of the real judges."""
    return _health.evaluate(
        taken, baseline, dict(POLICY, **(rules or {})), TABLES, expected, phase, NODE, NOW, expect, smoke, table
    )
