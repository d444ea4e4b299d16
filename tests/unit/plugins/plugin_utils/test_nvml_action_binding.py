# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of the binding: which file is sent, and always the same bytes."""

from __future__ import annotations

import io
import json
import pathlib
import zipfile

import pytest

pytest.importorskip("ansible", reason="the controller's side needs Ansible")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding as node_side
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _binding
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._nvml import wheels

pytestmark = pytest.mark.cores


@pytest.fixture
def controller(monkeypatch, tmp_path):
    """A controller whose only installed distributions are those in the returned directory."""
    import sys

    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def use(*places):
        monkeypatch.setattr(sys, "path", [str(place) for place in places])
        import importlib

        importlib.invalidate_caches()

    return use


@pytest.mark.parametrize("version", wheels.VERSIONS)
def test_the_binding_of_nvidia_ml_py_is_sent(controller, version):
    controller(wheels.path(version))
    archive = _binding.shipped()
    assert (archive.version, archive.problem) == (version, None)
    assert archive.digest == node_side.digest_of(archive.data)
    with zipfile.ZipFile(io.BytesIO(archive.data)) as content:
        assert content.read("pynvml.py") == (wheels.path(version) / "pynvml.py").read_bytes()
        assert json.loads(content.read("manifest.json")) == {"version": version}
        code = pathlib.Path(node_side.__file__).parent
        assert content.read("_nvml/snapshot.py") == (code / "snapshot.py").read_bytes()
        assert content.read("_nvml/settings/task.py") == (code / "settings" / "task.py").read_bytes()
        for package in _binding.PACKAGES:
            there = set(
                "%s/%s" % (package, path.relative_to(code.parent / package))
                for path in (code.parent / package).rglob("*.py")
            )
            assert there and set(name for name in content.namelist() if name.startswith(package + "/")) == there
    assert json.loads(node_side.read_data(archive.data, "health_policy.json"))["schema"] == "gpufleet.health-policy/1"
    assert _binding.shipped() == archive


def without_binding(reason):
    """The code is sent all the same, and the archive says why it has no binding."""
    archive = _binding.shipped()
    assert archive.version is None and reason in archive.problem
    with zipfile.ZipFile(io.BytesIO(archive.data)) as content:
        assert "pynvml.py" not in content.namelist() and "_nvml/snapshot.py" in content.namelist()
        assert json.loads(content.read("manifest.json")) == {"version": None}


def test_without_nvidia_ml_py_there_is_advice(controller, tmp_path):
    controller(tmp_path)
    without_binding("the controller has no nvidia-ml-py; install nvidia-ml-py")


def test_another_pynvml_in_front_is_not_sent(controller, tmp_path):
    (tmp_path / "pynvml.py").write_text("evil = 1\n")
    controller(tmp_path, wheels.path(wheels.VERSIONS[0]))
    without_binding("is not that of nvidia-ml-py")


def test_a_package_called_pynvml_is_not_sent(controller, tmp_path):
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("")
    controller(tmp_path, wheels.path(wheels.VERSIONS[0]))
    without_binding("is not that of nvidia-ml-py")


def test_a_file_that_another_package_overwrote_is_not_sent(controller, tmp_path):
    import shutil

    shutil.copytree(str(wheels.path(wheels.VERSIONS[0])), str(tmp_path / "site"))
    with open(str(tmp_path / "site" / "pynvml.py"), "a") as stream:
        stream.write("# overwritten\n")
    controller(tmp_path / "site")
    without_binding("is not the file that nvidia-ml-py 12.535.133 installed")


def test_the_same_input_gives_the_same_bytes():
    first = _binding.build(b"x = 1\n", "1", {"b.json": b"2", "a.json": b"1"}, {"a.py": b"", "b.py": b""})
    assert first == _binding.build(b"x = 1\n", "1", {"a.json": b"1", "b.json": b"2"}, {"b.py": b"", "a.py": b""})
    assert first != _binding.build(b"x = 2\n", "1", {"a.json": b"1", "b.json": b"2"}, {"b.py": b"", "a.py": b""})
    assert first != _binding.build(b"x = 1\n", "1", {"a.json": b"1", "b.json": b"2"}, {"b.py": b"", "a.py": b"#"})
