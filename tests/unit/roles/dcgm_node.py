# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated nodes with the stand-ins for DCGM and dcgm-exporter."""

from __future__ import annotations

import pathlib
import sys

from ansible_collections.gpufleet.lifecycle.tests.unit.roles import simulated_node, stand_in_dcgm

ENGINE, EXPORTER = stand_in_dcgm.ENGINE, stand_in_dcgm.EXPORTER
STOPPED = ("loaded", "inactive", "dead", "success", "disabled")
ABSENT = ("not-found", "inactive", "dead", "success", "")
MODULE = stand_in_dcgm.__name__
FREE = 'LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=7,fd=3))\n'


class DcgmNode(simulated_node.SimulatedNode):
    """A node that has the packages, none of whose units was started yet."""

    def __init__(self, base, world):
        super().__init__(base, world, ["nvidia_dcgm", "nvidia_dcgm_exporter"])
        python, checkout = sys.executable, self.base / "checkout"
        self.program("dcgmi", 'exec "%s" -I -S "%s" "%s" dcgmi "$@"' % (python, stand_in_dcgm.__file__, self.root))
        self.program("ss", 'exec "%s" -I -S "%s" "%s" ss' % (python, stand_in_dcgm.__file__, self.root))
        self.program("podman", "echo podman version 4.9.3")
        self.program("docker", "echo Docker version 27.3.1, build 1")
        (self.root / "on-start").mkdir()
        (self.root / "on-start" / ENGINE).write_text(
            'cd "%s" && PYTHONPATH="%s" exec "%s" -m %s "%s" engine %s\n'
            % (simulated_node.ROOT, checkout, python, MODULE, self.root, world.model)
        )
        (self.root / "sockets").write_text(FREE)
        (self.root / "etc").mkdir(exist_ok=True)
        (self.root / "run").mkdir(exist_ok=True)
        self.dcgm("4.5.3")
        self.unit(ENGINE, *STOPPED)
        self.unit(EXPORTER, *STOPPED)
        self.exporter = stand_in_dcgm.Exporter(self.root)
        (self.root / "exporter-port").write_text(str(self.exporter.port))

    def dcgm(self, version):
        """Which version the stand-in dcgmi says it is."""
        (self.root / "dcgm-version").write_text(version)

    def file(self, name):
        return self.root / name

    def variables(self):
        root = pathlib.Path(str(self.root))
        return {
            "nvidia_dcgm_install": False,
            "nvidia_dcgm_retries": 1,
            "nvidia_dcgm_delay": 0,
            "nvidia_dcgm_exporter_install": False,
            "nvidia_dcgm_exporter_bind": "127.0.0.1",
            "nvidia_dcgm_exporter_port": self.exporter.port,
            "nvidia_dcgm_exporter_interval": 1,
            "nvidia_dcgm_exporter_retries": 1,
            "nvidia_dcgm_exporter_delay": 0,
            "__nvidia_dcgm_units": str(root / "etc/systemd/system"),
            "__nvidia_dcgm_mark": str(root / "run/dcgm-restart"),
            "__nvidia_dcgm_exporter_units": str(root / "etc/systemd/system"),
            "__nvidia_dcgm_exporter_quadlets": str(root / "etc/containers/systemd"),
            "__nvidia_dcgm_exporter_csv": str(root / "etc/dcgm-exporter/gpufleet-counters.csv"),
            "__nvidia_dcgm_exporter_table": str(root / "etc/dcgm-exporter/gpufleet-gpus"),
            "__nvidia_dcgm_exporter_tmpfiles": str(root / "run/tmpfiles.conf"),
            "nvidia_dcgm_exporter_prolog_dir": str(root / "etc/prolog.d"),
            "nvidia_dcgm_exporter_epilog_dir": str(root / "etc/epilog.d"),
            "__nvidia_dcgm_exporter_mark": str(root / "run/dcgm-exporter-restart"),
        }

    def both(self, *options):
        """Both roles in one run."""
        names = ["gpufleet.lifecycle.nvidia_dcgm", "gpufleet.lifecycle.nvidia_dcgm_exporter"]
        tasks = [{"ansible.builtin.include_role": {"name": name}} for name in names]
        return self.run(tasks, *options, **self.variables())

    def write(self, name, content):
        """A task that writes a file of the node."""
        return {"ansible.builtin.copy": {"content": content, "dest": str(self.root / name)}}

    def case(self, role, *before, tasks_from="main", **variables):
        """A role with what is done before it."""
        return [*before, self.include(role, tasks_from, **dict(self.variables(), **variables))]

    def close(self):
        self.exporter.close()
        super().close()
