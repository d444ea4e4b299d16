# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hundreds of nodes in flight on a controller of a usual size."""

from __future__ import annotations

DOCUMENTATION = r"""
name: many_nodes
type: notification
short_description: Keep hundreds of nodes in flight within the memory and the cores of the controller
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - In Ansible every node in flight holds a worker, a copy of the playbook's process of 20 MB and more, also while its task only waits. With this, such a task
    gives its worker back, and begins anew when it is worth a look. A node that waits costs the controller some kilobytes then.
  - So wait, without a worker, nodes that have no leave yet, that are drained in Slurm or Kubernetes, that bring or install packages, compile or import a
    kernel module, and that reboot. The modules run on the node by themselves meanwhile, with Ansible's C(async), and no SSH connection has to last as long as
    they do; a network that is away for two minutes loses no node. Health checks, evidence and the node that compiles for all others keep their worker.
  - It works in plays with the strategy P(ansible.builtin.host_pinned#strategy), which that of the upgrade is. C(--forks) stays the number of nodes in flight.
  - Nodes are looked at often while they are few. All looks together take half of the controller's cores at most, so that with 500 nodes and two cores one is
    looked at about every three minutes, and with 16 cores about every 25 seconds.
  - Also it starts no worker while as many compute already as there are cores, or while there are 50. Ansible starts one for every host at once where it has
    the forks, and all of them would be in memory, each with a small part of a core. It waits for two seconds at most, so that 50 that take long hold up
    nobody for good.
  - And it starts none while the machine has little memory left, so that no node is lost to the kernel's choice of what to end. It waits for a minute at
    most, as what runs may itself wait for a node that has to go on.
  - What it needs of Ansible is no promise of Ansible's. An ansible-core that has it not is told on stderr, and every task keeps its worker then.
options:
  memory_left:
    description: GB (of 10^9 bytes) of memory that the machine has to have left before another worker starts. V(0) stands for a tenth of what it has.
    type: float
    default: 0
    env:
      - name: GPUFLEET_MEMORY_LEFT
    ini:
      - section: callback_many_nodes
        key: memory_left
requirements:
  - enable it in the configuration, C(callbacks_enabled = gpufleet.lifecycle.many_nodes), or by C(ANSIBLE_CALLBACKS_ENABLED)
"""

import os
import threading
import time

from ansible import constants as C
from ansible.plugins.callback import CallbackBase

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._parking import keeper, lot

CHILDREN = "/proc/self/task/%d/children"  # proc(5), of the thread that starts the workers
LOOK_S = 0.01
MOST = 50  # workers in memory at a time; of 500 that have just begun each takes 70 MB
LONGEST_S = 2.0  # whatever computes: the playbook goes on
MEMINFO = "/proc/meminfo"
GB = 10 ** 9
MEMORY_LOOK_S = 0.5
MEMORY_LONGEST_S = 60.0
PINNED = ("host_pinned", "ansible.builtin.host_pinned")


def states(pids):
    """The states of those processes that have not ended, a letter each (proc(5))."""
    found = ""
    for pid in pids:
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as stream:
                found += stream.read().rpartition(") ")[2][:1]
        except OSError:
            continue  # it has ended
    return [letter for letter in found if letter not in "ZX"]


def full(letters, cores):
    """Whether another worker would find no core, or there are many already that wait, for the ledger for instance, or for a node that is looked at."""
    return letters.count("R") >= cores or len(letters) >= MOST


def workers():
    """The processes that this thread started and that have not been taken leave of."""
    try:
        with open(CHILDREN % threading.get_native_id(), encoding="ascii") as stream:
            return stream.read().split()
    except OSError:
        return []  # a kernel that does not tell: nobody waits


def wait_for_room(cores, look=lambda: states(workers()), clock=time.monotonic, sleep=time.sleep):
    """Wait until another worker may start, and no longer than LONGEST_S; answers how long."""
    began = clock()
    while full(look(), cores) and clock() - began < LONGEST_S:
        sleep(LOOK_S)
    return clock() - began


def memory(path=MEMINFO):
    """(bytes that the machine has, bytes that are available), proc(5); nothing where the kernel does not tell."""
    try:
        with open(path, encoding="ascii") as stream:
            found = dict(line.split(":") for line in stream)
        return tuple(int(found[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None


def wait_for_memory(left, look=memory, clock=time.monotonic, sleep=time.sleep, say=None):
    """Wait until LEFT bytes are available (a tenth of all, if that is 0), and no longer than MEMORY_LONGEST_S; answers how long."""
    began, told = clock(), False
    while clock() - began < MEMORY_LONGEST_S:
        found = look()
        if found is None or found[1] >= (left or found[0] / 10):
            break
        if say and not told:
            say("%.1f GB of memory are left, expected %.1f GB: the next worker waits, for a minute at most" % (found[1] / GB, (left or found[0] / 10) / GB))
            told = True
        sleep(MEMORY_LOOK_S)
    return clock() - began


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpufleet.lifecycle.many_nodes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cores = len(os.sched_getaffinity(0))

    def v2_playbook_on_start(self, playbook):
        lacks = keeper.missing()
        if lacks:
            self._display.display("many_nodes: this ansible-core has no %s: every task keeps its worker while it waits." % " nor ".join(lacks), stderr=True)
        else:
            keeper.make(C.DEFAULT_LOCAL_TMP, self.cores, lambda: not full(states(workers()), self.cores))

    def v2_playbook_on_play_start(self, play):
        if lot.CURRENT:
            # Elsewhere the number of forks limits how many nodes are in flight only by the workers that there are.
            lot.CURRENT.open = play.strategy in PINNED

    def v2_runner_on_start(self, host, task):
        """Called in the playbook's process right before it starts the worker."""
        wait_for_room(self.cores)
        if workers():  # otherwise it is not for ours that there is none, and nothing of ours will end
            wait_for_memory(self.get_option("memory_left") * GB, say=self.say)

    def say(self, words):
        """One line, and the same one not again."""
        self._display.warning("many_nodes: " + words)
