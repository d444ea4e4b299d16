# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every test runs in every environment where its answer can differ."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit import selection


def silent(mark):
    """Test files that may come out differently, and neither have the mark nor say why they need none."""
    found = {}
    for name in selection.test_files():
        why = selection.differs(name, mark)
        if (
            why
            and not selection.marked(selection.ROOT / name, mark)
            and not selection.REASON.search((selection.ROOT / name).read_text(encoding="utf-8"))
        ):
            found[name] = why
    return found


@pytest.mark.parametrize("mark", selection.MARKS)
def test_a_test_whose_answer_can_differ_runs_wherever_it_can(mark):
    assert silent(mark) == {}


def test_a_reason_stands_only_where_one_is_needed():
    """A file that has changed since does not keep a reason that says nothing any more."""
    for name in selection.test_files():
        if selection.REASON.search((selection.ROOT / name).read_text(encoding="utf-8")):
            assert any(
                selection.differs(name, mark) and not selection.marked(selection.ROOT / name, mark)
                for mark in selection.MARKS
            ), name


def test_what_runs_on_nodes_is_tested_without_ansible():
    """The mark pythons chooses tests for environments that have the standard library, the binding and pytest alone."""
    for name in selection.test_files():
        if selection.marked(selection.ROOT / name, "pythons"):
            assert not {
                (file, word)
                for file in selection.reachable(name)
                for word in selection.foreign(file) & selection.VERSIONED
            }, name


@pytest.mark.parametrize(
    "source, mark, words",
    [
        ("import subprocess\n", "pythons", ["module imports subprocess"]),
        ("import re, os.path\n", "pythons", ["module imports os", "module imports re"]),
        ("def f():\n    from ctypes import util\n", "pythons", ["module imports ctypes"]),
        ("import some_new_part\n", "pythons", ["module imports some_new_part"]),
        ("import collections\nimport functools\nfrom . import other\n", "pythons", []),
        ("import json\n", "cores", []),
        ("from ansible.errors import AnsibleError\n", "cores", ["module imports ansible"]),
        ("def f():\n    import sqlalchemy\n", "cores", ["module imports sqlalchemy"]),
    ],
)
def test_what_a_module_imports_decides(tmp_path, monkeypatch, source, mark, words):
    folder = "module_utils" if mark == "pythons" else "plugin_utils"
    test, module = (
        "%s/_new/%s.py" % (base % folder, file)
        for base, file in (("tests/unit/plugins/%s", "test_it"), ("plugins/%s", "it"))
    )
    for name, text in ((test, "from %splugins.%s._new import it\n" % (selection.OURS, folder)), (module, source)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    selection.imported.cache_clear()
    try:
        assert selection.differs(test, mark) == [word.replace("module", module, 1) for word in words]
    finally:
        selection.imported.cache_clear()


def test_a_test_that_starts_processes_counts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    for name in (
        "tests/unit/plugins/module_utils/test_new.py",
        "tests/unit/roles/test_new.py",
        "tests/unit/sim/test_new.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import subprocess\n", encoding="utf-8")
    selection.imported.cache_clear()
    try:
        assert selection.differs("tests/unit/plugins/module_utils/test_new.py", "pythons") == ["it imports subprocess"]
        assert selection.differs("tests/unit/roles/test_new.py", "cores") == ["it imports subprocess"]
        assert selection.differs("tests/unit/sim/test_new.py", "pythons") and not selection.differs(
            "tests/unit/sim/test_new.py", "cores"
        )
    finally:
        selection.imported.cache_clear()


def test_files_without_the_mark_are_not_even_imported(tmp_path):
    """Elsewhere they may lack what they import."""
    (tmp_path / "conftest.py").write_text("from tests.unit.conftest import pytest_ignore_collect\n", encoding="utf-8")
    for name, text in (
        ("test_with.py", "import pytest\npytestmark = pytest.mark.pythons\ndef test_it():\n    pass\n"),
        ("test_without.py", "raise ImportError('no such thing here')\n"),
        ("below/conftest.py", "raise ImportError('no such thing here')\n"),
        ("below/test_without.py", "def test_it():\n    pass\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(selection.ROOT / "pytest.ini"),
        "--rootdir",
        str(tmp_path),
    ]
    environment = dict(os.environ, PYTHONPATH=str(selection.ROOT))
    done = subprocess.run(
        [*command, "-m", "pythons", str(tmp_path)],
        cwd=str(selection.ROOT),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
