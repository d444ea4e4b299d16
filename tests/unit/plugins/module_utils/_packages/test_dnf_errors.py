# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which errors of dnf are the transaction's: its shell ends with 0 after one that failed, and a repository that may be
left out is told in the words of an error.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import dnf

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
