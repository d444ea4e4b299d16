# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests run where: all of them in the environment main, and in others those whose answer can differ there.

A test file says so itself, with ``pytestmark = pytest.mark.pythons``, ``pytest.mark.cores`` or a list of both:

pythons   also with Python 3.8 and with the newest Python, where there is no Ansible. These are the tests of code that
          runs on nodes and there parses or writes text, uses the standard library where it meets the system, or starts
          processes.
cores     also with the oldest and the newest ansible-core and what their environments bring: tests of what calls
          Ansible, SQLAlchemy or the Kubernetes client or talks to the system, and of playbooks and roles.

On the newest Python and ansible-core they are slow, but for one course: ``make test-all`` has them.

Of a role on simulated nodes one run from nothing to a proven end is tried on each core; its other tests differ in what
the node tells.

A file that says nothing runs once: what is computed from its input alone comes out the same everywhere, and
ansible-test compiles and imports every file with every Python that is supported. So that no file is left out by
oversight, ``differs`` looks at what a file imports, and tests/unit/meta/test_selection.py fails for one that may come
out differently and neither has the mark nor gives its reason in a line ``# Runs on main only: REASON``. Where only a
few tests of a file can differ, the mark stands on these.

``pytest -m pythons`` and ``pytest -m cores`` do not even import the other files (tests/unit/conftest.py): they could
not be imported there.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = "ansible_collections.gpufleet.lifecycle."
MARKS = ("pythons", "cores")
REASON = re.compile(r"^# Runs on main only: \S.{14,}", re.MULTILINE)

# Where the code under test runs on nodes, and where it runs in the lab's machines. Everything there that is tested
# starts processes.
NODE_TESTS = "tests/unit/plugins/module_utils/"
SIMULATOR_TESTS = "tests/unit/sim/"
# The project looks at itself, at its test machines and at simulated nodes: no ansible-core takes part.
WITHOUT_ANSIBLE = ("tests/unit/meta/", "tests/unit/lab/", "tests/unit/tools/", "tests/unit/scenarios/")
# Stages of their own.
ELSEWHERE = ("tests/unit/playbooks/", "tests/unit/kube/")

# Parts of the standard library that answer the same to the same question, on every Python. A part that is not named
# here may differ.
SAME_EVERYWHERE = {
    "__future__",
    "collections",
    "contextlib",
    "copy",
    "difflib",
    "fnmatch",
    "functools",
    "itertools",
    "math",
    "statistics",
}
# What an environment for another ansible-core has in another version.
VERSIONED = {"ansible", "kubernetes", "psycopg", "sqlalchemy", "urllib3"}
# Where code of the controller meets the system. The newest ansible-core comes with a newer Python.
SYSTEM = {
    "ctypes",
    "fcntl",
    "http",
    "importlib",
    "multiprocessing",
    "select",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tarfile",
    "threading",
    "urllib",
    "zipfile",
}


def test_files():
    """The test files that some stage chooses by a mark, as paths from the root."""
    names = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py"))]
    return [name for name in names if not name.startswith(ELSEWHERE)]


@functools.lru_cache(maxsize=None)
def marked(path, mark):
    """Whether the tests of a file, or some below a directory, carry the mark."""
    path = pathlib.Path(str(path))
    if path.is_dir():
        return any(marked(file, mark) for file in path.rglob("test_*.py"))
    return re.search(r"\bpytest\.mark\.%s\b" % mark, path.read_text(encoding="utf-8")) is not None


@functools.lru_cache(maxsize=None)
def imported(name):
    """Everything that a file imports: names of modules, some of which may be names in modules."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = OURS + ".".join(pathlib.PurePosixPath(name).parts[: -node.level]) + ("." + base if base else "")
            found.add(base)
            found.update("%s.%s" % (base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(OURS):
            found.add(node.value)  # importlib.import_module, pytest.importorskip, monkeypatch.setattr
    return frozenset(found)


def foreign(name):
    """The first words of what a file imports from outside the project."""
    return {module.split(".")[0] for module in imported(name)} - {
        "ansible_collections",
        "tests",
        "pytest",
        "hypothesis",
        "",
    }


def own(name):
    """The files of the project that a file imports."""
    found = set()
    for module in imported(name):
        path = (module[len(OURS) :] if module.startswith(OURS) else module).replace(".", "/")
        found.update(
            file
            for file in (path + ".py", path + "/__init__.py")
            if module.startswith((OURS, "tests.")) and (ROOT / file).is_file()
        )
    return found


def reachable(name):
    """A file, and all files of the project that it imports, directly or not."""
    found, ahead = set(), [name]
    while ahead:
        file = ahead.pop()
        if file not in found:
            found.add(file)
            ahead.extend(own(file))
    return found


def differs(name, mark):
    """What makes the answer of a test file differ between the environments of a mark, in words; nothing means that it
    cannot.
    """
    if mark == "pythons":
        if name.startswith(SIMULATOR_TESTS):
            return ["it runs the simulator"]
        if not name.startswith(NODE_TESTS):
            return []
        tested = sorted(file for file in own(name) if file.startswith("plugins/"))
        found = [
            "%s imports %s" % (file, module) for file in tested for module in sorted(foreign(file) - SAME_EVERYWHERE)
        ]
        return found + ["it imports %s" % module for module in sorted(foreign(name) & SYSTEM)]
    if name.startswith((NODE_TESTS, SIMULATOR_TESTS) + WITHOUT_ANSIBLE):
        return []
    found = [
        "%s imports %s" % (file, module)
        for file in sorted(reachable(name))
        for module in sorted(foreign(file) & VERSIONED)
    ]
    found += [
        "%s imports %s" % (file, module)
        for file in sorted(own(name))
        if file.startswith("plugins/")
        for module in sorted(foreign(file) & SYSTEM)
    ]
    return found + ["it imports %s" % module for module in sorted(foreign(name) & SYSTEM)]
