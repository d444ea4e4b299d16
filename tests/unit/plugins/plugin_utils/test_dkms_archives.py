# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exchange of compiled modules between the controller and the artifact host."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import dkms_archives
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives

pytestmark = pytest.mark.cores

VERSION = "535.261.03"
ONE, TWO, OTHER = (
    "nvidia-current_%s_6.1.0-%d-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % (version, number)
    for version, number in ((VERSION, 1), (VERSION, 2), ("1.2.3", 1))
)


@pytest.fixture(name="records", autouse=True)
def _records(monkeypatch):
    """What the ledger says of archives: everything is a builder's, unless its name is in .unknown."""
    found = mock.Mock(unknown=set())
    found.find_builders.side_effect = lambda database, archives, agree: {
        name: "builder-1" for name in archives if name not in found.unknown
    }
    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives.others", found)
    return found


@pytest.fixture
def here(tmp_path):
    return tmp_path / "controller" / "dkms"


@pytest.fixture
def there(tmp_path):
    return tmp_path / "host" / "dkms"


def put(directory, name, content=b"x", source=None):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)
    tree_archives.write_sha256(str(directory / name), hashlib.sha256(content).hexdigest(), source)


def kept(directory):
    """{name: (its content, the digest of its source)} of the archives that are offered."""
    return {
        item["name"]: ((directory / item["name"]).read_bytes(), item["source"])
        for item in tree_archives.describe_archives(str(directory), [VERSION])
    }


def act(here, there, check=False, answer=None, fetch=shutil.copyfile, copies=None, **args):
    """The result of the action. ANSWER: what the host's module answers instead of the real one."""
    args = dict(args, directory=str(here), path=str(there), versions=["1:%s-1" % VERSION])
    task = mock.Mock(
        args=args, async_val=0, check_mode=check, diff=False, action="x", environment=None, delegate_to="store"
    )
    task.copy.side_effect = lambda: mock.Mock(args=None, async_val=0)
    connection, loader = mock.Mock(), mock.Mock()
    connection.fetch_file.side_effect = fetch
    action = dkms_archives.ActionModule(
        task, connection, mock.Mock(check_mode=check), DataLoader(), mock.Mock(), loader
    )
    action._load_name = "x"

    def execute(module_name, module_args, task_vars):
        assert module_name == dkms_archives.MODULE
        if isinstance(answer, Exception):
            raise answer
        return answer or {"archives": tree_archives.describe_archives(module_args["path"], module_args["versions"])}

    def get(name, task, **dummy):
        assert name == "ansible.legacy.copy"

        def copy(task_vars):
            if copies:
                return copies
            os.makedirs(task.args["dest"], exist_ok=True)  # as its module does, with directory_mode
            shutil.copy(task.args["src"], task.args["dest"])
            return {"changed": True}

        return mock.Mock(run=copy)

    action._execute_module = execute
    action._shared_loader_obj = loader
    loader.action_loader.get.side_effect = get
    return action.run(task_vars={"inventory_hostname": "a1"})


def test_each_side_gets_what_it_lacks_and_a_second_run_changes_nothing(here, there):
    put(here, ONE, b"one", "ab" * 32)
    put(there, TWO, b"two", "cd" * 32)
    put(here, OTHER)
    result = act(here, there)
    assert (result["changed"], result["fetched"], result["stored"]) == (True, [TWO], [ONE])
    both = {ONE: (b"one", "ab" * 32), TWO: (b"two", "cd" * 32)}
    assert kept(here) == kept(there) == both and not (there / OTHER).exists()
    again = act(here, there)
    assert (again["changed"], again["fetched"], again["stored"]) == (False, [], []) and "warnings" not in again


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_side_without_a_directory_gets_one(here, there, side):
    put(there if side == "here" else here, ONE, b"one")
    assert act(here, there)["changed"] and kept(here) == kept(there) == {ONE: (b"one", None)}


def test_what_differs_stays(here, there):
    put(here, ONE, b"new")
    put(there, ONE, b"old")
    assert act(here, there)["changed"] is False and kept(there)[ONE][0] == b"old" and kept(here)[ONE][0] == b"new"


def test_check_mode_tells_and_brings_nothing(here, there):
    put(here, ONE)
    put(there, TWO)
    result = act(here, there, check=True)
    assert (result["changed"], result["fetched"], result["stored"]) == (True, [TWO], [ONE])
    assert list(kept(here)) == [ONE] and list(kept(there)) == [TWO]


def test_an_archive_without_its_digest_is_not_there(here, there):
    put(there, ONE)
    (there / (ONE + ".sha256")).unlink()
    put(there, TWO)
    (there / (TWO + ".sha256")).write_text("no digest")
    assert act(here, there)["archives"] == [] and not here.exists()


def broken(source, target):
    pathlib.Path(target).write_bytes(b"half")


def lost(source, target):
    raise AnsibleError("the connection was lost")


@pytest.mark.parametrize(
    "more, words",
    [
        ({"fetch": broken}, "sha256"),
        ({"fetch": lost}, "the connection was lost"),
        ({"answer": AnsibleConnectionFailure("no route")}, "no route"),
        ({"answer": {"failed": True, "msg": "no python"}}, "no python"),
        ({"answer": {"rc": 0}}, "no answer"),
        *(
            (
                {"answer": {"archives": [{"name": name, "sha256": "0" * 64, "source": None}]}},
                "its answer cannot be used",
            )
            for name in (
                "../" + ONE,
                "..",
                ".",
                "",
                "." + ONE,
                ".claims",
                "x.sha256",
                "a\n" + ONE,
                "\x1b[2K" + ONE,
                "x/" + ONE,
            )
        ),
    ],
)
def test_a_host_that_does_not_do_its_part_is_a_warning_and_nothing_half_is_offered(here, there, more, words):
    put(there, ONE, b"whole")
    result = act(here, there, **more)
    assert not result.get("failed") and result["changed"] is False
    (warning,) = result["warnings"]
    assert "store" in warning and words in warning and kept(here) == {}


def test_a_host_that_cannot_be_written_is_a_warning(here, there):
    put(here, ONE)
    result = act(here, there, copies={"failed": True, "msg": "disk full"})
    assert result["stored"] == [] and "disk full" in result["warnings"][0]


@pytest.mark.parametrize(
    "item",
    [
        {"name": OTHER},
        {"name": "../../%s" % ONE},
        {"name": "id_ed25519"},
        {"name": ONE, "sha256": "0"},
        {"name": ONE, "source": "x\ny"},
        "x",
    ],
)
def test_a_host_that_answers_other_names_or_digests_gives_nothing(here, there, item):
    digest = hashlib.sha256(b"x").hexdigest()
    item = dict({"sha256": digest, "source": None}, **item) if isinstance(item, dict) else item
    whole = {"name": TWO, "sha256": digest, "source": None}
    result = act(here, there, answer={"archives": [whole, item]}, fetch=lambda source, target: put(here, "x"))
    assert len(result["warnings"]) == 1 and result["archives"] == [] and not here.exists()


def test_a_larger_archive_is_not_brought(here, there, monkeypatch):
    monkeypatch.setattr(dkms_archives._host_answers, "MAX_ARCHIVE_BYTES", 4096)
    put(there, ONE, b"x" * 5000)
    result = act(here, there)
    assert len(result["warnings"]) == 1 and kept(here) == {} and not list(here.glob(".[!c]*"))


def test_an_archive_that_came_meanwhile_stays(here, there):
    put(there, ONE, b"theirs")

    def fetch(source, target):
        shutil.copyfile(source, target)
        put(here, ONE, b"ours")

    result = act(here, there, fetch=fetch)
    assert result["fetched"] == [] and kept(here)[ONE][0] == b"ours"


def test_of_the_host_only_archives_of_builders_are_brought_by_their_digest(here, there, records):
    put(there, ONE, b"one")
    put(there, TWO, b"two")
    records.unknown = {TWO}
    result = act(here, there)
    assert (result["fetched"], list(kept(here))) == ([ONE], [ONE]) and "warnings" not in result
    asked = [call.args[1] for call in records.find_builders.call_args_list]
    assert {ONE: hashlib.sha256(b"one").hexdigest(), TWO: hashlib.sha256(b"two").hexdigest()} in asked
