# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pages say: links, commands, examples, and the tables and lines that code or data decides."""

from __future__ import annotations

import ast
import json
import pathlib
import re

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks import heads
from tests.lab import demo
from tests.tools.common import ROOT, tracked_files

PAGES = [name for name in tracked_files() if name.endswith((".md", ".rst"))]
FENCE = re.compile(r"^( *)(`{3,}).*?^ *\2 *$", re.MULTILINE | re.DOTALL)
MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
RST_LINK = re.compile(r"`[^`<]*<([^>`]+)>`__?")


def find_links(text: str, suffix: str) -> list[str]:
    """Return the targets of the relative links of a page, without those in code."""
    if suffix == ".rst":
        found = RST_LINK.findall(text)
    else:
        found = MARKDOWN_LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text)))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def find_anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a Markdown page, as GitHub names them."""
    anchors: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+?) *$", FENCE.sub("", text), re.MULTILINE):
        title = re.sub(r"\]\([^)]*\)", "", heading)
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchors[anchor] = anchors.get(anchor, -1) + 1
    return {anchor + ("-%d" % count if count else "") for anchor, last in anchors.items() for count in range(last + 1)}


def find_broken_links(page: pathlib.Path, root: pathlib.Path = ROOT) -> list[str]:
    """Return the links of a page to files below the root whose file or heading does not exist."""
    broken = []
    for target in find_links(page.read_text(encoding="utf-8"), page.suffix):
        name, _hash, anchor = target.partition("#")
        file = root / name[1:] if name.startswith("/") else page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in find_anchors(file.read_text(encoding="utf-8"))):
            broken.append(target)
    return broken


@pytest.mark.parametrize("name", PAGES)
def test_relative_links_of_a_page_lead_to_files_and_headings(name):
    assert find_broken_links(ROOT / name) == []


def test_broken_file_and_anchor_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# Go on\n\n## Go on\n\n```\n# Not a heading\n```\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` (c)\n[1](other.md#go-on) [2](other.md#go-on-1) [3](#a-b-c) [4](https://example.com/x.md)\n"
        "[5](other.md#not-a-heading) [6](none.md) [7](#none) `[8](code.md)` ![9](none.svg) [/](/other.md) [/](/none)\n"
        "```\n[10](code.md)\n```\n",
        encoding="utf-8",
    )
    broken = ["other.md#not-a-heading", "none.md", "#none", "none.svg", "/none"]
    assert find_broken_links(page, tmp_path) == broken
    rst = tmp_path / "page.rst"
    rst.write_text("`a <other.md>`_ `b <none.md>`__ `c <https://example.com>`_\n", encoding="utf-8")
    assert find_broken_links(rst) == ["none.md"]


COMMAND_PAGES = [
    name for name in tracked_files() if name.endswith((".md", ".rst")) or re.match(r"playbooks/\w+\.yml", name)
]
ROLES = sorted(path.parents[1].name for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
NAMES = {
    *ROLES,
    *(path.stem for path in ROOT.glob("playbooks/*.yml")),
    *(path.stem for path in ROOT.glob("plugins/*/*.py")),
    *(path.stem for path in ROOT.glob("extensions/eda/rulebooks/*.yml")),
}


def find_commands(text: str) -> list[str]:
    """Return the ansible-playbook commands of a page that run a playbook of the collection."""
    text = re.sub(r" *\\\n[# ]*", " ", text)
    return re.findall(r"ansible-playbook [^\n`]*gpufleet\.lifecycle\.\w[^\n`]*", text)


def find_extra_variables(command: str) -> set[str]:
    """Return the names of the extra variables of a command."""
    documents = re.findall(r"-e '(\{.+?\})'", command)
    return {*re.findall(r"-e (\w+)=", command), *(name for document in documents for name in json.loads(document))}


def find_unknown_variables(command: str) -> set[str]:
    """Return the extra variables of a command that its playbook does not document."""
    playbook = re.search(r"gpufleet\.lifecycle\.(\w+)", command).group(1)
    known = heads.find_variables(playbook) | set(_variable_names.read_role_variables())
    if "rollout_version" in known:
        known |= set(_variable_names.ROLLOUT)
    return find_extra_variables(command) - known


@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_names_of_the_collection_on_a_page_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"(?<![\w./])gpufleet\.lifecycle\.([a-z_0-9]+)", text)) - NAMES == set()


@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_extra_variables_of_commands_on_a_page_are_documented(page):
    commands = find_commands((ROOT / page).read_text(encoding="utf-8"))
    assert {command: unknown for command in commands if (unknown := find_unknown_variables(command))} == {}


def test_unknown_variables_of_a_command_are_found():
    commands = find_commands(
        "`ansible-playbook gpufleet.lifecycle.upgrade -e rollout_max_down=1 -e rollout_max_dwon=1 \\\n"
        "  -e '{\"rollout_canary\": [\"a\"]}'` and `ansible-playbook -i x gpufleet.lifecycle.holds -e mig_hosts=a`\n"
    )
    assert [find_unknown_variables(command) for command in commands] == [
        {"rollout_max_dwon", "rollout_canary"},
        {"mig_hosts"},
    ]


def test_every_variable_of_the_playbooks_is_in_a_head():
    documented = {name for path in (ROOT / "playbooks").glob("*.yml") for name in heads.find_variables(path.stem)}
    assert {*_variable_names.PLAYBOOKS, *_variable_names.CONTROL, "gpufleet_artifact_dir"} - documented == set()


def test_every_playbook_is_on_the_page_of_the_playbooks_and_on_that_of_the_commands():
    page, commands = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("docs/reference/playbook-variables.md", "docs/commands.md")
    )
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert set(re.findall(r"\]\(\.\./\.\./playbooks/(\w+)\.yml\)", page)) == playbooks
    assert playbooks - set(re.findall(r"gpufleet\.lifecycle\.(\w+)", commands)) == set()


@pytest.mark.parametrize("role", ROLES)
def test_example_of_a_role_fits_its_argument_specs(role):
    page = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
    ((play,),) = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    (call,) = play.get("roles") or play["tasks"]
    name, entry = call.get("role"), "main"
    if name is None:
        name, entry = (call["ansible.builtin.import_role"][key] for key in ("name", "tasks_from"))
    specs = (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    options = yaml.safe_load(specs)["argument_specs"][entry]["options"]
    assert name == "gpufleet.lifecycle." + role
    # Defaults may be templates, which only Ansible evaluates.
    options = {name: {key: option[key] for key in option if key != "default"} for name, option in options.items()}
    assert ArgumentSpecValidator(options).validate(call.get("vars", {})).error_messages == []


MESSAGES = re.findall(
    r"^\| `([^`]+)` \|",
    (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split("## By message")[1],
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def code():
    """The texts of the collection, without the places where a text of the source goes on in the next line."""
    folders = ("plugins", "playbooks", "roles")
    paths = [path for folder in folders for end in ("*.py", "*.yml") for path in (ROOT / folder).rglob(end)]
    return " ".join(
        re.sub(r"\s+", " ", re.sub(r"\"\s*\n\s*\"", "", path.read_text(encoding="utf-8"))) for path in paths
    )


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_collection(message, code):
    assert [part for part in message.split("...") if part.strip() and part.strip() not in code] == []


def test_the_table_is_read():
    assert len(MESSAGES) >= 15


TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
TIMED = re.findall(r"^ *\d+:\d\d  (.+)$", TOUR, re.MULTILINE)
STEPS = [line for line in TIMED if line.startswith("[")]
# What a line of a rollout may tell beside the steps that are in the demonstration's report.
WORDS = {"prestage", "evidence", "drain", "wait to drain", "go down", "soak", "done", "failed", "rolled_back"}
LARGEST = 200_000


def said():
    """A pattern for each line that the demonstration prints by itself."""
    tree = ast.parse((ROOT / "tests" / "lab" / "demo.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "say" and len(node.args) == 1:
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)


def test_output_in_readme_is_of_the_run_of_the_tour():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    lines = [line for line in shown.splitlines() if line]
    assert len(lines) == 11 and set(lines) <= set(TOUR.splitlines())


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_page_is_read():
    assert len(STEPS) > 15 and len(TIMED) > len(STEPS) + 8


@pytest.mark.parametrize("line", [line for line in TIMED if line not in STEPS])
def test_a_line_is_one_of_the_demonstration(line):
    stages = {
        "%s: %s (%d/%d)" % (name, stage, number, len(demo.STAGES))
        for name in demo.NAMES
        for number, stage in enumerate(demo.STAGES.values(), 1)
    }
    assert line in stages or any(re.fullmatch(pattern, line) for pattern in said() if pattern != ".+"), line


@pytest.mark.parametrize("line", STEPS)
def test_a_step_is_one_of_a_rollout(line):
    assert demo.STEP_LINE.fullmatch(line)
    assert line.split(": ", 1)[1].split(" (")[0] in WORDS | set(demo.OUT_OF_SERVICE)


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").iterdir()), ids=lambda path: path.name)
def test_a_picture_is_small_and_is_shown_with_words(picture):
    assert picture.stat().st_size < LARGEST
    assert re.search(r"!\[[^\]]{40,}\]\(pictures/%s\)" % re.escape(picture.name), TOUR)
