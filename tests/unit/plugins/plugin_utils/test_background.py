# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action that waits by itself for a module that the node runs by itself, as ansible-playbook carries it out."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="an action plugin needs Ansible")

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller, _node_action

pytestmark = pytest.mark.cores

ROOT = pathlib.Path(__file__).resolve().parents[4]
ARCHIVE = "nvidia-current_1.0_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz"
# Compiles once it was asked, and says whether Ansible's wrapper runs it.
MODULE = """
import hashlib, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec=dict(version={}, state={}, archives_offered={"type": "list"}, \
asked={"type": "bool"}, store_dir={}))
if module.params["asked"] is None and module.params["archives_offered"] is not None:
    module.exit_json(changed=False, needs_archives=[], compiles=["%(name)s"])
with open("%(path)s", "w") as stream:
    stream.write("built")
if module.params["state"] == "absent":
    module.fail_json(msg="no compiler")
module.exit_json(changed=True, by_itself="async_wrapper" in open("/proc/%%d/cmdline" %% os.getppid()).read(),
                 compiled=[{"kernel": "k", "path": "%(path)s", "sha256": hashlib.sha256(b"built").hexdigest()}])
"""
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - gpufleet.lifecycle.dkms_module: {arguments}
      async: {limit}
      poll: 1
      register: compiled
    - ansible.builtin.copy: {{content: "{{{{ compiled | to_json }}}}", dest: "{result}"}}
"""


@pytest.fixture(name="play")
def _play(tmp_path):
    place = tmp_path / "collections" / "ansible_collections" / "gpufleet" / "lifecycle"
    (place / "plugins" / "modules").mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "plugins/action", "plugins/module_utils", "plugins/plugin_utils"):
        (place / name).symlink_to(ROOT / name)
    (place / "plugins" / "modules" / "dkms_module.py").write_text(
        MODULE % {"name": ARCHIVE, "path": tmp_path / ARCHIVE}
    )

    def run(arguments, limit):
        (tmp_path / "play.yml").write_text(
            PLAY.format(arguments=json.dumps(arguments), limit=limit, result=tmp_path / "result.json")
        )
        environment = dict(
            os.environ,
            ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"),
            ANSIBLE_ASYNC_DIR=str(tmp_path / "jobs"),
            HOME=str(tmp_path),
            ANSIBLE_PYTHON_INTERPRETER=sys.executable,
            ANSIBLE_LOCALHOST_WARNING="false",
        )
        done = subprocess.run(
            [
                os.path.join(os.path.dirname(sys.executable), "ansible-playbook"),
                "-c",
                "local",
                "-i",
                "localhost,",
                "play.yml",
            ],
            cwd=str(tmp_path),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            check=False,
        )
        return done, json.loads((tmp_path / "result.json").read_text()) if done.returncode == 0 else {}

    return run


def test_what_the_node_compiled_by_itself_is_kept_for_the_others(play, tmp_path):
    pytest.importorskip("sqlalchemy", reason="the ledger records what a builder compiled")
    arguments = {"archive_dir": str(tmp_path / "kept"), "store_dir": str(tmp_path), "builder": True}
    done, result = play(dict(arguments, version="1.0"), 60)
    assert done.returncode == 0, done.stdout
    assert result["changed"] and result["by_itself"] is True and "warnings" not in result
    assert (tmp_path / "kept" / ARCHIVE).read_text() == "built"
    assert not [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()], "the job's own file is gone"


def test_its_failure_is_the_tasks(play):
    done, dummy = play({"version": "1.0", "state": "absent"}, 60)
    assert done.returncode == 2 and "no compiler" in done.stdout


BOOT, OTHER = "0c3f4f0e-7d0e-4d43-9b1c-6f4f2f6f0a01", "0c3f4f0e-7d0e-4d43-9b1c-6f4f2f6f0a02"


def silent(answer_s=1):
    """An action whose node takes the connection and does not answer."""
    action = mock.Mock(_task=mock.Mock(async_val=60, poll=1))
    action._execute_module.side_effect = lambda **dummy: time.sleep(30)
    action._templar.template.side_effect = lambda value: value
    action._low_level_execute_command.return_value = {"stdout": BOOT + "\n0\n"}
    return _node_action.Background(action, lambda seconds: None), {"gpufleet_answer_timeout": answer_s}


def test_a_job_that_does_not_begin_fails_after_the_time_for_an_answer():
    background, task_vars = silent()
    began = time.monotonic()
    with pytest.raises(_controller.AnswerTimeout):
        background.run("m", {}, task_vars)
    assert time.monotonic() - began < 10


def test_a_node_that_stops_answering_is_not_asked_until_its_job_is_past_its_time():
    background, task_vars = silent()
    background.action._execute_module.side_effect = None
    background.action._execute_module.return_value = {"ansible_job_id": "1", "started": 1}
    asked = background.action._shared_loader_obj.action_loader.get.return_value.run
    asked.side_effect = lambda task_vars: time.sleep(30)
    began = time.monotonic()
    with pytest.raises(_controller.AnswerTimeout):
        background.run("m", {}, task_vars)
    assert asked.call_count == _node_action.SILENT and time.monotonic() - began < 20


RUNS, AWAY, DONE = {"started": 1, "finished": 0}, AnsibleConnectionFailure("away"), {"finished": 1, "changed": True}


def run(polls, looks):
    """Return (result, mock of the looks) of a job; POLLS and LOOKS are the answers of the node, a minute apart."""
    action = mock.Mock(_task=mock.Mock(async_val=3600, poll=1))
    action._templar.template.side_effect = lambda value: value
    action._execute_module.return_value = {"ansible_job_id": "j12.34", "started": 1}
    action._low_level_execute_command.side_effect = [{"stdout": one} for one in looks]
    clock = mock.Mock(now=0.0)

    def pause(dummy):
        clock.now += 60

    status = action._shared_loader_obj.action_loader.get.return_value.run
    status.side_effect = [*polls, {}]
    background = _node_action.Background(action, pause, lambda: clock.now)
    return background.run("m", {}, {"inventory_hostname": "a1"}), action._low_level_execute_command


@pytest.mark.parametrize(
    "polls, looks, word",
    [
        ([AWAY, RUNS, RUNS], [BOOT + "\n0", OTHER + "\n1"], "boot"),
        ([RUNS, RUNS], [BOOT + "\n127", OTHER + "\n127"], "boot"),
        ([RUNS, RUNS], [BOOT + "\n0", BOOT + "\n1"], "killed"),
        ([RUNS, DONE], [BOOT + "\n0", BOOT + "\n1"], ""),
        ([RUNS, DONE], [BOOT + "\n0", BOOT + "\n0"], ""),
        ([RUNS, DONE], [BOOT + "\n1", BOOT + "\n1"], ""),
        ([RUNS, RUNS, DONE], ["", BOOT + "\n127", ""], ""),
    ],
    ids=["booted while it was away", "booted", "killed", "ended meanwhile", "runs", "never found", "cannot be told"],
)
def test_wait_for_a_job_ends_once_nothing_runs_it_any_more(polls, looks, word):
    result, look = run(polls, looks)
    assert bool(result.get("failed")) == bool(word) and word in result.get("msg", "")
    assert "[j]12'" in look.call_args[0][0], "the wrapper has the id without its own pid"


def test_job_id_of_a_node_is_no_part_of_a_command_unless_it_is_one():
    action = mock.Mock(_task=mock.Mock(async_val=3600, poll=1))
    action._low_level_execute_command.return_value = {"stdout": BOOT}
    background = _node_action.Background(action)
    background.answer_s, background.node = 1, "a1"
    assert background._look("j1'; reboot; '") == (BOOT, None)
    assert "reboot" not in action._low_level_execute_command.call_args[0][0]
