# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs on main only: Jinja's alone; whether Ansible's templates answer as ever is what every course on every
# ansible-core tries.
"""Templates that were compiled once: they answer as Jinja's own, and what is not worth keeping is compiled again."""

from __future__ import annotations

import pathlib

import jinja2
import pytest
from jinja2 import sandbox

from ansible_collections.gpufleet.lifecycle.tests.unit.playbooks.stub.plugins.module_utils import kept_templates


@pytest.fixture(name="kept")
def _kept(tmp_path):
    return kept_templates.Kept(tmp_path / "templates")


def environment(kept, count, **options):
    """An environment of a class of its own, which counts what it compiles."""

    class Environment(sandbox.SandboxedEnvironment):
        def _compile(self, source, filename):
            count.append(source)
            return super()._compile(source, filename)

    kept.install(Environment)
    return Environment(**dict({"optimized": False}, **options))


def files(kept):
    return sorted(pathlib.Path(kept.directory).iterdir())


def test_a_text_is_compiled_by_the_first_environment_alone_and_answers_the_same(kept):
    for turn in range(2):
        count = []
        template = environment(kept, count).from_string(
            "{% for x in xs %}{{ x | upper }} {% endfor %}{{ missing | default('none') }}"
        )
        assert template.render(xs=["a", "b"]) == "A B none" and template.render(xs=[]) == "none"
        assert len(count) == (0 if turn else 1)
    assert len(files(kept)) == 1


def test_an_expression_is_kept_beside_a_text_of_the_same_words(kept):
    for turn in range(2):
        count = []
        found = environment(kept, count)
        expression = found.compile_expression("a.b is defined and a.b > 3")
        assert [expression(a={"b": 4}), expression(a={"b": 2}), expression(a={})] == [True, False, False]
        assert (
            found.compile_expression("nothing", False)() is not None and found.compile_expression("nothing")() is None
        )
        assert found.from_string("a.b is defined and a.b > 3").render() == "a.b is defined and a.b > 3"
        assert len(count) == (0 if turn else 3)


@pytest.mark.parametrize(
    "options",
    [{"trim_blocks": True}, {"variable_start_string": "[["}, {"autoescape": True}, {"extensions": ["jinja2.ext.do"]}],
    ids="".join,
)
def test_an_environment_with_other_options_has_its_own(kept, options):
    count = []
    environment(kept, count).from_string("{{ a }}")
    environment(kept, count, **options).from_string("{{ a }}")
    assert len(count) == len(files(kept)) == 2


def test_what_a_backslash_means_depends_on_more_than_the_text(kept):
    count = []
    for dummy in range(2):
        assert environment(kept, count).from_string("{{ 'a\\nb' }}").render() == "a\nb"
        assert environment(kept, count).compile_expression("'a\\nb'")() == "a\nb"
    assert len(count) == 4 and files(kept) == []


def test_what_a_filter_answered_while_it_was_compiled_is_for_that_process_alone(kept):
    for answer in ("one", "two"):
        found = environment(kept, [], optimized=True)
        found.filters["who"] = lambda dummy, answer=answer: answer
        assert (
            found.from_string("{{ 'x' | who }}").render() == answer
            and found.compile_expression("'x' | who")() == answer
        )
    assert files(kept) == []


def test_a_text_with_an_error_is_kept_by_no_one(kept):
    for dummy in range(2):
        with pytest.raises(jinja2.TemplateSyntaxError):
            environment(kept, []).from_string("{{ a")
        with pytest.raises(jinja2.TemplateSyntaxError):
            environment(kept, []).compile_expression("a b")
    assert files(kept) == [] and environment(kept, []).compile_expression("a")(a=1) == 1


@pytest.mark.parametrize("content", [b"", b"\xe3\x00", b"no code", b"N"])
def test_a_file_that_was_not_written_to_its_end_is_written_again(kept, content):
    environment(kept, []).from_string("{{ a }}")
    (path,) = files(kept)
    whole = path.read_bytes()
    path.write_bytes(content)
    assert environment(kept, []).from_string("{{ a }}").render(a=1) == "1" and path.read_bytes() == whole


def test_without_a_place_to_write_to_it_is_compiled_each_time(kept):
    pathlib.Path(kept.directory).rmdir()
    count = []
    for dummy in range(2):
        assert environment(kept, count).from_string("{{ a }}").render(a=1) == "1"
    assert len(count) == 2
