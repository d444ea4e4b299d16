# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say which packages make a driver, and which are kept."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  flavour:
    description:
      - The kernel module, NVIDIA's proprietary one or the open one. The other one is removed.
      - V(auto) chooses by the PCI device ids of the node's GPUs. Where both drive them all it is the open one from
        driver branch 560 on. It is refused when no GPU is found or one is not known.
      - A flavour that does not drive a GPU of the node is refused, such as V(proprietary) for Blackwell and V(open) for
        Volta.
    type: str
    choices: [auto, proprietary, open]
    default: proprietary
  kernel_module:
    description:
      - V(dkms) builds the kernel module on the node, V(prebuilt) installs modules that were built and signed for a
        kernel. Ubuntu has such modules of both flavours, NVIDIA's CUDA repository for RHEL 9 has proprietary ones;
        elsewhere it is refused.
      - With V(prebuilt) the kernel that boots next has to have one, see O(kernel). Other kernels that can boot get one
        where there is one, and lose that of another driver where there is none.
    type: str
    choices: [dkms, prebuilt]
    default: dkms
  kernel:
    description:
      - The release of the kernel that is to boot with this driver, such as V(6.8.0-149-generic), where that is not the
        one that boots next. It is installed already. M(gpufleet.lifecycle.boot_kernel) makes it the default.
      - Only used with O(kernel_module=prebuilt). Repositories often have the module of a kernel and of a driver for one
        of a few pairs alone, so that both have to change together.
    type: str
  source:
    description:
      - Whose packages are used, V(distribution) for those of the operating system and V(cuda) for those of NVIDIA's
        CUDA repository. A mirror counts as what it mirrors.
      - Without it Debian and Ubuntu use their own, RHEL and Rocky Linux those of NVIDIA.
    type: str
    choices: [distribution, cuda]
  components:
    description:
      - Parts beside the driver that this node needs, of exactly its version.
    type: list
    elements: str
    choices: [fabricmanager, nscq, imex, persistenced]
    default: []
  floors:
    description:
      - What workloads require of the driver. A version below one of these is refused with the name of the workload,
        whether it is an upgrade or a way back.
    type: list
    elements: dict
    default: []
    suboptions:
      workload:
        description: What requires it, such as a partition or the label of a group of nodes.
        type: str
        required: true
      driver:
        description: The oldest driver version that will do, such as V(550.54).
        type: str
      cuda:
        description: The CUDA version that the driver has to support by itself, such as V("12.4").
        type: str
      require_cuda:
        description: Requirements as containers have them in C(NVIDIA_REQUIRE_CUDA). All of them have to hold.
        type: list
        elements: str
      brands:
        description: Brands of the node's GPUs, for requirements that name one. A requirement that hangs on a brand is
          refused without it.
        type: list
        elements: str
  running_floors:
    description:
      - Whether the C(NVIDIA_REQUIRE_CUDA) of containers that run on the node now counts as well. Reading it needs root.
    type: bool
    default: false
  extra_packages:
    description:
      - More packages of the driver that belong to the set, such as V(libnvcuvid1) or V(nvidia-cuda-mps).
    type: list
    elements: str
    default: []
  keep:
    description:
      - Keep the packages of the driver on the node, in C(/var/lib/gpufleet/packages), of the version that is installed
        before it is changed, and of the one that takes its place. A version that is kept can be installed and gone back
        to without a mirror and without a network.
      - When the installed version cannot be kept, since it is neither in the cache nor at a mirror, nothing is changed.
      - Where the package manager is dnf nothing is kept.
    type: bool
    default: false
  repair:
    description:
      - Finish what an interrupted run of the package manager left half done. Without it such a node is refused.
      - With apt, packages of the driver that need a reinstallation are unpacked again from the node's own archives, and
        C(dpkg --configure -a) does the rest.
      - With dnf, the older one of each package of the driver that lies there twice is erased, unless something depends
        on it. A node with others than the driver's packages in that state is refused in any case.
    type: bool
    default: false
  require:
    description:
      - What the node has to have for the driver to work on it. Without it the node is refused, and nothing on it is
        changed.
      - V(gpu) is an NVIDIA GPU on the PCI bus, V(headers) a kernel that can boot, and the headers of every such kernel.
    type: list
    elements: str
    choices: [gpu, headers]
    default: []
  allow_removal:
    description:
      - Packages that are not the driver's and that the transaction may remove.
    type: list
    elements: str
    default: []
"""
