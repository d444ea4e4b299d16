# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installing the simulator into the root of a machine."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode


def install(root, cache):
    """As root, or as root of a user namespace: ldconfig enters the directory it works on."""
    command = [str(simnode.SIM / "install.sh"), str(root)]
    if os.geteuid() != 0:
        command = ["unshare", "--map-root-user"] + command
    return simnode.run(command, env=dict(os.environ, GPUFLEET_CACHE=str(cache)))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def installed(tmp_path_factory, cache):
    """One root for all tests: each looks at another part of it."""
    root = tmp_path_factory.mktemp("root")
    for folder in ("etc", "usr/bin", "var/lib/dpkg", "var/cache/ldconfig"):
        (root / folder).mkdir(parents=True)
    (root / "etc/ld.so.conf").write_text("/usr/local/lib\n")
    done = install(root, cache)
    assert done.returncode == 0, done.stderr
    return root


def test_what_is_there(installed):
    for name in (
        "usr/local/sbin/gpusim",
        "usr/local/sbin/modprobe",
        "usr/local/sbin/rmmod",
        "usr/local/bin/lsmod",
        "usr/local/bin/nvidia-smi",
        "usr/local/bin/nv-fabricmanager",
        "usr/bin/nvidia-persistenced",
    ):
        assert os.access(str(installed / name), os.X_OK), name
    assert (installed / "usr/local/lib/libnvidia-ml.so.1").read_bytes() == (
        installed / "usr/local/lib/gpusim/libnvidia-ml.so.1"
    ).read_bytes()
    assert (installed / "etc/ld.so.preload").read_text() == "/usr/local/lib/gpusim/libgpusim-uname.so\n"
    assert (installed / "usr/local/lib/gpusim/libgpusim-uname.so").is_file()
    unit = installed / "etc/systemd/system/sysinit.target.wants/gpusim-boot.service"
    assert (unit.parent / os.readlink(str(unit))).is_file()


def test_the_fabric_manager_is_of_the_drivers_version(installed):
    def run(*words):
        return simnode.run(
            [str(installed / "usr/local/bin/nv-fabricmanager")] + list(words),
            env=dict(os.environ, GPUSIM_ROOT=str(installed)),
        )

    assert run("--version").returncode == 1, "no driver is installed"
    library = installed / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.216.03"
    library.parent.mkdir(parents=True)
    library.write_text("")
    assert run("--version").stdout == "Fabric Manager version is : 535.216.03\n"
    assert run().returncode == 1, "no driver is loaded"
    loaded = installed / "sys/module/nvidia/version"
    loaded.parent.mkdir(parents=True)
    loaded.write_text("535.261.03\n")
    assert run().returncode == 1 and "must be of one version" in run().stderr
    (installed / "etc/gpusim/fabricmanager-version").write_text("550.54.15\n")
    assert run("--version").stdout == "Fabric Manager version is : 550.54.15\n"


def test_the_linker_finds_the_library(installed):
    cached = simnode.run(["ldconfig", "-p", "-C", str(installed / "etc/ld.so.cache")], check=True).stdout
    assert "libnvidia-ml.so.1 (libc6,x86-64) => /usr/local/lib/libnvidia-ml.so.1" in cached


def test_the_packages_daemon_is_diverted(installed):
    assert (
        "/usr/bin/nvidia-persistenced\n/usr/bin/nvidia-persistenced.real\n"
        in (installed / "var/lib/dpkg/diversions").read_text()
    )


def test_the_installed_commands_work(installed):
    environment = dict(os.environ, GPUSIM_ROOT=str(installed))
    main = str(installed / "usr/local/lib/gpusim/main.py")
    command = ["python3", "-I", "-B", main, "gpusim"]
    simnode.run([*command, "init", "--model", "a100-sxm", "--node", "x"], env=environment, check=True)
    status = simnode.run([*command, "status"], env=environment, check=True)
    assert "4 x NVIDIA A100-SXM4-40GB" in status.stdout
    assert main[len(str(installed)) :] in (installed / "usr/local/sbin/gpusim").read_text()


def test_twice_is_as_good_as_once(installed, cache):
    def listing():
        return sorted(str(path.relative_to(installed)) for path in installed.rglob("*"))

    before = listing()
    assert install(installed, cache).returncode == 0
    assert listing() == before
    assert (installed / "etc/ld.so.preload").read_text().count("\n") == 1
    assert (installed / "var/lib/dpkg/diversions").read_text().count("nvidia-persistenced.real") == 1
    assert len(list((cache / "sim").iterdir())) == 1


def test_it_compiles_once_and_never_touches_the_running_system(cache):
    done = install("/", cache)
    assert done.returncode == 2
    assert "refusing" in done.stderr
    assert install("/no/such/directory", cache).returncode == 2
