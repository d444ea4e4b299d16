# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dnf and rpm say, as data."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import dnf, dnf_locks, dnf_output
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages.transaction import final_state, make_empty

pytestmark = pytest.mark.pythons

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "dnf"
OLD, NEW = "3:575.57.08-1.el9", "3:580.95.05-1.el9"


def fixture(name):
    return (FIXTURES / name).read_text(encoding="utf-8")


def names(items):
    return [item["name"] for item in items]


def test_installed_packages():
    found = dnf_output.parse_query(fixture("rpm-qa.txt"), locks())
    assert found["nvidia-driver-cuda"] == {
        "version": OLD,
        "source": "stub",
        "status": "installed",
        "hold": True,
        "size_kib": 0,
        "installed": True,
        "ok": True,
        "architecture": "x86_64",
        "more": [],
    }
    assert found["dkms"]["version"] == "3.2.1-1.el9" and not found["dkms"]["hold"] and found["kernel-core"]["hold"]


def locks():
    return [pattern for pattern in map(dnf_locks.lock_pattern, fixture("versionlock.list").splitlines()) if pattern]


def test_a_package_that_an_interrupted_run_left_twice_is_not_ok():
    text = "a|(none)|1|1|x86_64|a-1-1.src.rpm|2048\na|(none)|2|1|x86_64|a-2-1.src.rpm|4096\n"
    found = dnf_output.parse_query(text)["a"]
    assert (found["version"], found["ok"], found["more"], found["size_kib"]) == ("2-1", False, ["1-1"], 4)
    assert found["status"] == "installed twice: 2-1, 1-1"
    reverse = dnf_output.parse_query("a|0|2|1|x86_64|a-2-1.src.rpm|4096\na|0|1|1|x86_64|a-1-1.src.rpm|2048\n")["a"]
    assert (reverse["version"], reverse["ok"]) == ("2-1", False)


ROW = "%s|0|%s|1|%s|x-1-1.src.rpm|0|%s\n"


@pytest.mark.parametrize(
    "name,provides,ok",
    [
        ("kernel-core", "installonlypkg(kernel) kernel-core", True),
        ("kmod-nvidia-open", "kmod-nvidia-open installonlypkg(kernel-module) ", True),
        ("guest-image", "multiversion(kernel)", True),
        ("kmod-nvidia-open", "kmod-nvidia-open", False),
        ("nvidia-driver", "notinstallonlypkg(kernel)", False),
        ("kernel-64k-debug-modules-core", "", True),
        ("kernel-uki-virt", "", True),
        ("kernel-rt-core", "", True),
        ("kernel", "", True),
        ("gpg-pubkey", "", True),
        ("kmod-nvidia-580.95.05-5.14.0-503.22.1", "", True),
        ("kmod-nvidia-open-580.95.05-5.14.0-503.22.1", "", True),
        ("kmod-nvidia-latest-dkms", "", False),
        ("kernel-headers", "", False),
        ("kernel-tools-libs", "", False),
    ],
)
def test_two_versions_side_by_side(name, provides, ok):
    found = dnf_output.parse_query(ROW % (name, 1, "x86_64", provides) + ROW % (name, 2, "x86_64", provides))
    assert (found[name]["ok"], found[name]["version"], found[name]["more"]) == (ok, "2-1", ["1-1"])


@pytest.mark.parametrize("archs", [("x86_64", "i686"), ("i686", "x86_64"), ("aarch64", "armv7hl")])
def test_architectures_of_one_name_are_packages_of_their_own(archs):
    rows = [("zlib", 1, archs[0]), ("zlib", 2, archs[1]), ("bash", 1, "aarch64" if "aarch64" in archs else "x86_64")]
    found = dnf_output.parse_query("".join(ROW % (row + ("",)) for row in rows))
    assert all(have["ok"] and not have["more"] for have in found.values())
    assert sorted(found) == ["bash", "zlib", "zlib:%s" % next(arch for arch in archs if arch in ("i686", "armv7hl"))]


def test_a_repair_is_of_the_named_packages_and_with_dependencies(tmp_path):
    text = "".join(ROW % (name, version, "x86_64", "") for name in ("libnvidia-ml", "bash") for version in (1, 2))
    text += ROW % ("libnvidia-ml", 1, "i686", "")
    told = []
    manager = dnf.Dnf(lambda argv, timeout: told.append(argv) or (0, text, ""), str(tmp_path))
    assert manager.configure() is None and manager.configure(["libnvidia-ml:i686"]) is None
    assert not [argv for argv in told if "-e" in argv]
    manager.configure(["libnvidia-ml", "libnvidia-ml:i686"])
    assert [argv for argv in told if "-e" in argv] == [["rpm", "-e", "libnvidia-ml-1-1.x86_64"]]


def test_a_lock_of_one_architecture_leaves_that_of_the_other(tmp_path):
    text = ROW % ("zlib", 2, "x86_64", "") + ROW % ("zlib", 1, "i686", "") + ROW % ("bash", 1, "x86_64", "")
    plugin = tmp_path / dnf.LOCK_PLUGIN.lstrip("/")
    plugin.parent.mkdir(parents=True)
    plugin.write_text("[main]\nenabled = 1\n")
    manager = dnf.Dnf(lambda argv, timeout: (0, text, ""), str(tmp_path))
    manager.mark("hold", ["zlib"])
    manager.mark("hold", ["zlib:i686"])
    locks = (tmp_path / dnf.LOCKS.lstrip("/")).read_text()
    assert locks == "zlib-0:2-1.*\nzlib-0:1-1.i686\n"
    manager.mark("unhold", ["zlib"])
    assert (tmp_path / dnf.LOCKS.lstrip("/")).read_text() == "zlib-0:1-1.i686\n"
    assert [name for name, have in manager.list_installed().items() if have["hold"]] == ["zlib:i686"]


def test_what_is_removed_of_one_architecture_leaves_the_other():
    installed = dnf_output.parse_query(ROW % ("zlib", 1, "x86_64", "") + ROW % ("zlib", 1, "i686", ""))
    told = "Removing:\n zlib          i686     1-1     @base   2.0 k\n\nTransaction Summary\n"
    found = dnf_output.parse_transaction(told, installed)
    assert found["remove"] == [{"name": "zlib:i686", "version": "1-1"}]
    assert final_state(installed, found) == {"zlib": "1-1"}


@pytest.mark.parametrize(
    "source,expected",
    [
        ("nvidia-driver-580.95.05-1.el9.src.rpm", "nvidia-driver"),
        ("dkms-nvidia-open-580.95.05-1.el9.nosrc.rpm", "dkms-nvidia-open"),
        ("(none)", "(none)"),
    ],
)
def test_source_name(source, expected):
    assert dnf_output.source_name(source) == expected


def test_the_index():
    found = dnf_output.parse_index(fixture("repoquery.txt"))
    assert sorted(found) == [
        "kmod-nvidia-580.95.05-5.14.0-503.22.1",
        "kmod-nvidia-open-dkms",
        "nvidia-driver-cuda",
        "nvidia-fabricmanager",
    ]
    assert [record["version"] for record in found["nvidia-driver-cuda"]] == [OLD, NEW]
    assert [record["version"] for record in found["nvidia-fabricmanager"]] == ["575.57.08-1", "580.95.05-1"]
    record = found["kmod-nvidia-open-dkms"][1]
    assert record["relations"] == [[("dkms", None, None)], [("nvidia-kmod-common", "=", "3:580.95.05")]]
    assert (
        record["provides"] == ["nvidia-kmod"]
        and record["downloadable"]
        and record["size"] > 0
        and record["repository"] == "cuda-rhel9-x86_64"
    )


@pytest.mark.parametrize(
    "text,expected",
    [
        ("nvidia-kmod = 3:580.95.05", ("nvidia-kmod", "=", "3:580.95.05")),
        ("libnvidia-ml(x86-64) = 3:1-1", ("libnvidia-ml", "=", "3:1-1")),
        ("dkms", ("dkms", None, None)),
        ("libc.so.6()(64bit)", ("libc.so.6()(64bit)", None, None)),
        ("egl-gbm(aarch-64) >= 1", ("egl-gbm", ">=", "1")),
    ],
)
def test_capability(text, expected):
    assert dnf_output.parse_capability(text) == expected


def test_an_empty_node():
    found = dnf_output.parse_transaction(fixture("simulate_empty_node.txt"))
    assert len(found["install"]) == 10 and not any(
        found[kind] for kind in ("upgrade", "downgrade", "remove", "reinstall")
    )
    assert {"name": "nvidia-fabricmanager", "version": "575.57.08-1"} in found["install"]
    assert {"name": "nvidia-driver-cuda-libs", "version": OLD} in found["install"]


def test_an_upgrade_that_takes_more_with_it():
    found = dnf_output.parse_transaction(
        fixture("simulate_upgrade_kernel_and_removal.txt"), dnf_output.parse_query(fixture("rpm-qa.txt"))
    )
    assert names(found["install"]) == ["nvidia-replacing"]
    assert {"name": "kernel-core", "version": "5.14.0-570.1.1.el9_6", "from": "5.14.0-503.22.1.el9_5"} in found[
        "upgrade"
    ]
    assert found["remove"] == [
        {"name": "nvidia-replaced", "version": "3:570.86.15-1.el9"},
        {"name": "other", "version": "1-1.el9"},
    ]


def test_other_transactions():
    assert len(dnf_output.parse_transaction(fixture("simulate_downgrade.txt"))["downgrade"]) == 8
    found = dnf_output.parse_transaction(fixture("simulate_other_flavour.txt"))
    assert (names(found["install"]), names(found["remove"])) == (["kmod-nvidia-latest-dkms"], ["kmod-nvidia-open-dkms"])
    assert "kmod-nvidia-580.95.05-5.14.0-503.22.1" in names(
        dnf_output.parse_transaction(fixture("simulate_prebuilt.txt"))["install"]
    )
    assert dnf_output.parse_transaction(fixture("simulate_nothing.txt")) == make_empty()


def test_a_name_that_is_too_long_for_its_column():
    """A narrow terminal: the name alone, the rest on the next line."""
    text = (
        "Installing:\n kmod-nvidia-580.95.05-5.14.0-503.22.1\n"
        "                  x86_64 3:580.95.05-3.el9_5 cuda-rhel9-x86_64 5.7 k\n"
        " nvidia-modprobe  x86_64 3:580.95.05-1.el9\n                  cuda-rhel9-x86_64 5.5 k\n"
        "Removing unused dependencies:\n"
        " a  noarch  1-1  @System  0  \n\nTransaction Summary\n"
    )
    found = dnf_output.parse_transaction(text)
    assert names(found["install"]) == ["kmod-nvidia-580.95.05-5.14.0-503.22.1", "nvidia-modprobe"] and names(
        found["remove"]
    ) == ["a"]


@pytest.mark.parametrize(
    "text,expected",
    [
        ("Total download size: 55 k\n", 55 * 1024),
        ("Total download size: 1.5 M\n", 3 * 512 * 1024),
        ("Total download size: 12\n", 12),
        ("Total size: 55 k\n", 0),
        ("", 0),
        ("Total size: 2 M\nTotal download size: 1 M\n", 1024**2),
    ],
)
def test_download_size(text, expected):
    assert dnf_output.parse_download_size(text) == expected


def test_streams():
    assert dnf_output.parse_streams(fixture("module-list.txt"), "nvidia-driver") == ["575-open", "580-open"]
    assert dnf_output.parse_streams("Error: No matching Modules to list\n", "nvidia-driver") == []


@pytest.mark.parametrize(
    "text,module,stream",
    [
        (fixture("nvidia-driver.module"), "nvidia-driver", "575-open"),
        (fixture("nvidia-driver.module").replace("=", " = "), "nvidia-driver", "575-open"),  # as an editor writes it
        (fixture("nvidia-driver.module").replace("enabled", "disabled"), "nvidia-driver", None),
        (fixture("nvidia-driver.module"), "nvidia", None),
        ("", "nvidia-driver", None),
    ],
)
def test_the_enabled_stream(text, module, stream):
    assert dnf_output.parse_enabled(text, module) == stream


def test_what_cannot_be_satisfied():
    assert dnf_output.parse_unmet(fixture("no_match.txt")) == [
        "Unable to find a match: nvidia-driver-cuda-3:999.1.1-1.el9"
    ]
    error = dnf.DnfError("the simulated transaction", 1, "", fixture("problem.txt"))
    assert len(error.unmet) == 2 and error.unmet[0].startswith(
        "package nvidia-driver-cuda-3:575.57.08-1.el9.x86_64 requires nvidia-driver-cuda-libs"
    )
    assert error.packages == ["nvidia-driver-cuda-3:575.57.08-1.el9.x86_64"] and "exit status 1" in str(error)
