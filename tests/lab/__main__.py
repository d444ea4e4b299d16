# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's command line: python3 -m tests.lab COMMAND, from the checkout's root."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main(sys.argv[1:]))
