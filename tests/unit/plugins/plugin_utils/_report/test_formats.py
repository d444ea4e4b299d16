# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the reports look like: the table, Markdown, JUnit XML and the page.

Whatever a node says stays text in all of them.
"""

from __future__ import annotations

import html.parser
import json
import os
import pathlib
import re
import stat
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import (
    files,
    formats,
    precheck,
    precheck_formats,
    precheck_page,
    text,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import html as pages
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins import special_files
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._report import samples

EVIL = (
    "<script src=\"https://evil.example/x.js\">alert('1')</script>\"'>"
    "<img src=//evil.example/x onerror=alert(2)>{{ 7 * 7 }}{% x %}&amp;|`]]>\x1b[31m\u202e\x00"
)
VOID = {"meta", "input", "br", "img", "link", "hr"}


def results():
    return {
        "gpu-a-1": samples.healthy("gpu-a-1"),
        "gpu-a-2": samples.broken(samples.healthy("gpu-a-2"), "gpu.pcie_width", observed=8, expected=16),
        "gpu-a-3": samples.broken(samples.healthy("gpu-a-3"), "gpu.row_remap", "unknown"),
        "gpu-a-4": samples.unreachable(),
        "gpu-a-5": samples.failed(),
        "gpu-a-6": samples.broken(
            samples.healthy("gpu-a-6"),
            "gpu.power_limit",
            "waived",
            entity="node",
            message="x",
            waiver={"expires": "2026-12-31", "reason": "short of cooling"},
        ),
    }


def document(given=None, extra=("gpu-a-7",)):
    given = results() if given is None else given
    return precheck.build_document(
        [*given, *extra], given, asked={"expected driver": samples.DRIVER}, time=samples.TIME
    )


def evil_results():
    result = samples.broken(
        samples.healthy("gpu-a-1"), "gpu.present", observed={EVIL: [EVIL]}, expected=EVIL, message=EVIL, source=EVIL
    )
    result["health"]["checks"] += [
        samples.check(EVIL, EVIL, "fail", message=EVIL),
        samples.check(EVIL, "node", "unknown", message=EVIL),
        samples.check("w", EVIL, "waived", waiver={"expires": EVIL, "reason": EVIL}, message=EVIL),
        samples.check("n", EVIL, notice=True, message=EVIL, observed=EVIL),
    ]
    result["health"]["driver"] = {"loaded": EVIL, "on_disk": [EVIL], "nvml": EVIL}
    result["health"]["changes"] = [{"entity": EVIL, "key": EVIL, "before": EVIL, "after": EVIL, "class": EVIL}]
    result["baseline"]["audit"]["kernel"]["running"] = EVIL
    for gpu in result["baseline"]["snapshot"]["gpus"]:
        for key in ("name", "serial", "vbios_version", "uuid", "gsp_firmware_version"):
            gpu[key] = samples.value(EVIL)
    result["baseline"]["snapshot"]["gpus"][0]["vbios_version"] = samples.value("1")
    return {EVIL: result, "gone": samples.unreachable(EVIL), "bad": samples.failed(EVIL)}


class Page(html.parser.HTMLParser):
    """A page as a list of elements (tag, attributes, path, text), and what a browser would trip over."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.wrong = [], [], []
        self.feed(source)
        self.close()
        assert self.open == [] and self.wrong == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attributes": dict(attrs), "path": [one["tag"] for one in self.open], "text": ""}
        if len(attrs) != len(element["attributes"]):
            self.wrong.append("an attribute twice in <%s>" % tag)
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1]["tag"] != tag:
            self.wrong.append("</%s> closes %r" % (tag, [one["tag"] for one in self.open]))
        else:
            self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        wanted = {key.rstrip("_"): content for key, content in attributes.items()}
        return [
            one
            for one in self.elements
            if one["tag"] == tag
            and all(content in (one["attributes"].get(key) or "").split() for key, content in wanted.items())
        ]


class TestPage:
    def test_nodes_are_grouped_by_verdict_and_the_bad_ones_come_first(self):
        page = Page(precheck_page.render_page(document()))
        groups = [one["attributes"]["id"] for one in page.all("section", class_="group")]
        assert groups == ["group-fail", "group-unknown", "group-unreachable", "group-pass"]
        found = {
            key: [
                one["attributes"]["data-node"]
                for one in page.all("details", class_="node")
                if key in one["attributes"]["class"].split()
            ]
            for key in ("fail", "unknown", "unreachable", "pass")
        }
        assert found == {
            "fail": ["gpu-a-2"],
            "unknown": ["gpu-a-3", "gpu-a-5", "gpu-a-7"],
            "unreachable": ["gpu-a-4"],
            "pass": ["gpu-a-1", "gpu-a-6"],
        }
        assert page.all("h1")[0]["text"].split() == "FAIL 5 of 7 nodes need attention".split()

    def test_there_is_a_filter_for_every_verdict_that_needs_no_script(self):
        source = precheck_page.render_page(document())
        page = Page(source)
        picks = [one["attributes"] for one in page.all("input", class_="pick")]
        assert [pick["id"] for pick in picks] == [
            "show-all",
            "show-fail",
            "show-unknown",
            "show-unreachable",
            "show-pass",
        ]
        assert [pick["id"] for pick in picks if "checked" in pick] == ["show-all"] and {
            pick["name"] for pick in picks
        } == {"show"}
        assert [one["attributes"]["for"] for one in page.all("label", class_="tile")] == [pick["id"] for pick in picks]
        style = page.all("style")[0]["text"]
        for key in ("fail", "unknown", "unreachable", "pass"):
            assert "#show-%s:checked ~ main .group:not(.%s)" % (key, key) in style
        assert {tuple(one["path"]) for one in page.all("input", class_="pick") + page.all("main")} == {
            ("html", "body")
        }, "siblings, for the style to work"

    def test_every_failing_check_has_found_expected_and_next_step(self):
        page = Page(precheck_page.render_page(document()))
        (block,) = [
            one["text"] for one in page.all("section", class_="check") if "fail" in one["attributes"]["class"].split()
        ]
        said = " ".join(block.split())
        for part in (
            "gpu.pcie_width",
            "GPU 0, 0000:1a:00.0, S/N 16528200",
            "found 8",
            "expected (policy) 16",
            "look at it.",
        ):
            assert part in said
        assert "Do: keep it out of service and look." in page.all("p", class_="advice")[0]["text"]

    def test_the_same_on_several_gpus_is_said_once(self):
        result = samples.healthy("gpu-a-2")
        for index in range(6):
            entity = samples.uuid("gpu-a-2", index)
            result = samples.broken(
                result,
                "gpu.pcie_width",
                entity=entity,
                observed=8,
                expected=16,
                message="%s at 0000:%02x:00.0 runs at x8. Reseat it." % (entity, 0x1A + index),
            )
        page = Page(precheck_page.render_page(document({"gpu-a-2": result}, ())))
        (block,) = page.all("section", class_="check")
        assert block["text"].count("This GPU runs at x8. Reseat it.") == 1
        assert all("GPU %d, 0000:%02x" % (index, 0x1A + index) in block["text"] for index in range(6))

    def test_what_is_not_about_verdicts_is_there_too(self):
        given = results()
        given["gpu-a-1"]["baseline"]["snapshot"]["gpus"][3]["vbios_version"] = samples.value("96.00.61.00.01")
        given["gpu-a-1"]["health"]["checks"].append(
            samples.check("gpu.margin", samples.uuid("gpu-a-1", 1), notice=True, message="Look at the fans.")
        )
        given["gpu-a-1"]["health"]["changes"] = [
            {
                "entity": samples.uuid("gpu-a-1", 1),
                "key": "power_limit_mw",
                "before": 700,
                "after": 600,
                "class": "restorable",
            },
            {"entity": "node", "key": "boot_id", "before": "a", "after": "b", "class": "expected"},
        ]
        doc = document(given)
        page = Page(precheck_page.render_page(doc))
        parts = {
            one["attributes"]["id"]: " ".join(one["text"].split())
            for one in page.all("section", class_="part")
            if "id" in one["attributes"]
        }
        assert "96.00.61.00.01 on gpu-a-1 GPU 3" in parts["peers"]
        assert "Look at the fans." in parts["notices"]
        assert (
            "2026-12-31" in parts["waivers"]
            and "short of cooling" in parts["waivers"]
            and "gpu-a-6" in parts["waivers"]
        )
        assert "power_limit_mw" in parts["changes"] and "boot_id" not in parts["changes"]
        odd = [one["text"] for one in page.all("td", class_="odd")]
        assert odd == ["96.00.61.00.01, 96.00.89.00.01"], "the matrix marks what differs from most"
        plain = precheck_formats.render_markdown(doc)
        for part in (
            "## Odd ones out",
            "## Notices",
            "Look at the fans.",
            "## Waivers in use",
            "short of cooling",
            "## Changed since the baseline",
            "## Versions",
        ):
            assert part in plain

    def test_it_loads_nothing(self):
        for doc in (document(), document(evil_results(), ())):
            page = Page(precheck_page.render_page(doc))
            for one in page.elements:
                assert not {"src", "href", "srcset", "style", "action", "background", "data", "poster", "ping"} & set(
                    one["attributes"]
                ), one
                assert not [key for key in one["attributes"] if key.startswith("on")], one
            assert {one["tag"] for one in page.elements} & {
                "link",
                "img",
                "iframe",
                "object",
                "embed",
                "base",
                "a",
                "form",
                "svg",
            } == set()
            (style,), (script,) = page.all("style"), page.all("script")
            assert "url(" not in style["text"] and "@import" not in style["text"]
            assert not re.search(r"https?:|//\w", re.sub(r"(?m)^// .*$", "", script["text"]))
            assert script["text"] == pages.read_source("page.js") and style["text"] == pages.read_source("style.css")

    def test_its_policy_forbids_all_but_its_own_style_and_script(self):
        page = Page(precheck_page.render_page(document()))
        (policy,) = [
            one["attributes"]["content"]
            for one in page.all("meta")
            if one["attributes"].get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy.startswith("default-src 'none'; ")
        for tag in ("style", "script"):
            assert "%s-src '%s'" % (tag, pages.digest_source(page.all(tag)[0]["text"])) in policy
        assert "unsafe" not in policy
        position = [one["attributes"].get("http-equiv") or one["tag"] for one in page.elements]
        assert position.index("Content-Security-Policy") < position.index("style"), "it holds from where it stands"

    def test_whatever_a_node_says_is_text(self):
        tame = Page(precheck_page.render_page(document()))
        page = Page(precheck_page.render_page(document(evil_results(), ())))
        assert {one["tag"] for one in page.elements} <= {one["tag"] for one in tame.elements} | {"ul", "li"}
        assert len(page.all("script")) == 1
        whole = page.all("body")[0]["text"]
        assert "alert('1')</script>" in whole and "{{ 7 * 7 }}" in whole and "49" not in whole
        assert "\x1b" not in whole and "\u202e" not in whole and "\\x1b" in whole
        assert [
            one for one in page.all("details", class_="node") if one["attributes"]["data-node"].startswith("<script")
        ]

    def test_it_is_made_for_a_phone_and_for_the_dark(self):
        page = Page(precheck_page.render_page(document()))
        names = {one["attributes"].get("name"): one["attributes"].get("content") for one in page.all("meta")}
        assert names["viewport"].startswith("width=device-width") and names["color-scheme"] == "light dark"
        style = page.all("style")[0]["text"]
        assert "prefers-color-scheme: dark" in style and "max-width: 40rem" in style
        for table in page.all("table"):
            assert table["path"][-1] == "div", "a table scrolls by itself"

    def test_a_template_that_misses_a_value_is_an_error(self):
        with pytest.raises(Exception, match="undefined"):
            pages.render_page("precheck.html.j2", {})

    def test_a_great_fleet_is_a_small_page_with_its_details_closed(self):
        given = {"n%03d" % number: samples.healthy("n%03d" % number) for number in range(300)}
        for number in range(0, 300, 10):
            given["n%03d" % number] = samples.broken(given["n%03d" % number], "gpu.present")
        source = precheck_page.render_page(document(given, ()))
        assert len(source) < 1500000
        assert not [one for one in Page(source).all("details", class_="node") if "open" in one["attributes"]]
        lines = precheck_formats.render_summary(document(given, ()))
        assert len(lines) < 40 and "... and 270 nodes that pass" in lines


class TestJUnit:
    """What the schemas of Ant and of Jenkins have in common, as rules: attributes (name -> pattern) and children in
    their order.
    """

    TOKEN, NUMBER, ANY = r"\S(.*\S)?", r"\d+", r"(?s).*"
    RULES = {
        "testsuites": ({}, {}, ["testsuite*"]),
        "testsuite": (
            {
                "name": TOKEN,
                "package": TOKEN,
                "id": NUMBER,
                "hostname": TOKEN,
                "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
                "time": NUMBER,
                "tests": NUMBER,
                "failures": NUMBER,
                "errors": NUMBER,
            },
            {"skipped": NUMBER},
            ["properties", "testcase*", "system-out", "system-err"],
        ),
        "properties": ({}, {}, ["property*"]),
        "property": ({"name": TOKEN, "value": ANY}, {}, []),
        "testcase": ({"name": TOKEN, "classname": TOKEN, "time": NUMBER}, {}, ["skipped|error|failure"]),
        "skipped": ({}, {"message": ANY}, []),
        "error": ({"type": TOKEN}, {"message": ANY}, []),
        "failure": ({"type": TOKEN}, {"message": ANY}, []),
        "system-out": ({}, {}, []),
        "system-err": ({}, {}, []),
    }

    def valid(self, element):
        required, optional, children = self.RULES[element.tag]
        assert set(required) <= set(element.attrib) <= set(required) | set(optional), element.attrib
        for name, content in element.attrib.items():
            assert re.fullmatch({**required, **optional}[name], content), (element.tag, name, content)
        names = [child.tag for child in element]
        if children == ["skipped|error|failure"]:
            assert len(names) <= 1 and set(names) <= {"skipped", "error", "failure"}
        else:
            order = "".join("(%s )%s" % (name.rstrip("*"), "*" if name.endswith("*") else "") for name in children)
            assert re.fullmatch(order, "".join(name + " " for name in names)), names
        for child in element:
            self.valid(child)

    @pytest.mark.parametrize("given", [results, evil_results, dict])
    def test_is_valid(self, given):
        root = ElementTree.fromstring(precheck_formats.render_junit(document(given()), given()))
        self.valid(root)
        assert [suite.get("id") for suite in root] == [str(number) for number in range(len(root))]
        for suite in root:
            cases = suite.findall("testcase")
            assert suite.get("tests") == str(len(cases))
            for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
                assert suite.get(attribute) == str(len(suite.findall("testcase/" + kind)))

    def test_what_passes_is_counted_and_what_does_not_is_told(self):
        def size(count):
            given = {"n": samples.healthy("n", count)}
            return len(precheck_formats.render_junit(document(given, ()), given))

        assert size(16) - size(1) < 200 and size(8) < 6000, "a node that passes takes the same room with more GPUs"
        given = {"n": samples.broken(samples.healthy("n"), "gpu.pcie_width")}
        (suite,) = ElementTree.fromstring(precheck_formats.render_junit(document(given, ()), given))
        names = [case.get("name") for case in suite.findall("testcase") if not list(case)]
        assert "gpu.pcie_width [7 passed]" in names and "gpu.row_remap [8 passed]" in names
        assert [case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None] == [
            "gpu.pcie_width [%s]" % samples.uuid("n", 0)
        ]

    def test_a_suite_for_each_node_and_a_case_for_each_check(self):
        root = ElementTree.fromstring(precheck_formats.render_junit(document(), results()))
        suites = {suite.get("name"): suite for suite in root}
        assert sorted(suites) == ["gpu-a-%d" % number for number in range(1, 8)]
        idents = {(check["id"], check["status"]) for check in results()["gpu-a-1"]["health"]["checks"]}
        assert len(suites["gpu-a-1"].findall("testcase")) == len(idents)
        troubles = {name: (suite.get("failures"), suite.get("errors")) for name, suite in suites.items()}
        assert troubles == {
            "gpu-a-1": ("0", "0"),
            "gpu-a-2": ("1", "0"),
            "gpu-a-3": ("0", "1"),
            "gpu-a-4": ("0", "1"),
            "gpu-a-5": ("0", "1"),
            "gpu-a-6": ("0", "0"),
            "gpu-a-7": ("0", "1"),
        }
        failure = suites["gpu-a-2"].find("testcase/failure")
        assert "found: 8\nexpected: 16" in failure.text and failure.get("message").endswith("look at it.")
        names = [case.get("name") for case in suites["gpu-a-1"].findall("testcase")]
        assert len(names) == len(set(names))

    def test_no_suite_looks_better_than_its_node(self):
        result = samples.healthy("n")
        result["health"]["verdict"] = "fail"
        (suite,) = ElementTree.fromstring(precheck_formats.render_junit(document({"n": result}, ()), {"n": result}))
        assert suite.get("failures") == "1"

    def test_an_outcome_that_is_none_is_refused(self):
        with pytest.raises(ValueError, match="fine"):
            formats.render_junit([formats.Suite("n", "p", "", [], [formats.Case("a", "b", "fine", "", "", "")], [])])


class TestMarkdown:
    def test_a_table_has_as_many_cells_in_every_row(self):
        for given in (results(), evil_results()):
            rows = []
            for line in precheck_formats.render_markdown(document(given)).splitlines():
                if line.startswith("|"):
                    rows.append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
                else:
                    assert len(set(rows)) <= 1, line
                    rows = []

    @pytest.mark.parametrize(
        "value", ["<b>", "a|b", "`x`", "[a](b)", "*a*", "_a_", "# a", "![a](b)", "&lt;", "~~a~~", "a\nb", "\x1b[1m"]
    )
    def test_nothing_is_markup(self, value):
        escaped = formats.escape_markdown(value)
        assert re.sub(r"\\([\\`*_{}\[\]<>#|~!&])", r"\1", escaped) == text.one_line(value)
        assert not re.search(r"(?<!\\)[`*_{}\[\]<>#|~!&]", escaped)
        assert "\n" not in escaped and "\x1b" not in escaped

    def test_an_address_does_not_become_a_link(self):
        assert "https://" not in formats.escape_markdown(
            "see https://evil.example"
        ) and "www.e" not in formats.escape_markdown("www.evil.example")


class TestTable:
    def test_names_the_worst_first(self):
        lines = precheck_formats.render_summary(document())
        assert [line.split()[0] for line in lines[2:9]] == [
            "gpu-a-2",
            "gpu-a-3",
            "gpu-a-5",
            "gpu-a-7",
            "gpu-a-4",
            "gpu-a-1",
            "gpu-a-6",
        ]
        assert precheck_formats.describe_worst(document()["nodes"]["gpu-a-2"]).endswith(
            "[GPU 0, 0000:1a:00.0, S/N 16528200]"
        )
        assert lines[-1] == "FAIL: 1 fail, 4 unknown, 2 pass (1 unreachable, 1 failed, 1 missing) of 7 nodes"

    def test_shows_what_is_wrong_before_where_the_gpu_is(self):
        uuid = samples.uuid("gpu-a-2", 0)
        message = "The PCIe link of %s at 0000:1a:00.0 has 8 lanes; expected 16." % uuid
        result = samples.broken(samples.healthy("gpu-a-2"), "gpu.pcie_width", message=message)
        line = precheck_formats.render_summary(document({"gpu-a-2": result}, ()))[2]
        assert "gpu.pcie_width: The PCIe link of GPU 0 has 8 lanes; expected 16. [GPU 0, " in line

    def test_steers_no_terminal(self):
        given = evil_results()
        for line in precheck_formats.render_summary(document(given, ())):
            assert line.isprintable()

    def test_says_that_nodes_are_simulated(self):
        result = samples.healthy("n")
        result["health"]["simulated"] = True
        doc = document({"n": result}, ())
        assert any(line.startswith("SIMULATED") for line in precheck_formats.render_summary(doc))
        assert "simulated" in precheck_page.render_page(doc) and "Simulated: " in precheck_formats.render_markdown(doc)


class TestFiles:
    def test_writes_with_the_mode_and_says_what_changed(self, tmp_path):
        place = tmp_path / "new" / "place"
        assert files.write(str(place), {"a": "1", "b": "ü"}, 0o640) == {"a": True, "b": True}
        assert {
            path.name: (path.read_text(encoding="utf-8"), stat.S_IMODE(path.stat().st_mode)) for path in place.iterdir()
        } == {"a": ("1", 0o640), "b": ("ü", 0o640)}
        assert files.write(str(place), {"a": "1", "b": "2"}, 0o640) == {"a": False, "b": True}
        assert files.write(str(place), {"a": "1"}, 0o600) == {"a": True}
        assert stat.S_IMODE(place.stat().st_mode) & 0o007 == 0

    def test_a_link_is_replaced_and_not_followed(self, tmp_path):
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "a").symlink_to(tmp_path / "precious")
        files.write(str(tmp_path / "d"), {"a": "new"})
        assert (tmp_path / "precious").read_text() == "mine" and not (tmp_path / "d" / "a").is_symlink()

    @pytest.mark.parametrize("kind", sorted(special_files.MAKERS))
    def test_what_is_no_file_is_replaced_and_never_opened(self, tmp_path, kind):
        """The directory of the textfile collector may belong to another user, and opening a FIFO waits for ever."""
        special_files.make(kind, tmp_path / "d" / "a")
        written = special_files.within(lambda: files.write(str(tmp_path / "d"), {"a": "new"}))
        assert written == {"a": True} and (tmp_path / "d" / "a").read_text() == "new"
        assert not (tmp_path / "d" / "a").is_symlink()

    def test_json_of_a_report_steers_no_terminal(self):
        said = {"reason": "a\x1b[2K\x9b2K\u202e\u2028\x7f ü"}
        text = files.json_text(said)
        assert json.loads(text) == said and text.replace("\n", "").isprintable() and "ü" in text

    def test_what_fails_half_way_leaves_the_old_files(self, tmp_path, monkeypatch):
        files.write(str(tmp_path), {"a": "old", "b": "old"})

        def full(*dummy):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            files.write(str(tmp_path), {"a": "new", "b": "new"})
        assert {path.name: path.read_text() for path in pathlib.Path(str(tmp_path)).iterdir()} == {
            "a": "old",
            "b": "old",
        }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "nothing"),
        ([], "nothing"),
        (True, "true"),
        (0, "0"),
        ([1, "a"], "1, a"),
        ({"b": 1, "a": None}, "a=nothing, b=1"),
        ("a\n b", "a b"),
        ("x" * 900, None),
    ],
)
def test_values_are_shown_as_people_read_them(value, expected):
    shown = text.format_value(value)
    assert len(shown) <= text.SHOWN_LIMIT
    assert expected is None or shown == expected
