# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of driver packages by the real apt and dpkg, from a repository of stub packages as Ubuntu's archive has
them.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import threading
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import files
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, package_task, store, transaction
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_act import Actor, ChangeFailed
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs

pytestmark = pytest.mark.pythons

PIN = "/etc/apt/preferences.d/driver.pref"
OPTIONS = dict(repositories.OPTIONS, version="580.178.04")
NEW, OLD = "580.178.04-0ubuntu0.24.04.1", "580.173.02-0ubuntu0.24.04.1"
BESIDE = "nvidia-firmware-580-server-580.178.04"  # made to lie beside that of other versions
MARK = "580-server"


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory):
    """The repository, once; every test gets a root directory of its own."""
    archive = (
        stubs.NOBLE
        + stubs.ubuntu_server("580", "580.173.02")
        + [stubs.package("old-tool", "1-1", "libnvidia-compute-580-server (= %s)" % OLD)]
    )
    return repositories.AptRoot(tmp_path_factory.mktemp("apt"), archive)


@pytest.fixture(name="machine")
def _machine(built):
    machine = built.fresh()
    yield machine
    shutil.rmtree(str(machine.root))


def change(machine, **options):
    return repositories.Change(apt.Apt(machine, root=str(machine.root)), dict(OPTIONS, **options))


def run(machine, **options):
    return change(machine, **options).carry_out()


def installed(machine):
    found = apt.Apt(machine, root=str(machine.root)).list_installed()
    return dict((name, have["version"]) for name, have in found.items() if have["installed"])


def kernel(machine, release):
    (machine.root / "lib/modules" / release).mkdir(parents=True)
    (machine.root / "boot").mkdir(exist_ok=True)
    (machine.root / "boot" / ("vmlinuz-" + release)).write_bytes(b"")


def candidates(machine, *names):
    dummy, out, dummy = machine(["apt-cache", "policy"] + list(names))
    return [line.split(": ", 1)[1] for line in out.splitlines() if line.startswith("  Candidate: ")]


def test_install_downgrade_other_flavour_and_other_branch(machine):
    """Each way the whole set moves at once, with its pin and its holds, and a second run has nothing to do."""
    run(machine, components=["fabricmanager"])
    assert installed(machine)["nvidia-fabricmanager-580"] == installed(machine)["nvidia-dkms-580-server-open"] == NEW
    again = change(machine)
    assert not again.plan().changes

    plan = run(machine, version="580.173.02")
    assert installed(machine)["libnvidia-compute-580-server"] == installed(machine)["nvidia-fabricmanager-580"] == OLD
    assert plan.resolved["obsolete"] == [] and plan.lift == (BESIDE,) and installed(machine)[BESIDE]

    run(machine, flavour="proprietary")
    assert (
        "nvidia-dkms-580-server-open" not in installed(machine) and installed(machine)["nvidia-dkms-580-server"] == NEW
    )

    run(machine, version="595.91.07")
    left = [name for name in installed(machine) if "580" in name]
    assert left == ["nvidia-firmware-580-server-580.173.02", BESIDE]  # apt autoremove takes them
    assert installed(machine)["nvidia-fabricmanager-595"] == "595.91.07-0ubuntu0.24.04.1"

    run(machine, state="absent")
    assert set(installed(machine)) == {"dkms"} and not (machine.root / PIN.lstrip("/")).exists()


def test_unattended_upgrades_are_kept_away_and_let_in_again(machine):
    """As apt itself reads the file."""
    path = machine.root / "etc/apt/apt.conf.d/53gpufleet-nvidia-driver"
    path.parent.mkdir()
    run(machine, exclude_unattended=True)
    dummy, out, dummy = repositories.call(
        ["apt-config", "-c", str(path), "dump", "Unattended-Upgrade::Package-Blacklist"]
    )
    patterns = re.findall(r'Package-Blacklist:: "(.*)";', out)
    names = [item["name"] for item in stubs.NOBLE if "nvidia" in item["name"]]
    assert [name for name in names if not any(re.match(pattern, name) for pattern in patterns)] == []
    assert not any(
        re.match(pattern, name)
        for pattern in patterns
        for name in ("nvidia-container-toolkit", "nvidia-modprobe", "linux-image-generic", "dkms")
    )
    again = change(machine, exclude_unattended=True)
    assert not again.plan().changes
    run(machine, exclude_unattended=False)
    assert not path.exists()


def test_the_pin_leaves_no_other_candidate(machine):
    names = [
        "nvidia-utils-580-server",
        "nvidia-utils-595-server",
        "nvidia-headless-570-server",
        "nvidia-fabricmanager-595",
        "nvidia-dkms-580-server-open",
    ]
    assert "(none)" not in candidates(machine, *names)
    run(machine, version="580.173.02")
    assert candidates(machine, *names) == [OLD, "(none)", "(none)", "(none)", OLD]


def test_the_pin_of_prebuilt_modules(machine):
    kernel(machine, stubs.KERNEL)
    machine.install("linux-image-" + stubs.KERNEL)
    run(machine, kernel_module="prebuilt")
    modules = "linux-modules-nvidia-580-server-open-" + stubs.KERNEL
    assert installed(machine)[modules] == "6.8.0-149.149+1" and "dkms" not in installed(machine)
    assert candidates(machine, modules, "linux-modules-nvidia-580-server-open-" + stubs.OLD_KERNEL) == [
        "6.8.0-149.149+1",
        "(none)",
    ]
    again = change(machine, kernel_module="prebuilt")
    assert not again.plan().changes


def test_a_kernel_that_a_prebuilt_module_would_bring_is_refused(machine):
    """The module of a kernel that is on the disk and not in the package list: its package comes with the module."""
    kernel(machine, stubs.KERNEL)
    (refusal,) = change(machine, kernel_module="prebuilt").plan().refusals
    assert (refusal["id"], refusal["packages"]) == ("kernel_change", ["linux-image-" + stubs.KERNEL])


def test_the_transitional_trap(machine):
    """What apt itself would do for branch 570, and that it is refused twice: when resolved, and when simulated."""
    (resolved,) = change(machine, version="570.211.01", flavour="proprietary").plan().refusals
    assert resolved["id"] == "transitional" and installed(machine) == {}
    manager = apt.Apt(machine, root=str(machine.root))
    index = manager.index("nvidia")
    asked = {"nvidia-headless-570-server": "570.211.01-0ubuntu0.24.04.2"}
    simulated = manager.simulate(manager.arguments(asked))
    brought = dict((item["name"], item["version"]) for item in simulated["install"])
    assert brought["nvidia-dkms-580-server"] == brought["libnvidia-compute-580-server"] == NEW
    table = change(machine).plan().state.table
    (refusal,) = transaction.decide_transaction(simulated, asked, {}, index, [], table)
    assert refusal["id"] == "mixed_set" and set(refusal["packages"]) == set(brought) - set(asked) - {"dkms", BESIDE}


def test_a_removal_outside_the_set_is_refused(machine):
    run(machine, version="580.173.02", hold=None, pin=None)
    machine.install("old-tool")
    (refusal,) = change(machine).plan().refusals
    assert (refusal["id"], refusal["packages"]) == ("removal", ["old-tool"])
    assert change(machine, allow_removal=["old-tool"]).plan().refusals == ()


def test_somebody_elses_hold_is_not_run_over(machine):
    """apt itself finds no way then: it would change what is held, and is not allowed to remove it."""
    run(machine, version="580.173.02", hold=None, pin=None)
    machine.install("old-tool")
    machine(["apt-mark", "hold", "old-tool"])
    assert [item["id"] for item in change(machine).plan().refusals] == ["no_solution"]


def test_downloads_are_kept_and_counted_once(machine):
    archive = machine.root / "var/cache/apt/archives"
    assert change(machine).plan().download_bytes > 0
    run(machine, state="downloaded")
    assert installed(machine) == {} and not change(machine, state="downloaded").plan().download_bytes, list(
        archive.iterdir()
    )


def served(directory):
    """A mirror on a port of its own, and what is asked of it."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, text, *more):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, asked


def everything(machine):
    """The files, without what apt itself writes when it is asked."""
    own = ("pkgcache.bin", "srcpkgcache.bin", "eipp.log.xz", "lock")
    return {
        str(path): path.stat().st_size for path in machine.root.rglob("*") if path.is_file() and path.name not in own
    }


def test_a_mirror_that_is_gone_is_found_out_in_check_mode(machine):
    """Its index is on the node still. What was tried leaves nothing there."""
    server, asked = served(machine.repository)
    host = "127.0.0.1:%d" % server.server_port
    sources = machine.root / "etc/apt/sources.list"
    sources.write_text("deb [trusted=yes] http://kim:secret@%s ./\n" % host, encoding="utf-8")
    assert machine(["apt-get", "update"])[0] == 0
    failed = []

    def look():
        module = types.SimpleNamespace(
            params=dict(OPTIONS, repository_ready=True, require_available=False, apt_lock_look_s=0),
            check_mode=True,
            fail_json=lambda **answer: failed.append(answer),
        )
        return package_task.run_task(module, Actor(apt.Apt(machine, root=str(machine.root))), False)

    try:
        before = everything(machine)
        del asked[:]
        assert look()["changed"] and failed == []
        archives = [path for path in asked if path.endswith(".deb")]
        sizes = {path.name: path.stat().st_size for path in machine.repository.glob("*.deb")}
        assert len(archives) == 1 and sizes[archives[0].rsplit("/", 1)[1]] == min(
            sizes[path.name] for path in machine.repository.glob("*_%s_amd64.deb" % NEW)
        )
    finally:
        server.shutdown()
        server.server_close()
    look()
    (refusal,) = failed[0]["refusals"]
    assert refusal["id"] == "no_mirror" and refusal["found"].startswith("http://%s: E: " % host)
    assert "secret" not in str(failed)
    assert everything(machine) == before


# the node's own store


def cut_off(machine):
    """No mirror, no index, no cache: what is left is what the node kept."""
    for place in ("var/lib/apt/lists", "var/cache/apt"):
        shutil.rmtree(str(machine.root / place), ignore_errors=True)
        (machine.root / place / ("partial" if place.endswith("lists") else "archives/partial")).mkdir(parents=True)
    sources = machine.root / "etc/apt/sources.list"
    sources.write_text("", encoding="utf-8")


def store_of(machine):
    return machine.root / store.DIRECTORY.lstrip("/")


def kept(machine):
    return sorted(set(path.name.split("_")[1] for path in store_of(machine).glob("*.deb")))


def test_the_way_forth_and_back_needs_no_mirror_once_it_is_kept(machine):
    run(machine, version="580.173.02", keep=True)
    again = change(machine, version="580.173.02", keep=True)
    assert not again.plan().changes and kept(machine) == [OLD]
    ahead = run(machine, state="downloaded", keep=True)
    assert kept(machine) == [OLD, NEW] and installed(machine)["libnvidia-compute-580-server"] == OLD
    assert [path.rsplit("/", 1)[1].split("_")[0] for path in ahead.resolved["module_archives"]] == [
        "nvidia-dkms-580-server-open",
        "nvidia-kernel-source-580-server-open",
    ]
    again = change(machine, state="downloaded", keep=True)
    assert not again.plan().changes and ahead.resolved["version"] == NEW
    cut_off(machine)
    run(machine, keep=True)
    assert (
        installed(machine)["libnvidia-compute-580-server"] == installed(machine)["nvidia-dkms-580-server-open"] == NEW
    )
    run(machine, version="580.173.02", keep=True)
    assert (
        installed(machine)["libnvidia-compute-580-server"] == installed(machine)["nvidia-dkms-580-server-open"] == OLD
    )
    again = change(machine, version="580.173.02", keep=True)
    assert not again.plan().changes


def test_without_the_store_there_is_no_way_back(machine):
    """What the test before it shows is the store's doing."""
    run(machine, version="580.173.02")
    run(machine)
    cut_off(machine)
    (refusal,) = change(machine, version="580.173.02").plan().refusals
    assert refusal["id"] == "unknown_version"


def test_a_driver_that_cannot_be_kept_is_not_replaced(machine, tmp_path):
    run(machine, version="580.173.02")
    shutil.rmtree(str(machine.root / "var/cache/apt/archives"))
    (machine.root / "var/cache/apt/archives/partial").mkdir(parents=True)
    narrow = tmp_path / "Packages"
    stanzas = (machine.repository / "Packages").read_text(encoding="utf-8").split("\n\n")
    narrow.write_text(
        "\n\n".join(stanza for stanza in stanzas if "Version: %s\n" % OLD not in stanza), encoding="utf-8"
    )
    (machine.root / "etc/apt/sources.list").write_text("deb [trusted=yes] copy:%s ./\n" % tmp_path, encoding="utf-8")
    assert machine(["apt-get", "update"])[0] == 0
    plan = change(machine, keep=True).plan()
    (refusal,) = plan.refusals
    assert (
        refusal["id"] == "cannot_keep"
        and "libnvidia-compute-580-server" in refusal["packages"]
        and "%s cannot be had any more" % OLD in refusal["message"]
    )
    assert "nvidia_driver_keep: false" in refusal["next_step"] and not store_of(machine).exists()
    assert change(machine, keep=False).plan().refusals == ()


def test_a_mirror_that_goes_away_in_between_stops_it_before_anything_is_changed(machine):
    run(machine, version="580.173.02")
    changing = change(machine, keep=True)
    plan = changing.plan()
    assert plan.refusals == () and plan.keep
    before = installed(machine)
    cut_off(machine)
    with pytest.raises(
        ChangeFailed,
        match="cannot be kept for the way back: .*no mirror that this node knows has it.*Nothing was changed",
    ):
        changing.actor.carry_out(plan)
    assert installed(machine) == before


def test_what_cannot_be_kept_is_told_and_is_no_change(machine):
    """Its packages are gone from the cache and the mirror answers no more: the driver is as it should be, and so is
    every further run.
    """
    run(machine, version="580.173.02")
    shutil.rmtree(str(machine.root / "var/cache/apt/archives"))
    (machine.root / "var/cache/apt/archives/partial").mkdir(parents=True)
    machine.repository.rename(str(machine.repository) + "-gone")
    try:
        module = types.SimpleNamespace(params=dict(OPTIONS, version="580.173.02", keep=True))
        answer = package_task.run_task(module, Actor(apt.Apt(machine, root=str(machine.root))), True)
    finally:
        (machine.repository.parent / (machine.repository.name + "-gone")).rename(machine.repository)
    assert "libnvidia-compute-580-server" in [name.split(":")[0] for name in answer["unkept"]] and not answer["changed"]
    again = package_task.run_task(module, Actor(apt.Apt(machine, root=str(machine.root))), True)
    assert again["changed"] and again["unkept"] == [] and kept(machine) == [OLD]


@pytest.mark.parametrize("spoil", ["content", "list", "not listed"])
def test_what_is_damaged_in_the_store_is_not_used(machine, spoil):
    run(machine, version="580.173.02", keep=True)
    path = next(store_of(machine).glob("libnvidia-compute-580-server_*.deb"))
    if spoil == "content":
        path.unlink()
        path.write_bytes(b"something else")
    elif spoil == "list":
        (store_of(machine) / store.LIST).write_text("{", encoding="utf-8")
    else:
        (store_of(machine) / store.LIST).write_text("{}", encoding="utf-8")
    run(machine)
    cut_off(machine)
    assert [item["id"] for item in change(machine, version="580.173.02").plan().refusals] == [
        {"content": "partly_available"}.get(spoil, "unknown_version")
    ]


def test_the_store_keeps_the_last_two_drivers(machine):
    run(machine, version="580.173.02", keep=True)
    run(machine, keep=True)
    assert kept(machine) == [OLD, NEW]
    run(machine, version="595.91.07", keep=True)
    assert kept(machine) == [NEW, "595.91.07-0ubuntu0.24.04.1"]


def mode(path):
    return path.stat().st_mode & 0o777


def test_a_store_is_made_readable_and_nothing_above_it_is(machine, tmp_path):
    above = tmp_path / "private"
    above.mkdir(mode=0o700)
    umask = os.umask(0o077)
    try:
        files.own_directory(str(machine.root), store.DIRECTORY)
        files.own_directory(str(tmp_path), "/private/new/store")
    finally:
        os.umask(umask)
    assert [mode(path) for path in (store_of(machine), store_of(machine).parent)] == [0o755, 0o755], (
        "apt reads there without its rights"
    )
    assert [mode(path) for path in (above / "new/store", above / "new", above)] == [0o755, 0o755, 0o700]
    store_of(machine).parent.chmod(0o700)
    files.own_directory(str(machine.root), store.DIRECTORY)
    assert mode(store_of(machine).parent) == 0o755


def test_archives_are_read_once_for_one_answer(machine, monkeypatch):
    run(machine, version="580.173.02", keep=True)
    read = []
    monkeypatch.setattr(store, "sha256_of", lambda path: read.append(path) or tree_archives.sha256_of(path))
    again = change(machine, version="580.173.02", keep=True)
    assert not again.plan().changes
    assert len(read) == len(set(read)) == len(list(store_of(machine).glob("*.deb")))


def test_what_is_no_such_package_is_not_kept(machine, tmp_path):
    (tmp_path / "fake_1_amd64.deb").write_bytes(b"no package")
    shelf = apt.Apt(machine, root=str(machine.root)).store
    assert shelf.add({("fake", "1"): str(tmp_path / "fake_1_amd64.deb")}) == {
        ("fake", "1"): "%s is not a package fake 1" % (tmp_path / "fake_1_amd64.deb")
    }
    assert shelf.index() == {}
