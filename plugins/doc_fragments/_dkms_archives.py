# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of dkms_module that say where compiled modules come from."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  archive_dir:
    description:
      - A directory on the controller with archives, each with a file C(<archive>.sha256) beside it, for O(state=built)
        and O(state=prepared).
      - Those that this node would otherwise have to compile are sent to O(store_dir). The node is told their names
        first, so that nothing is sent that it does not need. A directory that is not there is made.
      - An archive is used on a node only if the O(ledger) records that a builder compiled it. What a node that is no
        O(builder) compiles stays on that node. With the variable C(gpufleet_builders_agree) greater than 1, so many
        builders have to have compiled the same modules, apart from signatures.
      - An archive that is there with its digest is not replaced. Where a node has other source, as of another revision
        of the package, it compiles for itself, until the archive and its C(.sha256) are removed.
    type: path
  builder:
    description:
      - Whether other nodes may load what this one compiles. Set it for hosts that run nothing else, or for a node that
        is drained; root on a builder is root on every node.
      - What a builder compiles is brought into O(archive_dir) and recorded in the O(ledger). Of all builders that this
        controller has in hand, one compiles an archive, and other nodes wait for it. A builder whose compilation fails
        makes way for the next. From O(build_timeout_s) after it began no node waits for it, and each compiles for
        itself.
    type: bool
    default: false
  ledger:
    description: The URL of the ledger, as C(rollout_ledger). The file of the artifact
      directory, the parent of O(archive_dir), when left out.
    type: str
  store_dir:
    description:
      - A directory of the node for archives. With O(remove_stale=true), those of kernels that are gone and of all
        versions but the wanted one and the one last used before it are removed from it.
    type: path
    default: /var/lib/gpufleet/dkms
  source_packages:
    description:
      - Packages of the driver on the node, as files, for O(state=prepared). The module's source that they hold together
        below C(/usr/src) is compiled, unless the source is on the node already.
        RV(gpufleet.lifecycle.driver_packages#module:resolved.module_archives) names them.
    type: list
    elements: path
  archives_offered:
    description:
      - Names of the archives in O(archive_dir). Only the action plugin sets it.
    type: list
    elements: str
  archives_sources:
    description:
      - What the archives in O(archive_dir) were built from, by name, where their export noted it. One that was built
        from other source than the node has, as of another revision of the package, is left out, and the node compiles.
        Only the action plugin sets it.
    type: dict
  asked:
    description:
      - Whether the node's needs were asked for already. Only the action plugin sets it.
    type: bool
    default: false
"""
