#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run nox with the checkout's noxfile; install it into the cache first if it is not there.
#
#   tests/tools/nox.sh -s main -- COMMAND...
set -euo pipefail

version=2026.10.20
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet}
tool=$cache/nox/$version
if [ ! -e "$tool/.ready" ]; then
    python3 -m venv "$tool" >&2
    "$tool/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "nox==$version" >&2
    touch "$tool/.ready"
fi
exec "$tool/bin/nox" --noxfile "$root/noxfile.py" "$@"
