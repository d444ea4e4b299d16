# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What built pages load from other hosts, and the links to Ansible's own documentation."""

from __future__ import annotations

import pytest

from tests.tools.website import ansible_labels, resources


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
def test_remote_resource_of_a_page_is_found(text, loaded):
    assert resources.find_in_page(text) == loaded


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("@font-face { src: url('https://fonts.example/a.woff2') }", ["https://fonts.example/a.woff2"]),
        ("a { background: url(//cdn.example/x.png) }", ["//cdn.example/x.png"]),
        ('@import "https://fonts.example/a.css";', ["https://fonts.example/a.css"]),
        ("a { background: url(data:image/svg+xml;charset=utf-8,%3Csvg) } b { background: url(x.png) }", []),
    ],
)
def test_remote_resource_of_a_style_sheet_is_found(text, loaded):
    assert resources.find_in_style(text) == loaded


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
def test_label_of_ansible_has_a_url(label, page):
    assert ansible_labels.find_url(label) == ansible_labels.ANSIBLE + page


@pytest.mark.parametrize("label", ["", "some_label", "ansible_collections.gpufleet.lifecycle.gone_module"])
def test_label_of_this_collection_has_no_url_elsewhere(label):
    assert ansible_labels.find_url(label) is None


def test_only_variables_of_ansible_have_a_url():
    assert ansible_labels.find_variable_url("ANSIBLE_CACHE_PLUGIN").endswith("/config.html#envvar-ANSIBLE_CACHE_PLUGIN")
    assert ansible_labels.find_variable_url("SLURM_JWT") is None
