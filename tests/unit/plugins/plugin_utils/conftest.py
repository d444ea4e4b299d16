# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ledgers on both databases: SQLite in a file, and a PostgreSQL server of the tests' own."""

from __future__ import annotations

import glob
import importlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import pytest


class Server:
    """A PostgreSQL server on a socket of its own; it refuses to run as root, so root lends it a user."""

    def __init__(self, binaries, base):
        self.binaries = binaries
        self.base = base
        self.data = os.path.join(base, "data")
        self.process = None
        self.as_user = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(base, user.pw_uid, user.pw_gid)
            self.as_user = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
        self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")

    def _run(self, program, *arguments):
        subprocess.run(
            self.as_user + [os.path.join(self.binaries, program)] + list(arguments),
            check=True,
            cwd=self.base,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def start(self):
        command = [
            os.path.join(self.binaries, "postgres"),
            "-D",
            self.data,
            "-k",
            self.base,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]
        self.process = subprocess.Popen(
            self.as_user + command, cwd=self.base, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 600
        while subprocess.run(
            [os.path.join(self.binaries, "pg_isready"), "-q", "-h", self.base], check=False
        ).returncode:
            assert time.monotonic() < until and self.process.poll() is None, "the PostgreSQL server did not start"
            time.sleep(0.1)

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGINT)  # a fast shutdown: clients are cut off
            self.process.wait(timeout=600)
            self.process = None

    def database(self, name):
        """The URL of an empty place for a ledger: a schema of its own, as a new database is a copy of seven megabytes
        each time.
        """
        psycopg = importlib.import_module("psycopg")
        with psycopg.connect(host=self.base, user="postgres", autocommit=True) as connection:
            connection.execute("CREATE SCHEMA %s" % name)
        return "postgresql+psycopg://postgres@/postgres?host=%s&options=-csearch_path%%3D%s" % (self.base, name)


@pytest.fixture(scope="session")
def postgresql():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    assert found, "no PostgreSQL server is installed: run make setup-test"
    base = tempfile.mkdtemp(prefix="gpufleet-pg-")
    server = None
    try:
        server = Server(found[-1], base)
        server.start()
        yield server
    finally:
        if server:
            server.stop()
        shutil.rmtree(base)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    """The kind of database that the ledger of a test has."""
    return request.param


@pytest.fixture
def url(request, database, tmp_path):
    """The URL of an empty ledger."""
    if database == "sqlite":
        return "sqlite:///%s" % (tmp_path / "rollouts" / "ledger.sqlite")
    server = request.getfixturevalue("postgresql")
    return server.database("t%d" % time.monotonic_ns())
