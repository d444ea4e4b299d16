# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a slow test watches is watched by a test of `make test` too, which its mark names."""

from __future__ import annotations

import ast
import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit import selection
from tests.tools import stages


def slow_marks(tree):
    """Each use of the mark: the call, or the bare name, which says nothing."""
    called = {
        node.func: node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    return [
        called.get(node, node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.slow"
    ]


def is_slow(*marks):
    """Whether one of these expressions, marks or lists of them, has the mark."""
    return any("pytest.mark.slow" in ast.unparse(mark) for mark in marks)


def functions(tree):
    """Each test function of a file, and whether it is slow as a whole: by itself, its class or its file."""
    every = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pytestmark"]
    ]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {}
    for holder, marks in [(tree, [])] + [(one, one.decorator_list) for one in classes]:
        for node in holder.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                # A row of a parametrization may be slow, and the others are not.
                own = [one for one in node.decorator_list if ".parametrize(" not in ast.unparse(one)]
                found[node.name] = is_slow(*every, *marks, *own)
    return found


def slow_places(root):
    """Directories whose tests are slow as a whole: scenarios, and what has a stage of its own."""
    scenarios = [
        str(path.parent.relative_to(root)) + "/"
        for path in sorted((root / "molecule").glob("*/molecule.yml"))
        if stages.scenario_is_slow(path.read_text(encoding="utf-8"))
    ]
    return (stages.KUBE + "/", *scenarios)


def wrong(tree, root):
    """What is wrong with the marks of a file, in words."""
    found = []
    for mark in slow_marks(tree):
        named = [word.value.value for word in getattr(mark, "keywords", ()) if word.arg == "also"]
        if len(named) != 1:
            found.append("line %d names no test that watches the same" % mark.lineno)
            continue
        file, dummy, name = named[0].partition("::")
        name = name.partition("[")[0]
        if not (root / file).is_file():
            found.append("line %d: there is no %s" % (mark.lineno, file))
            continue
        if file.startswith(slow_places(root)):
            found.append("line %d: %s is slow itself" % (mark.lineno, named[0]))
            continue
        others = functions(ast.parse((root / file).read_text(encoding="utf-8")))
        if name and name not in others:
            found.append("line %d: there is no test %s in %s" % (mark.lineno, name, file))
        elif others.get(name) or (not name and all(others.values())):
            found.append("line %d: %s is slow itself" % (mark.lineno, named[0]))
    return found


def test_each_slow_test_names_one_that_watches_the_same():
    files = sorted((selection.ROOT / "tests").rglob("test_*.py")) + sorted(
        (selection.ROOT / "molecule").rglob("test_*.py")
    )
    marked = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files if path != pathlib.Path(__file__)}
    marked = {path: tree for path, tree in marked.items() if slow_marks(tree)}
    assert len(marked) > 3
    assert {
        path.name: wrong(tree, selection.ROOT) for path, tree in marked.items() if wrong(tree, selection.ROOT)
    } == {}


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("pytest.mark.slow", "names no test that watches the same"),
        ("pytest.mark.slow()", "names no test that watches the same"),
        ("pytest.mark.slow(also='tests/test_gone.py')", "there is no tests/test_gone.py"),
        ("pytest.mark.slow(also='tests/test_quick.py::test_gone')", "there is no test test_gone in"),
        ("pytest.mark.slow(also='tests/test_quick.py::test_slow')", "is slow itself"),
        ("pytest.mark.slow(also='tests/test_quick.py::test_in_a_slow_class')", "is slow itself"),
        ("pytest.mark.slow(also='tests/test_whole.py::test_one')", "is slow itself"),
        ("pytest.mark.slow(also='tests/test_whole.py')", "is slow itself"),
        ("pytest.mark.slow(also='tests/unit/kube/test_it.py')", "is slow itself"),
        ("pytest.mark.slow(also='molecule/long/tests/test_it.py::test_one')", "is slow itself"),
        ("pytest.mark.slow(also='molecule/short/tests/test_it.py::test_one')", ""),
        ("pytest.mark.slow(also='tests/test_quick.py::test_some_rows')", ""),
        ("pytest.mark.slow(also='tests/test_quick.py::test_one[a]')", ""),
        ("pytest.mark.slow(also='tests/test_quick.py')", ""),
    ],
)
def test_a_mark_that_names_nothing_is_found(tmp_path, mark, why):
    quick = "def test_one():\n    pass\n"
    for name, text in (
        (
            "tests/test_quick.py",
            quick + "@pytest.mark.slow(also='x')\ndef test_slow():\n    pass\n"
            "@pytest.mark.slow(also='x')\nclass TestIt:\n    def test_in_a_slow_class(self):\n        pass\n"
            "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.slow(also='x')), 2])\n"
            "def test_some_rows(a):\n    pass\n",
        ),
        ("tests/test_whole.py", "pytestmark = [pytest.mark.slow(also='x')]\n" + quick),
        ("tests/unit/kube/test_it.py", quick),
        ("molecule/long/tests/test_it.py", quick),
        ("molecule/long/molecule.yml", "# slow: it takes long\n"),
        ("molecule/short/tests/test_it.py", quick),
        ("molecule/short/molecule.yml", "---\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    tree = ast.parse("@%s\ndef test_it():\n    pass\n" % mark)
    found = wrong(tree, tmp_path)
    assert why in found[0] if why else found == []
