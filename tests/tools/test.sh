#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run targets of the Makefile that consist of parts, side by side, and print the summary. All parts run to their end,
# also after one failed.
#
#   tests/tools/test.sh TARGET...
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
jobs=${JOBS:-$(($(nproc) + 1))}
rm -rf .lab/logs/test
mkdir -p .lab/logs/test
# Without the environments and packages of `make test` no part can run; the other environments are made where a part
# needs them, and an interpreter that is missing leaves the part out unless CI is set.
packages=setup-test
[[ $* != *full-* ]] || packages=setup-full
tests/tools/part.sh setup 60 make "$packages"
tests/tools/part.sh environments 60 tests/tools/nox.sh --error-on-missing-interpreters -s main newest
make --no-print-directory --keep-going --jobs="$jobs" "$@" &
# make passes a signal on to its parts, which clean up; the summary comes when they have.
trap 'kill -TERM $!' INT TERM HUP
# A part that could not even begin has no result of its own: make's exit status counts, too.
while wait $! && status=0 || status=$?; [ "$status" -gt 128 ] && kill -0 $! 2>/dev/null; do :; done
tests/tools/part.sh --summary || status=1
exit "$status"
