# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each fault does: a table of names, and the effects of each as keys of the faults file."""

from __future__ import annotations

import os
import re

from . import cuda_faults, library, modules, reset, state
from .cuda_faults import fault

HANDLES = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID")
LINK_ERRORS = ("recovery", "replay", "crc_flit", "crc_data")


def values(**items: object) -> dict[str, str]:
    return {"set." + key: str(value) for key, value in items.items()}


def now(options, key: str, fallback: str = "0") -> str:
    return state.gpu_value(options.gpu or 0, key, fallback)


def number(options, key: str, fallback: str = "0") -> int:
    return int(now(options, key, fallback), 0)


def chosen(options, default: int) -> int:
    return default if options.value is None else options.value


def xid(options, code: int | str, text: str) -> str:
    return "NVRM: Xid (PCI:%s): %s, pid='<unknown>', name=<unknown>, %s" % (bus(options), code, text)


def bus(options) -> str:
    """As an XID line names the GPU: without its function."""
    return state.sysfs_address(now(options, "pci"))[:-2]


def _plain(**items: object):
    return lambda options: values(**items)


def _valued(key: str, default: int):
    return lambda options: values(**{key: chosen(options, default)})


def _word(options, known: tuple[str, ...], default: str) -> str:
    word = options.words[0] if options.words else default
    if word not in known:
        raise state.SimError("%s knows %s, not '%s'" % (options.name, ", ".join(known), word))
    return word


def _not_brought_up(options):
    effects = {"error." + symbol: "15" for symbol in HANDLES}
    effects["kmsg"] = "NVRM: GPU %s: RmInitAdapter failed! (0x62:0xffff:2393)" % state.sysfs_address(
        now(options, "pci")
    )
    effects["kmsg_each_load"] = "1"
    return effects


def _ecc(options):
    count = chosen(options, 1)
    return {
        **values(ecc_vol_unc=count, ecc_agg_unc=count, sram_vol_unc=count, sram_agg_unc=count),
        "kmsg": xid(options, 95, "Uncontained: SRAM uncorrectable ECC error"),
    }


def _banks(options):
    kind = _word(options, ("partial", "low", "none"), "low")
    count = chosen(options, 1)
    return values(**{"hist_max": max(number(options, "hist_max") - count, 0), "hist_" + kind: count})


def _downtrain(options):
    best = number(options, "pcie_gen_max", "4")
    return values(pcie_gen_current=options.value or best - 1, pcie_width_current=8)


def _generation(options):
    return values(pcie_gen_current=options.value or number(options, "pcie_gen_max", "4") - 1)


def _link_errors(options):
    kind = _word(options, LINK_ERRORS, "recovery")
    step = chosen(options, 1)
    return values(
        **{"nvlink_" + kind: " ".join("%s:%d" % (link, step) for link in options.link.split(",")) + "++%d" % step}
    )


def _converging(options):
    return values(fabric_state=2 if options.value is None else "2*%d,3" % options.value)


def _stuck(options):
    return values(fabric_state=chosen(options, 2))


def _unhealthy(options):
    return values(fabric_status=0, fabric_health_mask=chosen(options, 1), fabric_health_summary=2)


def _peers(options):
    if not options.words:
        return values(p2p_broken=1)
    if not re.fullmatch(r"\d+(,\d+)*", options.words[0]):
        raise state.SimError("p2p-broken takes numbers of GPUs with commas, not '%s'" % options.words[0])
    return values(p2p_broken_with=options.words[0])


def _power_limit(options):
    return values(power_limit_mw=options.value or now(options, "power_min_mw"))


def _capped(options):
    clock = options.value or number(options, "clock_max_sm_mhz") * 6 // 10
    return values(
        clock_max_sm_mhz=clock,
        clock_max_graphics_mhz=clock,
        clock_sm_mhz=min(clock, number(options, "clock_sm_mhz")),
        clock_graphics_mhz=min(clock, number(options, "clock_graphics_mhz")),
    )


def _application_clocks(options):
    if not now(options, "clock_app_sm_mhz", ""):
        raise state.SimError("this board has no application clocks")
    clock = options.value or number(options, "clock_app_sm_mhz") * 6 // 10
    return values(clock_app_sm_mhz=clock, clock_app_graphics_mhz=clock)


def _gpu_hot(options):
    hot = options.value or number(options, "temperature_slowdown", "90")
    return values(temperature=hot)


def _memory_hot(options):
    if not now(options, "temperature_memory", ""):
        raise state.SimError("this board does not tell its memory's temperature")
    return values(temperature_memory=options.value or now(options, "temperature_memory_max"))


def _replaced(options):
    return values(uuid="GPU-00000000-dead-beef-0000-%012d" % (options.gpu or 0), serial="9990%09d" % (options.gpu or 0))


def _mig_lost(_options):
    return values(mig_gpu_instances="", mig_compute_instances="")


def known(symbol: str) -> None:
    if re.fullmatch(r"field\.\d+|cu[A-Z]\w+", symbol):
        return
    if os.path.exists(state.path(library.PRISTINE)) and symbol not in library.symbols():
        raise state.SimError("the simulated library has no function %s" % symbol)


def _error(options):
    symbol, code = options.words
    known(symbol)
    if not code.isdigit():
        raise state.SimError("%s needs a number, not '%s'" % (options.name, code))
    if options.after is not None:
        code = "%s after %d" % (code, options.after)
    elif options.first is not None:
        code = "%s first %d" % (code, options.first)
    return {"error." + symbol: code}


def _hang(options):
    symbol, seconds = options.words
    known(symbol)
    if seconds != "forever" and not re.fullmatch(r"\d+(\.\d+)?", seconds):
        raise state.SimError("hang needs a number of seconds or 'forever', not '%s'" % seconds)
    return {"hang." + symbol: seconds}


def _ignored(options):
    symbol = options.words[0]
    known(symbol)
    if not re.match(r"nvmlDevice(Set|Reset|Clear)", symbol):
        raise state.SimError("%s takes a function that sets something, not '%s'" % (options.name, symbol))
    return {"ignore." + symbol: "1"}


def _missing_symbol(options):
    known(options.words[0])
    return {"missing": options.words[0]}


def _set(options):
    key, value = options.words
    return {"set." + key: value}


def _load_fails(options):
    return {"load_error": _word(options, tuple(modules.ERRORS), "no-device")}


def _unsigned(_options):
    return {
        "load_error": "key-rejected",
        "load_kmsg": "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    }


# name -> (words it takes, needs a GPU, what it does, effects). A function of None is one of faults.py.
CATALOGUE = {
    # the GPU itself
    "gpu-not-brought-up": fault(
        "the driver (--driver V: only that version) does not bring the GPU up: no handle, rc 15", _not_brought_up
    ),
    "gpu-lost": fault(
        "the GPU fell off the bus: every call answers rc 15, until a boot",
        lambda options: {
            **values(lost=1),
            "kmsg": xid(options, 79, "GPU has fallen off the bus."),
            "cleared_by": "boot",
        },
    ),
    "reset-required": fault(
        "calls about the GPU answer rc 16, until the driver is loaded again",
        lambda options: {**values(reset_required=1), "cleared_by": "load"},
    ),
    "gpu-missing": fault("the GPU is gone from NVML and the PCI bus: one GPU fewer", _plain(absent=1)),
    "gpu-swapped": fault("two GPUs have changed places: UUID and serial of each are the other's", None, "OTHER"),
    "gpu-replaced": fault("another board in the same place: UUID and serial are new", _replaced),
    "vbios-changed": fault("the VBIOS is of another version", _plain(vbios="99.99.99.99.99")),
    "inforom-corrupt": fault("validating the InfoROM answers rc 14", _plain(inforom_corrupt=1)),
    "inforom-changed": fault("the checksum of the InfoROM's configuration is another", _plain(inforom_checksum=1)),
    "recovery-action": fault(
        "field 230 asks for a recovery (--value, default 2: reboot); drivers from R570 answer it",
        _valued("recovery_action", 2),
    ),
    "reset-outcome": fault(
        "nvidia-smi --gpu-reset fails, says yes and does nothing, loses the GPU, logs an XID, or never ends",
        lambda options: values(reset_outcome=_word(options, reset.OUTCOMES, "fails")),
        "[fails|ignored|loses|xid|hangs]",
    ),
    "reset-unsupported": fault("nvidia-smi --gpu-reset is not available on this board", _plain(reset_supported=0)),
    # memory errors
    "ecc-uncorrectable": fault("uncorrectable ECC errors (--value N), XID 95", _ecc),
    "ecc-correctable": fault(
        "correctable ECC errors (--value N, default a million)",
        lambda options: values(ecc_vol_corr=chosen(options, 1000000), ecc_agg_corr=chosen(options, 1000000)),
    ),
    "sram-threshold": fault(
        "the threshold of SRAM errors is exceeded", _plain(sram_threshold_exceeded=1, sram_agg_unc=5, ecc_agg_unc=5)
    ),
    "remap-pending": fault(
        "a row waits for remapping, XID 63, until the driver is loaded again",
        lambda options: {
            **values(remap_pending=1, remap_unc=1),
            "kmsg": xid(options, 63, "Row Remapper: New row marked for remapping"),
            "cleared_by": "load",
        },
    ),
    "remap-failed": fault(
        "a row could not be remapped, XID 64",
        lambda options: {
            **values(remap_failure=1, remap_unc=8),
            "kmsg": xid(options, 64, "Row Remapper: failed to remap a row"),
        },
    ),
    "remap-many": fault(
        "so many rows were remapped that no more can be (--value N, default 512)", _valued("remap_unc", 512)
    ),
    "bank-availability": fault(
        "memory banks have few spare rows left (--value N banks, default one with low)", _banks, "[partial|low|none]"
    ),
    "retired-pages": fault(
        "pages of memory are retired (--value N, default 63); boards before Ampere", _valued("retired_dbe", 63)
    ),
    "retired-pages-pending": fault("pages wait for their retirement; boards before Ampere", _plain(retired_pending=1)),
    "channel-repair-pending": fault("a memory channel waits for its repair", _plain(channel_repair_pending=1)),
    "memory-lost": fault(
        "the GPU has less memory (--value MiB, default half)",
        lambda options: values(memory_total_mib=options.value or number(options, "memory_total_mib") // 2),
    ),
    "bar1-shrunk": fault(
        "the window to the GPU's memory is smaller (--value MiB, default 256)", _valued("bar1_total_mib", 256)
    ),
    # links
    "nvlink-down": fault(
        "NVLinks are inactive (--link N,M default 0)", lambda options: values(nvlink_down=options.link)
    ),
    "nvlink-errors": fault(
        "error counts of NVLinks (--link) grow with every look (--value N at a time)",
        _link_errors,
        "[recovery|replay|crc_flit|crc_data]",
    ),
    "p2p-broken": fault("the GPU reaches no other GPU, or not those with the numbers given", _peers, "[OTHERS]"),
    "fabric-converging": fault(
        "fabric state 2, in progress; --value N: 3, completed, after N looks; --until-s S: S seconds after the load",
        _converging,
    ),
    "fabric-stuck": fault("the fabric never completes (--value: the state, default 2)", _stuck),
    "fabric-unhealthy": fault("the fabric has completed and is not healthy (--value: mask)", _unhealthy),
    "pcie-downtrain": fault("PCI Express runs one generation lower (--value: that one) and 8 lanes wide", _downtrain),
    "pcie-generation": fault("PCI Express runs one generation lower (--value: that one)", _generation),
    "pcie-width": fault("PCI Express has fewer lanes (--value, default 8)", _valued("pcie_width_current", 8)),
    "pcie-replay": fault(
        "the count of PCI Express replays grows with every look (--value N at a time)",
        lambda options: values(pcie_replay="%d++%d" % (chosen(options, 50), chosen(options, 50))),
    ),
    "pcie-errors": fault(
        "the PCI Express device counts errors (--value N, default 5), also in /sys",
        lambda options: values(
            **{"pcie_" + _word(options, ("correctable", "non_fatal", "fatal"), "non_fatal"): chosen(options, 5)}
        ),
        "[correctable|non_fatal|fatal]",
    ),
    # clocks, heat, power
    "hw-slowdown": fault("clocks are slowed down by the hardware: bit 0x8", _plain(clocks_event_reasons=0x8)),
    "hw-thermal": fault("clocks are slowed down by heat: bits 0x8 and 0x40", _plain(clocks_event_reasons=0x48)),
    "power-brake": fault(
        "clocks are slowed down by the machine's power supply: bits 0x8 and 0x80", _plain(clocks_event_reasons=0x88)
    ),
    "sw-thermal": fault(
        "clocks are lowered by the driver because of heat: bit 0x20", _plain(clocks_event_reasons=0x20)
    ),
    "sw-power-cap": fault(
        "clocks are lowered by the driver because of the power limit: bit 0x4", _plain(clocks_event_reasons=0x4)
    ),
    "violation": fault(
        "time below the clocks grows (--value ns at a time)",
        lambda options: values(
            **{
                "violation_%s_ns"
                % _word(
                    options,
                    ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"),
                    "thermal",
                ): "%d++%d" % (chosen(options, 10**9), chosen(options, 10**9))
            }
        ),
        "[power|thermal|sync_boost|board_limit|low_utilization|reliability]",
    ),
    "gpu-hot": fault("the GPU is as hot as where it slows down, or --value degrees", _gpu_hot),
    "memory-hot": fault("the memory is as hot as it may be, or --value degrees", _memory_hot),
    "power-limit-lost": fault("the power limit reads the lowest the board takes, or --value mW", _power_limit),
    "clocks-capped": fault("the highest clocks are lower (--value MHz, default 60 percent)", _capped),
    "application-clocks-changed": fault(
        "the application clocks are lower (--value MHz, default 60 percent)", _application_clocks
    ),
    # modes
    "ecc-pending": fault(
        "the ECC mode waits for a reset: pending is not current",
        lambda options: values(ecc_mode_pending=0 if now(options, "ecc_mode", "1") == "1" else 1),
    ),
    "ecc-off": fault("ECC is off", _plain(ecc_mode=0, ecc_mode_pending=0)),
    "mig-pending": fault("MIG mode waits for a reset: pending is not current", _plain(mig_mode_pending=1)),
    "mig-on": fault("MIG mode is on", _plain(mig_mode=1, mig_mode_pending=1)),
    "mig-layout-lost": fault("there are no MIG instances any more", _mig_lost),
    "persistence-lost": fault("persistence mode reads 0 even while the daemon runs", _plain(persistence=0), node=True),
    "settings-forgotten": fault(
        "without persistence mode, limits, clocks and compute mode are the default again when a process ends NVML",
        _plain(settings_forgotten=1),
        node=True,
    ),
    "compute-mode-changed": fault(
        "the compute mode is another (--value, default 3: one process alone)", _valued("compute_mode", 3)
    ),
    "gsp-version": fault("the GSP runs firmware of another version than the driver's", _plain(gsp_version="1.2.3")),
    "gsp-off": fault("the GSP is off", _plain(gsp_off=1)),
    "stray-process": fault(
        "a process holds the GPU (--value MiB of memory, default 1024; --mig GI, --ci CI: one MIG instance)",
        None,
        "[compute|graphics]",
    ),
    # calls
    "error": fault(
        "an NVML function answers RC (--after N: from call N+1 of a process on; --first N: for N calls of the "
        "node); SYMBOL may be field.NUMBER",
        _error,
        "SYMBOL",
        "RC",
        node=True,
    ),
    "hang": fault(
        "an NVML function answers late, or never with 'forever' (only SIGKILL ends it)",
        _hang,
        "SYMBOL",
        "SECONDS",
        node=True,
    ),
    "missing-symbol": fault(
        "the library lacks a function, as an older one does (rc 13 in the Python binding)",
        _missing_symbol,
        "SYMBOL",
        node=True,
    ),
    "ignored": fault("a function that sets something answers 0 and changes nothing", _ignored, "SYMBOL", node=True),
    "permission-denied": fault(
        "no GPU may be opened: rc 4", lambda options: {"error." + symbol: "4" for symbol in HANDLES}, node=True
    ),
    "unprivileged": fault(
        "the caller is not taken for root: settings and the SRAM status answer rc 4", _plain(unprivileged=1), node=True
    ),
    "set": fault(
        "any value of the node's description reads otherwise; 2*3,3 is 2 for three looks and then 3, 5++2 grows by 2",
        _set,
        "KEY",
        "VALUE",
        node=True,
    ),
    # log and loading
    "xid": fault(
        "writes one XID line to the kernel log; nothing stays (--mig GI: of a MIG instance)", None, "NUMBER", "[TEXT]"
    ),
    "sxid": fault(
        "writes one SXid line of an NVSwitch (--link N; --fatal) to the kernel log; nothing stays",
        None,
        "NUMBER",
        "[TEXT]",
        node=True,
    ),
    "module-load-fails": fault(
        "loading the nvidia module fails (no-device, key-rejected, invalid, format; --driver V)",
        _load_fails,
        "[REASON]",
        node=True,
    ),
    "module-unsigned": fault(
        "the kernel takes signed modules only, and the nvidia module is not signed", _unsigned, node=True
    ),
    "nouveau": fault(
        "nouveau takes the GPUs at boot unless modprobe.d blacklists it", lambda options: {"nouveau": "1"}, node=True
    ),
    **cuda_faults.CATALOGUE,
}
