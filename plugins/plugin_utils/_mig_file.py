# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of MIG configurations on the controller, YAML or JSON, in which no key stands twice."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._mig import config
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _judging


def read_mig_file(path):
    """The document of the file at PATH, parsed and known to be one of MIG configurations.

    ConfigError names the file.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise config.ConfigError(
            "the MIG configuration %s cannot be read: %s" % (path, getattr(exc, "strerror", None) or exc)
        ) from exc
    try:
        document = _judging.load_located(text)[0]
        config.parse(document)
    except ValueError as exc:
        raise config.ConfigError("%s: %s" % (path, exc)) from exc
    return document
