# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of driver packages by the real dnf and rpm, from a repository of stub packages."""

from __future__ import annotations

import contextlib
import functools
import http.server
import shutil
import threading
import types

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import (
    dnf,
    package_read,
    package_task,
    transaction,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import ManagerError
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_act import Actor, ChangeFailed
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs

OPTIONS = dict(repositories.OPTIONS, version="580.95.05")
OLD, NEW = "3:575.57.08-1.el9", "3:580.95.05-1.el9"
SET = {
    "kmod-nvidia-open-dkms",
    "libnvidia-cfg",
    "libnvidia-ml",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "nvidia-kmod-common",
    "nvidia-modprobe",
    "nvidia-persistenced",
}
KERNEL, NEWER_KERNEL = "5.14.0-503.22.1.el9_5", "5.14.0-570.1.1.el9_6"


def archive():
    new, old = stubs.redhat("580.95.05", prebuilt_for=[stubs.EL_KERNEL]), stubs.redhat("575.57.08")
    others = [
        stubs.package("kernel-core", KERNEL),
        stubs.package("kernel-core", NEWER_KERNEL),
        stubs.package("old-tool", "1-1.el9", "libnvidia-ml (= 3:575.57.08)"),
        stubs.package("glue", "1-1.el9"),
        stubs.package("glue", "2-1.el9"),
        stubs.package("nvidia-settings", NEW, "glue (>= 2)"),
        stubs.package("nvidia-xconfig", NEW, "kernel-core (>= 5.14.0-570)"),
    ]

    def stream(name, packages, without, profile):
        kept = [item for item in packages if not any(word in item["name"] for word in without)]
        return repositories.module_document("nvidia-driver", name, kept, profile)

    streams = [
        stream("580-open", new, ["latest"], "nvidia-open"),
        stream("580-dkms", new, ["open"], "nvidia-driver-cuda"),
        stream("580", new, ["dkms", "open"], "libnvidia-ml"),
        stream("575-open", old, ["latest"], "nvidia-open"),
    ]
    return stubs.EL_BASE + new + old + others, streams


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory):
    """The repository, once; every test gets a root directory of its own."""
    base = tmp_path_factory.mktemp("rpm")
    packages, streams = archive()
    return repositories.DnfRoot(base, packages, streams)


@pytest.fixture(name="machine")
def _machine(built):
    machine = built.fresh()
    yield machine
    shutil.rmtree(str(machine.root))


def change(machine, **options):
    return repositories.Change(dnf.Dnf(machine, root=str(machine.root)), dict(OPTIONS, **options))


def run(machine, **options):
    return change(machine, **options).carry_out()


def versions(machine):
    found = dnf.Dnf(machine, root=str(machine.root)).list_installed()
    return dict((name, have["version"]) for name, have in found.items())


def stream(machine):
    return dnf.Dnf(machine, root=str(machine.root)).enabled_stream("nvidia-driver")


def test_install_upgrade_other_flavour_and_back(machine):
    """Locks, epochs and streams go along, each way, and a second run has nothing to do."""
    plan = run(machine, version="575.57.08", components=["fabricmanager"])
    assert (
        plan.transaction["streams"] == {"nvidia-driver": (None, "575-open")} and len(plan.transaction["install"]) == 10
    )
    assert set(versions(machine)) == SET | {"dkms", "nvidia-fabricmanager"} and stream(machine) == "575-open"
    locks = machine.locks.read_text(encoding="utf-8")
    assert (
        "nvidia-driver-cuda-%s.*\n" % OLD in locks
        and "nvidia-fabricmanager-0:575.57.08-1.*\n" in locks
        and "dkms" not in locks.replace("-dkms-", "")
    )
    assert not change(machine, version="575.57.08").plan().changes

    plan = run(machine)
    assert (
        plan.transaction["streams"] == {"nvidia-driver": ("575-open", "580-open")}
        and len(plan.transaction["upgrade"]) == 9
    )
    assert versions(machine)["nvidia-fabricmanager"] == "580.95.05-1" and versions(machine)["nvidia-modprobe"] == NEW
    assert "575" not in machine.locks.read_text(encoding="utf-8") and stream(machine) == "580-open"

    plan = run(machine, flavour="proprietary")
    assert (plan.resolved["obsolete"], stream(machine)) == (["kmod-nvidia-open-dkms"], "580-dkms")
    assert "kmod-nvidia-open-dkms" not in versions(machine) and versions(machine)["kmod-nvidia-latest-dkms"] == NEW
    assert "kmod-nvidia-open-dkms" not in machine.locks.read_text(encoding="utf-8")

    plan = run(machine, version="575.57.08")
    assert len(plan.transaction["downgrade"]) == 8 and stream(machine) == "575-open"
    assert versions(machine)["kmod-nvidia-open-dkms"] == OLD and "580" not in machine.locks.read_text(encoding="utf-8")

    run(machine, state="absent")
    assert set(versions(machine)) == {"dkms"} and machine.locks.read_text(encoding="utf-8") == ""


def test_the_lock_keeps_dnf_from_upgrading(machine):
    run(machine, version="575.57.08")
    machine(["dnf", "-y", "module", "reset", "nvidia-driver"])
    for pinned, expected in ((True, OLD), (False, NEW)):
        if not pinned:
            machine.locks.write_text("", encoding="utf-8")
        machine(["dnf", "-y", "-q", "--setopt=cuda-rhel9-x86_64.module_hotfixes=1", "upgrade"])
        assert versions(machine)["libnvidia-ml"] == expected


def test_lock_of_every_version_holds_nothing_and_goes_with_a_hold(machine):
    manager = dnf.Dnf(machine, root=str(machine.root))
    machine.install("glue-1-1.el9")
    machine.locks.write_text("glue-0:1-1.el9.*\ngl*\n", encoding="utf-8")
    assert not manager.list_installed()["glue"]["hold"]
    upgrade = ["dnf", "--assumeno", "upgrade", "glue"]
    assert "Upgrading:\n glue" in machine(upgrade)[1]
    manager.mark("hold", ["glue"])
    assert manager.list_installed()["glue"]["hold"] and "Nothing to do" in machine(upgrade)[1]


def test_the_obvious_packages_alone_would_mix_versions(machine):
    """nvidia-kmod-common needs nvidia-modprobe of any version: dnf takes the newest of all branches."""
    manager = dnf.Dnf(machine, root=str(machine.root))
    plan = change(machine, version="575.57.08").plan()
    asked = dict((name, version) for name, version in plan.resolved["packages"].items() if name != "nvidia-modprobe")
    arguments = manager.arguments(asked, [], "nvidia-driver:575-open")
    simulated = manager.simulate(arguments)
    (refusal,) = transaction.decide_transaction(simulated, asked, {}, plan.state.index, [], plan.state.table)
    assert (refusal["id"], refusal["packages"]) == ("mixed_set", ["nvidia-modprobe"]) and NEW in refusal["found"]


def test_dnf_automatic_is_kept_away_where_it_is_installed(machine):
    path = machine.root / "etc/dnf/automatic.conf"
    run(machine, exclude_unattended=True)
    assert not path.exists()
    path.write_text("[base]\nexcludepkgs = mine\n", encoding="utf-8")
    run(machine, exclude_unattended=True)
    assert "excludepkgs = mine, cuda-drivers*, kmod-nvidia-*" in path.read_text(encoding="utf-8")
    run(machine, exclude_unattended=False)
    assert path.read_text(encoding="utf-8") == "[base]\nexcludepkgs = mine\n"


def test_prebuilt_modules(machine):
    kernels = machine.root / "lib/modules" / stubs.EL_KERNEL
    kernels.mkdir(parents=True)
    (kernels / "vmlinuz").write_bytes(b"")
    plan = run(machine, flavour="proprietary", kernel_module="prebuilt")
    assert versions(machine)[
        "kmod-nvidia-580.95.05-5.14.0-503.22.1"
    ] == "3:580.95.05-3.el9_5" and "dkms" not in versions(machine)
    assert (
        plan.resolved["stream"] == "nvidia-driver:580"
        and plan.resolved["trees"] == {}
        and plan.disk["/var/lib/dkms"] is None
    )
    assert run(machine, flavour="open").resolved["obsolete"] == ["kmod-nvidia-580.95.05-5.14.0-503.22.1"]
    assert "kmod-nvidia-580.95.05-5.14.0-503.22.1" not in versions(machine)


@pytest.mark.parametrize(
    "installed,extra,ident,packages",
    [
        (["old-tool"], [], "removal", ["old-tool"]),
        (["kernel-core-" + KERNEL], ["nvidia-xconfig"], "kernel_change", ["kernel-core"]),
    ],
)
def test_what_a_simulated_transaction_is_refused_for(machine, installed, extra, ident, packages):
    run(machine, version="575.57.08", hold=None)
    machine.install(*installed)
    plan = change(machine, extra_packages=extra).plan()
    (refusal,) = plan.refusals
    assert (refusal["id"], refusal["packages"]) == (ident, packages)
    assert versions(machine)["libnvidia-ml"] == OLD and stream(machine) == "575-open"


def test_somebody_elses_lock_is_not_run_over(machine):
    machine.install("glue-1-1.el9")
    machine.locks.write_text("glue-0:1-1.el9.*\n", encoding="utf-8")
    (refusal,) = change(machine, extra_packages=["nvidia-settings"]).plan().refusals
    assert (refusal["id"], refusal["packages"]) == ("held", ["glue"])
    machine.locks.write_text("", encoding="utf-8")
    assert change(machine, extra_packages=["nvidia-settings"]).plan().refusals == ()


@pytest.mark.parametrize(
    "settings,step",
    [
        (None, "install python3-dnf-plugin-versionlock"),
        ("[main]\nenabled=0\n", "set enabled = 1 in /etc/dnf/plugins/versionlock.conf"),
    ],
)
def test_a_lock_that_nothing_reads_is_refused(machine, settings, step):
    path = machine.root / "etc/dnf/plugins/versionlock.conf"
    path.unlink()
    if settings:
        path.write_text(settings, encoding="utf-8")
    (refusal,) = change(machine).plan().refusals
    assert refusal["id"] == "no_hold" and step in refusal["next_step"]
    assert change(machine, hold=None).plan().refusals == () and change(machine, state="resolved").plan().refusals == ()


def test_the_lock_list_may_lie_elsewhere(machine):
    (machine.root / "etc/dnf/plugins/versionlock.conf").write_text(
        "[main]\nlocklist = /etc/elsewhere.list\n", encoding="utf-8"
    )
    manager = dnf.Dnf(machine, root=str(machine.root))
    machine.install("glue-1-1.el9")
    manager.mark("hold", ["glue"])
    assert (machine.root / "etc/elsewhere.list").read_text(
        encoding="utf-8"
    ) == "glue-0:1-1.el9.*\n" and manager.list_installed()["glue"]["hold"]
    manager.mark("unhold", ["glue"])
    assert not manager.list_installed()["glue"]["hold"] and machine.locks.read_text(encoding="utf-8") == ""


def test_a_branch_without_a_stream(machine):
    (refusal,) = change(machine, version="575.57.08", flavour="proprietary").plan().refusals
    assert refusal["id"] == "no_stream" and "575-open" in refusal["found"] and refusal["expected"] == "575-dkms"


def test_unknown_version_lists_every_stream(machine):
    (refusal,) = change(machine, version="999.1.1").plan().refusals
    assert refusal["id"] == "unknown_version" and refusal["found"] == "available: %s, %s" % (NEW, OLD)


def test_a_failed_transaction_puts_the_stream_and_the_locks_back(machine):
    run(machine, version="575.57.08")
    locks = machine.locks.read_text(encoding="utf-8")
    changing = change(machine)
    plan = changing.plan()
    machine.broken = "libnvidia-ml-580.95.05-1.el9.x86_64.rpm"
    with pytest.raises(ChangeFailed) as failed:
        changing.actor.carry_out(plan)
    assert "dnf install failed" in str(failed.value) and failed.value.details["output"]
    assert stream(machine) == "575-open" and set(versions(machine)[name] for name in SET) == {OLD}
    assert machine.locks.read_text(encoding="utf-8") == locks


def test_packages_that_an_interrupted_run_left_twice(machine):
    run(machine, version="575.57.08", hold=None)
    machine(
        [
            "rpm",
            "-i",
            "--justdb",
            "--nodeps",
            "--force",
            "--oldpackage",
            str(machine.repository / "libnvidia-ml-580.95.05-1.el9.x86_64.rpm"),
        ]
    )
    plan = change(machine, hold=None).plan()
    assert plan.state.broken == ("libnvidia-ml",) and [item["id"] for item in plan.refusals] == ["interrupted"]
    changing = change(machine, hold=None, repair=True)
    changing.actor.repair(changing.plan().state)
    assert len(changing.actor.done) == 2 and "rpm -e" in changing.actor.done[1]
    plan = changing.plan()
    assert plan.refusals == () and plan.transaction["remove"] == []
    changing.actor.carry_out(plan)
    assert set(versions(machine)[name] for name in SET) == {NEW}
    assert change(machine, hold=None).plan().state.broken == ()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        """Nothing: what dnf asks for is no output of a test."""


@pytest.fixture(name="served")
def _served(machine):
    with serve(machine):
        yield machine


@contextlib.contextmanager
def serve(machine):
    """The repository over HTTP on this machine, where downloads are downloads."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(machine.repository))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    machine.move("http://127.0.0.1:%d" % server.server_address[1])
    yield machine
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_downloads_are_kept_and_counted_once_and_the_way_back_too(served):
    """Before the change the archives of the new set; and those of the set that is there."""
    plan = change(served, version="575.57.08", state="downloaded").plan()
    assert plan.download_bytes > 0 and plan.disk["/var/cache/dnf"] == plan.download_bytes and plan.refusals == ()
    ahead = run(served, version="575.57.08", state="downloaded")
    assert plan.resolved["module_archives"] is ahead.resolved["module_archives"] is None
    assert versions(served) == {} and change(served, version="575.57.08").plan().download_bytes == 0
    run(served, version="575.57.08")
    again = change(served, version="575.57.08", state="downloaded")
    assert not again.plan().changes
    shutil.rmtree(str(served.root / "var/cache/dnf"))
    back = change(served, version="575.57.08", state="downloaded")
    assert back.plan().changes
    run(served, version="575.57.08", state="downloaded")
    archives = [path.name for path in (served.root / "var/cache/dnf").glob("*/packages/*.rpm")]
    assert "kmod-nvidia-open-dkms-575.57.08-1.el9.x86_64.rpm" in archives


def store_of(machine):
    return sorted(path.name for path in (machine.root / "var/lib/gpufleet/packages").glob("*.rpm"))


def go_dark(machine):
    """The repository does not answer, and nothing of it is cached."""
    machine.move("http://127.0.0.1:9")
    shutil.rmtree(str(machine.root / "var/cache/dnf"))
    assert machine(["dnf", "-q", "repoquery", "--available", "libnvidia-ml"])[0] == 1


@pytest.mark.parametrize("flavours", [("open", "open"), pytest.param(("proprietary", "open"), marks=pytest.mark.slow)])
def test_rollback_installs_kept_packages_while_the_repository_does_not_answer(served, flavours):
    before, after = flavours
    run(served, version="580.95.05", flavour=before, keep=True)
    run(served, version="580.95.05", flavour=before, state="downloaded", keep=True)
    was = versions(served)
    assert len(store_of(served)) == len(SET)
    run(served, version="575.57.08", flavour=after, keep=True)
    assert versions(served)["libnvidia-ml"] == OLD and len(store_of(served)) == 2 * len(SET)
    go_dark(served)
    plan = run(served, version="580.95.05", flavour=before, keep=False)
    assert versions(served) == was and plan.download_bytes == 0
    assert "nvidia-driver-cuda-%s.*\n" % NEW in served.locks.read_text(encoding="utf-8")
    assert not change(served, version="580.95.05", flavour=before).plan().changes


def test_rollback_without_kept_packages_names_the_repository_that_does_not_answer(served):
    run(served, version="575.57.08")
    go_dark(served)
    with pytest.raises(ManagerError, match="cuda-rhel9-x86_64"):
        change(served, version="580.95.05").plan()


@pytest.mark.parametrize("state", ["present", "downloaded"])
def test_repository_that_does_not_answer_is_found_in_check_mode(machine, state):
    """Its metadata is on the node still."""
    failed = []

    def look():
        module = types.SimpleNamespace(
            params=dict(OPTIONS, state=state, repository_ready=True, require_available=False, apt_lock_look_s=0),
            check_mode=True,
            fail_json=lambda **answer: failed.append(answer),
        )
        return package_task.run_task(module, Actor(dnf.Dnf(machine, root=str(machine.root))), False)

    with serve(machine):
        assert look()["changed"] and failed == []
    look()
    (refusal,) = failed[0]["refusals"]
    assert refusal["id"] == "no_mirror" and refusal["found"].startswith("cuda-rhel9-x86_64: ")
    assert versions(machine) == {} and change(machine, state=state).plan().refusals == (), "what is cached stays"


def test_driver_that_cannot_be_kept_is_not_replaced(served):
    run(served, version="575.57.08")
    shutil.rmtree(str(served.root / "var/cache/dnf"))
    before = versions(served)
    changing = change(served, keep=True)
    plan = changing.plan()
    served.move("http://127.0.0.1:9")
    with pytest.raises(ChangeFailed, match="cannot be kept"):
        changing.actor.carry_out(plan)
    assert versions(served) == before


def test_truncated_archive_in_the_cache_is_not_kept(served):
    run(served, version="575.57.08")
    (archive,) = (served.root / "var/cache/dnf").glob("*/packages/libnvidia-ml-575*.rpm")
    archive.write_bytes(archive.read_bytes()[:-20])
    served.move("http://127.0.0.1:9")
    manager = dnf.Dnf(served, root=str(served.root))
    assert set(manager.keep({"libnvidia-ml": OLD, "libnvidia-cfg": OLD}, {})) == {"libnvidia-ml"}
    assert store_of(served) == ["libnvidia-cfg-575.57.08-1.el9.x86_64.rpm"]


@pytest.fixture(name="signers", scope="module")
def _signers():
    made = [repositories.Signer(name) for name in ("mirror <mirror@localhost>", "other <other@localhost>")]
    yield made
    for signer in made:
        signer.close()


@pytest.mark.parametrize("signs, kept", [("mirror", True), ("other", False), (None, False)])
def test_only_a_package_that_passes_its_signature_check_is_kept(tmp_path, signers, signs, kept):
    """dnf leaves a package that fails the check in its cache. From the store it would be installed unchecked."""
    mirror, other = signers
    packages = stubs.EL_BASE + stubs.redhat("575.57.08")
    signer = {"mirror": mirror, "other": other}.get(signs)
    machine = repositories.DnfRoot(tmp_path, packages, signer=signer, key=mirror.key())
    with serve(machine):
        manager = dnf.Dnf(machine, root=str(machine.root))
        wrong = manager.keep({"libnvidia-ml": OLD}, {})
        assert list((machine.root / "var/cache/dnf").glob("*/packages/libnvidia-ml-575*.rpm"))
    assert (wrong == {}, bool(store_of(machine))) == (kept, kept)


@pytest.mark.parametrize(
    "main, repository, needed",
    [
        ("gpgcheck=1", "", True),
        ("gpgcheck=1", "gpgcheck=0", False),
        ("gpgcheck=0", "", False),
        ("gpgcheck=0", "gpgcheck = True", True),
        ("", "", True),
        ("gpgcheck=0", None, True),
        # what is written elsewhere is no default of dnf.conf, of two definitions the stricter one holds, and dnf does
        # not read a file with a line that is none
        ("gpgcheck=1", "[main]\ngpgcheck=0", True),
        ("gpgcheck=1", "[DEFAULT]\ngpgcheck=0", True),
        ("gpgcheck=1", "gpgcheck=1\n[cuda-rhel9-x86_64]\ngpgcheck=0", True),
        ("gpgcheck=0", "gpgcheck=0\nno such line", True),
    ],
)
def test_signature_is_needed_unless_the_repository_says_otherwise(machine, main, repository, needed):
    (machine.root / "etc/dnf/dnf.conf").write_text("[main]\n%s\n" % main, encoding="utf-8")
    text = "" if repository is None else "[cuda-rhel9-x86_64]\n%s\n" % repository
    (machine.root / "etc/yum.repos.d/stub.repo").write_text(text, encoding="utf-8")
    manager = dnf.Dnf(machine, root=str(machine.root))
    assert manager.needs_signature("cuda-rhel9-x86_64") is needed
    assert manager.needs_signature(""), "no cache of a repository"


def test_no_disk_space_is_refused(machine):
    (refusal,) = change(machine, min_free_mib=2**40).plan().refusals
    assert refusal["id"] == "disk" and "dnf clean packages" in refusal["next_step"]


def test_a_repository_without_modules(tmp_path):
    """EL 10, or a mirror that lost them: the versions and the locks do alone."""
    new = stubs.redhat("580.95.05")
    machine = repositories.DnfRoot(
        tmp_path,
        stubs.EL_BASE + new + stubs.redhat("575.57.08"),
        updateinfo=repositories.advisory(stubs.named(new, "libnvidia-ml", "nvidia-imex")),
    )
    plan = run(machine, version="575.57.08")
    assert plan.resolved["stream"] is None and "streams" not in plan.transaction and SET <= set(versions(machine))
    again = change(machine, version="575.57.08").plan()
    found = package_read.read_holds(dnf.Dnf(machine, root=str(machine.root)), again, again.state.installed, 0.0)
    rows = dict((row["package"], row) for row in found)
    assert set(rows) == SET and rows["libnvidia-ml"]["newer"] == rows["libnvidia-ml"]["security"] == [NEW]
    assert (rows["libnvidia-cfg"]["newer"], rows["libnvidia-cfg"]["security"]) == ([NEW], [])
