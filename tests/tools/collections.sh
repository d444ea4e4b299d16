#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Make this checkout reachable under the collection's name for Ansible's commands, and print the collections path.
# ansible.cfg points there; ansible-test follows links and needs a copy instead (tests/tools/sanity.py makes it).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
parent=$root/.lab/collections/ansible_collections/gpufleet
mkdir -p "$parent"
ln -sfn ../../../.. "$parent/lifecycle"
echo "$root/.lab/collections"
