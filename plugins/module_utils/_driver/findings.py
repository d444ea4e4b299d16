# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a node's driver by the facts alone: all findings, from one file per subject.

Every function takes facts and answers findings; nothing is read here. A signal that is not there is ``unknown``.
"""

from __future__ import annotations

from ._finding import FAIL, NOT_APPLICABLE, PASS, UNKNOWN, finding
from .findings_loading import flavour, gsp_firmware, loaded_version, nouveau, pci_device, secure_boot
from .findings_modules import (
    dkms_leftover,
    dkms_stale,
    dkms_state,
    judge_module,
    kernel_headers,
    kernel_module,
    next_boot_kernel,
)
from .findings_versions import (
    dpkg_interrupted,
    driver_owner,
    driver_packages,
    package_revision,
    package_version,
    polygon,
    runfile_remains,
    target_version,
    versions_agree,
)

__all__ = [
    "CHECKS",
    "FAIL",
    "NOT_APPLICABLE",
    "PASS",
    "UNKNOWN",
    "driver_packages",
    "finding",
    "flavour",
    "gsp_firmware",
    "judge_module",
    "package_revision",
    "package_version",
    "polygon",
    "target_version",
    "versions_agree",
]

CHECKS = (
    pci_device,
    kernel_module,
    dkms_state,
    kernel_headers,
    dkms_stale,
    dkms_leftover,
    next_boot_kernel,
    loaded_version,
    nouveau,
    secure_boot,
    gsp_firmware,
    dpkg_interrupted,
    runfile_remains,
    driver_owner,
)
