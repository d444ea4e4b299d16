# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether an exported tree fits a node. Pure: data in, sentences out."""

from __future__ import annotations

from .._kernel import modules, secureboot


def refusals(tree, node, described):
    """Return why a tree does not fit a node, in sentences; an empty list when it fits. Pure.

    ``node``: name, version, kernels, arch, compilers by kernel, conf (of the source on the node, or None), secure_boot
    facts. ``described``: what modinfo says of the main module of each (kernel, arch).
    """
    found = []
    if (tree["name"], tree["version"]) != (node["name"], node["version"]):
        found.append(
            "it is %s/%s, and %s/%s is wanted" % (tree["name"], tree["version"], node["name"], node["version"])
        )
    if node["conf"] is not None and tree["conf"].strip() != node["conf"].strip():
        found.append("its dkms.conf is not the one of the source on this node")
    for (kernel, arch), item in sorted(tree["kernels"].items()):
        found += kernel_refusals(kernel, arch, item, node, described.get((kernel, arch)))
    return found


def kernel_refusals(kernel, arch, item, node, module):
    if kernel not in node["kernels"]:
        yield "it is for kernel %s, and the kernels wanted on this node are %s" % (
            kernel,
            ", ".join(node["kernels"]) or "none",
        )
        return
    if arch != node["arch"]:
        yield "it is for architecture %s, and this node is %s" % (arch, node["arch"])
    compiler = node["compilers"].get(kernel)
    if not compiler or not item["compiler"]:
        yield "the compiler of kernel %s is not known (%s in the tree, %s on this node)" % (
            kernel,
            item["compiler"] or "none",
            compiler or "none",
        )
    elif compiler != item["compiler"]:
        yield "it was made for a kernel %s of compiler %s, and here that kernel is of %s" % (
            kernel,
            item["compiler"],
            compiler,
        )
    if module is None:
        yield "it has no main NVIDIA kernel module for kernel %s" % kernel
        return
    if module["error"] or not module["version"] or not module["vermagic"]:
        yield "its module for kernel %s cannot be read: %s" % (
            kernel,
            module["error"] or "modinfo names no version or no vermagic",
        )
        return
    if module["version"] != node["version"]:
        yield "its module for kernel %s is of version %s" % (kernel, module["version"])
    if not modules.made_for(kernel, module):
        yield "its module for kernel %s has the vermagic '%s'" % (kernel, module["vermagic"])
    yield from signature_refusals(kernel, module, node["secure_boot"])


def signature_refusals(kernel, module, state):
    verdict, subject = secureboot.judge(state, module["signer"]), "its module for kernel %s" % kernel
    if verdict == "unsigned":
        yield "Secure Boot is on and %s is not signed" % subject
    elif verdict == "untrusted":
        yield "Secure Boot is on and the signer of %s, '%s', is not among this node's keys" % (
            subject,
            module["signer"],
        )
    elif verdict == "unknown" and state["state"] == "enabled":
        yield "Secure Boot is on and the keys that %s could be signed with cannot be listed" % subject
    elif verdict == "unknown":
        yield "whether Secure Boot is on is not known, so the signature of %s cannot be judged" % subject
