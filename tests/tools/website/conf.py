# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of Sphinx for the site."""

import yaml
from docutils import nodes

from tests.tools.common import ROOT
from tests.tools.website import ansible_labels

project = "gpufleet.lifecycle"
author = "gpufleet contributors"
version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
# The names in this file are Sphinx's.
copyright = "2026, gpufleet contributors"  # noqa: A001 see above
extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "index"
# The source directory is a copy of the checkout; these are its pages, and other files are for download.
include_patterns = [
    "index.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.rst",
    "docs/**",
    "reference/**",
    "roles/*/README.md",
    "tests/sim/README.md",
]
# GitHub's anchors, so that links between pages work on both.
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "{0} {1}".format(project, version)
html_show_sourcelink = False
html_copy_source = False
# Blocks without a language are commands and output.
highlight_language = "text"


def link_ansible_documentation(app, env, node, content):
    """Return a link for a label or variable of Ansible's own documentation; None, which is an error, for any other."""
    find_url = {"ref": ansible_labels.find_url, "envvar": ansible_labels.find_variable_url}.get(node.get("reftype"))
    url = find_url(node["reftarget"]) if find_url else None
    return None if url is None else nodes.reference("", "", content, internal=False, refuri=url)


def allow_local_contents(app, doctree):
    """Make furo accept the lists of sections in pages of antsibull-docs, which it shows as an error otherwise."""
    for topic in doctree.findall(nodes.topic):
        if "contents" in topic["classes"]:
            topic["classes"].append("this-will-duplicate-information-and-it-is-still-useful-here")


def setup(app):
    """Connect the functions above."""
    app.connect("doctree-read", allow_local_contents)
    app.connect("missing-reference", link_ansible_documentation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
