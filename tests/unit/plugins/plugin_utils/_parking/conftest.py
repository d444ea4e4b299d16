# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action of a task that may be given up, and a worker that ends when it is."""

from __future__ import annotations

import os
from unittest import mock

import pytest


class Gone(BaseException):
    """The worker has ended."""


@pytest.fixture(name="gone")
def _gone():
    return Gone


@pytest.fixture(name="place")
def _place(tmp_path, monkeypatch):
    lot = pytest.importorskip("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.lot")
    made = lot.Lot(str(tmp_path))
    made.open = True
    monkeypatch.setattr(lot, "CURRENT", made)
    yield made
    os.close(made.reader)
    os.close(made.writer)


@pytest.fixture(name="action")
def _action():
    task = mock.Mock(loop=None, until=[], retries=None, check_mode=False, async_val=0, _uuid="task-1")
    return mock.Mock(_task=task)


@pytest.fixture(name="begin")
def _begin(action):
    """A run of the action: its Waiting. What it sleeps is in SLEPT of the answer; its end is Gone."""
    waiting = pytest.importorskip("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking.waiting")

    def leave(status):
        raise Gone(status)

    def begin(host="n1"):
        slept = []
        made = waiting.Waiting(action, {"inventory_hostname": host}, sleep=slept.append, leave=leave)
        made.slept = slept
        return made

    return begin
