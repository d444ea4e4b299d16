# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command of the documentation names what there is, and is run by a test, or its page says that it is not."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gpufleet.lifecycle.tests.unit.meta import command_names, command_tests, commands

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "roles/*/README.md")
    for path in ROOT.glob(pattern)
)
ROWS = command_tests.table()
FOUND = {page: commands.commands((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}
EVERY = [command for page in PAGES for command in FOUND[page]]
# Rows of an example.
SOME = [
    {"run": "ansible-playbook gpufleet.lifecycle.holds", "given": ["--limit"], "tests": []},
    {"run": "ansible-playbook gpufleet.lifecycle.rollout_control", "given": ["rollout_verb=pause"], "tests": []},
    {"run": "ansible-playbook gpufleet.lifecycle.rollout_control", "given": ["rollout_reason"], "tests": []},
    {"run": "make demo", "tests": []},
    {"run": "promtool check config", "given": ["/etc/*"], "tests": []},
]
HERE = "tests/unit/meta/test_commands.py"


def said(*lines):
    """A page with these lines; `(` and `)` alone are a fence that opens and one that closes."""
    return "\n".join({"(": "```", ")": "```"}.get(line, line) for line in lines) + "\n"


def test_the_pages_are_read():
    assert len(PAGES) > 80 and len(EVERY) > 200
    assert {"README.md", "docs/awx.md", "docs/runbooks/alerts/health.md", "docs/reference/playbook-variables.md"} <= {
        page for page, found in FOUND.items() if found
    }


@pytest.mark.parametrize("page", [page for page in PAGES if FOUND[page]])
def test_the_commands_of_a_page_name_what_there_is(page):
    assert [(one.text, wrong) for one in FOUND[page] for wrong in [command_names.wrong_with(one)] if wrong] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_a_page_is_run_by_a_test_or_said_not_to_be(page):
    assert command_tests.wrong_with((ROOT / page).read_text(encoding="utf-8"), ROWS) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["run"].rpartition("gpufleet.lifecycle.")[2])
def test_a_row_has_tests_that_are_there_and_a_command_of_a_page(row):
    assert row["tests"] and command_tests.wrong_with_row(row) == []
    assert any(
        command_tests.is_run(one, ROWS) and not command_tests.is_run(one, [other for other in ROWS if other is not row])
        for one in EVERY
    )


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"run": "make one", "tests": [HERE + "::test_the_pages_are_read"], "seen": "EVERY"}, []),
        ({"run": "make one", "tests": [HERE + "::test_none"]}, [HERE + "::test_none", "one"]),
        ({"run": "make one", "tests": ["tests/none.py::test_none"]}, ["tests/none.py::test_none", "one"]),
        ({"run": "make one", "tests": ["tests/tools/stages.py::none"]}, ["tests/tools/stages.py::none", "one"]),
        ({"run": "make demo", "tests": ["tests/tools/stages.py::demo"]}, []),
        ({"run": "x", "tests": [HERE + "::test_the_pages_are_read"], "seen": "quarantine"}, ["quarantine"]),
        (
            {"run": "x", "tests": [HERE + "::test_the_pages_are_read"], "seen": "PAGES", "given": ["--FOUND", "a=b9"]},
            ["a=b9"],
        ),
    ],
)
def test_what_is_wrong_with_a_row_is_found(row, wrong):
    assert command_tests.wrong_with_row(row) == wrong


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("ansible-playbook gpufleet.lifecycle.none", ["none"]),
        ("ansible-playbook gpufleet.lifecycle.holds -e recover_gpu_hosts=a", ["recover_gpu_hosts"]),
        ("ansible-playbook gpufleet.lifecycle.upgrade -e rollout_max_dwon=1", ["rollout_max_dwon"]),
        ("ansible-playbook gpufleet.lifecycle.upgrade -e '{\"rollout_canary\": [\"a\"]}'", ["rollout_canary"]),
        ("ansible-playbook gpufleet.lifecycle.upgrade -e rollout_max_down=1 [--limit ...]", []),
        ("ansible-playbook gpufleet.lifecycle.upgrade --chekc", ["--chekc"]),
        ("ansible-playbook other.yml", ["no playbook or module"]),
        ("ansible-playbook awx/controller.yml -e @yours.yml", []),
        ("ansible a -m gpufleet.lifecycle.gpu_info -a none=1", ["none"]),
        ("ansible a -m gpufleet.lifecycle.none", ["none"]),
        ("ansible-rulebook --rulebook gpufleet.lifecycle.none", ["none"]),
        ("nvtop", ["nvtop"]),
        ("df -h | nvtop", ["nvtop"]),
        ("make none", ["none"]),
        ("make rehearse INVENTORY=a PLAYBOK=b", ["PLAYBOK"]),
        ("tests/tools/with.sh main ansible-playbook gpufleet.lifecycle.none", ["none"]),
        ("tests/tools/with.sh none true", ["none"]),
        ("python3 -m tests.lab fault gpu-r3-1 inject nvlink-down --gpu 2", []),
        ("python3 -m tests.lab fault gpu-r3-1 inject nvlink-dwon --gpu 2", ["nvlink-dwon"]),
        ("python3 -m tests.lab fault gpu-r9-1 inject nvlink-down --gpu 2", ["gpu-r9-1"]),
        ("python3 -m tests.lab none", ["none"]),
        ("python3 -m tests.none", ["tests.none"]),
        ("python3 -I /usr/local/lib/gpufleet/gpufleet-node.pyz mig assert", []),
        ("python3 -I /usr/local/lib/gpufleet/gpufleet-node.pyz mig asert", ["mig asert"]),
        ("systemctl status gpufleet-none.service", ["gpufleet-none.service"]),
        ("cat /var/lib/gpufleet/none.json", ["/var/lib/gpufleet/none.json"]),
        ("ansible-builder build -f awx/none.yml", ["awx/none.yml"]),
        ("sha256sum gpufleet-lifecycle-0.0.9.tar.gz > SHA256SUMS", ["gpufleet-lifecycle-0.0.9.tar.gz"]),
    ],
)
def test_a_command_that_names_something_else_is_found(command, wrong):
    (found,) = commands.commands(said("(", command, ")"))
    assert command_names.wrong_with(found) == wrong


HOLDS, LIMITED = "ansible-playbook gpufleet.lifecycle.holds", "ansible-playbook gpufleet.lifecycle.holds --limit a"
CONTROL = "ansible-playbook -i all gpufleet.lifecycle.rollout_control -e rollout_verb="
UNMARKED, MARKED, NOTHING = "neither run nor marked", "marked, and run", "is on no command"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["(", HOLDS, LIMITED, "make demo", ")"], []),
        (["`%s` and `%s --check`" % (HOLDS, HOLDS)], [(UNMARKED, HOLDS + " --check")]),
        (["`make none` is a mention, as is `df -h`"], []),
        (["(", "df -h", ")"], [(UNMARKED, "df -h")]),
        (["```bash", "df -h", ")"], [(UNMARKED, "df -h")]),
        (["```console", "$ df -h", "Filesystem", ")"], [(UNMARKED, "df -h")]),
        (["```text", "df -h", ")", "", "```yaml", "df: h", ")"], []),
        (["(", "make demo | df", ")"], [(UNMARKED, "make demo | df")]),
        (["(", "make demo; echo $?", ")"], []),
        (["(", "cd /x", "export A=b", ")"], []),
        (["(", "echo a >> /etc/b", ")"], [(UNMARKED, "echo a >> /etc/b")]),
        # What is given counts: each option, and the value where the row has one.
        (["(", HOLDS + " --check", ")"], [(UNMARKED, HOLDS + " --check")]),
        (["(", CONTROL + "pause -e rollout_reason=x", ")"], []),
        (["(", CONTROL + "stop", ")"], [(UNMARKED, CONTROL + "stop")]),
        (["(", HOLDS + " [--limit ...]", ")"], []),
        (["(", "ANSIBLE_CALLBACKS_ENABLED=x " + HOLDS, ")"], [(UNMARKED, "ANSIBLE_CALLBACKS_ENABLED=x " + HOLDS)]),
        (["(", 'J="gpufleet.lifecycle.holds --limit a"', "ansible-playbook $J", ")"], []),
        (["(", "promtool check config /etc/x", ")"], []),
        (["(", "promtool check config other", ")"], [(UNMARKED, "promtool check config other")]),
        (["(", "ansible-playbook \\", "  gpufleet.lifecycle.holds", ")"], []),
        # Marks of a block.
        (["No test runs this command:", "", "(", "df -h", ")"], []),
        (["(", "df -h", ")", "", "No test runs this command."], []),
        (["1. Look (no test runs this command):", "", "   ```", "   df -h", "   ```"], []),
        (["(", "df -h", ")", "", "No test runs this command.", "", "(", "du -h", ")"], [(UNMARKED, "du -h")]),
        (["(", "df -h", ")", "", "No test runs this command:", "", "(", "du -h", ")"], [(UNMARKED, "df -h")]),
        (
            ["No test runs this command.", "", "Between.", "", "(", "df -h", ")"],
            [("beside no block", "this command"), (UNMARKED, "df -h")],
        ),
        (["(", HOLDS, "df -h", ")", "", "No test runs these commands."], [(MARKED, HOLDS)]),
        # Marks of a page.
        (["(", "df -h", ")", "", "Between.", "", "(", "du", ")", "", "No test runs the commands of this page."], []),
        (["(", HOLDS, ")", "", "No test runs the commands of this page."], [(MARKED, HOLDS)]),
        (["No test runs the commands of this page."], [(NOTHING, "the commands of this page")]),
        (
            ["(", HOLDS, "df", ")", "", "No test runs the commands of this page, except those of `ansible-playbook`."],
            [],
        ),
        (["(", HOLDS, "df", ")", "", "No test runs the commands of this page, except the playbook `holds`."], []),
        (
            ["(", HOLDS, "df", ")", "", "No test runs the commands of this page, except those of `df`."],
            [(MARKED, HOLDS), (UNMARKED, "df")],
        ),
        (["(", "df", ")", "", "No test runs the commands of this page, except those of `make`."], [(NOTHING, "make")]),
        # Marks of commands by their beginning.
        (["(", "df -h", "make demo", ")", "", "No test runs `df`: it is not ours."], []),
        (["(", "df -h", "du", ")", "", "No test runs `df -h` and `du`."], []),
        (["(", "make demo", ")", "", "No test runs `df`."], [(NOTHING, "df")]),
        (["No test runs their roles.", "", "(", "make demo", ")"], []),
        (["<!-- No test runs the commands of this page. -->", "(", "df", ")"], [(UNMARKED, "df")]),
    ],
)
def test_what_a_page_says_of_its_commands_is_judged(lines, wrong):
    found = command_tests.wrong_with(said(*lines), SOME)
    assert sorted((what, " ".join(one.split())) for what, one in found) == sorted(wrong)
