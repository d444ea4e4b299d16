# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the connections of a GPU: PCIe, NVLink, its peers and the fabric."""

from __future__ import annotations

import ctypes

from . import codes, fields
from .calls import ABSENT, combine_answers, convert_answer
from .identity import bus_id

PCIE_KEYS = (
    "pcie_gen_current",
    "pcie_gen_max",
    "pcie_gen_device_max",
    "pcie_width_current",
    "pcie_width_max",
    "pcie_replay_count",
)
NVLINK_KEYS = ("nvlink_active", "nvlinks")
P2P_KEYS = ("p2p",)
FABRIC_KEYS = ("fabric", "fabric_state")

PCIE = (
    ("pcie_gen_current", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_gen_device_max", "nvmlDeviceGetGpuMaxPcieLinkGeneration"),
    ("pcie_width_current", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
LINK_ERRORS = (("replay", 0), ("recovery", 1), ("crc_flit", 2), ("crc_data", 3))
# What NVLink 5 counts instead, by link: a recovery is the same, the others have names of their own.
LINK5_ERRORS = (
    ("recovery_failed", fields.FI_NVLINK5_RECOVERY_FAILED),
    ("effective", fields.FI_NVLINK5_EFFECTIVE_ERRORS),
    ("symbol", fields.FI_NVLINK5_SYMBOL_ERRORS),
)
PEER_CAPABILITIES = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3))
REMOTE_TYPES = {0: "gpu", 1: "npu", 2: "switch", 255: "unknown"}
# The fabric calls from the newest, each with our own layout of its structure.
FABRIC = (
    ("nvmlDeviceGetGpuFabricInfoV", fields.FabricInfoV3, fields.FABRIC_V3),
    ("nvmlDeviceGetGpuFabricInfoV", fields.FabricInfoV2, fields.FABRIC_V2),
    ("nvmlDeviceGetGpuFabricInfo", fields.FabricInfo, None),
)


def read_pcie(reader, handle, gpu) -> None:
    for key, symbol in PCIE:
        gpu[key] = reader.number(symbol, handle)
    replay = reader.number("nvmlDeviceGetPcieReplayCounter", handle)
    if replay["rc"] in (codes.FUNCTION_NOT_FOUND, codes.DEPRECATED):
        replay = reader.field(handle, fields.FI_PCIE_REPLAY)
    gpu["pcie_replay_count"] = replay


def read_nvlink(reader, handle, gpu) -> None:
    active = _links_active(reader, handle)
    gpu["nvlink_active"] = active
    if active["rc"] != codes.SUCCESS:
        gpu["nvlinks"] = dict(active)
        return
    links = []
    for number, up in enumerate(active["value"]):
        if up is None:
            continue
        link, problem = _read_link(reader, handle, number, up)
        if problem is not None:
            gpu["nvlinks"] = problem
            return
        links.append(link)
    gpu["nvlinks"] = codes.value(links)


def _links_active(reader, handle) -> dict | None:
    """Return for each link if it is active; None for a missing link between existing ones."""
    links = []
    first_refusal = None
    for number in range(fields.NVLINK_LIMIT):
        answer = reader.number("nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(number))
        if answer["rc"] == codes.SUCCESS:
            links.append(bool(answer["value"]))
            continue
        if answer["rc"] not in (codes.INVALID_ARGUMENT, codes.NOT_SUPPORTED):
            return answer
        first_refusal = first_refusal or answer
        if answer["rc"] == codes.INVALID_ARGUMENT or number == 0:
            break
        links.append(None)
    while links and links[-1] is None:
        links.pop()
    return codes.value(links) if links else first_refusal


def _read_link(reader, handle, number, up) -> tuple[dict | None, dict | None]:
    """(what is known of one link, None), or (None, the answer that says why not)."""
    link = ctypes.c_uint(number)

    def remote() -> str:
        info = fields.PciInfo()
        reader.raw("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, link, ctypes.byref(info))
        return bus_id(info)

    parts = {
        "version": reader.number("nvmlDeviceGetNvLinkVersion", handle, link),
        "remote_pci": reader.guard("nvmlDeviceGetNvLinkRemotePciInfo_v2", remote),
        "remote_type": convert_answer(
            reader.number("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link),
            lambda kind: REMOTE_TYPES.get(kind, "type %d" % (kind,)),
        ),
    }
    for name, counter in LINK_ERRORS:
        parts[name] = reader.number(
            "nvmlDeviceGetNvLinkErrorCounter", handle, link, ctypes.c_uint(counter), kind=ctypes.c_ulonglong
        )
    errors = [name for name, dummy in LINK_ERRORS]
    if parts["recovery"]["rc"] == codes.NOT_SUPPORTED:
        parts["recovery"] = reader.field(handle, fields.FI_NVLINK5_RECOVERY, number)
        if parts["recovery"]["rc"] == codes.SUCCESS:
            errors += [name for name, dummy in LINK5_ERRORS]
            parts.update((name, reader.field(handle, field, number)) for name, field in LINK5_ERRORS)
    for name, part in parts.items():
        if part["rc"] not in ABSENT and part["rc"] not in (codes.SUCCESS, codes.NOT_READY, codes.INVALID_STATE):
            return None, codes.missing(part["rc"], "in %s of link %d" % (name, number))
    found = {"link": number, "active": up, "errors": dict((name, parts[name]["value"]) for name in errors)}
    for name in ("version", "remote_pci", "remote_type"):
        found[name] = parts[name]["value"]
    return found, None


def read_p2p(reader, opened) -> None:
    """The peers of each GPU.

    OPENED is a list of (handle, gpu); a GPU that cannot be opened or named is no peer.
    """
    named = [(handle, gpu) for handle, gpu in opened if gpu["uuid"]["rc"] == codes.SUCCESS]
    for handle, gpu in opened:
        peers = {}
        problem = None
        for other_handle, other in named:
            if other is gpu:
                continue
            answer = combine_answers(
                dict(
                    (name, reader.number("nvmlDeviceGetP2PStatus", handle, other_handle, ctypes.c_uint(number)))
                    for name, number in PEER_CAPABILITIES
                )
            )
            if answer["rc"] != codes.SUCCESS:
                problem = answer
                break
            peers[other["uuid"]["value"]] = answer["value"]
        gpu["p2p"] = problem or codes.value(peers)


def read_fabric(reader, handle, gpu) -> None:
    """State of the GPU in its NVLink fabric. What a driver does not say is None."""
    answer = reader.first(*[lambda way=way: reader.struct(way[0], handle, way[1], way[2]) for way in FABRIC])
    gpu["fabric"] = convert_answer(answer, _convert_fabric)
    gpu["fabric_state"] = convert_answer(answer, _convert_fabric)


def _convert_fabric(info) -> dict:
    return {
        "state": int(info.state),
        "status": int(info.status),
        "clique_id": int(info.cliqueId),
        "cluster_uuid": bytes(bytearray(info.clusterUuid)).hex(),
        "health_mask": getattr(info, "healthMask", None),
        "health_summary": getattr(info, "healthSummary", None),
    }
