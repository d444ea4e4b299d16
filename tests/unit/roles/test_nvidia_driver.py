# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_driver asks of a node, and how nouveau is kept out of the initramfs on each system."""

from __future__ import annotations

import os

import pytest
import yaml

pytest.importorskip("ansible.template", reason="the variables of a role are templates")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._driver_packages_options import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._packages import repositories
from ansible_collections.gpufleet.lifecycle.tests.unit.roles.role_variables import ROOT, Role

pytestmark = pytest.mark.cores


def images(*names):
    return {"stdout_lines": ["/boot/" + name for name in names]}


@pytest.mark.parametrize(
    "found,command",
    [
        (images("initrd.img-6.1.0-56-amd64"), "update-initramfs -u -k all"),
        (images("initrd.img-6.8.0-149-generic", "initrd.img-6.8.0-148-generic"), "update-initramfs -u -k all"),
        (images("initramfs-5.14.0-503.22.1.el9_5.x86_64.img"), "dracut --force --regenerate-all"),
    ],
)
def test_what_writes_the_initramfs(found, command):
    assert Role("nvidia_driver", __nvidia_driver_initramfs=found)["__nvidia_driver_write_initramfs"] == command.split()


def test_which_initramfs_is_older_than_the_file(tmp_path):
    """Of every system, and of those only the ones that are written again: otherwise the role would never come to an
    end.
    """
    names = [
        "initrd.img-6.1.0-56-amd64",
        "initramfs-5.14.0-503.el9.x86_64.img",
        "initramfs-5.14.0-503.el9.x86_64kdump.img",
        "initramfs-0-rescue-0123456789abcdef.img",
        "vmlinuz-6.1.0-56-amd64",
        "initrd.img-new",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
        os.utime(str(tmp_path / name), (1000, 3000 if name.endswith("new") else 1000))
    written = tmp_path / "nouveau.conf"
    written.write_bytes(b"")
    os.utime(str(written), (2000, 2000))
    argv = Role("nvidia_driver", __nvidia_driver_nouveau_file=str(written))["__nvidia_driver_find_initramfs"]
    dummy, out, dummy = repositories.call([str(tmp_path) if word == "/boot" else word for word in argv])
    assert sorted(line.rsplit("/", 1)[1] for line in out.splitlines()) == sorted(names[:2])


@pytest.mark.parametrize(
    "kernel_module,gpu,wanted",
    [
        ("dkms", True, ["gpu", "headers"]),
        ("dkms", False, ["headers"]),
        ("prebuilt", True, ["gpu"]),
        ("prebuilt", False, []),
    ],
)
def test_what_a_node_has_to_have(kernel_module, gpu, wanted):
    found = Role("nvidia_driver", nvidia_driver_kernel_module=kernel_module, nvidia_driver_require_gpu=gpu)
    assert found["__nvidia_driver_require"] == wanted


def test_every_option_of_the_set_reaches_the_module():
    tasks = yaml.safe_load((ROOT / "roles/nvidia_driver/tasks/packages.yml").read_text(encoding="utf-8"))
    given = next(
        task["gpufleet.lifecycle.driver_packages"] for task in tasks if "gpufleet.lifecycle.driver_packages" in task
    )
    assert set(given) <= set(ARGUMENT_SPEC)
    for option in ("flavour", "kernel_module", "source", "components", "floors", "running_floors", "extra_packages"):
        assert "nvidia_driver_" + option in given[option], option
    assert given["exclude_unattended"] == "{{ nvidia_driver_exclude_unattended_upgrades }}"
    specs = yaml.safe_load((ROOT / "roles/nvidia_driver/meta/argument_specs.yml").read_text(encoding="utf-8"))[
        "argument_specs"
    ]["main"]["options"]
    for option in ("flavour", "kernel_module"):
        assert specs["nvidia_driver_" + option]["choices"] == ARGUMENT_SPEC[option]["choices"]
        assert specs["nvidia_driver_" + option]["default"] == ARGUMENT_SPEC[option]["default"]
    assert specs["nvidia_driver_components"]["choices"] == ARGUMENT_SPEC["components"]["choices"]
    assert set(specs["nvidia_driver_source"]["choices"]) == {""} | set(ARGUMENT_SPEC["source"]["choices"])


def test_package_lock_is_waited_for_before_every_request_of_a_down_slot():
    tasks = yaml.safe_load((ROOT / "roles/gpu_node_upgrade/tasks/request_down.yml").read_text(encoding="utf-8"))
    states = [task.get("gpufleet.lifecycle.driver_packages", {}).get("state") for task in tasks]
    gate = next(number for number, task in enumerate(tasks) if "gpufleet.lifecycle.rollout_gate" in task)
    assert states.index("unlocked") < gate
    assert any(task.get("ansible.builtin.include_tasks") == "request_down.yml" for task in tasks[gate:]), "and again"


@pytest.mark.parametrize("foreseen,name,due", [(False, "nvidia", True), (False, None, False), (True, "nvidia", False)])
def test_prebuilt_modules_need_no_dkms(foreseen, name, due):
    tasks = yaml.safe_load((ROOT / "roles/nvidia_driver/tasks/install.yml").read_text(encoding="utf-8"))
    conditions = next(task["when"] for task in tasks if "gpufleet.lifecycle.dkms_module" in task)
    found = Role(
        "nvidia_driver", __nvidia_driver_packages={"resolved": {"dkms_name": name}}, __nvidia_driver_foreseen=foreseen
    )
    assert all(found.say("{{ %s }}" % condition) for condition in conditions) is due
