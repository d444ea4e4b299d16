# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which errors of dnf are the transaction's: its shell ends with 0 after one that failed, and a repository that may be
left out is told in the words of an error.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import dnf, dnf_output

# dnf 4.14, with skip_if_unavailable=1 for a repository that does not answer.
LEFT_OUT = """\
Errors during downloading metadata for repository 'gone':
  - Curl error (37): Couldn't read a file:// file for file:///gone/repodata/repomd.xml
Error: Failed to download metadata for repo 'gone': Cannot download repomd.xml: All mirrors were tried
Ignoring repositories: gone
"""
FAILED = "Error: Transaction test error:\n  file /usr/bin/x conflicts\n"


def manager(err, rc=0):
    return dnf.Dnf(lambda argv, timeout=300: (rc, "Complete!\n", err), root="/nonexistent")


def test_repository_that_is_left_out_fails_no_transaction():
    manager(LEFT_OUT).change(["thing-1-1.el9"])


@pytest.mark.parametrize("err,rc", [(FAILED, 0), (LEFT_OUT + FAILED, 0), (LEFT_OUT, 1), ("", 1)])
def test_error_of_the_transaction_itself_fails_it(err, rc):
    with pytest.raises(dnf.DnfError):
        manager(err, rc).change(["thing-1-1.el9"])


def test_metadata_of_a_repository_that_is_not_left_out_fails_the_transaction():
    with pytest.raises(dnf.DnfError):
        manager(LEFT_OUT.replace("Ignoring repositories: gone\n", "")).change(["thing-1-1.el9"])


def test_repository_that_is_left_out_fails_no_download():
    manager(LEFT_OUT).download(["thing-1-1.el9"])


def test_repository_that_is_left_out_fails_no_simulation():
    runner = manager(LEFT_OUT)
    assert runner.ask(["thing-1-1.el9"], "install", ()) == "Complete!\n"


@pytest.mark.parametrize(
    ("err", "is_whole"),
    [
        ("error: rpmdbNextIterator: skipping h#     412 (rpmdb open failed)\n", False),
        ("warning: Found bdb_ro Packages database while attempting sqlite backend\n", True),
        ("", True),
    ],
)
def test_rpm_that_leaves_packages_out_is_an_error(err, is_whole):
    if is_whole:
        assert manager(err).list_installed() == {}
        return
    with pytest.raises(dnf.DnfError) as caught:
        manager(err).list_installed()
    assert err.strip() in str(caught.value)


A, B = "thing-1-1.el9", "other-3:2-1.el9"


@pytest.mark.parametrize(
    ("offers", "answers", "silent"),
    [
        ({A: {"one"}}, {"one": ({A: {"one"}}, "")}, []),
        ({A: {"one"}}, {"one": ({}, "gone")}, [("one", "thing", "1-1.el9", "gone")]),
        ({A: {"one", "two"}}, {"one": ({}, "gone"), "two": ({A: {"two"}}, "")}, []),
        ({A: {"one", "two"}}, {"one": ({}, "gone"), "two": ({}, "off")}, [("one", "thing", "1-1.el9", "gone")]),
        ({A: {"one"}, B: {"one"}}, {"one": ({A: {"one"}}, "lost")}, [("one", "other", "3:2-1.el9", "lost")]),
        (
            {A: {"two"}, B: {"one"}},
            {"one": ({}, "gone"), "two": ({}, "off")},
            [("one", "other", "3:2-1.el9", "gone"), ("two", "thing", "1-1.el9", "off")],
        ),
        ({}, {}, []),  # kept on the node, or of no repository: another refusal's
    ],
)
def test_repository_is_silent_if_no_other_has_the_package(offers, answers, silent):
    found = dnf_output.find_silent([A, B], offers, answers)
    assert [(item["mirror"], item["package"], item["version"], item["why"]) for item in found] == silent
