# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry point gres of role gpu_scheduler: a node that is cut into MIG devices and put back, with the files of a
stand-in slurmctld."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("ansible.template", reason="a role is run by Ansible")

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import collection
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm.gres_data import (
    H100,
    MINORS,
    one,
    row,
    snapshot,
    whole,
)
from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node

pytestmark = pytest.mark.slow

SLICE = H100 + "_1g.10gb"
# slurmctld reads the files when it is reconfigured, and has the rest in its state.
SCONTROL = """#!/bin/sh
cd %s
case "$*" in
*--json*) echo "scontrol: unrecognized option '--json'" >&2; exit 1;;
"show config") echo "SLURM_CONF = $PWD/slurm.conf"; echo "SLURM_VERSION = 23.11.4";;
"show node n1")
    printf 'NodeName=n1 CPUAlloc=0\\n   Gres=%%s\\n   NodeHostName=n1 Version=22.05.8\\n' "$(cat gres.now)"
    printf '   State=%%s\\n' "$(cat state)";;
reconfigure)
    echo reconfigure >> calls
    sed -n 's/^NodeName=n1 .*Gres=\\([^ ]*\\).*/\\1/p' nodes/n1.conf > gres.now
    [ -s gres.now ] || echo "(null)" > gres.now;;
*) echo "unknown: $*" >&2; exit 1;;
esac
"""


class Site:
    def __init__(self, base):
        self.base, self.etc = base, base / "etc"
        (self.etc / "nodes").mkdir(parents=True)
        real = ["plugins/modules/slurm_gres.py", "plugins/modules/gpu_info.py", "plugins/action/gpu_info.py"]
        collection.make(collection.place(base / "collections"), real, stubs=())
        simulated_node.with_kept(collection.place(base / "collections"))
        (self.etc / "slurm.conf").write_text("Include nodes/n1.conf\n")
        (self.etc / "gres.conf").write_text("Include nodes/n1.gres.conf\n")
        (self.etc / "nodes" / "n1.conf").write_text("NodeName=n1 CPUs=2 Gres=gpu:%s:2\n" % H100)
        (self.etc / "gres.now").write_text("gpu:%s:2\n" % H100)
        (self.etc / "minors").write_text(MINORS)
        self.state("IDLE")
        (base / "bin").mkdir()
        (base / "bin" / "scontrol").write_text(SCONTROL % self.etc)
        (base / "bin" / "scontrol").chmod(0o755)

    def state(self, word):
        (self.etc / "state").write_text(word + "\n")

    @property
    def gres(self):
        return (self.etc / "gres.now").read_text().strip()

    @property
    def calls(self):
        path = self.etc / "calls"
        return path.read_text().split() if path.exists() else []

    def file(self, name):
        return (self.etc / "nodes" / name).read_text()

    def play(self, step, read, layout=(), *options, **variables):
        """The role's facts, or the message of its failure."""
        tell = {
            "ansible.builtin.copy": {
                "content": "{{ gpu_scheduler_gres | to_json }}",
                "dest": str(self.base / "told.json"),
            },
            "check_mode": False,
        }
        (self.base / "play.yml").write_text(
            json.dumps(
                [
                    {
                        "hosts": "all",
                        "gather_facts": False,
                        "tasks": [
                            {
                                "ansible.builtin.include_role": {
                                    "name": "gpufleet.lifecycle.gpu_scheduler",
                                    "tasks_from": "gres",
                                }
                            },
                            tell,
                        ],
                    }
                ]
            )
        )
        given = dict(
            dict(
                gpu_scheduler_backends=["slurm"],
                gpu_scheduler_slurm_host="n1",
                gpu_scheduler_slurm_bin_dir=str(self.base / "bin"),
                gpu_scheduler_slurm_gres_dir=str(self.etc / "nodes"),
                gpu_scheduler_slurm_reconfigure=True,
                gpu_scheduler_slurm_gres_timeout=2,
                __gpu_scheduler_minors_file=str(self.etc / "minors"),
                ansible_python_interpreter=sys.executable,
            ),
            **variables,
        )
        given.update(
            gpu_scheduler_snapshot=read,
            gpu_scheduler_slurm_gres_step=step,
            gpu_scheduler_slurm_gres_layout=list(layout),
        )
        ansible = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
        process = subprocess.run(
            [sys.executable, ansible, "-i", "n1,", "-c", simulated_node.CONNECTION, str(self.base / "play.yml")]
            + ["-e", json.dumps(given)]
            + list(options),
            cwd=str(self.base),
            env=simulated_node.environment(self.base, simulated_node.kept("gpu_scheduler_gres")),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if process.returncode:
            return process.stdout + process.stderr
        told = json.loads((self.base / "told.json").read_text())
        # The task that writes the facts down is the test's own.
        return dict(
            told,
            slurm_changed=re.search(
                r"TASK \[gpufleet.lifecycle.gpu_scheduler : Give Slurm the GPUs and MIG devices\] \*+\n(\w+):",
                process.stdout,
            ).group(1)
            == "changed",
        )


@pytest.fixture(name="site")
def site_(tmp_path):
    return Site(tmp_path)


@pytest.mark.cores
def test_a_gpu_is_cut(site):
    """Checked before the drain, what goes is told first, what is there is told afterwards; and a second time nothing
    changes."""
    before, layout = snapshot(whole(0), whole(1)), [row(0, None), row(1, {"1g.10gb": 2})]
    checked = site.play("check", before, layout)
    assert checked["controller_first"] and checked["gres"] == {H100: 1, SLICE: 2} and site.calls == []
    assert not checked["slurm_changed"]
    site.state("IDLE+DRAIN")
    kept = site.play("before", before, layout)
    assert kept["controller_first"] and kept["slurm_changed"] and site.gres == "gpu:%s:1" % H100
    after = snapshot(whole(0), one(1, (1, 0, "1g.10gb"), (2, 0, "1g.10gb")))
    foreseen = site.play("after", after, (), "--check")
    assert foreseen["slurm_changed"] and site.calls == ["reconfigure"] and site.gres == "gpu:%s:1" % H100
    done = site.play("after", after, gpu_scheduler_slurm_gres_types={H100: "h100"})
    assert done["slurm_changed"] and site.gres == "gpu:h100:1,gpu:%s:2" % SLICE
    assert done["gres"] == {"h100": 1, SLICE: 2}
    assert site.file("n1.gres.conf").splitlines()[1:] == done["lines"]
    assert (
        "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap147,/dev/nvidia-caps/nvidia-cap148" in done["lines"][1]
    )
    again = site.play("after", after, gpu_scheduler_slurm_gres_types={H100: "h100"})
    assert not again["slurm_changed"] and site.calls == ["reconfigure"] * 2


def test_what_nobody_may_write_is_refused_with_its_lines(site):
    said = site.play("check", snapshot(whole(0), whole(1)), [row(1, {"1g.10gb": 2})], gpu_scheduler_slurm_gres_dir="")
    assert isinstance(said, str) and "Gres=gpu:%s:1,gpu:%s:2" % (H100, SLICE) in said
    assert "gpu_scheduler_slurm_gres_dir" in said
    said = site.play("after", snapshot(one(0, (1, 0, "1g.10gb"))), gpu_scheduler_slurm_reconfigure=False)
    assert isinstance(said, str) and "nvidia-cap12,/dev/nvidia-caps/nvidia-cap13" in said
    assert "gpu_scheduler_slurm_reconfigure" in said
    assert site.calls == []


def test_mig_devices_whose_files_are_not_known_are_refused(site):
    (site.etc / "minors").unlink()
    assert "mig-minors" in site.play("after", snapshot(whole(0), one(1, (1, 0, "1g.10gb"))))
    assert site.calls == []
