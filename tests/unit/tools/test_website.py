# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site of the documentation lists every page, links what is there, and loads nothing from other hosts.

Nothing is built here; the stage `site` does, with every warning of Sphinx an error.
"""

from __future__ import annotations

import copy

import pytest

from tests.tools.common import ROOT, tracked_files
from tests.tools.website import contents, elsewhere, resources

FILES = {
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.rst",
    "docs/one.md",
    "docs/deep/README.md",
    "docs/deep/two.md",
    "roles/r/README.md",
    "roles/r/tasks/main.yml",
}
LISTED = {
    "ways": [{"heading": "Begin", "entries": [["One", "docs/one.md#there", "or [two](docs/deep/two.md)"]]}],
    "trees": [
        {
            "caption": "All",
            "pages": [
                "Overview <README.md>",
                "docs/one.md",
                "docs/deep/README.md",
                "made.md",
                "Reference <reference/index.rst>",
                "CHANGELOG.rst",
                "CONTRIBUTING.md",
            ],
        }
    ],
    "below": {"docs/deep/README.md": ["docs/deep/*.md"]},
    "lists": [{"page": "made.md", "title": "Made", "text": "A list.", "pages": ["roles/*/README.md"]}],
}


def test_every_page_of_the_documentation_is_listed():
    listed, files = contents.load(), tracked_files()
    assert contents.problems(listed, files) == []
    pages = [page for dummy, page in contents.tree(listed, files)]
    assert {name for name in files if name.startswith("docs/") and name.endswith(".md")} <= set(pages)
    assert len(pages) > 40


def test_a_list_that_is_whole_is_accepted():
    assert contents.problems(LISTED, FILES) == []


def _added(entry):
    def change(listed):
        listed["trees"][0]["pages"].append(entry)

    return change


def _removed(listed):
    listed["trees"][0]["pages"].remove("docs/one.md")


def _childless(listed):
    listed["below"] = {}


def _stray(listed):
    listed["trees"][0]["pages"].remove("made.md")


def _no_reference(listed):
    listed["trees"][0]["pages"].remove("Reference <reference/index.rst>")


def _below_nothing(listed):
    listed["below"]["docs/none.md"] = ["docs/deep/*.md"]


def _way(listed):
    listed["ways"][0]["entries"][0][1] = "docs/none.md"


def _link_of_way(listed):
    listed["ways"][0]["entries"][0][2] = "[none](docs/none.md)"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_added("docs/none.md"), "docs/none.md"),
        (_added("None <docs/none.md>"), "docs/none.md"),
        (_added("docs/none/*.md"), "docs/none/*.md"),
        (_added("docs/deep/two.md"), "docs/deep/two.md"),
        (_removed, "docs/one.md"),
        (_childless, "docs/deep/two.md"),
        (_stray, "made.md"),
        (_no_reference, "reference/index.rst"),
        (_below_nothing, "docs/none.md"),
        (_way, "docs/none.md"),
        (_link_of_way, "docs/none.md"),
    ],
)
def test_what_is_wrong_with_a_list_is_named(change, named):
    listed = copy.deepcopy(LISTED)
    change(listed)
    assert any(named in problem for problem in contents.problems(listed, FILES))


def test_a_new_page_is_missed():
    assert contents.problems(LISTED, {*FILES, "docs/deep/further/new.md"}) == [
        "docs/deep/further/new.md: is not listed"
    ]


def test_the_start_page_leads_to_the_pages_and_holds_the_tree():
    text = contents.start(LISTED, FILES, "1.2.3")
    assert "1.2.3" in text
    assert "- **[One](docs/one.md#there)**: or [two](docs/deep/two.md)" in text.splitlines()
    tree = text.split("```{toctree}")[1].splitlines()
    assert {":hidden:", ":caption: All", "/docs/one.md", "Overview </README.md>"} <= set(tree)


def test_pages_below_another_one_are_in_its_tree():
    text = contents.page("docs/deep/README.md", "# Deep\n", LISTED, FILES)
    assert text.startswith("# Deep\n") and "/docs/deep/two.md" in text.splitlines()
    assert "/docs/deep/README.md" not in text
    assert contents.page("docs/one.md", "# One\n", LISTED, FILES) == "# One\n"


def test_list_page_holds_the_pages_that_match_its_pattern():
    assert "/roles/r/README.md" in contents.lists(LISTED, FILES)["made.md"].splitlines()


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[a](one.md) and [b](../two.md#three)", ["one.md", "../two.md"]),
        ("[a](https://example.org/x.md), [b](#here), [c](mailto:x@example.org)", []),
    ],
)
def test_links_to_files_are_found(text, targets):
    assert contents.links(text) == targets


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<script src="//cdn.example/x.js"></script>', ["//cdn.example/x.js"]),
        ('<script src="_static/x.js?v=1"></script>', []),
        ('<link rel="stylesheet" href="http://cdn.example/x.css">', ["http://cdn.example/x.css"]),
        ('<link rel="preconnect" href="https://fonts.example">', ["https://fonts.example"]),
        ('<link href="https://fonts.example/x">', ["https://fonts.example/x"]),
        ('<link rel="canonical" href="https://docs.example/">', []),
        ('<link rel="shortcut icon" href="_static/x.svg">', []),
        ('<a href="https://example.org">followed by a reader</a>', []),
        ('<img src="HTTPS://cdn.example/x.png" alt="">', ["HTTPS://cdn.example/x.png"]),
        ('<img srcset="a.png 1x, https://cdn.example/b.png 2x">', ["https://cdn.example/b.png 2x"]),
        ('<img src="data:image/png;base64,AA//AA">', []),
        ('<iframe src="https://example.org"></iframe>', ["https://example.org"]),
        ('<p style="background: url(https://cdn.example/x.png)">', ["https://cdn.example/x.png"]),
        ("<style>@import 'https://fonts.example/a.css';</style>", ["https://fonts.example/a.css"]),
        ("<p>@import 'https://fonts.example/a.css';</p>", []),
    ],
)
def test_what_a_page_loads_from_another_host_is_found(text, loaded):
    assert resources.page(text) == loaded


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("@font-face { src: url('https://fonts.example/a.woff2') }", ["https://fonts.example/a.woff2"]),
        ("a { background: url(//cdn.example/x.png) }", ["//cdn.example/x.png"]),
        ('@import "https://fonts.example/a.css";', ["https://fonts.example/a.css"]),
        ("a { background: url(data:image/svg+xml;charset=utf-8,%3Csvg) } b { background: url(x.png) }", []),
    ],
)
def test_what_a_style_sheet_loads_from_another_host_is_found(text, loaded):
    assert resources.style(text) == loaded


@pytest.mark.parametrize(
    ("label", "page"),
    [
        ("callback_plugins", "plugins/callback.html#callback-plugins"),
        ("ansible_collections.ansible.builtin.reboot_module", "collections/ansible/builtin/reboot_module.html"),
        (
            "ansible_collections.kubernetes.core.k8s_drain_module__parameter-name",
            "collections/kubernetes/core/k8s_drain_module.html",
        ),
    ],
)
def test_labels_of_ansible_lead_to_its_documentation(label, page):
    assert elsewhere.address(label) == elsewhere.ANSIBLE + page


@pytest.mark.parametrize("label", ["", "some_label", "ansible_collections.gpufleet.lifecycle.gone_module"])
def test_a_label_that_should_be_here_leads_nowhere_else(label):
    assert elsewhere.address(label) is None


def test_variables_of_ansible_lead_to_its_documentation_and_no_others():
    assert elsewhere.variable("ANSIBLE_CACHE_PLUGIN").endswith("/config.html#envvar-ANSIBLE_CACHE_PLUGIN")
    assert elsewhere.variable("SLURM_JWT") is None


def test_make_builds_the_site_in_its_own_environment():
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nsite: ")[1].split("\n\n")[0]
    assert "tests/tools/with.sh site python3 -m tests.tools.website" in recipe
    assert (ROOT / "tests" / "tools" / "requirements" / "site.txt").is_file()
    assert "| site)" in (ROOT / "tests" / "tools" / "venv.sh").read_text(encoding="utf-8")
