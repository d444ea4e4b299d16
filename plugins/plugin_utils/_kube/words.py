# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of the API: names, keys and errors that more than one part needs."""

from __future__ import annotations

import re

PREFIX = "gpufleet.lifecycle/"
MARK = PREFIX + "mark"  # the annotation that says who took the node out of service, and what was found

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class KubeError(Exception):
    """An error for the operator, in whole sentences: WHY, and the state in which the node is left."""

    passing = False  # whether it may be different in a moment

    def __init__(self, why, stands=""):
        super().__init__(" ".join(filter(None, (why, stands))))
        self.why = why


class Away(KubeError):
    """The API server did not answer."""

    passing = True


class Refused(KubeError):
    """Nothing was changed, because of what was found. BLOCKERS says what."""

    def __init__(self, why, stands="", blockers=()):
        super().__init__(why, stands)
        self.blockers = list(blockers)


class ApiError(KubeError):
    """The API server answered, and the answer was no."""

    def __init__(self, message, status, answer=None):
        super().__init__(message)
        self.status = status
        self.passing = status == 429 or status >= 500
        self.answer = answer if isinstance(answer, dict) else {}

    @property
    def causes(self):
        return [str(cause.get("message") or "") for cause in (self.answer.get("details") or {}).get("causes") or []]

    @property
    def reasons(self):
        return [str(cause.get("reason") or "") for cause in (self.answer.get("details") or {}).get("causes") or []]


def node_name_problem(name):
    """Return why this cannot be the name of a node; empty if it can."""
    if len(name) <= 253 and _NODE_NAME.fullmatch(name):
        return ""
    return "%r cannot be the name of a Kubernetes node: expected lower-case letters, digits, '-' and '.'" % (name,)


def key_problem(key):
    """Return why this cannot be the key of a label, an annotation or a taint; empty if it can."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _NODE_NAME.fullmatch(prefix)):
        return "the part of the key %r before '/' is no DNS name" % (key,)
    if len(name) > 63 or not _KEY_NAME.fullmatch(name):
        return (
            "the key %r needs a name of 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
            % (key,)
        )
    return ""


def value_problem(value):
    """Return why this cannot be the value of a label or a taint; empty if it can."""
    if value == "" or len(value) <= 63 and _KEY_NAME.fullmatch(value):
        return ""
    return (
        "the value %r is none of at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
        % (value,)
    )
