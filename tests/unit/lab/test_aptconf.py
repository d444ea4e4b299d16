# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from tests.lab import aptconf
from tests.lab.aptconf import Source

STOCK = """\
# See sources.list(5)
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
# a comment in the middle
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
"""


def test_deb822_keeps_enabled_binary_sources_with_their_options():
    found = aptconf.parse_deb822(STOCK)
    assert [source.uris for source in found] == [
        ("http://mirror.example/debian",),
        ("http://mirror.example/debian-security",),
    ]
    assert found[0].suites == ("bookworm", "bookworm-updates")
    assert found[0].components == ("main", "contrib")
    assert found[0].options == {"Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg"}


def test_deb822_keeps_a_key_that_stands_in_place():
    key = (
        "Types: deb\nURIs: http://m.example/d\nSuites: bookworm\nComponents: main\nSigned-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQIN\n"
    )
    (source,) = aptconf.parse_deb822(key)
    assert source.options["Signed-By"].splitlines()[1:] == [" -----BEGIN PGP PUBLIC KEY BLOCK-----", " .", " mQIN"]
    assert aptconf.parse_deb822(aptconf.deb822([source])) == [source]
    assert aptconf.keyrings([source]) == []


def test_node_of_a_host_with_another_suite_uses_debians_own_mirrors():
    found = aptconf.node_sources([Source(("http://u.example/ubuntu",), ("jammy",), ("main",))], "bookworm")
    assert {(source.uris[0], suite) for source in found for suite in source.suites} == {
        ("http://deb.debian.org/debian", "bookworm"),
        ("http://deb.debian.org/debian", "bookworm-updates"),
        ("http://deb.debian.org/debian-security", "bookworm-security"),
    }
    assert all(source.options == {"Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg"} for source in found)


def test_updates_come_from_the_hosts_mirror_when_it_lists_only_the_release():
    found = aptconf.node_sources(
        [Source(("http://m.example/debian",), ("bookworm",), ("main",), {"Trusted": "yes"})], "bookworm"
    )
    updates = next(source for source in found if "bookworm-updates" in source.suites)
    assert updates.uris == ("http://m.example/debian",)
    assert updates.options == {"Trusted": "yes"}


def test_a_third_partys_repository_is_not_taken_for_debian():
    found = aptconf.node_sources([Source(("http://third.example/apt",), ("bookworm",), ("stable",))], "bookworm")
    assert "http://third.example/apt" not in [uri for source in found for uri in source.uris]


def test_only_what_leads_to_a_mirror_is_taken_from_the_hosts_settings():
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::CAInfo "/etc/ssl/certs/x.pem";\n'
        'Acquire::Check-Valid-Until "false";\n'
        'Acquire::http "";\n'
        'Acquire::Languages "none";\n'
        'DPkg::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb || true";\n'
        'Dir::Cache::pkgcache "";\n'
        'APT::Install-Recommends "true";\n'
    )
    assert aptconf.reaching(dump).splitlines() == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::CAInfo "/etc/ssl/certs/x.pem";',
        'Acquire::Check-Valid-Until "false";',
    ]
