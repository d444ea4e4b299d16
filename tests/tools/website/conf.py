# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of Sphinx for the site. Sources and output are below .lab/site; nothing is fetched."""

from docutils import nodes

from tests.tools.website import elsewhere

project = "gpufleet.lifecycle"
author = "gpufleet contributors"
# The names in this file are Sphinx's.
copyright = "2026, gpufleet contributors"  # noqa: A001 see above
extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "index"
# GitHub's anchors, so that links between pages work there and here.
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = project
html_show_sourcelink = False
html_copy_source = False
# Code without a language is output of programs.
highlight_language = "text"


def _lead_elsewhere(app, env, node, content):
    """Link what is in Ansible's own documentation; anything else that is missing stays an error."""
    find = {"ref": elsewhere.address, "envvar": elsewhere.variable}.get(node.get("reftype"))
    address = find(node["reftarget"]) if find else None
    if address is None:
        return None
    return nodes.reference("", "", content, internal=False, refuri=address)


def _keep_contents(app, doctree):
    """Have furo accept the lists of sections in pages of antsibull-docs, which it shows as an error otherwise."""
    for topic in doctree.findall(nodes.topic):
        if "contents" in topic["classes"]:
            topic["classes"].append("this-will-duplicate-information-and-it-is-still-useful-here")


def setup(app):
    app.connect("doctree-read", _keep_contents)
    app.connect("missing-reference", _lead_elsewhere)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
