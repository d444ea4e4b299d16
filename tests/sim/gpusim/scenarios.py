# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of a driver upgrade, each as one name: what the node is like in it, and in the states in which an upgrade
can end.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import time

from . import faults, files, freezer, library, log, modules, state


def _options(*words: str, **keywords) -> argparse.Namespace:
    return argparse.Namespace(
        **{
            "words": list(words),
            "gpu": None,
            "driver": None,
            "value": None,
            "link": "0",
            "after": None,
            "first": None,
            "from_s": None,
            "until_s": None,
            "until_boot": False,
            "mig": None,
            "ci": None,
            "fatal": False,
            **keywords,
        }
    )


def _inject(name: str, *words: str, **keywords) -> str:
    return faults.inject(name, _options(*words, **keywords))


def _unload() -> list[str]:
    done = []
    for name in reversed(list(modules.NEEDS)):
        if name in modules.loaded():
            try:
                modules.remove(name)
            except modules.ModuleError as error:
                raise state.SimError("%s Stop what holds it, the persistence daemon first." % error) from None
    done.append("no nvidia module is loaded")
    return done


def _load() -> list[str]:
    for name in modules.NEEDS:
        if name != "nvidia_peermem" and modules.module_file(name, state.release()):
            modules.insert(name)
    return ["the nvidia modules are loaded"]


def _load_refused() -> list[str]:
    try:
        modules.insert("nvidia")
    except modules.ModuleError as error:
        return ["modprobe: %s" % error]
    raise state.SimError("the module was loaded, and should not have been")


def _next_version(version: str) -> str:
    return "%d.%s" % (int(version.split(".")[0]) + 1, version.split(".", 1)[1])


def _steady(_asked) -> list[str]:
    if "nvidia" not in modules.loaded():
        return ["no fault is set"] + _load()
    return ["no fault is set"]


def _upgraded(asked) -> list[str]:
    """A job that began before still maps the old libraries, and holds the GPU."""
    version = library.library_version()
    old = [
        path
        for base in files.LIBRARY_FOLDERS
        for path in glob.glob(state.path(base) + "/**/libnvidia-ml.so.%s" % version, recursive=True)
    ]
    done = [
        "a job (process %d) works on GPU 0 with the libraries of %s"
        % (faults.start_process(0, "C", 2048, old[0] if old else None), version)
    ]
    return done + [_inject("library-version", asked.driver or _next_version(version))]


def _unloaded(_asked) -> list[str]:
    return _unload()


def _half_installed(_asked) -> list[str]:
    done = _unload() + [_inject("library-missing")]
    with contextlib.suppress(state.SimError):
        done.append(_inject("packages-half-installed"))
    return done


def _wrong_kernel(_asked) -> list[str]:
    return _unload() + [_inject("module-wrong-kernel")] + _load_refused()


def _unsigned(_asked) -> list[str]:
    return _unload() + [_inject("module-unsigned")] + _load_refused()


def _settings_lost(_asked) -> list[str]:
    """The hardware has forgotten what the driver does not bring back."""
    done = _unload() + _load() + [_inject("persistence-lost")]
    if state.gpu_value(0, "mig_supported") == "1":
        done.append(_inject("mig-pending", gpu="all"))
    return done


def _gpu_missing(_asked) -> list[str]:
    return [_inject("gpu-missing", gpu=state.gpu_count() - 1)]


def _no_handle(_asked) -> list[str]:
    return [_inject("gpu-not-brought-up", gpu=state.gpu_count() - 1)]


def _converging(asked) -> list[str]:
    if not state.gpu_value(0, "fabric_state"):
        raise state.SimError("this board has no fabric")
    return [_inject("fabric-converging", gpu="all", value=3 if asked.value is None else asked.value)]


def _regression(_asked) -> list[str]:
    gpu = 1 if state.gpu_count() > 1 else 0
    done = [_inject(name, gpu=gpu) for name in ("pcie-generation", "memory-lost")]
    if int(state.gpu_value(gpu, "nvlink_count", "0")):
        done.append(_inject("nvlink-down", gpu=gpu))
    if state.gpu_value(gpu, "gsp_supported", "0") == "1":
        done.append(_inject("gsp-version", gpu=gpu))
    return done


def _hang(_asked) -> list[str]:
    return [_inject("hang", "nvmlDeviceGetPowerUsage", "forever")]


def _hang_frozen(_asked) -> list[str]:
    return [_inject("hang", "nvmlDeviceGetPowerUsage", "frozen"), "the group is %s" % freezer.group()]


# name -> (what nvmlInit answers, what the node is like, what makes it so)
SCENARIOS = {
    "steady": ("0", "no fault; the driver is loaded", _steady),
    "userspace-upgraded": (
        "18",
        "the libraries are new (--driver V), the loaded module is old, and a job still works with the old ones",
        _upgraded,
    ),
    "module-unloaded": ("9", "no module is loaded, and there are no device files", _unloaded),
    "half-installed": ("12", "dpkg was interrupted: no library, half-installed packages, no module", _half_installed),
    "wrong-kernel": ("9", "the module on disk is for another kernel and cannot be loaded", _wrong_kernel),
    "module-unsigned": ("9", "the module on disk is not signed, and the kernel wants that", _unsigned),
    "settings-lost": (
        "0",
        "the driver came up anew: no persistence, default limits, counters from zero, MIG pending",
        _settings_lost,
    ),
    "gpu-missing": ("0", "one GPU fewer than before", _gpu_missing),
    "gpu-without-handle": ("0", "as many GPUs as before, and one that does not come up (rc 15)", _no_handle),
    "fabric-converging": (
        "0",
        "the NVLink fabric is in progress (state 2), and complete after --value N looks (default 3)",
        _converging,
    ),
    "regression": (
        "0",
        "GPU 1 has a slower PCI Express link, one NVLink less, less memory, and GSP firmware of another version",
        _regression,
    ),
    "hang": ("-", "a call never comes back; SIGKILL ends it", _hang),
    "hang-unkillable": ("-", "a call never comes back, and nothing ends it before gpusim clear", _hang_frozen),
}


def run(name: str, asked) -> list[str]:
    """Ends all faults, makes the node what the scenario says, and answers what was done."""
    state.require_root()
    if name not in SCENARIOS:
        raise state.SimError("unknown scenario '%s': known are %s" % (name, ", ".join(SCENARIOS)))
    faults.clear(None)
    _wait_for_the_devices()
    log.write("gpusim: scenario %s" % name, log.INFO)
    return SCENARIOS[name][2](asked)


def _wait_for_the_devices() -> None:
    """A process that was told to end holds its device for another moment."""
    deadline = time.monotonic() + freezer.PATIENCE_S
    while True:
        held = [pid for pid in modules.open_files().get("nvidia", []) if _ours(pid)]
        references = modules.reference_counts().get("nvidia_uvm")
        if not references and not held:
            return
        if time.monotonic() > deadline:
            raise state.SimError(
                "devices are held: by processes %s that were told to end, and nvidia_uvm has %s references"
                % (held, references)
            )
        time.sleep(0.05)


def _ours(pid: int) -> bool:
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as stream:
        return stream.read() == b"sleep\0infinity\0"
    return False


def describe() -> list[tuple[str, str]]:
    return [(name, "%s (nvmlInit: %s)" % (text, code)) for name, (code, text, _function) in SCENARIOS.items()]
