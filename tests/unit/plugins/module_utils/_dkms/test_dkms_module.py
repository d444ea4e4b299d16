# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole task of dkms_module on a node in a directory: what it changes, what it notices, and what it refuses to
touch.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import act as dkms_act
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import plan as dkms_plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives, trees
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import workshop as dkms_apart
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms.dkms_module import DkmsModule
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._dkms.fake_dkms import (
    ARCH,
    FakeNode,
    make_archive,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import KERNEL, recorded, write

pytestmark = pytest.mark.pythons

OLD, NEW, SECOND = "535.216.03", "535.261.03", "6.1.0-49-amd64"


@pytest.fixture(name="node")
def fake_node(tmp_path):
    return FakeNode(tmp_path / "node")


def task(node, state="built", version=NEW, **params):
    values = {
        "name": None,
        "version": version,
        "state": state,
        "kernels": None,
        "export_dir": None,
        "import_files": None,
        "force": False,
        "build_timeout_s": 3600,
    }
    values.update(params)
    return DkmsModule(values, node, node.root, ARCH)


def run(node, state="built", version=NEW, **params):
    """Check mode must foretell the change, and a second run must have nothing to do."""
    before = snapshot(node)
    foretold = task(node, state, version, **params).preview()
    assert snapshot(node) == before, "the preview changed the node"
    result = task(node, state, version, **params).run()
    assert (
        result["changed"] == foretold["changed"]
        and result["steps"] == foretold["steps"]
        and result["kernels"] == foretold["kernels"]
    )
    assert task(node, state, version, **dict(params, force=False)).due() is False
    return result


def snapshot(node):
    found = {}
    for directory, names, files in os.walk(node.root):
        for name in names + files:
            path = os.path.join(directory, name)
            found[path] = os.readlink(path) if os.path.islink(path) else os.path.isdir(path) or os.path.getsize(path)
    return found


def actions(result):
    return [item["action"] for item in result["steps"]]


def test_built_from_nothing(node):
    result = run(node)
    assert result["name"] == "nvidia-current" and actions(result) == ["add", "build", "install"]
    assert result["kernels"] == {
        KERNEL: {"before": "absent, module on disk: none", "after": "installed, module on disk: 535.261.03"}
    }
    assert result["diff"]["after"]["steps"] == ["add ", "build %s" % KERNEL, "install %s" % KERNEL]
    again = run(node)
    assert not again["changed"] and again["steps"] == []


def test_a_newer_version_and_back(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(OLD, NEW))
    run(node, version=OLD)
    result = run(node, version=NEW)
    assert actions(result) == ["add", "build", "uninstall", "install"] and [
        item["version"] for item in result["stale"]
    ] == [OLD]
    back = run(node, version=OLD)
    assert (
        actions(back) == ["uninstall", "install"]
        and back["kernels"][KERNEL]["after"] == "installed, module on disk: 535.216.03"
    )
    gone = run(node, "absent", NEW)
    assert actions(gone) == ["remove"] and gone["kernels"][KERNEL]["after"] == "absent, module on disk: 535.216.03"


def test_only_the_named_kernels(tmp_path):
    node = FakeNode(tmp_path / "node", kernels=(SECOND, KERNEL))
    assert list(run(node, kernels=[SECOND])["kernels"]) == [SECOND]
    assert not os.path.exists(node.module(KERNEL))
    assert [item["kernel"] for item in run(node)["steps"]] == [KERNEL, KERNEL]
    assert actions(run(node, "absent", kernels=[SECOND])) == ["unbuild"]
    assert os.path.exists(node.module(KERNEL)) and not os.path.exists(node.module(SECOND))


def test_a_file_that_vanished_is_put_back(node):
    run(node)
    os.unlink(node.module(KERNEL))
    assert actions(run(node)) == ["install"]


def test_a_command_that_only_says_it_worked_is_noticed(node):
    node.lie = {"install"}
    with pytest.raises(
        dkms_act.ActError,
        match="not in place, though every command ended well: kernel %s: built, module on disk: none" % KERNEL,
    ):
        task(node).run()


def test_a_remove_that_only_says_it_worked_is_noticed(node):
    run(node)
    node.lie = {"remove"}
    with pytest.raises(dkms_act.ActError, match="still there, though every command ended well"):
        task(node, "absent").run()


def test_a_failed_build_gives_the_end_of_the_log_and_the_next_run_clears_it(node):
    node.fail["build"] = (10, "Building module:\n", "Error! Bad return status for module build on kernel\n")
    with pytest.raises(dkms_act.ActError) as caught:
        task(node).run()
    text, details = str(caught.value), caught.value.details
    assert (
        "kernel %s failed with rc 10: the compilation failed" % KERNEL in text
        and "make: *** [Makefile:4: modules] Error 2" in text
        and "Next step" in text
    )
    assert details["make_log"] == recorded("make.log").splitlines() and (
        details["rc"],
        details["kernel"],
        details["changed"],
    ) == (10, KERNEL, True)
    assert [item["action"] for item in details["steps"]] == ["add"]
    node.fail.clear()
    result = run(node)
    assert actions(result) == ["clear", "build", "install"] and not os.path.exists(node.tree(NEW, "build"))


def test_a_half_stored_build_is_cleared(node):
    node.do_add({"-v": NEW}, False)
    write(node.tree(NEW), "%s/%s/module/nvidia-current-uvm.ko" % (KERNEL, ARCH), "x")
    assert node.do_build({"-v": NEW, "-k": KERNEL}, False)[0] == 3
    assert actions(run(node)) == ["clear", "build", "install"]


@pytest.mark.parametrize(
    ("rc", "words"),
    [(77, "leave kernel 6.1.0-56-amd64 out"), (7, "a module is missing"), (124, "deadline"), (13, "BUILD_DEPENDS")],
)
def test_other_failures_are_named(node, rc, words):
    node.fail["build"] = (rc, "", "")
    with pytest.raises(dkms_act.ActError, match=words):
        task(node).run()


def test_missing_headers_name_the_package_and_nothing_is_changed(node):
    os.unlink(node.path("/lib/modules", KERNEL, "build"))
    before = snapshot(node)
    with pytest.raises(dkms_act.ActError, match="Install linux-headers-%s.* Nothing was changed" % KERNEL):
        task(node).run()
    assert snapshot(node) == before and not [call for call in node.calls if call[:2] == ["dkms", "build"]]


@pytest.mark.parametrize(
    ("state", "params", "words"),
    [
        ("built", {"version": "1.2.3"}, "no NVIDIA module of version 1.2.3"),
        ("built", {"kernels": ["9.9"]}, "Kernel 9.9 is not installed"),
        ("built", {"name": "nvidia-other"}, "source of nvidia-other 535.261.03 is not on this node"),
        ("exported", {"export_dir": "/x"}, "cannot be exported: kernel %s is 'absent'" % KERNEL),
    ],
)
def test_bad_input(node, state, params, words):
    with pytest.raises(dkms_act.ActError, match=words):
        task(node, state, **params).run()


def test_two_modules_of_one_version_are_an_error_that_names_them(node):
    write(node.root, "/usr/src/nvidia-current-open-%s/dkms.conf" % NEW, "x")
    with pytest.raises(dkms_act.ActError, match="nvidia-current, nvidia-current-open"):
        task(node).preview()
    assert run(node, name="nvidia-current")["changed"]


def test_no_kernel_that_boots(tmp_path):
    with pytest.raises(dkms_act.ActError, match="No kernel that can boot"):
        task(FakeNode(tmp_path / "node", kernels=())).run()


def test_no_dkms(node):
    node.fail["status"] = (127, "", "")
    with pytest.raises(dkms_act.ActError, match="dkms is not installed"):
        task(node).run()
    assert task(node, "absent").run()["changed"] is False


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, "", "broken"), "state of DKMS cannot be read"),
        ((0, "nvidia is odd\n", ""), "unknown form"),
        (
            (0, "nvidia-current/%s, %s, x86_64: installed (A word of a later release)\n" % (NEW, KERNEL), ""),
            "A word of a later release",
        ),
    ],
)
def test_a_status_that_is_not_known_stops_everything(node, answer, words):
    node.fail["status"] = answer
    before = snapshot(node)
    with pytest.raises(dkms_act.ActError, match=words):
        task(node).run()
    assert snapshot(node) == before


def test_absent_of_nothing(node):
    assert run(node, "absent", "1.2.3")["name"] is None
    assert run(node, "absent")["changed"] is False


@pytest.fixture(name="exported")
def exported_tree(tmp_path):
    other = FakeNode(tmp_path / "builder")
    run(other)
    (tmp_path / "out").mkdir()
    return export(other, tmp_path / "out")


def export(node, directory):
    assert task(node, "exported", export_dir=str(directory)).preview()["exported"] == [
        {"kernel": KERNEL, "path": None, "sha256": None}
    ]
    result = task(node, "exported", export_dir=str(directory)).run()
    assert result["changed"] and actions(result) == ["export"]
    assert task(node, "exported", export_dir=str(directory)).run()["exported"] == result["exported"]
    assert task(node, "exported", export_dir=str(directory)).due() is False
    return result["exported"][0]


def test_the_exported_archive(exported):
    assert (
        os.path.basename(exported["path"]) == "nvidia-current_535.261.03_6.1.0-56-amd64_x86_64_gcc-12.2.0.dkms.tar.gz"
    )
    assert (
        tree_archives.expected_sha256(exported["path"])
        == exported["sha256"]
        == tree_archives.sha256_of(exported["path"])
    )
    assert sorted(os.listdir(os.path.dirname(exported["path"]))) == [
        os.path.basename(exported["path"]) + suffix for suffix in ("", ".sha256")
    ]


def test_a_damaged_archive_is_exported_again(tmp_path, exported):
    with open(exported["path"], "ab") as handle:
        handle.write(b"x")
    node = FakeNode(tmp_path / "builder2")
    run(node)
    result = task(node, "exported", export_dir=os.path.dirname(exported["path"])).run()
    assert result["changed"] and tree_archives.sha256_of(exported["path"]) == result["exported"][0]["sha256"]


def test_an_export_that_only_says_it_worked_leaves_no_archive(node, tmp_path):
    run(node)
    node.lie = {"mktarball"}
    with pytest.raises((dkms_act.ActError, OSError)):
        task(node, "exported", export_dir=str(tmp_path)).run()
    assert [name for name in os.listdir(str(tmp_path)) if "dkms" in name] == []


def test_an_export_holds_the_module_of_its_name_or_nothing(node, tmp_path):
    run(node)
    write(node.tree(NEW), "%s/%s/module/nvidia-current.ko" % (KERNEL, ARCH), "%s|%s|key" % (OLD, KERNEL))
    node.do_install({"-v": NEW, "-k": KERNEL}, True)
    with pytest.raises(dkms_act.ActError, match="holds version 535.216.03"):
        task(node, "exported", export_dir=str(tmp_path)).run()
    assert [name for name in os.listdir(str(tmp_path)) if "dkms" in name] == []


def test_imported_where_the_source_is(node, exported):
    result = run(node, "imported", import_files=[exported["path"]])
    assert actions(result) == ["load", "install"] and not [call for call in node.calls if call[:2] == ["dkms", "build"]]
    assert run(node)["changed"] is False


def test_imported_where_it_is_added_already(node, exported):
    node.do_add({"-v": NEW}, False)
    assert actions(run(node, "imported", import_files=[exported["path"]])) == ["load", "install"]


@pytest.mark.parametrize("answer", [None, (2, "", "Error! Could not find module source directory.")])
def test_a_load_of_what_cannot_be_added_is_noticed(node, exported, answer):
    node.lie, node.fail = (set(), {"add": answer}) if answer else ({"add"}, {})
    with pytest.raises(
        dkms_act.ActError,
        match="dkms add of nvidia-current %s for kernel %s failed with rc %d"
        % (NEW, KERNEL, answer[0] if answer else 0),
    ):
        task(node, "imported", import_files=[exported["path"]]).run()
    assert not os.path.exists(node.tree(NEW, KERNEL))


def test_an_import_is_read_back_and_one_that_is_settled_is_not_read_twice(node, exported):
    node.lie = {"install"}
    with pytest.raises(
        dkms_act.ActError,
        match="not in place, though every command ended well: kernel %s: built, module on disk: none" % KERNEL,
    ):
        task(node, "imported", import_files=[exported["path"]]).run()
    node.lie = set()
    assert actions(run(node, "imported", import_files=[exported["path"]])) == ["install"]
    node.calls.clear()
    assert task(node, "imported", import_files=[exported["path"]]).run()["changed"] is False
    assert len([call for call in node.calls if call[:2] == ["dkms", "status"]]) == 1


def test_what_is_there_for_the_kernel_is_replaced_and_not_mixed_with(node, tmp_path):
    node.do_add({"-v": NEW}, False)
    write(node.tree(NEW), "%s/%s/module/old" % (KERNEL, ARCH), "x")
    write(str(tmp_path / "taken"), "%s/%s/module/new" % (KERNEL, ARCH), "x")
    dkms_act.Tree("nvidia-current", NEW, node, node.root, arch=ARCH).load(KERNEL, str(tmp_path / "taken"))
    assert os.listdir(node.tree(NEW, KERNEL, ARCH)) == ["module"] and os.listdir(
        node.tree(NEW, KERNEL, ARCH, "module")
    ) == ["new"]


def test_imported_before_the_package_is_installed(tmp_path, exported):
    node = FakeNode(tmp_path / "new", versions=())
    result = run(node, "imported", import_files=[exported["path"]])
    staged = tree_archives.make_staging_path("nvidia-current", NEW)
    assert (
        actions(result) == ["stage"]
        and result["staged"] == staged
        and tree_archives.sha256_of(node.path(staged)) == exported["sha256"]
    )
    node.source(NEW)
    assert node.do_ldtarball({"--archive": node.path(staged)}, False)[0] == 0
    after = run(node)
    assert (
        actions(after) == ["install", "unstage"]
        and after["staged"] is None
        and not os.path.exists(os.path.dirname(node.path(staged)))
    )


def test_an_interrupted_installation_of_the_package_is_staged_for(node, exported, monkeypatch):
    monkeypatch.setattr(
        dkms_act.dpkg,
        "read_packages",
        lambda root, runner: {"interrupted": [{"package": "nvidia-kernel-dkms", "state": "unpacked"}]},
    )
    assert actions(run(node, "imported", import_files=[exported["path"]])) == ["stage"]


def test_two_kernels_are_staged_as_one_archive(tmp_path):
    builder = FakeNode(tmp_path / "builder", kernels=(SECOND, KERNEL))
    run(builder)
    (tmp_path / "out").mkdir()
    files = [item["path"] for item in task(builder, "exported", export_dir=str(tmp_path / "out")).run()["exported"]]
    node = FakeNode(tmp_path / "new", kernels=(SECOND, KERNEL), versions=())
    run(node, "imported", import_files=files)
    assert sorted(
        key[0]
        for key in trees.inspect_archive(node.path(tree_archives.make_staging_path("nvidia-current", NEW)))["kernels"]
    ) == [SECOND, KERNEL]
    assert run(node, "imported", import_files=files[:1])["changed"] is True


def test_removing_a_version_removes_what_was_staged_for_it(tmp_path, exported):
    node = FakeNode(tmp_path / "new", versions=())
    run(node, "imported", import_files=[exported["path"]])
    assert actions(run(node, "absent", name="nvidia-current")) == ["unstage"]


@pytest.mark.parametrize(
    ("version", "kernels", "words"),
    [(OLD, None, "is wanted"), (NEW, [SECOND], "Kernel 6.1.0-49-amd64 is not installed")],
)
def test_an_archive_that_does_not_fit_changes_nothing(node, exported, version, kernels, words):
    before = snapshot(node)
    with pytest.raises((tree_archives.TreeError, dkms_act.ActError), match=words):
        task(node, "imported", version, name="nvidia-current", import_files=[exported["path"]], kernels=kernels).run()
    assert snapshot(node) == before


def test_an_archive_for_another_kernel_is_refused(tmp_path, exported):
    node = FakeNode(tmp_path / "other", kernels=(SECOND,))
    with pytest.raises(tree_archives.TreeError, match="it is for kernel %s" % KERNEL):
        task(node, "imported", import_files=[exported["path"]]).run()


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/var/lib/dkms",
        "/var/lib/dkms/nvidia-current/535.261.03/",
        "/var/lib/dkms/nvidia-current/535.261.03/../535.216.03",
        "/var/lib/dkms/other/1/build",
    ],
)
def test_nothing_outside_the_tree_is_cleared(node, path):
    write(node.root, "/etc/passwd", "x")
    write(node.root, "/var/lib/dkms/nvidia-current/535.216.03/keep", "x")
    write(node.root, "/var/lib/dkms/nvidia-current/535.261.03/keep", "x")
    before = snapshot(node)
    with pytest.raises(dkms_act.ActError, match="is not removed"):
        dkms_act.Tree("nvidia-current", NEW, node, node.root).clear(path)
    assert snapshot(node) == before


def test_the_tree_of_a_version_without_its_source_is_cleared_whole(node):
    write(node.root, "/var/lib/dkms/nvidia-current/535.216.03/%s/x86_64/module/a.ko" % KERNEL, "x")
    write(node.root, "/var/lib/dkms/nvidia-current/535.261.03/keep", "x")
    tree = dkms_act.Tree("nvidia-current", NEW, node, node.root)
    broken = {"name": "nvidia-current", "version": "535.216.03", "state": "broken"}
    tree.perform(dkms_plan.removal([broken], "nvidia-current", "535.216.03"))
    assert os.listdir(node.path("/var/lib/dkms/nvidia-current")) == [NEW]
    with pytest.raises(dkms_act.ActError, match="is not removed"):
        tree.clear("/var/lib/dkms/nvidia-current", "..")


def test_a_link_in_the_tree_is_not_followed_when_clearing(node):
    write(node.root, "/srv/data/keep", "x")
    os.makedirs(node.tree(NEW))
    os.symlink("/srv/data", node.tree(NEW, "build"))
    with pytest.raises(dkms_act.ActError, match="is not removed"):
        dkms_act.Tree("nvidia-current", NEW, node, node.root).clear("/var/lib/dkms/nvidia-current/%s/build" % NEW)
    assert os.path.exists(node.path("/srv/data/keep"))


def test_waiting_for_a_dkms_of_somebody_else(tmp_path, monkeypatch):
    monkeypatch.setattr(dkms_act, "POLL_S", 0.05)
    write(tmp_path, "/5/cmdline", "bash\0/usr/sbin/dkms\0build\0")
    write(tmp_path, "/5/status", "Uid:\t0\t0\t0\t0\n")
    assert [item["pid"] for item in dkms_act.wait_for_others(time.monotonic() + 0.2, str(tmp_path))] == [5]
    os.unlink(str(tmp_path / "5" / "cmdline"))
    assert dkms_act.wait_for_others(time.monotonic() + 5, str(tmp_path)) == []


def test_the_log_of_a_forced_build(node):
    run(node)
    assert actions(run(node, force=True)) == ["unbuild", "build", "install"]
    assert dkms_plan.is_settled(dkms_act.read_view(node.root, node, "nvidia-current", NEW, [KERNEL]), KERNEL, NEW)


def test_built_from_an_archive_where_there_is_one_and_compiled_elsewhere(tmp_path, exported):
    node = FakeNode(tmp_path / "new", kernels=(SECOND, KERNEL))
    result = run(node, import_files=[exported["path"]])
    assert [(item["action"], item["kernel"]) for item in result["steps"]] == [
        ("add", None),
        ("build", SECOND),
        ("install", SECOND),
        ("load", KERNEL),
        ("install", KERNEL),
    ]
    assert [call[call.index("-k") + 1] for call in node.calls if call[:2] == ["dkms", "build"]] == [SECOND]
    assert run(node)["changed"] is False


def test_built_refuses_an_archive_that_does_not_fit_and_changes_nothing(tmp_path, exported):
    node = FakeNode(tmp_path / "new", kernels=(SECOND,))
    before = snapshot(node)
    with pytest.raises(tree_archives.TreeError, match="does not fit this node: it is for kernel %s" % KERNEL):
        task(node, import_files=[exported["path"]]).run()
    assert snapshot(node) == before


def test_what_a_node_asks_for_before_it_starts_anything(tmp_path, exported):
    name = os.path.basename(exported["path"])
    nobody = name.replace(KERNEL, SECOND)
    offered = [
        "nvidia-current_%s_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % NEW,
        name.replace("gcc-12.2.0", "gcc-13.1.0"),
        name,
    ]
    node = FakeNode(tmp_path / "new", kernels=(SECOND, KERNEL))
    assert task(node, archives_offered=offered).asks() == ({KERNEL: name}, {SECOND: nobody})
    foretold = task(node, archives_offered=offered).preview()
    assert ("load", KERNEL) in [(item["action"], item["kernel"]) for item in foretold["steps"]], (
        "check mode has no archive, and foretells its use"
    )
    assert task(node, archives_offered=offered, force=True).asks() == ({}, {})
    keep(node, exported)
    assert task(node, archives_offered=offered).asks() == ({}, {SECOND: nobody}), "it has the archive"
    run(node)
    assert task(node, archives_offered=offered).asks() == ({}, {}), "it is built"


# the node's store


def keep(node, exported, content=None):
    """Put an archive into the node's store; with CONTENT one that does not agree with its digest."""
    target = os.path.join(node.path(tree_archives.STORE), os.path.basename(exported["path"]))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy(exported["path"], target)
    tree_archives.write_sha256(target, exported["sha256"])
    if content is not None:
        Path(target).write_text(content, encoding="utf-8")
    return target


def compiled(node):
    return [call for call in node.calls if "build" in call[:8] and "dkms" in call[:8]]


def test_built_from_the_store_where_it_has_an_archive(tmp_path, exported):
    node = FakeNode(tmp_path / "new", kernels=(SECOND, KERNEL))
    keep(node, exported)
    result = run(node)
    assert [(item["action"], item["kernel"]) for item in result["steps"]] == [
        ("add", None),
        ("build", SECOND),
        ("install", SECOND),
        ("load", KERNEL),
        ("install", KERNEL),
    ]
    assert result["unfit"] == [] and result["compiled"] == []


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_what_was_looked_at_is_moved_to_where_dkms_has_what_it_built(tmp_path, exported, monkeypatch, given, added):
    node, moved, move = FakeNode(tmp_path / "new"), [], shutil.move
    monkeypatch.setattr(
        dkms_act.shutil, "move", lambda source, target: moved.append((source, target)) or move(source, target)
    )
    if added:
        node.do_add({"-v": NEW}, False)
        write(node.tree(NEW), "%s/%s/module/left" % (KERNEL, ARCH), "x")
    if not given:
        keep(node, exported)
    before = os.umask(0o077)
    try:
        result = run(node, import_files=[exported["path"]] if given else None)
    finally:
        assert os.umask(before) == 0o077
    assert actions(result) == (["clear"] if added else []) + ["load", "install"]
    assert [call[1] for call in node.calls if call[0] == "dkms" and call[1] != "status"] == (
        [] if added else ["add"]
    ) + ["install"]
    ((source, target),) = moved
    assert (
        target == node.tree(NEW, KERNEL, ARCH)
        and not os.path.exists(source)
        and (tree_archives.WORKPLACE in source) is added
    )
    assert [
        os.stat(os.path.join(target, name)).st_mode & 0o777 for name in ("", "module", "module/nvidia-current.ko")
    ] == [0o755, 0o755, 0o644]
    assert sorted(os.listdir(target)) == ["log", "module"] and os.listdir(os.path.join(target, "module")) == [
        "nvidia-current.ko"
    ]
    assert tree_archives.WORKPLACE not in os.listdir(node.path(dkms_act.dkms.TREE))


@pytest.mark.parametrize("where", [KERNEL, KERNEL + "/" + ARCH])
def test_nothing_is_put_in_the_place_of_a_link(tmp_path, exported, where):
    node, outside = FakeNode(tmp_path / "new"), tmp_path / "outside"
    node.do_add({"-v": NEW}, False)
    outside.mkdir()
    os.makedirs(os.path.dirname(node.tree(NEW, where)), exist_ok=True)
    os.symlink(str(outside), node.tree(NEW, where))
    with pytest.raises(dkms_act.ActError, match="is a link or lies below one"):
        dkms_act.Tree("nvidia-current", NEW, node, node.root, arch=ARCH).load(KERNEL, str(tmp_path))
    assert os.listdir(str(outside)) == []


@pytest.mark.parametrize("spoil, unfit", [("cut", 0), ("other digest", 0), ("other source", 1)])
def test_an_archive_of_the_store_that_is_of_no_use_is_compiled_anew(tmp_path, exported, spoil, unfit):
    node = FakeNode(tmp_path / "new")
    target = keep(node, exported, content="half" if spoil == "cut" else None)
    if spoil == "other digest":
        tree_archives.write_sha256(target, "0" * 64)
    if spoil == "other source":
        write(
            node.root,
            "/usr/src/nvidia-current-%s/dkms.conf" % NEW,
            'PACKAGE_NAME="nvidia-current"\nPACKAGE_VERSION="%s"\n# patched\n' % NEW,
        )
    result = run(node)
    assert actions(result) == ["add", "build", "install"] and len(result["unfit"]) == unfit
    assert not unfit or "its dkms.conf is not the one of the source on this node" in result["unfit"][0]


def test_what_is_compiled_is_kept_where_somebody_takes_it(node):
    result = task(node, publish=True).run()
    (item,) = result["compiled"]
    assert item["path"] == node.path(
        tree_archives.STORE, "nvidia-current_%s_%s_x86_64_gcc-12.2.0.dkms.tar.gz" % (NEW, KERNEL)
    )
    assert tree_archives.read_whole_digest(item["path"]) == item["sha256"]
    assert os.stat(node.path(tree_archives.STORE)).st_mode & 0o777 == 0o755, "all users of the node can fetch it"
    assert task(node, publish=True).run()["compiled"] == []


def test_what_is_compiled_and_cannot_be_kept_is_compiled_all_the_same(node):
    """Others then compile for themselves; this node is well."""
    node.fail["mktarball"] = (5, "", "Error! No space left on device")
    result = task(node, publish=True).run()
    assert result["compiled"] == [] and actions(result) == ["add", "build", "install"] and not task(node).due()
    (warning,) = result["warnings"]
    assert warning.startswith(
        "nvidia-current %s was compiled for kernel %s, and its archive cannot be kept for other nodes: " % (NEW, KERNEL)
    )
    assert "No space left on device" in warning


def test_a_node_without_room_is_not_compiled_on_while_it_serves(tmp_path, monkeypatch):
    node = FakeNode(tmp_path / "node", versions=(NEW,))
    monkeypatch.setattr(dkms_apart.files, "read_filesystem", lambda *given: {"free": 911 * 2**20})
    with pytest.raises(
        dkms_act.ActError,
        match=(
            "cannot be compiled ahead of its installation: the file system of %s has 911 MiB free, and 912 MiB are "
            "needed, 400 for the build and 512 left over. Nothing was changed. Next step: " % dkms_apart.WORKSHOP
        ),
    ):
        task(node, "prepared", name="nvidia-current").run()
    assert compiled(node) == []
    monkeypatch.setattr(dkms_apart.files, "read_filesystem", lambda *given: {"free": 912 * 2**20})
    assert run(node, "prepared", name="nvidia-current")["changed"]


def test_prepared_compiles_apart_and_keeps_what_is_installed_for_the_way_back(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(OLD,))
    run(node, version=OLD)
    node.packages["/a/nvidia-kernel-dkms.deb"] = NEW
    before = task(node, version=OLD).preview()["kernels"]
    result = run(
        node, "prepared", name="nvidia-current", source_packages=["/a/firmware.deb", "/a/nvidia-kernel-dkms.deb"]
    )
    assert [(item["action"], item.get("version")) for item in result["steps"]] == [("keep", OLD), ("prepare", None)]
    assert task(node, version=OLD).preview()["kernels"] == before and not task(node, version=OLD).due(), (
        "what serves is as it was"
    )
    kept = sorted(name for name in os.listdir(node.path(tree_archives.STORE)) if name.endswith(tree_archives.SUFFIX))
    assert kept == ["nvidia-current_%s_%s_x86_64_gcc-12.2.0.dkms.tar.gz" % (version, KERNEL) for version in (OLD, NEW)]
    assert [call[:6] for call in compiled(node)][-1] == list(dkms_apart.QUIETLY), "jobs run beside it"
    assert not os.path.exists(node.path(dkms_apart.WORKSHOP))
    # the down slot, with the package in place
    node.source(NEW)
    builds = len(compiled(node))
    assert (
        actions(run(node, remove_stale=True)) == ["load", "uninstall", "install", "remove"]
        and len(compiled(node)) == builds
    )
    # and the way back
    assert (
        actions(run(node, version=OLD, remove_stale=True)) == ["load", "uninstall", "install", "remove"]
        and len(compiled(node)) == builds
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_prepared_compiles_what_several_packages_hold_together(tmp_path, backwards):
    """Ubuntu's have dkms.conf in nvidia-dkms-BRANCH-server and the rest in nvidia-kernel-source-BRANCH-server."""
    node = FakeNode(tmp_path / "node", versions=())
    packages = ["/a/nvidia-dkms-580-server.deb", "/a/nvidia-kernel-source-580-server.deb"]
    node.packages.update(dict.fromkeys(packages, NEW))
    node.parts[packages[1]] = "Makefile"
    result = run(node, "prepared", name="nvidia-current", source_packages=packages[::-1] if backwards else packages)
    assert result["changed"] and node.compiled_of == ["Makefile", "dkms.conf"]


def test_prepared_needs_nothing_where_the_version_is_installed(node):
    run(node)
    result = run(node, "prepared", name="nvidia-current")
    assert not result["changed"] and result["compiled"] == []


def test_prepared_takes_what_the_controller_brought(tmp_path, exported):
    node = FakeNode(tmp_path / "new", versions=())
    foretold = task(
        node, "prepared", name="nvidia-current", archives_offered=[os.path.basename(exported["path"])]
    ).preview()
    assert not foretold["changed"], "what comes from the controller is not compiled"
    keep(node, exported)
    assert not run(node, "prepared", name="nvidia-current")["changed"] and compiled(node) == []


@pytest.mark.parametrize(
    "packages, words",
    [
        ([], "neither in /usr/src nor in a package: looked into none"),
        (["/a/firmware.deb"], "looked into /a/firmware.deb. Next step: download the driver's packages first"),
        (
            ["/a/broken.deb"],
            "The package /a/broken.deb cannot be unpacked: dpkg-deb: error: not a Debian format archive",
        ),
    ],
)
def test_prepared_without_the_source_names_what_it_looked_into(tmp_path, packages, words):
    node = FakeNode(tmp_path / "node", versions=())
    with pytest.raises(dkms_act.ActError, match=words):
        task(node, "prepared", name="nvidia-current", source_packages=packages).run()
    assert compiled(node) == [] and not os.path.exists(node.path(dkms_apart.WORKSHOP))


def test_a_preparation_that_cannot_be_compiled_tells_the_log_and_leaves_nothing(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(NEW,))
    node.fail["build"] = (10, "", "Error! Bad return status for module build")
    with pytest.raises(dkms_act.ActError) as caught:
        task(node, "prepared", name="nvidia-current").run()
    assert "cannot be compiled for kernel %s ahead of its installation" % KERNEL in str(
        caught.value
    ) and "Nothing in use was changed" in str(caught.value)
    assert (
        caught.value.details["make_log"]
        and not os.path.exists(node.path(dkms_apart.WORKSHOP))
        and os.listdir(node.path(tree_archives.STORE)) == []
    )


def test_a_preparation_without_headers_is_refused(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(NEW,))
    shutil.rmtree(node.path("/usr/src/linux-headers-%s" % KERNEL))
    write(node.root, "/boot/config-%s" % KERNEL, recorded("kernel-config.txt"))
    with pytest.raises(dkms_act.ActError, match="The headers of kernel %s are not installed" % KERNEL):
        task(node, "prepared", name="nvidia-current").run()


def test_what_a_killed_preparation_left_is_removed_first(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(NEW,))
    write(node.root, dkms_apart.WORKSHOP + "/x/tree/half", "")
    run(node, "prepared", name="nvidia-current")
    assert not os.path.exists(node.path(dkms_apart.WORKSHOP))


def test_the_store_does_not_grow_for_ever(tmp_path):
    node = FakeNode(tmp_path / "node")
    store = node.path(tree_archives.STORE)
    os.makedirs(store)
    there = ((OLD, KERNEL), (NEW, KERNEL), (NEW, "6.1.0-1-amd64"), ("530.1.1", KERNEL))
    names = ["nvidia-current_%s_%s_x86_64_gcc-12.2.0.dkms.tar.gz" % item for item in there]
    for age, name in enumerate(names):
        for end in ("", ".sha256"):
            Path(store, name + end).write_text("x", encoding="utf-8")
        os.utime(os.path.join(store, name), (1000 - age, 1000 - age))
    result = run(node, remove_stale=True)
    assert [item["action"] for item in result["steps"]][-2:] == ["forget", "forget"]
    assert sorted(os.listdir(store)) == sorted(name + end for name in names[:2] for end in ("", ".sha256"))


def test_an_archive_of_other_source_is_left_out_and_refused_where_it_is_named(tmp_path, exported):
    """Another revision of the package: the same version, and other patches."""
    name = os.path.basename(exported["path"])
    node = FakeNode(tmp_path / "new", kernels=(KERNEL,))
    noted = tree_archives.read_source(exported["path"])
    assert noted and noted == tree_archives.source_digest(str(node.root), "nvidia-current", NEW)
    assert task(node, archives_offered=[name], archives_sources={name: noted}).asks() == ({KERNEL: name}, {})
    assert task(node, archives_offered=[name], archives_sources={name: "0" * 64}).asks() == ({}, {KERNEL: name})
    tree_archives.write_sha256(exported["path"], exported["sha256"], "0" * 64)
    before = snapshot(node)
    with pytest.raises(tree_archives.TreeError, match="built from other source of the same version than this node has"):
        task(node, import_files=[exported["path"]]).run()
    assert snapshot(node) == before


def test_an_archive_without_the_kernels_configuration_is_taken_by_its_name(tmp_path, exported):
    """As dkms 3.2 of Debian 13 writes it."""
    with tarfile.open(exported["path"]) as archive:
        content = {
            member.name[2:]: archive.extractfile(member).read().decode() for member in archive if member.isfile()
        }
    name = str(tmp_path / os.path.basename(exported["path"]))
    for path in (name, name.replace("gcc-12.2.0", "gcc-13.1.0")):
        make_archive(path, {key: value for key, value in content.items() if not key.endswith("/log/.config")})
        tree_archives.write_sha256(path, tree_archives.sha256_of(path))
    node = FakeNode(tmp_path / "new", kernels=(KERNEL,))
    with pytest.raises(tree_archives.TreeError, match="for a kernel %s of compiler gcc-13.1.0" % KERNEL):
        task(node, import_files=[name.replace("gcc-12.2.0", "gcc-13.1.0")]).run()
    assert "load" in actions(run(node, import_files=[name]))


def test_other_versions_go_when_the_wanted_one_is_in_place(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(OLD, NEW))
    run(node, version=OLD)
    kept = run(node)
    assert [item["version"] for item in kept["stale"]] == [OLD]
    result = run(node, remove_stale=True)
    assert [(item["action"], item.get("version")) for item in result["steps"]] == [("remove", OLD)] and result[
        "stale"
    ] == []
    assert not os.path.exists(node.tree(OLD)) and run(node)["changed"] is False
    assert "remove " in result["diff"]["after"]["steps"][0]


def test_other_versions_stay_when_the_wanted_one_does_not_come_into_place(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(OLD, NEW))
    run(node, version=OLD)
    node.lie = {"install"}
    with pytest.raises(dkms_act.ActError, match="is not in place"):
        task(node, remove_stale=True).run()
    assert node.built(OLD, KERNEL)


def test_a_removal_of_another_version_that_only_says_it_worked_is_noticed(tmp_path):
    node = FakeNode(tmp_path / "node", versions=(OLD, NEW))
    run(node, version=OLD)
    run(node)
    node.lie = {"remove"}
    with pytest.raises(dkms_act.ActError, match="%s is still there" % OLD):
        task(node, remove_stale=True).run()
