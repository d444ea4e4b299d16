# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several versions of nvidia-ml-py side by side, each unpacked once into the cache."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# The oldest that is supported, and the newest that was tried.
VERSIONS = ("12.535.133", "13.615.71")
_number = itertools.count()


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(os.environ.get("GPUFLEET_CACHE") or os.path.join(base, "gpufleet"))


def path(version):
    """The directory with pynvml.py of VERSION."""
    place = cache() / "wheels" / version
    if not (place / "pynvml.py").is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=str(place.parent))
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--no-compile",
                "--target",
                fresh,
                "nvidia-ml-py==" + version,
            ],
            check=True,
        )
        try:
            os.rename(fresh, str(place))
        except OSError:
            shutil.rmtree(fresh)  # another test run was first
    return place


def load(version):
    """A fresh copy of the binding, which shares no state with another."""
    name = "pynvml_%s_%d" % (version.replace(".", "_"), next(_number))
    spec = importlib.util.spec_from_file_location(name, str(path(version) / "pynvml.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
