# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page about the playbooks' variables, rendered from the comments at the head of each playbook.

Pure: texts in, text out.
"""

from __future__ import annotations

import re

from tests.tools.markup import inline

BEGIN = "<!-- generated from the heads of the playbooks by `make docs` -->"
PAGE = "docs/reference/playbook-variables.md"
ROW = re.compile(r"([a-z][a-z0-9_]+(?:, [a-z][a-z0-9_]+)*)  +(\S.*)")
MEANING = (
    (
        "Null and the empty text mean the default for every variable of a rollout and for every list of hosts, as a "
        "survey of AWX or a command line gives them, and for `gpu_scheduler_backends`, `nvidia_mig_config` and those "
        "of `gpu_health_` that precheck names. Of any other variable of a role that has a default, null is refused by "
        "name, and so is the empty text where it is no value: leave it out instead."
    ),
    "Lists may be texts with commas, with or without blanks, or with one entry a line; hosts may be a pattern as well.",
    "In `rollout_waves` a text has a comma and a blank between two waves (`1, 25%`): `1,25%` is refused, as it may be "
    "meant for one share. A share has a point (`12.5%`).",
    "A `--limit` that leaves none of the nodes, and a name that no host or group has, are refused by every playbook.",
    "A value with a blank needs quotes of its own on a command line: `-e '{\"rollout_reason\": \"two words\"}'`.",
    "Variables that begin with `rollout_`, or are given for a whole rollout, have one value for all of its nodes.",
    (
        "A variable that begins as these or those of the roles do (`gpu_scheduler_`, `nvidia_driver_`, ...), and is "
        "none of them, is refused with the nearest one; so is a variable of the command line (`-e`) that all but has "
        "the name of one of them, such as `upgrad_hosts`. Call variables of your own otherwise."
    ),
    (
        "Names that begin with two underscores, and the results of the roles such as `gpu_scheduler_mark`, are the "
        "collection's own and are refused."
    ),
    (
        "The playbooks have no tags. `--tags x`, `--skip-tags all` and `--skip-tags untagged` are refused. What "
        "Ansible makes impossible to refuse: `--start-at-task` with a name that no task has, and `--skip-tags "
        "always,untagged`, run no task at all and end with exit status 0."
    ),
)


def head(text):
    """(sentences, commands, [(names, description)], other lines) of the comment at the head of a playbook."""
    sentences, commands, rows, notes = [], [], [], []
    for line in text.splitlines()[1:]:
        if not line.startswith("#"):
            break
        said = line[1:]
        found = ROW.fullmatch(said.strip()) if said.startswith(" ") and not said.startswith("  ") else None
        if said.startswith("   ansible-playbook"):
            commands.append(said.strip())
        elif commands and commands[-1].endswith("\\"):
            commands[-1] = commands[-1].rstrip("\\") + said.strip()
        elif found:
            rows.append([found.group(1).split(", "), found.group(2)])
        elif said.startswith("        ") and rows:
            rows[-1][1] += " " + said.strip()
        elif said.strip():
            if PAGE not in said:
                (notes if rows or commands else sentences).append(said.strip())
    return sentences, commands, rows, notes


def _cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def render(playbooks, rollout):
    """PLAYBOOKS: text by name.

    ROLLOUT: the description of each further option of rollout_plan that is a variable, by the name of the variable.
    """
    lines = [
        BEGIN,
        "",
        "# The variables of the playbooks",
        "",
        "Those of the roles are in their READMEs. What holds for all of them:",
        "",
    ]
    lines += ["- " + text for text in MEANING]
    told = set()
    for name in sorted(playbooks):
        sentences, commands, rows, notes = head(playbooks[name])
        lines += ["", "## " + name, "", " ".join(sentences), "", "```", *commands, "```"]
        if rows:
            lines += ["", "| Variable | What it is |", "|---|---|"]
            lines += ["| %s | %s |" % (", ".join("`%s`" % one for one in names), _cell(text)) for names, text in rows]
        lines += ["", *notes] if notes else []
        told |= {one for names, dummy in rows for one in names}
    lines += [
        "",
        "## Every limit of a rollout",
        "",
        "Each is an option of [rollout_plan](../modules/rollout_plan.md), which says more.",
        "",
        "| Variable | What it is |",
        "|---|---|",
    ]
    lines += ["| `%s` | %s |" % (name, _cell(inline(text))) for name, text in sorted(rollout.items())]
    return "\n".join(lines) + "\n"
