/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The part of NVML's binary interface that the simulator serves: names, numbers and layouts, each size checked. */
#ifndef GPUSIM_NVML_ABI_H
#define GPUSIM_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *nvmlDevice_t;
typedef void *nvmlGpuInstance_t;
typedef void *nvmlComputeInstance_t;

enum nvml_rc {
    RC_SUCCESS = 0,
    RC_UNINITIALIZED = 1,
    RC_INVALID_ARGUMENT = 2,
    RC_NOT_SUPPORTED = 3,
    RC_NO_PERMISSION = 4,
    RC_NOT_FOUND = 6,
    RC_INSUFFICIENT_SIZE = 7,
    RC_DRIVER_NOT_LOADED = 9,
    RC_LIBRARY_NOT_FOUND = 12,
    RC_GPU_IS_LOST = 15,
    RC_RESET_REQUIRED = 16,
    RC_VERSION_MISMATCH = 18,
    RC_IN_USE = 19,
    RC_INSUFFICIENT_RESOURCES = 23,
    RC_ARGUMENT_VERSION = 25,
    RC_DEPRECATED = 26,
    RC_UNKNOWN = 999
};

#define STRUCT_VERSION(type, number) ((u32)(sizeof(type) | ((u32)(number) << 24)))
#define SIZED(type, size) _Static_assert(sizeof(type) == (size), #type " has another size")
#define PLACED(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " lies elsewhere")

typedef struct {
    char busIdLegacy[16];
    u32 domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
SIZED(nvmlPciInfo_t, 68);
PLACED(nvmlPciInfo_t, busId, 36);

typedef struct {
    u64 total, free, used;
} nvmlMemory_t;
SIZED(nvmlMemory_t, 24);

typedef struct {
    u32 version;
    u64 total, reserved, free, used;
} nvmlMemory_v2_t;
SIZED(nvmlMemory_v2_t, 40);
PLACED(nvmlMemory_v2_t, total, 8);
_Static_assert(STRUCT_VERSION(nvmlMemory_v2_t, 2) == 0x2000028, "nvmlMemory_v2");

typedef struct {
    u64 bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;
SIZED(nvmlBAR1Memory_t, 24);

typedef struct {
    u32 gpu, memory;
} nvmlUtilization_t;
SIZED(nvmlUtilization_t, 8);

typedef struct {
    u32 version;
    u64 aggregateUncParity, aggregateUncSecDed, aggregateCor;
    u64 volatileUncParity, volatileUncSecDed, volatileCor;
    u64 aggregateUncBucketL2, aggregateUncBucketSm, aggregateUncBucketPcie, aggregateUncBucketMcu, aggregateUncBucketOther;
    u32 bThresholdExceeded;
} nvmlEccSramErrorStatus_v1_t;
SIZED(nvmlEccSramErrorStatus_v1_t, 104);
PLACED(nvmlEccSramErrorStatus_v1_t, bThresholdExceeded, 96);
_Static_assert(STRUCT_VERSION(nvmlEccSramErrorStatus_v1_t, 1) == 0x1000068, "nvmlEccSramErrorStatus_v1");

typedef struct {
    u32 max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;
SIZED(nvmlRowRemapperHistogramValues_t, 20);

typedef struct {
    u64 referenceTime, violationTime;
} nvmlViolationTime_t;
SIZED(nvmlViolationTime_t, 16);

typedef struct {
    u32 pid;
    u64 usedGpuMemory;
} nvmlProcessInfo_v1_t;
SIZED(nvmlProcessInfo_v1_t, 16);

typedef struct {
    u32 pid;
    u64 usedGpuMemory;
    u32 gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v3_t;
SIZED(nvmlProcessInfo_v3_t, 24);
PLACED(nvmlProcessInfo_v3_t, gpuInstanceId, 16);

typedef union {
    double dVal;
    int siVal;
    u32 uiVal;
    unsigned long ulVal;
    u64 ullVal;
    long long sllVal;
    unsigned short usVal;
} nvmlValue_t;
SIZED(nvmlValue_t, 8);

enum { TYPE_DOUBLE, TYPE_UINT, TYPE_ULONG, TYPE_ULONGLONG, TYPE_SLONGLONG, TYPE_SINT };

typedef struct {
    u32 fieldId, scopeId;
    long long timestamp, latencyUsec;
    u32 valueType, nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
SIZED(nvmlFieldValue_t, 40);
PLACED(nvmlFieldValue_t, nvmlReturn, 28);
PLACED(nvmlFieldValue_t, value, 32);

typedef struct {
    unsigned char clusterUuid[16];
    u32 status, cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;
SIZED(nvmlGpuFabricInfo_t, 28);
PLACED(nvmlGpuFabricInfo_t, state, 24);

typedef struct {
    u32 version;
    unsigned char clusterUuid[16];
    u32 status, cliqueId;
    unsigned char state;
    u32 healthMask;
} nvmlGpuFabricInfo_v2_t;
SIZED(nvmlGpuFabricInfo_v2_t, 36);
PLACED(nvmlGpuFabricInfo_v2_t, state, 28);
_Static_assert(STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2) == 0x2000024, "nvmlGpuFabricInfo_v2");

typedef struct {
    u32 version;
    unsigned char clusterUuid[16];
    u32 status, cliqueId;
    unsigned char state;
    u32 healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfo_v3_t;
SIZED(nvmlGpuFabricInfo_v3_t, 40);
PLACED(nvmlGpuFabricInfo_v3_t, healthSummary, 36);
_Static_assert(STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3) == 0x3000028, "nvmlGpuFabricInfo_v3");

typedef struct {
    u32 version;
    int marginTemperature;
} nvmlMarginTemperature_v1_t;
SIZED(nvmlMarginTemperature_v1_t, 8);

typedef struct {
    u32 version, bChannelRepairPending, bTpcRepairPending;
} nvmlRepairStatus_v1_t;
SIZED(nvmlRepairStatus_v1_t, 12);

typedef struct {
    u32 version, value;
} nvmlDeviceAddressingMode_v1_t;
SIZED(nvmlDeviceAddressingMode_v1_t, 8);

/* ---- MIG ---- */

typedef struct {
    u32 multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    u32 gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} nvmlDeviceAttributes_t;
SIZED(nvmlDeviceAttributes_t, 40);
PLACED(nvmlDeviceAttributes_t, memorySizeMB, 32);

typedef struct {
    u32 id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    u64 memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;
SIZED(nvmlGpuInstanceProfileInfo_t, 48);

typedef struct {
    u32 version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    u64 memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;
SIZED(nvmlGpuInstanceProfileInfo_v2_t, 152);
PLACED(nvmlGpuInstanceProfileInfo_v2_t, memorySizeMB, 48);

typedef struct {
    u32 version, id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    u64 memorySizeMB;
    char name[96];
    u32 capabilities;
} nvmlGpuInstanceProfileInfo_v3_t;
SIZED(nvmlGpuInstanceProfileInfo_v3_t, 152);
PLACED(nvmlGpuInstanceProfileInfo_v3_t, capabilities, 144);

typedef struct {
    u32 start, size;
} nvmlGpuInstancePlacement_t;
SIZED(nvmlGpuInstancePlacement_t, 8);
typedef nvmlGpuInstancePlacement_t nvmlComputeInstancePlacement_t;

typedef struct {
    nvmlDevice_t device;
    u32 id, profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;
SIZED(nvmlGpuInstanceInfo_t, 24);

typedef struct {
    u32 id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;
SIZED(nvmlComputeInstanceProfileInfo_t, 36);

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    u32 id, profileId;
    nvmlComputeInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;
SIZED(nvmlComputeInstanceInfo_t, 32);

/* ---- field ids ---- */

enum {
    FI_RETIRED_SBE = 29,
    FI_RETIRED_DBE = 30,
    FI_PERF_POLICY_POWER = 74,
    FI_PERF_POLICY_RELIABILITY = 79,
    FI_MEMORY_TEMP = 82,
    FI_NVLINK_LINK_COUNT = 91,
    FI_PCIE_REPLAY_COUNTER = 94,
    FI_REMAPPED_COR = 142,
    FI_REMAPPED_UNC = 143,
    FI_REMAPPED_PENDING = 144,
    FI_REMAPPED_FAILURE = 145,
    FI_TEMPERATURE_SHUTDOWN_TLIMIT = 193,
    FI_TEMPERATURE_SLOWDOWN_TLIMIT = 194,
    FI_TEMPERATURE_MEM_MAX_TLIMIT = 195,
    FI_TEMPERATURE_GPU_MAX_TLIMIT = 196,
    FI_NVLINK5_RECOVERY_FAILED = 214,
    FI_NVLINK5_RECOVERY = 215,
    FI_NVLINK5_EFFECTIVE_ERRORS = 219,
    FI_NVLINK5_SYMBOL_ERRORS = 221,
    FI_GPU_RECOVERY_ACTION = 230
};

#endif
