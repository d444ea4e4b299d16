# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the generated documentation: a README for every role, a page for every module, callback, filter, inventory and
lookup, the list of the health checks, the playbooks' variables, the runbooks of the alerts, and the rulebook for them.

python3 -m tests.tools.docs write what differs python3 -m tests.tools.docs --check write nothing; name what differs and
exit 1; lint the modules' documentation as well

Runs in the environment `main` (ansible-doc, antsibull-docs and PyYAML are there); `make docs` and `make lint` see to
that.

antsibull-docs writes reStructuredText for a site built with Sphinx; these pages are Markdown, read in the repository
itself. Its parser of the markup and its linter are used.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import pathlib
import subprocess
import sys

import yaml

from tests.tools import alert_docs, check_docs, module_docs, playbook_docs, role_docs
from tests.tools.common import COLLECTION, ROOT

NAME = ".".join(COLLECTION)
BIN = pathlib.Path(sys.prefix) / "bin"
MODULE_PAGES = ROOT / "docs" / "modules"
PLUGIN_PAGES = {
    kind: ROOT / "docs" / name
    for kind, name in (
        ("callback", "callbacks"),
        ("filter", "filters"),
        ("inventory", "inventories"),
        ("lookup", "lookups"),
    )
}
CHECKS_PAGE = ROOT / "docs" / "reference" / "health-checks.md"
ALERT_PAGES = ROOT / "docs" / "runbooks" / "alerts"
RULEBOOK = ROOT / "extensions" / "eda" / "rulebooks" / "alerts.yml"
POLICY = ROOT / "plugins" / "plugin_utils" / "_data" / "health_policy.json"


def ansible_environment():
    """Environment variables under which Ansible's commands find this checkout as the collection."""
    collections = subprocess.run(
        [str(ROOT / "tests" / "tools" / "collections.sh")], stdout=subprocess.PIPE, universal_newlines=True, check=True
    ).stdout.strip()
    path = "{0}{1}{2}".format(BIN, os.pathsep, os.environ["PATH"])
    return dict(os.environ, ANSIBLE_COLLECTIONS_PATH=collections, ANSIBLE_NOCOLOR="1", PATH=path)


def ansible_doc(*arguments):
    """The JSON that ansible-doc answers."""
    answer = subprocess.run(
        [str(BIN / "ansible-doc"), "--json", *arguments],
        cwd=str(ROOT),
        env=ansible_environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(answer.stdout.decode())


def role_pages():
    """Path and wanted content of every role's README."""
    for specs in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        role = specs.parents[1]
        path = role / "README.md"
        existing = path.read_text(encoding="utf-8") if path.exists() else ""
        content = yaml.safe_load(specs.read_text(encoding="utf-8"))["argument_specs"]
        yield path, role_docs.render(NAME, role.name, content, existing)


def module_pages():
    """Path and wanted content of every module's page, and of the list of them."""
    names = sorted("{0}.{1}".format(NAME, path.stem) for path in ROOT.glob("plugins/modules/*.py"))
    if not names:
        return
    documented = ansible_doc("-t", "module", *names)
    for name in names:
        yield MODULE_PAGES / (name.rpartition(".")[2] + ".md"), module_docs.render(name, documented[name])
    yield MODULE_PAGES / "README.md", module_docs.index(documented)


def plugin_pages():
    """Path and wanted content of the page of every callback, filter, inventory and lookup."""
    for kind, pages in PLUGIN_PAGES.items():
        names = sorted("{0}.{1}".format(NAME, path.stem) for path in ROOT.glob("plugins/{0}/*.py".format(kind)))
        documented = ansible_doc("-t", kind, *names) if names else {}
        for name in names:
            yield pages / (name.rpartition(".")[2] + ".md"), module_docs.render(name, documented[name], kind)


def checks_page():
    """The content of the page about the health checks."""
    sys.path.insert(0, ansible_environment()["ANSIBLE_COLLECTIONS_PATH"])
    package = ".".join(("ansible_collections", *COLLECTION, "plugins", "module_utils", "_health"))
    registry, model = (importlib.import_module(package + "." + name) for name in ("registry", "model"))
    return check_docs.render(registry.FAMILIES, model.ACTIONS, json.loads(POLICY.read_text(encoding="utf-8")))


def playbooks_page():
    """The content of the page about the playbooks' variables."""
    sys.path.insert(0, ansible_environment()["ANSIBLE_COLLECTIONS_PATH"])
    package = ".".join(("ansible_collections", *COLLECTION, "plugins"))
    known = importlib.import_module(package + ".plugin_utils._variable_names").ROLLOUT
    options = yaml.safe_load(importlib.import_module(package + ".modules.rollout_plan").DOCUMENTATION)["options"]
    said = {
        "rollout_" + key: option["description"]
        for key, option in options.items()
        if "rollout_" + key in known and key != "rollout_id"
    }
    texts = {path.stem: path.read_text(encoding="utf-8") for path in ROOT.glob("playbooks/*.yml")}
    return playbook_docs.render(
        texts, {name: text if isinstance(text, str) else text[0] for name, text in said.items()}
    )


def alert_pages():
    """Path and wanted content of the runbooks of the alerts, and of the rulebook."""
    sys.path.insert(0, ansible_environment()["ANSIBLE_COLLECTIONS_PATH"])
    package = ".".join(("ansible_collections", *COLLECTION, "plugins", "plugin_utils", "_monitoring"))
    catalog, rulebook, rules, template = (
        importlib.import_module(package + "." + name) for name in ("catalog", "rulebook", "rules", "template")
    )
    yield RULEBOOK, rulebook.render()
    # Those that are not known yet are named by what they are.
    thresholds = {
        name: dict(one, value=one["value"] if one["value"] is not None else 0)
        for name, one in catalog.thresholds().items()
    }
    rendered = {alert["id"]: rules.alert_rule(alert, thresholds) for alert in catalog.alerts()}
    for name, page in catalog.families().items():
        alerts = [alert for alert in catalog.alerts() if alert["family"] == name]
        yield (
            ALERT_PAGES / (name + ".md"),
            alert_docs.family(page, alerts, rendered, lambda text: template.fill(str(text), thresholds)),
        )
    yield (
        ALERT_PAGES / "README.md",
        alert_docs.index(
            catalog.families(), catalog.thresholds(), catalog.recordings(), catalog.exporters(), catalog.node_series()
        ),
    )


def stale_pages(wanted):
    """Pages of modules, other plugins and families of alerts there are no more."""
    found = {path for pages in (MODULE_PAGES, ALERT_PAGES, *PLUGIN_PAGES.values()) for path in pages.glob("*.md")}
    return sorted(found - set(wanted))


def difference(path, content):
    """What would change in a file, as a unified diff; empty when nothing would."""
    existing = path.read_text(encoding="utf-8") if path.exists() else ""
    name = str(path.relative_to(ROOT))
    return list(
        difflib.unified_diff(existing.splitlines(), content.splitlines(), name, name + " (as generated)", lineterm="")
    )


def check(wanted):
    """Name what is not as it would be generated. The number of such files."""
    wrong = 0
    for path, content in sorted(wanted.items()):
        lines = difference(path, content)
        if lines:
            wrong += 1
            print("\n".join(lines[:20]))
    for path in stale_pages(wanted):
        wrong += 1
        print("{0}: documents a plugin there is no more".format(path.relative_to(ROOT)))
    if wrong:
        print("{0} generated files are not as `make docs` writes them".format(wrong))
    return wrong


def write(wanted):
    """Write what differs and remove what is stale."""
    for path, content in sorted(wanted.items()):
        if difference(path, content):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print("wrote {0}".format(path.relative_to(ROOT)))
    for path in stale_pages(wanted):
        path.unlink()
        print("removed {0}".format(path.relative_to(ROOT)))


def lint():
    """antsibull-docs on the collection: markup, references, plugin documentation. Its exit status."""
    command = [
        str(BIN / "antsibull-docs"),
        "lint-collection-docs",
        "--plugin-docs",
        "--validate-collection-refs",
        "self",
        "--skip-rstcheck",
    ]
    return subprocess.call(
        [*command, str(ROOT / ".lab" / "collections" / "ansible_collections" / pathlib.Path(*COLLECTION))],
        env=ansible_environment(),
    )


def main(arguments):
    """Write or check; answer the exit status."""
    wanted = dict(role_pages())
    wanted.update(module_pages())
    wanted.update(plugin_pages())
    wanted.update(alert_pages())
    wanted[CHECKS_PAGE] = checks_page()
    wanted[ROOT / playbook_docs.PAGE] = playbooks_page()
    if arguments == ["--check"]:
        wrong = check(wanted)
        return 1 if lint() != 0 or wrong else 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    write(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
