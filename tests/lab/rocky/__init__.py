# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rocky9-like: a machine with Debian's userland, and with the identity and the package world of Rocky Linux 9.

It is not Rocky Linux. Real on it are dnf, rpm, DKMS and dracut as Debian packages them, an rpm database, module
streams, versionlock, kernels side by side, and builds for them. There is no SELinux.
"""
