# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_gres and slurm_node as tasks call them: real files, and a cluster whose slurmctld reads them again."""

from __future__ import annotations

import io
import json
import os
import stat
import sys

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._slurm import gres, gres_config
from ansible_collections.gpufleet.lifecycle.plugins.modules import slurm_gres, slurm_node
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._slurm.fake_slurm import Cluster

pytestmark = pytest.mark.cores

A = ["NodeName=n1 AutoDetect=off Name=gpu Type=a File=/dev/nvidia%d" % number for number in range(2)]
B = [
    (
        "NodeName=n1 AutoDetect=off Name=gpu Type=b "
        "MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13"
    )
]


class Site(Cluster):
    """A cluster and the host of its configuration."""

    version = "23.11.4"

    def __init__(self, root, **more):
        super().__init__(gres="gpu:a:2", **dict({"state": "IDLE+DRAIN", "reason": "gpufleet:tok-1 x"}, **more))
        self.etc, self.directory = root / "etc", root / "etc" / "nodes"
        self.directory.mkdir(parents=True)
        (self.etc / "slurm.conf").write_text("ClusterName=c\nInclude nodes.conf\n")
        (self.etc / "nodes.conf").write_text("Include nodes/n1.conf\n")
        (self.etc / "gres.conf").write_text("AutoDetect=nvml\nInclude %s/n1.gres.conf\n" % self.directory)
        self.node_file, self.gres_file = self.directory / "n1.conf", self.directory / "n1.gres.conf"
        self.node_file.write_text("NodeName=n1 CPUs=2 Gres=gpu:a:2,nvme:1\n")
        self.takes = True
        self.answers = {
            "show config": (
                0,
                "Configuration data as of 2026\nSLURM_CONF              = %s/slurm.conf\nSLURM_VERSION = %s\n"
                % (self.etc, self.version),
                "",
            ),
            "reconfigure": Site.read_again,
        }

    def read_again(self):
        self.calls.append("reconfigure")
        line = gres_config.node_lines(self.node_file.read_text(), "n1")[0][1]
        if self.takes:
            self.gres = gres_config.options(line).get("gres", ("(null)",))[0]
        return 0, "", ""

    def texts(self):
        return {path.name: path.read_text() for path in sorted(self.directory.iterdir())}


@pytest.fixture(name="site")
def site_(tmp_path):
    return Site(tmp_path)


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """call(module, cluster, options): the result of a module, run as Ansible runs it."""

    def run(module, cluster, options):
        arguments = {"ANSIBLE_MODULE_ARGS": dict(options, _ansible_remote_tmp=str(tmp_path))}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode("utf-8"))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        own = cluster.slurm()
        with monkeypatch.context() as patched, pytest.raises(SystemExit):
            patched.setattr(module.commands, "Slurm", lambda **dummy: own)
            module.main()
        return json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    return run


@pytest.fixture
def run(monkeypatch, call):
    def run(site, counts, lines, **options):
        given = {"directory": str(site.directory), "reconfigure": True, "node_name": "n1", **options}
        given.update(gres=counts, lines=lines)
        work = slurm_gres.slurm_gres.SlurmGres
        with monkeypatch.context() as patched:
            patched.setattr(
                slurm_gres.slurm_gres,
                "SlurmGres",
                lambda *words: work(*words, sleep=site.sleep, clock=lambda: site.now),
            )
            return call(slurm_gres, site, {name: value for name, value in given.items() if value is not None})

    return run


def test_slurm_gets_the_devices_and_the_second_run_changes_nothing(run, site):
    result = run(site, {"b": 1}, B, _ansible_diff=True)
    assert result["changed"] and result["reconfigured"] and result["controller_first"] and not result.get("failed")
    assert result["gres"] == {"configured": "gpu:b:1,nvme:1", "wanted": "gpu:b:1"} and site.calls == ["reconfigure"]
    assert site.node_file.read_text().splitlines()[1] == "NodeName=n1 CPUs=2 Gres=gpu:b:1,nvme:1"
    assert site.gres_file.read_text().splitlines()[1:] == B
    assert stat.S_IMODE(os.stat(site.gres_file).st_mode) == 0o644
    assert (
        [entry["after_header"] for entry in result["diff"]]
        == result["files"]
        == [str(site.node_file), str(site.gres_file)]
    )
    assert result["diff"][1]["after"] == site.gres_file.read_text() and result["diff"][1]["before"] == ""
    again = run(site, {"b": 1}, B)
    assert not again["changed"] and again["files"] == [] and site.calls == ["reconfigure"] and "diff" not in again


def test_check_mode_says_the_same_and_writes_nothing(run, site):
    before = site.texts()
    result = run(site, {"b": 1}, B, _ansible_check_mode=True, _ansible_diff=True)
    assert result["changed"] and len(result["files"]) == len(result["diff"]) == 2 and not result["reconfigured"]
    assert site.texts() == before and site.calls == []


def test_what_goes_is_taken_away_before_and_what_comes_is_not_promised(run, site):
    run(site, {"a": 2}, A)
    kept = run(site, {"a": 1}, A[:1], state="reduced")
    assert kept["changed"] and kept["controller_first"] and site.gres == "gpu:a:1,nvme:1"
    more = run(site, {"a": 1, "b": 1}, A[:1] + B, state="reduced")
    assert not more["changed"] and not more["controller_first"] and site.gres == "gpu:a:1,nvme:1"
    assert run(site, {"a": 1, "b": 1}, A[:1] + B)["changed"] and site.gres == "gpu:a:1,gpu:b:1,nvme:1"


def test_whether_it_can_be_written_is_known_before_the_drain(run, tmp_path):
    site = Site(tmp_path, state="IDLE", reason="")
    before = site.texts()
    good = run(site, {"b": 1}, [], state="checked", kept={})
    assert not good["changed"] and good["controller_first"] and not good.get("failed")
    assert not run(site, {"a": 2, "b": 1}, [], state="checked", kept={"a": 2})["controller_first"]
    for options, told in (
        ({"directory": None}, "gpu_scheduler_slurm_gres_dir"),
        ({"reconfigure": False}, "gpu_scheduler_slurm_reconfigure"),
        ({"directory": str(tmp_path / "nowhere")}, "nowhere"),
    ):
        bad = run(site, {"b": 1}, B, state="checked", **options)
        assert bad["failed"] and told in bad["msg"] and "Gres=gpu:b:1" in bad["msg"] and B[0] in bad["msg"], bad["msg"]
    assert site.texts() == before and site.calls == []


@pytest.mark.parametrize(
    "breaks",
    [
        lambda site: (site.etc / "nodes.conf").write_text("# nothing\n"),
        lambda site: (site.etc / "gres.conf").unlink(),
        # The file of the one configuration in the other.
        lambda site: (site.etc / "gres.conf").write_text("Include nodes/n1.conf\n"),
        lambda site: site.node_file.unlink(),
        lambda site: site.node_file.write_text("NodeName=n[1-2] CPUs=2\n"),
    ],
)
def test_a_configuration_that_does_not_have_the_files_is_refused(run, site, breaks):
    breaks(site)
    before = site.texts()
    for state in ("checked", "reduced", "present"):
        result = run(site, {"b": 1}, B, state=state)
        assert result["failed"] and "Gres=gpu:b:1" in result["msg"]
    assert site.texts() == before and site.calls == []


def test_a_node_that_is_not_drained_keeps_its_gres(run, site):
    site.state, site.reason = "MIXED", ""
    for state in ("reduced", "present"):
        result = run(site, {"b": 1}, B, state=state)
        assert result["failed"] and "not drained" in result["msg"] and result["gres"]["configured"] == "gpu:a:2"
    assert run(site, {"a": 2}, A)["changed"], "the same GPUs may be written down"


def test_a_slurmctld_that_refuses_leaves_the_files_as_they_were(run, site):
    before = site.texts()
    site.answers["reconfigure"] = (1, "", "slurm_reconfigure error: Unspecified error\n")
    result = run(site, {"b": 1}, B)
    assert result["failed"] and "Unspecified error" in result["msg"] and site.texts() == before


def test_a_file_that_cannot_be_written_leaves_the_other_as_it_was(run, site, monkeypatch):
    before, real = site.texts(), slurm_gres.slurm_gres.files.write_atomically

    def full(path, text):
        if path.endswith("gres.conf"):
            raise OSError(28, "No space left on device")
        return real(path, text)

    monkeypatch.setattr(slurm_gres.slurm_gres.files, "write_atomically", full)
    result = run(site, {"b": 1}, B)
    assert result["failed"] and "No space left" in result["msg"] and site.texts() == before and site.calls == []


def test_what_slurm_tells_afterwards_counts(run, site):
    site.takes = False
    result = run(site, {"b": 1}, B, timeout_s=20)
    assert result["failed"] and "gpu:a:2" in result["msg"] and "gpu:b:1" in result["msg"] and result["reconfigured"]
    assert site.now >= 20
    site.takes = True
    site.calls.clear()
    assert run(site, {"b": 1}, B)["reconfigured"] and site.calls == ["reconfigure"], (
        "the files are right, and Slurm is asked again"
    )


def test_where_the_configuration_lies_may_be_given_and_has_to_be_known(run, site):
    site.answers["show config"] = (0, "X = y\n", "")
    assert run(site, {"b": 1}, B)["trouble"] == "other"
    unknown = run(site, {"b": 1}, B, config_file=str(site.etc / "slurm.conf"))
    assert unknown["failed"] and "gpu_scheduler_slurm_restart" in unknown["msg"], "nor does it tell its version"
    site.answers["show config"] = (0, "SLURM_VERSION = 24.05.1\n", "")
    assert run(site, {"b": 1}, B, config_file=str(site.etc / "slurm.conf"))["changed"]
    site.answers["show config"] = (1, "", "Unable to contact slurm controller (connect failure)\n")
    assert run(site, {"b": 2}, B)["trouble"] == "unreachable"


class Old(Site):
    """Slurm 22.05, as it was on the lab: scontrol reconfigure changes no number of GPUs, a start of slurmctld does."""

    version = "22.05.8"

    def __init__(self, root, **more):
        super().__init__(root, **more)
        self.takes, self.refuses = False, 0
        self.answers.update({"restart slurmctld.service": Old.start, "reconfigure": Old.read_again})

    def start(self):
        self.takes, self.refuses = True, 2
        Site.read_again(self)
        self.takes, self.calls[-1] = False, "restart"
        return 0, "", ""

    def read_again(self):
        if self.refuses:
            self.refuses -= 1
            return 1, "", "Unable to contact slurm controller (connect failure)\n"
        return Site.read_again(self)


def test_an_old_slurmctld_is_restarted_before_the_nodes_are_told(run, tmp_path):
    site = Old(tmp_path)
    result = run(site, {"b": 1}, B, restart=True)
    assert not result.get("failed") and result["restarted"] and result["reconfigured"], result
    assert site.calls == ["restart", "reconfigure"] and site.gres == "gpu:b:1,nvme:1"
    again = run(site, {"b": 1}, B, restart=True)
    assert not again["changed"] and not again["restarted"] and site.calls == ["restart", "reconfigure"]


def test_an_old_slurmctld_that_may_not_be_restarted_is_refused_before_anything_is_written(run, tmp_path):
    site = Old(tmp_path)
    before = site.texts()
    for state in ("checked", "reduced", "present"):
        result = run(site, {"b": 1}, B, state=state)
        assert result["failed"] and "gpu_scheduler_slurm_restart" in result["msg"] and not result["restarted"]
    assert site.texts() == before and site.calls == []


def test_a_restart_that_fails_leaves_the_files_as_they_were_and_slurmctld_is_started_with_them(run, tmp_path):
    site, tried = Old(tmp_path), []

    def fails(own):
        tried.append(own.texts())
        return 1, "", "Job for slurmctld.service failed\n"

    site.answers["restart slurmctld.service"], before = fails, site.texts()
    result = run(site, {"b": 1}, B, restart=True)
    assert result["failed"] and "Job for slurmctld.service failed" in result["msg"] and site.texts() == before
    assert len(tried) == 2 and tried[1] == before != tried[0] and site.calls == []


@pytest.mark.parametrize(
    ("counts", "lines", "options"),
    [
        ({"a": -1}, A, {}),
        ({"a": "many"}, A, {}),
        ({"a": 1}, ["NodeName=n2 Name=gpu"], {}),
        ({"a": 1}, [A[0] + "\nAutoDetect=nvml"], {}),
        ({"a": 1}, A, {"timeout_s": -1}),
        ({"a": 1}, A, {"poll_s": 0}),
        ({"a": 1}, A, {"kept": {"a": 1.5}}),
        ({"a": 1}, [], {"node_name": "n[1-2]"}),
    ],
)
def test_options_that_make_no_sense(run, site, counts, lines, options):
    before = site.texts()
    assert run(site, counts, lines, **options)["failed"] and site.texts() == before and site.calls == []


def test_a_problem_of_the_name_is_the_modules_own(site):
    with pytest.raises(gres.GresError):
        slurm_gres.slurm_gres.SlurmGres(
            site.slurm(), {"node_name": "../n1", "gres": {}, "lines": [], "kept": None}
        ).run()


# ---- slurm_node ----


@pytest.fixture
def drain(call):
    """drain(cluster): the result of slurm_node that drains n1."""

    def run(cluster, **options):
        given = dict({"node_name": "n1", "state": "drained", "token": "tok-1"}, **options)
        return call(slurm_node, cluster, {name: value for name, value in given.items() if value is not None})

    return run


def test_a_drain_with_its_difference(drain):
    cluster = Cluster()
    result = drain(cluster, _ansible_diff=True)
    assert result["changed"] and result["drained"] and result["mark"]["owner"] == "ours" and not result.get("failed")
    assert result["diff"]["after"] == {"state": "IDLE+DRAIN", "reason": "gpufleet:tok-1 maintenance"}
    again = drain(cluster)
    assert not again["changed"] and "diff" not in again and "trouble" not in again


def test_check_mode_changes_nothing(drain):
    cluster = Cluster()
    assert drain(cluster, _ansible_check_mode=True)["changed"] and cluster.calls == []


def test_a_refusal_says_how_the_node_is(drain):
    result = drain(Cluster(), expected_gpus=8)
    assert result["failed"] and "and the node has 8" in result["msg"]
    assert (result["state"], result["gres"]["gpus"]) == ("IDLE", 4)


def test_what_slurm_does_not_do_is_named(drain):
    result = drain(Cluster(), node_name="n2")
    assert result["failed"] and result["trouble"] == "node" and result["msg"].startswith("n2: Slurm knows no node n2")


def test_a_drain_without_a_token_is_refused(drain):
    cluster = Cluster()
    result = drain(cluster, token=None)
    assert result["failed"] and "needs a token" in result["msg"] and cluster.calls == []


def test_the_documentation_says_what_the_options_are():
    yaml = pytest.importorskip("yaml")
    documented = yaml.safe_load(slurm_node.DOCUMENTATION)["options"]
    assert sorted(documented) == sorted(slurm_node.ARGUMENT_SPEC)
    for name, spec in slurm_node.ARGUMENT_SPEC.items():
        assert documented[name]["type"] == spec["type"] and documented[name].get("default") == spec.get("default"), name
        assert sorted(documented[name].get("choices", [])) == sorted(spec.get("choices", [])), name
