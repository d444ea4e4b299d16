# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports for people and for machines: documents, Markdown, JUnit XML and self-contained HTML pages."""

from __future__ import annotations
