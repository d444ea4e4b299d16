#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Prints the path of a virtual environment with programs by others that read GPUs: nvitop and gpustat.
set -eu
exec "$(dirname "$0")/../tools/venv.sh" clients
