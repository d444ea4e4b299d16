# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say how much room a change of driver packages leaves."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  min_free_mib:
    description:
      - MiB that must be left over on every file system that the change writes to (the package cache, C(/usr), the DKMS
        tree, C(/lib/modules), C(/boot)).
    type: int
    default: 512
  min_free_boot_mib:
    description:
      - What a C(/boot) that is a file system of its own must keep free after the change, in MiB.
      - On a file system with other paths that are written, the larger limit holds.
    type: int
    default: 32
  min_free_var_mib:
    description:
      - What a C(/var) that is a file system of its own must keep free after the change, in MiB. The package cache and
        the DKMS tree are below it.
      - On a file system with other paths that are written, the larger limit holds.
      - O(min_free_mib) if not given.
    type: int
"""
