# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stub node answers that is in the hands of an attacker. Pure.

The node does what it is asked, so that it comes as far as an honest one. A lie is made of its honest answer, and aims
at VICTIM, a directory of the controller: nothing may be read or written there.
"""

from __future__ import annotations

import json
import os
import re
import typing as t

Said = t.Tuple[int, bytes, bytes]  # exit status, stdout, stderr
# Values of every type, none of which is of the type of what it replaces.
WRONG = (None, True, -1, 0.5, "x", [], {}, [None], [[1]], {"x": 1}, ["x", 5], {"": {}}, 10**30, "x\ny")
DIGEST = "0" * 64
ESCAPES = "\x1b[2K\x1b[1A\x1b]0;owned\x07\x1b]8;;file:///etc/passwd\x07\x9b31m\rall nodes are done\u202e"


def facts(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """Facts, statistics, hosts and groups that Ansible would act on."""
    variables = {
        "rollout_max_down": 99,
        "rollout_failure_budget": 99,
        "rollout_mode": "waves",
        "ansible_connection": "ansible.builtin.local",
        "ansible_host": "a1",
        "ansible_python_interpreter": victim + "/python",
        "ansible_remote_tmp": victim,
        "discovered_interpreter_python": victim + "/python",
        "gpufleet_artifact_host": "a1",
        "gpufleet_artifact_dir": victim,
        "gpufleet_answer_timeout": 0,
        "gpu_node_upgrade_state_dir": victim,
        "nvidia_driver_tree_dir": victim,
        "nvidia_driver_builder": True,
        "precheck_report_dir": victim,
        "inventory_hostname": "a1",
    }
    return dict(
        answer,
        ansible_facts=dict(variables, ansible_facts=variables, hostvars={"a1": variables}),
        ansible_stats={"data": variables, "aggregate": True, "per_host": False},
        add_host={"host_name": "a1", "groups": ["gpufleet_builders", "gpu_nodes"], "host_vars": variables},
        add_group="gpufleet_builders",
        parent_groups=["all"],
        _ansible_delegated_vars={"a1": variables, "ansible_host": "a1"},
        _ansible_facts=variables,
        _ansible_no_log=False,
        _ansible_verbose_always=True,
        **{name: value for name, value in variables.items() if name not in answer},
    )


def control(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """What Ansible's main loop reads of a result."""
    states = (
        {"changed": "x"},
        {"failed": "no"},
        {"skipped": True},
        {"unreachable": True},
        {"failed": [], "changed": {}},
    )
    return dict(
        answer,
        ansible_job_id="../../../%s/job" % victim,
        started=1,
        finished="x",
        results_file=victim + "/job",
        invocation=["x", {"module_args": 5}],
        attempts="many",
        retries={},
        include="%s/tasks.yml" % victim,
        include_args={"file": victim},
        _ansible_item_result=True,
        _ansible_ignore_errors=True,
        _ansible_parsed="no",
        _ansible_notify=["x"],
        **states[turn % len(states)],
    )


def display(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """What Ansible and its callbacks print."""
    values: t.List[t.Any] = [5, "x", [5, None], {"x": 1}, [["x"]], [{"msg": 5, "version": [], "date": {}}], None, [{}]]
    odd = values[turn % len(values)]
    return dict(
        answer,
        diff=odd,
        results=odd,
        deprecations=odd,
        warnings=odd,
        exception=odd,
        stdout_lines=odd,
        stderr=odd,
        rc=odd,
        item=odd,
        ansible_loop=odd,
        ansible_loop_var=odd,
    )


def tags(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """What makes objects of Ansible's own JSON: templates to trust, vaults, and values that are read from files."""
    template = template_of(victim)
    return dict(
        every(
            answer, lambda text: {"__ansible_type": "_AnsibleTaggedStr", "value": text or template, "tags": [TRUSTED]}
        ),
        one={"__ansible_type": "_AnsibleTaggedStr", "value": template, "tags": [TRUSTED]},
        two={"__ansible_unsafe": template},
        three={"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n3132"},
        four={"__ansible_type": "PosixPath", "value": victim},
    )


TRUSTED = {"__ansible_type": "TrustedAsTemplate"}


def types(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Any:
    """One value of each kind of the answer in the place of others, other ones at each turn."""
    if turn % 5 == 4:
        return WRONG[turn // 5 % len(WRONG)]
    found = {key: WRONG[(turn + number) % len(WRONG)] for number, key in enumerate(sorted(answer))}
    kept = {key: value for key, value in answer.items() if (turn + len(key)) % 2}
    return dict(found, **kept, msg=WRONG[turn % len(WRONG)])


def deeper(answer: t.Any, turn: int, victim: str) -> t.Any:
    """As types(), a level further down."""
    if isinstance(answer, dict):
        return {
            key: types(value, turn + number, victim)
            if isinstance(value, dict)
            else [WRONG[(turn + number) % len(WRONG)]]
            if isinstance(value, list)
            else value
            for number, (key, value) in enumerate(sorted(answer.items()))
        }
    return answer


def paths(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """A path to the controller's files in the place of each name, and of each key that the answer has at its depths."""
    path = ("../" * 12 + victim.lstrip("/"), victim, "-oProxyCommand=touch " + victim, "~root", "a/../../" + victim)[
        turn % 5
    ] + "/id_ed25519"
    more = {
        "path": path,
        "dest": path,
        "src": path,
        "needs_archives": [path],
        "compiles": [path],
        "archives": [{"name": path, "sha256": DIGEST, "source": None}],
        "compiled": [{"kernel": path, "path": path, "sha256": DIGEST, "source": DIGEST}],
        "files": {path: {"data": "eJwDAAAAAAE=", "truncated": False, "note": ""}},
        "written": {path: DIGEST},
        "baseline_file": path,
    }
    return dict(
        more, **dict(every(answer, lambda text: path), **{key: answer[key] for key in ("claim",) if key in answer})
    )


def templates(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """A template in the place of each text, and as a key."""
    template = template_of(victim)
    return dict(every(answer, lambda text: template), msg=template, warnings=[template], **{template: template})


def template_of(victim: str) -> str:
    return "{{ lookup('ansible.builtin.pipe', 'touch %s/template') }}" % victim


def escapes(answer: t.Dict[str, t.Any], turn: int, victim: str) -> t.Dict[str, t.Any]:
    """Control characters in all texts."""
    return dict(
        every(answer, lambda text: text + ESCAPES),
        msg=ESCAPES,
        failed=turn % 3 == 2,
        warnings=[ESCAPES],
        stdout=ESCAPES,
    )


def every(value: t.Any, change: t.Callable[[str], t.Any]) -> t.Any:
    """Return VALUE with all texts changed."""
    if isinstance(value, dict):
        return {key: every(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [every(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def nested(depth: int) -> str:
    return '{"x":' * depth + "1" + "}" * depth


MADE = {
    "facts": facts,
    "control": control,
    "display": display,
    "tags": tags,
    "types": types,
    "deeper": deeper,
    "paths": paths,
    "templates": templates,
    "escapes": escapes,
}
# Texts in the place of an answer. The last ones are what a program of a shell could say without end.
SPOKEN: t.Dict[str, t.Tuple[t.Callable[[str], bytes], ...]] = {
    "not JSON": (
        lambda victim: b"Traceback (most recent call last):\nMemoryError\n",
        lambda victim: b'{"changed": false',
        lambda victim: b"\xff\xfe\x00{}\n",
        lambda victim: b'{"changed": false, "msg": "\\ud800", "x": NaN, "y": -Infinity, "z": 1e999}\n',
        lambda victim: b'{"changed": false, "x": ' + b"9" * 5000 + b"}\n",
        lambda victim: b'{"failed": false}\n{"failed": true, "msg": "twice"}\n',
        lambda victim: b"null\n",
        lambda victim: b"BECOME-SUCCESS-x\nsudo: a password is required\n[]\n",
    ),
    "empty": (lambda victim: b"", lambda victim: b"\n\n", lambda victim: b"{}\n", lambda victim: b'""\n'),
    "deep": (
        lambda victim: (nested(900) + "\n").encode(),
        lambda victim: (nested(100_000) + "\n").encode(),
        lambda victim: ('{"msg":' + nested(60) + "}\n").encode(),
        lambda victim: ("[" * 50_000 + "\n").encode(),
    ),
    "huge": (
        lambda victim: json.dumps({"changed": False, "more": "x" * 20_000_000}).encode() + b"\n",
        lambda victim: json.dumps({"changed": False, "more": [0] * 500_000}).encode() + b"\n",
        lambda victim: json.dumps({"changed": False, "warnings": ["x" * 1000] * 2000}).encode() + b"\n",
    ),
    "endless": (lambda victim: b"y\n" * 8_000_000, lambda victim: b"{" * 16_000_000),
}
KINDS = (*MADE, *SPOKEN, "status")
# Words in the place of what a shell of the node answers, by the kind of lie.
SHELL = {"paths", "templates", "escapes", "empty", "not JSON", "types", "endless", "status"}


def tell(kind: str, honest: Said, turn: int, victim: str, is_module: bool) -> Said:
    """Return a lie of the KIND in the place of an HONEST answer, another one at each TURN."""
    if kind == "status":
        codes = (127, -9, 255, 1, 2, 137)
        return codes[turn % len(codes)], honest[1], b"sudo: %s: %s\n" % (victim.encode(), ESCAPES.encode())
    if not is_module:
        words = {
            "paths": victim,
            "templates": template_of(victim),
            "escapes": ESCAPES,
            "types": "5",
            "not JSON": "\x00",
            "endless": "y\n" * 2_000_000,
        }
        return 0, words.get(kind, "").encode() + b"\n", b""
    if kind in SPOKEN:
        said = SPOKEN[kind]
        return 0, said[turn % len(said)](victim), b""
    try:
        answer = json.loads(honest[1].strip().rpartition(b"\n")[2])
    except ValueError:
        return honest
    return 0, json.dumps(MADE[kind](answer, turn, victim)).encode() + b"\n", honest[2]


MODULE = re.compile(rb"(?:modules|legacy|builtin)\.([a-z_]+)|AnsiballZ_([a-z_]+)\.py")


def name_module(command: str, in_data: t.Optional[bytes]) -> str:
    """Return the module that is called, or empty for a command of the shell."""
    found = MODULE.search(in_data or command.encode())
    return (found.group(1) or found.group(2)).decode() if found else ""


class Liar:
    """A node that lies: about VICTIM, each time with another one of KINDS, of some MODULES or at every call.

    TURN: the number of the first lie.
    """

    def __init__(self, path: str, told: t.Mapping[str, t.Any]) -> None:
        self.log, self.told = os.path.join(path, "told"), told

    def has_lied(self) -> bool:
        """Return whether its shell lied: its words would be paths of this machine, so that it does nothing any more."""
        return any(line.startswith("shell: ") and line != "shell: truth" for line in self.lines())

    def lines(self) -> t.List[str]:
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as stream:
            return stream.read().splitlines()

    def answer(self, command: str, in_data: t.Optional[bytes], ask: t.Callable[[], Said]) -> Said:
        """Return a lie, and note it in the file C(told) of the node. ASK() is the honest answer."""
        module, kinds = name_module(command, in_data), self.told["kinds"]
        count = sum(not line.endswith(": truth") for line in self.lines())
        kind, turn = kinds[count % len(kinds)], count + self.told["turn"]
        if (self.told["modules"] and (module or "shell") not in self.told["modules"]) or not (module or kind in SHELL):
            kind = "truth"
        with open(self.log, "a", encoding="utf-8") as stream:
            stream.write("%s: %s\n" % (module or "shell", kind))
        honest = ask() if in_data or not self.has_lied() else (0, b"", b"")
        return honest if kind == "truth" else tell(kind, honest, turn, self.told["victim"], bool(module))
