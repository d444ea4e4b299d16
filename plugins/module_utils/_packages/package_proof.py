# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge what a change of driver packages left on the node: success of the package manager proves nothing. Pure."""

from __future__ import annotations

from typing import Dict, Optional

from . import driver_family, package_plan, transaction
from .package_plan import Plan
from .package_state import Installed


def shortfall(plan: Plan, installed: Installed, left: Dict[str, int]) -> Optional[str]:
    """Return how the node differs from the plan; None when it does not.

    ``installed`` are the packages after the change, ``left`` is what would still be downloaded.
    """
    if plan.wish.state == "downloaded" and left:
        return "Still not in the package cache after the download: %s." % ", ".join(sorted(left))
    if plan.wish.state == "absent":
        rest = driver_family.installed_driver(plan.state.table, installed)
        return "Still installed after the removal: %s." % ", ".join(rest) if rest else None
    return present_shortfall(plan, installed) if plan.wish.state == "present" else None


def present_shortfall(plan: Plan, installed: Installed) -> Optional[str]:
    words = transaction.WORDS[plan.state.manager]
    wrong = transaction.differences(installed, plan.packages)
    if wrong:
        expected = ((name, found, plan.packages[name]) for name, found in sorted(wrong.items()))
        listing = ", ".join("%s %s (expected %s)" % item for item in expected)
        return "%s ended well, and yet these packages are not as resolved: %s. Next step: %s of them on the node." % (
            plan.state.manager,
            listing,
            words["policy"],
        )
    hold, lift = package_plan.hold_changes(plan.wish, plan.packages, installed)
    return "%s did not take: %s." % (words["hold"], ", ".join(hold + lift)) if hold or lift else None
