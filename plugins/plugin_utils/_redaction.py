# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of other programs, such as exceptions and answers of servers, for a message of this collection.

Whatever they say goes through redact() or describe() before it is shown, stored or sent.
"""

from __future__ import annotations

import base64
import re
import typing as t
import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._node.urls import HIDDEN, mask_credentials
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import text

LIMIT = 300
REASON = 4000  # characters of a reason in the ledger
MOST = 16384  # characters of a text that are read at all
# A secret that is shorter is replaced as a whole word alone, or the message would be unreadable.
SHORT = 4
SCHEMES = ("basic", "bearer", "digest", "negotiate", "token", "apikey")


def _forms(secret: str) -> t.Iterator[str]:
    """Yield how a secret may stand in a message: as a whole, word by word, escaped, quoted and in base64."""
    words = [word for word in re.split(r"[\s\x00-\x1f\x7f]+", secret) if word.lower() not in SCHEMES]
    for one in (secret.strip(), *words):
        if one:
            yield one
            yield repr(one)[1:-1]
            yield urllib.parse.quote(one, safe="")
            yield urllib.parse.quote_plus(one)
            yield urllib.parse.unquote(one)
            yield base64.b64encode(one.encode("utf-8", "surrogateescape")).decode("ascii")


def redact(value: object, secrets: t.Iterable[object] = (), limit: int = LIMIT) -> str:
    """Return VALUE on one line of at most LIMIT characters, without secrets and control characters.

    Removed are SECRETS, user and password in URLs, and the values of settings that are called passwords.
    """
    forms = {form for secret in secrets if secret is not None for form in _forms(str(secret))}
    found = str(value)
    is_cut = len(found) > MOST
    found = found[:MOST]
    if forms:
        whole = sorted((form for form in forms if len(form) >= SHORT), key=len, reverse=True)
        short = ["(?<![A-Za-z0-9])%s(?![A-Za-z0-9])" % re.escape(form) for form in forms if len(form) < SHORT]
        found = re.sub("|".join([re.escape(form) for form in whole] + short), HIDDEN, found)
        if is_cut:
            # The cut may have left the beginning of a secret.
            found = found[: -max(map(len, forms))]
    return text.one_line(mask_credentials(found), limit)


def describe(exc: BaseException, secrets: t.Iterable[object] = (), limit: int = LIMIT) -> str:
    """Return what an exception says, as redact() does, or the name of its type if it says nothing."""
    return redact(exc, secrets, limit) or type(exc).__name__


def reason(words: object) -> str:
    """Return the WORDS of a node, or nothing, as the ledger and the notes of nodes keep them."""
    return redact(words or "", limit=REASON)
