# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How old holds are, and which updates they keep out."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, dnf, dnf_output, holds
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import fixture

pytestmark = pytest.mark.pythons

DAY, NOW = 24 * 3600, 1_800_000_000
OLD = {"version": "1-1", "since": NOW - 30 * DAY, "exact": True}


@pytest.mark.parametrize(
    "record,held,mine,expected",
    [
        ({}, {"a": "1-1"}, ["a"], {"a": {"version": "1-1", "since": NOW, "exact": True}}),
        ({}, {"a": "1-1"}, [], {"a": {"version": "1-1", "since": NOW, "exact": False}}),
        ({"a": OLD}, {"a": "1-1"}, [], {"a": OLD}),
        ({"a": OLD}, {"a": "1-1"}, ["a"], {"a": OLD}),
        ({"a": OLD}, {"a": "2-1"}, ["a"], {"a": {"version": "2-1", "since": NOW, "exact": True}}),
        ({"a": OLD}, {}, [], {}),
    ],
)
def test_the_record(record, held, mine, expected):
    assert holds.update_record(record, held, NOW, mine) == expected
    assert holds.parse_record(holds.render_record(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "not json",
        "[]",
        "3",
        '{"a": 3}',
        '{"a": {"version": "1"}}',
        '{"a": {"since": "x", "version": "1"}}',
        '{"a": {"since": 1}}',
    ],
)
def test_a_record_that_cannot_be_read_is_none(text):
    assert holds.parse_record(text) == {}


INDEX = {"a": [{"version": version} for version in ("1-1", "2-1", "10-1", "0-1")]}


@pytest.mark.parametrize(
    "record,security,since,age,fixes",
    [
        ({"a": OLD}, {"a": ["2-1", "0-1"]}, "2026-12-16T08:00:00Z", 30, ["2-1"]),
        ({"a": OLD}, {}, "2026-12-16T08:00:00Z", 30, []),
        ({"a": OLD}, None, "2026-12-16T08:00:00Z", 30, None),
        ({}, {"a": ["10-1", "2-1"]}, None, None, ["10-1", "2-1"]),
        ({"a": dict(OLD, version="0-1")}, {}, None, None, []),
        ({"a": dict(OLD, since=NOW + DAY)}, {}, "2027-01-16T08:00:00Z", 0, []),
    ],
)
def test_the_report(record, security, since, age, fixes):
    (row,) = holds.report_holds(record, {"a": "1-1"}, INDEX, security, "apt", NOW)
    assert (row["since"], row["age_days"], row["security"], row["newer"]) == (since, age, fixes, ["10-1", "2-1"])


def test_the_oldest_first():
    record = {"a": OLD, "b": dict(OLD, since=NOW - 90 * DAY)}
    assert [
        row["package"] for row in holds.report_holds(record, {"a": "1-1", "b": "1-1", "c": "1-1"}, {}, None, "dnf", NOW)
    ] == ["b", "a", "c"]


def test_versions_are_compared_as_the_manager_does():
    index = {"a": [{"version": "3:1-1"}, {"version": "1.0~rc1-1"}]}
    assert holds.report_holds({}, {"a": "1.0-1"}, index, None, "dnf", NOW)[0]["newer"] == ["3:1-1"]


def test_apt_tells_the_archives_of_every_version():
    found = apt.parse_policy(fixture("policy_bookworm.txt"))
    assert sorted(found) == ["libc6", "linux-image-amd64", "openssl"]
    archives = [name for versions in found.values() for names in versions.values() for name in names]
    assert "bookworm/main" in archives and "bookworm-security/main" in archives


def test_security_versions_of_apt():
    manager = apt.Apt(lambda argv, timeout: (0, fixture("policy_bookworm.txt"), ""))
    found = manager.security(["openssl"])
    assert found["openssl"] and all(
        version in apt.parse_policy(fixture("policy_bookworm.txt"))["openssl"] for version in found["openssl"]
    )


def test_advisories_of_dnf():
    text = (
        "RHSA-2026:1234 Important/Sec. kernel-core-5.14.0-570.1.1.el9_6.x86_64\n"
        "RHSA-2026:1234 Important/Sec. nvidia-driver-cuda-3:580.105.08-1.el9.x86_64\n"
        "RHSA-2026:1300 Moderate/Sec.  nvidia-driver-cuda-3:580.105.08-1.el9.x86_64\n"
        "Security: kernel-core is installed\n\n"
    )
    assert dnf_output.parse_advisories(text) == {
        "kernel-core": ["5.14.0-570.1.1.el9_6"],
        "nvidia-driver-cuda": ["3:580.105.08-1.el9"],
    }
    assert dnf.Dnf(lambda argv, timeout: (1, "", "Error")).security(["a"]) is None
