#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Prints the path of a directory with programs of Debian that read GPUs. They are unpacked and not installed. nvtop and the NVML plugin
# of hwloc depend on NVIDIA's library and stand in "contrib", which this machine's apt need not have. The btop of Debian 12 reads no GPUs;
# that of Debian 13 lies below trixie/, with the C and C++ libraries that it needs.
set -eu

# Where this machine has its own packages from. Debian's components lie side by side.
# shellcheck disable=SC2016  # apt's own variables
from=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Identifier: Packages' 'Origin: Debian' 'Component: main' | head -n 1)
if [ -z "$from" ]; then
    echo "$0: apt knows no packages of Debian: run apt-get update on a Debian machine" >&2
    exit 1
fi
uri=${from% *}
release=${from##* }

# Unpacks packages: RELEASE COMPONENT DIRECTORY PACKAGE...
unpack() {
    work=$fresh/$1
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $1 $2" > "$fresh/$1.list"
    directory=$fresh/$3
    shift 3
    mkdir -p "$work/lists/partial" "$work/archives/partial"
    options="-qq -o Dir::Etc::SourceList=$work.list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=$work/lists -o Dir::Cache=$work \
        -o APT::Sandbox::User= -o Acquire::Languages=none"
    # shellcheck disable=SC2086  # a list of options, without spaces in any
    apt-get $options update >&2
    # shellcheck disable=SC2086
    (cd "$work" && apt-get $options download "$@" >&2)
    for package in "$work"/*.deb; do
        dpkg-deb -x "$package" "$directory"
    done
    rm -rf "$work"
}

cache=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet}/debian-clients
built=$cache/$release-$(sha256sum "$0" | cut -c1-16)
if [ ! -f "$built/complete" ]; then
    mkdir -p "$cache"
    fresh=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    unpack "$release" contrib root nvtop libhwloc-contrib-plugins
    unpack trixie main root/trixie btop libc6 libstdc++6 libgcc-s1
    touch "$fresh/complete"
    # Another run may have been quicker; both hold the same files.
    mv -T "$fresh" "$built" 2>/dev/null || true
fi
echo "$built/root"
