# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role nvidia_repository as a whole, with the real apt and dnf, on an /etc of its own in a mount namespace of its
own.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import urllib.parse

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import stub_packages as stubs
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMESPACE = ["unshare", "--mount", "--propagation", "private"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
FACTS = {
    "debian": {
        "distribution": "Debian",
        "distribution_version": "12.11",
        "distribution_major_version": "12",
        "distribution_release": "bookworm",
    },
    "rocky": {
        "distribution": "Rocky",
        "distribution_version": "9.6",
        "distribution_major_version": "9",
        "distribution_release": "Blue Onyx",
        "pkg_mgr": "dnf",
    },
}
PLACES = (
    "/etc",
    "/var/lib/apt",
    "/var/cache/apt",
    "/var/lib/rpm",
    "/var/lib/dnf",
    "/var/cache/dnf",
    "/var/log",
    "/usr/share/keyrings",
)
SOURCES, KEY = "etc/apt/sources.list.d/gpufleet-nvidia.sources", "etc/apt/keyrings/gpufleet-nvidia-cuda.gpg"


class Node:
    """What belongs to a node of these tests: its own /etc and package managers' state, bound over this machine's for
    one run.
    """

    def __init__(self, base, system):
        self.base, self.system = base, system
        simulated_node.whole_collection(collection.place(base / "collections"))
        for place in PLACES:
            (self.path(place)).mkdir(parents=True)
        shutil.rmtree(str(self.path("/etc")))
        shutil.copytree(
            "/etc",
            str(self.path("/etc")),
            symlinks=True,
            ignore=shutil.ignore_patterns("apt", "ssl", "dnf", "yum.repos.d"),
            dirs_exist_ok=True,
        )
        for name in (
            "apt/apt.conf.d",
            "apt/sources.list.d",
            "apt/keyrings",
            "apt/trusted.gpg.d",
            "dnf",
            "yum.repos.d",
            "pki/rpm-gpg",
        ):
            (self.path("/etc") / name).mkdir(parents=True)
        (self.path("/var/lib/apt") / "lists/partial").mkdir(parents=True)
        (self.path("/var/cache/apt") / "archives/partial").mkdir(parents=True)
        (self.path("/etc/apt") / "apt.conf.d/90test").write_text(
            'APT::Sandbox::User "root";\nAcquire::Retries "0";\n', encoding="utf-8"
        )
        (self.path("/etc/dnf") / "dnf.conf").write_text(
            "[main]\ngpgcheck=1\nmodule_platform_id=platform:el9\n", encoding="utf-8"
        )
        (self.path("/var/lib/rpm")).mkdir(exist_ok=True)

    def path(self, name):
        return self.base / "node" / name.lstrip("/")

    def files(self):
        """Every file of the configuration, with what is in it."""
        return dict(
            (str(path.relative_to(self.base / "node")), path.read_bytes())
            for part in ("etc/apt", "etc/yum.repos.d", "etc/pki/rpm-gpg")
            for path in sorted((self.base / "node" / part).rglob("*"))
            if path.is_file()
        )

    def run(self, *options, **variables):
        role = {"ansible.builtin.include_role": {"name": "gpufleet.lifecycle.nvidia_repository"}}
        return self.run_tasks([role], *options, **variables)

    def run_tasks(
        self, tasks, *options, role="nvidia_repository", places=PLACES, python=sys.executable, hidden=None, **variables
    ):
        """Run tasks of a role on the node, whose own PLACES and HIDDEN files are bound over this machine's."""
        facts = {"ansible.builtin.set_fact": dict(FACTS[self.system], architecture="x86_64", cacheable=True)}
        playbook = [{"hosts": "all", "gather_facts": False, "tasks": [facts, *tasks]}]
        (self.base / "play.yml").write_text(json.dumps(playbook), encoding="utf-8")
        mounts = ['mount --bind "%s" %s && ' % (self.path(place), place) for place in places if os.path.isdir(place)]
        mounts += ['mount --bind "%s" "%s" && ' % (other, name) for name, other in (hidden or {}).items()]
        before = [*NAMESPACE, "sh", "-c", "".join(mounts) + 'exec "$@"', "sh"]
        words = ["-i", "gpu-1,", "-c", "local", self.base / "play.yml", *options]
        words += ["-e", json.dumps(dict(variables, ansible_python_interpreter=python))]
        environ = simulated_node.environment(self.base, simulated_node.kept(role))
        return simulated_node.Result(simulated_node.ansible_playbook(ROOT, environ, *words, before=before))


@pytest.fixture(name="signers", scope="module")
def _signers():
    made = [repositories.Signer(name) for name in ("mirror <mirror@localhost>", "old <old@localhost>")]
    yield made
    for signer in made:
        signer.close()


@pytest.fixture(name="base")
def _base():
    """Short and readable by all: gpg has sockets in such places, and apt reads as a user of its own."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-role-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(str(base))


@pytest.fixture(name="mirror")
def _mirror(base, signers):
    """A mirror of the CUDA repository for Debian in files, with the key beside it."""
    directory = base / "mirror"
    repositories.build_debs(stubs.cuda_debian("580.95.05")[:2], directory)
    dummy, index, dummy = repositories.call(["apt-ftparchive", "packages", "."], cwd=str(directory))
    (directory / "Packages").write_text(index, encoding="utf-8")
    signers[0].sign_deb(directory)
    (directory / "3bf863cc.pub").write_bytes(signers[0].key())
    return directory


def cuda(mirror, signer, **more):
    return dict(
        nvidia_repository_source="cuda",
        nvidia_repository_cuda_uri="file:%s" % mirror,
        nvidia_repository_key_fingerprint=signer.fingerprint,
        nvidia_repository_cuda_components=False,
        **more,
    )


@pytest.mark.cores
def test_a_mirror_in_files_on_an_empty_debian(base, mirror, signers):
    """Foreseen, done, nothing left to do; and what was there under its name before, and the old key, have gone."""
    new, old = signers
    node = Node(base, "debian")
    trusted = node.path("/etc/apt/trusted.gpg.d")
    (trusted / "cuda.gpg").write_bytes(old.key(False))
    (trusted / "both.gpg").write_bytes(new.key(False) + old.key(False))
    # the old key of the test: nobody but NVIDIA has that of NVIDIA
    options = cuda(mirror, new, __nvidia_repository_old_key=old.fingerprint)
    before = node.files()

    foreseen = node.run("--check", **options)
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert node.files() == before
    done = node.run(**options)
    assert (done.rc, done.failed) == (0, 0), done.output
    assert foreseen.changed == done.changed == 3, "the key, the old key, the file"
    after = node.files()
    assert (
        repositories.read_fingerprints(after[KEY])
        == repositories.read_fingerprints(after["etc/apt/trusted.gpg.d/both.gpg"])
        == [new.fingerprint]
    )
    assert set(after) - set(before) == {SOURCES, KEY} and set(before) - set(after) == {"etc/apt/trusted.gpg.d/cuda.gpg"}
    assert any(path.name.endswith("_Packages") for path in (node.path("/var/lib/apt/lists")).iterdir())
    again = node.run(**options)
    assert (again.rc, again.changed) == (0, 0), again.output
    assert node.files() == after


@pytest.mark.cores
def test_another_key_than_the_expected_is_refused_and_nothing_is_left(base, mirror, signers):
    node = Node(base, "debian")
    before = node.files()
    result = node.run(**cuda(mirror, signers[1]))
    assert result.rc != 0 and node.files() == before
    for words in (
        "gpu-1: file:%s/3bf863cc.pub is not the expected key" % mirror,
        signers[0].fingerprint,
        signers[1].fingerprint,
        "Next step",
    ):
        assert words in result.words


def test_a_node_without_gpg(base, mirror, signers):
    """Check mode warns that nothing was compared and foresees the change; a run that cannot install gpg is refused.

    A file that does not run stands in for a missing gpg, which dpkg calls installed.
    """
    node = Node(base, "debian")
    hidden = base / "hidden"
    hidden.write_bytes(b"")
    before = node.files()
    gpg = shutil.which("gpg")
    foreseen = node.run("--check", hidden={gpg: hidden}, **cuda(mirror, signers[0]))
    assert (foreseen.rc, foreseen.failed) == (0, 0), foreseen.output
    assert "gpg is not installed on this node" in foreseen.words
    refused = node.run(hidden={gpg: hidden}, **cuda(mirror, signers[0]))
    assert refused.rc != 0 and "gpg" in refused.words and "was left as it was" in refused.words, refused.output
    assert node.files() == before


USER, PASSWORD = "mirror-user", "s3cr3t@pw:1/x"


@contextlib.contextmanager
def with_login(directory):
    """Serve a directory to whoever has the login; yield the address with it, and the paths that were served."""
    wanted, served = "Basic " + base64.b64encode(("%s:%s" % (USER, PASSWORD)).encode()).decode(), []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.headers.get("Authorization") == wanted:
                served.append(self.path)
                super().do_GET()
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *dummy):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(directory))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        login = "%s:%s@" % (USER, urllib.parse.quote(PASSWORD, safe=""))
        yield "http://%s127.0.0.1:%d" % (login, server.server_port), served
        server.shutdown()


def shows_no_password(output):
    return not [word for word in ("s3cr3t", urllib.parse.quote(PASSWORD, safe="")) if word in output]


def test_a_mirror_with_a_login_on_an_empty_debian(base, mirror, signers):
    """The password is in one file of root, and in no output of the role, whatever is asked to be shown."""
    node = Node(base, "debian")
    with with_login(mirror) as (address, served):
        options = dict(cuda(mirror, signers[0]), nvidia_repository_cuda_uri=address)
        done = node.run("-vvv", "--diff", **options)
        assert (done.rc, done.failed) == (0, 0), done.output
        assert any("InRelease" in path for path in served) and any(path.endswith(".pub") for path in served)
        again = node.run(**options)
        assert (again.rc, again.changed) == (0, 0), again.output
    holders = [name for name, data in node.files().items() if b"s3cr3t" in data]
    assert holders == ["etc/apt/auth.conf.d/gpufleet-nvidia.conf"]
    assert node.path(holders[0]).stat().st_mode & 0o777 == 0o600
    lines = done.output.splitlines()
    assert shows_no_password(done.output), [line[:300] for line in lines if not shows_no_password(line)][:3]
    gone = node.run("-vvv", **options)
    assert gone.rc != 0 and shows_no_password(gone.output)
    without = node.run(**cuda(mirror, signers[0]))
    assert without.rc == 0 and holders[0] not in node.files()


def test_a_mirror_with_a_login_on_an_empty_rocky(base, signers):
    node = Node(base, "rocky")
    directory = base / "mirror"
    repositories.build_rpms(stubs.redhat("580.95.05")[:2], directory)
    repositories.call(["createrepo_c", "--quiet", str(directory)])
    signers[0].sign_rpm(directory)
    (directory / "D42D0685.pub").write_bytes(signers[0].key())
    with with_login(directory) as (address, served):
        options = dict(
            nvidia_repository_cuda_uri=address,
            nvidia_repository_key_fingerprint=signers[0].fingerprint,
            nvidia_repository_require=[],
        )
        done = node.run("-vvv", "--diff", **options)
        assert (done.rc, done.failed) == (0, 0), done.output
        assert any("repomd.xml" in path for path in served)
    holders = [name for name, data in node.files().items() if b"s3cr3t" in data]
    assert holders == ["etc/yum.repos.d/gpufleet-nvidia.repo"]
    assert node.path(holders[0]).stat().st_mode & 0o777 == 0o600
    lines = done.output.splitlines()
    assert shows_no_password(done.output), [line[:300] for line in lines if not shows_no_password(line)][:3]


def test_other_files_for_the_same_repository(base, mirror, signers):
    """They are named and left alone; or renamed, and renamed back when the new ones cannot be read."""
    node = Node(base, "debian")
    other = node.path("/etc/apt/sources.list.d") / "cuda-debian12-x86_64.list"
    other.write_text(
        "deb https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /\n", encoding="utf-8"
    )
    before = node.files()
    refused = node.run(**cuda(mirror, signers[0]))
    assert refused.rc != 0 and node.files() == before
    assert "configured by /etc/apt/sources.list.d/cuda-debian12-x86_64.list already" in refused.words
    assert "nvidia_repository_disable_others" in refused.words

    (mirror / "InRelease").rename(mirror / "gone")
    failed = node.run(**cuda(mirror, signers[0], nvidia_repository_disable_others=True))
    assert failed.rc != 0 and node.files() == before, failed.output
    for words in ("file:%s" % mirror, "was removed again", "nvidia_repository_cuda_uri"):
        assert words in failed.words

    (mirror / "gone").rename(mirror / "InRelease")
    assert node.run(**cuda(mirror, signers[0], nvidia_repository_disable_others=True)).rc == 0
    assert sorted(path.name for path in other.parent.iterdir()) == [other.name + ".disabled", "gpufleet-nvidia.sources"]


@pytest.mark.cores
def test_a_mirror_in_files_on_an_empty_rocky(base, signers):
    """With the index signed too; what the driver needs beside it is named when nobody offers it."""
    node = Node(base, "rocky")
    directory = base / "mirror"
    repositories.build_rpms(stubs.redhat("580.95.05")[:2], directory)
    repositories.call(["createrepo_c", "--quiet", str(directory)])
    signers[0].sign_rpm(directory)
    (directory / "D42D0685.pub").write_bytes(signers[0].key())
    options = dict(
        nvidia_repository_cuda_uri="file://%s" % directory,
        nvidia_repository_key_fingerprint=signers[0].fingerprint,
        nvidia_repository_metadata_signed=True,
    )
    before = node.files()
    lacking = node.run(**options)
    assert lacking.rc != 0
    for words in (
        "no repository offers dkms",
        "gpufleet-nvidia-cuda",
        "nvidia_repository_epel",
        "as crb is not enabled",
    ):
        assert words in lacking.words
    after = node.files()
    assert set(after) - set(before) == {
        "etc/yum.repos.d/gpufleet-nvidia.repo",
        "etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda",
    }
    again = node.run(nvidia_repository_require=[], **options)
    assert (again.rc, again.changed) == (0, 0), again.output
