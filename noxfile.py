# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environments of the checkout: a session runs a command in the environment of its name.

tests/tools/nox.sh -s main -- ansible-playbook ...

An environment is made at its first use from tests/tools/requirements/NAME.txt. All of them lie in the cache, in a
directory named after the digest of these lists, so that a change of any list makes new ones and two checkouts with the
same lists share them.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil

import nox

ROOT = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = ROOT / "tests" / "tools" / "requirements"
CACHE = pathlib.Path(
    os.environ.get("GPUFLEET_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gpufleet"
)
# The Python versions that an environment may have, the preferred one first.
CONTROLLER = ("3.11", "3.12", "3.13")
PYTHONS = {
    "main": CONTROLLER,
    "core218": CONTROLLER,
    "newest": ("3.13", "3.14", "3.12"),
    "py38": ("3.8",),
    "pynewest": ("3.14", "3.13", "3.12"),
    "site": CONTROLLER,
    "ee": ("3.12", "3.11", "3.13"),
    "awx": CONTROLLER,
    "release": CONTROLLER,
    "importer": CONTROLLER,
}


def search_path() -> str:
    """Return PATH with pyenv's interpreters last, and without its shims, which refuse versions that are not active."""
    own = [entry for entry in os.environ["PATH"].split(os.pathsep) if not entry.endswith(".pyenv/shims")]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    return os.pathsep.join([*own, *(str(path) for path in sorted(pyenv.glob("versions/3.*/bin")))])


def requirements_digest() -> str:
    """Return a short digest of all lists of requirements, those that they include among them."""
    files = [*sorted(REQUIREMENTS.glob("*.txt")), ROOT / "meta" / "ee-requirements.txt"]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def add_session(name: str, versions: tuple[str, ...]) -> None:
    """Register the session of one environment. Its Python is the first of the versions that is installed."""
    version = next((version for version in versions if shutil.which("python" + version)), versions[0])

    @nox.session(name=name, python=version, venv_backend="venv")
    def run_command(session: nox.Session) -> None:
        session.install("--quiet", "-r", str(REQUIREMENTS / (name + ".txt")))
        if session.posargs:
            session.run(*session.posargs, external=True)


os.environ["PATH"] = search_path()
nox.options.envdir = str(CACHE / "nox" / requirements_digest())
nox.options.reuse_venv = "yes"
nox.options.sessions = ["main"]
for session_name, accepted in PYTHONS.items():
    add_session(session_name, accepted)
