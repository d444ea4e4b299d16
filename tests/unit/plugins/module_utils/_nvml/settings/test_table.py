# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of the steps."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml.settings import table as settings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml.settings.settings_gpu import (
    OK,
    refused,
)


class Binding:
    """A binding that notes its calls and refuses those in FAIL."""

    class NVMLError(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    def __init__(self, fail=None):
        self.fail, self.calls = fail or {}, []

    def nvmlInit(self):
        self._enter("nvmlInit")

    def nvmlShutdown(self):
        self._enter("nvmlShutdown")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self._enter("nvmlDeviceGetHandleByUUID")
        return uuid

    def _enter(self, symbol):
        self.calls.append(symbol)
        if symbol in self.fail:
            raise self.NVMLError(self.fail[symbol])

    def _nvmlGetFunctionPointer(self, symbol):
        def call(handle, *arguments):
            self.calls.append((symbol, handle) + tuple(argument.value for argument in arguments))
            return self.fail.get((symbol, handle), 0)

        return call


def step(gpu, symbol, *arguments, optional=False):
    return {"gpu": gpu, "setting": "x", "symbol": symbol, "arguments": list(arguments), "optional": optional}


STEPS = [step("GPU-0", "A", 3), step("GPU-0", "B", 7), step("GPU-1", "B", 1, 2)]


def test_the_steps_are_called_in_their_order():
    nvml, places = Binding(), []
    assert settings.act(nvml, STEPS, places.append) == [OK, OK, OK]
    assert [call for call in nvml.calls if isinstance(call, tuple)] == [
        ("A", "GPU-0", 3),
        ("B", "GPU-0", 7),
        ("B", "GPU-1", 1, 2),
    ]
    assert (nvml.calls[0], nvml.calls[-1]) == ("nvmlInit", "nvmlShutdown")
    assert "B of GPU-1" in places


def test_after_a_failure_other_gpus_go_on():
    nvml = Binding({("A", "GPU-0"): 999})
    assert settings.act(nvml, STEPS) == [refused(999), refused(999, False), OK]
    assert [call[0] for call in nvml.calls if isinstance(call, tuple)] == ["A", "B"]
    for rc in settings.UNSUPPORTED:
        assert settings.act(Binding({("A", "GPU-0"): rc}), STEPS) == [refused(rc), refused(rc, False), OK]
        assert settings.act(Binding({("A", "GPU-0"): rc}), [step("GPU-0", "A", optional=True)] + STEPS[1:]) == [
            refused(rc),
            OK,
            OK,
        ]
    assert settings.act(Binding({("A", "GPU-0"): 4}), [step("GPU-0", "A", optional=True)] + STEPS[1:]) == [
        refused(4),
        refused(4, False),
        OK,
    ]
    assert settings.act(Binding({"nvmlDeviceGetHandleByUUID": 15}), STEPS) == [
        refused(15),
        refused(15, False),
        refused(15),
    ]
    assert settings.act(Binding({"nvmlInit": 9}), STEPS) == [refused(9, False)] * 3
