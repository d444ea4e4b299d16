# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that Jinja compiled once, for all processes of the tests.

Each worker of Ansible compiles the templates of its task, and forgets them: a quarter of what a worker costs. What is
kept is Jinja's own code of the same text in an environment with the same options; it is rendered as ever.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import os
import types

import jinja2
from jinja2.environment import TemplateExpression

OPTIONS = (
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "trim_blocks",
    "lstrip_blocks",
    "newline_sequence",
    "keep_trailing_newline",
    "autoescape",
)


class Kept:
    """Compiled templates in the files of a directory."""

    def __init__(self, directory):
        self.directory = str(directory)
        os.makedirs(self.directory, exist_ok=True)

    def path(self, environment, kind, source):
        """Where the code of SOURCE lies; None where its code depends on more than on the text and the environment.

        What Ansible makes of a backslash depends on who asks. An environment that optimizes, as that of ansible-core
        2.18 does, calls filters while it
        compiles: what they answered to one process is no answer for another.
        """
        if "\\" in source or environment.optimized:
            return None
        what = (
            jinja2.__version__,
            kind,
            type(environment).__module__,
            type(environment).__qualname__,
            sorted(environment.extensions),
            [repr(getattr(environment, name)) for name in OPTIONS],
            str(source),
        )
        return os.path.join(self.directory, hashlib.sha256(repr(what).encode()).hexdigest())

    @staticmethod
    def load(path):
        """The code that lies there, or None."""
        try:
            with open(path, "rb") as stream:
                code = marshal.load(stream)
        except (OSError, EOFError, ValueError, TypeError):
            return None
        return code if isinstance(code, types.CodeType) else None

    @staticmethod
    def store(path, code):
        """A whole file at once; a controller may be killed at any moment, or be without a disk to write to."""
        new = "%s.%d" % (path, os.getpid())
        with contextlib.suppress(OSError):
            with open(new, "wb") as stream:
                marshal.dump(code, stream)
            os.rename(new, path)

    def install(self, base=jinja2.Environment):
        """Let every environment of this process and of its copies use what is kept."""
        compiled, expression = base.compile, base.compile_expression
        beneath = []  # where the code goes of the expression that is being compiled

        @functools.wraps(compiled)
        def compile_template(environment, source, name=None, filename=None, raw=False, defer_init=False):
            if isinstance(source, str):
                path = self.path(environment, "template", source) if name is None and filename is None else None
            else:
                path = beneath.pop() if beneath else None
            if path is None or raw or defer_init:
                return compiled(environment, source, name, filename, raw, defer_init)
            code = self.load(path)
            if code is None:
                code = compiled(environment, source, name, filename, raw, defer_init)
                self.store(path, code)
            return code

        @functools.wraps(expression)
        def compile_expression(environment, source, undefined_to_none=True):
            path = self.path(environment, "expression", source)
            code = self.load(path) if path is not None else None
            if code is not None:
                template = environment.template_class.from_code(environment, code, environment.make_globals(None), None)
                return TemplateExpression(template, undefined_to_none)
            beneath[:] = [path]
            try:
                return expression(environment, source, undefined_to_none)
            finally:
                beneath.clear()

        base.compile, base.compile_expression = compile_template, compile_expression
