# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of driver packages is planned from data: truth tables of every decision."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import (
    holds,
    package_plan,
    package_state,
    transaction,
)
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import DEBIAN, REDHAT9_CUDA
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_state import State, Wish
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import fake_apt

SET = fake_apt.SET
NEW, OLD = "535.261.03-1", "535.216.03-2~bpo12+1"
TO_NEW, TO_OLD = Wish(version="535.261.03"), Wish(version="535.216.03")
KERNEL = "6.1.0-56-amd64"
H100 = {"address": "0000:1b:00.0", "device": "0x2330", "class": "0x030200"}
NOT_OWNED = {"owner": False, "signs": []}
UNATTENDED = "/etc/apt/apt.conf.d/53gpufleet-nvidia-driver"
WIDE = {path: {"device": 1, "free": 2**50, "files": 10**6} for path in transaction.disk_paths("apt")}


def node(have=None, held=(), **facts):
    """A node with the driver at a version, or without it."""
    packages = fake_apt.installed(have)
    for name, facts_of in packages.items():
        facts_of["hold"] = name in held
    known = dict(
        table=DEBIAN,
        installed=packages,
        index=fake_apt.index(),
        kernels=(KERNEL,),
        compilers={KERNEL: "gcc-12.2.0"},
        architecture="x86_64",
        gpus=[H100],
        operator=NOT_OWNED,
        unattended_file=UNATTENDED,
    )
    return State("apt", **dict(known, **facts))


def interrupted(state, *names, **more):
    packages = copy.deepcopy(state.installed)
    for name in names:
        packages.setdefault(name, dict(version="1-1", source=name, installed=True, hold=False, ok=True))
        packages[name].update(ok=False, status="iF")
    return dataclasses.replace(state, installed=packages, broken=names, **more)


@pytest.mark.parametrize(
    "state,options,refused",
    [
        (node(NEW), {}, []),
        (interrupted(node(NEW), "nvidia-smi"), {}, ["interrupted"]),
        (interrupted(node(NEW), "nvidia-smi"), {"state": "downloaded"}, ["interrupted"]),
        (interrupted(node(NEW), "nvidia-smi"), {"state": "absent"}, ["interrupted"]),
        (interrupted(node(NEW), journal=("0001",)), {}, ["interrupted"]),
        (interrupted(node(NEW), "nvidia-smi"), {"state": "resolved"}, []),
        (interrupted(node(NEW), "nvidia-smi"), {"repair": True}, []),
        (interrupted(node(NEW), "nvidia-smi", "bash"), {"repair": True}, []),
        (
            interrupted(node(NEW, table=REDHAT9_CUDA), "nvidia-smi", "bash", manager="dnf"),
            {"repair": True},
            ["interrupted"],
        ),
        (interrupted(node(NEW, table=REDHAT9_CUDA), "nvidia-driver", manager="dnf"), {}, ["interrupted"]),
    ],
)
def test_a_node_that_is_half_done_is_refused_unless_its_repair_is_asked_for(state, options, refused):
    made = package_plan.choose_packages(state, wish(**options))
    assert [item["id"] for item in made.refusals if item["id"] == "interrupted"] == refused
    assert made.lacking is bool(refused)


def test_the_repair_is_of_the_drivers_packages_alone():
    state = interrupted(node(NEW), "bash", "libcuda1", "nvidia-smi", "zlib1g")
    assert package_plan.own_broken(state) == ("libcuda1", "nvidia-smi")


def wish(base=TO_NEW, **options):
    return dataclasses.replace(base, **options)


def simulated(plan, **more):
    """The transaction of apt for a plan, and what it would do beside that."""
    found = transaction.make_empty()
    for name, version in plan.packages.items():
        have = plan.state.installed.get(name)
        if have is None:
            found["install"].append({"name": name, "version": version})
        elif have["version"] != version:
            kind = "upgrade" if version == NEW else "downgrade"
            found[kind].append({"name": name, "version": version, "from": have["version"]})
    gone = plan.targets + tuple(plan.resolved["obsolete"] if plan.resolved else ())
    found["remove"] += [{"name": name, "version": ""} for name in gone]
    for kind, name in more.items():
        found[kind].append({"name": name, "version": "1"})
    return found


def judged(state, wanted, **more):
    plan = package_plan.choose_packages(state, wanted)
    if not plan.action:
        return plan
    return package_plan.judge_rehearsal(
        plan, package_state.Rehearsal(("words",), simulated(plan, **more) if plan.due else None)
    )


def settled(state, wanted, **more):
    return package_plan.settle_rest(judged(state, wanted, **more))


def ids(plan):
    return [item["id"] for item in plan.refusals]


# what the node should have


@pytest.mark.parametrize(
    "following, named, expected",
    [
        ("k2", None, ("k2",)),
        ("k1", "k2", ("k2",)),
        (None, None, ("k1", "k2")),  # which one boots is not known: each may
        ("gone", None, ("k1", "k2")),
        (None, "k2", ("k2",)),
    ],
)
def test_prebuilt_module_is_required_for_the_kernel_that_boots(following, named, expected):
    state = node(NEW, kernels=("k1", "k2"), next_kernel=following)
    assert package_plan.choose_kernels(state, wish(kernel=named)) == expected


@pytest.mark.parametrize("kind, refused", [("prebuilt", True), ("dkms", False)])
def test_kernel_that_is_not_installed_is_refused_where_its_module_has_to_be_there(kind, refused):
    made = package_plan.choose_packages(node(NEW), wish(kernel="6.1.0-99-amd64", kernel_module=kind))
    found = [(item["found"], item["expected"]) for item in made.refusals if item["id"] == "no_kernel"]
    assert found == [(KERNEL, "6.1.0-99-amd64")] * refused


def test_firmware_of_a_driver_before_stays_is_not_kept_and_may_go_with_autoremove():
    state, name = node(NEW, held=("nvidia-smi",)), "nvidia-firmware-535-535.100.01"
    other = dict(state.installed["nvidia-smi"], version="535.100.01-1", hold=True, installed=True)
    state = dataclasses.replace(state, installed=dict(state.installed, **{name: other}))
    made = package_plan.choose_packages(state, wish(TO_OLD, hold=True))
    assert name not in made.resolved["obsolete"] and name in made.removable
    made = dataclasses.replace(made, transaction=simulated(made), foreseen=True)
    assert name not in package_plan.driver_before(made) and "nvidia-smi" in package_plan.driver_before(made)
    assert package_plan.settle_rest(made).lift == (name,)


@pytest.mark.parametrize(
    "state,wanted,action,due,refusals",
    [
        (node(), TO_NEW, "install", True, []),
        (node(OLD), TO_NEW, "install", True, []),
        (node(NEW), TO_NEW, "install", False, []),
        (node(NEW), wish(state="resolved"), "install", False, []),
        (node(NEW), wish(flavour="open"), "install", True, []),
        (node(), wish(version="580.1.1"), None, False, ["unknown_version"]),
        (node(), wish(floors=({"workload": "train", "driver": "535.300"},)), None, False, ["below_floor"]),
        (node(workloads=({"workload": "pid 7", "require": ["driver>=600"]},)), TO_NEW, None, False, ["below_floor"]),
        (node(workloads=None), TO_NEW, None, False, ["floor_unknown"]),
        (node(gpus=None), wish(flavour="auto"), None, False, ["unknown_gpu"]),
        (node(gpus=[]), wish(require=("gpu",)), None, False, ["no_gpu"]),
        (node(gpus=None), wish(require=("gpu",)), None, False, ["no_gpu"]),
        (node(headers={KERNEL: False}), wish(require=("headers",)), None, False, ["no_headers"]),
        (node(operator={"owner": True, "signs": ["x"]}), TO_NEW, None, False, ["operator_owned"]),
        (node(operator={"owner": None, "signs": ["x"]}), TO_NEW, None, False, ["operator_unknown"]),
        (node(operator={"owner": None, "signs": ["x"]}), wish(state="resolved"), "install", True, []),
        (node(hold_problem=("off", "on")), wish(hold=True), None, False, ["no_hold"]),
        (node(hold_problem=("off", "on")), wish(hold=False), "install", True, []),
        (node(hold_problem=("off", "on")), wish(hold=True, state="downloaded"), "install", True, []),
        (node(NEW), Wish(state="absent"), "remove", True, []),
        (node(), Wish(state="absent"), None, False, []),
        (node(NEW, operator={"owner": True, "signs": ["x"]}), Wish(state="absent"), "remove", True, ["operator_owned"]),
    ],
)
def test_what_is_wanted_of_a_node(state, wanted, action, due, refusals):
    plan = package_plan.choose_packages(state, wanted)
    assert (plan.action, plan.due, ids(plan)) == (action, due, refusals)
    lacking = {"no_gpu", "no_headers", "operator_owned", "operator_unknown"}
    assert plan.lacking == bool(lacking & set(refusals))


def test_the_set_and_the_names_of_its_trees():
    plan = package_plan.choose_packages(node(OLD, compilers={KERNEL: "gcc-12.2.0", "6.9": None}), TO_NEW)
    assert plan.packages == dict.fromkeys(SET, NEW)
    tree = "nvidia-current_535.261.03_%s_x86_64_gcc-12.2.0.dkms.tar.gz" % KERNEL
    assert plan.resolved["trees"] == {KERNEL: tree, "6.9": None} and plan.resolved["module_archives"] == []
    unknown = package_plan.choose_packages(node(), wish(version="580.1.1"))
    assert unknown.resolved["trees"] == {} and unknown.packages == {}


def test_what_may_be_removed():
    other = package_plan.choose_packages(node(NEW), wish(flavour="open", allow_removal=("tool",)))
    assert other.removable == ("tool", "nvidia-kernel-dkms", "nvidia-kernel-support")
    gone = package_plan.choose_packages(node(NEW), Wish(state="absent"))
    assert set(gone.targets) == set(SET) == set(gone.removable)


@pytest.mark.parametrize(
    "streams,enabled,stream,resolved,refusals",
    [
        (("580-open",), None, "m:580-open", "m:580-open", []),
        (("580-open",), "575-open", "m:580-open", "m:580-open", []),
        (("580-open",), "580-open", None, "m:580-open", []),
        (("575-open", "open-dkms"), None, "m:open-dkms", "m:open-dkms", []),
        (("open-dkms", "580-open"), "open-dkms", "m:580-open", "m:580-open", []),
        (("575-open",), "575-open", None, None, ["no_stream"]),
        ((), None, None, None, []),
    ],
)
def test_the_stream_that_is_enabled(streams, enabled, stream, resolved, refusals):
    wanted = {"stream": "m:580-open", "rolling_stream": "open-dkms", "version": "1", "flavour": "open"}
    found, to_enable, refused = package_plan.decide_stream(wanted, node(streams=streams, enabled_stream=enabled))
    assert (to_enable, found["stream"], [item["id"] for item in refused]) == (stream, resolved, refusals)
    assert wanted["stream"] == "m:580-open"


@pytest.mark.parametrize(
    "names,expected",
    [
        ((), "nvidia-current"),
        (("nvidia-mirrored",), "nvidia-mirrored"),
        (("nvidia-current",), "nvidia-current"),
        (("one", "two"), "nvidia-current"),
    ],
)
def test_the_name_of_the_module_is_the_one_that_the_node_has(names, expected):
    rehearsal = package_state.Rehearsal(("words",), dkms_names=names)
    plan = package_plan.judge_rehearsal(package_plan.choose_packages(node(NEW), TO_NEW), rehearsal)
    assert plan.resolved["dkms_name"] == expected and plan.foreseen
    assert plan.resolved["trees"][KERNEL].startswith(expected + "_")
    prebuilt = {"dkms_name": None, "resolvable": True}
    assert package_plan.rename_module(prebuilt, names, node()) == prebuilt


# the transaction


@pytest.mark.parametrize(
    "state,wanted,more,refusals",
    [
        (node(OLD), TO_NEW, {}, []),
        (node(NEW), TO_OLD, {}, []),
        (node(), TO_NEW, {"install": "dkms"}, []),
        (node(OLD), TO_NEW, {"upgrade": "linux-image-amd64"}, ["kernel_change"]),
        (node(OLD), TO_NEW, {"remove": "tool"}, ["removal"]),
        (node(OLD), wish(allow_removal=("tool",)), {"remove": "tool"}, []),
        (node(OLD, held=["dkms"]), TO_NEW, {"upgrade": "dkms"}, ["held"]),
        (node(NEW), Wish(state="absent"), {}, []),
        (node(NEW), Wish(state="absent"), {"remove": "tool"}, ["removal"]),
    ],
)
def test_what_a_transaction_is_refused_for(state, wanted, more, refusals):
    plan = judged(state, wanted, **more)
    assert (ids(plan), plan.foreseen, plan.arguments) == (refusals, True, ("words",))
    assert plan.has_transaction


@pytest.mark.parametrize("wanted", [TO_NEW, wish(state="downloaded", keep=True), Wish(state="absent")])
def test_a_package_manager_that_finds_no_way(wanted):
    problem = package_state.Problem("a needs b", "E: broken", ("a",))
    rehearsal = package_state.Rehearsal(("words",), problem=problem)
    plan = package_plan.judge_rehearsal(package_plan.choose_packages(node(OLD), wanted), rehearsal)
    assert ids(plan) == ["no_solution"] and plan.refusals[0]["packages"] == ["a"]
    assert (plan.refusals[0]["found"], plan.foreseen, plan.has_transaction) == ("E: broken", False, False)
    assert not package_plan.needs_room(plan) and not package_plan.needs_archives(plan)


# room


@pytest.mark.parametrize(
    "state,wanted,more,expected",
    [
        (node(OLD), TO_NEW, {}, True),
        (node(OLD), wish(state="resolved"), {}, True),
        (node(OLD), wish(state="downloaded"), {}, True),
        (node(NEW), wish(state="downloaded"), {}, True),
        (node(NEW), TO_NEW, {}, False),
        (node(NEW), wish(state="resolved"), {}, False),
        (node(OLD), TO_NEW, {"remove": "tool"}, False),
        (node(OLD), wish(version="580.1.1"), {}, False),
        (node(NEW), Wish(state="absent"), {}, False),
        (node(), Wish(state="absent"), {}, False),
    ],
)
def test_room_is_read_where_something_is_written(state, wanted, more, expected):
    assert package_plan.needs_room(judged(state, wanted, **more)) is expected


@pytest.mark.parametrize(
    "systems,min_free_mib,refusals",
    [
        (WIDE, 0, []),
        (WIDE, 2**40, ["disk"]),
        ({}, 0, ["disk_unknown"] * 5),
        (dict(WIDE, **{"/usr": {"device": 2, "free": 2**50, "read_only": True}}), 0, ["disk_read_only"]),
        (dict(WIDE, **{"/lib/modules": {"device": 2, "free": 10 * 2**20, "files": 10**6}}), 0, ["disk"]),
    ],
)
def test_the_room_that_there_is(systems, min_free_mib, refusals):
    plan = judged(node(OLD), wish(min_free_mib=min_free_mib))
    plan = package_plan.with_room(plan, package_state.Room({"one": 5, "two": 7}, {}, systems))
    assert (ids(plan), plan.download_bytes, plan.disk["/var/cache/apt/archives"]) == (refusals, 12, 12)
    assert plan.disk["/var/lib/dkms"] > 0


def test_a_mirror_that_is_gone_is_refused():
    silent = {"mirror": "http://one.example", "package": "nvidia-smi", "version": "2", "why": "E: Connection refused."}
    plan = package_plan.with_mirrors(judged(node(OLD), TO_NEW), [silent, dict(silent, mirror="http://two.example")])
    assert ids(plan) == ["no_mirror"] * 2
    assert [item["packages"] for item in plan.refusals] == [["nvidia-smi"]] * 2
    assert [item["found"].split(": ")[0] for item in plan.refusals] == ["http://one.example", "http://two.example"]
    assert "Connection refused" in plan.refusals[0]["message"] and plan.refusals[0]["next_step"]
    assert ids(package_plan.with_mirrors(judged(node(OLD), TO_NEW), [])) == []


def test_nothing_is_built_where_nothing_changes():
    plan = package_plan.with_room(judged(node(NEW), wish(state="downloaded")), package_state.Room({"one": 5}, {}, WIDE))
    assert plan.disk.pop("/var/cache/apt/archives") == 5
    assert plan.disk == {"/usr": None, "/var/lib/dkms": None, "/lib/modules": None, "/boot": None}


def test_the_packages_grow_by_what_is_new_less_what_is_old():
    known = {"a": [{"version": "2", "installed_kib": 30}, {"version": "1", "installed_kib": 9}]}
    old = {"a": {"installed": True, "size_kib": 10}, "c": {"installed": False, "size_kib": 99}}
    items = dict(
        transaction.make_empty(),
        upgrade=[{"name": "a", "version": "2"}],
        install=[{"name": "b", "version": "1"}, {"name": "c", "version": "1"}],
        remove=[{"name": "a", "version": "1"}],
    )
    plan = package_plan.Plan(State("apt", index=known, installed=old), TO_NEW, transaction=items)
    assert package_plan.find_unsized(plan) == ("b", "c")
    room = package_state.Room({}, {"b": [{"version": "1", "installed_kib": 5}]}, {})
    assert package_plan.grown_bytes(plan, room) == (30 - 10 + 5) * 1024
    assert package_plan.grown_bytes(dataclasses.replace(plan, transaction=transaction.make_empty()), room) is None


# the way back


@pytest.mark.parametrize(
    "state,wanted,more,expected",
    [
        (node(OLD), wish(keep=True), {}, True),
        (node(OLD), wish(keep=True, state="downloaded"), {}, True),
        (node(NEW), wish(keep=True), {}, True),
        (node(OLD), wish(keep=True), {"remove": "tool"}, True),
        (node(OLD), wish(keep=False), {}, False),
        (node(OLD), wish(keep=True, state="resolved"), {}, False),
        (node(OLD), wish(keep=True, version="580.1.1"), {}, False),
        (node(OLD), wish(state="absent", keep=True), {}, False),
    ],
)
def test_packages_are_kept_where_that_is_asked_and_possible(state, wanted, more, expected):
    assert package_plan.needs_archives(judged(state, wanted, **more)) is expected


@pytest.mark.parametrize(
    "before,cached,known,keep,refusals",
    [
        ({"a": "1"}, {}, {"a": [{"version": "1", "downloadable": True}]}, {"a": "1"}, []),
        ({"a": "1"}, {("a", "1"): "/a.deb"}, {}, {"a": "1"}, []),
        ({"a": "1"}, {}, {"a": [{"version": "1", "downloadable": False}]}, {}, ["cannot_keep"]),
        ({"a": "1", "b": "1"}, {("a", "1"): "/a.deb"}, {}, {"a": "1"}, ["cannot_keep"]),
        ({}, {}, {}, {}, []),
    ],
)
def test_a_driver_that_cannot_be_kept_is_not_replaced(before, cached, known, keep, refusals):
    plan = judged(node(OLD), wish(keep=True))
    plan = dataclasses.replace(plan, state=dataclasses.replace(plan.state, index=known))
    archives = package_state.Archives(before, {"n": "2", "m": "2"}, {("n", "2"): "/n.deb", **cached})
    plan = package_plan.with_archives(plan, archives)
    assert (plan.keep, ids(plan)) == (keep, refusals)
    assert plan.before == dict.fromkeys(SET, OLD) and plan.keep_new == {"n": "2"}


def test_what_is_not_changed_is_no_way_back():
    archives = package_state.Archives({}, {"n": "2"}, {("n", "2"): "/n.deb"})
    plan = package_plan.with_archives(judged(node(NEW), wish(keep=True)), archives)
    assert (plan.before, plan.keep, plan.keep_new) == ({}, {}, {"n": "2"})
    assert package_plan.driver_before(plan) == {}


@pytest.mark.parametrize(
    "flavour,expected", [("proprietary", ["nvidia-kernel-dkms"]), ("open", ["nvidia-open-kernel-dkms"])]
)
def test_the_packages_that_hold_the_modules_source(flavour, expected):
    plan = package_plan.choose_packages(node(NEW), wish(flavour=flavour))
    assert list(package_plan.module_sources(plan)) == expected
    prebuilt = dataclasses.replace(plan, resolved=dict(plan.resolved, dkms_name=None))
    assert package_plan.module_sources(prebuilt) == package_plan.module_sources(package_plan.Plan(node(), TO_NEW)) == {}


# beside the packages


@pytest.mark.parametrize(
    "have,held,asked,hold,lift",
    [
        (NEW, SET, None, (), ()),
        (NEW, SET, True, (), ()),
        (NEW, SET, False, (), SET),
        (NEW, (), None, (), ()),
        (NEW, (), True, SET, ()),
        (NEW, (), False, (), ()),
        (OLD, SET, None, (), ()),
        (OLD, SET, True, (), ()),
        (OLD, SET, False, (), SET),
        (OLD, SET[:2], True, SET[2:], ()),
        (OLD, SET[:2], False, (), SET[:2]),
        (None, (), True, SET, ()),
        (None, (), False, (), ()),
        (None, (), None, (), ()),
    ],
)
def test_holds(have, held, asked, hold, lift):
    """The hold of dkms is not the driver's: it is put back whatever is asked for the driver."""
    plan = settled(node(have, tuple(held) + ("dkms",)), wish(hold=asked))
    assert (set(plan.hold), set(plan.lift)) == (set(hold), set(lift))
    assert set(plan.held) == (set(held) | {"dkms"}) - set(lift)


def test_the_holds_of_what_is_removed_are_not_the_plans():
    plan = settled(node(NEW, SET), wish(state="absent", hold=True))
    assert (plan.hold, plan.lift, set(plan.held)) == ((), (), set(SET))


PIN = Wish().pin_file


def content(path, plan):
    return dict(plan.files).get(path, "left")


@pytest.mark.parametrize(
    "state,pin,text,expected",
    [
        ("present", None, None, "left"),
        ("present", None, "x", "left"),
        ("present", True, None, "written"),
        ("present", True, "x", "written"),
        ("present", True, "same", "left"),
        ("present", False, "x", None),
        ("present", False, None, "left"),
        ("absent", None, "x", None),
        ("absent", True, "x", None),
        ("absent", True, None, "left"),
        ("resolved", True, None, "left"),
        ("resolved", False, "x", "left"),
        ("downloaded", True, None, "left"),
        ("downloaded", False, "x", "left"),
    ],
)
def test_the_pin(state, pin, text, expected):
    rendered = holds.render_pin(DEBIAN, {"nvidia-graphics-drivers": NEW})
    plan = settled(node(NEW, texts={PIN: rendered if text == "same" else text}), wish(state=state, pin=pin))
    assert content(PIN, plan) == (rendered if expected == "written" else expected)


@pytest.mark.parametrize(
    "state,exclude,text,expected",
    [
        ("present", None, "x", "left"),
        ("present", True, None, "written"),
        ("present", True, "same", "left"),
        ("present", False, "x", None),
        ("present", False, None, "left"),
        ("absent", True, "x", None),
        ("absent", None, "x", "left"),
        ("resolved", True, None, "left"),
        ("downloaded", True, None, "left"),
    ],
)
def test_the_exclusion_from_unattended_upgrades(state, exclude, text, expected):
    rendered = holds.render_unattended()
    texts = {UNATTENDED: rendered if text == "same" else text}
    plan = settled(node(NEW, texts=texts), wish(state=state, exclude_unattended=exclude))
    assert content(UNATTENDED, plan) == (rendered if expected == "written" else expected)


@pytest.mark.parametrize(
    "wanted,expected,told",
    [
        (TO_NEW, None, None),
        (TO_NEW, "535.261.03", None),
        (TO_NEW, "535.216.03", "535.261.03"),
        (TO_OLD, "535.261.03", "535.216.03"),
        (wish(state="downloaded"), "535.216.03", None),
        (wish(state="resolved"), "535.216.03", None),
        (Wish(state="absent"), "535.216.03", None),
    ],
)
def test_the_driver_that_the_check_at_boot_is_told(wanted, expected, told):
    assert settled(node(OLD, expected_driver=expected), wanted).expect == told


def test_a_refused_plan_settles_nothing():
    state = node(OLD, expected_driver="535.216.03")
    plan = settled(state, wish(hold=True, pin=True, exclude_unattended=True), remove="tool")
    assert ids(plan) == ["removal"] and (plan.hold, plan.files, plan.expect) == ((), (), None)


@pytest.mark.parametrize(
    "wanted", [wish(hold=True, pin=True, keep=True), wish(flavour="open", state="downloaded"), Wish(state="absent")]
)
def test_planning_changes_nothing_that_it_is_given(wanted):
    state = node(OLD, SET[:3])
    before = copy.deepcopy(state)
    plan = settled(state, wanted)
    assert plan.refusals == () and state == before and plan.state is state
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.action = None
