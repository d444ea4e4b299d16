#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run a command with the collection as it is released: the tarball of `make build`, installed from its file into an
# empty path, which GPUFLEET_COLLECTIONS names.
#
#   tests/tools/released.sh COMMAND...
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n 's/^version: //p' "$root/galaxy.yml")
export GPUFLEET_COLLECTIONS=$root/.lab/released
rm -rf "$GPUFLEET_COLLECTIONS"
# ansible.cfg names the checkout, and a collection that is found is not installed.
ANSIBLE_COLLECTIONS_PATH=$GPUFLEET_COLLECTIONS ansible-galaxy collection install \
    "$root/.lab/build/gpufleet-lifecycle-$version.tar.gz"
exec "$@"
