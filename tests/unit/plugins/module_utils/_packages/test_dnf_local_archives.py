# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Archives of a repository that is a directory of the node: dnf installs them from there, and makes no copy."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._packages import dnf

NAME, VERSION = "libnvidia-ml", "3:570.195.03-1.el9"
ARCHIVE = "srv/mirror/x86_64/libnvidia-ml-570.195.03-1.el9.x86_64.rpm"


def find(tmp_path, baseurl="file:///srv/mirror", more="", checks=0, archive=ARCHIVE):
    """What is found, and the commands."""
    log = []

    def run(argv, timeout=300):
        log.append(list(argv))
        return checks, "", ""

    (tmp_path / "etc/yum.repos.d").mkdir(parents=True)
    (tmp_path / "etc/yum.repos.d/a.repo").write_text("[cuda]\nname=cuda\nbaseurl=%s\n%s" % (baseurl, more))
    (tmp_path / archive).parent.mkdir(parents=True)
    (tmp_path / archive).write_text("")
    return dnf.Dnf(run, root=str(tmp_path)).find_cached({NAME: VERSION}, {}), log


@pytest.mark.parametrize("baseurl", ["file:///srv/mirror", "file:/srv/mirror/", "file:///srv/mirror/$basearch"])
def test_archive_of_a_directory_is_found_and_its_signature_checked(tmp_path, baseurl):
    found, log = find(tmp_path, baseurl)
    assert found == {(NAME, VERSION): str(tmp_path / ARCHIVE)}
    assert "--nosignature" not in log[0]


def test_signature_is_not_asked_for_where_the_repository_asks_for_none(tmp_path):
    assert "--nosignature" in find(tmp_path, more="gpgcheck=0\n")[1][0]


@pytest.mark.parametrize(
    "given",
    [
        {"checks": 1},
        {"more": "enabled=0\n"},
        {"baseurl": "https://mirror/srv/mirror"},
        {"archive": ARCHIVE.replace("570.195.03-1", "570.195.03-2")},
        {"archive": ARCHIVE.replace(".x86_64.rpm", ".i686.rpm")},
    ],
)
def test_what_is_not_it_is_not_found(tmp_path, given):
    assert find(tmp_path, **given)[0] == {}
