# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of GPUs at work: what the simulated libcuda.so.1 does with them."""

from __future__ import annotations

from . import state

# What cuInit answers: another driver than the library's, no GPU, the fabric manager has not finished.
INIT_ERRORS = (803, 100, 802, 999)


def _set(**values: object) -> dict[str, str]:
    return {"set." + key: str(value) for key, value in values.items()}


def _bus(options) -> str:
    """As an XID line names the GPU: without its function."""
    return state.sysfs_address(state.gpu_value(options.gpu or 0, "pci"))[:-2]


def _wrong(options):
    if options.value not in (None, 1, 2, 3):
        raise state.SimError("cuda-wrong-result takes --value 1 (vector sum), 2 (matrix product) or 3 (both)")
    return _set(cuda_wrong_result=options.value or 3)


def _percent(key: str, default: int):
    def effects(options):
        value = default if options.value is None else options.value
        if not 0 <= value < 100:
            raise state.SimError("--value is a percentage below 100, not %d" % value)
        return _set(**{key: value})

    return effects


def _error(options):
    return {
        **_set(cuda_launch_error=options.value or 719),
        "kmsg": "NVRM: Xid (PCI:%s): 13, pid='<unknown>', name=python3, Graphics Exception: ESR 0x504730=0xc04000e"
        % _bus(options),
    }


def _init(options):
    code = options.value or INIT_ERRORS[0]
    if code not in INIT_ERRORS:
        raise state.SimError("cuda-init-error knows the codes %s, not %d" % (", ".join(map(str, INIT_ERRORS)), code))
    return {"error.cuInit": str(code)}


def fault(text: str, effects=None, *words: str, node: bool = False):
    """An entry of a catalogue: the words it takes, whether it is one GPU's or the node's, what it does, its effects."""
    return words, not node, text, effects


CATALOGUE = {
    "cuda-wrong-result": fault(
        "one value of a vector sum and of a matrix product is wrong (--value 1: sum only, 2: product only)", _wrong
    ),
    "cuda-corrupt-byte": fault("one byte of each memory pattern is wrong", lambda options: _set(cuda_corrupt_byte=1)),
    "cuda-slow": fault(
        "everything on the GPU takes longer: --value percent less throughput, default 7",
        _percent("cuda_slow_percent", 7),
    ),
    "cuda-noisy": fault("measured times vary by --value percent, default 30", _percent("cuda_noise_percent", 30)),
    "cuda-hang": fault(
        "waiting for the GPU never ends (only SIGKILL ends it)", lambda options: {"hang.cuCtxSynchronize": "forever"}
    ),
    "cuda-error": fault("a kernel ends with a CUDA error (--value, default 719) after XID 13", _error),
    "cuda-no-memory": fault("all of the GPU's memory is taken", lambda options: _set(cuda_free_mib=0)),
    "cuda-init-error": fault(
        "CUDA does not start: --value 803 (driver mismatch, default), 100 (no device), 802 (fabric not ready), 999",
        _init,
        node=True,
    ),
}
