# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every file of the project."""

from __future__ import annotations

import ast
import pathlib
import re
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection

ROOT = pathlib.Path(__file__).resolve().parents[3]
UTILS = ROOT / "plugins" / "module_utils"
NODE_PACKAGES = ("_nvml", "_node", "_kernel", "_dkms", "_packages", "_driver", "_reset", "_health")
NODE_FILES = sorted(
    str(path.relative_to(ROOT)) for package in NODE_PACKAGES for path in (UTILS / package).rglob("*.py")
)
LICENCE = "# SPDX-License" + "-Identifier: GPL-3.0-or-later"  # in one piece, reuse would read it
OURS = "# Copyright: (c) 2026, gpufleet contributors"
TEXT = (
    ".py",
    ".yml",
    ".yaml",
    ".md",
    ".sh",
    ".c",
    ".h",
    ".ini",
    ".txt",
    ".toml",
    ".cfg",
    ".rst",
    ".j2",
    ".service",
    ".conf",
    ".json",
    ".jsonl",
)


def python_files(names):
    return [name for name in names if name.endswith(".py")]


def imported(path):
    """The modules a file imports by absolute name, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_every_python_file_of_substance_is_ours_and_says_so(tracked):
    wrong = []
    for name in python_files(tracked):
        text = (ROOT / name).read_text(encoding="utf-8")
        head = "\n".join(text.splitlines()[:6])
        if text.strip() and not (LICENCE in head and OURS in head):
            wrong.append(name)
    assert wrong == []


def test_programs_in_other_languages_say_so_too(tracked):
    names = [name for name in tracked if name.endswith((".c", ".h", ".sh"))]
    assert len(names) > 20
    wrong = []
    for name in names:
        head = "\n".join((ROOT / name).read_text(encoding="utf-8").splitlines()[:5])
        if LICENCE[2:] not in head or OURS[2:] not in head:
            wrong.append(name)
    assert wrong == []


def test_no_binary_file_is_kept(tracked):
    binary = []
    for name in tracked:
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and b"\0" in path.read_bytes()[:65536]:
            binary.append(name)
    assert binary == []


def test_the_binding_is_not_kept_here(tracked):
    assert [name for name in tracked if pathlib.PurePosixPath(name).name == "pynvml.py"] == []


def test_python_under_tests_is_run_as_a_module(tracked):
    """ansible-test refuses an interpreter line there, so a file that had one could not stay."""
    wrong = [
        name
        for name in python_files(tracked)
        if name.startswith("tests/") and (ROOT / name).read_text(encoding="utf-8").startswith("#!")
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NODE_FILES)
def test_node_code_needs_the_standard_library_alone(name):
    """It also runs on a node where Ansible was never installed.

    The binding is the one exception, and its absence is handled.
    """
    own = "ansible_collections.gpufleet.lifecycle.plugins.module_utils."
    foreign = [
        module
        for module in imported(ROOT / name)
        if module.split(".")[0] not in sys.stdlib_module_names
        and module != "pynvml"
        and not any(module.startswith(own + package) for package in NODE_PACKAGES)
    ]
    assert foreign == []


def test_there_is_node_code():
    assert NODE_FILES


def test_shared_code_says_what_it_is_for(tracked):
    wrong = []
    for name in python_files(tracked):
        if name.startswith(("plugins/module_utils/", "plugins/plugin_utils/")):
            tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
            if tree.body and not ast.get_docstring(tree):
                wrong.append(name)
    assert wrong == []


def test_nothing_is_left_for_later(tracked):
    mark = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = []
    for name in tracked:
        if name.endswith(TEXT):
            for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
                if mark.search(line):
                    found.append("{0}:{1}".format(name, number))
    assert found == []


def test_a_silenced_finding_has_its_reason_beside_it(tracked):
    """`# noqa: X` alone says that somebody was in a hurry."""
    bare = re.compile(r"#\s*(?:noqa|pylint:\s*disable|type:\s*ignore)[\w\s:,=\[\]-]*$")
    found = []
    for name in python_files(tracked):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if bare.search(line) and not (number > 1 and lines[number - 2].lstrip().startswith("#")):
                found.append("{0}:{1}".format(name, number))
    assert found == []


def ignored(root, names):
    """The lines by which ansible-test passes over what its sanity tests find, each with its file."""
    return [
        "{0}: {1}".format(name, line)
        for name in names
        if re.fullmatch(r"tests/sanity/ignore[^/]*\.txt", name)
        for line in (root / name).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]


def test_no_sanity_test_is_passed_over(tracked):
    assert ignored(ROOT, tracked) == []


def test_a_line_of_an_ignore_file_is_found(tmp_path):
    (tmp_path / "tests" / "sanity").mkdir(parents=True)
    names = ["tests/sanity/ignore-2.18.txt", "tests/sanity/ignore-2.19.txt", "tests/sanity/other.txt"]
    for name, text in zip(names, ("plugins/modules/gpu_info.py validate-modules:x\n", "\n", "a line\n")):
        (tmp_path / name).write_text(text)
    assert ignored(tmp_path, names) == [names[0] + ": plugins/modules/gpu_info.py validate-modules:x"]


NAME = "roles/nvidia_fabricmanager/tasks/main.yml"


def test_a_file_that_is_put_in_the_place_of_a_link_leaves_the_checkouts_alone(tmp_path):
    kept = (collection.STUB / NAME).read_text()
    collection.make(tmp_path)
    assert (tmp_path / NAME).is_symlink()
    try:
        collection.put(tmp_path / NAME, "another")
        assert (collection.STUB / NAME).read_text() == kept and (tmp_path / NAME).read_text() == "another"
    finally:
        if (collection.STUB / NAME).read_text() != kept:
            (collection.STUB / NAME).write_text(kept)
