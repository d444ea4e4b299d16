# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions: the orders of Debian and of rpm, and the driver version inside a package version."""

from __future__ import annotations

import re

SEPARATORS = "".join(chr(code) for code in range(33, 127) if not chr(code).isalnum() and chr(code) not in "~^")
DRIVER_VERSION = re.compile(r"^\d{3}\.\d{1,3}(\.\d{1,3})?$")


def is_driver_version(value) -> bool:
    return bool(value) and bool(DRIVER_VERSION.match(value))


def upstream(package_version) -> str:
    """535.261.03 out of 1:535.261.03-1~bpo12+1."""
    value = package_version.split(":", 1)[-1]
    return value.rsplit("-", 1)[0] if "-" in value else value


def names_package(value) -> bool:
    """Tell if a wanted version names one package version, such as 535.261.03-1, and not all with that version of the
    driver.
    """
    return bool(value) and upstream(value) != value


def compare(left, right) -> int:
    """Debian's order of two package versions: -1, 0 or 1."""
    for first, second in zip(split(left), split(right)):
        if isinstance(first, int):
            result = (first > second) - (first < second)
        else:
            result = compare_part(first, second)
        if result:
            return result
    return 0


def split(version) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon or not epoch.isdigit():
        epoch, rest = "0", version
    main, dash, revision = rest.rpartition("-")
    if not dash:
        main, revision = rest, ""
    return int(epoch), main, revision


def compare_part(left, right) -> int:
    while left or right:
        first, left = take(left, r"\D*")
        second, right = take(right, r"\D*")
        if first != second:
            return compare_text(first, second)
        first, left = take(left, r"\d*")
        second, right = take(right, r"\d*")
        if int(first or 0) != int(second or 0):
            return 1 if int(first or 0) > int(second or 0) else -1
    return 0


def take(value, pattern) -> tuple[str, str]:
    found = re.match(pattern, value).group(0)
    return found, value[len(found) :]


def compare_text(left, right) -> int:
    for index in range(max(len(left), len(right))):
        first, second = weight(left[index : index + 1]), weight(right[index : index + 1])
        if first != second:
            return 1 if first > second else -1
    return 0


def weight(char) -> int:
    """A tilde sorts before the end, the end before letters, letters before everything else."""
    if char == "~":
        return -1
    if not char:
        return 0
    return ord(char) if char.isalpha() else ord(char) + 256


def compare_rpm(left, right) -> int:
    """rpm's order of two ``[epoch:]version-release``: -1, 0 or 1. No epoch is epoch 0."""
    for first, second in zip(split(left), split(right)):
        if isinstance(first, int):
            result = (first > second) - (first < second)
        else:
            result = compare_segments(first, second)
        if result:
            return result
    return 0


def compare_segments(left, right) -> int:
    """Runs of digits and runs of letters, one after the other; everything else only separates."""
    while left or right:
        left, right = left.lstrip(SEPARATORS), right.lstrip(SEPARATORS)
        mark = next((mark for mark in "~^" if left.startswith(mark) or right.startswith(mark)), None)
        if mark:
            if left.startswith(mark) and right.startswith(mark):
                left, right = left[1:], right[1:]
                continue
            marked, other = (1, right) if left.startswith(mark) else (-1, left)
            # a tilde is older than anything; a caret is newer than the end and older than anything else
            return -marked if mark == "~" or other else marked
        if not left or not right:
            return (left > right) - (left < right)
        pattern = r"\d+" if left[0].isdigit() else r"[a-zA-Z]+"
        first, rest = take(left, pattern)
        matched = re.match(pattern, right)
        if not matched:
            return 1 if left[0].isdigit() else -1  # digits are newer than letters
        second, right = matched.group(0), right[matched.end() :]
        left = rest
        if pattern == r"\d+":
            first, second = int(first), int(second)
        if first != second:
            return 1 if first > second else -1
    return 0


class Key:
    """A sort key in Debian's order."""

    def __init__(self, version) -> None:
        self.version = version

    def __lt__(self, other) -> bool:
        return compare(self.version, other.version) < 0

    def __eq__(self, other) -> bool:
        return compare(self.version, other.version) == 0

    __hash__ = None


class RpmKey(Key):
    """A sort key in rpm's order."""

    def __lt__(self, other) -> bool:
        return compare_rpm(self.version, other.version) < 0

    def __eq__(self, other) -> bool:
        return compare_rpm(self.version, other.version) == 0

    __hash__ = None


KEYS = {"apt": Key, "dnf": RpmKey}


def newest(versions) -> str | None:
    """The newest of some versions, or None of none."""
    return max(versions, key=Key) if versions else None
