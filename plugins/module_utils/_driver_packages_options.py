# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of driver_packages."""

from __future__ import annotations

from ._node import lock

ARGUMENT_SPEC = dict(
    version=dict(type="str"),
    flavour=dict(type="str", choices=["auto", "proprietary", "open"], default="proprietary"),
    kernel_module=dict(type="str", choices=["dkms", "prebuilt"], default="dkms"),
    kernel=dict(type="str"),
    source=dict(type="str", choices=["distribution", "cuda"]),
    components=dict(type="list", elements="str", choices=["fabricmanager", "nscq", "imex", "persistenced"], default=[]),
    floors=dict(
        type="list",
        elements="dict",
        default=[],
        options=dict(
            workload=dict(type="str", required=True),
            driver=dict(type="str"),
            cuda=dict(type="str"),
            require_cuda=dict(type="list", elements="str"),
            brands=dict(type="list", elements="str"),
        ),
    ),
    running_floors=dict(type="bool", default=False),
    state=dict(type="str", choices=["resolved", "unlocked", "downloaded", "present", "absent"], default="present"),
    extra_packages=dict(type="list", elements="str", default=[]),
    hold=dict(type="bool"),
    pin=dict(type="bool"),
    pin_file=dict(type="path", default="/etc/apt/preferences.d/gpufleet-nvidia-driver.pref"),
    exclude_unattended=dict(type="bool"),
    dkms_build=dict(type="str", choices=["postinst", "deferred"], default="postinst"),
    allow_removal=dict(type="list", elements="str", default=[]),
    keep=dict(type="bool", default=False),
    repair=dict(type="bool", default=False),
    min_free_mib=dict(type="int", default=512),
    min_free_boot_mib=dict(type="int", default=32),
    min_free_var_mib=dict(type="int"),
    require=dict(type="list", elements="str", choices=["gpu", "headers"], default=[]),
    repository_ready=dict(type="bool", default=True),
    require_available=dict(type="bool", default=False),
    apt_lock_timeout_s=dict(type="int", default=300),
    apt_lock_look_s=dict(type="int", default=10),
    timeout_s=dict(type="int", default=3600),
    **lock.ARGUMENTS,
)
