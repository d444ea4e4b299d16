# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation of the checkout as a site in .lab/site/html. Nothing is downloaded.

tests/tools/nox.sh -s site -- python3 -m tests.tools.website

antsibull-docs checks the documentation of plugins and roles and renders it as the reference. Sphinx builds the pages of
the repository with it; every warning is an error, such as a page that is not in the tree of contents. So is a page that
loads something from another host.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

from tests.tools.common import COLLECTION, ROOT, collections_path, copy_checkout
from tests.tools.website import resources

SITE = ROOT / ".lab" / "site"
SOURCE = SITE / "source"
HTML = SITE / "html"
HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.prefix) / "bin"


def copy_sources() -> None:
    """Copy the checkout to a directory for Sphinx, so that the links between pages and to files hold."""
    shutil.rmtree(SITE, ignore_errors=True)
    copy_checkout(SOURCE)
    shutil.copyfile(HERE / "index.md", SOURCE / "index.md")


def run_antsibull_docs(*arguments: str) -> int:
    """Run antsibull-docs on this checkout and return its exit status."""
    path = os.pathsep.join((str(BIN), os.environ["PATH"]))
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=collections_path(), ANSIBLE_NOCOLOR="1", PATH=path)
    return subprocess.call([str(BIN / "antsibull-docs"), *arguments], cwd=str(SITE), env=environment)


def lint_plugin_docs() -> int:
    """Check markup and references in the documentation of plugins and roles; return the exit status."""
    place = pathlib.Path(collections_path(), "ansible_collections", *COLLECTION)
    options = ("--plugin-docs", "--validate-collection-refs", "self", "--skip-rstcheck")
    return run_antsibull_docs("lint-collection-docs", *options, str(place))


def write_reference() -> int:
    """Write the reference of modules, other plugins and roles; return the exit status."""
    place = SOURCE / "reference"
    # antsibull-docs refuses a directory that others may write to.
    place.mkdir(mode=0o755)
    options = ("--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", str(place))
    return run_antsibull_docs("collection", *options, ".".join(COLLECTION))


def build_html() -> int:
    """Run Sphinx and return its exit status."""
    options = ["-b", "html", "-c", str(HERE), "-d", str(SITE / "doctrees"), "-q", "-W", "--keep-going"]
    command = [sys.executable, "-m", "sphinx", *options, str(SOURCE), str(HTML)]
    return subprocess.call(command, env=dict(os.environ, PYTHONPATH=str(ROOT)))


def find_remote_resources() -> list[str]:
    """Return a message for each address on another host that a built page or style sheet loads."""
    finders = {".html": resources.find_in_page, ".css": resources.find_in_style}
    return [
        "{0} loads {1} from another host.".format(path.relative_to(HTML), address)
        for path in sorted(HTML.rglob("*"))
        if path.suffix in finders
        for address in finders[path.suffix](path.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Build the site; return the exit status."""
    copy_sources()
    if lint_plugin_docs() != 0 or write_reference() != 0 or build_html() != 0:
        return 1
    messages = find_remote_resources()
    print("\n".join(messages) or "The site begins at {0}.".format((HTML / "index.html").relative_to(ROOT)))
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
