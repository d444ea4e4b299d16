# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module, over a machine whose apt and dpkg are played by recorded data."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.lock import NodeLock
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import (
    package_locks,
    package_task,
    transaction,
)
from ansible_collections.gpufleet.lifecycle.plugins.modules import driver_packages
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories, stub_packages
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import SET, FakeMachine

pytestmark = pytest.mark.cores

NEW, OLD = "535.261.03-1", "535.216.03-2~bpo12+1"
PIN = "etc/apt/preferences.d/gpufleet-nvidia-driver.pref"


class Bench:
    """Runs the module on a fake machine below ``root``; answers its result."""

    def __init__(self, root, monkeypatch, call_module):
        self.root, self.monkeypatch, self.call_module = root, monkeypatch, call_module
        self.lock_path = str(root / "lock")
        self.machine = None

    def make(self, **kwargs):
        self.machine = FakeMachine(self.root / "node", **kwargs)
        return self.machine

    def run(self, check=False, **options):
        options.setdefault("min_free_mib", 0)
        patch = self.monkeypatch
        patch.setattr(driver_packages, "Runner", lambda pass_fds=(): self.machine)
        patch.setattr(driver_packages, "ignore_hangup", lambda: None)
        patch.setattr(driver_packages, "NodeLock", lambda **kwargs: NodeLock(path=self.lock_path, **kwargs))
        original = driver_packages.Apt
        patch.setattr(
            driver_packages, "Apt", lambda runner, **kwargs: original(runner, root=str(self.machine.root), **kwargs)
        )
        try:
            return self.call_module(driver_packages, check, diff=True, **options)
        finally:
            patch.setattr(driver_packages, "Apt", original)


@pytest.fixture(name="bench")
def _bench(tmp_path, monkeypatch, call_module):
    return Bench(tmp_path, monkeypatch, call_module)


def versions(machine):
    return set(machine.at(name) for name in SET)


def held(machine):
    return sorted(name for name, have in machine.packages.items() if have["hold"])


def test_a_node_that_checks_itself_at_boot_expects_what_is_installed(bench):
    """Also on the way back, and where the packages are there already; a node without the file gets none."""
    machine = bench.make()
    path = machine.root / boot_expectation.PATH.lstrip("/")
    assert bench.run(version="535.216.03")["changed"] and not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": boot_expectation.SCHEMA,
        "driver_version": "535.216.03",
        "hardware": {"gpus": 8},
        "mig_file": None,
        "policy": {},
    }
    path.write_text(boot_expectation.render_document(document))
    assert not bench.run(version="535.216.03")["changed"] and boot_expectation.read_expectation(str(path)) == document
    assert (
        bench.run(check=True, version="535.261.03")["changed"]
        and boot_expectation.read_expectation(str(path)) == document
    )
    for version in ("535.261.03", "535.216.03"):
        assert bench.run(version=version)["changed"]
        assert boot_expectation.read_expectation(str(path)) == dict(document, driver_version=version)
    path.write_text(boot_expectation.render_document(dict(document, driver_version="1.2.3")))
    assert bench.run(check=True, version="535.216.03")["changed"] and bench.run(version="535.216.03")["changed"]
    assert boot_expectation.read_expectation(str(path)) == document and not bench.run(version="535.216.03")["changed"]


def test_from_nothing_to_present_and_again(bench):
    machine = bench.make()
    first = bench.run(version="535.216.03", hold=True, pin=True)
    assert first["changed"] and versions(machine) == {OLD}
    assert held(machine) == sorted(SET)
    assert "Pin: version %s\n" % OLD in (machine.root / PIN).read_text(encoding="utf-8")
    assert machine.acted() == ["apt-get install", "apt-mark hold"]
    machine.log.clear()
    second = bench.run(version="535.216.03", hold=True, pin=True)
    assert not second["changed"] and machine.log == [] and second["actions"] == []
    assert second["transaction"] == {"install": [], "upgrade": [], "downgrade": [], "reinstall": [], "remove": []}


@pytest.mark.parametrize("start,wanted,kind", [(OLD, "535.261.03", "upgrade"), (NEW, "535.216.03", "downgrade")])
def test_to_another_version(bench, start, wanted, kind):
    machine = bench.make(version=start, hold=True)
    result = bench.run(version=wanted, hold=True)
    assert set(item["name"] for item in result["transaction"][kind]) == set(SET)
    assert versions(machine) == {result["resolved"]["version"]} != {start}
    assert held(machine) == sorted(SET)
    assert (
        "nvidia-smi %s" % start in result["diff"][0]["before"]
        and "nvidia-smi %s" % result["resolved"]["version"] in result["diff"][0]["after"]
    )


def test_check_mode_says_all_of_it_and_does_nothing(bench):
    machine = bench.make(version=OLD)
    result = bench.run(check=True, version="535.261.03", hold=True, pin=True)
    assert result["changed"] and machine.log == [] and versions(machine) == {OLD}
    assert not (machine.root / PIN).exists() and not (bench.root / "lock").exists()
    assert any(line.startswith("upgrade 11 packages") for line in result["actions"])
    assert any(line.startswith("hold ") for line in result["actions"]) and any(
        line.startswith("write ") for line in result["actions"]
    )
    assert "Pin: version %s\n" % NEW in result["diff"][1]["after"]


def test_check_mode_foresees_what_a_run_reports(bench):
    bench.make(version=OLD, hold=True)
    foreseen = bench.run(check=True, version="535.261.03", hold=True)
    done = bench.run(version="535.261.03", hold=True)
    for key in ("changed", "transaction", "resolved", "diff", "actions"):
        assert foreseen[key] == done[key]


def test_check_mode_without_a_repository(bench):
    bench.make(lists=False)
    result = bench.run(check=True, version="535.261.03")
    assert "failed" not in result and result["changed"]
    assert result["resolvable"] is False and "package index" in result["reason"]


def test_an_upgrade_needs_a_repository_in_check_mode_too(bench):
    bench.make(lists=False)
    result = bench.run(check=True, version="535.261.03", require_available=True)
    assert result["failed"] and result["resolvable"] is False and "package index" in result["reason"]


GONE = "Failed to fetch http://mirror/nvidia-smi  Could not connect to mirror:80 (192.0.2.1). Connection refused"


@pytest.mark.parametrize("state", ["present", "downloaded"])
def test_a_mirror_that_is_gone_is_found_out_in_check_mode(bench, state):
    machine = bench.make(version=OLD)
    assert "failed" not in bench.run(check=True, version="535.261.03", state=state)
    assert len(machine.fetched) == 1, "one archive of the one mirror"
    machine.gone = GONE
    result = bench.run(check=True, version="535.261.03", state=state)
    assert result["failed"] and [item["id"] for item in result["refusals"]] == ["no_mirror"]
    assert result["refusals"][0]["found"].startswith("http://mirror: ") and "Connection refused" in result["msg"]
    assert machine.log == [] and versions(machine) == {OLD}


def test_mirrors_are_left_alone_where_nothing_would_come_from_them_or_the_answer_says_nothing(bench):
    machine = bench.make(version=OLD)
    machine.gone = GONE
    assert "failed" not in bench.run(version="535.261.03", state="resolved")
    assert "failed" not in bench.run(check=True, version="535.261.03", state="resolved")
    assert "failed" not in bench.run(check=True, version="535.261.03", repository_ready=False)
    assert "failed" not in bench.run(check=True, version="535.216.03")
    assert "failed" not in bench.run(check=True, state="absent")
    machine.cached.update((name, NEW) for name in SET)
    assert "failed" not in bench.run(check=True, version="535.261.03"), "what was prestaged needs none"
    assert machine.fetched == []


def test_the_same_outside_check_mode_is_a_failure(bench):
    machine = bench.make(lists=False)
    result = bench.run(version="535.261.03")
    assert result["failed"] and "nvidia_repository" in result["msg"] and machine.log == []


@pytest.mark.parametrize("ready,failed", [(True, True), (False, False)])
def test_check_mode_with_a_repository_that_a_run_would_change(bench, ready, failed):
    bench.make()
    result = bench.run(check=True, version="580.1.1", repository_ready=ready)
    assert result.get("failed", False) is failed
    assert result["resolvable"] is False


@pytest.mark.parametrize("state", ["resolved", "downloaded", "present"])
def test_unknown_version_says_what_is_available_and_changes_nothing(bench, state):
    machine = bench.make(version=OLD)
    result = bench.run(version="580.1.1", state=state)
    assert result["failed"] and "available: 535.309.01-0+deb12u1, %s, %s" % (NEW, OLD) in result["msg"]
    assert machine.log == [] and [item["id"] for item in result["refusals"]] == ["unknown_version"]
    assert "resolved" not in result and "gpus" not in result, "Ansible prints all of a failure"


def test_a_mixed_set_is_refused_before_anything_runs(bench):
    machine = bench.make(version=OLD)
    machine.packages["libcuda1:i386"] = dict(machine.packages["libcuda1"], source="nvidia-graphics-drivers-tesla")
    result = bench.run(version="535.261.03")
    assert result["failed"] and "libcuda1:i386" in result["msg"] and machine.log == [] and versions(machine) == {OLD}


@pytest.mark.parametrize("state", ["downloaded", "present"])
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "path, free, read_only, expected",
    [
        ("/lib/modules", 10, False, ["disk"]),
        ("/var/lib/dkms", 10, False, ["disk"]),
        ("/usr", 2**20, True, ["disk_read_only"]),
        ("/usr", 2**20, False, []),
    ],
)
def test_archives_are_not_brought_where_the_packages_could_not_be_installed(
    bench, monkeypatch, state, check, path, free, read_only, expected
):
    """The node is drained between the two."""
    machine = bench.make()
    room = {"device": 1, "free": 2**50, "read_only": False}
    short = {"device": 2, "free": free * 2**20, "read_only": read_only}
    monkeypatch.setattr(
        driver_packages.Apt,
        "filesystems",
        lambda self, paths: {name: short if name == path else room for name in paths},
    )
    result = bench.run(version="535.261.03", state=state, check=check)
    assert bool(result.get("failed")) == bool(expected) and [item["id"] for item in result["refusals"]] == expected
    assert not expected or path in result["msg"] and machine.log == []


@pytest.mark.parametrize(("limit", "refused"), [(None, True), (100, False), (300, True)])
def test_var_has_a_limit_of_its_own(bench, monkeypatch, limit, refused):
    """The general one where none is given."""
    bench.make()
    var = {"device": 2, "free": 3 * 2**30 + 200 * 2**20, "read_only": False}
    room = {"device": 1, "free": 2**50, "read_only": False}
    monkeypatch.setattr(transaction, "DKMS_BUILD_MIB", 3072)
    monkeypatch.setattr(
        driver_packages.Apt,
        "filesystems",
        lambda self, paths: {name: var if name == "/var/lib/dkms" else room for name in paths},
    )
    given = {} if limit is None else {"min_free_var_mib": limit}
    result = bench.run(check=True, version="535.261.03", min_free_mib=512, **given)
    assert [item["id"] for item in result["refusals"]] == (["disk"] if refused else [])


@pytest.mark.parametrize("state", ["downloaded", "present", "absent"])
@pytest.mark.parametrize("check", [False, True])
def test_nothing_is_begun_while_another_run_has_the_package_managers_lock(bench, monkeypatch, state, check):
    machine = bench.make(version=OLD)
    waits = []
    monkeypatch.setattr(
        package_locks,
        "find_held",
        lambda manager, root: [{"path": "/var/lib/dpkg/lock", "pid": 4711, "comm": "unattended-upgr"}],
    )
    monkeypatch.setattr(
        package_locks, "wait_for_release", lambda look, timeout_s: waits.append(timeout_s) or (look(), True)
    )
    result = bench.run(version="535.261.03", state=state, check=check, apt_lock_timeout_s=40)
    assert result["failed"] and [item["id"] for item in result["refusals"]] == ["lock_held"] and machine.log == []
    assert "unattended-upgr (pid 4711)" in result["msg"] and waits == [10 if check else 40]
    bench.run(version="535.261.03", state=state, check=check, apt_lock_timeout_s=40, apt_lock_look_s=60)
    assert waits[1:] == [40], "one that only looks waits no longer than one that acts"
    # It has ended meanwhile: what it left is what is planned with.
    plans, make = [], package_task.make_plan
    monkeypatch.setattr(package_task, "make_plan", lambda manager, wish: plans.append(make(manager, wish)) or plans[-1])
    monkeypatch.setattr(package_locks, "wait_for_release", lambda look, timeout_s: ([], True))
    assert not bench.run(version="535.261.03", state=state, check=check).get("failed") and len(plans) == 2
    monkeypatch.setattr(
        package_locks, "wait_for_release", lambda look, timeout_s: pytest.fail("a look waits for no lock")
    )
    assert not bench.run(version="535.261.03", state="resolved").get("failed")


@pytest.mark.parametrize("free_after_s, failed", [(0, False), (30, False), (None, True)])
@pytest.mark.parametrize("check", [False, True])
def test_state_unlocked_waits_for_the_package_manager_and_changes_nothing(
    bench, monkeypatch, free_after_s, failed, check
):
    machine = bench.make(version=OLD)
    lock = [{"path": "/var/lib/dpkg/lock", "pid": 4711, "comm": "unattended-upgr"}]
    waits = []
    monkeypatch.setattr(
        package_locks, "wait_for_release", lambda look, timeout_s: waits.append(timeout_s) or (lock * failed, True)
    )
    result = bench.run(state="unlocked", check=check, apt_lock_timeout_s=40)
    assert bool(result.get("failed")) == failed and not result["changed"] and machine.log == []
    assert waits == [10 if check else 40]
    assert [item["id"] for item in result.get("refusals", [])] == ["lock_held"] * failed
    assert not failed or "unattended-upgr (pid 4711)" in result["msg"]


def test_lock_of_a_user_is_named_and_refuses_nothing(bench, monkeypatch):
    bench.make(version=OLD)
    found = {"path": "/var/lib/rpm/.rpm.lock", "pid": 4711, "comm": "sleep", "uids": [1000]}
    monkeypatch.setattr(package_locks, "held_by_users", lambda manager, root: [found])
    warned = []
    monkeypatch.setattr(driver_packages.AnsibleModule, "warn", lambda self, text, **dummy: warned.append(text))
    result = bench.run(version="535.261.03")
    assert result["changed"] and not result.get("failed")
    assert [found["path"] in text and "4711" in text for text in warned] == [True]


def test_apt_without_a_solution_is_a_refusal(bench):
    machine = bench.make(version=OLD)
    machine.fail["simulate"] = (100, "", "E: Unable to correct problems, you have held broken packages.")
    result = bench.run(version="535.261.03")
    assert [item["id"] for item in result["refusals"]] == ["no_solution"] and "held broken packages" in result["msg"]
    machine.fail["simulate"] = (
        100,
        " nvidia-smi : Depends: libnvidia-ml1 (= 550.1-1) but 535.261.03-1 is to be installed\n",
        "E: Unable to correct problems",
    )
    result = bench.run(version="535.261.03")
    assert (
        result["refusals"][0]["packages"] == ["nvidia-smi"]
        and "libnvidia-ml1 (= 550.1-1)" in result["msg"]
        and machine.log == []
    )


def test_unsupported_system(bench):
    machine = bench.make()
    pretty = 'ID=rocky\nPRETTY_NAME="Rocky Linux 8.10 (Green Obsidian)"\n'
    for content, name in (
        ('ID=rocky\nVERSION_ID="8.10"\n', "rocky 8.10"),
        (pretty, "Rocky Linux 8.10"),
        ("", "unknown"),
    ):
        (machine.root / "etc/os-release").write_text(content, encoding="utf-8")
        result = bench.run(version="535.261.03")
        assert result["failed"] and name in result["msg"] and "debian 12" in result["msg"] and machine.log == []


def test_a_failed_install_puts_the_holds_back_and_shows_the_build_log(bench):
    machine = bench.make(version=OLD, hold=True)
    machine.packages["linux-image-amd64"]["hold"] = True
    machine.fail["apt-get"] = (
        100,
        "Setting up nvidia-kernel-dkms\n",
        "E: Sub-process /usr/bin/dpkg returned an error code (1)",
    )
    log = machine.root / "var/lib/dkms/nvidia-current/535.261.03/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text("gcc: error: this is why\n", encoding="utf-8")
    result = bench.run(version="535.261.03", hold=True)
    assert result["failed"] and "returned an error code" in result["msg"]
    assert result["make_log_tail"] == ["gcc: error: this is why"]
    assert held(machine) == sorted(SET + ("linux-image-amd64",))


def test_success_of_apt_is_not_believed(bench):
    machine = bench.make(version=OLD)
    machine.stubborn.add("libnvidia-ml1")
    result = bench.run(version="535.261.03")
    assert result["failed"] and "libnvidia-ml1 %s (expected %s)" % (OLD, NEW) in result["msg"]


def test_an_interrupted_dpkg_is_finished_first(bench):
    machine = bench.make(version=NEW)
    machine.packages["nvidia-kernel-dkms"]["status"] = "iF"
    (machine.root / "var/lib/dpkg/updates/0000").write_text("x", encoding="utf-8")
    refused = bench.run(version="535.261.03")
    assert [item["id"] for item in refused["refusals"]] == ["interrupted"] and machine.log == []
    foreseen = bench.run(check=True, version="535.261.03", repair=True)
    assert foreseen["changed"] and foreseen["repaired"] and machine.log == []
    result = bench.run(version="535.261.03", repair=True)
    assert result["changed"] and result["repaired"] and machine.acted() == ["dpkg --configure"]
    assert "interrupted dpkg" in result["actions"][0]
    assert not bench.run(version="535.261.03")["changed"]


def test_download_is_idempotent_and_installs_nothing(bench):
    machine = bench.make(version=OLD)
    assert bench.run(check=True, version="535.261.03", state="downloaded")["changed"] and machine.log == []
    assert bench.run(version="535.261.03", state="downloaded")["changed"]
    assert machine.acted() == ["apt-get download"] and versions(machine) == {OLD}
    assert not bench.run(version="535.261.03", state="downloaded")["changed"]


def test_archives_of_what_is_installed_can_be_kept_for_a_way_back(bench):
    machine = bench.make(version=OLD)
    assert bench.run(version="535.216.03", state="downloaded")["changed"]
    assert ("nvidia-kernel-dkms", OLD) in machine.cached


def test_the_other_flavour_replaces_the_first(bench):
    machine = bench.make(version=NEW, hold=True)
    result = bench.run(version="535.261.03", flavour="open", hold=True)
    assert machine.at("nvidia-kernel-dkms") is None and machine.at("nvidia-open-kernel-dkms") == NEW
    assert result["resolved"]["dkms_name"] == "nvidia-current-open"
    assert "nvidia-open-kernel-dkms" in held(machine)


def test_holds_are_lifted_when_asked_and_left_alone_when_not(bench):
    machine = bench.make(version=NEW, hold=True)
    assert not bench.run(version="535.261.03")["changed"]
    assert bench.run(version="535.261.03", hold=False)["changed"]
    assert held(machine) == []


def test_holds_are_lifted_together_with_a_change_that_takes_them(bench):
    machine = bench.make(version=OLD, hold=True)
    foreseen = bench.run(check=True, version="535.261.03", hold=False)
    done = bench.run(version="535.261.03", hold=False)
    assert not done.get("failed") and versions(machine) == {NEW} and held(machine) == []
    assert foreseen["actions"] == done["actions"] and "lift the hold of %s" % ", ".join(SET) in done["actions"]


def test_holds_that_a_change_takes_are_put_back_where_nobody_asks_for_any(bench):
    """apt takes the hold of what it changes."""
    machine = bench.make(version=OLD, hold=True)
    assert bench.run(version="535.261.03")["changed"] and versions(machine) == {NEW}
    assert held(machine) == sorted(SET)


def test_the_age_of_holds_and_what_they_keep_out(bench):
    machine = bench.make(version=OLD)
    machine.packages["nvidia-smi"]["hold"] = True
    machine.policy = (
        "nvidia-smi:\n  Installed: x\n  Version table:\n     535.309.01-0+deb12u1 500\n"
        "        500 http://deb.debian.org/debian-security bookworm-security/non-free amd64 Packages\n"
    )
    seen = bench.run(version="535.216.03", state="resolved")["holds"]
    assert [(row["package"], row["since"], row["age_days"]) for row in seen] == [("nvidia-smi", None, None)]
    assert (seen[0]["newer"], seen[0]["security"]) == (["535.309.01-0+deb12u1", NEW], ["535.309.01-0+deb12u1"])
    rows = dict((row["package"], row) for row in bench.run(version="535.216.03", hold=True)["holds"])
    assert sorted(rows) == sorted(SET) and set(row["age_days"] for row in rows.values()) == {0}
    assert (rows["nvidia-smi"]["since_exact"], rows["libcuda1"]["since_exact"]) == (False, True)
    record = machine.root / "var/lib/gpufleet/holds.json"
    kept = json.loads(record.read_text(encoding="utf-8"))
    kept["libcuda1"]["since"] -= 40 * 24 * 3600
    record.write_text(json.dumps(kept), encoding="utf-8")
    again = bench.run(version="535.216.03", hold=True)
    assert not again["changed"] and (again["holds"][0]["package"], again["holds"][0]["age_days"]) == ("libcuda1", 40)
    moved = bench.run(version="535.261.03", hold=True)["holds"]
    assert set(row["age_days"] for row in moved) == {0} and set(row["version"] for row in moved) == {NEW}
    assert (
        bench.run(version="535.261.03", hold=False)["holds"] == []
        and json.loads(record.read_text(encoding="utf-8")) == {}
    )


def test_absent_removes_the_driver_and_the_pin(bench):
    machine = bench.make(version=NEW, hold=True)
    (machine.root / PIN).write_text("x", encoding="utf-8")
    assert bench.run(check=True, state="absent")["changed"] and versions(machine) == {NEW}
    result = bench.run(state="absent")
    assert result["changed"] and versions(machine) == {None} and not (machine.root / PIN).exists()
    assert machine.at("nvidia-modprobe") is not None
    assert not bench.run(state="absent")["changed"]


def test_tree_names_are_given_for_every_kernel(bench):
    machine = bench.make()
    (machine.root / "lib/modules/6.1.0-57-amd64").mkdir()
    (machine.root / "boot/vmlinuz-6.1.0-57-amd64").write_bytes(b"")
    trees = bench.run(version="535.261.03", state="resolved")["resolved"]["trees"]
    assert sorted(trees) == ["6.1.0-56-amd64", "6.1.0-57-amd64"] and trees["6.1.0-57-amd64"] is None
    assert trees["6.1.0-56-amd64"].startswith("nvidia-current_535.261.03_6.1.0-56-amd64_") and trees[
        "6.1.0-56-amd64"
    ].endswith("_gcc-12.2.0.dkms.tar.gz")


def test_the_name_in_dkms_is_read_where_the_package_is_installed(bench):
    """Not while another flavour's module of the same version is all there is."""
    machine = bench.make(version=OLD)
    source = machine.root / "usr/src/nvidia-mirrored-535.261.03"
    source.mkdir(parents=True)
    (source / "dkms.conf").write_text('BUILT_MODULE_NAME[0]="nvidia"\n', encoding="utf-8")
    assert bench.run(version="535.261.03", state="resolved")["resolved"]["dkms_name"] == "nvidia-current"
    for dummy in range(2):
        resolved = bench.run(version="535.261.03")["resolved"]
        assert resolved["dkms_name"] == "nvidia-mirrored"
        assert [name.split("_")[0] for name in resolved["trees"].values()] == ["nvidia-mirrored"]


def test_resolved_only_answers(bench):
    machine = bench.make(version=OLD)
    result = bench.run(version="535.261.03", state="resolved")
    assert not result["changed"] and machine.log == [] and len(result["transaction"]["upgrade"]) == 11
    assert not (bench.root / "lock").exists()


def test_deferred_build_goes_through_the_shim(bench):
    machine = bench.make()
    bench.run(version="535.261.03", dkms_build="deferred")
    assert any("dkms-deferred" in word for word in machine.log[0])
    assert (machine.root / "var/lib/gpufleet/dkms-deferred/dkms").exists()


def test_a_locked_node_is_left_alone(bench):
    machine = bench.make(version=OLD)
    with NodeLock(path=bench.lock_path, owner={"module": "dkms_module", "step": "build", "rollout_id": "r-7"}):
        result = bench.run(version="535.261.03", lock_timeout_s=0)
    assert result["failed"] and "r-7" in result["msg"] and result["lock"]["step"] == "build"
    assert machine.log == [] and versions(machine) == {OLD}


@pytest.mark.parametrize("check", [False, True])
def test_a_node_that_the_driver_cannot_work_on_is_refused_before_anything_is_repaired(bench, check):
    machine = bench.make()
    (machine.root / "var/lib/dpkg/updates/0001").write_text("", encoding="utf-8")
    (machine.root / "sys/bus/pci/devices").mkdir(parents=True)
    result = bench.run(check=check, version="535.261.03", require=["gpu", "headers"])
    assert (
        result["failed"]
        and machine.log == []
        and [item["id"] for item in result["refusals"]][:2] == ["no_gpu", "no_headers"]
    )
    assert result["msg"].startswith("Nothing was changed. No NVIDIA GPU was found: none on the PCI bus.")
    assert "install linux-headers-6.1.0-56-amd64, or remove the kernel" in result["msg"]


def test_a_node_that_has_what_the_driver_needs_gets_it(bench):
    machine = bench.make()
    device = machine.root / "sys/bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330")):
        (device / name).write_text(value + "\n", encoding="utf-8")
    (machine.root / "lib/modules/6.1.0-56-amd64/build/include").mkdir(parents=True)
    assert bench.run(version="535.261.03", require=["gpu", "headers"])["changed"]


def test_an_empty_version_is_refused_by_name(bench):
    bench.make()
    result = bench.run(version=" ", state="present")
    assert result["failed"] and "nvidia_driver_version" in result["msg"] and "nothing was changed" in result["msg"]
    assert "version" in bench.run(state="present")["msg"]


# flavours, sources and parts

H100, B200, V100 = "0x2330", "0x2901", "0x1db1"


def put_gpus(machine, *devices):
    for number, device in enumerate(devices):
        place = machine.root / ("sys/bus/pci/devices/0000:%02x:00.0" % number)
        place.mkdir(parents=True)
        for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", device)):
            (place / name).write_text(value + "\n", encoding="utf-8")


def ids(result):
    return [item["id"] for item in result["refusals"]]


def test_the_flavour_follows_the_gpus(bench):
    machine = bench.make()
    put_gpus(machine, H100, H100)
    result = bench.run(version="535.261.03", flavour="auto")
    assert result["resolved"]["flavour"] == "proprietary" and machine.at("nvidia-kernel-dkms") == NEW
    assert [gpu["architecture"] for gpu in result["gpus"]] == ["hopper", "hopper"] and "560" in result["flavour_reason"]


@pytest.mark.parametrize(
    "devices,options,ident,words",
    [
        (
            [],
            {"kernel_module": "prebuilt"},
            "impossible_flavour",
            "no prebuilt modules of the driver for Debian's kernels",
        ),
        ([], {"components": ["fabricmanager"]}, "no_component", "Debian has no fabric manager"),
        ([], {"source": "cuda"}, "partly_available", "nvidia-driver-cuda: not in the index"),
        ([], {"min_free_mib": 2**40}, "disk", "MiB free"),
        ([B200], {"flavour": "auto"}, "impossible_flavour", "its first branch is 570"),
        ([B200], {"flavour": "proprietary"}, "impossible_flavour", "it needs the open one"),
        ([V100], {"flavour": "open"}, "impossible_flavour", "it needs the proprietary one"),
        ([], {"flavour": "auto"}, "unknown_gpu", "no NVIDIA GPU on the PCI bus"),
    ],
)
def test_a_refused_plan_changes_nothing(bench, devices, options, ident, words):
    """One row for each option that decides; what it decides stands in the tables of _packages."""
    machine = bench.make(version=OLD)
    (machine.root / "sys/bus/pci/devices").mkdir(parents=True)
    put_gpus(machine, *devices)
    result = bench.run(version="535.261.03", **options)
    assert result["failed"] and ids(result)[:1] == [ident] and words in result["msg"]
    assert machine.log == [] and versions(machine) == {OLD}


# floors


@pytest.mark.parametrize(
    "start,wanted,refused", [(OLD, "535.261.03", False), (NEW, "535.216.03", True), (None, "535.216.03", True)]
)
def test_a_declared_floor_holds_for_upgrades_and_for_the_way_back(bench, start, wanted, refused):
    machine = bench.make(version=start)
    result = bench.run(version=wanted, floors=[{"workload": "partition train", "driver": "535.230", "cuda": "12.2"}])
    assert result.get("failed", False) is refused
    if refused:
        assert ids(result) == ["below_floor"] and "too old for partition train" in result["msg"]
        assert machine.log == [] and versions(machine) == {start}


@pytest.mark.parametrize("counted", [True, False])
def test_containers_that_run_count_when_asked_to(bench, counted):
    machine = bench.make(version=OLD)
    place = machine.root / "proc/77"
    place.mkdir(parents=True)
    (place / "environ").write_text("NVIDIA_VISIBLE_DEVICES=all\0NVIDIA_REQUIRE_CUDA=cuda>=12.4\0", encoding="utf-8")
    (place / "comm").write_text("trainer\n", encoding="utf-8")
    (place / "cgroup").write_text("0::/system.slice/docker-aa.scope\n", encoding="utf-8")
    result = bench.run(version="535.261.03", running_floors=counted)
    assert result.get("failed", False) is counted
    if counted:
        assert (
            "the container of trainer (pid 77, docker-aa.scope)" in result["msg"]
            and "cuda>=12.4" in result["msg"]
            and machine.log == []
        )


# dnf


def test_a_node_with_dnf(bench, tmp_path):
    """The whole module over the real dnf: check mode foresees, the run does, the second run has nothing to do."""
    (tmp_path / "rpm").mkdir()
    machine = repositories.DnfRoot(tmp_path / "rpm", stub_packages.EL_BASE + stub_packages.redhat("580.95.05"))
    bench.machine = machine
    put_gpus(machine, B200)
    foreseen = bench.run(
        check=True, version="580.95.05", flavour="auto", hold=True, pin=True, components=["fabricmanager", "nscq"]
    )
    assert (
        foreseen["changed"]
        and foreseen["resolved"]["flavour"] == "open"
        and foreseen["resolved"]["dkms_name"] == "nvidia-open"
    )
    assert foreseen["resolved"]["packages"]["nvidia-driver-cuda"] == "3:580.95.05-1.el9"
    assert machine.locks.read_text(encoding="utf-8") == ""
    done = bench.run(version="580.95.05", flavour="auto", hold=True, pin=True, components=["fabricmanager", "nscq"])
    for key in ("changed", "transaction", "resolved", "diff", "actions"):
        assert foreseen[key] == done[key]
    assert "nvidia-driver-cuda-3:580.95.05-1.el9.*" in machine.locks.read_text(encoding="utf-8")
    assert not bench.run(
        version="580.95.05", flavour="auto", hold=True, pin=True, components=["fabricmanager", "nscq"]
    )["changed"]
    refused = bench.run(version="999.1.1", flavour="open")
    assert refused["failed"] and "available: 3:580.95.05-1.el9" in refused["msg"]


@pytest.mark.parametrize(
    "options", [dict(version="535.216.03"), dict(version="535.216.03", state="downloaded"), dict(state="absent")]
)
def test_a_driver_of_the_gpu_operator_is_not_fought(bench, options):
    machine = bench.make(version=OLD) if options.get("state") == "absent" else bench.make()
    ready = machine.root / "run/nvidia/validations/driver-ready"
    ready.parent.mkdir(parents=True)
    ready.write_text("IS_HOST_DRIVER=false\n", encoding="utf-8")
    for check in (True, False):
        result = bench.run(check=check, **options)
        assert result["failed"] and machine.acted() == []
        assert "A GPU Operator brings this node's driver" in result["msg"] and "ClusterPolicy" in result["msg"]
        assert [item["id"] for item in result["refusals"]] == ["operator_owned"]
    assert bench.run(version="535.216.03", state="resolved")["resolvable"]
