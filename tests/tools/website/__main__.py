# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation as a site below .lab/site/html, from what is in the checkout.

tests/tools/with.sh site python3 -m tests.tools.website

The pages of the repository are copied as they lie, so that the links between them hold; antsibull-docs checks the
documentation of plugins and roles and writes the reference of the collection from it; Sphinx builds all of it and takes
a warning, such as a link that leads nowhere, for an error. Pages that would load something from another host are an
error, too. Nothing is fetched.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import yaml

from tests.tools.common import COLLECTION, ROOT, collections_path, tracked_files
from tests.tools.website import contents, resources

SITE = ROOT / ".lab" / "site"
SOURCE = SITE / "source"
HTML = SITE / "html"
HERE = pathlib.Path(__file__).resolve().parent
ANTSIBULL = str(pathlib.Path(sys.prefix) / "bin" / "antsibull-docs")


def pages(listed, files):
    """Return path and text of each page that Sphinx reads, but for the reference."""
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    made = contents.lists(listed, files)
    made[contents.START] = contents.start(listed, files, version)
    for dummy, name in contents.tree(listed, files):
        if name in files:
            made[name] = contents.page(name, (ROOT / name).read_text(encoding="utf-8"), listed, files)
    return made


def linked(made, files):
    """Return the files of the repository that pages link and that are no pages; they are for download."""
    found = set()
    for name, text in made.items():
        for target in contents.links(text) if name.endswith(".md") else ():
            path = os.path.normpath(os.path.join(os.path.dirname(name), target))
            if path in files and path not in made:
                found.add(path)
    return found


def write_sources(listed, files):
    """Put what Sphinx reads into a directory of its own."""
    shutil.rmtree(str(SITE), ignore_errors=True)
    made = pages(listed, files)
    for name, text in made.items():
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / name).write_text(text, encoding="utf-8")
    for name in linked(made, files):
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(ROOT / name), str(SOURCE / name))


def ansible_environment():
    """Return the environment variables under which antsibull-docs finds ansible-doc and this checkout."""
    path = os.pathsep.join((str(pathlib.Path(sys.prefix) / "bin"), os.environ["PATH"]))
    return dict(os.environ, ANSIBLE_COLLECTIONS_PATH=collections_path(), ANSIBLE_NOCOLOR="1", PATH=path)


def lint_documentation():
    """Have antsibull-docs check markup and references of plugins and roles; return the exit status."""
    command = ["lint-collection-docs", "--plugin-docs", "--validate-collection-refs", "self", "--skip-rstcheck"]
    place = pathlib.Path(collections_path(), "ansible_collections", *COLLECTION)
    return subprocess.call([ANTSIBULL, *command, str(place)], env=ansible_environment())


def write_reference():
    """Have antsibull-docs write the pages of modules, other plugins and roles; return the exit status."""
    place = SOURCE / pathlib.PurePosixPath(contents.REFERENCE).parent
    # antsibull-docs refuses a directory that others may write to.
    place.mkdir(mode=0o755, parents=True)
    command = ["collection", "--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", str(place)]
    return subprocess.call([ANTSIBULL, *command, ".".join(COLLECTION)], cwd=str(SITE), env=ansible_environment())


def build():
    """Have Sphinx build the site; the exit status."""
    options = ["-b", "html", "-c", str(HERE), "-d", str(SITE / "doctrees"), "-q", "-W", "--keep-going"]
    return subprocess.call(
        [sys.executable, "-m", "sphinx", *options, str(SOURCE), str(HTML)], env=dict(os.environ, PYTHONPATH=str(ROOT))
    )


def foreign():
    """Return what the built pages and style sheets load from other hosts."""
    found = []
    for path in sorted(HTML.rglob("*")):
        look = {".html": resources.page, ".css": resources.style}.get(path.suffix)
        for address in look(path.read_text(encoding="utf-8")) if look else ():
            found.append("{0}: loads {1} from another host".format(path.relative_to(HTML), address))
    return found


def main():
    """Build; return the exit status."""
    files = tracked_files()
    listed = contents.load()
    wrong = contents.problems(listed, files)
    if not wrong:
        write_sources(listed, files)
        if lint_documentation() != 0 or write_reference() != 0 or build() != 0:
            return 1
        wrong = foreign()
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print("the site begins at {0}".format((HTML / "index.html").relative_to(ROOT)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
