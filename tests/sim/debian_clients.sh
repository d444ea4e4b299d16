#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Prints the path of a directory with programs of Debian that read GPUs: nvtop, and the NVML plugin of hwloc. Both depend on NVIDIA's
# library and stand in "contrib", which this machine's apt need not have; they are unpacked and not installed, about 70 kB.
set -eu

packages="nvtop libhwloc-contrib-plugins"
# Where this machine has its own packages from. Debian's components lie side by side.
# shellcheck disable=SC2016  # apt's own variables
from=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Identifier: Packages' 'Origin: Debian' 'Component: main' | head -n 1)
if [ -z "$from" ]; then
    echo "$0: apt knows no packages of Debian: run apt-get update on a Debian machine" >&2
    exit 1
fi
uri=${from% *}
release=${from##* }

cache=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet}/debian-clients
built=$cache/$release-$(sha256sum "$0" | cut -c1-16)
if [ ! -f "$built/complete" ]; then
    mkdir -p "$cache"
    fresh=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    mkdir -p "$fresh/lists/partial" "$fresh/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release contrib" > "$fresh/sources.list"
    set -- -qq -o "Dir::Etc::SourceList=$fresh/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$fresh/lists" \
        -o "Dir::Cache=$fresh" -o APT::Sandbox::User= -o Acquire::Languages=none
    apt-get "$@" update >&2
    # shellcheck disable=SC2086  # a list of packages
    (cd "$fresh" && apt-get "$@" download $packages >&2)
    for package in "$fresh"/*.deb; do
        dpkg-deb -x "$package" "$fresh/root"
    done
    touch "$fresh/complete"
    # Another run may have been quicker; both hold the same files.
    mv -T "$fresh" "$built" 2>/dev/null || true
fi
echo "$built/root"
