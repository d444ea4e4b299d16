# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of built modules: what must not reach DKMS, and why."""

from __future__ import annotations

import copy
import gzip
import io
import lzma
import os
import re
import struct
import subprocess
import tarfile

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives, trees
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._dkms.fake_dkms import (
    CONF,
    FakeNode,
    make_archive,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import KERNEL, recorded

pytestmark = pytest.mark.pythons

V, ARCH = "535.261.03", "x86_64"


def content(version=V, kernel=KERNEL):
    return {
        trees.INFO + "/dkms.conf": CONF % version,
        trees.INFO + "/PACKAGE_NAME": "nvidia-current\n",
        trees.INFO + "/PACKAGE_VERSION": version + "\n",
        "%s/%s/%s/module/nvidia-current.ko" % (trees.MAIN, kernel, ARCH): "%s|%s|key" % (version, kernel),
        "%s/%s/%s/module/nvidia-current-uvm.ko" % (trees.MAIN, kernel, ARCH): "x",
        "%s/%s/%s/log/.config" % (trees.MAIN, kernel, ARCH): recorded("kernel-config.txt"),
        "%s/%s/%s/log/make.log" % (trees.MAIN, kernel, ARCH): "log",
    }


@pytest.fixture(name="archive")
def archive_path(tmp_path):
    return make_archive(str(tmp_path / "a.dkms.tar.gz"), content())


def test_what_is_in_an_archive(archive):
    tree = trees.inspect_archive(archive)
    assert (tree["name"], tree["version"], tree["conf"]) == ("nvidia-current", V, CONF % V)
    assert tree["kernels"] == {
        (KERNEL, ARCH): {
            "module": "./%s/%s/%s/module/nvidia-current.ko" % (trees.MAIN, KERNEL, ARCH),
            "compiler": "gcc-12.2.0",
        }
    }


def signed(data, signature):
    """A module as scripts/sign-file of the kernel leaves it: struct module_signature, and the magic."""
    return data + signature + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(signature)) + b"~Module signature appended~\n"


def packed(tmp_path, name, change=(), pack=lambda data: data, end=""):
    """An archive in which the modules are signed by NAME; CHANGE replaces content."""
    path, at = str(tmp_path / (name + ".tar.gz")), "%s/%s/%s/module/nvidia-current" % (trees.MAIN, KERNEL, ARCH)
    files = dict((key, data.encode("utf-8")) for key, data in content().items() if "/module/" not in key)
    files["%s/%s/%s/log/make.log" % (trees.MAIN, KERNEL, ARCH)] = name.encode("utf-8")
    for part in ("", "-uvm"):
        files[at + part + ".ko" + end] = pack(signed(b"\x7fELF" + part.encode() * 50000, name.encode() * 70))
    files.update((key % at, data) for key, data in dict(change).items())
    with tarfile.open(path, "w:gz") as archive:
        for key, data in files.items():
            item = tarfile.TarInfo("./" + key)
            item.size = len(data)
            archive.addfile(item, io.BytesIO(data))
    return path


@pytest.mark.parametrize("end, pack", [("", lambda data: data), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_unsigned_digest_is_the_same_whoever_signed_and_when(tmp_path, end, pack):
    one, two = (trees.unsigned_digest(packed(tmp_path, name, pack=pack, end=end)) for name in ("one", "another"))
    assert one == two and re.fullmatch("[0-9a-f]{64}", one)


@pytest.mark.parametrize(
    "change",
    [
        {"%s.ko": b"\x7fELF evil"},
        {"%s-uvm.ko": signed(b"\x7fELF", b"s")},
        {"%s-more.ko": b"\x7fELF"},
        {trees.INFO + "/dkms.conf%.0s": b"POST_INSTALL=evil\n"},
        {trees.INFO + "/more%.0s": b"x"},
    ],
)
def test_unsigned_digest_differs_where_anything_but_signature_and_log_does(tmp_path, change):
    assert trees.unsigned_digest(packed(tmp_path, "a")) != trees.unsigned_digest(packed(tmp_path, "b", change))


@pytest.mark.parametrize(
    "change",
    [
        {"%s.ko.zst": b"x"},
        {"%s.ko.xz": b"no xz"},
        {"%s.ko.gz": gzip.compress(b"x" * 100)[:-9]},
        {"%s.ko": signed(b"", b"")[:20] + struct.pack(">I", 1 << 31) + b"~Module signature appended~\n"},
        {"../%.0sx": b""},
    ],
)
def test_unsigned_digest_of_what_cannot_be_read_is_an_error(tmp_path, change):
    with pytest.raises(tree_archives.TreeError):
        trees.unsigned_digest(packed(tmp_path, "a", change))


@pytest.mark.parametrize(
    "change",
    [
        {"%s-x.ko.xz": lzma.compress(b"0" * (1 << 22))},
        {"%s/%s/%s/log/x%%.0s" % (trees.MAIN, KERNEL, ARCH): b"0" * (1 << 22)},
    ],
)
def test_unsigned_digest_unpacks_no_more_than_a_tree_has(tmp_path, monkeypatch, change):
    monkeypatch.setattr(trees, "MAX_BYTES", 1 << 20)
    with pytest.raises(tree_archives.TreeError):
        trees.unsigned_digest(packed(tmp_path, "a", change))


def member(name, kind=tarfile.REGTYPE, target=""):
    item = tarfile.TarInfo(name)
    item.type, item.linkname = kind, target
    return item


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (member("/etc/cron.d/x"), "absolute path"),
        (member("./dkms_main_tree/../../etc/x"), "leads out"),
        (member("./dkms_main_tree/x", tarfile.SYMTYPE, "/etc"), "neither a file nor a directory"),
        (member("./dkms_main_tree/x", tarfile.LNKTYPE, "/etc/shadow"), "neither a file nor a directory"),
        (member("./dkms_main_tree/x", tarfile.CHRTYPE), "neither a file nor a directory"),
        (member("./dkms_source_tree/dkms.conf"), "not part of a binaries-only DKMS tree"),
        (member("./run.sh"), "not part of"),
    ],
)
def test_members_that_are_refused(tmp_path, extra, words):
    path = make_archive(str(tmp_path / "a.tar.gz"), content(), [extra])
    with pytest.raises(tree_archives.TreeError, match=words):
        trees.inspect_archive(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({trees.INFO + "/dkms.conf": None}, "has no dkms_binaries_only"),
        ({trees.INFO + "/PACKAGE_NAME": ""}, "has no dkms_binaries_only"),
        ({trees.INFO + "/PACKAGE_VERSION": "1.2.3"}, "say nvidia-current/1.2.3"),
        ({trees.INFO + "/dkms.conf": "PACKAGE_NAME=other\n"}, "is of other/None"),
    ],
)
def test_archives_that_do_not_agree_with_themselves(tmp_path, change, words):
    files = dict(content(), **change)
    path = make_archive(
        str(tmp_path / "a.tar.gz"), dict((name, data) for name, data in files.items() if data is not None)
    )
    with pytest.raises(tree_archives.TreeError, match=words):
        trees.inspect_archive(path)


def test_no_modules_no_archive_and_no_tar(tmp_path):
    path = make_archive(
        str(tmp_path / "a.tar.gz"),
        dict((name, data) for name, data in content().items() if name.startswith(trees.INFO)),
    )
    with pytest.raises(tree_archives.TreeError, match="no built modules"):
        trees.inspect_archive(path)
    for data in (b"nonsense", b""):
        (tmp_path / "b.tar.gz").write_bytes(data)
        with pytest.raises(tree_archives.TreeError, match="not a readable tar"):
            trees.inspect_archive(str(tmp_path / "b.tar.gz"))
    whole = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "c.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(tree_archives.TreeError):
        trees.inspect_archive(str(tmp_path / "c.tar.gz"))


def test_what_is_taken_is_what_was_built_with_nothing_of_its_owner_and_rights(tmp_path):
    odd = member("./%s/%s/%s/log/owned" % (trees.MAIN, KERNEL, ARCH))
    odd.mode, odd.uid = 0o6777, 1000
    path = make_archive(str(tmp_path / "a.tar.gz"), content(), [odd])
    with open(path, "ab") as stream:
        stream.write(b"\0" * 100000)
    take = tmp_path / "take"
    take.mkdir()
    tree = trees.inspect_archive(path, str(take))
    assert tree["sha256"] == tree_archives.sha256_of(path), "what follows the archive counts"
    found = dict((str(item.relative_to(take)), item) for item in take.glob("**/*") if item.is_file())
    base = "%s/%s/" % (KERNEL, ARCH)
    assert sorted(found) == [
        base + name
        for name in (
            "log/.config",
            "log/make.log",
            "log/owned",
            "module/nvidia-current-uvm.ko",
            "module/nvidia-current.ko",
        )
    ]
    assert tree["kernels"][(KERNEL, ARCH)]["file"] == str(found[base + "module/nvidia-current.ko"])
    assert [found[base + name].read_text() for name in ("module/nvidia-current.ko", "log/.config", "log/owned")] == [
        "%s|%s|key" % (V, KERNEL),
        recorded("kernel-config.txt"),
        "",
    ]
    assert set((item.stat().st_mode & 0o7777, item.stat().st_uid) for item in found.values()) == {(0o644, os.getuid())}
    os.truncate(path, os.path.getsize(path) - 1)
    assert trees.inspect_archive(path)["sha256"] != tree["sha256"]


@pytest.mark.parametrize(
    "extra",
    [
        [member("./%s/%s/%s/module/nvidia-current-uvm.ko" % (trees.MAIN, KERNEL, ARCH))],
        [member("./%s/%s/%s/module/nvidia-current-uvm.ko" % (trees.MAIN, KERNEL, ARCH), tarfile.DIRTYPE)],
        [member("./%s/%s/%s/module/nvidia-current-uvm.ko/x" % (trees.MAIN, KERNEL, ARCH))],
        [member("./%s/%s/%s/module/nvidia-current-uvm.ko/x/y" % (trees.MAIN, KERNEL, ARCH))],
        [member("./%s/%s/%s/module" % (trees.MAIN, KERNEL, ARCH))],
    ],
)
def test_members_that_are_where_others_are(tmp_path, extra):
    path = make_archive(str(tmp_path / "a.tar.gz"), content(), extra)
    (tmp_path / "take").mkdir()
    with pytest.raises(tree_archives.TreeError, match="is where another one is"):
        trees.inspect_archive(path, str(tmp_path / "take"))


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        (trees.INFO + "/dkms.conf", 1024 * 1024 + 1, "larger than such a file is"),
        ("%s/%s/%s/log/.config" % (trees.MAIN, KERNEL, ARCH), 4 * 1024 * 1024 + 1, "larger than such a file is"),
        ("%s/%s/%s/module/nvidia.ko" % (trees.MAIN, KERNEL, ARCH), 3, "two main modules for kernel"),
    ],
)
def test_what_cannot_be_of_a_dkms_tree(tmp_path, name, size, words):
    path = make_archive(str(tmp_path / "a.tar.gz"), dict(content(), **{name: "x" * size}))
    for take in (None, str(tmp_path / "take")):
        with pytest.raises(tree_archives.TreeError, match=words):
            trees.inspect_archive(path, take)


def test_a_disk_that_is_full_is_not_held_against_the_archive(archive, tmp_path, monkeypatch):
    def full(source, target, size):
        raise OSError(28, "No space left on device", target.name)

    monkeypatch.setattr(trees.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        trees.inspect_archive(archive, str(tmp_path / "take"))
    for unreadable in (str(tmp_path), "/proc/self/mem"):
        with pytest.raises(tree_archives.TreeError, match="not a readable tar"):
            trees.inspect_archive(unreadable)


def test_a_workplace_is_beside_the_trees_and_gone_afterwards(tmp_path):
    with tree_archives.Workplace(str(tmp_path)) as place:
        assert list(tmp_path.iterdir()) == [], "it is made when it is needed"
        elsewhere = place.directory("a")
    assert not os.path.exists(os.path.dirname(elsewhere))
    left = tmp_path / "var/lib/dkms" / tree_archives.WORKPLACE / "of a killed run"
    left.mkdir(parents=True)
    with tree_archives.Workplace(str(tmp_path)) as place:
        found = [place.directory(name) for name in ("a", "b")]
        assert [os.path.dirname(path) for path in found] == [str(left.parent)] * 2 and not left.exists()
        assert left.parent.name.startswith(".") and left.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(str(tmp_path / "var/lib/dkms")) == []


def test_a_promised_digest_is_one_that_is_there_with_its_archive(archive):
    assert tree_archives.read_promised_digest(archive) is None
    tree_archives.write_sha256(archive, "0" * 64)
    assert tree_archives.read_promised_digest(archive) == "0" * 64 and tree_archives.read_whole_digest(archive) is None
    os.unlink(archive)
    assert tree_archives.read_promised_digest(archive) is None


def test_source_is_read_once_for_as_long_as_it_is_the_same(tmp_path, monkeypatch):
    base, read, real = tmp_path / "usr/src/nvidia-current-1.2", [], tree_archives.sha256_of
    base.mkdir(parents=True)
    (base / "a.c").write_text("x")
    monkeypatch.setattr(tree_archives, "sha256_of", lambda path: read.append(path) or real(path))
    seen = [tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2") for dummy in range(2)]
    assert seen[0] == seen[1] and len(read) == 1
    (base / "a.c").write_text("y")
    assert tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2") != seen[0] and len(read) == 2


def test_too_much_in_an_archive(archive, monkeypatch):
    monkeypatch.setattr(trees, "MAX_MEMBERS", 3)
    with pytest.raises(tree_archives.TreeError, match="more than a DKMS tree"):
        trees.inspect_archive(archive)


def test_copies_are_private_and_gone_afterwards(archive):
    tree_archives.write_sha256(archive, tree_archives.sha256_of(archive))
    with tree_archives.private_copies([archive]) as copies:
        directory = os.path.dirname(copies[0]["copy"])
        assert (
            os.stat(directory).st_mode & 0o777 == 0o700
            and tree_archives.sha256_of(copies[0]["copy"]) == copies[0]["sha256"]
        )
    assert not os.path.exists(directory)


@pytest.mark.parametrize(
    ("digest", "words"),
    [
        ("0" * 64 + "  x\n", "its sha256 is"),
        ("", "holds no sha256"),
        ("xyz", "holds no sha256"),
        (None, "cannot be read"),
    ],
)
def test_digests_that_are_wrong(archive, digest, words):
    if digest is not None:
        with open(archive + ".sha256", "w", encoding="ascii") as handle:
            handle.write(digest)
    with pytest.raises(tree_archives.TreeError, match=words):
        with tree_archives.private_copies([archive]):
            raise AssertionError("it was let through")


def test_an_archive_that_is_not_there(tmp_path):
    with pytest.raises(tree_archives.TreeError, match="cannot be"):
        with tree_archives.private_copies([str(tmp_path / "none.tar.gz")]):
            raise AssertionError("it was let through")


def test_the_module_in_an_archive_is_asked(archive, tmp_path):
    runner = FakeNode(tmp_path / "node")
    tree, described = trees.examine_archive(archive, runner)
    found = described[(KERNEL, ARCH)]
    assert (found["version"], found["vermagic"]) == (V, KERNEL + " SMP preempt")
    assert not os.path.exists(runner.calls[0][1]) and os.path.basename(runner.calls[0][1]) == "nvidia-current.ko"
    tree["name"] = "changed by a caller"
    again, dummy = trees.examine_archive(archive, runner)
    assert again["name"] == "nvidia-current" and len(runner.calls) == 1


def test_no_module_of_an_archive_with_another_digest_is_looked_into(archive, tmp_path):
    runner = FakeNode(tmp_path / "node")
    with pytest.raises(
        tree_archives.TreeError,
        match="its sha256 is %s, and %s was wanted" % (tree_archives.sha256_of(archive), "0" * 64),
    ):
        trees.examine_archive(archive, runner, "0" * 64)
    assert runner.calls == []
    assert trees.examine_archive(archive, runner, tree_archives.sha256_of(archive))[0]["version"] == V


def test_an_archive_that_became_another_is_asked_again(archive, tmp_path):
    runner = FakeNode(tmp_path / "node")
    trees.examine_archive(archive, runner)
    tree_archives.write_sha256(archive, tree_archives.sha256_of(archive))
    assert tree_archives.read_whole_digest(archive)
    times = os.stat(archive)
    make_archive(archive, dict(content(), **{trees.INFO + "/PACKAGE_NAME": ""}))
    os.utime(archive, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert tree_archives.read_whole_digest(archive) is None
    with pytest.raises(tree_archives.TreeError, match="has no dkms_binaries_only"):
        trees.examine_archive(archive, runner)


MODULE = {"version": V, "vermagic": KERNEL + " SMP", "signer": "key", "error": None}
NODE = {
    "name": "nvidia-current",
    "version": V,
    "kernels": [KERNEL],
    "arch": ARCH,
    "compilers": {KERNEL: "gcc-12.2.0"},
    "conf": None,
    "secure_boot": {"state": "disabled", "keys": None},
}
TREE = {
    "name": "nvidia-current",
    "version": V,
    "conf": CONF % V,
    "kernels": {(KERNEL, ARCH): {"module": "m", "compiler": "gcc-12.2.0"}},
}
ENABLED = {"state": "enabled", "keys": ["key"]}


def test_an_archive_that_fits():
    assert trees.find_refusals(TREE, NODE, {(KERNEL, ARCH): MODULE}) == []
    assert trees.find_refusals(TREE, dict(NODE, conf=CONF % V, secure_boot=ENABLED), {(KERNEL, ARCH): MODULE}) == []


@pytest.mark.parametrize(
    ("node", "tree", "module", "words"),
    [
        ({"name": "nvidia-current-open"}, {}, {}, "nvidia-current-open/535.261.03 is wanted"),
        ({"version": "535.1.1"}, {}, {"version": "535.1.1"}, "nvidia-current/535.1.1 is wanted"),
        ({"kernels": ["6.1.0-99-amd64"]}, {}, {}, "it is for kernel 6.1.0-56-amd64"),
        ({"kernels": []}, {}, {}, "are none"),
        ({"arch": "aarch64"}, {}, {}, "this node is aarch64"),
        ({"compilers": {KERNEL: "gcc-13.2.0"}}, {}, {}, "here that kernel is of gcc-13.2.0"),
        ({"compilers": {}}, {}, {}, "compiler of kernel 6.1.0-56-amd64 is not known"),
        ({"compilers": {KERNEL: None}}, {}, {}, "is not known"),
        ({}, {"compiler": None}, {}, "is not known"),
        ({"conf": "other"}, {}, {}, "its dkms.conf is not"),
        ({}, {"module": None}, None, "no main NVIDIA kernel module"),
        ({}, {}, {"version": "535.1.1"}, "of version 535.1.1"),
        ({}, {}, {"version": None}, "cannot be read"),
        ({}, {}, {"vermagic": "6.1.0-9 SMP"}, "vermagic '6.1.0-9 SMP'"),
        ({}, {}, {"vermagic": None}, "cannot be read"),
        ({}, {}, {"error": "modinfo is not installed"}, "modinfo is not installed"),
        ({"secure_boot": ENABLED}, {}, {"signer": None}, "is not signed"),
        ({"secure_boot": ENABLED}, {}, {"signer": "x"}, "not among this node's keys"),
        ({"secure_boot": {"state": "enabled", "keys": None}}, {}, {}, "cannot be listed"),
        ({"secure_boot": {"state": "unknown", "keys": None}}, {}, {}, "Secure Boot is on is not known"),
    ],
)
def test_archives_that_do_not_fit(node, tree, module, words):
    changed = copy.deepcopy(TREE)
    changed["kernels"][(KERNEL, ARCH)].update(tree)
    described = {} if module is None else {(KERNEL, ARCH): dict(MODULE, **module)}
    why = trees.find_refusals(changed, dict(NODE, **node), described)
    assert len(why) == 1 and words in why[0]


def test_several_archives_in_one(tmp_path):
    paths = [
        make_archive(str(tmp_path / ("%s.tar.gz" % name)), content(kernel=name)) for name in (KERNEL, "6.1.0-49-amd64")
    ]
    merged = str(tmp_path / "merged.tar.gz")
    trees.merge_archives(paths, merged)
    assert sorted(key[0] for key in trees.inspect_archive(merged)["kernels"]) == ["6.1.0-49-amd64", KERNEL]
    assert trees.read_fingerprint([merged]) == trees.read_fingerprint(paths) != trees.read_fingerprint(paths[:1])


def test_where_the_package_looks():
    assert (
        tree_archives.make_staging_path("nvidia-current", V)
        == "/usr/share/nvidia-current-dkms/nvidia-current-535.261.03.dkms.tar.gz"
    )


def test_the_source_of_an_archive_is_noted_beside_it_and_sha256sum_does_not_mind(archive):
    tree_archives.write_sha256(archive, tree_archives.sha256_of(archive), "ab" * 32)
    assert tree_archives.read_source(archive) == "ab" * 32 and tree_archives.expected_sha256(
        archive
    ) == tree_archives.sha256_of(archive)
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", archive + ".sha256"],
        cwd=os.path.dirname(archive),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with tree_archives.private_copies([archive]) as copies:
        assert copies[0]["source"] == "ab" * 32
    tree_archives.write_sha256(archive, tree_archives.sha256_of(archive))
    assert tree_archives.read_source(archive) is None and tree_archives.read_source(archive + ".absent") is None


def test_a_digest_of_source_sees_names_contents_and_links(tmp_path):
    base = tmp_path / "usr/src/nvidia-current-1.2"
    assert tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2") is None
    (base / "nvidia").mkdir(parents=True)
    (base / "nvidia/a.c").write_text("x")
    seen = [tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2")]
    (base / "nvidia/a.c").rename(base / "nvidia/b.c")
    seen.append(tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2"))
    (base / "nvidia/b.c").write_text("y")
    seen.append(tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2"))
    (base / "link").symlink_to("nvidia/b.c")
    seen.append(tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2"))
    assert len(set(seen)) == 4 and tree_archives.source_digest(str(tmp_path), "nvidia-current", "1.2") == seen[-1]


def test_what_is_not_known_of_a_source_is_not_held_against_an_archive():
    assert tree_archives.other_source("a", "b")
    assert (
        not tree_archives.other_source("a", "a")
        and not tree_archives.other_source(None, "b")
        and not tree_archives.other_source("a", None)
    )


@pytest.mark.parametrize(
    ("found", "name", "compiler"),
    [
        (None, "nvidia-current_550.163.01_6.12.117+deb13-amd64_x86_64_gcc-14.2.0.dkms.tar.gz", "gcc-14.2.0"),
        ("gcc-12.2.0", "nvidia-current_550.163.01_6.12.117+deb13-amd64_x86_64_gcc-14.2.0.dkms.tar.gz", "gcc-12.2.0"),
        (None, "nvidia-current_550.163.01_6.12.9_x86_64_gcc-14.2.0.dkms.tar.gz", None),
        (None, "nvidia-current_550.163.01_6.12.117+deb13-amd64_x86_64_.dkms.tar.gz", None),
        (None, "driver.tar.gz", None),
    ],
)
def test_the_compiler_is_in_the_name_where_dkms_kept_no_configuration(found, name, compiler):
    tree = {
        "name": "nvidia-current",
        "version": "550.163.01",
        "kernels": {("6.12.117+deb13-amd64", "x86_64"): {"module": "x", "compiler": found}},
    }
    trees.name_compiler(tree, "/var/lib/gpufleet/" + name)
    assert tree["kernels"][("6.12.117+deb13-amd64", "x86_64")]["compiler"] == compiler
