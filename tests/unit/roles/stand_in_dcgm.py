# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for DCGM and dcgm-exporter on a simulated node. NVIDIA's packages are not there; nothing of them runs here.

The stand-in engine reads the simulator's NVML when its unit starts, and keeps what it read until it is started again,
as the real one keeps its view of the driver. The stand-in dcgmi says what that engine knows. The stand-in exporter
serves it over HTTP.

python -m MODULE ROOT engine MODEL      what the unit of the engine starts
python stand_in_dcgm.py ROOT dcgmi ...  the command
python stand_in_dcgm.py ROOT ss ...     who listens: the file `sockets`, and the exporter where its unit is active
"""

from __future__ import annotations

import http.server
import json
import pathlib
import sys
import threading

ENGINE, EXPORTER = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
HOST = "localhost:5555"
STATE, SERVICES, FAULTS = "dcgm.json", "services.json", "exporter-faults.json"
LINE = "+--------+----------------------------------------------------------------------+"
FIELDS = {
    "DCGM_FI_DEV_GPU_TEMP": 41,
    "DCGM_FI_DEV_FB_USED": 512,
    "DCGM_FI_DEV_POWER_USAGE": 71.5,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1000,
}


def active(root, unit):
    return json.loads((root / SERVICES).read_text())["units"].get(unit, [""] * 5)[1] == "active"


def known(root):
    """What the engine read when it started."""
    return json.loads((root / STATE).read_text())


def engine(root, model):
    """Read the simulator, as the engine does at its start."""
    from ansible_collections.gpufleet.lifecycle.tests.unit.roles import (
        simulated_health,
    )  # not there without the checkout

    gpus = simulated_health.w.baseline_of(simulated_health.attach(root, model).reading())["snapshot"]["gpus"]
    found = [
        {
            "uuid": gpu["uuid"]["value"],
            "instances": [one["gpu_instance"] for one in gpu["mig_instances"].get("value") or []],
        }
        for gpu in gpus
    ]
    (root / STATE).write_text(json.dumps(found))


def dcgmi(root, words):
    """The commands that the roles use."""
    if words == ["--version"]:
        print("\ndcgmi  version: %s" % (root / "dcgm-version").read_text().strip())
        return 0
    if words != ["discovery", "--host", HOST, "-l"]:
        print("this stand-in does not know: dcgmi %s" % " ".join(words), file=sys.stderr)
        return 2
    if not active(root, ENGINE):
        print("Error: unable to establish a connection to the specified host: localhost")
        return 255
    gpus = known(root)
    print("%d GPUs found." % len(gpus))
    print("\n".join([LINE, "| GPU ID | Device Information                                                   |", LINE]))
    for index, gpu in enumerate(gpus):
        print("| %-6d | %-68s |" % (index, "Name: stand-in GPU"))
        print("|        | %-68s |" % ("PCI Bus ID: 00000000:%02X:00.0" % index))
        print("|        | %-68s |" % ("Device UUID: " + gpu["uuid"]))
        print(LINE)
    print("0 NvSwitches found.\n+-----------+\n| Switch ID |\n+-----------+\n+-----------+")
    return 0


def ss(root):
    """What `ss -Hltnpe` says; the file `impostor` has a process of a user on the exporter's port."""
    print((root / "sockets").read_text(), end="")
    users = 'LISTEN 0 128 *:%s *:* users:(("dcgm-exporter",pid=9,fd=3)) ' % (root / "exporter-port").read_text()
    if (root / "impostor").exists():
        print(users + "uid:1000 ino:1 sk:1 cgroup:/user.slice/user-1000.slice <->")
    elif active(root, EXPORTER):
        print(users + "ino:1 sk:1 cgroup:/system.slice/%s <->" % EXPORTER)
    return 0


def metrics(gpus, energy, blank=()):
    """What the exporter serves, with its labels, for each MIG instance of a GPU or for the GPU."""
    lines = []
    for field, value in FIELDS.items():
        lines += ["# HELP %s stand-in" % field, "# TYPE %s gauge" % field]
        for index, gpu in enumerate(gpus):
            for instance in gpu["instances"] or [None]:
                more = "" if instance is None else ',GPU_I_PROFILE="1g",GPU_I_ID="%d"' % instance
                number = 9223372036854775794 if field in blank else value
                if field == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" and field not in blank:
                    number += energy
                lines.append(
                    '%s{gpu="%d",UUID="%s",pci_bus_id="00000000:%02X:00.0",device="nvidia%d",'
                    'modelName="stand-in GPU"%s,Hostname="localhost"} %s'
                    % (field, index, gpu["uuid"], index, index, more, number)
                )
    return "\n".join(lines) + "\n"


class Exporter:
    """The stand-in exporter of a node, as long as its unit and the engine's are active.

    Its faults are in a file of the node: a GPU that it does not see, fields without a value, an engine that stands
    still.
    """

    def __init__(self, root):
        self.root, self.scrapes = root, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                text = outer.text() if self.path == "/metrics" else None
                body = (text or "").encode()
                self.send_response(503 if text is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *dummy):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def text(self):
        if not (active(self.root, EXPORTER) and active(self.root, ENGINE)):
            return None
        self.scrapes += 1
        file = self.root / FAULTS
        faults = json.loads(file.read_text()) if file.exists() else {}
        gpus = [gpu for gpu in known(self.root) if gpu["uuid"] != faults.get("blind")]
        return metrics(gpus, 0 if faults.get("stuck") else self.scrapes, faults.get("blank", ()))

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1])
    if sys.argv[2] == "engine":
        engine(place, sys.argv[3])
    else:
        sys.exit(ss(place) if sys.argv[2] == "ss" else dcgmi(place, sys.argv[3:]))
