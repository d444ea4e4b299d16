# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-contained HTML pages: one file that loads nothing, and that may not even if something slipped through.

A page is a template that extends C(frame.html.j2) and fills its blocks. Everything put into it is escaped by Jinja2.
The page's content security policy allows the frame's own style and script by their digests and nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os

import jinja2
import markupsafe

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")


def _finalize(value) -> markupsafe.Markup | str:
    """Return the text that a template prints: Jinja2 escapes it afterwards, and control characters are made visible
    here.
    """
    if value is None:
        raise ValueError("a page of a report prints nothing that is not there")
    return value if hasattr(value, "__html__") else text.clean_text(value)


@functools.cache
def make_environment() -> jinja2.Environment:
    """Return the environment of all pages; it keeps the compiled templates, which take longer to make than a page."""
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters["shown"] = text.format_value
    jinja.filters["line"] = text.one_line
    jinja.globals["count"] = text.count_noun
    return jinja


def render_page(template: str, view: dict, styles: tuple[str, ...] = ("style.css",)) -> str:
    """Return the page of TEMPLATE with the values VIEW and the style sheets STYLES."""
    style, script = "\n".join(read_source(name) for name in styles), read_source("page.js")
    return (
        make_environment()
        .get_template(template)
        .render(
            dict(
                view,
                style=markupsafe.Markup(style),
                script=markupsafe.Markup(script),
                policy=content_policy(style, script),
            )
        )
    )


def read_source(name: str) -> str:
    """Return a file of the templates as it is; nothing of a report is in it."""
    with open(os.path.join(TEMPLATES, name), encoding="utf-8") as stream:
        return stream.read().strip()


def content_policy(style: str, script: str) -> str:
    """Return the content security policy of a page."""
    return "default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'" % (
        digest_source(style),
        digest_source(script),
    )


def digest_source(source_text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source_text.encode("utf-8")).digest()).decode("ascii")
