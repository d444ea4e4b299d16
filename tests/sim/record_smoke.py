# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what the test of GPUs at work (gpu_smoke) measures on real GPUs, as a fixture the simulator's profiles are
compared with.

It runs the collection's own code with the machine's own NVML binding. It writes to the GPUs' free memory, changes no
setting, and leaves nothing behind but its output. UUIDs are replaced by values of the same shape.

Usage: ``python3 -m tests.sim.record_smoke OUT.json [LEVEL]`` (needs nvidia-ml-py, a loaded driver and idle GPUs; LEVEL
defaults to t1).
"""

from __future__ import annotations

import json
import pathlib
import re
import sys

from .record import masked

PLUGINS = pathlib.Path(__file__).resolve().parents[2] / "plugins"


def record(level, library_path=None):
    """The document of one run, without what identifies the machine."""
    sys.path.insert(0, str(PLUGINS))
    try:
        from module_utils._node.runner import Runner
        from module_utils._smoke import run
    finally:
        sys.path.remove(str(PLUGINS))
    document, snapshot = run.take(level=level, runner=Runner(), library_path=library_path)
    if document["status"] != "ok":
        raise SystemExit("nothing was recorded: %s" % (document["message"] or snapshot["message"],))
    document["boot_id"] = None
    return json.loads(masked(json.dumps({"schema": "gpufleet.recording-smoke/1", "smoke": document}, sort_keys=True)))


def main(arguments):
    if not 1 <= len(arguments) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    document = record(*(arguments[1:] or ["t1"]))
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    with open(arguments[0], "w", encoding="utf-8") as stream:
        # A line for each test of a GPU.
        stream.write(re.sub(r"\n {5}\}", " }", re.sub(r"\n {6,}", " ", text)))
    return 0 if all(gpu["state"] == "tested" for gpu in document["smoke"]["gpus"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
