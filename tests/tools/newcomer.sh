#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Follow README.md's section Install in an empty home: a virtual environment with the packages that it names and no
# other, the tarball installed from its file, the documentation read, and this machine looked at with precheck, which
# changes nothing. Run it after `make build`. HOME is a new directory that is removed at the end.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tarball=$(sed -n 's/.*ansible-galaxy collection install \(\S*\.tar\.gz\)$/\1/p' "$root/README.md")
packages=$(sed -n "s/^pip install //p" "$root/README.md" | tr -d "'")

pip_settings=${PIP_CONFIG_FILE:-/dev/null}
for file in "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf"; do
    [ -n "${PIP_CONFIG_FILE:-}" ] || [ ! -f "$file" ] || pip_settings=$file
done
for name in $(compgen -e | grep -E '^(ANSIBLE|GPUFLEET|VIRTUAL_ENV|PYTHON)'); do unset "$name"; done
export HOME=$work/home PIP_CONFIG_FILE=$pip_settings PATH=$work/venv/bin:$PATH
mkdir "$HOME"
cd "$HOME"
python3 -m venv "$work/venv"
read -ra words <<<"$packages"
pip install --quiet --disable-pip-version-check "${words[@]}"
ansible-galaxy collection install "$root/$tarball"
sed -n '/^```ini$/,/^```$/p' "$root/README.md" | sed '/^```/d' >ansible.cfg
ansible-doc --list gpufleet.lifecycle | sed -n 's/^/  /p'
ansible-doc -t role gpufleet.lifecycle.nvidia_driver >role.txt
grep -q nvidia_driver_version role.txt

# The commands of the section Use, over the inventory of the section Install: which hosts each would take.
sed -n '/^```yaml$/,/^```$/p' "$root/README.md" | sed '/^```/d' >fleet.yml
grep -o '`ansible-playbook -i inventory [^`]*`' "$root/README.md" | tr -d '`' >commands
[ "$(wc -l <commands)" -ge 5 ]
while read -ra words; do
    words[2]=fleet.yml
    "${words[@]}" --list-hosts >hosts.txt </dev/null
    grep -q gpu-a-1 hosts.txt
    echo "newcomer: ${words[*]}"
done <commands

become=true
[ "$(id -u)" != 0 ] || become=false
cat >inventory <<INVENTORY
[gpu_nodes]
newcomer ansible_connection=local ansible_python_interpreter=$work/venv/bin/python ansible_become=$become
INVENTORY
# A machine without a GPU does not pass, and one with GPUs may: the verdict in the report is what counts.
ansible-playbook -i inventory gpufleet.lifecycle.precheck || true
python3 - .gpufleet/precheck/report.json <<'CHECK'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as stream:
    node = json.load(stream)["nodes"]["newcomer"]
assert node["state"] == "judged" and node["verdict"] in ("pass", "fail", "unknown"), node
print("newcomer: judged, %s" % node["verdict"])
CHECK
