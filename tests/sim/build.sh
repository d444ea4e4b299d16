#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Usage: build.sh OUTDIR
# Compiles the simulator's C parts into OUTDIR: libnvidia-ml.so.1, libcuda.so.1, libgpusim-uname.so and nvidia-persistenced.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
src=$(cd "$(dirname "$0")/src" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
cc=${CC:-cc}
if ! command -v "$cc" >/dev/null 2>&1; then
    echo "$0: no C compiler ($cc): install gcc and libc6-dev" >&2
    exit 1
fi

work=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
flags="-std=gnu11 -O2 -g0 -Wall -Wextra -Werror -fvisibility=hidden"
# shellcheck disable=SC2086  # a list of flags
"$cc" $flags -fPIC -shared -pthread -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs \
    -o "$work/libnvidia-ml.so.1" "$src"/nvml*.c "$src"/mig_*.c "$src/state.c"
# shellcheck disable=SC2086
"$cc" $flags -O3 -fPIC -shared -pthread -Wl,-soname,libcuda.so.1 -Wl,-z,defs -o "$work/libcuda.so.1" "$src/cuda.c" "$src/state.c"
# shellcheck disable=SC2086
"$cc" $flags -fPIC -shared -Wl,-z,defs -o "$work/libgpusim-uname.so" "$src/uname.c"
# shellcheck disable=SC2086
"$cc" $flags -o "$work/nvidia-persistenced" "$src/persistenced.c" "$src/state.c"
for file in libnvidia-ml.so.1 libcuda.so.1 libgpusim-uname.so nvidia-persistenced; do
    mv -f "$work/$file" "$out/$file"
done
