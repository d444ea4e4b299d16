# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page on security says of playbooks, units, secrets and rights is what the code does."""

from __future__ import annotations

import importlib
import pathlib
import re

import pytest
import yaml

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import client

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
MODULES = "ansible_collections.gpufleet.lifecycle.plugins.modules."
# Not a secret: large, and not worth a line of a log.
LARGE = ("binding", "source")
MANIFESTS = ROOT / "roles" / "gpu_scheduler" / "files" / "kubernetes"


def table(heading):
    """The rows of the first table below a heading, without its head."""
    lines = re.split(r"^#+ %s$" % re.escape(heading), TEXT, flags=re.MULTILINE)[1].split("\n#", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return rows[1:]


def named(heading):
    return {row[0].strip("`"): row[1] for row in table(heading)}


def as_root(playbook):
    """Whether a play sets become, and whether one contacts nodes, by what it says itself."""
    plays = [play for play in yaml.safe_load(playbook.read_text(encoding="utf-8")) if "hosts" in play]
    root = any(play.get("become") for play in plays)
    return root, root or plays[-1]["hosts"] != "localhost"


def test_each_playbook_says_who_it_is_on_the_nodes():
    said = named("Playbooks")
    found = {path.stem: as_root(path) for path in (ROOT / "playbooks").glob("*.yml")}
    assert set(said) == set(found)
    for name, (root, contacts) in found.items():
        assert said[name].startswith("root") == root, name
        assert (said[name] == "not contacted") == (not contacts), name


def test_each_role_says_what_it_does_as_root():
    assert set(named("Roles")) == {path.name for path in (ROOT / "roles").iterdir() if path.is_dir()}


def test_each_unit_is_named_and_none_has_another_user():
    units = {path.name[: -len(".j2")]: path for path in ROOT.glob("roles/*/templates/*.j2")}
    units = {name: path for name, path in units.items() if name.endswith((".service", ".timer", ".path", ".container"))}
    assert set(named("Units that stay on a node")) == set(units)
    assert [name for name, path in units.items() if re.search(r"^User=", path.read_text(encoding="utf-8"), re.M)] == []


# How an action plugin gets an answer of a host, or a file.
ASKS = re.compile(
    r"\b((_execute_module|run_module|execute_nvml|on_node|NodeClaim|fetch_file|receive|background\.run|_answers\.accept)\(|ModuleAction\b)"
)


def test_each_place_where_the_controller_takes_an_answer_is_named():
    """A new one gets a row that says what checks the answer."""
    actions = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py") if ASKS.search(path.read_text("utf-8"))}
    files = [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    reads = {
        "%s of %s" % (found.group(1), path.relative_to(ROOT).parts[1].removesuffix(".yml"))
        for path in files
        for found in re.finditer(r"ansible\.builtin\.(slurp|fetch):", path.read_text("utf-8"))
    }
    places = {name.replace("`", "") for row in table("What hosts answer") for name in row[0].split(", ")}
    assert sorted(actions | reads | {"facts"}) == sorted(places)


def hidden(spec, path=()):
    """The options with no_log, the nested ones too."""
    for name, option in spec.items():
        if option.get("no_log"):
            yield (*path, name)
        many = "[]" if option.get("elements") == "dict" else ""
        yield from hidden(option.get("options") or {}, (*path, name + many))


def options_of_modules():
    found = set()
    for path in (ROOT / "plugins" / "modules").glob("*.py"):
        spec = getattr(importlib.import_module(MODULES + path.stem), "ARGUMENT_SPEC", {})
        # The options of the rollout's modules are variables of its playbooks.
        before = "rollout_" if path.stem.startswith("rollout_") else path.stem + "."
        found |= {before + ".".join(option) for option in hidden(spec) if tuple(option) != LARGE}
    return found


def options_of_roles():
    found = set()
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found |= {".".join(option) for option in hidden(entry.get("options") or {})}
    return found


def test_hidden_options_are_found():
    assert {"rollout_webhook.url", "rollout_hold_queries[].headers"} <= options_of_modules()
    assert "nvidia_dcgm_exporter_password" in options_of_roles()


def test_each_secret_is_in_the_table():
    said = " ".join(row[0] for row in table("Secrets"))
    secrets = options_of_modules() | options_of_roles() | set(_variable_names.SECRET)
    assert [name for name in sorted(secrets) if "`" + name not in said] == []


def test_each_test_that_is_named_is_there():
    paths = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    names = re.findall(r"`([\w/]*test_\w+\.py)`", TEXT)
    assert len(names) > 8 and [name for name in names if not any(path.endswith(name) for path in paths)] == []


class Recorder:
    """A cluster that answers with nothing and remembers what was asked of it."""

    shown = "a cluster"

    def __init__(self):
        self.sent = set()

    def request(self, verb, method, path, what, **more):
        self.sent.add((verb, path))
        return {"resources": [{"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": "v1"}]}

    def items(self, path, what, **query):
        self.sent.add(("list", path))
        return []


ARGUMENTS = {
    "node": ["n"],
    "nodes": [],
    "patch_node": ["n", {}],
    "pods": ["n"],
    "is_allowed": [{}],
    "discover_eviction": [],
    "evict": ["s", "p", "u"],
}


def needed(verb, path):
    """The rule of RBAC that a request needs: (group or path, resource, verb)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, rest = "", parts[2:]
    else:
        group, rest = parts[1], parts[3:]
    if not rest:
        return path, "", verb
    rest = rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest
    return group, "/".join([rest[0], *rest[2:]]), verb


def permitted(rules):
    return {
        (group, resource, verb)
        for rule in rules
        for verb in rule["verbs"]
        for group, resource in (
            [(path, "") for path in rule.get("nonResourceURLs", [])]
            + [(group, resource) for group in rule.get("apiGroups", []) for resource in rule.get("resources", [])]
        )
    }


def shipped(name):
    items = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))["items"]
    return permitted(rule for item in items for rule in item.get("rules", []))


def test_the_rules_of_the_cluster_are_those_that_the_client_needs():
    """All requests of the class Api, and no rule beyond them."""
    public = {name for name, value in vars(client.Api).items() if callable(value) and not name.startswith("_")}
    assert public == set(ARGUMENTS)
    sent = {}
    for name, arguments in ARGUMENTS.items():
        recorder = Recorder()
        getattr(client.Api(recorder), name)(*arguments)
        sent[name] = {needed(verb, path) for verb, path in recorder.sent}
    inventory = sent.pop("nodes")
    assert shipped("rbac-inventory.yml") == inventory
    assert shipped("rbac.yml") == set.union(*sent.values())


def test_the_page_shows_the_rules_that_are_shipped():
    block = re.search(r"```yaml\n(rules:\n.*?)```", TEXT, re.DOTALL).group(1)
    assert permitted(yaml.safe_load(block)["rules"]) == shipped("rbac.yml")


@pytest.mark.parametrize(
    ("verb", "path", "rule"),
    [
        ("get", "/api/v1", ("/api/v1", "", "get")),
        ("get", "/api/v1/nodes/n", ("", "nodes", "get")),
        ("create", "/api/v1/namespaces/s/pods/p/eviction", ("", "pods/eviction", "create")),
        ("list", "/apis/apps/v1/daemonsets", ("apps", "daemonsets", "list")),
    ],
)
def test_which_rule_a_request_needs(verb, path, rule):
    assert needed(verb, path) == rule


def test_the_teams_of_awx_have_the_rights_that_the_page_says():
    found = set()
    for one in yaml.safe_load((ROOT / "awx" / "controller" / "roles.yml").read_text(encoding="utf-8"))[
        "controller_roles"
    ]:
        found |= {(one["team"], one["role"], what) for what in one.get("job_templates", []) + one.get("workflows", [])}
    said = [(team, right, what) for team, right, row in table("AWX") for what in row.split(", ")]
    assert set(said) == found and len(said) == len(found)
