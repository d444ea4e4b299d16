# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of dkms_module: which archives are offered and sent, and who compiles what nobody has."""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
import time
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("ansible", reason="action plugins need Ansible")

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import dkms_module
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import tree_archives
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _controller, _host_answers, _node_action
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives import Claims, receive
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.store import StoreError

pytestmark = pytest.mark.cores

VERSION = "535.261.03"
ONE, TWO = ("nvidia-current_%s_6.1.0-%d-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % (VERSION, number) for number in (1, 2))


@pytest.fixture(name="records", autouse=True)
def _records(monkeypatch):
    """What the ledger says of archives: everything is a builder's, unless its name is in .unknown."""
    found = mock.Mock(unknown=set(), calls=[], agree=[])
    found.find_builders.side_effect = lambda database, archives, agree: (
        found.agree.append(agree) or {name: "builder-1" for name in archives if name not in found.unknown}
    )
    found.record_archive.side_effect = lambda database, builder, name, sha256, modules: found.calls.append(
        (builder, name, sha256, modules)
    )
    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives.others", found)
    return found


@pytest.fixture(name="store")
def _store(tmp_path):
    for name in (ONE, TWO, "nvidia-current_1.2.3_6.1.0-1-amd64_x86_64_gcc-12.2.0.dkms.tar.gz"):
        (tmp_path / name).write_bytes(b"x")
        tree_archives.write_sha256(str(tmp_path / name), hashlib.sha256(name.encode()).hexdigest())
    (tmp_path / ("nvidia_%s_6.1.0-3-amd64_x86_64_gcc-12.2.0.dkms.tar.gz" % VERSION)).write_bytes(b"being written")
    return tmp_path


def act(args, *answers, copied=None, fetched=None, check=False, limit=0, jobs=(), variables=None):
    """(result, calls) of the action on a builder, unless ARGS say otherwise.

    ANSWERS are those of dkms_module, COPIED what comes of each copy, FETCHED the content of what is fetched. With a
    LIMIT the task has async; JOBS is what async_status answers, one after another.
    """
    args = dict({"builder": True} if "archive_dir" in args else {}, **args)
    task = mock.Mock(args=args, async_val=limit, poll=3, check_mode=check, diff=False, action="x", environment=None)
    task.copy.side_effect = lambda: mock.Mock(args=None, async_val=limit)
    loader, connection = mock.Mock(), mock.Mock()
    action = dkms_module.ActionModule(
        task, connection, mock.Mock(check_mode=check), DataLoader(), mock.Mock(template=lambda text: text), loader
    )
    action._load_name = "x"
    calls, left = [], list(copy.deepcopy(answers))

    waits = mock.Mock(side_effect=lambda seconds: calls.append(("wait", seconds)))
    told = list(jobs)

    def status(task):
        answer = told.pop(0) if task.args["mode"] == "status" else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def execute(module_name, module_args, task_vars, wrap_async=False):
        assert not (wrap_async and not limit)
        calls.append((module_name.split(".")[-1] + (" by itself" if wrap_async else ""), dict(module_args)))
        return left.pop(0) if module_name == dkms_module.MODULE else {"changed": True}

    def get(name, task, **dummy):
        calls.append((name.split(".")[-1], dict(task.args)))
        assert task.async_val == 0, "neither the action that copies nor the one that asks knows async"
        if name == "ansible.legacy.async_status":
            return mock.Mock(run=lambda task_vars: status(task))
        return mock.Mock(run=lambda task_vars: copied or {"changed": True})

    def fetch(source, target):
        calls.append(("fetch", source))
        if isinstance(fetched, Exception):
            raise fetched
        with open(target, "wb") as stream:
            stream.write(fetched)

    action._execute_module = execute
    action._shared_loader_obj = loader
    loader.action_loader.get.side_effect = get
    connection.fetch_file.side_effect = fetch
    with mock.patch.object(
        _node_action.Background.__init__,
        "__defaults__",
        (waits, lambda: sum(call[1] for call in calls if call[0] == "wait")),
    ):
        result = action.run(task_vars=dict(variables or {}, inventory_hostname="a1"))
    assert not told and (not limit or task.poll == 0), "Ansible would wait, too"
    assert not left, "the module was asked less often than expected"
    return result, calls


def test_without_a_directory_the_module_is_all(store):
    result, calls = act({"version": VERSION, "state": "absent"}, {"changed": True})
    assert result["changed"] and calls == [("dkms_module", {"version": VERSION, "state": "absent"})]


@pytest.mark.parametrize("directory", ["empty", "missing"])
def test_a_directory_without_archives_offers_none(tmp_path, directory):
    (tmp_path / "empty").mkdir()
    dummy, calls = act({"version": VERSION, "archive_dir": str(tmp_path / directory)}, {"changed": False})
    assert (
        calls == [("dkms_module", {"version": VERSION, "archives_offered": []})] and not (tmp_path / "missing").exists()
    )


def test_whole_archives_of_the_version_are_offered_and_none_is_sent_that_is_not_needed(store):
    result, calls = act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "stale": []})
    assert result["stale"] == [] and calls == [("dkms_module", {"version": VERSION, "archives_offered": [ONE, TWO]})]


def test_the_node_is_told_what_an_archive_was_built_from(store):
    with open(str(store / TWO) + ".sha256", "a", encoding="ascii") as stream:
        stream.write("\n# source %s\n" % ("ab" * 32))
    dummy, calls = act({"version": VERSION, "archive_dir": str(store)}, {"changed": False})
    assert calls == [
        ("dkms_module", {"version": VERSION, "archives_offered": [ONE, TWO], "archives_sources": {TWO: "ab" * 32}})
    ]


def test_what_the_node_asks_for_is_brought_and_stays_there(store):
    result, calls = act(
        {"version": VERSION, "archive_dir": str(store), "remove_stale": True},
        {"changed": False, "needs_archives": [TWO], "compiles": [], "warnings": ["one"]},
        {"changed": True, "steps": [], "warnings": ["two"]},
    )
    assert (
        result["changed"]
        and result["warnings"] == ["one", "two"]
        and result["received"] == [TWO]
        and "needs_archives" not in result
    )
    assert [name for name, dummy in calls] == ["dkms_module", "copy", "copy", "dkms_module"]
    assert [call[1]["src"] for call in calls[1:3]] == [str(store / TWO), str(store / TWO) + ".sha256"], (
        "the digest comes last"
    )
    assert {call[1]["dest"] for call in calls[1:3]} == {tree_archives.STORE + "/"}
    # the mode of a directory that is made, and of no other
    assert {(call[1]["mode"], call[1]["directory_mode"]) for call in calls[1:3]} == {("0644", "0755")}
    assert calls[3][1] == {"version": VERSION, "remove_stale": True, "archives_offered": [ONE, TWO], "asked": True}


def test_the_store_of_the_node_may_be_another_directory(store):
    dummy, calls = act(
        {"version": VERSION, "archive_dir": str(store), "store_dir": "/srv/dkms"},
        {"needs_archives": [ONE]},
        {"changed": True},
    )
    assert [call[1]["dest"] for call in calls[1:3]] == ["/srv/dkms/"] * 2 and calls[-1][1]["store_dir"] == "/srv/dkms"


def test_what_cannot_be_brought_fails_with_the_node(store):
    result, calls = act(
        {"version": VERSION, "archive_dir": str(store)},
        {"needs_archives": [ONE]},
        copied={"failed": True, "msg": "No space left"},
    )
    assert (
        result["failed"]
        and result["msg"] == "a1: the archives could not be brought to /var/lib/gpufleet/dkms: No space left"
    )
    assert [name for name, dummy in calls] == ["dkms_module", "copy"]


@pytest.mark.parametrize("state, changed", [("prepared", True), ("built", False)])
def test_a_node_that_only_received_an_archive_was_changed_where_that_is_what_is_wanted(store, state, changed):
    result, dummy = act(
        {"version": VERSION, "state": state, "archive_dir": str(store)}, {"needs_archives": [ONE]}, {"changed": False}
    )
    assert result["changed"] is changed


THREE = ONE.replace("6.1.0-1-", "6.1.0-3-")
DIGEST = hashlib.sha256(b"built").hexdigest()
COMPILED = {
    "changed": True,
    "compiled": [{"kernel": "6.1.0-3-amd64", "path": "/var/lib/gpufleet/dkms/" + THREE, "sha256": DIGEST}],
}


def test_what_the_node_compiles_is_kept_for_the_others(store):
    result, calls = act(
        {"version": VERSION, "archive_dir": str(store)},
        {"needs_archives": [], "compiles": [THREE]},
        COMPILED,
        fetched=b"built",
    )
    assert result["changed"] and "warnings" not in result and calls[-1] == ("fetch", "/var/lib/gpufleet/dkms/" + THREE)
    assert (store / THREE).read_bytes() == b"built" and (store / (THREE + ".sha256")).read_text() == "%s  %s\n" % (
        COMPILED["compiled"][0]["sha256"],
        THREE,
    )
    assert THREE in tree_archives.list_offered(str(store), VERSION) and not [
        path for path in store.iterdir() if path.name.startswith(".") and path.is_file()
    ]


RUNS = {"started": True, "finished": False, "ansible_job_id": "j1"}
ENDED = {
    "started": True,
    "finished": True,
    "ansible_job_id": "j1",
    "results_file": "/root/.ansible_async/j1",
    "stdout": "",
    "stderr": "gcc",
}
BEGUN = {"ansible_job_id": "j1", "started": True, "finished": False, "changed": True}


def test_what_compiles_is_run_by_the_node_and_goes_on_while_its_connection_is_away(store):
    result, calls = act(
        {"version": VERSION, "archive_dir": str(store)},
        {"needs_archives": [], "compiles": [THREE]},
        BEGUN,
        fetched=b"built",
        limit=60,
        jobs=(
            RUNS,
            AnsibleConnectionFailure("reset by peer"),
            {"failed": True, "msg": "half a line"},
            dict(ENDED, **COMPILED),
        ),
    )
    names = [name for name, dummy in calls]
    assert names[:2] == ["dkms_module", "dkms_module by itself"] and names[2:10] == ["wait", "async_status"] * 4
    assert calls[10] == ("async_status", {"jid": "j1", "mode": "cleanup"}) and names[11] == "fetch"
    assert {call[1] for call in calls if call[0] == "wait"} == {3}, "poll of the task"
    assert result["changed"] and result["compiled"] == COMPILED["compiled"] and (store / THREE).exists()
    assert result["stderr"] == "gcc" and not set(result) & {
        "ansible_job_id",
        "started",
        "finished",
        "results_file",
        "stdout",
        "failed",
    }


def test_so_is_it_without_a_directory_and_a_failure_is_the_modules(store):
    failure = {"failed": True, "_ansible_parsed": True, "msg": "a1: no compiler"}
    result, calls = act({"version": VERSION}, BEGUN, limit=60, jobs=(RUNS, dict(ENDED, **failure)))
    assert calls[0][0] == "dkms_module by itself" and (result["failed"], result["msg"]) == (True, "a1: no compiler")


def test_what_only_asks_is_no_job(store):
    result, calls = act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "stale": []}, limit=60)
    assert [name for name, dummy in calls] == ["dkms_module"] and result["stale"] == []


@pytest.mark.parametrize(
    "answer", [{"failed": True, "msg": "no room"}, {"failed": True, "msg": "no room", "ansible_job_id": "j1"}]
)
def test_a_job_that_does_not_begin_is_not_waited_for(store, answer):
    result, calls = act({"version": VERSION}, answer, limit=60)
    assert result["msg"] == "no room" and len(calls) == 1


def test_a_job_past_its_time_fails_with_node_module_and_job(store):
    result, calls = act({"version": VERSION}, BEGUN, limit=7, jobs=(RUNS, AnsibleConnectionFailure("away"), RUNS))
    assert result["failed"] and all(
        words in result["msg"] for words in ("a1: ", "dkms_module did not end within 7 s", "job j1")
    )
    assert [call[1] for call in calls if call[0] == "wait"] == [3, 3, 3]


def test_nobody_waits_on_for_a_playbook_that_ended(store, monkeypatch):
    def gone(seconds):
        raise _controller.ControllerError("process 5 has ended")

    action = mock.Mock()
    action._task = mock.Mock(async_val=60, poll=3)
    action._execute_module.return_value = dict(BEGUN)
    with pytest.raises(_controller.ControllerError):
        _node_action.Background(action, gone).run("m", {}, {})
    assert not action._shared_loader_obj.action_loader.get.called


@pytest.mark.parametrize(
    "fetched, words",
    [
        (b"other", "sha256"),
        (AnsibleError("scp: Permission denied"), "Permission denied"),
        (OSError(28, "No space left"), "No space"),
    ],
)
def test_what_cannot_be_kept_is_said_and_offered_to_nobody(store, fetched, words):
    (store / THREE).write_bytes(b"half of an older run")
    result, dummy = act(
        {"version": VERSION, "archive_dir": str(store)},
        {"needs_archives": [], "compiles": [THREE]},
        COMPILED,
        fetched=fetched,
    )
    assert result["changed"] and not result.get("failed")
    (warning,) = result["warnings"]
    assert (
        warning.startswith("a1: /var/lib/gpufleet/dkms/%s was compiled and could not be brought to %s" % (THREE, store))
        and words in warning
    )
    assert THREE not in tree_archives.list_offered(str(store), VERSION)


def test_a_node_waits_for_the_one_that_compiles_and_takes_its_archive(store, monkeypatch):
    said, other = [], Claims(str(store), [THREE], "b7", 60, None)
    monkeypatch.setattr(dkms_module.display, "display", lambda text, stderr: said.append(text))
    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives.POLL_S", 0.01)
    other.__enter__()

    def finish(seconds):
        receive(
            str(store),
            _host_answers.Archive(THREE, hashlib.sha256(b"theirs").hexdigest(), None),
            lambda path: Path(path).write_bytes(b"theirs"),
        )
        other.__exit__()

    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives.time.sleep", finish)
    result, calls = act(
        {"version": VERSION, "archive_dir": str(store)}, {"needs_archives": [], "compiles": [THREE]}, {"changed": True}
    )
    assert result["waited_for"] == ["b7"] and said == ["a1: waits for the module that node b7 compiles"]
    assert result["received"] == [THREE] and [call[1]["src"] for call in calls if call[0] == "copy"][0] == str(
        store / THREE
    )


@pytest.fixture(name="quick")
def _quick(monkeypatch):
    monkeypatch.setattr("ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._archives.POLL_S", 0.01)
    monkeypatch.setattr(dkms_module.display, "display", lambda text, stderr: None)


def test_a_node_compiles_for_itself_when_another_does_not_come_to_an_end(store, quick):
    with Claims(str(store), [THREE], "b7", 60, None):
        result, calls = act(
            {"version": VERSION, "archive_dir": str(store), "build_timeout_s": "0"}, *compiled(), fetched=b"built"
        )
    assert result["changed"] and not result.get("failed") and result["waited_for"] == ["b7"]
    # the claim is another node's: what this one compiled stays on it
    assert "warnings" not in result and "fetch" not in [name for name, dummy in calls] and not (store / THREE).exists()


def test_the_time_counts_from_the_claim_and_not_from_when_a_node_comes_to_it(store, quick):
    with Claims(str(store), [THREE], "b7", 60, None, clock=lambda: time.time() - 3600):
        began = time.monotonic()
        with Claims(str(store), [THREE], "a1", 3600, lambda holder: None) as claims:
            assert time.monotonic() - began < 10 and (claims.held, claims.waited_for) == ([], ["b7"])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"node": "b7"}', '{"node": "b7", "since": "x"}', '{"since": 1e300}'])
def test_a_claim_that_does_not_say_since_when_is_waited_for_from_now_on(store, quick, text):
    with Claims(str(store), [THREE], "b7", 60, None):
        (store / ".claims" / THREE).write_text(text)
        with Claims(str(store), [THREE], "a1", 0.2, lambda holder: None) as claims:
            assert claims.held == []


def test_a_compilation_that_fails_makes_way_for_the_next_node(store):
    result, dummy = act(
        {"version": VERSION, "archive_dir": str(store)},
        {"compiles": [THREE], "needs_archives": []},
        {"failed": True, "msg": "make"},
    )
    assert result["failed"]
    with Claims(str(store), [THREE], "b7", 0, None) as claims:
        assert claims.waited_for == []


def hold(directory, taken):
    with Claims(directory, [THREE], "b7", 5, None):
        taken.set()
        time.sleep(600)


def test_the_claim_of_a_killed_run_is_free(store):
    processes = multiprocessing.get_context("fork")
    taken = processes.Event()
    child = processes.Process(target=hold, args=(str(store), taken), daemon=True)
    child.start()
    try:
        assert taken.wait(60)
        with Claims(str(store), [THREE], "a1", 0, lambda holder: None) as claims:
            assert (claims.held, claims.waited_for) == ([], ["b7"])
    finally:
        child.kill()
        child.join()
    with Claims(str(store), [THREE], "a1", 5, None) as claims:
        assert claims.held == [THREE]


@pytest.mark.parametrize(
    "more, words",
    [
        ({"archives_offered": []}, "set by the action plugin"),
        ({"archives_sources": {}}, "archives_sources: set by the action plugin"),
        ({"asked": True}, "set by the action plugin"),
        ({"state": "imported"}, "a1: archive_dir goes with state=built or prepared"),
        ({"import_files": ["/x"]}, "without import_files"),
    ],
)
def test_what_does_not_go_together(store, more, words):
    with pytest.raises(AnsibleActionFail, match=words):
        act(dict({"version": VERSION, "archive_dir": str(store)}, **more))


def test_a_directory_that_cannot_be_read_is_no_empty_one(store):
    with pytest.raises(AnsibleActionFail, match="archive_dir.* on the controller cannot be read: Not a directory"):
        act({"version": VERSION, "archive_dir": str(store / ONE)})


def test_a_directory_that_cannot_be_written_to_is_named_before_anything_is_compiled(store):
    (store / ".claims").write_text("")
    with pytest.raises(AnsibleActionFail, match="archive_dir.* on the controller cannot be written to"):
        act({"version": VERSION, "archive_dir": str(store)}, {"needs_archives": [], "compiles": [THREE]})


def test_archives_are_brought_in_a_task_with_async_too(store):
    """The action that copies refuses a task that has it."""
    result, calls = act(
        {"version": VERSION, "archive_dir": str(store)},
        {"needs_archives": [ONE]},
        {"ansible_job_id": "7", "started": 1},
        limit=60,
        jobs=[{"finished": 1, "changed": True}],
    )
    assert result["changed"] and [name for name, dummy in calls if name == "copy"] == ["copy", "copy"]


OUTSIDE = ["../../.ssh/id_ed25519", "/root/.ssh/id_ed25519", ".claims/x", THREE.replace(VERSION, "1.2.3"), THREE + "\n"]


@pytest.mark.parametrize("name", OUTSIDE + [THREE])
def test_a_node_is_sent_nothing_but_archives_that_it_was_offered(store, name):
    with pytest.raises(AnsibleActionFail, match="a1: "):
        act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "needs_archives": [ONE, name]})


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_node_claims_nothing_but_archives_of_its_version(store, name):
    victim = store.parent / "ledger.sqlite"
    victim.write_text("ledger")
    for claimed in (name, str(victim), "../../%s/ledger.sqlite" % store.parent.name):
        with pytest.raises(AnsibleActionFail, match="a1: "):
            act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "compiles": [claimed]})
    assert victim.read_text() == "ledger" and not (store / ".claims").exists()


def test_check_mode_takes_no_claim_whatever_the_node_answers(store):
    answer = {"changed": False, "needs_archives": [ONE], "compiles": [THREE]}
    dummy, calls = act({"version": VERSION, "archive_dir": str(store)}, answer, check=True)
    assert [name for name, dummy in calls] == ["dkms_module"] and not (store / ".claims").exists()


def test_a_claim_follows_no_link(store, tmp_path_factory):
    victim = tmp_path_factory.mktemp("other") / "ledger.sqlite"
    victim.write_text("ledger")
    (store / ".claims").mkdir()
    (store / ".claims" / THREE).symlink_to(victim)
    with pytest.raises(AnsibleActionFail, match="cannot be written to"):
        act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "compiles": [THREE]})
    assert victim.read_text() == "ledger"


def test_a_link_is_not_sent(store, tmp_path_factory):
    secret = tmp_path_factory.mktemp("other") / "id_ed25519"
    secret.write_text("secret")
    (store / ONE).unlink()
    (store / ONE).symlink_to(secret)
    with pytest.raises(AnsibleActionFail, match="a1: "):
        act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "needs_archives": [ONE]})


def test_archives_are_sent_as_they_are(store):
    """The action that copies decrypts a file of ansible-vault otherwise."""
    dummy, calls = act(
        {"version": VERSION, "archive_dir": str(store)}, {"changed": False, "needs_archives": [ONE]}, {"changed": True}
    )
    assert {call[1]["decrypt"] for call in calls if call[0] == "copy"} == {False}


def compiled(name=THREE, content=b"built", **more):
    """The answers of a node that claims THREE and compiled NAME."""
    item = {"kernel": "x", "path": "/x/" + name, "sha256": hashlib.sha256(content).hexdigest()}
    return {"changed": False, "compiles": [THREE]}, {"changed": True, "compiled": [dict(item, **more)]}


def put(store, name, content, source=None):
    (store / name).write_bytes(content)
    tree_archives.write_sha256(str(store / name), hashlib.sha256(content).hexdigest(), source)


@pytest.mark.parametrize("name", [THREE, ONE])
def test_an_archive_with_a_digest_is_not_replaced(store, name):
    put(store, name, b"honest")
    result, dummy = act({"version": VERSION, "archive_dir": str(store)}, *compiled(name, b"evil"), fetched=b"evil")
    assert result["changed"] and len(result["warnings"]) == 1 and (store / name).read_bytes() == b"honest"
    assert tree_archives.read_whole_digest(str(store / name))


def test_nobody_waits_for_an_archive_that_will_not_be_replaced(store):
    """Nodes whose source differs from that of the archive compile side by side."""
    put(store, THREE, b"other source")
    with Claims(str(store), [THREE], "b7", 0, None):
        result, dummy = act({"version": VERSION, "archive_dir": str(store)}, *compiled(), fetched=b"built")
    assert result["waited_for"] == [] and len(result["warnings"]) == 1


def test_an_archive_that_differs_from_its_digest_is_replaced(store):
    put(store, THREE, b"whole")
    (store / THREE).write_bytes(b"damaged")
    result, dummy = act({"version": VERSION, "archive_dir": str(store)}, *compiled(), fetched=b"built")
    assert "warnings" not in result and (store / THREE).read_bytes() == b"built"


@pytest.mark.parametrize(
    "name, more",
    [
        (ONE.replace("-1-", "-4-"), {}),  # not claimed
        ("../../x", {}),
        (THREE, {"sha256": "0"}),
        (THREE, {"source": "a\n%s  other" % ("b" * 64)}),
        (THREE, {"path": ["x"]}),
    ],
)
def test_what_a_node_compiled_is_not_kept_under_another_name_or_digest(store, name, more):
    before = sorted(path.name for path in store.iterdir())
    result, calls = act({"version": VERSION, "archive_dir": str(store)}, *compiled(name, **more), fetched=b"built")
    assert result["changed"] and len(result["warnings"]) == 1 and not [call for call in calls if call[0] == "fetch"]
    assert sorted(path.name for path in store.iterdir() if path.name != ".claims") == before


def test_the_place_of_a_compiled_archive_on_the_node_is_the_controllers(store):
    """A path of the node would be a line for sftp on the controller."""
    dummy, calls = act(
        {"version": VERSION, "archive_dir": str(store), "store_dir": "/srv/dkms"},
        *compiled(path="/x\n!id\n/" + THREE),
        fetched=b"built",
    )
    assert calls[-1] == ("fetch", "/srv/dkms/" + THREE)


def test_a_larger_archive_is_not_brought(store, monkeypatch):
    monkeypatch.setattr(_host_answers, "MAX_ARCHIVE_BYTES", 4096)
    content = b"x" * 5000
    result, dummy = act({"version": VERSION, "archive_dir": str(store)}, *compiled(content=content), fetched=content)
    assert result["changed"] and len(result["warnings"]) == 1 and not (store / THREE).exists()
    assert not [path for path in store.iterdir() if path.name.startswith(".") and path.is_file()]


def test_an_archive_that_is_no_builders_is_not_offered(store, records):
    records.unknown = {TWO}
    dummy, calls = act({"version": VERSION, "archive_dir": str(store)}, {"changed": False})
    assert calls[0][1]["archives_offered"] == [ONE]
    with pytest.raises(AnsibleActionFail, match="a1: "):
        act({"version": VERSION, "archive_dir": str(store)}, {"changed": False, "needs_archives": [TWO]})


def test_what_a_builder_compiles_is_recorded_as_its_own(store, records):
    act({"version": VERSION, "archive_dir": str(store)}, *compiled(), fetched=b"built")
    assert records.calls == [("a1", THREE, hashlib.sha256(b"built").hexdigest(), "")]


def test_modules_of_a_second_builder_are_compared_and_those_of_the_first_stay(store, records, monkeypatch):
    monkeypatch.setattr(dkms_module._archives.trees, "unsigned_digest", lambda path: Path(path).read_text()[:5])
    put(store, THREE, b"built by one")
    records.unknown = {THREE}  # two have to agree
    args = {"version": VERSION, "archive_dir": str(store)}
    variables = {"gpufleet_builders_agree": "2"}
    result, calls = act(args, *compiled(content=b"built by two"), fetched=b"built by two", variables=variables)
    assert "warnings" not in result and THREE not in calls[0][1]["archives_offered"] and set(records.agree) == {2}
    assert records.calls == [("a1", THREE, hashlib.sha256(b"built by two").hexdigest(), "built")]
    assert (store / THREE).read_bytes() == b"built by one" and tree_archives.read_whole_digest(str(store / THREE))
    assert not [path for path in store.iterdir() if path.name.startswith(".") and path.is_file()]


def test_one_builder_is_enough_where_nothing_else_is_said(store, records):
    act({"version": VERSION, "archive_dir": str(store)}, {"changed": False})
    assert set(records.agree) == {1}


@pytest.mark.parametrize("value", ["0", "-1", "many", 1.5, True, [2], 101])
def test_number_of_builders_that_is_none_is_refused(store, value):
    variables = {"gpufleet_builders_agree": value}
    with pytest.raises(AnsibleActionFail, match="gpufleet_builders_agree"):
        act({"version": VERSION, "archive_dir": str(store)}, variables=variables)


def test_what_does_not_agree_with_its_digest_is_not_recorded(store, records):
    act({"version": VERSION, "archive_dir": str(store)}, *compiled(content=b"other"), fetched=b"built")
    assert records.calls == []


@pytest.mark.parametrize("builder", [False, "no", None])
def test_another_node_compiles_for_itself_and_nothing_of_it_is_kept(store, records, builder):
    args = {"version": VERSION, "archive_dir": str(store), "builder": builder}
    result, calls = act(args, *compiled(), fetched=b"built")
    assert result["changed"] and "warnings" not in result and "fetch" not in [name for name, dummy in calls]
    assert records.calls == [] and not (store / THREE).exists()
    assert "builder" not in calls[0][1], "the node is not told"


def test_another_node_takes_no_claim_and_waits_for_that_of_a_builder(store, records, quick):
    args = {"version": VERSION, "archive_dir": str(store), "builder": False}
    act(args, *compiled(), fetched=b"built")
    assert not (store / ".claims" / THREE).exists()
    with Claims(str(store), [THREE], "b7", 60, None):
        assert act(dict(args, build_timeout_s="0"), *compiled(), fetched=b"built")[0]["waited_for"] == ["b7"]


def test_a_ledger_that_cannot_be_used_is_named(store, records):
    records.find_builders.side_effect = StoreError("The ledger x cannot be used.")
    with pytest.raises(AnsibleActionFail, match="a1: .*The ledger x cannot be used"):
        act({"version": VERSION, "archive_dir": str(store)}, {"changed": False})
