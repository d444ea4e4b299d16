# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the collection's tarball as Galaxy does when it is uploaded: galaxy-importer has nothing to say against it.

python3 -m tests.tools.importer [--lint]     in the environment `importer`

Its sanity tests are left to the stages that have them, and so is ansible-lint without --lint: `make lint` is stricter.
Everything that the importer says from a warning up is a failure, unless ACCEPTED says why it stays. It passes over
plugins that ansible-doc cannot read; so what it found is compared with what the tarball has.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import typing as t

from tests.tools.common import copy_checkout

# What the importer says and may go on to say: a regular expression for a whole message, and the reason.
ACCEPTED: t.Dict[str, str] = {}
# The plugins that have documentation; what else is in the collection's plugins is none of their users' business.
DOCUMENTED = ("callback", "filter", "inventory", "lookup", "module")
# The tags of which Automation Hub wants one are wanted too.
SETTINGS = {"check_changelog": True, "check_required_tags": True, "run_ansible_doc": True, "run_ansible_test": False}

Content = t.Set[t.Tuple[str, str]]


class Remarks(logging.Handler):
    """Keeps what the importer says against a collection."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: t.List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.said.append("{0}: {1}".format(record.levelname, record.getMessage()))


def expected(names: t.Iterable[str]) -> Content:
    """What users find in a collection of these files: (type, name)."""
    found = set()
    for name in names:
        parts = pathlib.PurePosixPath(name).parts
        if parts[0] == "plugins" and len(parts) == 3 and name.endswith(".py") and parts[2] != "__init__.py":
            kind = "module" if parts[1] == "modules" else parts[1]
            if kind in DOCUMENTED:
                found.add((kind, parts[2][: -len(".py")]))
        elif parts[0] == "roles" and len(parts) > 2:
            found.add(("role", parts[1]))
        elif parts[0] == "playbooks" and len(parts) == 2 and name.endswith(".yml"):
            found.add(("playbook", parts[1]))
    return found


def presented(result: t.Mapping[str, t.Any]) -> Content:
    """What Galaxy would show, with its documentation where it has one, from the importer's result."""
    return {
        (one["content_type"], one["content_name"])
        for one in result["docs_blob"]["contents"]
        if (one["content_type"] not in DOCUMENTED or (one["doc_strings"] or {}).get("doc"))
        and (one["content_type"] != "role" or one["readme_html"])
    }


def complaints(said: t.Sequence[str], accepted: t.Mapping[str, str]) -> t.List[str]:
    """What is against the collection, and what is accepted and no longer said."""
    left = [line for line in said if not any(re.fullmatch(pattern, line, re.DOTALL) for pattern in accepted)]
    unused = [
        "accepted and not said: " + pattern
        for pattern in accepted
        if not any(re.fullmatch(pattern, line, re.DOTALL) for line in said)
    ]
    return left + unused


def missing(names: t.Iterable[str], result: t.Mapping[str, t.Any]) -> t.List[str]:
    """What the tarball has and Galaxy would not show, or without documentation."""
    return ["not shown: {0} {1}".format(*one) for one in sorted(expected(names) - presented(result))]


def build(place: pathlib.Path) -> pathlib.Path:
    """The tarball of a clean copy of the checkout."""
    copy = copy_checkout(place / "checkout")
    command = ["ansible-galaxy", "collection", "build", "--output-path", str(place), str(copy)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    (tarball,) = place.glob("*.tar.gz")
    return tarball


class Patient(subprocess.Popen):
    """ansible-lint without the three minutes that the importer gives it, which a busy machine exceeds; and how it
    ended counts: the importer takes one that did not start for one that found nothing.
    """

    log: t.ClassVar[logging.Logger]

    def communicate(self, input: t.Any = None, timeout: t.Any = None) -> t.Tuple[t.Any, t.Any]:
        """Wait for its end."""
        out, err = super().communicate(input)
        if self.returncode:
            self.log.error("ansible-lint ended with %s: %s", self.returncode, err.strip()[-2000:])
        return out, err


def judge(tarball: pathlib.Path, place: pathlib.Path, lint: bool) -> t.Tuple[t.List[str], t.Dict[str, t.Any]]:
    """What the importer says against the tarball, and its result; none where it refuses the tarball."""
    from galaxy_importer import collection, config
    from galaxy_importer.loaders import collection as loader

    log, remarks = logging.getLogger("galaxy_importer"), Remarks()
    log.addHandler(remarks)
    log.setLevel(logging.INFO)
    Patient.log, loader.Popen = log, Patient
    settings = config.Config(
        config_data=dict(SETTINGS, run_ansible_lint=lint, ansible_local_tmp=str(place / "tmp"), tmp_root_dir=str(place))
    )
    filename = collection.CollectionFilename(*re.fullmatch(r"(\w+)-(\w+)-(.+)\.tar\.gz", tarball.name).groups())
    result: t.Dict[str, t.Any] = {}
    with open(str(tarball), "rb") as handle:
        try:
            result = collection.import_collection(handle, filename, logger=log, cfg=settings)
        except Exception as problem:  # whatever it is, Galaxy would refuse the tarball
            log.exception("refused: %s: %s", type(problem).__name__, problem)
    return remarks.said, result


def main(arguments: t.Sequence[str]) -> int:
    """Judge the checkout, and answer the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.tools.importer", description=__doc__.splitlines()[0])
    parser.add_argument("--lint", action="store_true", help="with the importer's ansible-lint")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="importer-") as directory:
        place = pathlib.Path(directory)
        # Nothing of the user's or the checkout's settings takes part.
        (place / "empty.cfg").touch()
        os.environ.update(ANSIBLE_HOME=str(place / "home"), ANSIBLE_CONFIG=str(place / "empty.cfg"))
        tarball = build(place)
        with tarfile.open(str(tarball)) as archive:
            names = [member.name for member in archive.getmembers() if member.isfile()]
        said, result = judge(tarball, place, options.lint)
    wrong = complaints(said, ACCEPTED) + (missing(names, result) if result else [])
    for line in wrong:
        print("importer: " + line)
    print("importer: {0} complaints, {1} shown".format(len(wrong), len(presented(result)) if result else 0))
    return 1 if wrong or not result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
