#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Usage: install.sh ROOT
# Installs the GPU simulator into the root file system of a machine. It never installs into the running system.
set -eu

if [ $# -ne 1 ] || [ ! -d "$1" ]; then
    echo "usage: $0 ROOT (an existing directory)" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$1" && pwd)
if [ "$root" = / ]; then
    echo "$0: refusing to install the simulator into the running system" >&2
    exit 2
fi

# Compiled once per content of the sources.
cache=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet}/sim
digest=$(cat "$here/build.sh" "$here"/src/*.c "$here"/src/*.h | sha256sum | cut -c1-16)
built=$cache/$digest
if [ ! -f "$built/complete" ]; then
    mkdir -p "$cache"
    fresh=$(mktemp -d "$cache/new.XXXXXX")
    "$here/build.sh" "$fresh"
    touch "$fresh/complete"
    # Another installation may have been quicker; both hold the same files.
    mv -T "$fresh" "$built" 2>/dev/null || rm -rf "$fresh"
fi

lib=$root/usr/local/lib/gpusim
install -d -m 0755 "$root/usr/local/lib" "$root/usr/local/sbin" "$root/usr/local/bin" "$root/etc/gpusim" \
    "$root/var/lib/gpusim" "$root/etc/systemd/system/sysinit.target.wants" "$root/etc/apt/apt.conf.d"
rm -rf "$lib"
install -d -m 0755 "$lib/gpusim" "$lib/profiles"
install -m 0644 "$here"/gpusim/*.py "$lib/gpusim/"
install -m 0644 "$here"/main.py "$lib/"
install -m 0644 "$here"/profiles/*.ini "$here/profiles/idle.cfg" "$lib/profiles/"
install -m 0644 "$built/libnvidia-ml.so.1" "$lib/libnvidia-ml.so.1"
install -m 0644 "$built/libgpusim-uname.so" "$lib/libgpusim-uname.so"
install -m 0644 "$built/libnvidia-ml.so.1" "$root/usr/local/lib/libnvidia-ml.so.1"
install -m 0644 "$built/libcuda.so.1" "$root/usr/local/lib/libcuda.so.1"

wrapper() {
    {
        echo '#!/bin/sh'
        echo '# GPU simulator: see /usr/local/lib/gpusim'
        echo "exec /usr/bin/python3 -I -B /usr/local/lib/gpusim/main.py $2 \"\$@\""
    } > "$1"
    chmod 0755 "$1"
}
for name in gpusim modprobe rmmod; do
    wrapper "$root/usr/local/sbin/$name" "$name"
done
for name in nvidia-smi lsmod; do
    wrapper "$root/usr/local/bin/$name" "$name"
done

# The package's own daemon needs hardware: it goes aside, whenever it comes.
divert="dpkg-divert --quiet --local --no-rename --divert /usr/bin/nvidia-persistenced.real"
if [ -d "$root/var/lib/dpkg" ]; then
    # Without the diversion, a daemon that is there is the package's.
    if [ -e "$root/usr/bin/nvidia-persistenced" ] && ! grep -qsxF /usr/bin/nvidia-persistenced.real "$root/var/lib/dpkg/diversions"; then
        mv "$root/usr/bin/nvidia-persistenced" "$root/usr/bin/nvidia-persistenced.real"
    fi
    # shellcheck disable=SC2086  # a command and its options
    $divert --root "$root" --add /usr/bin/nvidia-persistenced
fi
install -D -m 0755 "$built/nvidia-persistenced" "$root/usr/bin/nvidia-persistenced"

install -m 0644 "$here/gpusim-boot.service" "$root/etc/systemd/system/gpusim-boot.service"
ln -sfn ../gpusim-boot.service "$root/etc/systemd/system/sysinit.target.wants/gpusim-boot.service"

# The fabric manager of nodes with NVSwitches, and what it starts on boards with NVLink 5.
install -D -m 0755 "$here/nvlsm" "$root/opt/nvidia/nvlsm/sbin/nvlsm"
install -m 0755 "$here/nv-fabricmanager" "$root/usr/local/bin/nv-fabricmanager"
install -D -m 0644 "$here/nvidia-fabricmanager.service" "$root/usr/local/lib/systemd/system/nvidia-fabricmanager.service"
install -d -m 0755 "$root/etc/systemd/system/multi-user.target.wants"
ln -sfn /usr/local/lib/systemd/system/nvidia-fabricmanager.service "$root/etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service"

# Which functions the NVML library has follows from the driver package: looked at again after each package run.
cat > "$root/etc/apt/apt.conf.d/99gpusim" <<'END'
DPkg::Post-Invoke { "if [ -x /usr/local/sbin/gpusim ]; then /usr/local/sbin/gpusim library --quiet || true; fi"; };
END

ldconfig -r "$root"
# Last, so that no process starts with half of it.
touch "$root/etc/ld.so.preload"
if ! grep -qxF /usr/local/lib/gpusim/libgpusim-uname.so "$root/etc/ld.so.preload"; then
    echo /usr/local/lib/gpusim/libgpusim-uname.so >> "$root/etc/ld.so.preload"
fi
