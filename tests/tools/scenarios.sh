#!/usr/bin/env bash
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run scenarios of molecule one after the other on machines that the scenario `default` makes, in the environment main.
#
#   tests/tools/scenarios.sh [SCENARIO...]      default: all
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# Molecule's notes on its machines; otherwise in the home directory, where two checkouts share them.
export MOLECULE_EPHEMERAL_DIRECTORY=$PWD/.lab/molecule MOLECULE_GLOB='molecule/*/molecule.yml' NO_COLOR=1
scenarios=("$@")
if [ ${#scenarios[@]} = 0 ]; then
    mapfile -t scenarios < <(grep -L '^# nodes: none' molecule/*/molecule.yml | cut -d/ -f2 | grep -vx default)
fi
# The pattern of the machines to start beside those of `default`: each scenario has a group of its name.
GPUFLEET_SCENARIO_HOSTS=$(IFS=:; echo "${scenarios[*]}")
export GPUFLEET_SCENARIO_HOSTS
part=tests/tools/part.sh
trap '$part molecule-destroy 15 molecule destroy -s default' EXIT
$part drivers 90 python3 -m tests.lab drivers --inventory inventories/lab
for scenario in "${scenarios[@]}"; do
    case $scenario in
        trixie) $part drivers-trixie 90 python3 -m tests.lab drivers --suite trixie ;;
        schedulers) $part apiserver 90 python3 -m tests.lab apiserver ;;
    esac
done
molecule destroy -s default >/dev/null 2>&1
$part molecule-create 45 bash -c 'molecule create -s default && molecule prepare -s default'
failed=0
$part molecule-default 45 molecule verify -s default || failed=1
for scenario in "${scenarios[@]}"; do
    $part "molecule-$scenario" 70 molecule test -s "$scenario" --destroy=never || failed=1
done
exit $failed
