# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that reaches nothing but its controller has its driver from a signed mirror of its own."""

from __future__ import annotations

import re

MIRROR = "/srv/gpufleet-mirror"
REACH = """python3 -c '
import socket
for where in (("1.1.1.1", 443), ("deb.debian.org", 80), ("10.255.255.254", 80)):
    try:
        socket.create_connection(where, timeout=5)
        print("reached", where)
    except OSError as error:
        print(error)
'"""


def test_no_other_network_was_reachable(cut_off, node):
    routes = cut_off.check_output("ip route show").splitlines()
    assert len(routes) == 1 and re.match(r"10\.213\.[0-9]+\.0/24 dev host0 ", routes[0]), (
        "the lab's own subnet, and no way out of it"
    )
    assert "Gateway" not in cut_off.file("/etc/systemd/network/10-lab.network").content_string, (
        "nor was there one after the reboot"
    )
    assert cut_off.check_output("ip -6 route show default") == ""
    said = cut_off.check_output(REACH)
    assert "reached" not in said and said.count("Network is unreachable") >= 2
    assert any(line.startswith("default ") for line in node.check_output("ip route show").splitlines()), (
        "the other machine has a way out"
    )


def test_the_mirror_is_all_that_apt_knows(cut_off):
    uris = set(cut_off.check_output("apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages'").split())
    assert {uri.rstrip("/") for uri in uris} == {"file:" + MIRROR}
    origins = cut_off.check_output("LC_ALL=C apt-cache policy nvidia-kernel-dkms nvidia-persistenced nvidia-modprobe")
    assert "debian.org" not in origins and "file:" + MIRROR in origins
    assert cut_off.check_output("ls /var/cache/apt/archives").split() == ["lock", "partial"], (
        "no package came with the image"
    )


def test_the_mirror_is_believed_for_its_signature_alone(cut_off):
    sources = cut_off.check_output("cat /etc/apt/sources.list.d/*")
    assert "Signed-By: %s/key.asc" % MIRROR in sources
    assert not re.search("trusted|allow-insecure", sources, re.IGNORECASE)
    release = MIRROR + "/dists/trixie/InRelease"
    update = (
        "rm -rf /root/lists && mkdir -p /root/lists/partial && LC_ALL=C apt-get update -o "
        "Dir::State::lists=/root/lists 2>&1"
    )
    assert cut_off.run(update).rc == 0, "as it was signed, it is believed"
    cut_off.run_expect(
        [0], "cp -a %s /root/InRelease && sed -i 's/^Label: .*/Label: somebody-else/' %s" % (release, release)
    )
    try:
        refused = cut_off.run(update)
        assert refused.rc == 100 and "signature verification failed" in refused.stdout
        assert "is not signed" in refused.stdout
    finally:
        cut_off.run_expect([0], "mv /root/InRelease %s; rm -rf /root/lists" % release)
