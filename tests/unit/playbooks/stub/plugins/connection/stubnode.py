# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: stubnode
short_description: A node of the control-flow tests
description:
  - Runs modules on this machine, in the place of a node that is only a file. Reboots it, or does not answer, as that
    file says.
author: gpufleet contributors (@gpufleet)
options:
  remote_addr:
    description: Name of the node.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
"""

import functools
import json
import os
import re
import shlex
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import lies, python_of_nodes, stubnode


class Connection(LocalConnection):
    transport = "gpufleet.lifecycle.stubnode"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        liar = self.liar()
        honest = functools.partial(self.answer, cmd, in_data, sudoable)
        return liar.answer(cmd, in_data, honest) if liar else honest()

    def put_file(self, in_path, out_path):
        liar = self.liar()
        if not (liar and liar.has_lied()):
            super().put_file(in_path, out_path)

    def liar(self):
        """Return the lies of this node, None of an honest one."""
        path = os.path.join(os.environ["GPUFLEET_STUB_NODES"], self.get_option("remote_addr"))
        told = stubnode.load(path).get("lies")
        return lies.Liar(path, told) if told else None

    def answer(self, cmd, in_data=None, sudoable=True):
        """Return what an honest node answers."""
        nodes = os.environ["GPUFLEET_STUB_NODES"]
        path = os.path.join(nodes, self.get_option("remote_addr"))
        node = stubnode.load(path)
        given = node.get("answers", {}).get(lies.name_module(cmd, in_data), {}).get(node["loaded"])
        if given is not None:
            return 0, json.dumps(given).encode() + b"\n", b""
        gone_at = node.get("unreachable_at")  # the module whose call finds that the node is gone
        # As it is given to the interpreter, or as a file for what runs on by itself.
        if gone_at and any(
            name.encode() in (in_data or b"") + cmd.encode()
            for name in ("modules." + gone_at, "AnsiballZ_%s.py" % gone_at)
        ):
            answers = node.get("unreachable_after", 0)  # so many calls of it are answered before
            node.update(unreachable=not answers, unreachable_after=max(answers - 1, 0))
            stubnode.store(node, path)
        if node.get("unreachable") or time.monotonic() < node.get("back_at", 0):
            raise AnsibleConnectionFailure("%s does not answer" % self.get_option("remote_addr"))
        if "/proc/sys/kernel/random/boot_id" in cmd:
            # After what its login shell prints, which differs each time.
            return 0, b"Last login: %d\n00000000-0000-4000-8000-%012d\n" % (time.monotonic_ns(), node["boots"]), b""
        if re.search(r"shutdown -r", cmd):
            if "reboot" in node.get("waits_at", []):
                node["log"].append("waits")
                stubnode.store(node, path)
                stubnode.wait_while(lambda: "reboot" in stubnode.load(path)["waits_at"], "told to reboot")
                node = stubnode.load(path)
            stubnode.take(node, "reboot", path)
            node["boots"] += 1
            stubnode.cured(node, "reboot")
            node["loaded"] = node["disk"]
            node["kernel"] = stubnode.kernel(node)["next_boot"]
            node["running"] = list(node["enabled"])
            if node.get("mig_devices"):
                node["mig_now"] = 0
            node["unreachable"] = node["disk"] in node.get("dies_with", [])
            node["back_at"] = time.monotonic() + node.get("reboot_s", 0)
            stubnode.note(node, "reboot into %s" % node["disk"], path)
            return 0, b"", b""
        own = {"GPUFLEET_STUB_NODE": path, "PATH": "%s:%s" % (os.path.join(nodes, "bin"), os.environ["PATH"])}
        given = python_of_nodes.plain(cmd, os.path.join(nodes, "bin", "python-of-node"))
        if in_data and given is not None and "GPUFLEET_STUB_PYTHON" in os.environ:
            return python_of_nodes.run(
                os.environ["GPUFLEET_STUB_PYTHON"], in_data, dict(os.environ, **own, **given), path
            )
        prefix = "".join("%s=%s; export %s; " % (name, shlex.quote(value), name) for name, value in own.items())
        return super().exec_command(prefix + cmd, in_data=in_data, sudoable=sudoable)
