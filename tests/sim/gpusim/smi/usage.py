# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of nvidia-smi: its options, and how it ends when it is given what it does not take."""

from __future__ import annotations

INVALID = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
# What takes no value and chooses what is done.
FLAGS = {
    "-L": "list",
    "--list-gpus": "list",
    "-q": "long",
    "--query": "long",
    "-h": "help",
    "--help": "help",
    "--version": "version",
}
QUERIES = ("gpu", "compute-apps", "accounted-apps", "retired-pages", "remapped-rows", "supported-clocks")
VALUED = {
    "-i": "gpu",
    "--id": "gpu",
    "-d": "display",
    "--display": "display",
    "-f": "file",
    "--filename": "file",
    "--format": "form",
    "-pm": "pm",
    "--persistence-mode": "pm",
    "-pl": "pl",
    "--power-limit": "pl",
    "-mig": "mig",
    "--multi-instance-gpu": "mig",
    **{"--query-" + name: "query-" + name for name in QUERIES},
}
# Switches of subcommands, each the only one that is known.
SUBCOMMANDS = {
    ("topo", "-m"): "topology",
    ("topo", "--matrix"): "topology",
    ("nvlink", "-s"): "links",
    ("nvlink", "--status"): "links",
    ("nvlink", "-e"): "link-errors",
    ("nvlink", "--errorcounters"): "link-errors",
}


class Usage(Exception):
    """The command line asks for what this program does not do; the text is the real one's."""


def parse(arguments: list[str]) -> dict:
    """What is asked for: the command and its value, GPUs, sections, form and file."""
    asked: dict = {"command": "table", "value": "", "gpu": None, "form": set(), "display": None, "file": None}
    words = list(arguments)
    if len(words) > 1 and tuple(words[:2]) in SUBCOMMANDS:
        asked["command"] = SUBCOMMANDS[tuple(words[:2])]
        words = words[2:]
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in FLAGS:
            _choose(asked, FLAGS[word], "")
        elif word in ("-x", "--xml-format"):
            asked["form"].add("xml")
        elif word.startswith("--help-query-") and word[13:] in QUERIES:
            _choose(asked, "describe", word[13:])
        elif name in VALUED:
            if not equals and not words:
                raise Usage("Option %s needs a value.\n" % name)
            _take(asked, VALUED[name], value if equals else words.pop(0))
        else:
            raise Usage(INVALID)
    if (asked["display"] is not None or "xml" in asked["form"]) and asked["command"] != "long":
        raise Usage(INVALID)
    return asked


def _choose(asked: dict, command: str, value: str) -> None:
    if asked["command"] not in ("table", command):
        raise Usage(INVALID)
    asked["command"], asked["value"] = command, value


def _take(asked: dict, key: str, value: str) -> None:
    if key == "form":
        asked["form"].update(word.strip() for word in value.split(","))
    elif key in ("gpu", "file"):
        asked[key] = value
    elif key == "display":
        asked["display"] = {word.strip().upper() for word in value.split(",")}
    else:
        _choose(asked, key, value)
