# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML calls whose answer is always data: a value, or the return code that stands in its place.

Only what every subject needs is here; what is read of a GPU is in identity, memory, running and links.
"""

from __future__ import annotations

import ctypes

from . import codes, fields

# The codes that say "this GPU, driver or link has no such thing". Every other code is an error of a thing that is
# there.
ABSENT = (
    codes.NOT_SUPPORTED,
    codes.FUNCTION_NOT_FOUND,
    codes.INVALID_ARGUMENT,
    codes.NOT_FOUND,
    codes.ARGUMENT_VERSION_MISMATCH,
)


class Reader:
    """Calls one binding and turns whatever happens into a value of the snapshot."""

    def __init__(self, binding, progress=None) -> None:
        self.binding = binding
        self._pointer = getattr(binding, "_nvmlGetFunctionPointer", None)
        self._progress = progress or (lambda where: None)

    def guard(self, where, read_value) -> dict:
        """The value of READ(), or the code of what it raised. WHERE is told first, in case the call never returns."""
        self._progress(where)
        try:
            return codes.value(read_value())
        except self.binding.NVMLError as exc:
            return codes.missing(int(exc.value))
        except UnicodeDecodeError as exc:
            return codes.missing(codes.UNREADABLE, "NVML answered bytes that are no text: %s" % (exc,))
        except Exception as exc:  # noqa: BLE001 (whatever the binding raises, one value must not cost the others)
            if type(exc).__name__ == "NVMLLibraryMismatchError":
                return codes.missing(codes.FUNCTION_NOT_FOUND, "the library is older than the binding")
            return codes.missing(codes.UNREADABLE, "%s: %s" % (type(exc).__name__, exc))

    def call(self, name, *args) -> dict:
        """Call the binding's function NAME."""
        function = getattr(self.binding, name, None)
        if function is None:
            return codes.missing(codes.FUNCTION_NOT_FOUND, "the binding has no %s" % (name,))
        return self.guard(name, lambda: _decode(function(*args)))

    def ask(self, symbol, *args) -> int:
        """The return code of the library's function SYMBOL itself; raises NVMLError where there is no such function."""
        return self._pointer(symbol)(*args)

    def raw(self, symbol, *args) -> None:
        """Call the library's function SYMBOL itself; raises NVMLError unless it answers SUCCESS."""
        rc = self._pointer(symbol)(*args)
        if rc != codes.SUCCESS:
            raise self.binding.NVMLError(rc)

    def number(self, symbol, *args, kind=ctypes.c_uint) -> dict:
        """Return what SYMBOL writes to its last parameter."""

        def read_value() -> int:
            out = kind()
            self.raw(symbol, *args, ctypes.byref(out))
            return int(out.value)

        return self.guard(symbol, read_value)

    def pair(self, symbol, handle) -> tuple[dict, dict]:
        """Return what SYMBOL writes to its last two parameters, as two values."""
        first, second = ctypes.c_uint(), ctypes.c_uint()
        answer = self.guard(symbol, lambda: self.raw(symbol, handle, ctypes.byref(first), ctypes.byref(second)))
        if answer["rc"] != codes.SUCCESS:
            return answer, dict(answer)
        return codes.value(int(first.value)), codes.value(int(second.value))

    def text(self, symbol, handle, size=fields.TEXT_BYTES) -> dict:
        """The text that SYMBOL writes into a buffer."""

        def read_value() -> str:
            buffer = ctypes.create_string_buffer(size)
            self.raw(symbol, handle, buffer, ctypes.c_uint(size))
            return buffer.value.decode("ascii")

        return self.guard(symbol, read_value)

    def struct(self, symbol, handle, kind, version=None) -> dict:
        """The structure that SYMBOL fills, of our own layout KIND."""

        def read_value():
            content = kind()
            if version is not None:
                content.version = version
            self.raw(symbol, handle, ctypes.byref(content))
            return content

        return self.guard(symbol, read_value)

    def first(self, *attempts) -> dict:
        """The answer of the first attempt that the library knows how to answer."""
        answer = codes.missing(codes.FUNCTION_NOT_FOUND)
        for attempt in attempts:
            answer = attempt()
            if answer["rc"] not in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
                break
        return answer

    def field(self, handle, number, scope=0) -> dict:
        """One field value; the array call itself never fails for a single field, the field says it."""

        def read_value() -> int:
            item = fields.FieldValue()
            item.fieldId = number
            item.scopeId = scope
            self.raw("nvmlDeviceGetFieldValues", handle, ctypes.c_int(1), ctypes.byref(item))
            if item.nvmlReturn != codes.SUCCESS:
                raise self.binding.NVMLError(item.nvmlReturn)
            if item.valueType >= len(fields.FIELD_CONTENTS):
                raise ValueError("field %d has the unknown value type %d" % (number, item.valueType))
            return getattr(item.value, fields.FIELD_CONTENTS[item.valueType])

        return self.guard("nvmlDeviceGetFieldValues(%d)" % (number,), read_value)


def convert_answer(answer, change) -> dict:
    """ANSWER with CHANGE applied to its value, or its code as it is."""
    if answer["rc"] != codes.SUCCESS:
        return dict(answer)
    return codes.value(change(answer["value"]))


def combine_answers(parts) -> dict:
    """One value made of several answers by name: a part that this GPU does not have is None, and an error of one is the
    error of all.

    Nothing answered: the code of the first part.
    """
    refused = [name for name in parts if parts[name]["rc"] != codes.SUCCESS]
    for name in refused:
        if parts[name]["rc"] not in ABSENT:
            return codes.missing(parts[name]["rc"], parts[name].get("detail") or "in %s" % (name,))
    if refused and len(refused) == len(parts):
        return dict(parts[refused[0]])
    return codes.value(dict((name, part["value"]) for name, part in parts.items()))


def _decode(content):
    return content.decode("ascii") if isinstance(content, bytes) else content
