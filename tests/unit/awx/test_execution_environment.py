# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lists of an execution environment are what the code imports, and ansible-builder reads them."""

from __future__ import annotations

import ast
import re
import sys

import pytest
import yaml

from tests.unit.awx import environment

# Import: the distribution that brings it. Those that ansible-core brings itself have none.
BRINGS = {
    "ansible": None,
    "jinja2": None,
    "markupsafe": None,
    "yaml": None,
    "kubernetes": "kubernetes",
    "pygal": "pygal",
    "pynvml": "nvidia-ml-py",
    "sqlalchemy": "sqlalchemy",
    "urllib3": "urllib3",
}
# SQLAlchemy imports the driver of PostgreSQL by the name in a URL.
BY_URL = {"postgresql+psycopg": "psycopg"}


def imported(root):
    """Every package from elsewhere that the plugins import, with a file that does."""
    found = {}
    for path in sorted((root / "plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                word = name.split(".")[0]
                if word not in sys.stdlib_module_names and word != "ansible_collections":
                    found.setdefault(word, str(path.relative_to(root)))
    return found


def names(lines):
    """The distributions of a list of requirements, as pip compares them."""
    words = [re.match(r"[\w.-]+", line).group() for line in lines if line.strip() and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", word).lower() for word in words}


def test_the_list_of_python_packages_is_what_the_code_imports(collection_root):
    found = imported(collection_root)
    assert set(found) == set(BRINGS), {name: found.get(name, "no file imports it") for name in set(found) ^ set(BRINGS)}
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in (collection_root / "plugins" / "plugin_utils" / "_ledger").glob("*.py")
    )
    wanted = {name for name in BRINGS.values() if name} | {name for url, name in BY_URL.items() if url in text}
    assert "psycopg" in wanted, "the ledger no longer knows PostgreSQL"
    assert names((collection_root / "meta" / "ee-requirements.txt").read_text().splitlines()) == wanted


def test_an_import_in_a_function_is_found(tmp_path):
    (tmp_path / "plugins" / "x").mkdir(parents=True)
    (tmp_path / "plugins" / "x" / "y.py").write_text("import json\ndef f():\n    from boto3.session import Session\n")
    assert imported(tmp_path) == {"boto3": "plugins/x/y.py"}


@pytest.fixture(scope="module")
def installed(collection_root, tmp_path_factory):
    """The directory of collections as ansible-builder finds it in an image, with what the tarball has of meta."""
    place = tmp_path_factory.mktemp("collections")
    target = place / "ansible_collections" / "gpufleet" / "lifecycle"
    target.mkdir(parents=True)
    for name in ("meta", "galaxy.yml"):
        (target / name).symlink_to(collection_root / name)
    return place


@pytest.mark.slow
def test_introspect_finds_both_lists(collection_root, installed):
    out = environment.builder("introspect", str(installed))
    found = yaml.safe_load(out)
    assert names(line.split("#")[0] for line in found["python"]) == names(
        (collection_root / "meta" / "ee-requirements.txt").read_text().splitlines()
    )
    assert {line.split()[0] for line in found["system"]} == {"openssh-client", "openssh-clients"}


@pytest.mark.slow
def test_create_makes_a_context_of_the_example(collection_root, tmp_path):
    environment.builder(
        "create",
        "-f",
        str(collection_root / "awx" / "execution-environment.yml"),
        "-c",
        str(tmp_path / "context"),
        "--output-filename",
        "Containerfile",
    )
    text = (tmp_path / "context" / "Containerfile").read_text()
    assert "ansible-core>=2.18,<2.22" in text and "introspect" in text and "galaxy collection install" in text
    copied = yaml.safe_load((tmp_path / "context" / "_build" / "requirements.yml").read_text())
    assert [one["name"] for one in copied["collections"]] == ["gpufleet.lifecycle"]


@pytest.mark.slow
def test_create_refuses_an_example_with_a_wrong_key(collection_root, tmp_path):
    """That the file is judged at all."""
    wrong = yaml.safe_load((collection_root / "awx" / "execution-environment.yml").read_text())
    wrong["dependencies"]["pythn"] = []
    (tmp_path / "ee.yml").write_text(yaml.safe_dump(wrong))
    with pytest.raises(AssertionError, match="pythn"):
        environment.builder("create", "-f", str(tmp_path / "ee.yml"), "-c", str(tmp_path / "context"))


def test_the_environment_ee_of_the_tests_has_these_lists_and_no_more(collection_root):
    tools = collection_root / "tests" / "tools"
    lines = (tools / "requirements" / "ee.txt").read_text().splitlines()
    dependencies = yaml.safe_load((collection_root / "awx" / "execution-environment.yml").read_text())["dependencies"]
    listed = yaml.safe_load((collection_root / "meta" / "execution-environment.yml").read_text())["dependencies"]
    own = [line for line in lines if not line.startswith(("#", "pytest=="))]
    assert own == [
        dependencies["ansible_core"]["package_pip"],
        dependencies["ansible_runner"]["package_pip"],
        "-r ../../../" + listed["python"],
    ]
    python = re.fullmatch(r"python(3\.\d+)", dependencies["python_interpreter"]["package_system"]).group(1)
    assert '"ee": ("%s",' % python in (collection_root / "noxfile.py").read_text()


def test_the_versions_are_those_of_the_collection(collection_root):
    galaxy = yaml.safe_load((collection_root / "galaxy.yml").read_text())
    (asked,) = yaml.safe_load((collection_root / "awx" / "project" / "collections" / "requirements.yml").read_text())[
        "collections"
    ]
    assert (asked["name"], asked["version"]) == (
        "%s.%s" % (galaxy["namespace"], galaxy["name"]),
        galaxy["version"],  # exactly: ansible-galaxy takes no release candidate for ">="
    )
    requires = yaml.safe_load((collection_root / "meta" / "runtime.yml").read_text())["requires_ansible"]
    core = yaml.safe_load((collection_root / "awx" / "execution-environment.yml").read_text())["dependencies"][
        "ansible_core"
    ]["package_pip"]
    assert core.split(",")[0] == "ansible-core" + re.sub(r"\.0$", "", requires)
