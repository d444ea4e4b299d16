# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from plugins.module_utils._packages import systems
from tests.lab import aptconf, config, drivers, image, layers, machines, rehearse
from tests.lab.common import LabError

HERE = Path(image.__file__).resolve().parent


def nothing(_root, _log):
    raise AssertionError("not to be built here")


def test_a_layers_name_follows_what_it_is_made_of():
    base = layers.Layer("base", "b", {"packages": "a b"}, nothing)
    same = layers.Layer("base", "other words", {"packages": "a b"}, nothing)
    other = layers.Layer("base", "b", {"packages": "a b c"}, nothing)
    assert base.name == same.name != other.name


def test_a_layer_over_a_changed_parent_is_another_layer():
    base, other = (layers.Layer("base", "b", {"packages": packages}, nothing) for packages in ("a", "b"))
    over = [layers.Layer("sim", "s", {"sources": "1"}, nothing, (parent,)).name for parent in (base, other)]
    assert over[0] != over[1]


@pytest.mark.parametrize(("suite", "system"), [("bookworm", "12"), ("trixie", "13")])
def test_the_driver_package_is_the_collections(suite, system):
    table = systems.table_for({"ID": "debian", "VERSION_ID": system})
    flavour = table["flavours"]["proprietary"]
    assert (flavour["root"], flavour["dkms_name"]) == (drivers.PACKAGE, drivers.MODULE)
    for version in config.DRIVER_VERSIONS[suite]:
        assert f"Package: src:{table['sources'][0]}\nPin: version {version}\n" in aptconf.driver_pin(version)


def test_a_layer_is_made_once_and_whole(tmp_path, monkeypatch):
    made = []

    def build(root, _log):
        made.append(root)
        (root / "file").write_text("x")

    monkeypatch.setattr(layers, "run", lambda *words, **_more: None)
    layer = layers.Layer("base", "b", {"packages": "a"}, build)
    (tmp_path / f".tmp-{layer.name}" / "root" / "half").mkdir(parents=True)
    layers.make(layer, tmp_path)
    layers.make(layer, tmp_path)
    assert len(made) == 1
    assert [path.name for path in layer.root(tmp_path).iterdir()] == ["file"]
    assert not (tmp_path / f".tmp-{layer.name}").exists()


def test_a_layer_that_failed_is_not_there(tmp_path):
    def build(_root, _log):
        raise LabError("no mirror")

    layer = layers.Layer("base", "b", {"packages": "a"}, build)
    with pytest.raises(LabError, match="no mirror"):
        layers.make(layer, tmp_path)
    assert not layer.ready(tmp_path)


def test_kernels_are_those_that_can_boot(tmp_path):
    for name in ("6.1.0-9-amd64", "6.1.0-8-amd64"):
        (tmp_path / "lib/modules" / name).mkdir(parents=True)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1.0-9-amd64").touch()
    assert image.kernels(tmp_path) == ["6.1.0-9-amd64"]


@pytest.mark.parametrize(("text", "number"), [(None, 0), ("", 0), ("0", 0), ("7", 7), ("99", 99)])
def test_lab_number(text, number):
    assert config.lab_number(text) == number


@pytest.mark.parametrize("text", ["100", "-1", "x", "1.5", "../1"])
def test_lab_number_out_of_range_is_refused(text):
    with pytest.raises(LabError, match="GPUFLEET_LAB_ID"):
        config.lab_number(text)


def test_cache_directory_follows_the_environment():
    assert config.cache_dir({"GPUFLEET_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}) == Path("/a/b")
    assert config.cache_dir({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/gpufleet")
    assert config.cache_dir({"HOME": "/h"}) == Path("/h/.cache/gpufleet")


@pytest.mark.parametrize("path", ["/a:b", "/a,b", "/a b", "/a\\b"])
def test_paths_that_a_mount_cannot_take_are_refused(path):
    with pytest.raises(LabError, match="overlay mounts"):
        config.current({"HOME": "/h"}, checkout=Path(path))


def test_drivers_are_found_by_either_version():
    stored = ["535.216.03-2~bpo12+1", "535.261.03-1"]
    assert drivers.choose("535.216.03", stored) == stored[0]
    assert drivers.choose("535.261.03-1", stored) == stored[1]


def test_an_unknown_driver_version_says_which_there_are():
    with pytest.raises(LabError, match=r"999\.1 is not available.*535\.261\.03-1"):
        drivers.choose("999.1", ["535.261.03-1"])


def test_an_ambiguous_driver_version_is_refused():
    with pytest.raises(LabError, match="ambiguous"):
        drivers.choose("535.261.03", ["535.261.03-1", "535.261.03-2"])


def test_a_rehearsal_lays_the_lab_over_the_inventory_and_reaches_nothing_else():
    words = rehearse.command(
        "ansible-playbook", Path("/i"), Path("/o.json"), Path("/p.yml"), ["n1", "n2"], ["-e", "x=1"], {"y": "2"}
    )
    assert words == [
        "ansible-playbook",
        "-i",
        "/i",
        "-i",
        "/o.json",
        "--limit",
        "n1,n2,localhost",
        "-e",
        '{"y": "2"}',
        "-e",
        "x=1",
        "/p.yml",
    ]


@pytest.mark.parametrize("word", ["-l", "-lx", "--limit", "--limit=x"])
def test_a_rehearsals_limit_cannot_be_widened(word, tmp_path):
    for name in ("i", "p.yml"):
        (tmp_path / name).touch()
    lab = config.Lab(checkout=tmp_path, cache=tmp_path, number=0)
    with pytest.raises(LabError, match="sets --limit itself"):
        rehearse.run(lab, tmp_path / "i", tmp_path / "p.yml", [word])


def test_a_rehearsal_names_the_hosts_it_leaves_out():
    groups = {
        "_meta": {"hostvars": {"me": {"ansible_connection": "local"}}},
        "all": {"children": ["gpu_nodes", "others"]},
        "gpu_nodes": {"hosts": ["n1"]},
        "others": {"hosts": ["login", "me"]},
    }
    assert rehearse.left_out(groups) == ["login"]


@pytest.mark.parametrize(
    ("suite", "version", "place"),
    [
        ("bookworm", "535.216.03-2~bpo12+1", "dkms"),
        ("bookworm", "535.261.03-1", "dkms"),
        ("trixie", "550.163.01-2", "dkms"),
        ("trixie", "550.163.01-4~bpo13+1", "dkms/550.163.01-4~bpo13+1"),
        ("trixie", "535.261.03-1", "dkms"),
    ],
)
def test_trees_of_two_revisions_of_a_driver_do_not_take_each_others_place(suite, version, place, tmp_path):
    assert (
        drivers.directory(config.Lab(checkout=tmp_path, cache=tmp_path, number=0), suite, version) == tmp_path / place
    )


def test_mounts_of_the_lab_are_found_deepest_first():
    lab = config.Lab(checkout=Path("/c"), cache=Path("/cache"), number=0)
    lines = (
        "1 1 0:1 / /c rw\n2 1 0:1 / /c/.lab/nodes/a/root rw\n3 2 0:1 / /c/.lab/nodes/a/root/proc rw\n"
        "4 1 0:1 / /c/.lab/nodesx rw\n"
    )
    assert machines.own_mounts(lab, lines) == ["/c/.lab/nodes/a/root/proc", "/c/.lab/nodes/a/root"]


@pytest.mark.parametrize("action", [image.refresh, image.prune])
def test_an_image_in_use_is_not_taken_away(action, tmp_path, monkeypatch):
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry/4.json").write_text('{"checkout": "/elsewhere"}')
    (tmp_path / "images/old").mkdir(parents=True)
    monkeypatch.setattr(image, "REGISTRY", tmp_path / "registry")
    with pytest.raises(LabError, match="a lab is up .checkout /elsewhere."):
        action(config.Lab(checkout=tmp_path, cache=tmp_path, number=0))
    assert (tmp_path / "images/old").is_dir()


def test_pruning_keeps_the_present_images(tmp_path, monkeypatch):
    monkeypatch.setattr(image, "REGISTRY", tmp_path / "registry")
    kept = {image.base_layer(suite).name for suite in config.SUITES}
    for name in ("base-old", ".tmp-base-x", *kept):
        (tmp_path / "images" / name).mkdir(parents=True)
    assert image.prune(config.Lab(checkout=tmp_path, cache=tmp_path, number=0)) == [".tmp-base-x", "base-old"]
    assert {path.name for path in (tmp_path / "images").iterdir()} == kept


def test_what_the_lab_compiled_is_recorded_as_a_builders(tmp_path):
    """Machines of the lab are sent nothing else."""
    pytest.importorskip("sqlalchemy", reason="the ledger needs it")
    trees = tmp_path / "dkms"
    trees.mkdir()
    name = "nvidia-current_535.261.03_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz"
    (trees / name).write_bytes(b"x")
    drivers.tree_archives.write_sha256(str(trees / name), "a" * 64)
    drivers.record(trees)
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import others, store

    database = store.Store(store.default_url(str(tmp_path)))
    assert others.find_builders(database, {name: "a" * 64}) == {name: "lab"}
    with sqlite3.connect(database.file) as connection:
        connection.execute("UPDATE gpufleet_meta SET value = 'another' WHERE name = 'schema_version'")
    connection.close()
    drivers.record(trees)
    assert others.find_builders(database, {name: "a" * 64}) == {name: "lab"}, "one of another version is made again"
