#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run one part of the tests and record its result.
#
#   tests/tools/part.sh NAME MINUTES COMMAND...     run a command, at most so long; its output goes to .lab/logs/test/NAME.log
#   tests/tools/part.sh --summary                   print the time of each part and the failed tests; fail if a part failed
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
logs=.lab/logs/test

summary() {
    local name status seconds failed=0 passed_tests=0 failed_tests=0 counted
    printf '\n%-16s %8s  %s\n' part seconds result
    # A part that began and was killed has left no result.
    for name in "$logs"/*.started; do
        name=$(basename "$name" .started)
        [ -e "$logs/$name.result" ] || echo "$name killed 0" >"$logs/$name.result"
    done
    while read -r name status seconds; do
        counted=$(grep -aE '^(=+ )?[0-9]+ (passed|failed|error).* in [0-9.]+s' "$logs/$name.log" 2>/dev/null | tail -n 1 | tr -d '=' || true)
        passed_tests=$((passed_tests + $(grep -oE '[0-9]+ passed' <<<"$counted" | cut -d' ' -f1 || true) + 0))
        failed_tests=$((failed_tests + $(grep -oE '[0-9]+ (failed|error)' <<<"$counted" | cut -d' ' -f1 | paste -sd+ || true) + 0))
        if [ "$status" = 0 ]; then
            printf '%-16s %8d  passed  %s\n' "$name" "$seconds" "$counted"
        else
            failed=$((failed + 1))
            [ "$status" != 124 ] || status="its time limit"
            printf '%-16s %8d  FAILED  (%s) %s\n' "$name" "$seconds" "$status" "$counted"
        fi
    done < <(sort "$logs"/*.result)
    echo
    grep -ahE '^(FAILED|ERROR) ' "$logs"/*.log || true
    # A part without tests of its own counts as one.
    [ "$failed" = 0 ] || [ "$failed_tests" != 0 ] || failed_tests=$failed
    echo "$passed_tests passed, $failed_tests failed"
    [ "$failed" = 0 ]
}

if [ "$1" = --summary ]; then
    summary
    exit
fi

name=$1 minutes=$2
shift 2
mkdir -p "$logs"
log=$logs/$name.log
started=$SECONDS
touch "$logs/$name.started" "$log"
status=130
# shellcheck disable=SC2317 # called by the trap
finish() {
    echo "$name $status $((SECONDS - started))" >"$logs/$name.result"
    if [ "$status" = 0 ]; then
        echo "  passed  $name, $((SECONDS - started)) s"
        grep -aiE 'interpreters? .*not found' "$log" | sed 's/^/    not run: /' || true # what nox says of a session it skips
    else
        echo "  FAILED  $name after $((SECONDS - started)) s; the last lines of $log:"
        tail -n 60 "$log" | sed 's/^/    /'
    fi
}
trap finish EXIT
echo "  start   $name"
child=
trap '[ -z "$child" ] || kill -TERM "$child"' INT TERM HUP
# timeout puts the command into a process group of its own, passes signals on to it, and kills it if it stays.
timeout --kill-after=60 "${minutes}m" "$@" >"$log" 2>&1 </dev/null &
child=$!
# After a signal wait returns at once, and the command still cleans up.
while wait "$child" && status=0 || status=$?; [ "$status" -gt 128 ] && kill -0 "$child" 2>/dev/null; do :; done
exit "$status"
