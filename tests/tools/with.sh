#!/usr/bin/env bash
# Run a command in one of the checkout's environments:   tests/tools/with.sh main ansible-playbook ...
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$("$here/venv.sh" "$1")
shift
export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
exec "$@"
