# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCIe link: generation, width, replays.

The generation drops when a GPU has nothing to do, so it only counts under load; what the link can do, and its width,
always count.
"""

from __future__ import annotations

from .. import compare, model, policy, signals
from ..compare import NUMBER
from ..model import NOT_APPLICABLE, PASS
from ..nodefacts import Checks
from . import clocks

RESEAT = (
    "Look for AER lines in the kernel log, reseat the GPU or its riser, and look at the PCIe settings of the firmware."
)


def find_loss(ctx, gpu, ident, key, now, loss) -> tuple[int | None, dict | None]:
    """Return what KEY lost since the baseline by more than LOSS, as (old value, None); (None, check) if the baseline
    cannot be used; else (None, None).
    """
    old = compare.read_baseline(ctx, gpu, key, NUMBER)
    if old is None or compare.absent_before(old):
        return None, None
    if not old.known:
        return None, compare.check_comparable(ctx, gpu, ident, key, NUMBER, now)
    return (old.value if old.value - now > loss else None), None


def check_generation(ctx, gpu) -> dict:
    ident, key = "gpu.pcie_generation", "pcie_gen_current"
    now = compare.read_typed(gpu, key, NUMBER)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    old, problem = find_loss(ctx, gpu, ident, key, now.value, policy.find_limit(ctx, "pcie_generation_loss_max", gpu))
    if problem:
        return problem
    before = compare.read_baseline(ctx, gpu, key, NUMBER)
    if before is None or not before.known:
        return compare.not_applicable(ident, gpu, now.value, "There is no earlier value to compare with.", "baseline")
    finding = None
    if old is not None:
        resting = clocks.is_idle(gpu)
        text = "The PCIe link of %s runs at generation %s; expected %s as in the baseline" % (
            model.name_gpu(gpu),
            now.value,
            old,
        )
        if resting is False:
            finding = compare.make_failure("hold", "%s, and the GPU is working. %s" % (text, RESEAT))
        elif resting is None:
            finding = compare.make_unknown(
                "%s, and whether the GPU is idle, where the generation drops, is not known. Read the node again."
                % (text,)
            )
        else:
            return Checks(ident, model.entity(gpu), "baseline").make(
                PASS,
                now.value,
                old,
                None,
                "%s; the GPU is idle, where the generation drops to save power, so this says nothing. "
                "gpu.pcie_generation_max tells what the link can do; read again under load to be sure." % (text,),
            )
    return compare.make_check(ident, gpu, finding, now.value, before.value, "baseline")


def generation_max(ctx, gpu) -> dict:
    """Return the highest values of the link, and of the GPU alone."""
    ident = "gpu.pcie_generation_max"
    loss = policy.find_limit(ctx, "pcie_generation_loss_max", gpu)
    values = {}
    for key in ("pcie_gen_max", "pcie_gen_device_max"):
        now = compare.read_typed(gpu, key, NUMBER)
        if not now.known:
            missing = signals.check_absent_signal(ctx, ident, gpu, key, now)
            if key == "pcie_gen_max" or missing["status"] != NOT_APPLICABLE:
                return missing
            continue
        values[key] = now.value
        old, problem = find_loss(ctx, gpu, ident, key, now.value, loss)
        if problem:
            return problem
        if old is not None:
            return Checks(ident, model.entity(gpu), "baseline").fail(
                now.value,
                old,
                "The PCIe link of %s can reach generation %s (%s); expected %s as in the baseline. %s"
                % (model.name_gpu(gpu), now.value, key, old, RESEAT),
                "hold",
            )
    link, device = values["pcie_gen_max"], values.get("pcie_gen_device_max")
    finding = None
    if device is not None and link < device:
        finding = compare.make_notice(
            "The PCIe link of %s can reach generation %s; expected %s, which the GPU itself can. "
            "The slot, a riser or the firmware limits it: compare with other nodes."
            % (model.name_gpu(gpu), link, device)
        )
    return compare.make_check(ident, gpu, finding, link, device, "hardware")


def check_width(ctx, gpu) -> dict:
    """The number of lanes: as in the baseline; without one as many as other GPUs of the model have; and as many as
    there are.
    """
    ident = "gpu.pcie_width"
    loss = policy.find_limit(ctx, "pcie_width_loss_max", gpu)
    values = {}
    for key in ("pcie_width_current", "pcie_width_max"):
        now = compare.read_typed(gpu, key, NUMBER)
        if not now.known:
            return signals.check_absent_signal(ctx, ident, gpu, key, now)
        values[key] = now.value
        old, problem = find_loss(ctx, gpu, ident, key, now.value, loss)
        if problem:
            return problem
        if old is not None:
            return Checks(ident, model.entity(gpu), "baseline").fail(
                now.value,
                old,
                "The PCIe link of %s has %s lanes (%s); expected %s as in the baseline. %s"
                % (model.name_gpu(gpu), now.value, key, old, RESEAT),
                "hold",
            )
    current, most = values["pcie_width_current"], values["pcie_width_max"]
    others = (
        compare.list_peer_values(ctx, gpu, "pcie_width_current", NUMBER) if signals.old_gpu(ctx, gpu) is None else []
    )
    if others and max(others) - current > loss:
        return Checks(ident, model.entity(gpu), "hardware").fail(
            current,
            max(others),
            (
                "The PCIe link of %s has %s lanes; expected %s as other GPUs of its model here. %s If the node is "
                "built so, compare with a baseline."
            )
            % (model.name_gpu(gpu), current, max(others), RESEAT),
            "hold",
        )
    finding = None
    if current < most:
        finding = compare.make_notice(
            "The PCIe link of %s has %s lanes; expected %s, which it can have. "
            "Compare with other nodes; if the slot has them, reseat the GPU." % (model.name_gpu(gpu), current, most)
        )
    return compare.make_check(ident, gpu, finding, current, most, "hardware")


def check_replays(ctx, gpu) -> dict:
    ident, key = "gpu.pcie_replay", "pcie_replay_count"
    now = compare.read_typed(gpu, key, NUMBER)
    if not now.known:
        return signals.check_absent_signal(ctx, ident, gpu, key, now)
    state, text = compare.judge_counter(
        ctx,
        gpu,
        now.value,
        compare.read_baseline(ctx, gpu, key, NUMBER),
        "pcie_replays_per_minute",
        "pcie_replays_since_load",
    )
    finding = compare.counter_finding(state, "PCIe replays of %s: %s" % (model.name_gpu(gpu), text), RESEAT)
    return compare.make_check(
        ident, gpu, finding, now.value, policy.find_limit(ctx, "pcie_replays_since_load", gpu), "policy"
    )


def aer_of(system, place) -> dict[str, int] | None:
    """Return the errors that the bus counted for the device at PLACE and for its port: {"correctable",
    "uncorrectable"}; {} if it does not count, None if unknown.
    """
    listed = model.item(system, "pci")
    found = (
        [link for address, link in listed.items() if model.pci_address(address) == place]
        if isinstance(listed, dict) and place
        else []
    )
    if len(found) != 1 or not isinstance(found[0], dict) or "upstream" not in found[0]:
        return None
    sources = [model.item(found[0], "aer")]
    if model.item(found[0], "upstream") is not None:
        sources.append(model.item(found[0], "upstream", "aer"))
    if not all(isinstance(source, dict) for source in sources):
        return None
    sources = [source for source in sources if source]
    numbers = [
        [compare.read_count(source, name) for source in sources] for name in ("correctable", "nonfatal", "fatal")
    ]
    if any(number is None for row in numbers for number in row):
        return None
    return {"correctable": sum(numbers[0]), "uncorrectable": sum(numbers[1]) + sum(numbers[2])} if sources else {}


def report_bottleneck(ctx, gpu) -> dict:
    ident = "gpu.pcie_aer"
    now = aer_of(ctx.system, model.address(gpu))
    if now is None:
        return Checks(ident, model.entity(gpu), source="hardware").unknown(
            None,
            None,
            (
                "The PCIe errors of %s were not read; expected them of every GPU. Read the node again as root, and "
                "look at aer_dev_correctable in its directory below /sys/bus/pci/devices."
            )
            % (model.name_gpu(gpu),),
        )
    if not now:
        return compare.not_applicable(ident, gpu, None, "The kernel counts no PCIe errors for this GPU.")
    before = None
    if signals.old_gpu(ctx, gpu) is not None:
        before = aer_of(model.item(ctx.baseline, "system"), model.address(signals.old_gpu(ctx, gpu)))
        before = model.NOTHING if before is None else model.Reading(True, before, 0, None)
    limits = {
        "correctable": ("pcie_aer_correctable_per_minute", "pcie_aer_correctable_since_boot"),
        "uncorrectable": ("pcie_aer_uncorrectable_per_minute", "pcie_aer_uncorrectable_since_boot"),
    }
    worst = None
    for name in ("uncorrectable", "correctable"):
        old = before
        if before is not None and before.known:
            old = model.Reading(True, before.value.get(name, 0), 0, None)
        state, text = compare.judge_counter(
            ctx, gpu, now[name], old, *limits[name], same=compare.is_same_boot, began="since the node booted"
        )
        finding = compare.counter_finding(
            state, "%s PCIe errors of %s: %s" % (name.capitalize(), model.name_gpu(gpu), text), RESEAT
        )
        if finding is not None and (worst is None or worst.status == PASS):
            worst = finding
    return compare.make_check(ident, gpu, worst, now, None, "policy")


ROWS = (
    model.gpu_row(
        "gpu.pcie_generation",
        check_generation,
        "Under load, the PCIe link runs at the generation of the baseline",
        ("gpu.pcie_gen_current", "gpu.clocks_event_reasons", "gpu.compute_processes"),
        "nvml.h, nvmlDeviceGetCurrPcieLinkGeneration",
    ),
    model.gpu_row(
        "gpu.pcie_generation_max",
        generation_max,
        "The generation that the PCIe link can reach did not fall (a notice if the GPU itself could do more)",
        ("gpu.pcie_gen_max", "gpu.pcie_gen_device_max"),
        "nvml.h, nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration",
    ),
    model.gpu_row(
        "gpu.pcie_width",
        check_width,
        "The PCIe link has as many lanes as in the baseline, or as other GPUs of the model here (a notice if "
        "it could have more)",
        ("gpu.pcie_width_current", "gpu.pcie_width_max"),
        "nvml.h, nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth",
    ),
    model.gpu_row(
        "gpu.pcie_replay",
        check_replays,
        "The PCIe link repeats few packets (a notice if many)",
        ("gpu.pcie_replay_count",) + compare.COUNTER_SIGNALS,
        "DCGM: 8 replays a minute are the most that NVIDIA recommends",
    ),
    model.gpu_row(
        "gpu.pcie_aer",
        report_bottleneck,
        "The PCIe bus reports few corrected errors and no others, for the GPU and its port (a notice if it does)",
        ("system.pci", "gpu.pci_bus_id") + compare.COUNTER_SIGNALS[:2],
        "Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats",
    ),
)
