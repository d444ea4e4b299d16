# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mirrors of apt: which of them a transaction downloads from, and one archive from each. No decision is made here.

An archive is fetched by apt itself, with its proxies and credentials, into a directory that is removed again.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from urllib.parse import unquote, urlsplit

from .._node.urls import mask_credentials
from .manager import tail

# A mirror that does not answer is found out in a minute or so.
LOOK_S = 120
LOOK_OPTIONS = ("Acquire::Retries=1", "Acquire::http::Timeout=20", "Acquire::https::Timeout=20")

Offer = Dict[str, Any]  # {"mirror", "package", "version", "architecture", "bytes"}


def parse_offers(text: str) -> List[Offer]:
    """``apt-get --print-uris`` -> the archives that are not on the machine, each with its mirror."""
    found = []
    for line in text.splitlines():
        match = re.match(r"^'((?!file:|/)[^']+)' ([^\s_]+)_([^\s_]+)_([^\s_]+)\.deb ([0-9]+)", line)
        if match:
            uri, package, version, architecture, size = match.groups()
            found.append(
                {
                    "mirror": mirror_of(uri),
                    "package": package,
                    "version": unquote(version),
                    "architecture": architecture,
                    "bytes": int(size),
                }
            )
    return found


def mirror_of(uri: str) -> str:
    """The scheme and host of an address, without user and password."""
    parts = urlsplit(uri)
    return "%s://%s" % (parts.scheme, parts.netloc.rpartition("@")[2])


def pick_smallest(offers: List[Offer]) -> List[Offer]:
    """The smallest archive of each mirror, by mirror."""
    found: Dict[str, Offer] = {}
    for offer in sorted(offers, key=lambda item: (item["bytes"], item["package"])):
        found.setdefault(offer["mirror"], offer)
    return [found[mirror] for mirror in sorted(found)]


def name_offer(offer: Offer) -> str:
    """The archive as ``apt-get download`` names it."""
    architecture = "" if offer["architecture"] == "all" else ":" + offer["architecture"]
    return "%s%s=%s" % (offer["package"], architecture, offer["version"])


@contextmanager
def fetch_archive(
    runner: Callable[..., Tuple[int, str, str]], name: str, timeout_s: int, options: Tuple[str, ...] = ()
) -> Iterator[Tuple[Optional[str], str]]:
    """``(path of the archive, "")``, or ``(None, what apt said)``; the archive is there until the context ends.

    ``apt-get download`` writes into its working directory alone.
    """
    try:
        place = tempfile.mkdtemp(prefix="gpufleet-packages-")
    except OSError as exc:
        yield None, "there is no directory for it: %s" % exc
        return
    try:
        argv = ["env", "--chdir=%s" % place, "apt-get", "-q", "-o", "APT::Sandbox::User=root"]
        argv += [part for option in options for part in ("-o", option)] + ["download", name]
        rc, out, err = runner(argv, timeout_s)
        archives = glob.glob(os.path.join(place, "*.deb"))
        if rc or len(archives) != 1:
            why = [line for line in err.splitlines() if line.startswith("E: ")] or [tail((out + err).strip(), 1)]
            yield None, mask_credentials(why[0])
        else:
            yield archives[0], ""
    finally:
        shutil.rmtree(place)


def find_silent(runner: Callable[..., Tuple[int, str, str]], text: str) -> List[Dict[str, str]]:
    """The mirrors of ``apt-get --print-uris`` from which nothing comes, as Manager.silent_mirrors answers."""
    found = []
    for offer in pick_smallest(parse_offers(text)):
        with fetch_archive(runner, name_offer(offer), LOOK_S, LOOK_OPTIONS) as (path, why):
            if not path:
                found.append(
                    {
                        "mirror": offer["mirror"],
                        "package": offer["package"],
                        "version": offer["version"],
                        "why": why or "apt said nothing",
                    }
                )
    return found
