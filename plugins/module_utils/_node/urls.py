# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove credentials from texts that name URLs, such as the errors of package managers."""

from __future__ import annotations

import re

HIDDEN = "***"
# Up to the last @ before a blank, since a password may hold an @ or a slash that was not escaped. The limits keep the
# time linear for a text that a stranger wrote.
_USER = re.compile(r"(?<=://)[^\s\"'<>]{0,512}@")
_SETTING = re.compile(
    r"(?i)((?<![a-z0-9])[a-z0-9_-]{0,40}(?:password|passwd|secret|token|signature|credential|api_?key)=|"
    r"(?<![a-z0-9])(?:sig|pwd|auth)=)('[^']{0,512}'|\"[^\"]{0,512}\"|[^&\s\"']+)"
)


def mask_credentials(text: str) -> str:
    """Return TEXT without user and password in URLs, and without the values of settings that are called passwords."""
    return _SETTING.sub(lambda found: found.group(1) + HIDDEN, _USER.sub(HIDDEN + "@", text))
