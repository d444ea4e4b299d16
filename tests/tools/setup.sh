#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Install the Debian packages of these lists that the machine lacks. Prints and changes nothing when all are installed.
# A service that comes with them is neither started nor enabled; services that were there before keep their state.
#
#   tests/tools/setup.sh [LIST...]      default: tests/lab/host-packages.txt
#
# While apt runs, /usr/sbin/policy-rc.d denies the start of new services. It holds the names of the services that were
# there before. A run that was killed leaves it behind: it denies nothing once apt has ended, and the next run removes it.
# SETUP_ROOT is put before these paths in tests.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lists=("$@")
[ $# -gt 0 ] || lists=("$here/../lab/host-packages.txt")
policy=${SETUP_ROOT:-}/usr/sbin/policy-rc.d
kept=$policy.before-gpufleet
lock=$(dirname "$policy") # a lock on the directory leaves no file
mark="# Written by tests/tools/setup.sh of gpufleet.lifecycle"

mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "${lists[@]}" | sort -u)

# Print the wanted packages that are not installed.
find_missing() {
    local package status
    for package in "${wanted[@]}"; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || echo "$package"
    done
}

apt() {
    DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends "$@" >&2
}

# Print the unit files of a state as systemctl counts them, without running systemd too.
list_units() {
    ! command -v systemctl >/dev/null 2>&1 || systemctl list-unit-files --no-legend --plain "$@" | sed 's/[[:space:]].*//'
}

deny_new_services() {
    {
        cat <<'POLICY'
#!/bin/sh
POLICY
        cat <<POLICY
$mark
# for the time of an installation, to keep new services from starting. The services below were there before.
lock="$lock" kept="$kept"
POLICY
        cat <<'POLICY'
for name; do case $name in -*) ;; *) break ;; esac; done
name=$(echo "${name%.service}" | sed 's/@.*/@/')
if ! flock --nonblock "$lock" true && ! grep -qxF -e "$name" -e "$name.service" "$0"; then exit 101; fi
if [ -x "$kept" ]; then exec "$kept" "$@"; fi
exit 0
POLICY
        list_units
        ls "${SETUP_ROOT:-}/etc/init.d" 2>/dev/null || true
    } >"$policy.new"
    chmod 755 "$policy.new"
    rm -rf "$kept" "$kept.new"
    if [ -e "$policy" ] || [ -L "$policy" ]; then
        cp -a "$policy" "$kept.new"
        mv -f "$kept.new" "$kept"
    fi
    mv -f "$policy.new" "$policy"
}

# Disable the services that the installation enabled, and restore the machine's own policy.
finish() {
    grep -qsF "$mark" "$policy" || return 0
    local new=() unit now=()
    while read -r unit; do
        grep -qxF -e "$unit" "$policy" || new+=("$unit")
    done < <(list_units --state=enabled)
    [ ! -d "${SETUP_ROOT:-}/run/systemd/system" ] || now=(--now)
    [ ${#new[@]} -eq 0 ] || systemctl disable --quiet "${now[@]}" "${new[@]}" >&2
    if [ -e "$kept" ] || [ -L "$kept" ]; then
        mv -f "$kept" "$policy"
    else
        rm -f "$policy"
    fi
}

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is not a Debian machine (no dpkg-query); install the equivalents of: ${wanted[*]}" >&2
    exit 1
fi
mapfile -t missing < <(find_missing)
[ ${#missing[@]} -gt 0 ] || grep -qsF "$mark" "$policy" || exit 0

if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup: not root and no sudo here; as root run: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    exec sudo bash "${BASH_SOURCE[0]}" "${lists[@]}"
fi

exec 9<"$lock" # apt-get inherits it, and the policy denies as long as it is held
flock 9
trap 'exit 130' INT
trap 'exit 143' TERM HUP
trap finish EXIT
finish # of a run that was killed
mapfile -t missing < <(find_missing)
[ ${#missing[@]} -gt 0 ] || exit 0
echo "setup: installing ${missing[*]}" >&2
deny_new_services
if ! apt install "${missing[@]}"; then
    echo "setup: trying again with fresh package lists" >&2
    apt update
    apt install "${missing[@]}"
fi
