# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test of a node against the simulated libcuda.so.1: real C calls, memory that is written and read, and every
fault.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import re
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health.checks.smoke_document import BROKEN, OPEN
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._smoke import cuda, tests
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._smoke import smokenode
from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

pytestmark = pytest.mark.pythons

# Of the profile h100-sxm: a measured GPU.
RATES = {"device_copy": 2961, "host_to_device": 54.7, "device_to_host": 54.8, "matrix_product": 8104}


@pytest.fixture
def node(tmp_path, templates):
    node = smokenode.make(tmp_path / "root", templates)
    yield node
    node.close()


def states(document):
    return [gpu["state"] for gpu in document["gpus"]]


def test_the_library_has_every_function_that_is_called(node):
    loaded = ctypes.CDLL(smokenode.library(node))
    assert [name for name in cuda.CALLS if not hasattr(loaded, name)] == []
    assert cuda.Driver(smokenode.library(node)).is_simulated is True


def test_a_drivers_own_library_has_these_functions_and_the_simulator_its_words(node):
    """Recorded from NVIDIA's library, without a GPU."""
    recorded = json.loads((pathlib.Path(__file__).parent / "fixtures" / "libcuda-535.216.03.json").read_text())
    assert set(cuda.CALLS) <= set(recorded["functions"])
    assert set(BROKEN) <= set(int(rc) for rc in recorded["errors"])
    assert set(OPEN) <= set(int(rc) for rc in recorded["errors"])
    driver = cuda.Driver(smokenode.library(node))
    known = 0
    for rc, (name, text) in recorded["errors"].items():
        said = ctypes.c_char_p()
        driver._library.cuGetErrorString(int(rc), ctypes.byref(said))
        if said.value is not None:
            known += 1
            assert (driver.error_name(int(rc)), said.value.decode()) == (name, text)
    assert known >= 25
    assert driver.error_name(12345) == "CUDA_ERROR_12345"


def test_a_healthy_node_at_the_shortest_level(node):
    document, snapshot = smokenode.test(node, warm_s=None)
    assert (document["schema"], document["level"], document["status"], document["simulated"]) == (
        "gpufleet.smoke/1",
        "t0",
        "ok",
        True,
    )
    assert document["library"] == {"path": smokenode.library(node), "version": None, "cuda_version": "12.2"}
    assert document["driver_version"] == simnode.OLD and snapshot["status"] == "ok"
    assert states(document) == ["tested", "tested"]
    assert [gpu["uuid"] for gpu in document["gpus"]] == [gpu["uuid"]["value"] for gpu in snapshot["gpus"]]
    for gpu in document["gpus"]:
        assert sorted(gpu["tests"]) == sorted(tests.list_names("t0")) and gpu["error"] is None
        for name, test in gpu["tests"].items():
            assert (test["ok"], test["error"], len(test["samples"])) == (True, None, 5)
            assert test["temperature_c"] == [31] * 5 and test["clock_sm_mhz"] == [345] * 5
            if name in RATES:
                assert 0.8 * RATES[name] < test["median"] <= RATES[name] and test["mad"] < 0.005 * test["median"]
            else:
                assert test["samples"] == [0] * 5 and test["unit"] == "errors"


def test_a_rate_is_taken_of_a_gpu_that_was_busy_before(monkeypatch):
    """By its own clock, which says 0.1 s for each run of the work."""
    monkeypatch.setattr(tests.time, "monotonic", lambda: 0.0)
    runs = []
    trial = tests.Trial(
        None, tests.LEVELS["t0"], lambda: (None, None), lambda work: runs.append(work) or 0.1, "device_copy"
    )
    trial.measure_rate("work", 1e9)
    assert trial.result["samples"] == [10.0] * 5 and len(runs) == 3 + 5


def test_the_longer_level_multiplies_matrices_and_takes_more_memory(node):
    short, long = smokenode.test(node, wanted=["0"])[0], smokenode.test(node, level="t1", wanted=["0"])[0]
    product = long["gpus"][0]["tests"]["matrix_product"]
    assert product["ok"] and 0.9 * RATES["matrix_product"] < product["median"] and len(product["samples"]) == 7
    assert (
        long["gpus"][0]["tests"]["memory_pattern"]["parameters"]["bytes"]
        > 5 * short["gpus"][0]["tests"]["memory_pattern"]["parameters"]["bytes"]
    )
    # What is timed is the same at every level.
    assert (
        long["gpus"][0]["tests"]["device_copy"]["parameters"] == short["gpus"][0]["tests"]["device_copy"]["parameters"]
    )


def test_all_at_once_is_the_same_for_each_gpu(node):
    document = smokenode.test(node, together=True)[0]
    assert states(document) == ["tested", "tested"]
    assert all(test["ok"] for gpu in document["gpus"] for test in gpu["tests"].values())


@pytest.mark.parametrize(
    "value, level, wrong",
    [(1, "t0", {"vector_add"}), (2, "t1", {"matrix_product"}), (3, "t1", {"vector_add", "matrix_product"})],
)
def test_one_wrong_value_is_found(node, value, level, wrong):
    node.sim("inject", "cuda-wrong-result", "--gpu", "1", "--value", str(value))
    healthy, broken = smokenode.test(node, level=level, only=["vector_add", "matrix_product"])[0]["gpus"]
    assert all(test["ok"] for test in healthy["tests"].values())
    assert set(name for name, test in broken["tests"].items() if not test["ok"]) == wrong
    for name in wrong:
        assert "1 values differ" in broken["tests"][name]["detail"]


def test_one_corrupt_byte_of_memory_is_found_with_its_place_and_bit(node):
    node.sim("inject", "cuda-corrupt-byte", "--gpu", "0")
    broken, healthy = smokenode.test(node, only=["memory_pattern"])[0]["gpus"]
    assert healthy["tests"]["memory_pattern"]["ok"] is True
    test = broken["tests"]["memory_pattern"]
    assert test["ok"] is False and test["samples"] == [1] * 5
    assert "bits 0x00001000" in test["detail"] and "at byte %d " % (test["parameters"]["bytes"] // 2) in test["detail"]


def test_seven_percent_slower_is_measured_as_that(node):
    before = smokenode.test(node, wanted=["0"])[0]["gpus"][0]["tests"]
    node.sim("inject", "cuda-slow", "--gpu", "0")
    after = smokenode.test(node, wanted=["0"])[0]["gpus"][0]["tests"]
    for name in ("device_copy", "host_to_device", "device_to_host"):
        assert after[name]["ok"] is True
        assert after[name]["median"] / before[name]["median"] == pytest.approx(0.93, abs=0.005)


def test_noise_shows_in_the_spread(node):
    node.sim("inject", "cuda-noisy", "--gpu", "0")
    test = smokenode.test(node, wanted=["0"], only=["device_copy"])[0]["gpus"][0]["tests"]["device_copy"]
    assert test["mad"] > 0.02 * test["median"]


def test_a_gpu_that_hangs_costs_its_share_and_the_others_are_tested(node):
    node.sim("inject", "cuda-hang", "--gpu", "0")
    document = smokenode.test(node, deadline_s=1200, only=["memory_pattern"])[0]
    assert states(document) == ["hung", "tested"]
    told = re.match(
        r"CUDA did not answer within ([\d.]+) s in cuCtxSynchronize \(memory_pattern\)", document["gpus"][0]["reason"]
    )
    assert told and 300 < float(told.group(1)) <= 600, "half of what is left when the GPUs have been read"


def test_a_cuda_error_after_an_xid_is_named_and_nothing_more_is_asked(node):
    node.sim("inject", "cuda-error", "--gpu", "1")
    healthy, broken = smokenode.test(node)[0]["gpus"]
    assert all(test["ok"] for test in healthy["tests"].values())
    assert broken["tests"]["memory_pattern"]["error"] == {
        "call": "cuCtxSynchronize",
        "rc": 719,
        "name": "CUDA_ERROR_LAUNCH_FAILED",
    }
    assert set(test["error"]["name"] for name, test in broken["tests"].items() if name != "memory_pattern") == {
        "NOT_RUN"
    }
    assert "Xid (PCI:0000:43:00): 13" in node.sim("kmsg").stdout


def test_no_free_memory_is_an_error_of_every_test(node):
    node.sim("inject", "cuda-no-memory", "--gpu", "0")
    broken = smokenode.test(node)[0]["gpus"][0]
    assert set((test["error"]["rc"], test["error"]["name"]) for test in broken["tests"].values()) == {
        (2, "CUDA_ERROR_OUT_OF_MEMORY")
    }


@pytest.mark.parametrize(
    "code, name",
    [(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), (100, "CUDA_ERROR_NO_DEVICE"), (802, "CUDA_ERROR_SYSTEM_NOT_READY")],
)
def test_cuda_that_does_not_start_is_data(node, code, name):
    node.sim("inject", "cuda-init-error", "--value", str(code))
    document = smokenode.test(node, only=["vector_add"])[0]
    assert [gpu["error"] for gpu in document["gpus"]] == [{"call": "cuInit", "rc": code, "name": name}] * 2
    assert [gpu["tests"] for gpu in document["gpus"]] == [{}, {}]


def test_a_gpu_in_mig_mode_is_not_applicable_and_the_others_are_tested(node):
    node.sim("inject", "set", "mig_mode", "1", "--gpu", "0")
    document = smokenode.test(node, only=["vector_add"])[0]
    assert states(document) == ["not_applicable", "tested"] and "MIG mode" in document["gpus"][0]["reason"]
    assert document["gpus"][0]["tests"] == {}


def test_a_busy_gpu_is_unknown_and_untouched(node):
    node.sim("inject", "stray-process", "--gpu", "1")
    document = smokenode.test(node, only=["vector_add"])[0]
    assert states(document) == ["tested", "unknown"] and "processes use it: pid " in document["gpus"][1]["reason"]


@pytest.mark.parametrize("mode, state", [(2, "unknown"), (3, "tested")])
def test_compute_modes(node, mode, state):
    node.sim("inject", "set", "compute_mode", str(mode), "--gpu", "0")
    assert states(smokenode.test(node, only=["vector_add"])[0]) == [state, "tested"]


def test_a_lost_gpu_is_unknown(node):
    node.sim("inject", "gpu-lost", "--gpu", "1")
    document = smokenode.test(node, only=["vector_add"])[0]
    assert states(document) == ["tested", "unknown"] and "GPU_IS_LOST" in document["gpus"][1]["reason"]


def test_the_environment_of_the_task_has_no_say(node):
    environment = {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "NVIDIA_VISIBLE_DEVICES": "none"}
    document = smokenode.test(node, environment, only=["vector_add"])[0]
    assert states(document) == ["tested", "tested"]


def test_gpus_are_chosen_by_every_name_and_a_wrong_name_is_refused(node):
    snapshot = smokenode.test(node, wanted=["1"])[1]
    uuid, address = snapshot["gpus"][1]["uuid"]["value"], snapshot["gpus"][1]["pci_bus_id"]["value"]
    for name in (uuid.upper(), address, address[-12:], "1"):
        document = smokenode.test(node, wanted=[name], only=["vector_add"])[0]
        assert [gpu["uuid"] for gpu in document["gpus"]] == [uuid] and document["asked"] == [name]
        assert list(document["gpus"][0]["tests"]) == ["vector_add"]
    assert "no GPU of this node" in smokenode.test(node, wanted=["7"])[0]["refused"]


def test_no_library_is_no_failure_of_a_gpu(node):
    document = smokenode.test(node, library_path=None, search=str(node.root / "var"))[0]
    assert document["status"] == "no_library" and "libcuda.so.1 is not installed" in document["message"]
    document = smokenode.test(node, library_path="/nonexistent/libcuda.so.1")[0]
    assert document["status"] == "no_library" and "at /nonexistent/libcuda.so.1" in document["message"]
    # The stand-in of a toolkit is no driver's library either.
    (node.root / ("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so." + simnode.OLD)).unlink()
    document = smokenode.test(node, only=["vector_add"])[0]
    assert document["status"] == "no_library" and "stand-in" in document["message"]


def test_the_library_is_found_below_a_root(node):
    document = smokenode.test(node, library_path=None, search=str(node.root), only=["vector_add"])[0]
    assert (document["status"], document["library"]["path"]) == ("ok", smokenode.library(node))


def test_a_library_that_others_can_change_is_not_loaded(node):
    path = node.root / "usr/local/lib/libcuda.so.1"
    path.chmod(0o666)
    document = smokenode.test(node)[0]
    assert document["status"] == "untrusted" and "can be changed by other users" in document["message"]
    assert all(gpu["tests"] == {} for gpu in document["gpus"])


def test_a_driver_that_is_not_loaded_is_told_by_nvml(node):
    node.library(simnode.NEW)
    document = smokenode.test(node)[0]
    assert (document["status"], document["gpus"]) == ("nvml", []) and "LIB_RM_VERSION_MISMATCH" in document["message"]


def record(node, out, *arguments):
    environment = dict(node.environment, PYTHONPATH=str(wheels.path(wheels.VERSIONS[-1])))
    return simnode.run(
        [sys.executable, "-m", "tests.sim.record_smoke", str(out), *arguments],
        env=environment,
        cwd=str(simnode.SIM.parents[1]),
    )


def test_a_recording_holds_the_measurements_and_no_identity(node, tmp_path):
    done = record(node, tmp_path / "out.json", "t0", smokenode.library(node))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.json").read_text()
    recorded = json.loads(text)["smoke"]
    assert recorded["boot_id"] is None
    assert [gpu["uuid"] for gpu in recorded["gpus"]] == ["GPU-00000000-0000-0000-0000-000000000000"] * 2
    assert all(len(test["samples"]) == 5 for gpu in recorded["gpus"] for test in gpu["tests"].values())


def test_a_machine_that_cannot_be_tested_leaves_no_recording(node, tmp_path):
    node.library(None)
    done = record(node, tmp_path / "out.json", "t0", smokenode.library(node))
    assert done.returncode == 1 and "nothing was recorded" in done.stderr
    assert not (tmp_path / "out.json").exists()
