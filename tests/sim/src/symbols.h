/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The functions of libnvidia-ml.so.1 that the simulator has, by the first driver branch that has them.
 * From the dynamic symbols of libraries of the branches 470, 535, 550, 580 (580.159.04) and 590 (590.48.01); for
 * branches between them, from NVIDIA's release notes of NVML and the bindings of nvidia-ml-py, and else from the later
 * one on. */
#define S(name) SYMBOL(name, 470)
S(nvmlComputeInstanceDestroy) S(nvmlComputeInstanceGetInfo_v2) S(nvmlDeviceCreateGpuInstance)
S(nvmlDeviceCreateGpuInstanceWithPlacement) S(nvmlDeviceGetApplicationsClock) S(nvmlDeviceGetArchitecture)
S(nvmlDeviceGetAttributes_v2) S(nvmlDeviceGetBAR1MemoryInfo) S(nvmlDeviceGetBoardPartNumber) S(nvmlDeviceGetClockInfo)
S(nvmlDeviceGetComputeInstanceId) S(nvmlDeviceGetComputeMode) S(nvmlDeviceGetComputeRunningProcesses)
S(nvmlDeviceGetCount) S(nvmlDeviceGetCount_v2) S(nvmlDeviceGetCurrPcieLinkGeneration) S(nvmlDeviceGetCurrPcieLinkWidth)
S(nvmlDeviceGetCurrentClocksThrottleReasons) S(nvmlDeviceGetDefaultApplicationsClock) S(nvmlDeviceGetEccMode)
S(nvmlDeviceGetEnforcedPowerLimit) S(nvmlDeviceGetFieldValues) S(nvmlDeviceGetGpuInstanceById)
S(nvmlDeviceGetGpuInstanceId) S(nvmlDeviceGetGpuInstancePossiblePlacements)
S(nvmlDeviceGetGpuInstancePossiblePlacements_v2) S(nvmlDeviceGetGpuInstanceProfileInfo) S(nvmlDeviceGetGpuInstances)
S(nvmlDeviceGetGraphicsRunningProcesses) S(nvmlDeviceGetHandleByIndex) S(nvmlDeviceGetHandleByIndex_v2)
S(nvmlDeviceGetHandleByUUID) S(nvmlDeviceGetIndex) S(nvmlDeviceGetInforomConfigurationChecksum)
S(nvmlDeviceGetInforomImageVersion) S(nvmlDeviceGetMaxClockInfo) S(nvmlDeviceGetMaxMigDeviceCount)
S(nvmlDeviceGetMaxPcieLinkGeneration) S(nvmlDeviceGetMaxPcieLinkWidth) S(nvmlDeviceGetMemoryErrorCounter)
S(nvmlDeviceGetMemoryInfo) S(nvmlDeviceGetMigDeviceHandleByIndex) S(nvmlDeviceGetMigMode) S(nvmlDeviceGetMinorNumber)
S(nvmlDeviceGetName) S(nvmlDeviceGetNvLinkErrorCounter) S(nvmlDeviceGetNvLinkRemoteDeviceType)
S(nvmlDeviceGetNvLinkRemotePciInfo_v2) S(nvmlDeviceGetNvLinkState) S(nvmlDeviceGetNvLinkVersion)
S(nvmlDeviceGetP2PStatus) S(nvmlDeviceGetPciInfo_v3) S(nvmlDeviceGetPcieReplayCounter) S(nvmlDeviceGetPersistenceMode)
S(nvmlDeviceGetPowerManagementDefaultLimit) S(nvmlDeviceGetPowerManagementLimit)
S(nvmlDeviceGetPowerManagementLimitConstraints) S(nvmlDeviceGetPowerUsage) S(nvmlDeviceGetRemappedRows)
S(nvmlDeviceGetRetiredPages) S(nvmlDeviceGetRetiredPagesPendingStatus) S(nvmlDeviceGetRowRemapperHistogram)
S(nvmlDeviceGetSerial) S(nvmlDeviceGetTemperature) S(nvmlDeviceGetTemperatureThreshold) S(nvmlDeviceGetTotalEccErrors)
S(nvmlDeviceGetTotalEnergyConsumption) S(nvmlDeviceGetUUID) S(nvmlDeviceGetUtilizationRates)
S(nvmlDeviceGetVbiosVersion) S(nvmlDeviceGetViolationStatus) S(nvmlDeviceGetVirtualizationMode)
S(nvmlDeviceResetApplicationsClocks) S(nvmlDeviceResetGpuLockedClocks) S(nvmlDeviceResetMemoryLockedClocks)
S(nvmlDeviceSetApplicationsClocks) S(nvmlDeviceSetComputeMode) S(nvmlDeviceSetEccMode) S(nvmlDeviceSetGpuLockedClocks)
S(nvmlDeviceSetMemoryLockedClocks) S(nvmlDeviceSetMigMode) S(nvmlDeviceSetPersistenceMode)
S(nvmlDeviceSetPowerManagementLimit) S(nvmlDeviceValidateInforom) S(nvmlErrorString)
S(nvmlGpuInstanceCreateComputeInstance) S(nvmlGpuInstanceDestroy) S(nvmlGpuInstanceGetComputeInstanceById)
S(nvmlGpuInstanceGetComputeInstanceProfileInfo) S(nvmlGpuInstanceGetComputeInstances) S(nvmlGpuInstanceGetInfo)
S(nvmlInit) S(nvmlInitWithFlags) S(nvmlInit_v2) S(nvmlShutdown) S(nvmlSystemGetCudaDriverVersion)
S(nvmlSystemGetCudaDriverVersion_v2) S(nvmlSystemGetDriverVersion) S(nvmlSystemGetNVMLVersion)
#undef S
#define S(name) SYMBOL(name, 510)
S(nvmlDeviceGetComputeRunningProcesses_v3) S(nvmlDeviceGetGraphicsRunningProcesses_v3) S(nvmlDeviceGetGspFirmwareMode)
S(nvmlDeviceGetGspFirmwareVersion) S(nvmlDeviceGetMemoryInfo_v2)
#undef S
#define S(name) SYMBOL(name, 535)
S(nvmlDeviceGetCurrentClocksEventReasons) S(nvmlDeviceGetGpuFabricInfo) S(nvmlDeviceGetGpuInstanceProfileInfoV)
S(nvmlDeviceGetGpuMaxPcieLinkGeneration) S(nvmlDeviceGetSramEccErrorStatus)
#undef S
#define S(name) SYMBOL(name, 545)
S(nvmlDeviceGetGpuFabricInfoV)
#undef S
#define S(name) SYMBOL(name, 570)
S(nvmlDeviceGetMarginTemperature)
#undef S
#define S(name) SYMBOL(name, 580)
S(nvmlDeviceGetAddressingMode) S(nvmlDeviceGetRepairStatus)
#undef S
