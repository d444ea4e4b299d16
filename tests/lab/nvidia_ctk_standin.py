# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for NVIDIA's nvidia-ctk on a simulated node: the calls that the collection makes of it, and no others.

``cdi generate`` writes a specification of what NVML answers, so of the simulated GPUs. ``runtime configure`` adds a
runtime that says in its name that it is a stand-in. Every file that it writes says so too. VERSION is replaced when its
package is built.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys

VERSION = "0.0.0"
ROOT = os.environ.get("GPUSIM_ROOT", "")
NOTE = "written by the stand-in for nvidia-ctk of the gpufleet lab, not by NVIDIA's"
KNOWN = {
    "docker": "/etc/docker/daemon.json",
    "containerd": "/etc/containerd/config.toml",
    "crio": "/etc/crio/crio.conf",
}
# A container gets the libraries of the driver, and what the simulated NVML reads.
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/x86_64-linux-gnu")
SIMULATOR = (
    "/usr/local/lib/libnvidia-ml.so.1",
    "/usr/local/lib/libcuda.so.1",
    "/etc/gpusim",
    "/run/gpusim",
    "/var/lib/gpusim",
)


class StandInError(Exception):
    """Ends the call with status 1."""


# ---- NVML ----


class Nvml:
    def __init__(self):
        try:
            self.library = ctypes.CDLL(ROOT + "/usr/local/lib/libnvidia-ml.so.1")
        except OSError as exc:
            raise StandInError("failed to initialize NVML: %s" % exc) from exc
        self.call("nvmlInit_v2")

    def call(self, name, *arguments, allowed=()):
        rc = getattr(self.library, name)(*arguments)
        if rc and rc not in allowed:
            raise StandInError("%s answered %d" % (name, rc))
        return rc

    def number(self, name, *arguments):
        value = ctypes.c_uint()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def text(self, name, *arguments):
        buffer = ctypes.create_string_buffer(96)
        self.call(name, *arguments, buffer, ctypes.c_uint(96))
        return buffer.value.decode()

    def devices(self):
        """(names, minor number) of each GPU that is not in MIG mode, and of each MIG device."""
        found = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            minor = self.number("nvmlDeviceGetMinorNumber", handle)
            current, pending = ctypes.c_uint(), ctypes.c_uint()
            rc = self.call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending), allowed=(3,))
            if rc or not current.value:
                found.append(((str(index), self.text("nvmlDeviceGetUUID", handle)), minor))
                continue
            for number in range(self.number("nvmlDeviceGetMaxMigDeviceCount", handle)):
                device = ctypes.c_void_p()
                if not self.call(
                    "nvmlDeviceGetMigDeviceHandleByIndex",
                    handle,
                    ctypes.c_uint(number),
                    ctypes.byref(device),
                    allowed=(6,),
                ):
                    found.append((("%d:%d" % (index, number), self.text("nvmlDeviceGetUUID", device)), minor))
        return found


def specification():
    nvml = Nvml()
    driver = nvml.text("nvmlSystemGetDriverVersion")
    devices = nvml.devices()
    lines = ["# %s" % NOTE, "cdiVersion: 0.5.0", "kind: nvidia.com/gpu", "devices:"]
    every = sorted({minor for _names, minor in devices})
    named = [(name, [minor]) for names, minor in devices for name in names] + ([("all", every)] if devices else [])
    for name, minors in named:
        lines += ['- name: "%s"' % name, "  containerEdits:", "    deviceNodes:"] + [
            "    - path: /dev/nvidia%d" % minor for minor in minors
        ]
    lines += ["containerEdits:", "  env:", "  - NVIDIA_VISIBLE_DEVICES=void", "  deviceNodes:"]
    lines += [
        "  - path: %s" % path
        for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
        if os.path.exists(ROOT + path)
    ]
    libraries = [
        "%s/%s.so.%s" % (folder, name, driver) for name in ("libnvidia-ml", "libcuda") for folder in LIBRARY_FOLDERS
    ]
    mounts = [path for path in libraries + list(SIMULATOR) if os.path.exists(ROOT + path)]
    if mounts:
        lines.append("  mounts:")
    for path in mounts:
        lines += ["  - hostPath: %s" % path, "    containerPath: %s" % path, "    options: [ro, nosuid, nodev, bind]"]
    return "\n".join(lines) + "\n"


# ---- runtimes ----


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def text_of(path):
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def docker(config, options):
    try:
        document = json.loads(text_of(config) or "{}")
    except ValueError as exc:
        raise StandInError("unable to load config for runtime docker: %s" % exc) from exc
    document.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
    if "cdi.enabled" in options:
        document.setdefault("features", {})["cdi"] = True
    if "set-as-default" in options:
        document["default-runtime"] = "nvidia"
    put(config, json.dumps(document, indent=4, sort_keys=True) + "\n")


def toml(runtime, options):
    section = "plugins.\"io.containerd.grpc.v1.cri\"" if runtime == "containerd" else "crio.runtime"
    lines = ["# %s" % NOTE, "version = 2" if runtime == "containerd" else "", "[%s]" % section]
    if "cdi.enabled" in options:
        lines += ["enable_cdi = true", 'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]']
    if "set-as-default" in options:
        lines.append('default_runtime_name = "nvidia"' if runtime == "containerd" else 'default_runtime = "nvidia"')
    return (
        "\n".join(line for line in lines if line)
        + '\n[%s.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n' % section
    )


def configure(options):
    runtime = options.get("runtime", "docker")
    if runtime not in KNOWN:
        raise StandInError("unrecognized runtime '%s'" % runtime)
    config, drop_in = options.get("config", ROOT + KNOWN[runtime]), options.get("drop-in-config")
    if drop_in is not None and version_key(VERSION) < (1, 18):
        raise StandInError("flag provided but not defined: -drop-in-config")
    if runtime == "docker":
        return docker(config, options)
    if drop_in is None:
        kept = re.sub(r"(?s)# %s.*?# end of the stand-in\n" % re.escape(NOTE), "", text_of(config))
        return put(config, kept + toml(runtime, options) + "# end of the stand-in\n")
    put(drop_in, toml(runtime, options))
    if runtime == "containerd":
        wanted, kept = 'imports = ["%s/*.toml"]' % os.path.dirname(drop_in), text_of(config)
        if wanted not in kept:
            put(config, wanted + "\n" + kept)
    return None


def version_key(version):
    return tuple(int(part) for part in version.split("."))


# ---- the command ----


def parsed(words):
    """(commands, options): --name, --name=value; no option of these has its value in the next word."""
    options = {}
    for word in words:
        if word.startswith("-"):
            name, _equals, value = word.lstrip("-").partition("=")
            options[name] = value
    return [word for word in words if not word.startswith("-")], options


def main(words):
    commands, options = parsed(words)
    if "version" in options and not commands:
        print("NVIDIA Container Toolkit CLI version %s\ncommit: stand-in of the gpufleet lab" % VERSION)
    elif commands == ["runtime", "configure"]:
        configure(options)
    elif commands == ["cdi", "generate"]:
        output = options.get("output", os.environ.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", ""))
        text = specification()
        if output:
            put(output, text)
        else:
            sys.stdout.write(text)
    else:
        raise StandInError("the stand-in does not know: nvidia-ctk %s" % " ".join(words))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except StandInError as error:
        sys.exit("nvidia-ctk (stand-in): %s" % error)
