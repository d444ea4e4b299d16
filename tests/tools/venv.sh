#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Print the path of a ready virtual environment, making it first when it is not there.
#
#   tests/tools/venv.sh NAME              main core218 newest py38 pynewest clients awx dashboards site importer ee
#   tests/tools/venv.sh --interpreter NAME   print the interpreter NAME would use; exit 3 when this machine has none
#   tests/tools/venv.sh --interpreters       print every interpreter that works here, one "MINOR PATH" a line for 3.MINOR
#
# Environments live in $GPUFLEET_CACHE/venv/NAME-DIGEST, where the digest covers the requirements, the lists that they name
# and the interpreter, so a change of any makes a new one and a second checkout shares the first one's. Two callers at once
# wait for each other.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet}

die() {
    echo "venv: $1" >&2
    exit "${2:-1}"
}

# Every CPython this machine offers, one "MINOR PATH" a line for 3.MINOR: the system's, then those on PATH, then pyenv's. Distributions build
# theirs with profile-guided optimisation, and what somebody built without it takes half as long again for the same tests.
interpreters() {
    local candidate real
    {
        local names=(python3 python3.{8..20})
        local found
        for found in /usr/bin/python3 /usr/bin/python3.[0-9]*; do
            if [ -x "$found" ]; then echo "$found"; fi
        done
        for found in "${names[@]}"; do
            type -P "$found" || true
        done
        for found in /usr/local/bin/python3.[0-9]* "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
            if [ -x "$found" ]; then echo "$found"; fi
        done
    } | while read -r candidate; do
        # A pyenv shim exists for versions it will not start, so ask the interpreter, and take its own path.
        real=$("$candidate" -I -c '
import sys
if sys.implementation.name == "cpython" and sys.version_info[0] == 3 and sys.version_info.releaselevel == "final":
    print(sys.version_info[1], getattr(sys, "_base_executable", None) or sys.executable)
' 2>/dev/null) || continue
        if [ -n "$real" ]; then echo "$real"; fi
    done | awk '!seen[$0]++'
}

# pick LOW HIGH first|newest: the first found, or the one of the highest minor version, with LOW <= minor <= HIGH.
pick() {
    interpreters | awk -v low="$1" -v high="$2" -v how="$3" '
        $1 >= low && $1 <= high && (path == "" || (how == "newest" && $1 > minor)) { minor = $1; path = substr($0, length($1) + 2) }
        END { print path }'
}

if [ "${1:-}" = --interpreters ]; then
    interpreters
    exit 0
fi
only_interpreter=false
if [ "${1:-}" = --interpreter ]; then
    only_interpreter=true
    shift
fi
name=${1:-}
requirements=$here/requirements/$name.txt
if [ -z "$name" ] || [ ! -f "$requirements" ]; then
    known=$(cd "$here/requirements" && printf '%s ' *.txt)
    die "unknown environment '$name'; known: ${known//.txt/}" 2
fi

case $name in
    main | core218 | clients | awx | dashboards | importer | site) interpreter=$(pick 11 13 first) wants="Python 3.11 to 3.13" ;;
    ee) # that of awx/execution-environment.yml, if there is one
        interpreter=$(pick 12 12 first)
        interpreter=${interpreter:-$(pick 11 13 first)} wants="Python 3.11 to 3.13"
        ;;
    newest) interpreter=$(pick 11 14 newest) wants="Python 3.11 to 3.14" ;;
    py38) interpreter=$(pick 8 8 first) wants="Python 3.8" ;;
    pynewest) interpreter=$(pick 9 99 newest) wants="Python 3.9 or newer" ;;
    *) die "no rule which interpreter '$name' takes" 2 ;;
esac
if [ -z "$interpreter" ]; then
    die "no interpreter for '$name': wants $wants on PATH, in /usr/bin or among pyenv's versions" 3
fi
if $only_interpreter; then
    echo "$interpreter"
    exit 0
fi

version=$("$interpreter" -I -c 'import sys; print(".".join(map(str, sys.version_info[:3])))')
digest=$({
    echo "$interpreter $version"
    cat "$requirements"
    # Lists that are kept elsewhere, by the lines "-r PATH" that name them from here.
    sed -n 's/^-r //p' "$requirements" | while read -r list; do cat "$here/requirements/$list"; done
} | sha256sum | cut -c1-12)
venv=$cache/venv/$name-$digest
ready=$venv/.ready

if [ ! -e "$ready" ]; then
    mkdir -p "$cache/venv"
    exec 9>"$cache/venv/$name.lock"
    if ! flock -n 9; then
        echo "venv: waiting for another process that makes '$name'" >&2
        flock 9
    fi
    if [ ! -e "$ready" ]; then
        echo "venv: making '$name' with Python $version" >&2
        rm -rf "$venv"
        log=$cache/venv/$name.log
        # An environment cannot be moved once made, so it is made in its place and is only taken for whole when marked.
        # The lock's descriptor is not handed down: a child that outlives this script would hold the lock.
        if ! {
            "$interpreter" -m venv "$venv" \
                && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements"
        } >"$log" 2>&1 9>&-; then
            tail -n 30 "$log" >&2
            rm -rf "$venv"
            die "could not make '$name'; the whole log is $log"
        fi
        touch "$ready"
    fi
fi
echo "$venv"
