# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers that the real podman starts with devices of CDI: what each sees is what NVML tells, and which devices
there are is what the collection reads of the same files. GPUs are simulated, and nvidia-ctk is the stand-in of the lab.
"""

from __future__ import annotations

import os
import pathlib
import re
import resource
import shutil
import subprocess

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import cdi
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._containers import containernode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._driver.test_system import (
    CDI_FILES,
    LIBRARY,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._mig.mignode import everywhere, mig
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a container with device nodes needs root"),
]

# The directories of the node that take their place in the machine's, for podman alone.
PLACES = ("dev", "etc", "run", "var/lib", "usr/lib", "usr/local/lib")
# Prints the GPUs and MIG devices that NVML tells in the container, and the device files that it has.
CLIENT = r"""
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    struct dirent *entry;
    DIR *dev = opendir("/dev");
    while ((entry = readdir(dev)))
        if (!strncmp(entry->d_name, "nvidia", 6) || entry->d_name[0] == 'g')
            printf("/dev/%s\n", entry->d_name);
    void *library = dlopen("/usr/local/lib/libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        return 0;
    int (*init)(void) = dlsym(library, "nvmlInit_v2");
    int (*count)(unsigned *) = dlsym(library, "nvmlDeviceGetCount_v2");
    int (*handle)(unsigned, void **) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*mig)(void *, unsigned, void **) = dlsym(library, "nvmlDeviceGetMigDeviceHandleByIndex");
    int (*uuid)(void *, char *, unsigned) = dlsym(library, "nvmlDeviceGetUUID");
    unsigned gpus;
    char text[96];
    void *gpu, *device;
    if (init() || count(&gpus))
        return 2;
    for (unsigned number = 0; number < gpus; number++) {
        handle(number, &gpu);
        if (!uuid(gpu, text, sizeof text))
            puts(text);
        for (unsigned slice = 0; slice < 7; slice++)
            if (!mig(gpu, slice, &device) && !uuid(device, text, sizeof text))
                puts(text);
    }
    return 0;
}
"""
# In a mount namespace of its own: crun refuses a machine with both versions of control groups.
START = """set -e
root=$1; work=$2; shift 2
for place in %s; do
    mkdir -p "$root/$place" "$work/$place"
    mount -t overlay overlay -o "lowerdir=/$place,upperdir=$root/$place,workdir=$work/$place" "/$place"
done
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
exec podman "$@"
""" % " ".join(PLACES)


class Podman:
    """podman on the machine as a simulated node would have it."""

    def __init__(self, place, root):
        assert shutil.which("podman"), "podman is not on this machine: install tests/tools/host-packages-full.txt"
        self.place, self.root = place, pathlib.Path(str(root))
        self.image = place / "image"
        (self.image / "bin").mkdir(parents=True)
        for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr/local/lib", "var"):
            (self.image / name).mkdir(parents=True)
        (place / "client.c").write_text(CLIENT)
        subprocess.run(["cc", "-o", str(self.image / "bin/client"), str(place / "client.c"), "-ldl"], check=True)
        library = str(simnode.built() / "libnvidia-ml.so.1")
        needed = subprocess.run(["ldd", str(self.image / "bin/client"), library], capture_output=True, text=True).stdout
        for path in set(re.findall(r"(/\S+\.so\S*) \(", needed)):
            target = self.image / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, str(target))

    def run(self, *devices):
        """(exit status, lines) of a container with these devices."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", START, "sh", str(self.root), str(self.place / "work")]
            + ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "run", "--rm", "--network", "none"]
            + ["--cgroups", "disabled", "--ulimit", "nofile=%d:%d" % (files, files), "--ulimit", "nproc=1024:1024"]
            + ["--env", "LD_LIBRARY_PATH=/usr/local/lib"]
            + [word for device in devices for word in ("--device", device)]
            + ["--rootfs", str(self.image), "/bin/client"],
            capture_output=True,
            text=True,
        )
        return done.returncode, sorted(done.stdout.split()), done.stderr


def make_device(root, name, number):
    path = pathlib.Path(str(root)) / "dev" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(str(path), 0o600 | 0o020000, os.makedev(195, number))


@pytest.fixture
def node(make_node):
    found = make_node(gpus=2).booted()
    containernode.toolkit(found.root, "1.17.8")
    for number in range(2):
        make_device(found.root, "nvidia%d" % number, number)
    make_device(found.root, "nvidiactl", 255)
    return found


def generate(node):
    subprocess.run(
        [str(node.root / "usr/bin/nvidia-ctk"), "cdi", "generate", "--output=%s/run/cdi/nvidia.yaml" % node.root],
        check=True,
    )
    (spec,) = cdi.read(str(node.root))["specs"]
    assert spec["missing"] == [] and spec["conflicts"] == []
    return spec["devices"]


def test_a_container_sees_what_nvml_tells(node, tmp_path):
    podman = Podman(tmp_path / "podman", node.root)
    uuids = node.ask("[n.nvmlDeviceGetUUID(handle(i)) for i in range(2)]")
    devices = generate(node)
    assert set(devices) == {"0", "1", "all", *uuids}
    files = {"/dev/nvidia" + name for name in ("0", "1", "ctl", "-uvm", "-uvm-tools")}
    status, lines, said = podman.run("nvidia.com/gpu=all")
    assert (status, set(lines)) == (0, {*files, *uuids}), said
    for number, uuid in enumerate(uuids):
        status, lines, said = podman.run("nvidia.com/gpu=" + uuid)
        assert status == 0 and set(lines) == {*files, *uuids} - {"/dev/nvidia%d" % (1 - number)}, said
    assert podman.run()[:2] == (0, []), "without a device there is no library and no device file"
    assert podman.run("nvidia.com/gpu=2")[0] != 0

    assert mig(node, **everywhere(d3g_40gb=2))["changed"]
    slices = node.ask(
        "[n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(handle(i), j)) for i in range(2) for j in range(2)]"
    )
    devices = generate(node)
    assert set(devices) == {"0:0", "0:1", "1:0", "1:1", "all", *slices}
    status, lines, said = podman.run("nvidia.com/gpu=" + slices[2])
    assert status == 0 and set(lines) == {*files, *uuids, *slices} - {"/dev/nvidia0"}, said


@pytest.mark.parametrize("given", [given for given, expected in CDI_FILES if None not in expected.values()])
def test_podman_has_the_devices_that_are_read_of_the_same_files(tmp_path, given):
    root = tmp_path / "node"
    for number, name in enumerate(("g0", "g1")):
        make_device(root, name, number)
    for name, text in given.items():
        path = root / (name.replace("/", "/cdi/") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for version in ("550.90", "580.1"):
        path = root / (LIBRARY % version).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    podman = Podman(tmp_path / "podman", root)
    specs = cdi.read(str(root))["specs"]
    for kind in sorted({spec["kind"] for spec in specs}):
        known = {name for spec in specs if spec["kind"] == kind for name in spec["devices"]}
        for name in ("g0", "g1"):
            status, lines, said = podman.run("%s=%s" % (kind, name))
            assert (status == 0) == (name in known), said
            assert lines == (["/dev/" + name] if name in known else [])
