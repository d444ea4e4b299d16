# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP request that is over at its deadline, whatever the other side does, and whose errors give no secret away."""

from __future__ import annotations

import dataclasses
import http.client
import re
import socket
import ssl
import threading
import time
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.urls import ConnectionError as UrlsError
from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction

LARGEST = 1 << 20
PUBLIC = ("content-type", "accept", "user-agent", "idempotency-key")  # headers that are no secrets
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")  # RFC 9110, section 5.6.2
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")  # what is sent as Latin-1, without control characters


class WebError(Exception):
    """No answer. SENT says whether the other side may have got the request all the same."""

    def __init__(self, words, sent=True) -> None:
        super().__init__(words)
        self.sent = sent


@dataclasses.dataclass
class Answer:
    status: int
    body: bytes
    retry_after_s: t.Optional[float] = None


def complaint(url) -> str:
    """Return the problem of a URL; empty if it can be requested. The message never has the URL itself."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "it is no URL"
    try:
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return "its port is no number from 1 to 65535"
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        return "expected http:// or https:// and a host"
    if parts.username is not None or parts.password is not None:
        return "it holds a user or a password; those belong into a header"
    if re.search(r"[\x00-\x20\x7f]", url):
        return "it holds a blank or a control character"
    return ""


def header_problem(headers) -> str:
    """Return the problem of HEADERS, which http.client would tell with the value; empty if they can be sent.

    The message has the name of a header and never its value.
    """
    for number, (name, value) in enumerate(headers.items(), 1):
        if not HEADER_NAME.fullmatch(str(name)):
            return "the name of header %d is not one of letters, digits and '-'" % number
        if not HEADER_VALUE.fullmatch(str(value)):
            return (
                "the value of the header %s holds a line end or another character that cannot be sent: look at the end "
                "of the file or variable that it comes from" % name
            )
    return ""


def header_secrets(headers) -> list[str]:
    """Return the values of HEADERS that may be secrets, for redact()."""
    return [str(value) for name, value in headers.items() if str(name).lower() not in PUBLIC]


def place(url) -> str:
    """The host and port of a URL, to name it."""
    parts = urllib.parse.urlsplit(url)
    return "%s%s" % (parts.hostname, ":%d" % parts.port if parts.port else "")


def request(url, timeout_s, body=None, headers=None, largest=LARGEST) -> Answer:
    """The Answer of URL, of at most LARGEST bytes, or a WebError after TIMEOUT_S at the latest.

    Redirects are not followed.
    """
    wrong = complaint(url)
    if wrong:
        raise WebError("its URL cannot be used: %s" % wrong, sent=False)
    wrong = header_problem(headers or {})
    if wrong:
        raise WebError(wrong, sent=False)
    outcome: t.List[t.Any] = []
    # The system may hang where no timeout reaches, as in looking up a name; then the thread is left to itself.
    thread = threading.Thread(target=_ask, args=(outcome, url, timeout_s, body, headers or {}, largest), daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        raise WebError("it did not answer within %g s" % timeout_s)
    if isinstance(outcome[0], WebError):
        raise outcome[0]
    return outcome[0]


def _ask(outcome, url, timeout_s, body, headers, largest) -> None:
    until = time.monotonic() + timeout_s
    # No redirects and no netrc: a secret goes where it was meant to go, and nowhere else.
    options = {"timeout": timeout_s, "follow_redirects": "none", "use_netrc": False, "http_agent": "gpufleet.lifecycle"}
    try:
        try:
            with open_url(
                url, data=body, headers=headers, method="GET" if body is None else "POST", **options
            ) as response:
                outcome.append(_answer(response, until, largest))
        except urllib.error.HTTPError as found:
            with found:
                outcome.append(_answer(found, until, largest))
    except urllib.error.URLError as exc:
        outcome.append(
            WebError(
                _why(exc.reason, url, headers),
                sent=not isinstance(exc.reason, (ConnectionRefusedError, socket.gaierror, ssl.SSLError)),
            )
        )
    except (OSError, http.client.HTTPException, ValueError, UrlsError) as exc:
        outcome.append(WebError(_why(exc, url, headers)))


def _answer(response, until, largest) -> Answer:
    body = bytearray()
    while True:
        chunk = response.read1(65536) if hasattr(response, "read1") else response.read(65536)
        if not chunk:
            break
        body += chunk
        if len(body) > largest:
            raise ValueError("its answer is longer than %d bytes" % largest)
        if time.monotonic() > until:
            raise ValueError("it did not finish its answer in time")
    after = response.headers.get("Retry-After") or ""
    return Answer(response.status, bytes(body), float(after) if re.fullmatch(r"[0-9]{1,6}", after) else None)


def _why(reason, url, headers) -> str:
    if isinstance(reason, (socket.timeout, TimeoutError)):
        return "it did not answer in time"
    parts = urllib.parse.urlsplit(url)
    secrets = [secret for secret in (url, parts.path, parts.query) if len(secret) > 1]
    return redaction.redact(reason, secrets + header_secrets(headers)) or type(reason).__name__
