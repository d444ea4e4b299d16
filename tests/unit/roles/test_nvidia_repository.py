# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_repository writes on which system from which source, and that the real apt and dnf take it."""

from __future__ import annotations

import configparser
import re
import shutil
import urllib.parse

import pytest
import yaml

pytest.importorskip("ansible.template", reason="the variables of a role are templates")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import driver_tables
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import ROOT, Role

pytestmark = pytest.mark.cores

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/"
FACTS = {
    "debian 12": ("Debian", "12.11", "bookworm"),
    "debian 13": ("Debian", "13.1", "trixie"),
    "ubuntu 22.04": ("Ubuntu", "22.04", "jammy"),
    "ubuntu 24.04": ("Ubuntu", "24.04", "noble"),
    "redhat 9": ("RedHat", "9.6", "Plow"),
    "redhat 10": ("RedHat", "10.1", "Coughlan"),
    "rocky 9": ("Rocky", "9.6", "Blue Onyx"),
    "rocky 10": ("Rocky", "10.0", "Red Quartz"),
}


def facts(system, machine="x86_64"):
    name, version, release = FACTS[system]
    return {
        "distribution": name,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "distribution_release": release,
        "architecture": machine,
    }


def role(system, known=(), texts="", machine="x86_64", **given):
    """The role's variables on a system; KNOWN are lines of what apt has, TEXTS the files that say so."""
    part = Role("nvidia_repository", ansible_facts=facts(system, machine))["__nvidia_repository_systems"][system]
    return Role(
        "nvidia_repository",
        ("main", part),
        ansible_facts=facts(system, machine),
        __nvidia_repository_targets={"stdout_lines": list(known)},
        __nvidia_repository_texts={"stdout": texts, "stdout_lines": texts.splitlines()},
        **given,
    )


def only_key(found):
    keys = list(found["__nvidia_repository_keys"])
    assert len(keys) == 1
    return keys[0]


def rendered(found):
    return found.render(found["__nvidia_repository_template"])


def stanzas(text):
    """The entries of a deb822 file, as a reader that is not ours sees them: ``{suite: (uri, components, keyring)}``."""
    entries = {}
    for block in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n", "", text)):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line.strip())
        if fields:
            assert fields.pop("Types") == "deb"
            entries[fields["Suites"]] = (fields["URIs"], fields.get("Components", ""), fields.get("Signed-By", ""))
    return entries


def repositories_of(text):
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(text)
    return dict((name, dict(parsed[name])) for name in parsed.sections())


def test_the_role_knows_the_systems_that_the_resolver_knows():
    """And the same source is the default one."""
    systems = Role("nvidia_repository", ansible_facts=facts("debian 12"))["__nvidia_repository_systems"]
    names = dict(
        (("rhel" if system.split()[0] == "redhat" else system.split()[0], system.split()[1]), system)
        for system in systems
    )
    assert set(names) == set(driver_tables.SYSTEMS) and set(systems) == set(FACTS)
    for key, system in names.items():
        found = role(system)
        assert found["__nvidia_repository_system"] == system
        assert found["__nvidia_repository_sources"] == list(driver_tables.SYSTEMS[key])
        assert found["__nvidia_repository_source"] == next(iter(driver_tables.SYSTEMS[key]))


def test_the_source_of_the_driver_is_the_source_of_the_repositories():
    assert role("debian 12", nvidia_driver_source="cuda")["__nvidia_repository_source"] == "cuda"
    assert role("debian 12", nvidia_driver_source=None)["__nvidia_repository_source"] == "distribution"


DEBIAN_KEYS, UBUNTU_KEYS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
)
KEY = "/etc/apt/keyrings/gpufleet-nvidia-cuda.gpg"
FREE, UBUNTU = "contrib non-free non-free-firmware", "restricted multiverse"


def debian(release, components, backports=True):
    found = dict(
        ("%s%s" % (release, part), ("http://deb.debian.org/debian", components, DEBIAN_KEYS))
        for part in ("", "-updates")
    )
    found["%s-security" % release] = ("http://deb.debian.org/debian-security", components, DEBIAN_KEYS)
    if backports:
        found["%s-backports" % release] = ("http://deb.debian.org/debian", "main " + components, DEBIAN_KEYS)
    return found


def ubuntu(release):
    found = dict(
        ("%s%s" % (release, part), ("http://archive.ubuntu.com/ubuntu", UBUNTU, UBUNTU_KEYS))
        for part in ("", "-updates")
    )
    found["%s-security" % release] = ("http://security.ubuntu.com/ubuntu", UBUNTU, UBUNTU_KEYS)
    return found


@pytest.mark.parametrize(
    "system,source,expected",
    [
        ("debian 12", "", debian("bookworm", FREE)),
        ("debian 13", "distribution", debian("trixie", FREE)),
        (
            "debian 12",
            "cuda",
            dict(debian("bookworm", "contrib", False), **{"/": (CUDA + "debian12/x86_64/", "", KEY)}),
        ),
        ("debian 13", "cuda", dict(debian("trixie", "contrib", False), **{"/": (CUDA + "debian13/x86_64/", "", KEY)})),
        ("ubuntu 22.04", "", ubuntu("jammy")),
        ("ubuntu 24.04", "distribution", ubuntu("noble")),
        ("ubuntu 22.04", "cuda", {"/": (CUDA + "ubuntu2204/x86_64/", "", KEY)}),
        ("ubuntu 24.04", "cuda", {"/": (CUDA + "ubuntu2404/x86_64/", "", KEY)}),
    ],
)
def test_what_an_empty_debian_or_ubuntu_gets(system, source, expected):
    assert stanzas(rendered(role(system, nvidia_repository_source=source))) == expected


@pytest.mark.parametrize(
    "system,name", [("redhat 9", "rhel9"), ("redhat 10", "rhel10"), ("rocky 9", "rhel9"), ("rocky 10", "rhel10")]
)
def test_what_an_empty_redhat_gets(system, name):
    found = repositories_of(rendered(role(system)))
    assert found == {
        "gpufleet-nvidia-cuda": {
            "name": "NVIDIA's CUDA repository",
            "baseurl": CUDA + name + "/x86_64",
            "enabled": "1",
            "gpgcheck": "1",
            "repo_gpgcheck": "0",
            "gpgkey": "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda",
            "skip_if_unavailable": "0",
        }
    }
    both = repositories_of(rendered(role(system, nvidia_repository_epel=True, nvidia_repository_metadata_signed=True)))
    assert both["gpufleet-nvidia-cuda"]["repo_gpgcheck"] == "1" and both["gpufleet-epel"]["gpgcheck"] == "1"
    assert (
        both["gpufleet-epel"]["baseurl"]
        == "https://dl.fedoraproject.org/pub/epel/%s/Everything/x86_64" % system.split()[1]
    )
    assert both["gpufleet-epel"]["gpgkey"] == "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-epel"
    assert "sbsa" in rendered(role(system, machine="aarch64"))


def test_what_ubuntu_has_already_is_not_configured_twice():
    uri = "http://de.archive.ubuntu.com/ubuntu/"
    known = [
        "%s|noble%s|%s|/etc/apt/sources.list.d/ubuntu.sources:1" % (uri, part, component)
        for part in ("", "-updates", "-security")
        for component in ("main", "restricted", "universe", "multiverse")
    ]
    assert stanzas(rendered(role("ubuntu 24.04", known))) == {}
    some = [line for line in known if "|noble-updates|multiverse" not in line]
    texts = (
        "\nTypes: deb\nURIs: %s\nSuites: noble noble-updates\nComponents: main\nSigned-By: /usr/share/keyrings/x.gpg\n"
        % uri
    )
    assert stanzas(rendered(role("ubuntu 24.04", some, texts))) == {
        "noble-updates": ("http://de.archive.ubuntu.com/ubuntu", "multiverse", "/usr/share/keyrings/x.gpg")
    }
    # a mirror that was named has to have it itself
    named = stanzas(
        rendered(
            role(
                "ubuntu 24.04",
                known,
                nvidia_repository_uri="file:/srv/ubuntu",
                nvidia_repository_signed_by="/srv/key.gpg",
            )
        )
    )
    assert named == {
        "noble": ("file:/srv/ubuntu", UBUNTU, "/srv/key.gpg"),
        "noble-updates": ("file:/srv/ubuntu", UBUNTU, "/srv/key.gpg"),
    }
    again = [line.replace(uri, "file:/srv/ubuntu/") for line in known]
    assert stanzas(rendered(role("ubuntu 24.04", again, nvidia_repository_uri="file:/srv/ubuntu"))) == {}


OLD = "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"


@pytest.mark.parametrize(
    "system,url,fingerprint",
    [
        ("debian 12", CUDA + "debian12/x86_64/3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("debian 13", CUDA + "debian13/x86_64/8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
        ("ubuntu 22.04", CUDA + "ubuntu2204/x86_64/3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("ubuntu 24.04", CUDA + "ubuntu2404/x86_64/3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("rocky 9", CUDA + "rhel9/x86_64/D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
        ("rocky 10", CUDA + "rhel10/x86_64/CDF6BA43.pub", ""),
    ],
)
def test_the_key_of_each_system(system, url, fingerprint):
    key = only_key(role(system, nvidia_repository_source="cuda"))
    assert (key["url"], key["fingerprint"], key["sha256"], key["file"]) == (url, fingerprint, "", "")
    assert (
        fingerprint == ""
        or re.fullmatch("[0-9A-F]{40}", fingerprint)
        and fingerprint.endswith(url.rsplit("/", 1)[1][:-4].upper())
    )
    assert role(system)["__nvidia_repository_old_key"] == OLD != fingerprint


def test_every_place_of_a_mirror_is_a_variable():
    mirror = dict(nvidia_repository_source="cuda", nvidia_repository_cuda_uri="file:///srv/cuda/")
    key = only_key(role("debian 12", **mirror))
    assert (key["url"], key["fingerprint"]) == (
        "file:///srv/cuda/3bf863cc.pub",
        "EB693B3035CD5710E231E123A4B469963BF863CC",
    )
    key = only_key(
        role("debian 12", nvidia_repository_key_url="https://m/k.asc", nvidia_repository_key_sha256="a" * 64, **mirror)
    )
    assert (key["url"], key["fingerprint"], key["sha256"]) == ("https://m/k.asc", "", "a" * 64)
    key = only_key(
        role("debian 12", nvidia_repository_key_fingerprint="B" * 40, nvidia_repository_key_sha256="a" * 64, **mirror)
    )
    assert (key["fingerprint"], key["sha256"]) == ("B" * 40, "a" * 64)
    places = dict(
        mirror,
        nvidia_repository_uri="file:/srv/debian",
        nvidia_repository_security_uri="file:/srv/security",
        nvidia_repository_signed_by="/srv/debian.gpg",
    )
    text = rendered(role("debian 12", **places))
    assert "http" not in text
    assert set(uri for uri, components, key in stanzas(text).values()) == {
        "file:///srv/cuda/",
        "file:/srv/debian",
        "file:/srv/security",
    }
    assert set(stanzas(rendered(role("debian 12", nvidia_repository_cuda_components=False, **mirror)))) == {"/"}
    epel = role(
        "rocky 10",
        nvidia_repository_cuda_uri="file:///srv/cuda",
        nvidia_repository_epel=True,
        nvidia_repository_epel_uri="file:///srv/epel",
        nvidia_repository_epel_key_url="file:///srv/epel.asc",
        nvidia_repository_epel_key_fingerprint="C" * 40,
    )
    assert "http" not in rendered(epel)
    assert [(key["url"], key["fingerprint"]) for key in epel["__nvidia_repository_keys"]] == [
        ("file:///srv/cuda/CDF6BA43.pub", ""),
        ("file:///srv/epel.asc", "C" * 40),
    ]


def test_the_distributions_own_packages_need_no_key_of_ours():
    assert role("debian 12")["__nvidia_repository_keys"] == role("ubuntu 24.04")["__nvidia_repository_keys"] == []


@pytest.mark.parametrize(
    "system,given,name,command",
    [
        ("rocky 9", {}, "crb", ["dnf", "config-manager", "--set-enabled", "crb"]),
        (
            "redhat 10",
            {},
            "codeready-builder-for-rhel-10-x86_64-rpms",
            ["subscription-manager", "repos", "--enable", "codeready-builder-for-rhel-10-x86_64-rpms"],
        ),
        (
            "redhat 9",
            {"nvidia_repository_crb_id": "our-crb"},
            "our-crb",
            ["dnf", "config-manager", "--set-enabled", "our-crb"],
        ),
    ],
)
def test_the_repository_of_build_dependencies(system, given, name, command):
    found = role(system, **given)
    assert (found["__nvidia_repository_crb"], found["__nvidia_repository_crb_command"]) == (name, command)


KNOWN = "%s|/||%s:1"


@pytest.mark.parametrize(
    "source,uri,known,others,movable",
    [
        ("cuda", "", [], [], []),
        (
            "cuda",
            "",
            [KNOWN % (CUDA + "debian12/x86_64/", "/etc/apt/sources.list.d/cuda-debian12-x86_64.list")],
            ["cuda-debian12-x86_64.list"],
            True,
        ),
        ("cuda", "", [KNOWN % (CUDA + "debian11/x86_64/", "/etc/apt/sources.list.d/old.list")], ["old.list"], True),
        (
            "cuda",
            "http://m/cuda",
            [KNOWN % ("http://m/cuda", "/etc/apt/sources.list.d/m.sources")],
            ["m.sources"],
            True,
        ),
        ("cuda", "http://m/cuda", [KNOWN % ("http://m/cuda-other/", "/etc/apt/sources.list.d/m.sources")], [], []),
        ("cuda", "", [KNOWN % (CUDA + "debian12/x86_64/", "/etc/apt/sources.list.d/gpufleet-nvidia.sources")], [], []),
        ("cuda", "", [KNOWN % (CUDA + "debian12/x86_64/", "/etc/apt/sources.list")], ["/etc/apt/sources.list"], False),
        ("distribution", "", [KNOWN % (CUDA + "debian12/x86_64/", "/etc/apt/sources.list.d/cuda.list")], [], []),
    ],
)
def test_who_else_configures_the_repository(source, uri, known, others, movable):
    found = role("debian 12", known, nvidia_repository_source=source, nvidia_repository_cuda_uri=uri)
    expected = [name if name.startswith("/") else "/etc/apt/sources.list.d/" + name for name in others]
    assert found["__nvidia_repository_others"] == expected
    assert found["__nvidia_repository_movable"] == (expected if movable else [])


@pytest.mark.parametrize("uri", ["file:///srv/cuda", "file:/srv/cuda", "https://mirror.example/srv/cuda"])
def test_who_else_configures_it_on_redhat(tmp_path, uri):
    found = role("rocky 9", nvidia_repository_cuda_uri=uri)
    entry = "[%s]\nname=x\n%s=%s\n%s"
    for name, text in {
        "a.repo": entry % ("base", "baseurl", "http://rocky/", "")
        + entry % ("cuda", "baseurl", CUDA + "rhel9/x86_64", "enabled=1\n"),
        "b.repo": entry % ("cuda", "baseurl ", " " + CUDA + "rhel9/x86_64", "enabled = 0\n")
        + entry % ("base", "baseurl", "http://rocky/", ""),
        "c.repo": entry % ("cuda", "baseurl", uri.replace("file:/s", "file:///s"), ""),
        "d.repo": entry % ("x", "baseurl", "http://rocky", "enabled=0\n"),
        "e.repo": entry % ("cuda", "mirrorlist", CUDA + "rhel9", ""),
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [
        "awk",
        "-v",
        "uri=" + found["__nvidia_repository_cuda_place"],
        found["__nvidia_repository_rivals_program"],
    ]
    dummy, out, dummy = repositories.call(command + sorted(str(path) for path in tmp_path.iterdir()))
    assert [line.rsplit("/", 1)[1] for line in out.splitlines()] == ["a.repo", "c.repo", "e.repo"]


USER, PASSWORD = "mirror.user", "p@ss:w/rd%+x"
LOGIN = "%s:%s@" % (USER, urllib.parse.quote(PASSWORD, safe=""))
MIRROR = "https://" + LOGIN + "mirror.example:8443/"


def with_login(system):
    more = {"nvidia_repository_epel_uri": MIRROR + "epel", "nvidia_repository_epel": True}
    return role(
        system,
        nvidia_repository_source="cuda",
        nvidia_repository_cuda_uri=MIRROR + "cuda",
        nvidia_repository_uri=MIRROR + "system",
        nvidia_repository_security_uri=MIRROR + "security",
        **(more if system.startswith("rocky") else {}),
    )


@pytest.mark.parametrize("system", ["debian 12", "ubuntu 24.04"])
def test_login_of_a_mirror_is_in_a_file_of_root_alone(system):
    found = with_login(system)
    text, auth = rendered(found), found.render("nvidia.auth.j2")
    assert "@" not in text and "mirror.example:8443/cuda" in text
    entries = dict(re.findall(r"(?m)^machine (\S+) (login \S+ password \S+)$", auth))
    assert set(entries.values()) == {"login %s password %s" % (USER, PASSWORD)}
    assert "https://mirror.example:8443/cuda" in entries
    assert found["__nvidia_repository_has_login"] and not role(system)["__nvidia_repository_has_login"]
    assert "machine" not in role(system).render("nvidia.auth.j2")


def test_login_of_a_mirror_is_in_options_of_dnf():
    found = with_login("rocky 9")
    for entry in repositories_of(rendered(found)).values():
        assert "@" not in entry["baseurl"]
        assert (entry["username"], entry["password"]) == (USER, PASSWORD)
    assert found["__nvidia_repository_mode"] == "0600" and role("rocky 9")["__nvidia_repository_mode"] == "0644"
    assert "password" not in rendered(role("rocky 9"))


@pytest.mark.parametrize("name", ["nvidia_repository", "nvidia_container_toolkit"])
def test_tasks_that_have_a_login_show_nothing(name):
    """A loop shows its items, and a command its arguments, which other users of a node can read too."""
    secret = re.compile(
        r"__nvidia_(repository|container_toolkit)_(cuda_|epel_)?uri\b|__nvidia_repository_keys\b(?! \|)"
    )
    for path in sorted((ROOT / "roles" / name / "tasks").glob("*.yml")):
        for task in tasks_of(yaml.safe_load(path.read_text(encoding="utf-8"))):
            shown = {key: task.get(key) for key in ("loop", "ansible.builtin.command", "ansible.builtin.fail", "name")}
            assert not secret.search(str(shown)), (path.name, task["name"])
            template = task.get("ansible.builtin.template") or {}
            if "auth" in str(template.get("src")):
                assert template["mode"] == "0600" and task["no_log"] is True


def tasks_of(entries):
    for entry in entries:
        yield entry
        yield from tasks_of(entry.get("block", []) + entry.get("rescue", []))


@pytest.mark.parametrize(
    "known", [MIRROR + "cuda", "https://other:pw@mirror.example:8443/cuda", "https://mirror.example:8443/cuda/"]
)
def test_another_file_for_the_same_mirror_is_found_whatever_its_login(known):
    found = role(
        "debian 12",
        [KNOWN % (known, "/etc/apt/sources.list.d/m.sources")],
        nvidia_repository_source="cuda",
        nvidia_repository_cuda_uri=MIRROR + "cuda",
    )
    assert found["__nvidia_repository_others"] == ["/etc/apt/sources.list.d/m.sources"]


@pytest.mark.parametrize("login", ["u:a%20b@", "u:a%0ab@", "u:a/b@", "u%09:a@", "u:@", ":p@", "u@"])
def test_login_that_apt_cannot_have_is_refused(login):
    found = role(
        "debian 12", nvidia_repository_source="cuda", nvidia_repository_cuda_uri="https://%sm.example/x" % login
    )
    assert found["__nvidia_repository_bad_login"]
    assert not with_login("debian 12")["__nvidia_repository_bad_login"]


# --- the real package managers ----------------------------------------------------------------------------------------


@pytest.fixture(name="signer", scope="module")
def _signer():
    signer = repositories.Signer("mirror <mirror@localhost>")
    yield signer
    signer.close()


@pytest.mark.parametrize(
    "system,archive",
    [("debian 12", stubs.cuda_debian("580.95.05")), ("ubuntu 24.04", stubs.cuda_ubuntu("580", "580.95.05"))],
)
def test_the_real_apt_takes_it(tmp_path, signer, system, archive):
    """A mirror in files, signed by a key of its own, and no other source: the index is read, and the driver can be
    had.
    """
    machine = repositories.AptRoot(tmp_path, archive[:3])
    signer.sign_deb(machine.repository)
    key = machine.root / "key.gpg"
    found = role(
        system,
        nvidia_repository_source="cuda",
        nvidia_repository_cuda_uri="file:%s/" % machine.repository,
        nvidia_repository_cuda_components=False,
    )
    found.variables["__nvidia_repository_key_path"] = str(key)
    parts = machine.root / "etc/apt/sources.list.d"
    parts.mkdir()
    (parts / "gpufleet-nvidia.sources").write_text(rendered(found), encoding="utf-8")
    (machine.root / "etc/apt/sources.list").write_text("", encoding="utf-8")
    options = ["-o", "Dir::Etc::sourceparts=%s" % parts]
    shutil.rmtree(str(machine.root / "var/lib/apt/lists"))
    (machine.root / "var/lib/apt/lists/partial").mkdir(parents=True)

    rc, out, err = machine(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"] + options)
    assert rc != 0 and "NO_PUBKEY" in out + err, "without the key nothing is trusted"
    key.write_bytes(signer.key(False))
    rc, out, err = machine(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"] + options)
    assert rc == 0 and "W:" not in err, out + err
    rc, out, err = machine(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(SOURCESENTRY)", "Identifier: Packages"] + options
    )
    assert out.split() == ["file:%s/|%s/gpufleet-nvidia.sources:1" % (machine.repository, parts)]
    name, version = archive[0]["name"], archive[0]["version"]
    assert version in machine(["apt-cache", "policy", name] + options)[1]


@pytest.mark.parametrize("system", ["debian 12", "ubuntu 22.04"])
def test_the_real_apt_reads_what_the_distribution_gets(tmp_path, system):
    """And never having read an index from there: somebody else's file with the same entries leaves nothing to write."""
    machine = repositories.AptRoot(tmp_path, [stubs.package("a", "1")])
    parts = machine.root / "etc/apt/sources.list.d"
    parts.mkdir()
    place = parts / "somebody.sources"
    place.write_text(rendered(role(system)), encoding="utf-8")
    tasks = yaml.safe_load((ROOT / "roles/nvidia_repository/tasks/look_apt.yml").read_text(encoding="utf-8"))
    rc, out, err = machine(tasks[0]["ansible.builtin.command"]["argv"] + ["-o", "Dir::Etc::sourceparts=%s" % parts])
    assert rc == 0, err
    known = sorted(set(line for line in out.splitlines() if line.startswith("http")))
    assert all(line.rsplit("|", 1)[1].startswith(str(place) + ":") for line in known)
    assert len(known) == sum(
        len(components.split()) for uri, components, key in stanzas(place.read_text(encoding="utf-8")).values()
    )
    assert stanzas(rendered(role(system, known))) == {}


@pytest.mark.parametrize("scheme", ["file://", "file:"])
def test_the_real_dnf_takes_it(tmp_path, signer, scheme):
    """A mirror in files whose packages and index are signed, and no other repository."""
    machine = repositories.DnfRoot(tmp_path, stubs.EL_BASE + stubs.redhat("580.95.05")[:3])
    signer.sign_rpm(machine.repository)
    key = machine.root / "key"
    found = role(
        "rocky 9", nvidia_repository_cuda_uri=scheme + str(machine.repository), nvidia_repository_metadata_signed=True
    )
    found.variables["__nvidia_repository_key_path"] = str(key)
    (machine.root / "etc/yum.repos.d/stub.repo").unlink()
    (machine.root / "etc/yum.repos.d/gpufleet-nvidia.repo").write_text(rendered(found), encoding="utf-8")
    rc, out, err = machine(["dnf", "-q", "repolist", "--enabled"])
    assert rc == 0 and [line.split()[0] for line in out.splitlines()] == ["repo", "gpufleet-nvidia-cuda"], out + err
    asked = ["dnf", "-q", "-y", "makecache", "--refresh", "--repo=gpufleet-nvidia-cuda"]
    rc, out, err = machine(asked)
    assert rc != 0, "without the key nothing is trusted"
    key.write_bytes(signer.key())
    rc, out, err = machine(asked)
    assert rc == 0, out + err
    rc, out, err = machine(
        ["dnf", "-q", "repoquery", "--qf", "%{name}\n", "dkms", "nvidia-modprobe", "nothing-of-that-name"]
    )
    assert sorted(out.split()) == ["dkms", "nvidia-modprobe"], out + err
    # a package that nobody signed is refused even from an index that somebody did
    rc, out, err = machine(["dnf", "-q", "-y", "install", "nvidia-modprobe"])
    assert rc != 0 and "not signed" in out + err, out + err
