#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Import the tarball of `make build` as Galaxy does, in the environment importer: its manifest, metadata, README, the
# documentation of all plugins and roles. A warning is an error. Off are ansible-lint, which the importer ends after
# three minutes (part ansible-lint has the same profile and more rules), and what is off by default: flake8 (ruff checks
# the same), and ansible-test, which wants a container (the parts sanity run it).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n 's/^version: //p' "$root/galaxy.yml")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" # the result is written there
export GALAXY_IMPORTER_RUN_ANSIBLE_LINT=false GALAXY_IMPORTER_RUN_FLAKE8=false GALAXY_IMPORTER_RUN_ANSIBLE_TEST=false
python -m galaxy_importer.main "$root/.lab/build/gpufleet-lifecycle-$version.tar.gz" | tee import.log
! grep -E '^(WARNING|ERROR)' import.log >/dev/null
