# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan for driver packages is carried out step by step, over a package manager that notes what it is told."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import holds, package_act, transaction
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import DEBIAN
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.manager import Manager, ManagerError
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_act import Actor, ChangeFailed
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_plan import Plan
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_state import State, Wish

pytestmark = pytest.mark.pythons

DUE = dict(transaction.make_empty(), upgrade=[{"name": "nvidia-smi", "version": "2", "from": "1"}])
RESOLVED = {"packages": {"nvidia-smi": "2"}, "dkms_name": "nvidia", "dkms_version": "2", "upstream": "2"}


class Stub(Manager):
    """A manager whose answers are set by the test; ``log`` has what it was told to do, in its order."""

    name = "apt"

    def __init__(self, root):
        super().__init__(None, root=str(root))
        self.log, self.failing, self.unkeepable = [], set(), {}
        self.store = self
        self.after = {}  # what is installed after the change

    def told(self, what, *words):
        self.log.append((what,) + words)
        if what in self.failing:
            raise ManagerError(what, 100, "", "E: no")

    def list_installed(self):
        return self.after

    def fix_options(self, broken):
        return ["fix"] if broken else []

    def download_options(self, broken):
        return ["again"]

    def deferred_dkms_options(self):
        return ["deferred"]

    def configure(self, names):
        self.log.append(("configure",) + tuple(names))
        return "E: still" if "configure" in self.failing else None

    def change(self, arguments, action="install", options=()):
        self.told(action, *(tuple(arguments) + tuple(options)))

    def download(self, arguments, options=()):
        self.told("download", *(tuple(arguments) + tuple(options)))

    def mark(self, action, names):
        if names:
            self.log.append((action,) + tuple(sorted(names)))

    def forget(self, names):
        """Both the manager's of gone packages, and its store's of drivers that are no longer kept."""
        if names:
            self.log.append(("forget",) + tuple(sorted(names)))

    def keep(self, wanted, index):
        self.log.append(("keep",) + tuple(sorted(wanted)))
        return dict(item for item in self.unkeepable.items() if item[0] in wanted)


@pytest.fixture(name="manager")
def _manager(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/old.pref").write_text("x", encoding="utf-8")
    return Stub(tmp_path)


def have(hold=False, version="2"):
    return {"installed": True, "hold": hold, "version": version, "source": "nvidia-graphics-drivers"}


def plan(state="present", facts=None, **parts):
    wish = Wish(state=state, version="2", dkms_build=parts.pop("dkms_build", "postinst"))
    parts.setdefault("resolved", None if state == "absent" else RESOLVED)
    return Plan(State("apt", **dict({"table": DEBIAN}, **facts or {})), wish, arguments=("words",), **parts)


def act(manager, made):
    actor = Actor(manager)
    actor.carry_out(made)
    return actor


FULL = dict(
    transaction=DUE,
    keep={"old": "1"},
    keep_new={"new": "2"},
    hold=("nvidia-smi",),
    held=("dkms",),
    before={"old": "1"},
    files=(("/etc/new.pref", "pinned"), ("/etc/old.pref", None)),
)


def test_the_steps_in_their_order(manager):
    manager.after = {"nvidia-smi": have(), "dkms": have()}
    actor = act(manager, plan(**FULL))
    assert manager.log == [
        ("keep", "old"),
        ("install", "words"),
        ("hold", "dkms", "nvidia-smi"),
        ("keep", "new"),
        ("forget", ("nvidia-smi", "2"), ("old", "1")),
    ]
    assert os.listdir(manager.path("/etc")) == ["new.pref"]
    assert actor.done == package_act.foresee_actions(plan(**FULL)) and actor.unkept == ()


@pytest.mark.parametrize(
    "made,expected",
    [
        (plan(), []),
        (plan(transaction=DUE), [("install", "words")]),
        (plan(facts={"broken": ("a",)}), [("install", "words", "fix")]),
        (plan(transaction=DUE, dkms_build="deferred"), [("install", "words", "deferred")]),
        (plan("absent", transaction=DUE, action="remove"), [("remove", "words")]),
        (plan("absent", facts={"broken": ("a",)}), [("remove", "words", "fix")]),
        (plan("downloaded", download_bytes=5), [("download", "words", "again")]),
        (plan("downloaded"), []),
        (
            plan("downloaded", **dict(FULL, download_bytes=5)),
            [("keep", "old"), ("download", "words", "again"), ("keep", "new")],
        ),
        (plan("downloaded", transaction=DUE, hold=("a",), files=(("/etc/new.pref", "x"),)), []),
    ],
)
def test_what_each_plan_asks_of_the_package_manager(manager, made, expected):
    act(manager, made)
    assert manager.log == expected and os.listdir(manager.path("/etc")) == ["old.pref"]


def test_without_the_way_back_nothing_is_begun(manager):
    manager.unkeepable = {"old": "it is gone"}
    with pytest.raises(ChangeFailed, match="old: it is gone"):
        act(manager, plan(**FULL))
    assert manager.log == [("keep", "old")]


def test_a_new_package_that_cannot_be_kept_is_told(manager):
    manager.unkeepable = {"new": "it is gone"}
    manager.after = {"nvidia-smi": have(True)}
    assert act(manager, plan(keep_new={"new": "2", "other": "2"})).unkept == ("new",)


@pytest.mark.parametrize(
    "hold,held,lift,after,expected,done",
    [
        (("a",), (), (), {"a": have()}, [("hold", "a")], ["hold a"]),
        (("a",), (), (), {"a": have(True)}, [], []),
        (("a",), (), (), {}, [], []),
        ((), ("a", "b"), (), {"a": have(), "b": have(True)}, [("hold", "a")], []),
        ((), ("a",), (), {}, [("forget", "a")], []),
        ((), (), ("a",), {"a": have(True)}, [("unhold", "a")], ["lift the hold of a"]),
        ((), (), ("a",), {"a": have()}, [("unhold", "a")], ["lift the hold of a"]),
        ((), ("b",), ("a",), {"a": have(), "b": have()}, [("hold", "b"), ("unhold", "a")], ["lift the hold of a"]),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_holds_are_put_back_however_the_transaction_ends(manager, hold, held, lift, after, expected, done, fails):
    """What the change took of them, also when it failed; what the plan lifts stays lifted."""
    manager.after, manager.failing = after, {"install"} if fails else set()
    actor = Actor(manager)
    try:
        actor.carry_out(plan(transaction=DUE, hold=hold, held=held, lift=lift, files=(("/etc/new.pref", "x"),)))
    except ChangeFailed as exc:
        assert fails and exc.details["output"] == "E: no"
    assert manager.log == [("install", "words")] + expected
    said = [] if fails else transaction.action_sentences(DUE)
    assert actor.done == said + done + ([] if fails else ["write /etc/new.pref"])
    assert os.path.exists(manager.path("/etc/new.pref")) is not fails


@pytest.mark.parametrize("age_s,told", [(0, True), (10, False)])
def test_the_log_of_a_build_that_failed_in_this_run(manager, age_s, told):
    log = manager.path("/var/lib/dkms/nvidia/2/build/make.log")
    os.makedirs(os.path.dirname(log))
    with open(log, "w", encoding="utf-8") as stream:
        stream.write("gcc: this is why\n")
    os.utime(log, (1000, 1000))
    manager.failing = {"install"}
    with pytest.raises(ChangeFailed) as failed:
        Actor(manager, clock=lambda: 1000 + age_s).carry_out(plan(transaction=DUE))
    assert failed.value.details.get("make_log_tail") == (["gcc: this is why"] if told else None)


@pytest.mark.parametrize("fails,lines", [(False, 1), (True, 2)])
def test_an_interrupted_run_is_finished_and_told(manager, fails, lines):
    manager.failing = {"configure"} if fails else set()
    actor = Actor(manager)
    known = {"nvidia-smi": have(), "a": dict(have(), source="a")}
    actor.repair(State("apt", DEBIAN, known, journal=("0001",), broken=("a", "nvidia-smi")))
    assert manager.log == [("configure", "nvidia-smi")] and len(actor.done) == lines
    assert "0001" in actor.done[0] and (not fails or "E: still" in actor.done[1])


def test_since_when_packages_are_held(manager):
    """The time of a hold that was there is when it was first seen; that of a new one is exact."""
    before = {"nvidia-smi": have(True), "libcuda1": have(True, "1"), "bash": have(True)}
    after = {"nvidia-smi": have(True), "libcuda1": have(True), "libnvidia-ml1": have(), "bash": have(True)}
    made = plan(facts={"installed": before})
    for now, since in ((100, 100), (200, 100)):
        Actor(manager, clock=lambda now=now: now).record_holds(made, after)
        with open(manager.path(holds.RECORD), encoding="utf-8") as stream:
            record = json.load(stream)
        assert {name: (item["since"], item["exact"]) for name, item in record.items()} == {
            "nvidia-smi": (since, False),
            "libcuda1": (since, True),
            "bash": (since, False),
        }


@pytest.mark.parametrize("expect,driver", [("2.0.1", "2.0.1"), (None, "1.2.3")])
def test_the_check_at_boot_is_told(manager, expect, driver):
    path = manager.path(boot_expectation.PATH)
    os.makedirs(os.path.dirname(path))
    document = {
        "schema": boot_expectation.SCHEMA,
        "driver_version": "1.2.3",
        "hardware": {"gpus": 8},
        "mig_file": None,
        "policy": {},
    }
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(boot_expectation.render_document(document))
    actor = Actor(manager)
    actor.record_expectation(plan(expect=expect))
    assert boot_expectation.read_expectation(path)["driver_version"] == driver and len(actor.done) == (
        1 if expect else 0
    )
