# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's rsyslogd and systemd-journal-remote as ordinary processes, each with a directory of its own."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import typing as t

from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring.servers import (
    DEADLINE_S,
    free_port,
    until,
)

RSYSLOGD = "/usr/sbin/rsyslogd"
SYSTEMD = pathlib.Path("/lib/systemd")
# What a node's rsyslog has without the role: where lines come from, and where queues are kept.
NODE = """
global(workDirectory="{0}/spool")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{0}/log" CreatePath="on")
include(file="{0}/60-gpufleet.conf")
*.* action(type="omfile" file="{0}/local")
"""
HOST = """
global(workDirectory="{0}/spool" {2})
module(load="imtcp" {3})
input(type="imtcp" port="{1}" address="127.0.0.1")
template(name="line" type="string" string="%programname%|%msg%\\n")
action(type="omfile" file="{0}/lines" template="line")
"""
HOST_FILES = (
    'defaultNetstreamDriver="gtls" defaultNetstreamDriverCAFile="{ca}" '
    'defaultNetstreamDriverCertFile="{cert}" defaultNetstreamDriverKeyFile="{key}"'
)
HOST_TLS = 'StreamDriver.Name="gtls" StreamDriver.Mode="1" StreamDriver.AuthMode="x509/certvalid"'


@contextlib.contextmanager
def process(command: t.List[str], log: pathlib.Path) -> t.Iterator[subprocess.Popen]:
    with open(str(log), "ab") as stream:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(timeout=DEADLINE_S)


@contextlib.contextmanager
def rsyslogd(base: pathlib.Path, config: str) -> t.Iterator[subprocess.Popen]:
    """Run rsyslogd with CONFIG, which is kept in BASE."""
    (base / "spool").mkdir(parents=True, exist_ok=True)
    (base / "rsyslog.conf").write_text(config, encoding="utf-8")
    command = [RSYSLOGD, "-n", "-iNONE", "-f", str(base / "rsyslog.conf")]
    with process(command, base / "rsyslogd.log") as started:
        yield started


class Host:
    """The host that receives, at one port, whenever it runs."""

    def __init__(self, base: pathlib.Path, certificates: t.Optional[t.Dict[str, str]] = None):
        self.base, self.port = base, free_port()
        files = HOST_FILES.format(**certificates) if certificates else ""
        self.config = HOST.format(base, self.port, files, HOST_TLS if certificates else "")

    @contextlib.contextmanager
    def running(self) -> t.Iterator[None]:
        with rsyslogd(self.base, self.config) as started:
            until(lambda: self.answers(started), "the host does not answer, see %s" % (self.base / "rsyslogd.log"))
            yield

    def answers(self, started: subprocess.Popen) -> bool:
        assert started.poll() is None, (self.base / "rsyslogd.log").read_text(encoding="utf-8")
        with contextlib.closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def lines(self) -> t.List[t.Tuple[str, str]]:
        """(program, message) of each line that arrived."""
        path = self.base / "lines"
        read = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [(program, text.strip()) for program, dummy, text in (line.partition("|") for line in read)]


class Node:
    """A node with the file that the role writes; what is logged with `log` is in `local` too."""

    def __init__(self, base: pathlib.Path, config: str):
        base.mkdir(parents=True, exist_ok=True)
        self.base = base
        (base / "60-gpufleet.conf").write_text(config, encoding="utf-8")

    @contextlib.contextmanager
    def running(self) -> t.Iterator[None]:
        path = self.base / "log"
        path.unlink(missing_ok=True)
        with rsyslogd(self.base, NODE.format(self.base)) as started:
            until(lambda: path.exists() or self.ended(started), "rsyslogd of the node has no socket")
            yield

    def ended(self, started: subprocess.Popen) -> bool:
        assert started.poll() is None, (self.base / "rsyslogd.log").read_text(encoding="utf-8")
        return False

    def log(self, *lines: t.Tuple[int, str, str]) -> None:
        """Log lines of (facility, program, message), as /dev/log takes them."""
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as stream:
            stream.connect(str(self.base / "log"))
            for facility, program, text in lines:
                stream.send(("<%d>Jan  1 00:00:00 %s: %s" % (facility * 8 + 4, program, text)).encode())

    def local(self) -> str:
        path = self.base / "local"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def queued(self) -> t.List[str]:
        return sorted(path.name for path in (self.base / "spool").iterdir())


def certificates(base: pathlib.Path, *names: str) -> t.Dict[str, t.Dict[str, str]]:
    """By name: the paths of a certificate for it, of its key, and of the authority that signed all of them."""
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    authority = ["-keyout", str(base / "ca.key"), "-out", str(base / "ca.pem"), "-subj", "/CN=authority"]
    subprocess.run(["openssl", "req", "-x509", *curve, *authority], check=True, **quiet)
    found = {}
    for name in names:
        request, cert, key = (str(base / (name + end)) for end in (".csr", ".pem", ".key"))
        extension = base / (name + ".ext")
        extension.write_text("subjectAltName=DNS:%s\n" % name, encoding="utf-8")
        subprocess.run(
            ["openssl", "req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=" + name], check=True, **quiet
        )
        signed = ["-CA", str(base / "ca.pem"), "-CAkey", str(base / "ca.key"), "-CAcreateserial"]
        command = ["openssl", "x509", "-req", "-in", request, "-out", cert, "-extfile", str(extension), *signed]
        subprocess.run(command, check=True, **quiet)
        found[name] = {"ca": str(base / "ca.pem"), "cert": cert, "key": key}
    return found
