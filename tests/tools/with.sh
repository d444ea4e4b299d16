#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run a command in one of the checkout's environments:   tests/tools/with.sh main ansible-playbook ...
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$("$here/venv.sh" "$1")
shift
export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
exec "$@"
