# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command of a page names that is not there: a playbook, a variable, a target of make, a file, an option."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import pathlib
import re

import yaml

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._program import main as node_program
from ansible_collections.gpufleet.lifecycle.tests.unit.meta import commands
from tests.lab import cli, demo

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Programs of others, whose options are theirs.
FOREIGN = set(
    """ansible-builder ansible-galaxy cat curl dcgmi df dkms dmesg du git gpg grep head ibdiagnet ibstat ipmitool
    journalctl jq kubectl ls lspci mkdir mlxlink nvidia-smi nvme perfquery ping pip promtool sacct scontrol sdiag sed
    sha256sum sinfo sort squeue ss systemctl tail touch""".split()
)
PLAYBOOK_OPTIONS = {"-i", "-e", "--limit", "--check", "--diff", "--forks"}
AD_HOC_OPTIONS = {"-i", "-b", "-m", "-a", "--check"}
FOLDERS = ("awx", "docs", "inventories", "playbooks", "roles", "tests")
PROGRAM = "/usr/local/lib/gpufleet/gpufleet-node.pyz"


def _text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def _placeholder(word):
    return re.fullmatch(r"[A-Z][A-Z_]*", word) is not None


def _unparsed(parser, words):
    """The words, if the parser of one of our programs does not take them."""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser.parse_args(words)
        except SystemExit as exc:
            return [] if exc.code == 0 else [" ".join(words)]
    return []


def _playbook(words):
    positional, given = commands.options(words)
    name = (positional or [""])[0]
    found = [word for word in words if word.startswith("-") and word not in PLAYBOOK_OPTIONS]
    if not name.startswith("gpufleet.lifecycle."):
        there = _placeholder(name) or (name and (ROOT / name).is_file())
        return found + ([] if there else ["no playbook or module"])
    name = name.rpartition(".")[2]
    page = _text("docs/reference/playbook-variables.md")
    known = page.split("\n## %s\n" % name)[-1].split("\n## ")[0]
    if "`rollout_version`" in known:
        known += page.split("\n## Every limit of a rollout\n")[1]
    names = {one.partition("=")[0] for one in given} - PLAYBOOK_OPTIONS
    found += sorted(one for one in names if not one.startswith("-") and "`%s`" % one not in known)
    return found + ([] if (ROOT / "playbooks" / (name + ".yml")).is_file() else [name])


def _ad_hoc(words):
    positional, given = commands.options(words)
    name = next((word for word in positional if word.startswith("gpufleet.lifecycle.")), "").rpartition(".")[2]
    found = [word for word in words if word.startswith("-") and word not in AD_HOC_OPTIONS]
    page = ROOT / "docs" / "modules" / (name + ".md")
    section = page.read_text(encoding="utf-8").split("## Options")[1].split("\n## ")[0] if page.is_file() else ""
    names = {one.partition("=")[0] for one in given if not one.startswith("-")}
    found += sorted(one for one in names if "\n- `%s` (" % one not in section)
    there = name and (ROOT / "plugins" / "modules" / (name + ".py")).is_file()
    return found + ([] if there else [name or "no playbook or module"])


def _make(words):
    makefile = _text("Makefile")
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    given = [word.partition("=")[0] for word in words[1:] if "=" in word]
    found = [word for word in words[1:] if "=" not in word and word not in targets]
    return found + [name for name in given if "$(%s)" % name not in makefile]


def _rulebook(words):
    name = words[words.index("--rulebook") + 1].rpartition(".")[2]
    there = (ROOT / "extensions" / "eda" / "rulebooks" / (name + ".yml")).is_file()
    return [] if there else [name]


def _fault(words):
    """What is done to a machine of the lab goes by the demonstration's nodes and the simulator's faults."""
    simulator = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "sim").rglob("*.py"))
    faults = words[2:3] if words[1:2] == ["inject"] else []
    return [one for one in words[:1] if one not in demo.NAMES] + [
        one for one in faults if '"%s"' % one not in simulator
    ]


def _python(words):
    if words[1:2] == ["-m"]:
        name, rest = words[2], words[3:]
        if not name.startswith("tests.") or importlib.util.find_spec(name) is None:
            return [name]
        if name == "tests.lab":
            return _unparsed(cli.parser(), rest) or (_fault(rest[1:]) if rest[0] == "fault" else [])
        return []
    rest = [word for word in words[1:] if word != "-I"]
    return _unparsed(node_program.parser(), rest[1:]) if rest[:1] == [PROGRAM] else rest[:1]


def _environment(words):
    """The environment that tests/tools/with.sh and venv.sh are given."""
    there = _placeholder(words[1]) or (ROOT / "tests" / "tools" / "requirements" / (words[1] + ".txt")).is_file()
    return [] if there else words[1:2]


def _elsewhere(words):
    """Units, files of the nodes and of the checkout, and the tarball, which any program may be given."""
    code = None
    for word in words:
        for path in re.findall(r"(?<![\w./-])(?:%s)/[\w./-]+\w" % "|".join(FOLDERS), word):
            if not (ROOT / path).exists() and not word.endswith("..."):
                yield path
        for version in re.findall(r"gpufleet-lifecycle-(.+)\.tar\.gz", word):
            if version != yaml.safe_load(_text("galaxy.yml"))["version"]:
                yield word
        for unit in re.findall(r"\bgpufleet-[a-z-]+\.(?:service|timer)\b", word):
            if not list(ROOT.glob("roles/*/templates/%s.j2" % unit)):
                yield unit
        for path in re.findall(r"/(?:etc|run|var/lib)/gpufleet(?:/[\w.-]+)+", word):
            code = code or "".join(
                path.read_text(encoding="utf-8")
                for folder in ("plugins", "roles")
                for end in ("*.py", "*.yml", "*.j2")
                for path in (ROOT / folder).rglob(end)
            )
            if path.rpartition("/")[2] not in code:
                yield path


PROGRAMS = {
    "ansible": _ad_hoc,
    "ansible-playbook": _playbook,
    "ansible-rulebook": _rulebook,
    "make": _make,
    "python3": _python,
}


def wrong_with(command):
    """What a command names that is not there."""
    found = []
    for part in command.parts:
        words = part.words
        found += _elsewhere(words)
        if words[0] in (commands.OURS, "tests/tools/venv.sh"):
            found += _environment(words)
            words = words[2:] or ["true"]
        if words[0] in PROGRAMS:
            found += PROGRAMS[words[0]](words)
        elif words[0] not in FOREIGN | commands.BUILTIN | {"true"}:
            found.append(words[0])
    return found
