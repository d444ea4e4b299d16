# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task that only waits gives its worker back, and begins anew when it is worth a look.

Every node in flight otherwise holds one of Ansible's workers, a copy of the playbook's process of 20 MB and more, through hours in which nothing is
computed. Only with the callback many_nodes; without it the same tasks wait where they are.

- lot: what the playbook's process and its workers share.
- waiting: what an action waits with, which is all that it sees of this.
- job: a module of the node that runs on without a connection, and is asked about.
- keeper: the playbook's process, which begins tasks anew.

Private to the collection: it may change at any time.
"""
