# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print to the operator's terminal without what steers it: a line may have words of a node in it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.utils.display import Display

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

# What Ansible prints of a result by itself, whatever the callback.
SHOWN = (
    *("msg", "exception", "warnings", "deprecations", "diff", "stderr", "stdout", "stderr_lines", "stdout_lines"),
    *("module_stderr", "module_stdout"),
)


class Screen:
    """Ansible's Display for the plugins of this collection."""

    def display(self, line: str, stderr: bool = False) -> None:
        Display().display(text.clean_text(line), stderr=stderr)

    def warning(self, line: str) -> None:
        Display().warning(text.clean_text(line))

    def vv(self, line: str) -> None:
        Display().vv(text.clean_text(line))


display = Screen()


def clean_result(result: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    """Clean the texts of a RESULT that Ansible prints, in place, and return it. Other data stays as it is."""
    for key in SHOWN:
        if key in result:
            result[key] = _clean_value(result[key])
    return result


def _clean_value(value: t.Any) -> t.Any:
    """Return VALUE with clean texts at all depths, also in Ansible's objects of warnings and errors."""
    if isinstance(value, str):
        return text.clean_text(value)
    if isinstance(value, dict):
        return {key: _clean_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        cleaned = [_clean_value(inner) for inner in value]
        return tuple(cleaned) if isinstance(value, tuple) else cleaned
    if dataclasses.is_dataclass(value):
        fields = {field.name: _clean_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def clean_verdict(health: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    """Clean the messages of the checks of a verdict, in place, and return it: playbooks print them, with words of the
    node in them.
    """
    for check in health["checks"]:
        if check.get("message"):
            check["message"] = text.clean_text(check["message"])
    return health
