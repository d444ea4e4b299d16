# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command of README and docs/: what is Ansible's or the project's own is read by the program that it calls, with
the options of modules and rollouts; of all other programs it is said why no test runs them.
"""

from __future__ import annotations

import importlib
import itertools
import json
import pathlib
import re
import shlex

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.splitter import parse_kv

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import main as program
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import options
from tests.lab import cli as lab
from tests.tools.common import ROOT, tracked_files

PAGES = [name for name in tracked_files() if name == "README.md" or re.fullmatch(r"docs/.*\.md", name)]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:ansible[a-z-]*|make|python3 -m tests[^\s`]+) [^`\n]+)`")
CLI = {
    "ansible": ("adhoc", "AdHocCLI"),
    "ansible-doc": ("doc", "DocCLI"),
    "ansible-galaxy": ("galaxy", "GalaxyCLI"),
    "ansible-inventory": ("inventory", "InventoryCLI"),
    "ansible-playbook": ("playbook", "PlaybookCLI"),
}
# Programs whose commands no test runs, and why; what a page shows of them was run by hand or is theirs.
NOT_RUN = {
    **dict.fromkeys("kubectl sacct scontrol sdiag sinfo squeue".split(), "of a cluster"),
    **dict.fromkeys("dcgmi nvidia-smi nvidia-uninstall".split(), "of NVIDIA's software"),
    **dict.fromkeys("ibdiagnet ibstat ipmitool lspci mlxlink nvme perfquery".split(), "of hardware"),
    **dict.fromkeys(
        "cat df dkms dmesg du echo export grep head jq ls mkdir rm sed sort tail touch".split(), "of a node"
    ),
    **dict.fromkeys("curl journalctl ping promtool reboot sha256sum ss systemctl".split(), "of a node"),
    "pip": "run by tests/tools/newcomer.sh",
    "ansible-builder": "run by tests/unit/awx/test_execution_environment.py, with other options",
    "ansible-rulebook": "in no environment",
    "ansible-runner": "a name, without its options",
}


def find_commands(text: str) -> list[list[str]]:
    """Return the words of the commands of a page, variables of their block and the programs before them resolved."""
    found = []
    for block in (*(body for language, body in BLOCK.findall(text) if not language), *INLINE.findall(text)):
        values: dict[str, str] = {}
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            for name, value in values.items():
                line = line.replace("$" + name, value)
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|><")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in itertools.chain(lexer, ";"):
                if not re.fullmatch(r"[;&|><]+", word):
                    words.append(word)
                elif word in (">", ">>"):
                    next(lexer)
                else:
                    found.append(words)
                    words = []
            for word in found[-1][:1]:
                name, equals, value = word.partition("=")
                if equals and len(found[-1]) == 1:
                    values[name] = value
    # `ansible-playbook -e` names an option and is no command.
    return [left for words in found if (left := strip_words(words)) and left[1:] != ["-e"]]


def strip_words(words: list[str]) -> list[str]:
    """Return a command without what stands before the program: variables, and the environment that it runs in."""
    words = [word for word in words if word != "..."]
    while words and re.match(r"[A-Z_]+=|[A-Z]$", words[0]):
        words = words[1:]
    return words[words.index("--") + 1 :] if words[:1] == ["tests/tools/nox.sh"] else words


COMMANDS = {page: found for page in PAGES if (found := find_commands((ROOT / page).read_text(encoding="utf-8")))}
FLAT = [(page, words) for page, commands in COMMANDS.items() for words in commands]
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
MAKE_VARIABLES = {"ARGS", "INVENTORY", "PLAYBOOK", "SCENARIOS"}


def read_ansible(words: list[str]):
    """Return what a command of Ansible makes of its words. An unknown option ends it (SystemExit)."""
    module, name = CLI[words[0]]
    cli = getattr(importlib.import_module("ansible.cli." + module), name)(words)
    cli.init_parser()
    return cli.parser.parse_args(cli.args[1:])


def read_command(words: list[str]):
    """Have the program that a command calls read its words; None if no test runs it."""
    if words[0] in CLI:
        return read_ansible(words)
    if words[0] == "make":
        assert set(words[1:]) <= TARGETS | {word for word in words if word.partition("=")[0] in MAKE_VARIABLES}, words
        return words
    if words[:3] == ["python3", "-m", "tests.lab"]:
        return lab.parser().parse_args(words[3:])
    if words[:2] == ["python3", "-m"]:
        path = ROOT / words[2].replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), words
        return words
    if words[:2] == ["python3", "-I"]:
        assert pathlib.PurePath(words[2]).name == "gpufleet-node.pyz"
        return program.parser().parse_args(words[3:])
    assert words[0] in NOT_RUN, words
    return None


@pytest.mark.parametrize("page", COMMANDS)
def test_programs_of_the_commands_on_a_page_take_their_words(page):
    for words in COMMANDS[page]:
        print(words)
        read_command(words)


def test_commands_of_all_kinds_are_read():
    assert {"README.md", "docs/tour.md", "docs/runbooks/mig.md", "docs/runbooks/several-controllers.md"} <= set(
        COMMANDS
    )
    programs = {words[0] for _page, words in FLAT}
    assert programs >= {*CLI, "make", "python3"} and set(NOT_RUN) - programs == set()
    assert find_commands(
        "```\nX=\"a.b -e c=1\"\n# no\nansible-playbook -i x $X  # why\nA=1 make test && df >x; echo $?\n```\n"
    ) == [["ansible-playbook", "-i", "x", "a.b", "-e", "c=1"], ["make", "test"], ["df"], ["echo", "$?"]]


@pytest.mark.parametrize(
    "words",
    [
        ["ansible-playbook", "--chek", "a.yml"],
        ["make", "tests"],
        ["python3", "-m", "tests.lab", "falt", "gpu-r1-1"],
        ["python3", "-m", "tests.tools.pictures"],
        ["python3", "-I", "gpufleet-node.pyz", "mig", "check"],
        ["nvidia-smy"],
    ],
    ids=lambda words: words[0],
)
def test_command_that_is_wrong_is_found(words):
    with pytest.raises((SystemExit, AssertionError)):
        read_command(words)


def find_unusable_variables(words: list[str]) -> dict[str, str]:
    """Return by variable of a rollout why the value that a command gives it cannot be used."""
    given: dict = {}
    for text in read_ansible(words).extra_vars or []:
        given.update(json.loads(text) if text.startswith("{") else {} if text.startswith("@") else parse_kv(text))
    own = {name.removeprefix(options.PREFIX): value for name, value in given.items() if name.startswith(options.PREFIX)}
    return options.find_unusable(own, options.SPEC, {key: options.PREFIX + key for key in own})


def find_unusable_arguments(words: list[str], documentation: dict) -> list[str]:
    """Return what a module of the collection would not take of the arguments that an ad hoc command gives it."""
    arguments = read_ansible(words)
    name = arguments.module_name.removeprefix("gpufleet.lifecycle.")
    if name == arguments.module_name:
        return []
    spec = {
        key: {
            "type": option["type"],
            "elements": option.get("elements"),
            "choices": list(option["choices"]) if "choices" in option else None,
        }
        for key, option in (documentation[name]["doc"].get("options") or {}).items()
    }
    return ArgumentSpecValidator(spec).validate(parse_kv(arguments.module_args)).error_messages


def test_values_of_commands_on_pages_are_taken(module_documentation):
    plays = [words for _page, words in FLAT if words[0] == "ansible-playbook"]
    calls = [words for _page, words in FLAT if words[0] == "ansible"]
    assert len(plays) > 40 and len(calls) > 4
    assert {" ".join(words): found for words in plays if (found := find_unusable_variables(words))} == {}
    assert {
        " ".join(words): found for words in calls if (found := find_unusable_arguments(words, module_documentation))
    } == {}


def test_values_that_are_not_taken_are_found(module_documentation):
    play = [
        "ansible-playbook",
        "x.yml",
        "-e",
        "rollout_max_down=5,5% rollout_mode=wave",
        "-e",
        '{"rollout_canaries": ["a"]}',
    ]
    assert set(find_unusable_variables(play)) == {"max_down", "mode"}
    call = ["ansible", "all", "-m", "gpufleet.lifecycle.gpu_mig", "-a", "state=shown layout=x"]
    assert len(find_unusable_arguments(call, module_documentation)) == 2
