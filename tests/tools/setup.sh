#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Install the Debian packages this checkout needs and the machine lacks. Says nothing and changes nothing when all are there.
#
#   tests/tools/setup.sh [LIST...]      default: tests/tools/host-packages.txt and tests/lab/host-packages.txt
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lists=("$@")
if [ ${#lists[@]} -eq 0 ]; then
    lists=("$root/tests/tools/host-packages.txt")
    if [ -f "$root/tests/lab/host-packages.txt" ]; then
        lists+=("$root/tests/lab/host-packages.txt")
    fi
fi

mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "${lists[@]}" | sort -u)

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is not a Debian machine (no dpkg-query); install the equivalents of: ${wanted[*]}" >&2
    exit 1
fi

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

run=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup: not root and no sudo here; as root run: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    run=(sudo)
fi

apt() {
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends "$@"
}

echo "setup: installing ${missing[*]}" >&2
if ! apt install "${missing[@]}" >&2; then
    echo "setup: trying again with fresh package lists" >&2
    apt update >&2
    apt install "${missing[@]}" >&2
fi
