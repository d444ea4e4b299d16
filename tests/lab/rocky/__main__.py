# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the fingerprint of the key of a repository in the present image: ``python3 -m tests.lab.rocky REPOSITORY``."""

from __future__ import annotations

import sys

from .. import config
from . import image, repository

if __name__ == "__main__":
    (name,) = sys.argv[1:]
    root = image.repositories_layer().root(config.current().images)
    print((root / repository.PLACE / name / repository.FINGERPRINT).read_text().strip())
