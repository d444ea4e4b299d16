# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The builder of the API server and the stand-in for nodes' agents, without either."""

from __future__ import annotations

import pytest

from tests.lab import aptconf, config
from tests.lab.common import LabError
from tests.lab.kube import agent, build


@pytest.fixture
def lab(tmp_path):
    return config.current({"GPUFLEET_CACHE": str(tmp_path)})


def listing(*versions):
    return "".join(f"Package: kubernetes\nVersion: {version}\nFormat: 3.0 (quilt)\n\n" for version in versions)


def test_the_newest_source_of_the_release_is_taken():
    assert (
        build.choose(listing("1.20.5+really1.20.2-1", "1.31.0-1", "1.20.5+really1.20.2-1.1+deb12u1"))
        == "1.20.5+really1.20.2-1.1+deb12u1"
    )


@pytest.mark.parametrize(("found", "word"), [(("1.31.0-1",), "1.31.0-1"), ((), "none")])
def test_another_release_is_not_taken_for_it(found, word):
    with pytest.raises(LabError, match="no source of kubernetes 1.20.2.*" + word):
        build.choose(listing(*found))


def test_a_missing_server_names_the_command_that_builds_it(lab):
    assert build.COMMAND in build.missing(lab) and str(lab.cache) in build.missing(lab)
    build.directory(lab).mkdir(parents=True)
    build.binary(lab).write_text("half")
    assert build.missing(lab), "a file that cannot be run is none"
    build.binary(lab).chmod(0o755)
    assert build.missing(lab) == ""
    assert build.ensure(lab) == build.binary(lab), "nothing is built again"


def test_no_build_is_begun_without_its_tools(lab, monkeypatch, tmp_path):
    monkeypatch.setitem(build.NEEDED, "go", tmp_path / "no-go")
    with pytest.raises(LabError, match="without go.*setup-full"):
        build.ensure(lab)


def test_a_source_that_apt_cannot_check_is_not_built(lab, monkeypatch, tmp_path):
    source = aptconf.Source(("http://x.example/debian",), ("bookworm",), ("main",), {"Trusted": "yes"})
    monkeypatch.setattr(aptconf, "read_host", lambda: [source])
    with pytest.raises(LabError, match="trusted without a signature"):
        build._fetch(tmp_path, tmp_path / "log")


@pytest.mark.parametrize(
    ("meta", "due"),
    [
        ({}, False),
        ({"deletionTimestamp": "2026-11-21T22:00:10Z"}, False),
        ({"deletionTimestamp": "2026-11-21T22:00:00Z"}, True),
        ({"deletionTimestamp": "2026-11-21T22:00:00Z", "annotations": {agent.STUCK: "yes"}}, False),
    ],
)
def test_the_agent_ends_a_pod_when_its_time_is_over(meta, due):
    assert agent.due({"metadata": meta}, 1795298400.0) is due
