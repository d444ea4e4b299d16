# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data about DCGM and its exporter, read from data/."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import yaml

HERE = pathlib.Path(__file__).resolve().parent / "data"


@functools.lru_cache(maxsize=None)
def load(name: str) -> t.Dict[str, t.Any]:
    """Return a file of data/, which is read once; what is returned is not to be changed."""
    return yaml.safe_load((HERE / (name + ".yml")).read_text(encoding="utf-8"))


def make_refusal(ident: str, message: str, found: t.Any, expected: t.Any, next_step: str) -> t.Dict[str, t.Any]:
    """Return what stands against a step, as data."""
    return {"id": ident, "message": message, "found": found, "expected": expected, "next_step": next_step}


def make_sentence(refusals: t.Iterable[t.Dict[str, t.Any]]) -> str:
    """Return refusals in words, each with what was found, what was expected, and the next step."""
    return " ".join(
        "%s Found: %s. Expected: %s. Next step: %s."
        % (one["message"], one["found"], one["expected"], one["next_step"].rstrip("."))
        for one in refusals
    )
