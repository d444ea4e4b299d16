# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node that a change of driver packages is planned from, read through apt from recorded data."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import boot_expectation
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, package_plan, package_read
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.driver_tables import DEBIAN
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.package_state import State, Wish
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import SET, FakeMachine

pytestmark = pytest.mark.pythons

NEW = "535.261.03-1"
KERNEL = "6.1.0-56-amd64"


@pytest.fixture(name="machine")
def _machine(tmp_path):
    return FakeMachine(tmp_path, version=NEW, hold=True)


def put(machine, path, text):
    place = machine.root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def read(machine, manager=None, table=None, **wish):
    manager = manager or apt.Apt(machine, root=str(machine.root))
    return package_read.read_state(manager, Wish(version="535.261.03", **wish), table or DEBIAN)


def test_the_wish_has_every_option_that_decides_and_no_list():
    wish = Wish.of(dict(repositories.OPTIONS, version="580.1.1", components=["nscq"], lock_timeout_s=1))
    assert (wish.version, wish.components, wish.floors) == ("580.1.1", ("nscq",), ())
    assert [name for name, value in dataclasses.asdict(wish).items() if isinstance(value, list)] == []
    with pytest.raises(KeyError):
        Wish.of({"version": "580.1.1"})


def test_the_packages_of_a_node(machine):
    machine.packages["libcuda1"]["status"] = "iF"
    put(machine, "var/lib/dpkg/updates/0002", "x")
    put(machine, "var/lib/dpkg/updates/0001", "x")
    state = read(machine)
    assert (state.manager, state.table) == ("apt", DEBIAN)
    assert set(SET) <= set(name for name, have in state.installed.items() if have["hold"])
    assert NEW in [record["version"] for record in state.index["nvidia-smi"]]
    assert (state.journal, state.broken, state.interrupted) == (("0001", "0002"), ("libcuda1",), True)
    assert machine.log == []


def test_a_state_does_not_change(machine):
    with pytest.raises(dataclasses.FrozenInstanceError):
        read(machine).manager = "dnf"
    assert not State("apt").interrupted and State("apt").table is None


def test_the_kernels_of_a_node(machine):
    (machine.root / "lib/modules/6.1.0-57-amd64/build/include").mkdir(parents=True)
    put(machine, "boot/vmlinuz-6.1.0-57-amd64", "")
    put(machine, "boot/initrd.img-" + KERNEL, "12345")
    state = read(machine, require=("headers",))
    assert state.kernels == (KERNEL, "6.1.0-57-amd64") and state.initrd_bytes == 5
    assert state.compilers == {KERNEL: "gcc-12.2.0", "6.1.0-57-amd64": None}
    assert state.headers == {KERNEL: False, "6.1.0-57-amd64": True}
    assert read(machine).headers == {}


@pytest.mark.parametrize("kind, expected", [("prebuilt", KERNEL), ("dkms", None)])
def test_the_kernel_that_boots_next_is_read_for_prebuilt_modules(machine, kind, expected):
    put(machine, "boot/vmlinuz-6.1.0-57-amd64", "")
    (machine.root / "lib/modules/6.1.0-57-amd64").mkdir(parents=True)
    put(machine, "boot/grub/grubenv", "# GRUB Environment Block\nsaved_entry=gnulinux-%s-advanced-1\n" % KERNEL)
    assert read(machine, kernel_module=kind).next_kernel == expected


def test_gpus_that_cannot_be_listed_are_not_none_of_them(machine):
    assert read(machine).gpus is None
    (machine.root / "sys/bus/pci/devices").mkdir(parents=True)
    assert read(machine).gpus == []


def test_containers_that_cannot_be_listed_are_not_none_of_them(machine):
    assert not (machine.root / "proc").exists()
    assert read(machine, running_floors=True).workloads is None
    assert read(machine).workloads == ()


def test_containers_are_read_where_their_floors_count(machine):
    put(machine, "proc/77/cgroup", "0::/system.slice/docker-aa.scope\n")
    put(machine, "proc/77/environ", "NVIDIA_VISIBLE_DEVICES=all\0NVIDIA_REQUIRE_CUDA=cuda>=12.4\0")
    assert [item["require"] for item in read(machine, running_floors=True).workloads] == [["cuda>=12.4"]]
    assert read(machine).workloads == ()


def test_the_files_beside_the_packages(machine):
    pin, unattended = Wish().pin_file, apt.Apt.unattended_file
    state = read(machine)
    assert state.texts == {pin: None, unattended: None} and state.unattended_file == unattended
    put(machine, pin.lstrip("/"), "pinned")
    assert read(machine).texts[pin] == "pinned"


@pytest.mark.parametrize(
    "text,expected",
    [
        (None, None),
        ("{", None),
        (
            boot_expectation.render_document(
                {
                    "schema": boot_expectation.SCHEMA,
                    "driver_version": "1:1.2.3-4",
                    "hardware": {"gpus": 8},
                    "mig_file": None,
                    "policy": {},
                }
            ),
            "1.2.3",
        ),
    ],
)
def test_the_driver_that_the_check_at_boot_expects(machine, text, expected):
    if text:
        put(machine, boot_expectation.PATH.lstrip("/"), text)
    assert read(machine).expected_driver == expected


def test_archives_in_the_cache_are_found_of_what_is_replaced_and_of_what_replaces_it(machine):
    """The same packages at two versions; what a mirror offers no more is kept from there."""
    for name in SET:
        machine.packages[name]["version"] = "535.1.1-1"
    for version in ("535.1.1-1", "535.999.99-1"):
        put(machine, "var/cache/apt/archives/libcuda1_%s_amd64.deb" % version, "x")
    manager = apt.Apt(machine, root=str(machine.root))
    state = package_read.read_state(manager, Wish(version="535.261.03", keep=True), DEBIAN)
    plan = package_plan.choose_packages(state, Wish(version="535.261.03", keep=True))
    plan = package_plan.judge_rehearsal(plan, package_read.rehearse_plan(manager, plan))
    wanted = dict(plan.packages, libcuda1="535.999.99-1")
    plan = dataclasses.replace(plan, resolved=dict(plan.resolved, packages=wanted))
    archives = package_read.read_archives(manager, plan)
    assert archives.before == dict.fromkeys(SET, "535.1.1-1") and archives.after == plan.packages
    assert set(archives.cached) == {("libcuda1", "535.1.1-1"), ("libcuda1", "535.999.99-1")}


class WithModules(apt.Apt):
    """A manager whose repositories have module streams; ``asked`` are the modules that were looked up."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked = []

    def streams(self, module):
        self.asked.append(module)
        return ["575-open", "580-open"]

    def enabled_stream(self, module):
        return "575-open"

    def hold_problem(self):
        return "the plugin is off", "switch it on"


def test_the_streams_of_a_table_that_has_a_module(machine):
    manager = WithModules(machine, root=str(machine.root))
    table = dict(DEBIAN, module="nvidia-driver")
    state = read(machine, manager, table)
    assert (state.streams, state.enabled_stream) == (("575-open", "580-open"), "575-open")
    assert state.hold_problem == ("the plugin is off", "switch it on")
    for other in (read(machine, manager, DEBIAN), read(machine, manager, table, state="absent")):
        assert (other.streams, other.enabled_stream) == ((), None)
    assert manager.asked == ["nvidia-driver"]
