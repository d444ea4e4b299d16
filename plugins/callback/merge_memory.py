# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's workers have in memory alike is kept once."""

from __future__ import annotations

DOCUMENTATION = r"""
name: merge_memory
type: notification
short_description: Let the kernel keep once what Ansible's workers have in memory alike
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - For rollouts with hundreds of nodes in flight. Every one of them holds a worker, and a worker is a copy of the playbook's process in which most pages
    soon are its own though they hold the same. This asks the kernel to merge such pages, in this process and in all that it starts
    (C(PR_SET_MEMORY_MERGE), see prctl(2)), which halves what a worker costs.
  - The kernel merges only while kernel samepage merging runs, which root switches on with C(echo 1 > /sys/kernel/mm/ksm/run). It has to keep up with the
    workers. C(echo 4000 > /sys/kernel/mm/ksm/pages_to_scan) is enough for hundreds of them, and takes a part of one core, which the process C(ksmd) shows.
  - Where the kernel cannot, or does not merge now, a line on stderr says so, and the playbook runs as it would without.
  - From how long a write takes, a process of the same machine may learn which pages another one has, when both let theirs be merged. So leave this out on a
    machine that runs what you do not trust with the playbook's secrets.
requirements:
  - Linux 6.4 or newer with C(CONFIG_KSM) on the controller
  - enable it in the configuration, C(callbacks_enabled = gpufleet.lifecycle.merge_memory), or by C(ANSIBLE_CALLBACKS_ENABLED)
"""

import ctypes
import os

from ansible.plugins.callback import CallbackBase

PR_SET_MEMORY_MERGE = 67  # include/uapi/linux/prctl.h
RUN = "/sys/kernel/mm/ksm/run"


def ask():
    """Have the kernel merge pages of this process and of those that it starts from now on; 0, or the errno of its refusal."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(number) for number in (1, 0, 0, 0)]
    return ctypes.get_errno() if libc.prctl(ctypes.c_int(PR_SET_MEMORY_MERGE), *arguments) else 0


def running(path=RUN):
    """What the kernel's switch for merging says: C(1) while it merges; empty where there is none."""
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def complaint(refused, switch):
    """Why nothing is merged, and what helps; empty when it is."""
    if refused:
        return "the kernel merges no memory of a process as a whole (prctl: %s), expected Linux 6.4 or newer with CONFIG_KSM" % os.strerror(refused)
    if switch != "1":
        return "the kernel merges nothing now (%s is %s, expected 1): as root, echo 1 > %s" % (RUN, switch or "not there", RUN)
    return ""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpufleet.lifecycle.merge_memory"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        words = complaint(ask(), running())
        if words:
            self._display.display("merge_memory: %s. Workers take the memory that they take without it." % words, stderr=True)
