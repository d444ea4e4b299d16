# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading apt and dpkg, on recorded answers."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node import files
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import apt, apt_mirrors, manager
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages.fake_apt import (
    SET,
    FakeMachine,
    fixture,
    index,
    installed,
)

pytestmark = pytest.mark.pythons


def test_os_release():
    found = manager.parse_os_release(fixture("os-release_bookworm.txt"))
    assert (found["ID"], found["VERSION_ID"]) == ("debian", "12")


def test_show_has_every_version_with_source_and_dependencies():
    records = dict((record["version"], record) for record in index()["nvidia-kernel-dkms"])
    assert sorted(records) == ["535.216.03-2~bpo12+1", "535.261.03-1", "535.309.01-0+deb12u1"]
    record = records["535.261.03-1"]
    assert record["source"] == "nvidia-graphics-drivers"
    assert ["firmware-nvidia-gsp", "firmware-nvidia-gsp-535.261.03"] in record["depends"]
    assert record["depends"][0] == ["nvidia-installer-cleanup"]
    assert record["provides"] == ["nvidia-kernel-535.261.03", "nvidia-kernel-dkms-any"]
    assert record["installed_kib"] == 72961
    assert record["downloadable"]


def test_show_without_a_source_field_is_its_own_source():
    assert set(record["source"] for record in index()["nvidia-modprobe"]) == {"nvidia-modprobe"}


def test_a_record_of_the_status_file_alone_cannot_be_downloaded():
    text = "Package: a\nStatus: install ok installed\nVersion: 1-1\n\nPackage: a\nVersion: 2-1\nFilename: pool/a.deb\n"
    assert [(record["version"], record["downloadable"]) for record in apt.parse_show(text)["a"]] == [
        ("1-1", False),
        ("2-1", True),
    ]
    both = text + "\nPackage: a\nVersion: 1-1\nFilename: pool/a1.deb\n"
    assert all(record["downloadable"] for record in apt.parse_show(both)["a"])


@pytest.mark.parametrize(
    "text,groups",
    [
        ("", []),
        ("a (>= 1) | b:any [amd64], c", [["a", "b"], ["c"]]),
        ("debconf (>= 0.5) | debconf-2.0", [["debconf", "debconf-2.0"]]),
    ],
)
def test_depends(text, groups):
    assert apt.parse_depends(text) == groups


def test_query():
    found = apt.parse_query(fixture("query_535.261.03.txt"))
    assert found["nvidia-smi"] == {
        "version": "535.261.03-1",
        "source": "nvidia-graphics-drivers",
        "status": "hi",
        "hold": True,
        "size_kib": 880,
        "installed": True,
        "ok": True,
    }
    assert not found["libc6"]["hold"]


@pytest.mark.parametrize(
    "status,is_installed,ok",
    [
        ("ii ", True, True),
        ("hi ", True, True),
        ("rc ", False, False),
        ("iF ", True, False),
        ("iU ", True, False),
        ("iHR", True, False),
        ("iW ", True, True),
        ("it ", True, True),
        ("un ", False, False),
        ("iiR", True, False),
        ("pn ", False, False),
    ],
)
def test_query_states(status, is_installed, ok):
    have = apt.parse_query("%s|x|amd64|1-1|x|1\n" % status)["x"]
    assert (have["installed"], have["ok"]) == (is_installed, ok)


def test_query_keeps_a_foreign_architecture_apart():
    text = (
        "ii |dpkg|amd64|1|dpkg|1\nii |libcuda1|amd64|535.261.03-1|s|1\nii |libcuda1|i386|535.216.03-1|s|1\n"
        "ii |a|all|1|a|1\n"
    )
    assert sorted(apt.parse_query(text)) == ["a", "dpkg", "libcuda1", "libcuda1:i386"]


def test_simulation_on_an_empty_node():
    transaction = apt.parse_simulation(fixture("simulate_empty_node.txt"))
    assert set(SET) <= set(item["name"] for item in transaction["install"])
    assert {"name": "nvidia-modprobe", "version": "535.309.01-0+deb12u1"} in transaction["install"]
    assert not transaction["upgrade"] and not transaction["downgrade"] and not transaction["remove"]


@pytest.mark.parametrize(
    "name,kind,version",
    [
        ("simulate_upgrade.txt", "upgrade", "535.309.01-0+deb12u1"),
        ("simulate_downgrade.txt", "downgrade", "535.216.03-2~bpo12+1"),
    ],
)
def test_simulation_of_a_change(name, kind, version):
    transaction = apt.parse_simulation(fixture(name))
    assert [(item["name"], item["from"], item["version"]) for item in transaction[kind]] == [
        (name, "535.261.03-1", version) for name in SET
    ]
    assert not any(transaction[other] for other in transaction if other != kind)


def test_simulation_with_removals():
    removed = apt.parse_simulation(fixture("simulate_removal_outside.txt"))["remove"]
    assert [item["name"] for item in removed] == ["initramfs-tools", "linux-image-6.1.0-56-amd64", "linux-image-amd64"]
    assert removed[0]["version"] == "0.142+deb12u3"


def test_uris():
    found = apt.parse_uris(fixture("uris_upgrade.txt"))
    assert len(found) == 11
    assert found["nvidia-kernel-dkms_535.309.01-0+deb12u1_amd64.deb"] == 44990976


URIS = """Reading package lists...
'http://one.example/pool/b_2_amd64.deb' b_2_amd64.deb 20 SHA256:1
'http://one.example/pool/a_1%3a2-1%2b1_all.deb' a_1%3a2-1+1_all.deb 10 MD5Sum:2
'https://kim:secret@two.example:8443/c_3_i386.deb' c_3_i386.deb 40 SHA256:3
'mirror+http://lists.example/main.txt/d_4_amd64.deb' d_4_amd64.deb 5
'file:/srv/repository/e_5_amd64.deb' e_5_amd64.deb 1 SHA256:5
'/var/lib/gpufleet/packages/f_6_amd64.deb' f_6_amd64.deb 1 SHA256:6
"""


def test_the_smallest_archive_of_each_mirror_is_the_one_that_is_fetched():
    offers = apt_mirrors.pick_smallest(apt_mirrors.parse_offers(URIS))
    assert [(offer["mirror"], apt_mirrors.name_offer(offer)) for offer in offers] == [
        ("http://one.example", "a=1:2-1+1"),
        ("https://two.example:8443", "c:i386=3"),
        ("mirror+http://lists.example", "d:amd64=4"),
    ]
    recorded = apt_mirrors.parse_offers(fixture("uris_upgrade.txt"))
    assert len(recorded) == 11 and {offer["version"] for offer in recorded} == {"535.309.01-0+deb12u1"}


@pytest.mark.parametrize(
    ("answer", "archive", "why"),
    [
        ((0, "", ""), True, None),
        ((0, "", ""), False, "apt said nothing"),
        (
            (100, "", "W: odd\nE: Failed to fetch http://kim:secret@two.example/c.deb  404 Not Found\nE: Some\n"),
            False,
            "E: Failed to fetch http://***@two.example/c.deb  404 Not Found",
        ),
        ((100, "", "E: Failed\n"), True, "E: Failed"),  # what apt left is not what it was asked for
        ((124, "", "env: still running after 120 s, killed"), False, "env: still running after 120 s, killed"),
        ((127, "", "env: command not found"), False, "env: command not found"),
    ],
)
def test_a_mirror_from_which_nothing_comes(answer, archive, why):
    places, asked = [], []

    def runner(argv, timeout):
        places.append(pathlib.Path(argv[1].split("=", 1)[1]))
        asked.append((argv[-1], timeout))
        if archive:
            (places[-1] / "x.deb").write_bytes(b"")
        return answer

    found = apt_mirrors.find_silent(runner, URIS)
    assert asked == [(word, apt_mirrors.LOOK_S) for word in ("a=1:2-1+1", "c:i386=3", "d:amd64=4")]
    assert [item["why"] for item in found] == ([why] * 3 if why else [])
    assert not any(place.exists() for place in places), "nothing is left of it"


def test_no_room_for_an_archive_is_told_and_no_error(monkeypatch):
    def full(prefix):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(apt_mirrors.tempfile, "mkdtemp", full)
    found = apt_mirrors.find_silent(lambda argv, timeout: pytest.fail("it was fetched"), URIS)
    assert len(found) == 3 and all("No space left on device" in item["why"] for item in found)


def test_a_failed_command_says_what_apt_said():
    error = apt.AptError(
        "apt-get install", 100, "Reading package lists...\n", "W: odd\nE: Unable to correct problems\nE: held\n"
    )
    assert str(error) == "apt-get install failed (exit status 100): E: Unable to correct problems E: held"
    assert "W: odd" in error.output


def test_a_failed_read_is_an_error_and_not_an_empty_answer(tmp_path):
    with pytest.raises(apt.AptError):
        apt.Apt(
            lambda argv, timeout: (2, "", "dpkg-query: error: database locked"), root=str(tmp_path)
        ).list_installed()


def test_index_reads_the_names_that_match(tmp_path):
    machine = FakeMachine(tmp_path)
    found = apt.Apt(machine, root=str(tmp_path)).index("nvidia|^libcuda1$")
    assert "libcuda1" in found and "nvidia-smi" in found and "libnvcuvid1" not in found


def test_index_of_a_machine_without_lists_is_empty(tmp_path):
    assert apt.Apt(FakeMachine(tmp_path, lists=False), root=str(tmp_path)).index("nvidia") == {}


def test_interrupted(tmp_path):
    machine = FakeMachine(tmp_path, version="535.261.03-1")
    subject = apt.Apt(machine, root=str(tmp_path))
    assert subject.find_interrupted(subject.list_installed()) == ([], [])
    machine.packages["nvidia-smi"]["status"] = "iF"
    (tmp_path / "var/lib/dpkg/updates/0001").write_text("x", encoding="utf-8")
    (tmp_path / "var/lib/dpkg/updates/tmp.i").write_text("", encoding="utf-8")
    assert subject.find_interrupted(subject.list_installed()) == (["0001"], ["nvidia-smi"])


def test_a_half_installed_driver_package_is_unpacked_again_from_the_nodes_own_archives(tmp_path):
    cache, told = tmp_path / "var/cache/apt/archives", []
    cache.mkdir(parents=True)
    (cache / "nvidia-smi_1%3a2-1_amd64.deb").touch()
    states = {"nvidia-smi": "iHR", "libcuda1": "iHR", "nvidia-alternative": "iF ", "bash": "iHR"}

    def runner(argv, timeout):
        told.append(argv)
        return 0, "".join("%s|%s|amd64|1:2-1|x|1\n" % item[::-1] for item in states.items()), ""

    subject = apt.Apt(runner, root=str(tmp_path))
    assert subject.configure(["nvidia-smi", "libcuda1", "nvidia-alternative"]) is None
    unpack, configure = [argv for argv in told if argv[0] == "dpkg"]
    assert unpack[-2:] == ["--unpack", str(cache / "nvidia-smi_1%3a2-1_amd64.deb")] and configure[-2:] == [
        "--configure",
        "-a",
    ]
    told.clear()
    subject.configure([])
    assert not [argv for argv in told if "--unpack" in argv]


def test_a_download_leaves_out_what_the_nodes_store_has(tmp_path):
    told = []
    subject = apt.Apt(lambda argv, timeout: told.append(argv) or (0, "", ""), root=str(tmp_path))
    subject.kept = {("nvidia-smi", "1"): {"path": "/kept/nvidia-smi.deb"}}
    subject.there = {"nvidia-smi": {"version": "1"}}
    words = subject.arguments({"nvidia-smi": "1", "libcuda1": "2"})
    subject.to_download(words, subject.download_options([]))
    subject.download(words, subject.download_options([]))
    assert all("libcuda1=2" in argv and "nvidia-smi=1" not in argv for argv in told) and len(told) == 2
    subject.simulate(words)
    assert "nvidia-smi=1" in told[-1]


def test_filesystems_take_the_nearest_directory(tmp_path):
    found = apt.Apt(None, root=str(tmp_path)).filesystems(["/var/lib/dkms", "/"])
    assert found["/var/lib/dkms"]["device"] == found["/"]["device"] == tmp_path.stat().st_dev
    assert found["/"]["free"] > 0


def test_changes_never_ask_and_wait_for_the_lock(tmp_path):
    machine = FakeMachine(tmp_path)
    apt.Apt(machine, root=str(tmp_path), lock_timeout_s=42).change(["nvidia-smi=535.261.03-1"])
    command = machine.log[0]
    assert {"-y", "DPkg::Lock::Timeout=42", "Dpkg::Options::=--force-confold"} <= set(command)
    assert {"--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"} <= set(command)


def test_the_shim_builds_nothing_and_passes_the_rest(tmp_path):
    import subprocess

    subject = apt.Apt(None, root=str(tmp_path))
    options = subject.deferred_dkms_options()
    assert options[1].startswith("DPkg::Path=/var/lib/gpufleet/dkms-deferred:")
    shim = tmp_path / "var/lib/gpufleet/dkms-deferred/dkms"
    real = tmp_path / "real"
    real.write_text("#!/bin/sh\necho real \"$@\"; exit 3\n", encoding="utf-8")
    real.chmod(0o755)
    shim.write_text(shim.read_text(encoding="utf-8").replace("/usr/sbin/dkms", str(real)), encoding="utf-8")
    for action in ("build", "install", "autoinstall"):
        done = subprocess.run([str(shim), action, "-m", "x"], capture_output=True, text=True, timeout=600, check=False)
        assert (done.returncode, "real" in done.stdout) == (0, False)
    done = subprocess.run([str(shim), "remove", "-m", "x"], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (3, "real remove -m x\n")


def test_write_atomically_says_whether_it_wrote(tmp_path):
    path = tmp_path / "file"
    assert files.write_atomically(str(path), "a\n")
    assert not files.write_atomically(str(path), "a\n")
    assert path.stat().st_mode & 0o777 == 0o644
    assert files.write_atomically(str(path), "b\n")
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_installed_fixture_is_coherent():
    assert set(have["version"] for name, have in installed("535.261.03-1").items() if name in SET) == {"535.261.03-1"}


def test_what_apt_cannot_satisfy_is_told_line_by_line():
    """As recorded on Debian 12 for the obvious packages of an older version."""
    said = fixture("unmet_dependencies.txt")
    assert apt.parse_unmet(said) == [
        "libcuda1 : Depends: nvidia-alternative (= 535.216.03-2~bpo12+1) but 535.309.01-0+deb12u1 is to be installed",
        (
            "libcuda1 : Depends: libnvidia-ptxjitcompiler1 (= 535.216.03-2~bpo12+1) but 535.309.01-0+deb12u1 "
            "is to be installed"
        ),
        (
            "libcuda1 : Depends: libnvidia-pkcs11-openssl3 (= 535.216.03-2~bpo12+1) but 535.309.01-0+deb12u1 "
            "is to be installed"
        ),
        (
            "libnvidia-ml1 : Depends: nvidia-alternative (= 535.216.03-2~bpo12+1) but 535.309.01-0+deb12u1 "
            "is to be installed"
        ),
        "nvidia-smi : Depends: nvidia-alternative (= 535.216.03-2~bpo12+1) but 535.309.01-0+deb12u1 is to be installed",
    ]
    assert apt.parse_unmet(fixture("simulate_upgrade.txt")) == []


@pytest.mark.parametrize("rc,killed", [(-9, True), (137, True), (100, False), (124, False)])
def test_a_command_that_was_killed_is_told_from_one_that_failed(rc, killed):
    text = str(apt.AptError("apt-get install", rc, "", "E: no"))
    assert ("was killed" in text) is killed and ("exit status %s" % rc in text) is not killed
