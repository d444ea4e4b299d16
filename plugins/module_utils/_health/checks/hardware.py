# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the node has the expected hardware: as the user specified it, else as its board and its peers have it.

A baseline of a faulty node makes the fault look normal, and without a baseline nothing is compared. So the hardware
that the user specified (expect.hardware) always counts. Without a baseline, the rest comes from what boards of that
name have, and from the number of GPUs on other nodes of the model (expect.peers). If none of these has the value, the
result is unknown.
"""

from __future__ import annotations

import collections
import fnmatch

from .. import model, nodefacts, tables
from ..nodefacts import Checks

SAY = "If the node is built so, say so in expect.hardware (gpu_health_expect)."
NODE_KEYS = ("gpus", "nvswitches")
PEERS = "peers"
NODE_CHECK = "node.hardware"
# What is told of a GPU whose board is not in the table, so that it can be said.
UNKNOWN_BOARD_KEYS = ("memory_mib", "ecc", "nvlinks", "pcie_width")
GPU_KEYS = ("model", "memory_mib", "ecc", "nvlinks", "pcie_generation", "pcie_width")
MIB = 1024 * 1024
ON = 1


def read_policy_hardware(ctx) -> dict:
    """Return the hardware that the user specified."""
    found = model.item(ctx.expect, "hardware")
    return dict((key, value) for key, value in found.items() if value is not None) if isinstance(found, dict) else {}


def board_of(ctx, gpu) -> dict | None:
    """The row of the table for the board of this name; None if it has none.

    TableError for a table that cannot be used.
    """
    name = _read_name(gpu)
    for row in tables.parse_boards(model.item(ctx.tables, "boards")):
        if name is not None and fnmatch.fnmatchcase(name, row["name"]):
            return row
    return None


def _read_name(gpu) -> str | None:
    name = model.reading(gpu, "name").value
    return name if isinstance(name, str) else None


def list_boards(ctx) -> list:
    """The rows of all GPUs; None in the place of one that the table does not have."""
    return [board_of(ctx, gpu) for gpu in model.gpus(ctx.snapshot)]


def report_damaged_policy(checks, exc) -> dict:
    return checks.unknown(
        None,
        None,
        "What hardware boards have cannot be told, the collection's table of them is not usable: %s. Install the "
        "collection again." % (exc,),
    )


def check_node(ctx) -> dict:
    """As many GPUs and NVSwitches as the node should have."""
    checks = Checks(NODE_CHECK)
    wanted = read_policy_hardware(ctx)
    try:
        rows = list_boards(ctx) if ctx.baseline is None else []
    except tables.TableError as exc:
        return report_damaged_policy(checks, exc)
    count = model.number(ctx.snapshot, "count")
    listed = nodefacts.of_kind(model.item(ctx.system, "nvswitches"), list)
    found = {"gpus": count.value, "nvswitches": None if listed is None else len(listed)}
    if not count.known and ("gpus" in wanted or ctx.baseline is None):
        return checks.unknown(
            found,
            wanted.get("gpus"),
            "The GPUs were not counted, so it is not known if all are there. See nvml.answers.",
        )
    known = bool(rows) and None not in rows
    counts = (
        sorted(set.intersection(*(set(row["counts"]) for row in rows)))
        if known and all(row["counts"] for row in rows)
        else []
    )
    if found["nvswitches"]:
        counts = _with_switches(counts, rows)
    elif model.item(ctx.system, "nvlink_managers", "found"):
        # NVLink 5 switches are not on the PCI bus; the adapters that manage them are those of a whole board.
        counts = counts[-1:]
    peers = of_peers(ctx) if ctx.baseline is None and "gpus" not in wanted else None
    usual = dict((name, most) for name, dummy, most in peers or [])
    by_board = rows[0]["nvswitches"].get(str(count.value)) if known else None
    wrong = (
        _check_gpu_count(checks, found, wanted, counts)
        or _beside_peers(checks, found, peers)
        or _check_switch_count(checks, found, wanted, by_board)
    )
    if wrong:
        return wrong
    if ctx.baseline is not None and not set(wanted) & set(NODE_KEYS):
        return checks.none("The hardware is compared with the baseline.", found)
    if "gpus" not in wanted and ctx.baseline is None:
        if any(_read_name(each) is None for each in model.gpus(ctx.snapshot)):
            return checks.unknown(
                found,
                None,
                "What boards the node has cannot be read, so how many GPUs it should have is not known. Read the node "
                "again as root, or say it in expect.hardware (gpu_health_expect).",
            )
        if not counts and not peers:
            # Nothing is known to be wrong, so there is nothing to be done to the node.
            return checks.make(
                model.UNKNOWN,
                found,
                None,
                "none",
                "How many GPUs the node should have is not known: cards like its come in any number, and no "
                "other nodes with them tell it. %s were found. If these are all, say so in gpu_health_expect: "
                "{hardware: {gpus: %s}}." % (count.value, count.value),
            )
    return checks.good(
        found, wanted.get("gpus", counts) or usual or None, source=PEERS if usual and not counts else None
    )


def _with_switches(counts, rows) -> list[int]:
    """Those of COUNTS with which boards have NVSwitches; COUNTS where the table says of none that they have.

    A node that shows NVSwitches is no virtual machine with a part of a board, but a node whose other GPUs are gone.
    """
    return [number for number in counts if all(str(number) in row["nvswitches"] for row in rows)] or counts


def _check_gpu_count(checks, found, wanted, counts) -> dict | None:
    """The failure of a node whose number of GPUs is not the one that is said, or none that its board comes in; None
    otherwise.
    """
    if not ("gpus" in wanted or counts) or found["gpus"] in ([wanted["gpus"]] if "gpus" in wanted else counts):
        return None
    expected = wanted.get("gpus", counts)
    return checks.fail(
        found,
        expected,
        "The node has %s GPUs; expected %s. Look for GPUs that left the bus (lspci -d 10de:, NVRM lines in the kernel "
        "log).%s" % (found["gpus"], _join_or(expected), "" if "gpus" in wanted else " " + SAY),
    )


def _beside_peers(checks, found, peers) -> dict | None:
    """The failure of a node that has fewer GPUs of a model than most nodes with them; None otherwise."""
    few = [each for each in peers or [] if each[1] < each[2]]
    if not few:
        return None
    return checks.fail(
        found,
        dict((name, most) for name, dummy, most in few),
        "The node has %s, and most nodes with them have %s. Look for GPUs that left the bus (lspci -d 10de:, NVRM "
        "lines in the kernel log). %s"
        % (" and ".join("%d %s" % each[1::-1] for each in few), " and ".join(str(each[2]) for each in few), SAY),
        source=PEERS,
    )


def _check_switch_count(checks, found, wanted, by_board) -> dict | None:
    """Return the problem with the number of NVSwitches on the PCI bus; None if there is none, or if none are
    expected."""
    switches = found["nvswitches"]
    if not ("nvswitches" in wanted or by_board):
        return None
    expected = wanted.get("nvswitches", by_board)
    if switches is None:
        return checks.unknown(
            found,
            expected,
            "The NVSwitches on the PCI bus cannot be listed, and %s are expected. Look at lspci -d 10de:."
            % (expected,),
        )
    # A virtual machine with all GPUs of a board may have none of its switches; then the fabric state says whether they
    # work.
    if switches == expected or ("nvswitches" not in wanted and not switches):
        return None
    return checks.fail(
        found,
        expected,
        "The node has %s NVSwitches on its PCI bus; expected %s. Look for SXid in the kernel log, then power-cycle the "
        "node.%s" % (switches, expected, "" if "nvswitches" in wanted else " " + SAY),
    )


def is_open(check) -> bool:
    """Tell if CHECK only lacks the expected number of GPUs, and found nothing else wrong."""
    return (
        model.item(check, "id") == NODE_CHECK and check.get("status") == model.UNKNOWN and check.get("action") == "none"
    )


def settle_by_peers(check, snapshot, audit, peers) -> dict:
    """The open CHECK of the node that SNAPSHOT and AUDIT were read of, once it is known what its PEERS have
    (expect.peers).
    """
    told = _of_peers(snapshot, audit, peers)
    if not told:
        return check
    checks, found = Checks(NODE_CHECK), check["observed"]
    return _beside_peers(checks, found, told) or checks.good(
        found, dict((name, most) for name, dummy, most in told), source=PEERS
    )


def of_peers(ctx) -> list[tuple] | None:
    return _of_peers(ctx.snapshot, ctx.audit, model.item(ctx.expect, "peers"))


def _of_peers(snapshot, audit, peers) -> list[tuple] | None:
    """[(model, number of GPUs here, number that most nodes with them have)]; None where they do not tell it of every
    GPU of the node.

    A model is NVML's name, or the PCI device id as driver_audit sees it on the bus, where that is all that was read of
    the others.
    """
    usual = model.item(peers, "gpus")
    names = [_read_name(each) for each in model.gpus(snapshot)]
    on_bus = nodefacts.of_kind(model.item(audit, "pci"), list) or []
    for kinds in (names, [model.item(each, "device") for each in on_bus]):
        told = isinstance(usual, dict) and all(isinstance(kind, str) and _is_count(usual.get(kind)) for kind in kinds)
        if told and len(kinds) == len(names) > 0:
            return [(kind, number, usual[kind]) for kind, number in sorted(collections.Counter(kinds).items())]
    return None


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _join_or(expected) -> str:
    return " or ".join(str(number) for number in expected) if isinstance(expected, list) else str(expected)


def check_gpu(ctx, one) -> dict:
    """The GPU is of the model that it should be, and has its memory, ECC, NVLinks and PCIe lanes."""
    checks = Checks("gpu.hardware", model.entity(one))
    wanted = read_policy_hardware(ctx)
    try:
        row = board_of(ctx, one) if ctx.baseline is None else None
    except tables.TableError as exc:
        return report_damaged_policy(checks, exc)
    expected = dict((key, row[key]) for key in GPU_KEYS if row is not None and key in row)
    # An old slot is no fault; gpu.pcie_generation_max has a notice for it.
    expected.pop("pcie_generation", None)
    expected.update((key, wanted[key]) for key in GPU_KEYS if key in wanted)
    if not expected and ctx.baseline is not None:
        return checks.none("The hardware is compared with the baseline.")
    unread = ["model"] if ctx.baseline is None and _read_name(one) is None else []
    if not expected and not unread:
        here = dict((key, READERS[key](one)) for key in UNKNOWN_BOARD_KEYS)
        return checks.make(
            model.UNKNOWN,
            here,
            None,
            "none",
            "What %s should have is not known: its model, %s, is not in this collection's table. If what it has is "
            "right, say so in gpu_health_expect: {hardware: {%s}}."
            % (
                model.name_gpu(one),
                _read_name(one),
                ", ".join("%s: %s" % (key, _format_yaml(here[key])) for key in sorted(here)),
            ),
        )
    found, wrong = {}, []
    for key in GPU_KEYS:
        if key in expected:
            found[key] = READERS[key](one)
            if found[key] is None:
                unread += [key] if key not in unread else []
            elif not FITS[key](found[key], expected[key]) and not _is_partition(ctx, key, found[key], wanted):
                wrong.append(
                    "%s is %s, expected %s" % (WORDS[key], _format_value(found[key]), _format_value(expected[key]))
                )
    if wrong:
        return checks.fail(
            found,
            expected,
            "%s is not as it should be: %s. Look at the kernel log and at the seat of the GPU.%s"
            % (model.name_gpu(one), "; ".join(wrong), "" if set(wanted) & set(GPU_KEYS) else " " + SAY),
        )
    if unread:
        return checks.unknown(
            found,
            expected,
            "Of %s cannot be read: %s. Read the node again as root."
            % (model.name_gpu(one), ", ".join(WORDS[key] for key in unread)),
        )
    return checks.good(found, expected)


def _is_partition(ctx, key, found, wanted) -> bool:
    """Tell if a GPU without NVLinks is passed through to a virtual machine alone, which disables its links."""
    return key == "nvlinks" and key not in wanted and found == 0 and model.number(ctx.snapshot, "count").value == 1


def _format_yaml(value) -> int | str:
    """A value as YAML has it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


def _format_value(value) -> int | str:
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _read_memory_mib(one) -> int | None:
    total = model.number(one, "memory_total_bytes")
    return total.value // MIB if total.known else None


def _read_ecc_mode(one) -> bool | None:
    mode = model.number(one, "ecc_mode_current")
    return mode.value == ON if mode.known else False if mode.rc == model.NOT_SUPPORTED else None


def _count_links(one) -> int | None:
    links = model.reading(one, "nvlink_active")
    return (
        links.value.count(True)
        if links.known and isinstance(links.value, list)
        else 0
        if links.rc == model.NOT_SUPPORTED
        else None
    )


def _make_number_reader(key):
    return lambda one: model.number(one, key).value


def _at_least(found, expected) -> bool:
    return found >= expected


def _is_same(found, expected) -> bool:
    return found == expected


def _matches_name(found, expected) -> bool:
    return fnmatch.fnmatchcase(str(found).lower(), str(expected).lower())


WORDS = {
    "model": "its model",
    "memory_mib": "its memory in MiB",
    "ecc": "ECC",
    "nvlinks": "the number of active NVLinks",
    "pcie_generation": "the PCIe generation that its link can do",
    "pcie_width": "the number of its PCIe lanes",
}
READERS = {
    "model": _read_name,
    "memory_mib": _read_memory_mib,
    "ecc": _read_ecc_mode,
    "nvlinks": _count_links,
    "pcie_generation": _make_number_reader("pcie_gen_max"),
    "pcie_width": _make_number_reader("pcie_width_current"),
}
FITS = {
    "model": _matches_name,
    "memory_mib": _at_least,
    "ecc": _is_same,
    "nvlinks": _at_least,
    "pcie_generation": _at_least,
    "pcie_width": _at_least,
}

TABLE = "this collection's table of boards"
ROWS = (
    model.node_row(
        NODE_CHECK,
        check_node,
        "The node has the GPUs and NVSwitches that it should: as expect.hardware says, else as its board and its peers",
        ("snapshot.count", "system.nvswitches", "system.nvlink_managers", "expect.hardware", "expect.peers"),
        TABLE,
    ),
    model.gpu_row(
        "gpu.hardware",
        check_gpu,
        "The GPU has the memory, ECC, NVLinks and PCIe lanes that it should: as expect.hardware says, "
        "else as its board",
        (
            "gpu.name",
            "gpu.memory_total_bytes",
            "gpu.ecc_mode_current",
            "gpu.nvlink_active",
            "gpu.pcie_width_current",
            "expect.hardware",
        ),
        TABLE,
    ),
)
