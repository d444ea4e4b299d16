# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules, run as Ansible runs them."""

from __future__ import annotations

import io
import json
import sys

import pytest


@pytest.fixture
def call_module(monkeypatch, capsys, tmp_path):
    """call_module(module, check, diff, **options): the result of a module."""
    basic = pytest.importorskip("ansible.module_utils.basic", reason="modules need Ansible")

    def call(module, check=False, diff=False, **options):
        own = {"_ansible_check_mode": check, "_ansible_diff": diff, "_ansible_remote_tmp": str(tmp_path)}
        arguments = {"ANSIBLE_MODULE_ARGS": dict(options, _ansible_tmpdir=None, **own)}
        # from ansible-core 2.19 on the arguments have a profile; both keep the raw ones here
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode("utf-8"))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    return call
