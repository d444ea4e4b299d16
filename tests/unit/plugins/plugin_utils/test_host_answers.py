# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host answers is checked before it becomes a path on the controller."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

pytest.importorskip("ansible", reason="imported by action plugins")

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import dkms
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _host_answers as answers

VERSION = "535.261.03"
NAME = dkms.tree_name("nvidia-current", VERSION, "6.1.0-1-amd64", "x86_64", "gcc-12.2.0")
DIGEST = "ab" * 32


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        dkms.tree_name("nvidia", VERSION, "5.14.0-427.el9.x86_64", "x86_64", "gcc-11.4.1"),
        dkms.tree_name("nvidia-srv-open", VERSION, "6.8.0-64-generic", "aarch64", "clang-18.1.3"),
    ],
)
def test_names_of_exported_trees_pass(name):
    assert answers.check_name(name, [VERSION]) == name
    assert answers.check_names([name, name], [VERSION], [name]) == [name]


HOSTILE_NAMES = [
    "../../.ssh/id_ed25519",
    "/root/.ssh/id_ed25519",
    "../" + NAME,
    "x/" + NAME,
    "." + NAME,
    "-" + NAME,
    NAME + "\n",
    NAME + "\0",
    NAME + ".sha256",
    NAME.replace("x86_64", "x86_64\n!id"),
    NAME.replace("nvidia-current", "nvidia-current/.."),
    NAME.replace("amd64", "$(id)"),
    NAME.replace("amd64", "{{ x }}"),
    NAME.replace("amd64", "a" * 240),
    NAME.replace(VERSION, "535.216.03"),
    NAME.replace(VERSION, VERSION + ".1"),
    NAME.replace("nvidia-current", "nvidia_%s_x" % "1.2.3"),
    "",
    ".claims",
    None,
    7,
    [NAME],
    {"name": NAME},
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_other_names_are_refused(name):
    with pytest.raises(answers.AnswerError):
        answers.check_name(name, [VERSION])
    with pytest.raises(answers.AnswerError):
        answers.check_names([NAME, name], [VERSION])
    with pytest.raises(answers.AnswerError):
        answers.check_archives([{"name": name, "sha256": DIGEST}], [VERSION])


def test_a_name_that_was_not_asked_for_is_refused():
    with pytest.raises(answers.AnswerError):
        answers.check_name(NAME, [VERSION], [])
    with pytest.raises(answers.AnswerError):
        answers.check_names([NAME], [VERSION], [NAME.replace("nvidia-current", "nvidia")])


@pytest.mark.parametrize(
    "digest", [None, "", "ab" * 31, "AB" * 32, DIGEST + "\n", DIGEST + "\n# source x", 7, [DIGEST]]
)
def test_other_digests_are_refused(digest):
    with pytest.raises(answers.AnswerError):
        answers.check_archives([{"name": NAME, "sha256": digest}], [VERSION])
    if digest is not None:
        with pytest.raises(answers.AnswerError):
            answers.check_archives([{"name": NAME, "sha256": DIGEST, "source": digest}], [VERSION])


@pytest.mark.parametrize("found", ["x", {"a": 1}, 7, [NAME] * (answers.MAX_ARCHIVES + 1)])
def test_what_is_no_list_of_a_node_is_refused(found):
    with pytest.raises(answers.AnswerError):
        answers.check_names(found, [VERSION])
    with pytest.raises(answers.AnswerError):
        answers.check_archives(found, [VERSION])


def test_no_list_is_an_empty_one():
    assert answers.check_names(None, [VERSION]) == [] and answers.check_archives(None, [VERSION]) == []


def test_of_a_path_the_name_counts_alone():
    assert answers.check_archives([{"path": "/any\n/where/" + NAME, "sha256": DIGEST}], [VERSION]) == [
        answers.Archive(NAME, DIGEST, None)
    ]


def test_a_message_is_one_printable_line():
    with pytest.raises(answers.AnswerError) as caught:
        answers.check_name("\x1b[2J\n" + "x" * 5000, [VERSION])
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


def test_sizes_up_to_the_limit_pass():
    answers.check_size(5, 5, "it")
    with pytest.raises(answers.AnswerError):
        answers.check_size(6, 5, "it")


def test_no_larger_file_is_written_by_this_process_or_by_one_that_it_starts(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    with answers.limit_file_size(4096):
        with pytest.raises(OSError), open(own, "wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * 1024)
        ended = subprocess.run(["dd", "if=/dev/zero", "of=%s" % theirs, "bs=1024"], check=False, capture_output=True)
        fits = subprocess.run([sys.executable, "-c", "open(%r, 'w').write('x' * 4096)" % str(tmp_path / "fits")])
    assert ended.returncode != 0 and fits.returncode == 0
    assert own.stat().st_size <= 4096 and theirs.stat().st_size <= 4096
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
