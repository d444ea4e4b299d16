# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab: GPU machines without GPUs, for rehearsals and tests.

Run as ``python3 -m tests.lab``; see README.md beside this file.
"""
