# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot of a simulated node does: the kernel it chooses, the modules it loads, the files it shows."""

from __future__ import annotations

import os
import sys

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.sim import simnode

OLD, RELEASE = simnode.OLD, simnode.RELEASE
GRUB = """
if [ -s $prefix/grubenv ]; then
  load_env
fi
set default="%s"
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-1' {
    echo    'Loading Linux 6.1.0-50-amd64 ...'
    linux    /boot/vmlinuz-6.1.0-50-amd64 root=UUID=1 ro  quiet
    initrd    /boot/initrd.img-6.1.0-50-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-1' {
    menuentry 'Debian GNU/Linux, with Linux 6.1.0-50-amd64' --class debian $menuentry_id_option \
'gnulinux-6.1.0-50-amd64-advanced-1' {
        if [ x${feature_platform_search_hint} = xy ]; then
          echo hint
        fi
        linux    /boot/vmlinuz-6.1.0-50-amd64 root=UUID=1 ro  quiet
    }
    menuentry 'Debian GNU/Linux, with Linux 6.1.0-9-amd64' --class debian $menuentry_id_option \
'gnulinux-6.1.0-9-amd64-advanced-1' {
        linux    /boot/vmlinuz-6.1.0-9-amd64 root=UUID=1 ro  quiet
    }
}
menuentry "Other" {
    linux /vmlinuz-5.10.0-1-amd64 root=UUID=1
}
"""


def booted_release(node):
    node.sim("boot")
    return node.read("run/gpusim/release").strip()


@pytest.mark.parametrize(
    "kernels, newest",
    [
        (["6.1.0-9-amd64", "6.1.0-50-amd64"], "6.1.0-50-amd64"),
        (["6.1.0-50-amd64", "6.12.1-1-amd64", "6.2.0-99-amd64"], "6.12.1-1-amd64"),
        (["6.1.0-9-amd64", "6.1.0-9-cloud-amd64"], "6.1.0-9-cloud-amd64"),
    ],
)
def test_without_grub_the_newest_kernel_boots(node, kernels, newest):
    for kernel in kernels:
        node.kernel(kernel)
    assert booted_release(node) == newest


@pytest.mark.parametrize(
    "default, environment, expected",
    [
        ("0", "", "6.1.0-50-amd64"),
        ("2", "", "5.10.0-1-amd64"),
        ("1>1", "", "6.1.0-9-amd64"),
        ("Other", "", "5.10.0-1-amd64"),
        ("gnulinux-advanced-1>gnulinux-6.1.0-9-amd64-advanced-1", "", "6.1.0-9-amd64"),
        ("Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 6.1.0-9-amd64", "", "6.1.0-9-amd64"),
        ("${saved_entry}", "saved_entry=gnulinux-6.1.0-9-amd64-advanced-1\n", "6.1.0-9-amd64"),
        ("${saved_entry}", "", "6.1.0-50-amd64"),
        ("0", "next_entry=2\n", "5.10.0-1-amd64"),
        ("no such entry", "", "6.1.0-50-amd64"),
    ],
)
def test_grub_decides(node, default, environment, expected):
    for kernel in ("6.1.0-50-amd64", "6.1.0-9-amd64", "5.10.0-1-amd64"):
        node.kernel(kernel)
    node.write("boot/grub/grub.cfg", GRUB % default)
    node.write("boot/grub/grubenv", "# GRUB Environment Block\n" + environment + "#####")
    assert booted_release(node) == expected


@pytest.mark.parametrize(
    ("entry", "expected"), [("0123-5.14.0-503.x86_64", "5.14.0-503.x86_64"), ("no-such-entry", "5.14.0-570.x86_64")]
)
def test_boot_loader_entry_decides(node, entry, expected):
    for kernel in ("5.14.0-570.x86_64", "5.14.0-503.x86_64"):
        node.kernel(kernel)
        node.write(f"boot/loader/entries/0123-{kernel}.conf", f"title x\nlinux /vmlinuz-{kernel}\n")
    node.write("boot/grub2/grubenv", f"# GRUB Environment Block\nsaved_entry={entry}\n")
    assert booted_release(node) == expected


def test_no_kernel_at_all(node):
    done = node.sim("boot")
    assert "no kernel image" in done.stderr
    assert not (node.root / "run/gpusim/release").exists()


def test_modules_of_the_kernel_that_boots(node):
    for kernel in ("6.1.0-9-amd64", RELEASE):
        node.kernel(kernel)
    node.module(release="6.1.0-9-amd64")
    node.library(OLD)
    node.sim("boot")
    assert node.init_rc() == 9
    (node.root / "boot" / ("vmlinuz-" + RELEASE)).unlink()
    node.sim("boot")
    assert node.init_rc() == 0


@pytest.mark.parametrize(
    "text", ["blacklist nvidia-current\n", "install nvidia /bin/false\n", "# x\n  blacklist   nvidia\n"]
)
def test_a_blacklisted_module_is_not_loaded(node, text):
    node.kernel()
    node.module(names=("nvidia",))
    node.write("etc/modprobe.d/own.conf", text)
    assert "blacklisted" in node.sim("boot").stderr
    assert node.tool("lsmod").stdout.count("\n") == 1


def test_nouveau_takes_the_gpus_until_it_is_blacklisted(node):
    node.sim("inject", "nouveau")
    node.kernel()
    node.module()
    node.library(OLD)
    node.sim("boot")
    assert (node.root / "run/gpusim/sys/module/nouveau").is_dir()
    assert node.init_rc() == 9
    done = node.tool("modprobe", "nvidia", check=False)
    assert (done.returncode, done.stderr) == (1, "modprobe: ERROR: could not insert 'nvidia': No such device\n")
    node.write("etc/modprobe.d/nouveau.conf", "blacklist nouveau\n")
    node.sim("boot")
    assert node.init_rc() == 0
    assert not (node.root / "run/gpusim/sys/module/nouveau").exists()


def test_the_bus(booted):
    base = booted.root / "run/gpusim/sys/bus/pci/devices"
    assert len(list(base.iterdir())) == 8 + 4
    device = base / "0000:9d:00.0"
    shown = {
        name: (device / name).read_text().strip()
        for name in ("vendor", "device", "class", "numa_node", "current_link_speed", "current_link_width", "gpusim")
    }
    assert shown == {
        "vendor": "0x10de",
        "device": "0x2330",
        "class": "0x030200",
        "numa_node": "1",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "gpusim": "simulated device, no hardware",
    }
    assert (device / "config").read_bytes()[:4] == bytes([0xDE, 0x10, 0x30, 0x23])
    assert (device / "driver").resolve().name == "nvidia"
    assert (base / "0000:05:00.0" / "class").read_text() == "0x068000\n"
    booted.tool("modprobe", "-r", "nvidia_uvm", "nvidia_drm")
    assert not (device / "driver").exists()


def test_files_say_that_they_are_simulated(booted):
    assert "simulated" in booted.read("run/gpusim/proc-driver/nvidia/version")
    assert "simulated" in booted.read("run/gpusim/sys/module/nvidia/gpusim")
    assert "simulated" in booted.sim("kmsg").stdout
    assert "simulated" in booted.sim("status").stdout


def test_a_node_that_nobody_described(node):
    node.prepare()
    (node.root / "etc/gpusim/node.ini").unlink()
    done = node.sim("boot", check=False)
    assert done.returncode == 2
    assert "run gpusim init" in done.stderr


def test_a_description_that_was_written_anew_is_read_anew(node):
    """One process looks at it for every value, and reads the file again only when it is another one."""
    node.prepare()
    script = (
        "import pathlib, sys\nsys.path.insert(0, sys.argv[1])\nfrom gpusim import state\n"
        "file = pathlib.Path(state.path(state.NODE))\n"
        "text = file.read_text()\nprint(state.gpu_count())\n"
        "state.write_text(state.NODE, text.replace('gpus = 8', 'gpus = 2'))\nprint(state.gpu_count())\n"
        "file.unlink()\nprint(state.gpu_count())\n"
    )
    done = simnode.run([sys.executable, "-c", script, str(simnode.SIM)], env=node.environment, check=True)
    assert done.stdout.split() == ["8", "2", "0"]


def run(command, build, root=None, text=None):
    environment = dict(os.environ, LD_PRELOAD=str(build / "libgpusim-uname.so"))
    environment.pop("GPUSIM_ROOT", None)
    if root is not None:
        environment["GPUSIM_ROOT"] = str(root)
    if text is not None:
        place = root / "run/gpusim"
        place.mkdir(parents=True)
        (place / "release").write_text(text)
    return simnode.run(command, env=environment, check=True).stdout


def test_the_release_of_the_file(tmp_path, build):
    assert run(["uname", "-r"], build, tmp_path, "6.1.0-50-amd64\n") == "6.1.0-50-amd64\n"


def test_programs_that_ask_otherwise(tmp_path, build):
    code = "import os, platform; print(os.uname().release, platform.release())"
    assert run([sys.executable, "-c", code], build, tmp_path, "1.2.3-sim\n") == "1.2.3-sim 1.2.3-sim\n"


@pytest.mark.parametrize("text", [None, ""])
def test_without_a_release_it_is_the_real_one(tmp_path, build, text):
    assert run(["uname", "-r"], build, tmp_path, text) == os.uname().release + "\n"
