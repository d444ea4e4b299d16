# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to the collection: it may change at any time.

"""What keeps the package managers to one driver: apt preferences, dnf version locks, exclusions of unattended upgrades."""

from __future__ import annotations

def render_pin(table, versions):
    """An apt preferences file that allows exactly one driver, and no other driver family.

    ``versions`` is ``{source package: version}``; a source of the driver that is not in it is not allowed at all.
    """
    own = " ".join("src:%s" % name for name in table["sources"])
    blocked = " ".join("src:%s" % name for name in table["blocked_sources"])
    lines = ["Explanation: written by gpufleet.lifecycle (driver_packages); changes are overwritten."]
    for source in table["sources"]:
        if source in versions:
            lines += [
                "Explanation: the driver's packages, by source package, are allowed at this version alone.",
                "Package: src:%s" % source, "Pin: version %s" % versions[source], "Pin-Priority: 1001", "",
            ]
    lines += [
        "Explanation: every other version, and every other driver family of the archive, is not.",
        "Package: %s %s" % (own, blocked), "Pin: version *", "Pin-Priority: -1", "",
    ]
    return "\n".join(lines)


