# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-test sanity on a copy of what the checkout releases.

tests/tools/nox.sh -s newest -- python -m tests.tools.sanity [ARGUMENT...]

ansible-test follows links and wants the collection to lie at .../ansible_collections/gpufleet/lifecycle, so it works on
a copy under the cache directory. Its own environments live there too, not in the user's home. They need a script that
installs pip, which ansible-test would fetch from a host of its own; an equal one is put in its place, made from
Python's own ensurepip.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

from tests.tools.common import COLLECTION, ROOT, cache_root, checkout_digest, copy_checkout

GET_PIP = '''\
"""Install the asked-for pip into this environment, from the one Python carries."""
import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                      + [word for word in sys.argv[1:] if word.startswith("pip==")])
'''


def pip_versions(environment):
    """The versions of pip that this ansible-test wants in its environments."""
    (source,) = environment.glob("lib/python3.*/site-packages/ansible_test/_internal/python_requirements.py")
    found = sorted(set(re.findall(r"\bpip=['\"]([0-9][0-9.]*)['\"]", source.read_text(encoding="utf-8"))))
    if not found:
        raise RuntimeError("{0} names no pip version: this ansible-test is laid out in another way".format(source))
    return found


def prepare_home(home, environment):
    """Give ansible-test a home of its own with the scripts it would otherwise download."""
    scripts = home / ".ansible" / "test" / "cache"
    scripts.mkdir(parents=True, exist_ok=True)
    for version in pip_versions(environment):
        (scripts / "get_pip_{0}.py".format(version.replace(".", "_"))).write_text(GET_PIP, encoding="utf-8")


def child_environment(home, environment):
    """The environment variables for ansible-test: its own home, but the user's Pythons and package index settings."""
    real_home = pathlib.Path(os.path.expanduser("~"))
    values = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    values["HOME"] = str(home)
    values["PATH"] = os.pathsep.join([str(environment / "bin"), values["PATH"]])
    for settings in (real_home / ".config" / "pip" / "pip.conf", real_home / ".pip" / "pip.conf"):
        if settings.is_file():
            values.setdefault("PIP_CONFIG_FILE", str(settings))
    return values


def main(arguments):
    """Run ansible-test of this environment and return its exit status."""
    environment = pathlib.Path(sys.prefix)
    place = cache_root() / "ansible-test" / checkout_digest() / environment.name
    home = cache_root() / "ansible-test" / ("home-" + environment.name)
    place.mkdir(parents=True, exist_ok=True)
    with open(str(place / "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = copy_checkout(place.joinpath("ansible_collections", *COLLECTION))
        shutil.rmtree(str(target / "tests"))  # no part of what is released; ruff checks it
        prepare_home(home, environment)
        print("sanity: {0} on a copy of {1}".format(environment.name, ROOT), flush=True)
        command = [str(environment / "bin" / "ansible-test"), "sanity", "--local", "--color", "no", *arguments]
        return subprocess.call(command, cwd=str(target), env=child_environment(home, environment))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
