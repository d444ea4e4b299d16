# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dkms_module: options, check mode, diff, the lock, and failures as results."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms.dkms_module import DkmsModule
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.lock import NodeLock, read_json
from ansible_collections.gpufleet.lifecycle.plugins.modules import dkms_module
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.locks import is_held
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._dkms.fake_dkms import ARCH, FakeNode
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import KERNEL

pytestmark = pytest.mark.cores

NEW = "535.261.03"


class Bench:
    """Runs the module on a node in a directory; ``last`` is the lock as it was while the module worked."""

    def __init__(self, root, monkeypatch, call_module):
        self.node, self.patch, self.call_module = FakeNode(root / "node"), monkeypatch, call_module
        self.lock_path, self.held, self.owner = str(root / "lock"), [], {}
        self.others = []

    def runner(self, pass_fds=()):
        def call(argv, timeout=None):
            if argv[:2] == ["dkms", "build"]:
                self.held.append((is_held(self.lock_path), bool(pass_fds)))
                self.owner = read_json(self.lock_path)
            return self.node(argv, timeout)

        return call

    def run(self, check=False, diff=True, **options):
        self.patch.setattr(dkms_module.runner, "Runner", self.runner)
        self.patch.setattr(dkms_module.lock, "ignore_hangup", lambda: None)
        self.patch.setattr(dkms_module.lock, "NodeLock", lambda **kwargs: NodeLock(path=self.lock_path, **kwargs))
        self.patch.setattr(dkms_module.dkms_act, "wait_for_others", lambda deadline: self.others)
        self.patch.setattr(
            dkms_module, "DkmsModule", lambda params, runner: DkmsModule(params, runner, self.node.root, ARCH)
        )
        return self.call_module(dkms_module, check, diff, **options)


@pytest.fixture(name="bench")
def _bench(tmp_path, monkeypatch, call_module):
    return Bench(tmp_path, monkeypatch, call_module)


def test_check_mode_then_the_change_then_nothing(bench):
    foretold = bench.run(check=True, version=NEW)
    assert foretold["changed"] and bench.held == [] and not os.path.exists(bench.lock_path)
    done = bench.run(version=NEW, rollout_id="r-7", step="install")
    assert done["changed"] and done["kernels"] == foretold["kernels"]
    assert done["diff"]["after"] == foretold["diff"]["after"]
    assert bench.held == [(True, True)], "the build must run under the lock and carry it"
    assert (bench.owner["module"], bench.owner["rollout_id"], bench.owner["step"], bench.owner["pid"]) == (
        "dkms_module",
        "r-7",
        "install",
        os.getpid(),
    )
    assert is_held(bench.lock_path) is False
    again = bench.run(version=NEW)
    assert again["changed"] is False and again["lock_waited_s"] is None


def statuses(bench):
    count = len([call for call in bench.node.calls if call[:2] == ["dkms", "status"]])
    bench.node.calls.clear()
    return count


def test_the_state_of_dkms_is_read_once_before_and_once_after_a_change(bench):
    assert bench.run(version=NEW)["changed"] and statuses(bench) == 2
    assert not bench.run(version=NEW)["changed"] and statuses(bench) == 1
    with NodeLock(bench.lock_path):
        assert not bench.run(version=NEW)["changed"] and statuses(bench) == 2, (
            "without the lock looking is all that is done"
        )


def test_a_settled_node_does_not_mind_who_else_is_at_work_or_that_the_lock_cannot_be_opened(bench, monkeypatch):
    bench.run(version=NEW)
    bench.others = [{"pid": 4711, "argv": ["/usr/sbin/dkms", "autoinstall"]}]
    assert bench.run(version=NEW)["changed"] is False and is_held(bench.lock_path) is False

    def refuse(lock):
        raise PermissionError(13, "Permission denied", lock.path)

    monkeypatch.setattr(NodeLock, "acquire", refuse)
    assert bench.run(version=NEW)["changed"] is False
    refused = bench.run(version=NEW, force=True)
    assert refused["failed"] and "Permission denied" in refused["msg"]


def test_no_diff_unless_asked(bench):
    assert "diff" not in bench.run(version=NEW, diff=False)
    assert bench.run(version=NEW)["diff"]["before"]["kernels"] == {KERNEL: "installed, module on disk: %s" % NEW}


def test_a_held_lock_fails_and_starts_nothing(bench):
    with NodeLock(bench.lock_path, {"step": "other work", "rollout_id": "r-1"}):
        result = bench.run(version=NEW, lock_timeout_s=0)
    assert result["failed"] and result["lock"]["step"] == "other work" and result["lock"]["pid_alive"] is True
    assert "nothing was started" in result["msg"] and bench.held == []


def test_a_settled_node_needs_no_lock(bench):
    bench.run(version=NEW)
    with NodeLock(bench.lock_path, {"step": "other work"}):
        assert bench.run(version=NEW, lock_timeout_s=0)["changed"] is False


def test_a_dkms_of_somebody_else_fails_and_starts_nothing(bench):
    bench.others = [{"pid": 4711, "argv": ["/usr/sbin/dkms", "autoinstall"]}]
    result = bench.run(version=NEW)
    assert result["failed"] and "process 4711 (/usr/sbin/dkms autoinstall)" in result["msg"] and bench.held == []


def test_a_failed_build_is_a_result(bench):
    bench.node.fail["build"] = (10, "", "Error!")
    result = bench.run(version=NEW)
    assert result["failed"] and result["rc"] == 10 and result["kernel"] == KERNEL
    assert result["make_log"][-1].endswith("Error 2")
    assert result["rc_meaning"] == "the compilation failed" and is_held(bench.lock_path) is False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "missing required arguments: version"),
        ({"version": NEW, "state": "exported"}, "export_dir"),
        ({"version": NEW, "state": "imported"}, "import_files"),
        ({"version": NEW, "build_timeout_s": 60}, "must be at least 3600"),
        ({"version": "1.2.3"}, "Next step: install the driver's DKMS package"),
        ({"version": NEW, "kernels": ["9.9"]}, "Installed are: %s" % KERNEL),
        ({"version": NEW, "state": "imported", "import_files": ["/no/such.tar.gz"]}, "/no/such.tar.gz cannot be"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_bad_input_changes_nothing(bench, options, words, check):
    result = bench.run(check=check, **options)
    assert result["failed"] and words in result["msg"]
    assert [call for call in bench.node.calls if call[0] == "dkms" and call[1] != "status"] == []


def test_export_and_import_between_nodes(bench, tmp_path):
    bench.run(version=NEW)
    out = tmp_path / "out"
    out.mkdir()
    exported = bench.run(version=NEW, state="exported", export_dir=str(out))["exported"][0]
    bench.node = FakeNode(tmp_path / "second")
    bench.held.clear()
    result = bench.run(version=NEW, state="imported", import_files=[exported["path"]])
    assert result["changed"] and result["kernels"][KERNEL]["after"] == "installed, module on disk: %s" % NEW
    assert bench.held == []
    with open(exported["path"], "ab") as handle:
        handle.write(b"x")
    broken = bench.run(version=NEW, state="imported", import_files=[exported["path"]])
    assert broken["failed"] and "its sha256 is" in broken["msg"] and "Nothing was changed" in broken["msg"]


def test_a_full_disk_is_a_clear_error(bench, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device", "/var/lib/dkms")

    monkeypatch.setattr(FakeNode, "do_build", full)
    result = bench.run(version=NEW)
    assert result["failed"] and "No space left on device" in result["msg"] and "/var/lib/dkms" in result["msg"]
    assert is_held(bench.lock_path) is False


def test_a_node_asks_for_the_archives_that_it_would_compile_before_it_starts_anything(bench):
    name = "nvidia-current_%s_%s_%s_gcc-12.2.0.dkms.tar.gz" % (NEW, KERNEL, ARCH)
    asked = bench.run(version=NEW, archives_offered=[name, "nvidia-current_1_x_y_z.dkms.tar.gz"])
    assert (asked["needs_archives"], asked["changed"], bench.held) == ([name], False, [])
    assert not os.path.exists(bench.lock_path)
    foretold = bench.run(check=True, version=NEW, archives_offered=[name])
    assert foretold["changed"] and [item["action"] for item in foretold["steps"]] == ["load", "install"]
    assert bench.run(version=NEW)["changed"] and bench.held == [(True, True)]
    assert "needs_archives" not in bench.run(version=NEW, archives_offered=[name])


def test_a_directory_of_the_controller_is_not_looked_for_on_the_node(bench):
    result = bench.run(version=NEW, archive_dir="/somewhere")
    assert result["failed"] and "archive_dir is a directory on the controller" in result["msg"]
    assert "gpufleet.lifecycle.dkms_module" in result["msg"]
