# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of GPUs: the simulator makes them, NVML and the kernel log tell of them."""

from __future__ import annotations

from ansible_collections.gpufleet.lifecycle.tests.unit.scenarios.scenario import red, scenario

BOTH = ("gpu0", "gpu1")
REFUSED = "NO_PERMISSION (4)"


def fault(words, fails=(), unknown=(), also=(), **more):
    """A fault of GPU 1. Checks that only give a notice fail under a policy that is strict about them."""
    return scenario(words, ("inject %s --gpu 1" % words,) + tuple(also), fails, unknown, **more)


def strict(words, ident, word, **more):
    """A fault that is worth a notice, and a failure where the policy is strict about the check."""
    return fault(words, {ident: word}, rules={"strict": [ident]}, **more)


def refused(symbol, *idents, **more):
    """A call that the first look at GPU 1 is not allowed: what it would tell is not known."""
    unknown = dict(
        dict.fromkeys(idents, REFUSED), **({"gpu.hardware": "cannot be read"} if "gpu.hardware" in idents else {})
    )
    return scenario(
        "%s is refused" % symbol, "inject error %s 4 --gpu 1" % symbol, {}, unknown, first_look=True, **more
    )


NO_GPU = {"gpu.present": red("NVML shows no GPU", *BOTH)}
LOST = {
    "gpu.on_bus": "0000:43:00.0",
    "gpu.handle": red("GPU_IS_LOST (15)", "gpu index 1"),
    "gpu.present": "0000:43:00.0",
}
MIG_HIDES = {"gpu.ecc_volatile": "in MIG mode", "gpu.ecc_volatile_corrected": "in MIG mode"}
ECC_OFF = dict.fromkeys(
    ("gpu.ecc_volatile", "gpu.ecc_volatile_corrected", "gpu.ecc_aggregate", "gpu.sram_threshold"), "NOT_SUPPORTED (3)"
)

SCENARIOS = (
    # ---- the GPUs that there are ----
    fault("gpu-lost", dict(LOST, **{"gpu.xid": red("XID 79", "pci1")})),
    fault("gpu-not-brought-up", dict(LOST, **{"gpu.init_failed": red("RmInitAdapter failed", "pci1")})),
    fault("gpu-missing", {"gpu.count": "counts 1 GPUs", "gpu.present": "missing"}),
    fault("gpu-swapped 0", {"gpu.present": red("as in the baseline", *BOTH)}),
    fault(
        "gpu-replaced",
        {
            "gpu.present": red(
                "GPU-00000000-dead-beef-0000-000000000001", "gpu1", "GPU-00000000-dead-beef-0000-000000000001"
            )
        },
    ),
    scenario(
        "no GPU may be opened",
        "inject permission-denied",
        {"gpu.on_bus": "0000:43:00.0", "gpu.present": red("missing", *BOTH)},
        {"gpu.handle": red(REFUSED, "gpu index 0", "gpu index 1")},
    ),
    scenario(
        "GPUs cannot be counted",
        "inject error nvmlDeviceGetCount_v2 4",
        dict(NO_GPU, **{"nvml.answers": REFUSED}),
        {"gpu.count": "not counted", "gpu.on_bus": "2 GPUs"},
    ),
    # Without a baseline: what boards of this name have, and what the user says that the node has.
    scenario(
        "ECC is off on all GPUs that are looked at first",
        ("inject ecc-off --gpu 0", "inject ecc-off --gpu 1"),
        {"gpu.hardware": red("ECC is off, expected on", *BOTH)},
        first_look=True,
    ),
    scenario(
        "a GPU is not there at the first look",
        "inject gpu-missing --gpu 1",
        {"node.hardware": "has 1 GPUs; expected 2"},
        first_look=True,
        expect={"hardware": {"gpus": 2}},
    ),
    scenario(
        "GPUs cannot be counted at the first look",
        "inject error nvmlDeviceGetCount_v2 4",
        {"nvml.answers": REFUSED},
        {"gpu.count": "not counted", "gpu.on_bus": "2 GPUs", "node.hardware": "not counted"},
        first_look=True,
    ),
    # And with one: what the user says counts for more.
    scenario(
        "the node has other GPUs than it should",
        "list",
        {"gpu.hardware": red("its model is NVIDIA H100 80GB HBM3, expected NVIDIA H200", *BOTH)},
        expect={"hardware": {"model": "NVIDIA H200"}},
    ),
    scenario(
        "a GPU does not tell its UUID",
        "inject error nvmlDeviceGetUUID 4 --gpu 1",
        {},
        {"gpu.present": red("UUID", "pci1")},
        first_look=True,
    ),
    scenario(
        "a GPU does not tell where it is",
        "inject error nvmlDeviceGetPciInfo_v3 4 --gpu 1",
        {},
        {
            "gpu.on_bus": "0000:43:00.0",
            "gpu.present": "PCI address",
            "gpu.pci_device": REFUSED,
            "gpu.pci_subsystem": REFUSED,
            "gpu.pcie_aer": "PCIe errors",
        },
        first_look=True,
    ),
    # ---- what they are ----
    fault("set serial X", {"gpu.serial": "is X"}),
    fault("set board_part_number X", {"gpu.board_part_number": "is X"}),
    fault("set pci_device_id 0x233110de", {"gpu.pci_device": "10de:2331"}),
    fault("set pci_subsystem_id 0x1", {"gpu.pci_subsystem": "0001:0000"}),
    fault("gsp-version", {"gpu.gsp_version": "1.2.3"}),
    fault("gsp-off", {"gpu.gsp_mode": "is off"}),
    fault("inforom-corrupt", {"gpu.inforom": "CORRUPTED_INFOROM (14)"}),
    strict("inforom-changed", "gpu.inforom_checksum", "is 1;"),
    strict("set inforom_image X", "gpu.inforom_version", "is X"),
    strict("vbios-changed", "gpu.vbios", "99.99.99.99.99"),
    refused("nvmlDeviceGetSerial", "gpu.serial"),
    refused("nvmlDeviceGetBoardPartNumber", "gpu.board_part_number"),
    refused("nvmlDeviceGetGspFirmwareVersion", "gpu.gsp_version"),
    refused("nvmlDeviceGetGspFirmwareMode", "gpu.gsp_mode"),
    refused("nvmlDeviceValidateInforom", "gpu.inforom"),
    refused("nvmlDeviceGetInforomConfigurationChecksum", "gpu.inforom_checksum"),
    refused("nvmlDeviceGetInforomImageVersion", "gpu.inforom_version"),
    refused("nvmlDeviceGetVbiosVersion", "gpu.vbios"),
    # ---- memory ----
    fault("recovery-action", {"gpu.recovery_action": "found 2"}),
    fault("ecc-uncorrectable", {"gpu.ecc_volatile": "counted 1", "gpu.ecc_aggregate": "had 1", "gpu.xid": "XID 95"}),
    strict("ecc-correctable --value 100000000", "gpu.ecc_volatile_corrected", "100000000"),
    fault("sram-threshold", {"gpu.ecc_aggregate": "had 5", "gpu.sram_threshold": "threshold_exceeded is true"}),
    fault(
        "remap-pending",
        {
            "gpu.recovery_action": "found 4",
            "gpu.remap_pending": "pending is true",
            "gpu.remap_uncorrectable": "has 1 rows",
        },
    ),
    fault(
        "remap-failed",
        {"gpu.remap_failure": "failure is true", "gpu.remap_uncorrectable": "has 8 rows", "gpu.xid": "XID 64"},
    ),
    fault("remap-many", {"gpu.remap_uncorrectable": "has 512 rows"}),
    fault("bank-availability none", {"gpu.bank_availability": "1 banks with no spare rows"}),
    fault("channel-repair-pending", {"gpu.repair_pending": "channel_pending"}),
    fault("retired-pages-pending", {"gpu.retired_pages_pending": "found 1"}, model="v100-sxm"),
    strict("retired-pages --value 20", "gpu.retired_pages", "20 retired pages", model="v100-sxm"),
    fault("memory-lost", {"gpu.memory_total": "42759880704"}),
    strict("set memory_reserved_mib 9000", "gpu.memory_reserved", "9437184000"),
    fault("bar1-shrunk", {"gpu.bar1_total": "268435456"}),
    fault("ecc-pending", {"gpu.ecc_pending": "is 1 and becomes 0"}),
    fault("ecc-off", dict(ECC_OFF, **{"gpu.ecc_mode": "is 0"})),
    refused("field.230", "gpu.recovery_action"),
    refused("nvmlDeviceGetTotalEccErrors", "gpu.ecc_volatile", "gpu.ecc_volatile_corrected", "gpu.ecc_aggregate"),
    refused("nvmlDeviceGetSramEccErrorStatus", "gpu.sram_threshold"),
    refused("nvmlDeviceGetEccMode", "gpu.hardware", "gpu.ecc_pending", "gpu.ecc_mode"),
    refused("nvmlDeviceGetRemappedRows", "gpu.remap_failure", "gpu.remap_pending", "gpu.remap_uncorrectable"),
    refused("nvmlDeviceGetRowRemapperHistogram", "gpu.bank_availability"),
    refused("nvmlDeviceGetRepairStatus", "gpu.repair_pending"),
    refused("nvmlDeviceGetRetiredPagesPendingStatus", "gpu.retired_pages_pending", model="v100-sxm"),
    refused("field.30", "gpu.retired_pages", model="v100-sxm"),
    refused("nvmlDeviceGetMemoryInfo_v2", "gpu.hardware", "gpu.memory_total", "gpu.memory_reserved", "gpu.memory_used"),
    refused("nvmlDeviceGetBAR1MemoryInfo", "gpu.bar1_total"),
    scenario("a reader that is not root", "inject unprivileged", {"gpu.sram_threshold": red(REFUSED, *BOTH)}),
    # ---- clocks, heat, power ----
    fault("hw-slowdown", {"gpu.hw_slowdown": "0x8"}),
    fault("hw-thermal", {"gpu.hw_slowdown": "0x48", "gpu.hw_thermal_slowdown": "0x48"}),
    fault("power-brake", {"gpu.hw_slowdown": "0x88", "gpu.power_brake": "0x88"}),
    strict("sw-thermal", "gpu.sw_slowdown", "0x20"),
    fault("application-clocks-changed", {"gpu.applications_clocks": "graphics 1188 MHz"}),
    fault("clocks-capped", {"gpu.clocks_max": "1188 MHz"}),
    fault("gpu-hot", {"gpu.temperature": "is 89 C", "gpu.temperature_margin": "is -2 C"}),
    fault("memory-hot", {"gpu.temperature_memory": "is 95 C"}),
    strict("gpu-hot --value 60", "gpu.temperature_idle", "is 60 C"),
    fault("power-limit-lost", {"gpu.power_limit": "is 200000", "gpu.power_limit_enforced": "is 200000"}),
    fault(
        "set power_default_mw 650000",
        {
            "gpu.power_limit": "is 650000",
            "gpu.power_limit_enforced": "is 650000",
            "gpu.power_limit_default": "is 650000",
        },
        rules={"strict": ["gpu.power_limit_default"]},
    ),
    refused(
        "nvmlDeviceGetCurrentClocksEventReasons",
        "gpu.hw_slowdown",
        "gpu.hw_thermal_slowdown",
        "gpu.power_brake",
        "gpu.sw_slowdown",
    ),
    refused("nvmlDeviceGetApplicationsClock", "gpu.applications_clocks"),
    refused("nvmlDeviceGetMaxClockInfo", "gpu.clocks_max"),
    refused("nvmlDeviceGetTemperature", "gpu.temperature", "gpu.temperature_idle"),
    refused("nvmlDeviceGetTemperatureThreshold", "gpu.temperature", "gpu.temperature_memory"),
    refused("nvmlDeviceGetMarginTemperature", "gpu.temperature_margin"),
    refused("nvmlDeviceGetPowerManagementLimit", "gpu.power_limit", "gpu.power_limit_enforced"),
    refused("nvmlDeviceGetEnforcedPowerLimit", "gpu.power_limit_enforced"),
    refused("nvmlDeviceGetPowerManagementDefaultLimit", "gpu.power_limit", "gpu.power_limit_default"),
    # ---- links ----
    # Phase soak, as a process may work there: the generation counts under load only.
    fault(
        "pcie-generation",
        {"gpu.pcie_generation": "generation 4"},
        also=("inject set clocks_event_reasons 0 --gpu 1", "inject stray-process --gpu 1"),
        phase="soak",
    ),
    fault("set pcie_gen_max 3", {"gpu.pcie_generation_max": "generation 3"}),
    fault("pcie-width", {"gpu.pcie_width": "8 lanes"}),
    fault("pcie-downtrain", {"gpu.pcie_width": "8 lanes"}),
    strict("pcie-replay --value 10000000", "gpu.pcie_replay", "10000000"),
    strict("pcie-errors fatal", "gpu.pcie_aer", "5 since the baseline"),
    fault("nvlink-down", {"gpu.nvlink": "17 are active"}),
    fault("set nvlink_version 3", {"gpu.nvlink_remote": "version 3"}),
    fault("nvlink-errors recovery --value 5", {"gpu.nvlink_recovery": "link 0: 5"}),
    strict("nvlink-errors crc_data --value 100000000", "gpu.nvlink_errors", "100000000"),
    fault("p2p-broken", {"gpu.p2p": red("read to GPU-", *BOTH)}),
    fault("fabric-unhealthy", {"gpu.fabric": "degraded bandwidth"}),
    scenario(
        "the fabric converges",
        "inject fabric-converging --gpu all --value 3",
        {},
        {"gpu.fabric": red("in progress", *BOTH), "gpu.fabric_clique": red("not known", *BOTH)},
    ),
    fault("fabric-stuck", {}, {"gpu.fabric": "in progress", "gpu.fabric_clique": "not known"}),
    fault("set fabric_clique 9", {"gpu.fabric_clique": "clique 9"}),
    refused("nvmlDeviceGetCurrPcieLinkGeneration", "gpu.pcie_generation"),
    refused("nvmlDeviceGetMaxPcieLinkGeneration", "gpu.pcie_generation_max"),
    refused("nvmlDeviceGetCurrPcieLinkWidth", "gpu.hardware", "gpu.pcie_width"),
    refused("nvmlDeviceGetPcieReplayCounter", "gpu.pcie_replay"),
    refused(
        "nvmlDeviceGetNvLinkState",
        "gpu.hardware",
        "gpu.nvlink",
        "gpu.nvlink_remote",
        "gpu.nvlink_recovery",
        "gpu.nvlink_errors",
    ),
    refused("nvmlDeviceGetP2PStatus", "gpu.p2p"),
    refused("nvmlDeviceGetGpuFabricInfoV", "gpu.fabric", "gpu.fabric_clique"),
    # ---- modes and processes ----
    fault("mig-pending", {"gpu.mig_pending": "is 0 and becomes 1"}),
    fault("mig-on", {"gpu.mig_mode": "is 1"}, MIG_HIDES),
    scenario(
        "somebody laid out MIG",
        lambda world: world.node.sim("mig", "--gpu", "1", "3g.40gb"),
        {"gpu.mig_mode": "is 1", "gpu.mig_layout": "3g.40gb"},
        MIG_HIDES,
    ),
    fault("persistence-lost", {"gpu.persistence": "is 0"}),
    fault("compute-mode-changed", {"gpu.compute_mode": "is 3"}),
    fault("stray-process", {"gpu.compute_processes": "pid "}),
    fault("stray-process graphics", {"gpu.graphics_processes": "pid "}),
    fault("set memory_used_mib 4000", {"gpu.memory_used": "4194304000 bytes"}),
    refused("nvmlDeviceGetMigMode", "gpu.mig_pending", "gpu.mig_mode", "gpu.mig_layout"),
    refused("nvmlDeviceGetPersistenceMode", "gpu.persistence"),
    refused("nvmlDeviceGetComputeMode", "gpu.compute_mode"),
    refused("nvmlDeviceGetComputeRunningProcesses_v3", "gpu.compute_processes", "gpu.memory_used"),
    refused("nvmlDeviceGetGraphicsRunningProcesses_v3", "gpu.graphics_processes", "gpu.memory_used"),
    # ---- the kernel log ----
    fault("xid 79", {"gpu.xid": "XID 79"}),
    fault("xid 13", {"gpu.xid": "XID 13"}),
    fault("xid 999", {"gpu.xid": "XID 999"}),
    scenario(
        "a GPU left the bus without an XID",
        lambda world: world.sim("log", "NVRM: GPU {pci}.0: GPU has fallen off the bus.", "--gpu", "1"),
        {"gpu.fallen_off": "has fallen off the bus"},
    ),
    scenario(
        "an NVSwitch reports a fatal error",
        "inject sxid 20034 --fatal",
        {"node.sxid": red("SXid 20034", "nvswitch 0000:05:00.0")},
    ),
)
