# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is wrong with the values of a node's variables, which a role would find too late. Pure."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _variable_names
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._variables import END, VariableError


def refuse_no_choice(node, name, value, allowed):
    """Refuse a value that the role would refuse too, but on a node of which something was changed already."""
    several, words = allowed
    if value is None or value == "":
        return
    given = value if isinstance(value, (list, tuple)) else [value]
    bad = [one for one in given if one not in words]
    if several is not isinstance(value, (list, tuple)) or bad:
        raise VariableError(
            "%s of %s is %s; expected %s%s. %s"
            % (
                name,
                node,
                json.dumps(value, default=str)[:80],
                "a list of some of " if several else "one of ",
                ", ".join(words),
                END,
            )
        )


def refuse_no_place(node, value):
    """STATE_DIR of a node that is no absolute path: playbooks and roles would each take another directory for it."""
    if not isinstance(value, str) or not value.startswith("/"):
        raise VariableError(
            "%s of %s is %s; expected the absolute path of a directory on the node. %s"
            % (_variable_names.STATE_DIR, node, json.dumps(value, default=str)[:80], END)
        )


def refuse_bad_timeout(node, value):
    """ANSWER_TIMEOUT of a node; empty text means its default, and 0 would be no limit for Ansible."""
    if value in (None, ""):
        return
    text = str(value).strip()
    if isinstance(value, (bool, float)) or not text.isascii() or not text.isdigit() or not 1 <= int(text[:10]) <= 86400:
        raise VariableError(
            "%s of %s is %s; expected a whole number of seconds from 1 to 86400. %s"
            % (_variable_names.ANSWER_TIMEOUT, node, json.dumps(value, default=str)[:80], END)
        )


def refuse_nothing(node, found, monitoring=False):
    """Refuse null, and an empty text where a text is no value, of a role's variable that has a default: the role would
    refuse it on the node, and Ansible has no way to take the default in its place.

    FOUND: the variables of the node as they are written, so that no template is evaluated before its time.
    """
    # Where the role gpu_health runs itself, it takes no more than others do.
    itself = monitoring or bool(found.get("gpu_health_boot_check"))
    defaults = _variable_names.defaults()
    for name in sorted(set(found) & set(defaults)):
        value, (role, text, default) = found[name], defaults[name]
        if value is not None and not (isinstance(value, str) and value == ""):
            continue
        empty = value is not None and (default == "" or text and role != _variable_names.FULL)
        of_others = name in _variable_names.DEFAULTED and not (itself and role == "gpu_health")
        of_plan = role == _variable_names.FULL and name in _variable_names.OF_PLAN  # the playbook sets them
        if not (empty or of_others or of_plan):
            raise VariableError(
                "%s of %s is %s, and the role %s takes no default for it. Leave it out%s, or give it a value. %s"
                % (
                    name,
                    node,
                    "null" if value is None else "an empty text",
                    role,
                    "" if "{{" in str(default) else " for %s" % json.dumps(default),
                    END,
                )
            )
