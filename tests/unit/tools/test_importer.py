# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a complaint of galaxy-importer, with a stand-in in its place; the stage `galaxy-importer` has it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import types

import pytest

from tests.tools import importer

NAMES = [
    "README.md",
    "plugins/modules/m.py",
    "plugins/action/m.py",
    "plugins/module_utils/_x/m.py",
    "plugins/filter/f.py",
    "plugins/filter/__init__.py",
    "plugins/plugin_utils/p.py",
    "roles/r/tasks/main.yml",
    "roles/r/README.md",
    "playbooks/p.yml",
    "playbooks/tasks/t.yml",
]
EXPECTED = {("module", "m"), ("filter", "f"), ("role", "r"), ("playbook", "p.yml")}


def shown(kind, name, doc_strings=None, readme=None):
    return {"content_type": kind, "content_name": name, "doc_strings": doc_strings, "readme_html": readme}


WHOLE = [
    shown("module", "m", {"doc": {"options": []}}),
    shown("filter", "f", {"doc": {"options": []}}),
    shown("role", "r", readme="<h1>r</h1>"),
    shown("playbook", "p.yml"),
    shown("action", "m"),
]


def result(contents):
    return {"docs_blob": {"contents": contents}}


def test_what_users_find_in_a_collection():
    assert importer.expected(NAMES) == EXPECTED


@pytest.mark.parametrize(
    ("number", "instead", "left_out"),
    [
        (None, None, []),
        (0, None, ["not shown: module m"]),
        (0, shown("module", "m"), ["not shown: module m"]),
        (1, shown("filter", "f", {"examples": "x"}), ["not shown: filter f"]),
        (2, shown("role", "r", readme=""), ["not shown: role r"]),
        (3, None, ["not shown: playbook p.yml"]),
        (4, None, []),  # an action plugin, of which users see the module
    ],
)
def test_what_galaxy_would_not_show_is_named(number, instead, left_out):
    contents = list(WHOLE)
    if number is not None:
        contents[number : number + 1] = [instead] if instead else []
    assert importer.missing(NAMES, result(contents)) == left_out


@pytest.mark.parametrize(
    ("said", "accepted", "left"),
    [
        ([], {}, []),
        (["WARNING: a"], {}, ["WARNING: a"]),
        (["WARNING: a", "ERROR: b"], {"WARNING: .": "a reason"}, ["ERROR: b"]),
        (["WARNING: a and b"], {"WARNING: a": "a reason"}, ["WARNING: a and b", "accepted and not said: WARNING: a"]),
        ([], {"WARNING: a": "a reason"}, ["accepted and not said: WARNING: a"]),
    ],
)
def test_only_what_is_accepted_is_passed_over(said, accepted, left):
    assert importer.complaints(said, accepted) == left


def test_what_is_accepted_has_a_reason():
    assert [pattern for pattern, reason in importer.ACCEPTED.items() if not reason.strip()] == []


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """galaxy-importer with a course of the test's in the place of an import; answers what runs judge on it."""

    def install(course):
        package, loaders = types.ModuleType("galaxy_importer"), types.ModuleType("galaxy_importer.loaders")
        package.collection = types.SimpleNamespace(import_collection=course, CollectionFilename=lambda *words: words)
        package.config = types.SimpleNamespace(Config=lambda config_data: config_data)
        loaders.collection = types.SimpleNamespace(Popen=subprocess.Popen)
        monkeypatch.setitem(sys.modules, "galaxy_importer", package)
        monkeypatch.setitem(sys.modules, "galaxy_importer.loaders", loaders)
        tarball = tmp_path / "ours-all-1.0.0-rc1.tar.gz"
        tarball.touch()
        return importer.judge(tarball, tmp_path, True), loaders.collection

    return install


def test_warnings_and_errors_are_kept_and_progress_is_not(stand_in):
    def course(handle, filename, logger, cfg):
        logger.info("Loading module m")
        logger.warning("No changelog found")
        logger.getChild("finder").error("found %s", "nothing")
        assert filename == ("ours", "all", "1.0.0-rc1") and cfg["run_ansible_lint"] and not cfg["run_ansible_test"]
        return result(WHOLE)

    assert stand_in(course)[0] == (["WARNING: No changelog found", "ERROR: found nothing"], result(WHOLE))


def test_a_tarball_that_is_refused_has_no_result(stand_in):
    def course(handle, filename, logger, cfg):
        raise ValueError("no role readme")

    (said, found), dummy = stand_in(course)
    assert found == {} and [line for line in said if "ValueError" in line and "no role readme" in line] == said != []


@pytest.mark.parametrize(("script", "count"), [("echo fine", 0), ("echo 'no such profile' >&2; exit 3", 1)])
def test_a_linter_that_does_not_start_has_not_found_nothing(stand_in, script, count):
    def course(handle, filename, logger, cfg):
        linter = sys.modules["galaxy_importer.loaders"].collection.Popen
        linter(["sh", "-c", "sleep 0.2; " + script], stdout=-1, stderr=-1, encoding="utf-8").communicate(timeout=0.01)
        return result([])

    (said, dummy), module = stand_in(course)
    assert len(said) == count and module.Popen is importer.Patient
    assert all("ended with 3: no such profile" in line for line in said)


@pytest.mark.parametrize(
    ("said", "contents", "status"), [([], WHOLE, 0), (["WARNING: a"], WHOLE, 1), ([], WHOLE[1:], 1), ([], None, 1)]
)
def test_any_complaint_fails_and_so_does_no_result(monkeypatch, said, contents, status):
    def build(place):
        for name in NAMES:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).touch()
        with tarfile.open(str(place / "a.tar.gz"), "w:gz") as archive:
            for name in NAMES:
                archive.add(str(place / name), name)
        return place / "a.tar.gz"

    for name in ("ANSIBLE_HOME", "ANSIBLE_CONFIG"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(importer, "build", build)
    monkeypatch.setattr(importer, "judge", lambda *words: (said, result(contents) if contents is not None else {}))
    assert importer.main([]) == status
