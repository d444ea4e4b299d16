# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: benchnode
short_description: A node of the benchmark of rollouts
description:
  - Answers what the role gpu_node_upgrade asks on its way to a new driver, after the time that a file says, and runs
    nothing. What is left is the work of the controller.
author: gpufleet contributors (@gpufleet)
options:
  remote_addr:
    description: Name of the node.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
"""

import base64
import json
import os
import re
import time
import zlib

from ansible.plugins.connection import ConnectionBase

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode

OLD, NEW = "1.0.1", "2.0.1"
# What starts a module that runs on by itself: Ansible's supervisor with the job's number, its longest time, and the
# module.
JOB = re.compile(r"async_wrapper\.py'? '?(j[0-9]+)'? '?[0-9]+'? .*AnsiballZ_([a-z_]+)\.py")
JOBS = "/root/.ansible_async/"
RUNNING = {"changed": True, "started": 1, "finished": 0}
MODULE = re.compile(
    rb"ansible(?:_collections)?\.(?:modules|legacy|builtin|gpufleet\.lifecycle\.plugins\.modules)\.([a-z_]+)"
)


class Connection(ConnectionBase):
    transport = "gpufleet.lifecycle.benchnode"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def close(self):
        self._connected = False

    def put_file(self, in_path, out_path):
        pass

    def fetch_file(self, in_path, out_path):
        raise NotImplementedError("no file of a benchmark's node is read")

    def exec_command(self, cmd, in_data=None, sudoable=True):
        path = os.path.join(os.environ["GPUFLEET_STUB_NODES"], self.get_option("remote_addr"))
        node = stubnode.load(path)
        if "/proc/sys/kernel/random/boot_id" in cmd:
            return 0, b"boot-%d\n" % node["boots"], b""
        if "shutdown -r" in cmd:
            time.sleep(node["times"]["boot"])
            node.update(boots=node["boots"] + 1, loaded=node["disk"])
            stubnode.store(node, path)
            return 0, b"", b""
        if "umask 77 && mkdir" in cmd:
            name = re.search(r"ansible-tmp-[0-9.-]+", cmd).group(0)
            return 0, ("%s=/tmp/%s\n" % (name, name)).encode(), b""
        job = JOB.search(cmd)
        found = MODULE.search((in_data or b"") + cmd.encode())
        if not found and not job:
            return 0, b"", b""
        name = job.group(2) if job else found.group(1).decode()
        if name == "async_status":
            answer = self._job(node)
        else:
            # Whoever measures sees what a node is busy with before it is.
            node["job"] = {
                "module": name,
                "until": time.time() + self._takes(name, node),
                "id": job.group(1) if job else "",
            }
            stubnode.store(node, path)
            if not job:
                time.sleep(max(0.0, node["job"]["until"] - time.time()))
            answer = (
                dict(RUNNING, ansible_job_id=job.group(1), results_file=JOBS + job.group(1)) if job else self._end(node)
            )
        stubnode.store(node, path)
        return 0, json.dumps(answer).encode(), b""

    @staticmethod
    def _takes(name, node):
        """Seconds of a module."""
        if name == "driver_packages":
            # The first time, before the drain.
            return node["times"]["install" if node.get("downloaded") else "download"]
        return node["times"]["look" if node["loaded"] == OLD else "validate"] if name == "gpu_health" else 0.0

    def _end(self, node):
        return getattr(self, "_" + node.pop("job")["module"])(node)

    def _job(self, node):
        """What Ansible's async_status answers about the job of the node, or to the wish to clear it away."""
        job = node.get("job")
        if not job:
            return {"changed": False}
        told = dict(RUNNING, ansible_job_id=job["id"], results_file=JOBS + job["id"])
        return told if time.time() < job["until"] else dict(told, finished=1, **self._end(node))

    @staticmethod
    def _driver_audit(node):
        return {"changed": False, "audit": stubnode.audit(node)}

    @staticmethod
    def _driver_reload(node):
        return {
            "changed": False,
            "action": "reboot",
            "reboot_required": True,
            "reboot_reason": "the policy is to reboot",
        }

    @staticmethod
    def _driver_packages(node):
        # No kernel whose module could be compiled here: what the others need is on the controller already.
        resolved = {"upstream": NEW, "dkms_name": "nvidia-current-open", "trees": {}, "module_archives": []}
        if not node.get("downloaded"):
            node["downloaded"] = True
            return {"changed": True, "transaction": {}, "resolved": resolved}
        node["disk"] = NEW
        return {"changed": True, "transaction": {}, "resolved": resolved}

    @staticmethod
    def _dkms_module(node):
        return {"changed": True, "stale": []}

    @staticmethod
    def _gpu_health(node):
        health = {"schema": "gpufleet.health/1", "verdict": "pass", "checks": [], "simulated": True}
        return {
            "changed": False,
            "health": health,
            "baseline": {
                "schema": "gpufleet.baseline/1",
                "snapshot": stubnode.snapshot(node),
                "audit": stubnode.audit(node),
            },
        }

    @staticmethod
    def _gpu_info(node):
        return {"changed": False, "snapshot": stubnode.snapshot(node)}

    @staticmethod
    def _gpu_settings(node):
        return {"changed": False, "settings": [], "failures": []}

    @staticmethod
    def _gpu_evidence(node):
        log = base64.b64encode(zlib.compress(b"driver %s\n" % node["loaded"].encode())).decode()
        return {
            "changed": False,
            "missing": [
                {"part": "nvidia-smi.xml", "reason": "not here"},
                {"part": "processes.json", "reason": "not here"},
            ],
            "facts": {
                "schema": "gpufleet.reading/1",
                "boot_id": "boot-%d" % node["boots"],
                "snapshot": dict(stubnode.snapshot(node), simulated=True),
            },
            "files": {"kernel.log": {"data": log, "truncated": False, "note": ""}},
        }

    @staticmethod
    def _stat(node):
        return {"changed": False, "stat": {"exists": False}}

    @staticmethod
    def _command(node):
        return {
            "changed": True,
            "rc": 0,
            "stdout": "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active",
            "stderr": "",
            "cmd": [],
        }

    @staticmethod
    def _setup(node):
        return {
            "changed": False,
            "ansible_facts": {
                "ansible_distribution": "Debian",
                "ansible_os_family": "Debian",
                "ansible_distribution_version": "12",
            },
        }

    @staticmethod
    def _find(node):
        return {"changed": False, "files": [{"path": "/sbin/shutdown"}], "matched": 1}

    @staticmethod
    def _systemd_service(node):
        return {"changed": True, "state": "started"}

    @staticmethod
    def _did(node):
        return {"changed": True}

    _file = _copy = _ping = _did
    _systemd = _systemd_service
