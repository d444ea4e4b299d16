/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libnvidia-ml.so.1 without a GPU behind it. Every answer comes from the state files of the simulated node. */
#define _GNU_SOURCE
#include "nvml_sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* Its presence tells a reader of this library that nothing here is hardware. */
API const char gpusim_marker[] = "gpusim: simulated NVML, no hardware";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialized;
static char slots[GPUSIM_MAX_GPUS];

/* ---- entering a call ---- */

void leave(struct scope *scope)
{
    (void)scope;
    pthread_mutex_unlock(&mutex);
}

struct scope enter(const char *symbol, int gpu, int needs_init)
{
    struct scope scope = { 0 };
    int rc;

    pthread_mutex_lock(&mutex);
    state_refresh();
    state_pause(&mutex, state_hang(gpu, symbol));
    rc = state_error(gpu, symbol, state_count_call(gpu, symbol));
    if (needs_init && !initialized)
        scope.rc = RC_UNINITIALIZED;
    else if (rc >= 0)
        scope.rc = rc;
    else if (needs_init && !*state_loaded_version())
        scope.rc = RC_DRIVER_NOT_LOADED;
    return scope;
}

int gpu_of(nvmlDevice_t device)
{
    char *slot = device;

    return slot >= slots && slot < slots + GPUSIM_MAX_GPUS ? (int)(slot - slots) : -1;
}

static int absent(int gpu)
{
    return (int)state_int(gpu, "absent", 0);
}

/* The GPU at an NVML index: GPUs that left the bus are not counted. */
static int gpu_at(u32 index)
{
    for (int gpu = 0; gpu < state_gpu_count(); gpu++)
        if (!absent(gpu) && index-- == 0)
            return gpu;
    return -1;
}

static int index_of(int gpu)
{
    int index = 0;

    for (int i = 0; i < gpu; i++)
        index += !absent(i);
    return index;
}

int text(char *out, u32 size, const char *value)
{
    size_t length;

    NEEDS(out && size);
    SUPPORTED(value && *value);
    length = strlen(value);
    if (length >= size)
        return RC_INSUFFICIENT_SIZE;
    memcpy(out, value, length + 1);
    return RC_SUCCESS;
}

int number(int gpu, const char *key, u32 *out)
{
    const char *value = state_get(gpu, key);

    NEEDS(out);
    SUPPORTED(value && *value);
    *out = (u32)strtoul(value, NULL, 0);
    return RC_SUCCESS;
}

u64 mib(int gpu, const char *key)
{
    return (u64)state_int(gpu, key, 0) << 20;
}

static long long now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- library ---- */

static int initialize(const char *symbol)
{
    char library[GPUSIM_VERSION_SIZE];
    struct scope scope __attribute__((cleanup(leave))) = enter(symbol, -1, 0);

    if (scope.rc)
        return scope.rc;
    state_library_version(library, sizeof(library));
    if (!*library)
        return RC_LIBRARY_NOT_FOUND;
    if (!*state_loaded_version())
        return RC_DRIVER_NOT_LOADED;
    if (strcmp(library, state_loaded_version()))
        return RC_VERSION_MISMATCH;
    initialized++;
    return RC_SUCCESS;
}

API int nvmlInit(void)
{
    return initialize(__func__);
}

API int nvmlInit_v2(void)
{
    return initialize(__func__);
}

API int nvmlInitWithFlags(u32 flags)
{
    (void)flags;
    return initialize(__func__);
}

API int nvmlShutdown(void)
{
    SYSTEM();
    if (!--initialized)
        forget_settings();
    return RC_SUCCESS;
}

API const char *nvmlErrorString(int rc)
{
    static const struct {
        int rc;
        const char *text;
    } names[] = {
        { 0, "Success" },
        { 1, "Uninitialized" },
        { 2, "Invalid Argument" },
        { 3, "Not Supported" },
        { 4, "Insufficient Permissions" },
        { 5, "Already Initialized" },
        { 6, "Not Found" },
        { 7, "Insufficient Size" },
        { 8, "Insufficient External Power" },
        { 9, "Driver Not Loaded" },
        { 10, "Timeout" },
        { 11, "Interrupt Request Issue" },
        { 12, "NVML Shared Library Not Found" },
        { 13, "Function Not Found" },
        { 14, "Corrupted infoROM" },
        { 15, "GPU is lost" },
        { 16, "GPU requires reset" },
        { 17, "GPU access blocked by the operating system" },
        { 18, "Driver/library version mismatch" },
        { 19, "In use by another client" },
        { 20, "Insufficient Memory" },
        { 21, "No data" },
        { 22, "VGPU ECC Not Supported" },
        { 23, "Insufficient resources" },
        { 24, "Frequency Not Supported" },
        { 25, "Argument version mismatch" },
        { 26, "Deprecated" },
        { 27, "Not Ready" },
        { 28, "GPU not found" },
        { 29, "Invalid state" },
        { 30, "Reset type not supported" },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].rc == rc)
            return names[i].text;
    return "Unknown Error";
}

/* ---- system ---- */

API int nvmlSystemGetDriverVersion(char *version, u32 length)
{
    SYSTEM();
    return text(version, length, state_loaded_version());
}

API int nvmlSystemGetNVMLVersion(char *version, u32 length)
{
    char library[GPUSIM_VERSION_SIZE], full[GPUSIM_VERSION_SIZE + 8];

    SYSTEM();
    state_library_version(library, sizeof(library));
    /* The major number of the CUDA interface stands before the driver's version. */
    snprintf(full, sizeof(full), "%d.%s", state_major(library) >= 580 ? 13 : 12, library);
    return text(version, length, full);
}

static int cuda_version(int *version)
{
    static const struct {
        int major, cuda;
    } table[] = {
        { 590, 13010 }, { 580, 13000 }, { 575, 12090 }, { 570, 12080 }, { 565, 12070 }, { 560, 12060 }, { 555, 12050 },
        { 550, 12040 }, { 545, 12030 }, { 535, 12020 }, { 530, 12010 }, { 525, 12000 }, { 520, 11080 }, { 515, 11070 },
        { 510, 11060 }, { 470, 11040 }, { 450, 11000 },
    };
    int major = state_major(state_loaded_version());

    NEEDS(version);
    *version = 10020;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (major >= table[i].major) {
            *version = table[i].cuda;
            break;
        }
    }
    return RC_SUCCESS;
}

API int nvmlSystemGetCudaDriverVersion(int *version)
{
    SYSTEM();
    return cuda_version(version);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    SYSTEM();
    return cuda_version(version);
}

/* ---- finding devices ---- */

static int device_count(u32 *count)
{
    NEEDS(count);
    *count = (u32)index_of(state_gpu_count());
    return RC_SUCCESS;
}

API int nvmlDeviceGetCount(u32 *count)
{
    SYSTEM();
    return device_count(count);
}

API int nvmlDeviceGetCount_v2(u32 *count)
{
    SYSTEM();
    return device_count(count);
}

/* Getting a handle brings the GPU up: here the errors of a GPU that does not come up appear. The call was entered for
 * the node, since the GPU was not known yet, so faults of that one GPU are looked at now. */
int open_gpu(int gpu, const char *symbol, nvmlDevice_t *device)
{
    int rc;

    NEEDS(device);
    if (gpu < 0)
        return RC_INVALID_ARGUMENT;
    state_pause(&mutex, state_hang(-1, symbol) != 0 ? 0 : state_hang(gpu, symbol));
    rc = state_error(gpu, symbol, state_count_call(gpu, symbol));
    if (rc > 0)
        return rc;
    if (state_int(gpu, "lost", 0))
        return RC_GPU_IS_LOST;
    if (state_int(gpu, "gsp_required", 0) && state_loaded("gsp") && !strcmp(state_loaded("gsp"), "mismatch"))
        return RC_UNKNOWN;
    *device = &slots[gpu];
    return RC_SUCCESS;
}

#define HANDLE(expression)                                                      \
    struct scope scope __attribute__((cleanup(leave))) = enter(__func__, -1, 1); \
    if (scope.rc)                                                               \
        return scope.rc;                                                        \
    return open_gpu((expression), __func__, device)

API int nvmlDeviceGetHandleByIndex(u32 index, nvmlDevice_t *device)
{
    HANDLE(gpu_at(index));
}

API int nvmlDeviceGetHandleByIndex_v2(u32 index, nvmlDevice_t *device)
{
    HANDLE(gpu_at(index));
}

static int gpu_with(const char *key, const char *wanted)
{
    for (int gpu = 0; wanted && gpu < state_gpu_count(); gpu++) {
        const char *value = state_get(gpu, key);

        if (value && !absent(gpu) && !strcmp(value, wanted))
            return gpu;
    }
    return -1;
}

static int pci_parts(const char *address, u32 *domain, u32 *bus, u32 *slot)
{
    u32 function;

    return address && (sscanf(address, "%x:%x:%x.%x", domain, bus, slot, &function) >= 3 ||
                       (*domain = 0, sscanf(address, "%x:%x.%x", bus, slot, &function) >= 2));
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    int gpu;
    SYSTEM();
    NEEDS(device && uuid);
    *device = mig_with_uuid(uuid);
    if (*device)
        return RC_SUCCESS;
    gpu = gpu_with("uuid", uuid);
    return gpu < 0 ? RC_NOT_FOUND : open_gpu(gpu, __func__, device);
}

/* ---- identity ---- */

/* A call that a MIG device answers otherwise than its GPU. */
#define MIG_OR_GPU(function, answer_of_mig, answer_of_gpu, ...) \
    API int function(nvmlDevice_t device, __VA_ARGS__)          \
    {                                                           \
        struct mig_device mig;                                  \
        int gpu = gpu_of(device);                               \
        ENTER(gpu, 1);                                          \
        int of_mig = gpu < 0 && mig_device_of(device, &mig);    \
        int board = of_mig ? mig.gpu : gpu;                     \
        if (board < 0)                                          \
            return RC_INVALID_ARGUMENT;                         \
        if (state_int(board, "lost", 0))                        \
            return RC_GPU_IS_LOST;                              \
        if (state_int(board, "reset_required", 0))              \
            return RC_RESET_REQUIRED;                           \
        return of_mig ? (answer_of_mig) : (answer_of_gpu);      \
    }

static int gpu_index(int gpu, u32 *index)
{
    NEEDS(index);
    *index = (u32)index_of(gpu);
    return RC_SUCCESS;
}

MIG_OR_GPU(nvmlDeviceGetIndex, mig_index(&mig, index), gpu_index(gpu, index), u32 *index)

#define TEXT(function, key)                                              \
    API int function(nvmlDevice_t device, char *out, u32 length)         \
    {                                                                    \
        DEVICE();                                                        \
        return text(out, length, state_get(gpu, key));                   \
    }

MIG_OR_GPU(nvmlDeviceGetName, mig_name(&mig, out, length),
           text(out, length, state_get(gpu, "name")), char *out, u32 length)

MIG_OR_GPU(nvmlDeviceGetUUID, mig_uuid(&mig, out, length),
           text(out, length, state_get(gpu, "uuid")), char *out, u32 length)

TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom_image")

NUMBER(nvmlDeviceGetInforomConfigurationChecksum, "inforom_checksum")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetArchitecture, "architecture")

API int nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    DEVICE();
    return state_int(gpu, "inforom_corrupt", 0) ? 14 : RC_SUCCESS;
}

static int pci_numbers(int gpu, u32 *domain, u32 *bus, u32 *slot)
{
    return pci_parts(state_get(gpu, "pci"), domain, bus, slot) ? RC_SUCCESS : RC_UNKNOWN;
}

static int pci_info(int gpu, nvmlPciInfo_t *pci)
{
    NEEDS(pci);
    memset(pci, 0, sizeof(*pci));
    if (pci_numbers(gpu, &pci->domain, &pci->bus, &pci->device))
        return RC_UNKNOWN;
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    pci->pciDeviceId = (u32)state_int(gpu, "pci_device_id", 0);
    pci->pciSubSystemId = (u32)state_int(gpu, "pci_subsystem_id", 0);
    return RC_SUCCESS;
}

ANSWER(nvmlDeviceGetPciInfo_v3, pci_info(gpu, pci), nvmlPciInfo_t *pci)

/* ---- memory ---- */

u64 memory_used(int gpu)
{
    struct state_process processes[64];
    u64 used = mib(gpu, "memory_used_mib");
    int count = state_processes(gpu, 'C', processes, 64);

    for (int i = 0; i < count && i < 64; i++)
        used += processes[i].used_bytes;
    return used < mib(gpu, "memory_total_mib") ? used : mib(gpu, "memory_total_mib");
}

/* What the processes of a MIG device hold of its memory. */
static u64 mig_used(const struct mig_device *mig, u64 total)
{
    struct state_process processes[64];
    int count = state_processes(mig->gpu, 'C', processes, 64);
    u64 used = 0;

    for (int i = 0; i < count && i < 64; i++)
        used += mig_has(mig, &processes[i]) ? processes[i].used_bytes : 0;
    return used < total ? used : total;
}

static int memory_v1(int gpu, const struct mig_device *mig, nvmlMemory_t *memory)
{
    NEEDS(memory);
    if (mig) {
        int rc = mig_memory(mig, &memory->total);

        memory->used = rc ? 0 : mig_used(mig, memory->total);
        memory->free = memory->total - memory->used;
        return rc;
    }
    memory->total = mib(gpu, "memory_total_mib");
    memory->used = memory_used(gpu) + mib(gpu, "memory_reserved_mib");
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return RC_SUCCESS;
}

MIG_OR_GPU(nvmlDeviceGetMemoryInfo, memory_v1(-1, &mig, memory), memory_v1(gpu, NULL, memory), nvmlMemory_t *memory)

static int memory_v2(int gpu, const struct mig_device *mig, nvmlMemory_v2_t *memory)
{
    NEEDS(memory);
    if (memory->version != STRUCT_VERSION(nvmlMemory_v2_t, 2))
        return RC_ARGUMENT_VERSION;
    if (mig) {
        int rc = mig_memory(mig, &memory->total);

        memory->reserved = 0;
        memory->used = rc ? 0 : mig_used(mig, memory->total);
        memory->free = memory->total - memory->used;
        return rc;
    }
    memory->total = mib(gpu, "memory_total_mib");
    memory->reserved = mib(gpu, "memory_reserved_mib");
    memory->used = memory_used(gpu);
    memory->free = memory->total > memory->reserved + memory->used ? memory->total - memory->reserved - memory->used : 0;
    return RC_SUCCESS;
}

MIG_OR_GPU(nvmlDeviceGetMemoryInfo_v2, memory_v2(-1, &mig, memory),
           memory_v2(gpu, NULL, memory), nvmlMemory_v2_t *memory)

static int bar1(int gpu, const struct mig_device *mig, nvmlBAR1Memory_t *memory)
{
    int rc = RC_SUCCESS;

    NEEDS(memory);
    memory->bar1Total = mig ? 0 : mib(gpu, "bar1_total_mib");
    memory->bar1Used = mig ? 0 : mib(gpu, "bar1_used_mib");
    if (mig)
        rc = mig_bar1(mig, &memory->bar1Total);
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return rc;
}

MIG_OR_GPU(nvmlDeviceGetBAR1MemoryInfo, bar1(-1, &mig, memory), bar1(gpu, NULL, memory), nvmlBAR1Memory_t *memory)

/* ---- ECC, row remapping, retired pages ---- */

static int ecc_mode(int gpu, u32 *current, u32 *pending)
{
    NEEDS(current && pending);
    SUPPORTED(state_get(gpu, "ecc_mode"));
    *current = (u32)state_int(gpu, "ecc_mode", 0);
    *pending = (u32)state_int(gpu, "ecc_mode_pending", *current);
    return RC_SUCCESS;
}

MIG_OR_GPU(nvmlDeviceGetEccMode, ecc_mode(mig.gpu, current, pending),
           ecc_mode(gpu, current, pending), u32 *current, u32 *pending)

static const char *ecc_key(u32 type, u32 counter)
{
    static const char *const keys[2][2] = { { "ecc_vol_corr", "ecc_agg_corr" }, { "ecc_vol_unc", "ecc_agg_unc" } };

    return type < 2 && counter < 2 ? keys[type][counter] : NULL;
}

static int ecc_total(int gpu, u32 type, u32 counter, u64 *count)
{
    const char *key = ecc_key(type, counter);

    NEEDS(key && count);
    SUPPORTED(state_int(gpu, "ecc_mode", 0));
    *count = (u64)state_int(gpu, key, 0);
    return RC_SUCCESS;
}

static int gpu_ecc_total(int gpu, u32 type, u32 counter, u64 *count)
{
    SUPPORTED(!(mig_on(gpu) && counter == 0));
    return ecc_total(gpu, type, counter, count);
}

/* Errors since the load are counted by instance, and no fault of the simulator makes any there; those before it are the GPU's. */
static int mig_ecc(const struct mig_device *mig, u32 type, u32 counter, u64 *count)
{
    u64 unused;
    int rc = ecc_total(mig->gpu, type, counter, &unused);

    NEEDS(count);
    SUPPORTED(rc || counter == 0);
    *count = 0;
    return rc;
}

MIG_OR_GPU(nvmlDeviceGetTotalEccErrors, mig_ecc(&mig, type, counter, count),
           gpu_ecc_total(gpu, type, counter, count), u32 type, u32 counter, u64 *count)

/* The total is of all memories; what is not in SRAM is in the device memory. */
static int ecc_parts(int gpu, u32 type, u32 counter, u64 *sram, u64 *dram)
{
    static const char *const keys[2][2] = { { "sram_vol_corr", "sram_agg_corr" }, { "sram_vol_unc", "sram_agg_unc" } };
    u64 total = 0;
    int rc = ecc_total(gpu, type, counter, &total);

    if (rc)
        return rc;
    *sram = (u64)state_int(gpu, keys[type][counter], 0);
    *dram = total > *sram ? total - *sram : 0;
    return RC_SUCCESS;
}

/* Locations: 0 L1, 1 L2, 2 device memory, 3 register file, 4 texture, 5 shared, 6 CBU, 7 SRAM. */
static int ecc_of(int gpu, const struct mig_device *mig, u32 type, u32 counter, u32 location, u64 *count)
{
    u64 sram = 0, dram = 0;
    int rc;

    NEEDS(count);
    if (location > 7)
        return RC_INVALID_ARGUMENT;
    if (state_int(gpu, "ecc_sram", 1)) {
        SUPPORTED(location == 2 || location == 7);
    } else {
        /* Boards before Ampere count by memory, and of the convergence barrier unit what ECC could not correct. */
        SUPPORTED(location < 4 || (location == 6 && type == 1));
    }
    if (mig)
        return mig_ecc(mig, type, counter, count);
    SUPPORTED(!(mig_on(gpu) && counter == 0));
    rc = ecc_parts(gpu, type, counter, &sram, &dram);
    if (!rc)
        *count = location == 7 || (location == 1 && !state_int(gpu, "ecc_sram", 1)) ? sram : location == 2 ? dram : 0;
    return rc;
}

MIG_OR_GPU(nvmlDeviceGetMemoryErrorCounter, ecc_of(mig.gpu, &mig, type, counter, location, count),
           ecc_of(gpu, NULL, type, counter, location, count), u32 type, u32 counter, u32 location, u64 *count)

API int nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_v1_t *status)
{
    u32 version;

    DEVICE();
    NEEDS(status);
    version = status->version;
    if (version != STRUCT_VERSION(nvmlEccSramErrorStatus_v1_t, 1))
        return RC_ARGUMENT_VERSION;
    PRIVILEGED();
    SUPPORTED(state_int(gpu, "ecc_mode", 0) && state_int(gpu, "remap_supported", 0));
    memset(status, 0, sizeof(*status));
    status->version = version;
    status->volatileUncSecDed = (u64)state_int(gpu, "sram_vol_unc", 0);
    status->aggregateUncSecDed = (u64)state_int(gpu, "sram_agg_unc", 0);
    status->volatileCor = (u64)state_int(gpu, "sram_vol_corr", 0);
    status->aggregateCor = (u64)state_int(gpu, "sram_agg_corr", 0);
    status->aggregateUncBucketSm = status->aggregateUncSecDed;
    status->bThresholdExceeded = (u32)state_int(gpu, "sram_threshold_exceeded", 0);
    return RC_SUCCESS;
}

API int nvmlDeviceGetRemappedRows(nvmlDevice_t device, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failure)
{
    DEVICE();
    NEEDS(corrected && uncorrected && pending && failure);
    SUPPORTED(state_int(gpu, "remap_supported", 0) && !mig_instances_exist(gpu));
    *corrected = (u32)state_int(gpu, "remap_corr", 0);
    *uncorrected = (u32)state_int(gpu, "remap_unc", 0);
    *pending = (u32)state_int(gpu, "remap_pending", 0);
    *failure = (u32)state_int(gpu, "remap_failure", 0);
    return RC_SUCCESS;
}

API int nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
    DEVICE();
    NEEDS(values);
    SUPPORTED(state_int(gpu, "remap_supported", 0));
    values->max = (u32)state_int(gpu, "hist_max", 0);
    values->high = (u32)state_int(gpu, "hist_high", 0);
    values->partial = (u32)state_int(gpu, "hist_partial", 0);
    values->low = (u32)state_int(gpu, "hist_low", 0);
    values->none = (u32)state_int(gpu, "hist_none", 0);
    return RC_SUCCESS;
}

API int nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_v1_t *status)
{
    DEVICE();
    NEEDS(status);
    if (status->version != STRUCT_VERSION(nvmlRepairStatus_v1_t, 1))
        return RC_ARGUMENT_VERSION;
    SUPPORTED(state_int(gpu, "remap_supported", 0));
    status->bChannelRepairPending = (u32)state_int(gpu, "channel_repair_pending", 0);
    status->bTpcRepairPending = (u32)state_int(gpu, "tpc_repair_pending", 0);
    return RC_SUCCESS;
}

/* Boards that remap rows retire no pages. Causes: 0 several single-bit errors, 1 one double-bit error. */
static int retired_pages(int gpu, u32 cause, u32 *count, u64 *addresses, u64 *times)
{
    u32 pages;

    NEEDS(count);
    if (cause > 1)
        return RC_INVALID_ARGUMENT;
    SUPPORTED(!state_int(gpu, "remap_supported", 0) && state_get(gpu, "ecc_mode"));
    pages = (u32)state_int(gpu, cause ? "retired_dbe" : "retired_sbe", 0);
    if (*count < pages) {
        *count = pages;
        return RC_INSUFFICIENT_SIZE;
    }
    NEEDS(addresses || !pages);
    for (u32 i = 0; i < pages; i++) {
        addresses[i] = 0x10000ULL * (i + 1) + cause;
        if (times)
            times[i] = 1700000000ULL + i;
    }
    *count = pages;
    return RC_SUCCESS;
}

ANSWER(nvmlDeviceGetRetiredPages, retired_pages(gpu, cause, count, addresses, NULL), u32 cause, u32 *count,
        u64 *addresses)

API int nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, u32 *pending)
{
    DEVICE();
    NEEDS(pending);
    SUPPORTED(!state_int(gpu, "remap_supported", 0) && state_get(gpu, "ecc_mode"));
    *pending = (u32)state_int(gpu, "retired_pending", 0);
    return RC_SUCCESS;
}

/* ---- temperature, power, clocks, utilization ---- */

API int nvmlDeviceGetTemperature(nvmlDevice_t device, u32 sensor, u32 *temperature)
{
    DEVICE();
    if (sensor != 0)
        return RC_INVALID_ARGUMENT;
    return number(gpu, "temperature", temperature);
}

API int nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_v1_t *margin)
{
    DEVICE();
    NEEDS(margin);
    if (margin->version != STRUCT_VERSION(nvmlMarginTemperature_v1_t, 1))
        return RC_ARGUMENT_VERSION;
    SUPPORTED(state_int(gpu, "temperature_relative", 0) && state_get(gpu, "temperature_max"));
    margin->marginTemperature = (int)(state_int(gpu, "temperature_max", 0) - state_int(gpu, "temperature", 0));
    return RC_SUCCESS;
}

/* Thresholds: 0 shutdown, 1 slowdown, 2 memory maximum, 3 GPU maximum. */
API int nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, u32 threshold, u32 *temperature)
{
    static const char *const keys[] = { "temperature_shutdown", "temperature_slowdown", "temperature_memory_max",
                                        "temperature_max" };

    DEVICE();
    if (threshold > 7)
        return RC_INVALID_ARGUMENT;
    /* Deprecated from Ada on, for the margins of fields 193 to 196, and gone from some boards. */
    SUPPORTED(threshold < 4 && state_int(gpu, "temperature_thresholds", 1));
    return number(gpu, keys[threshold], temperature);
}

NUMBER(nvmlDeviceGetPowerUsage, "power_usage_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")

static long long power_limit(int gpu)
{
    return state_int(gpu, "power_limit_mw", state_int(gpu, "power_default_mw", 0));
}

VALUE(nvmlDeviceGetPowerManagementLimit, u32, (u32)power_limit(gpu))
VALUE(nvmlDeviceGetEnforcedPowerLimit, u32, (u32)power_limit(gpu))

API int nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, u32 *low, u32 *high)
{
    DEVICE();
    NEEDS(low && high);
    *low = (u32)state_int(gpu, "power_min_mw", 0);
    *high = (u32)state_int(gpu, "power_max_mw", 0);
    return RC_SUCCESS;
}

/* In millijoules since the driver was loaded. */
static u64 energy_used(int gpu)
{
    const char *loaded_at = state_loaded("time");
    double age = loaded_at ? (double)now_us() / 1e6 - strtod(loaded_at, NULL) : 0;

    return (u64)state_int(gpu, "energy_mj", 0) + (u64)((age > 0 ? age : 0) * (double)state_int(gpu, "power_usage_mw", 0));
}

API int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, u64 *energy)
{
    DEVICE();
    NEEDS(energy);
    SUPPORTED(state_get(gpu, "energy_mj"));
    *energy = energy_used(gpu);
    return RC_SUCCESS;
}

/* Clocks: 0 graphics, 1 SM, 2 memory, 3 video. */
static int clock_key(int gpu, const char *prefix, u32 type, u32 *clock)
{
    static const char *const types[] = { "graphics", "sm", "mem", "video" };
    char key[32];

    if (type > 3)
        return RC_INVALID_ARGUMENT;
    snprintf(key, sizeof(key), "%s_%s_mhz", prefix, types[type]);
    return number(gpu, key, clock);
}

/* A clock as it runs: locked clocks hold it between their limits. */
static int running_clock(int gpu, u32 type, u32 *clock)
{
    const char *kind = type == 2 ? "mem" : "gpu";
    char key[32];
    long long low, high;
    int rc = clock_key(gpu, "clock", type, clock);

    if (rc || type == 3)
        return rc;
    snprintf(key, sizeof(key), "locked_%s_min_mhz", kind);
    low = state_int(gpu, key, 0);
    snprintf(key, sizeof(key), "locked_%s_max_mhz", kind);
    high = state_int(gpu, key, 0);
    if (low && *clock < low)
        *clock = (u32)low;
    if (high && *clock > high)
        *clock = (u32)high;
    return RC_SUCCESS;
}

ANSWER(nvmlDeviceGetClockInfo, running_clock(gpu, type, clock), u32 type, u32 *clock)
ANSWER(nvmlDeviceGetMaxClockInfo, clock_key(gpu, "clock_max", type, clock), u32 type, u32 *clock)

API int nvmlDeviceGetApplicationsClock(nvmlDevice_t device, u32 type, u32 *clock)
{
    DEVICE();
    NOT_FROM(590);
    return clock_key(gpu, "clock_app", type, clock);
}

API int nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, u32 type, u32 *clock)
{
    DEVICE();
    NOT_FROM(590);
    return clock_key(gpu, "clock_default", type, clock);
}

VALUE(nvmlDeviceGetCurrentClocksThrottleReasons, u64, (u64)state_int(gpu, "clocks_event_reasons", 0))
VALUE(nvmlDeviceGetCurrentClocksEventReasons, u64, (u64)state_int(gpu, "clocks_event_reasons", 0))

/* Policies: 0 power, 1 thermal, 2 sync boost, 3 board limit, 4 low utilization, 5 reliability, 10 and 11 the sums. */
static const char *const violation_keys[] = { "violation_power_ns", "violation_thermal_ns", "violation_sync_boost_ns", "violation_board_limit_ns",
                                              "violation_low_utilization_ns", "violation_reliability_ns" };

static u64 violation(int gpu, u32 policy)
{
    u64 sum = 0;

    if (policy < 6)
        return (u64)state_int(gpu, violation_keys[policy], 0);
    for (u32 i = 0; i < 6; i++)
        sum += (u64)state_int(gpu, violation_keys[i], 0);
    return sum;
}

API int nvmlDeviceGetViolationStatus(nvmlDevice_t device, u32 policy, nvmlViolationTime_t *time)
{
    DEVICE();
    NEEDS(time);
    if (policy > 5 && policy != 10 && policy != 11)
        return RC_INVALID_ARGUMENT;
    time->referenceTime = (u64)now_us();
    time->violationTime = violation(gpu, policy);
    return RC_SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    DEVICE();
    NEEDS(utilization);
    SUPPORTED(!mig_on(gpu));
    utilization->gpu = (u32)state_int(gpu, "utilization_gpu", 0);
    utilization->memory = (u32)state_int(gpu, "utilization_memory", 0);
    return RC_SUCCESS;
}

/* ---- PCI Express ---- */

NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")

/* What the GPU itself could do, whatever the slot can. */
API int nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, u32 *generation)
{
    DEVICE();
    return number(gpu, state_get(gpu, "pcie_gen_device_max") ? "pcie_gen_device_max" : "pcie_gen_max", generation);
}

NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen_current")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width_current")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replay")

/* ---- NVLink, peers, fabric ---- */

static int listed(const char *list, u32 wanted)
{
    while (list && *list) {
        char *end;
        unsigned long item = strtoul(list, &end, 10);

        if (end == list) {
            list++;
            continue;
        }
        if (item == wanted)
            return 1;
        list = end;
    }
    return 0;
}

static int link_check(int gpu, u32 link)
{
    long long count = state_int(gpu, "nvlink_count", 0);

    SUPPORTED(count > 0);
    return link < count ? RC_SUCCESS : RC_INVALID_ARGUMENT;
}

static int switched(void)
{
    const char *switches = state_node("node", "nvswitches");

    return switches && strtol(switches, NULL, 10) > 0;
}

/* Between GPUs without a switch, the links of each are shared out to the others in rounds: the one that link leads to, and the link
 * of that one that leads back. What is left over leads nowhere. */
static int link_other_end(int gpu, u32 link, int *other, u32 *back)
{
    u32 others = (u32)state_gpu_count() - 1, distance, round;

    if (switched() || state_int(gpu, "nvlink_remote_hidden", 0) || !others || state_gpu_count() < 2)
        return 0;
    round = link / others;
    distance = link % others + 1;
    if ((round + 1) * others > state_int(gpu, "nvlink_count", 0))
        return 0;
    *other = (int)(((u32)gpu + distance) % (others + 1));
    *back = round * others + others - distance;
    return 1;
}

/* A link is down for both of its ends. */
static u32 link_up(int gpu, u32 link)
{
    u32 back;
    int other;

    if (listed(state_get(gpu, "nvlink_down"), link))
        return 0;
    return !link_other_end(gpu, link, &other, &back) || !listed(state_get(other, "nvlink_down"), back);
}

#define LINK()                         \
    int checked;                       \
    DEVICE();                          \
    checked = link_check(gpu, link);   \
    if (checked)                       \
    return checked

API int nvmlDeviceGetNvLinkState(nvmlDevice_t device, u32 link, u32 *active)
{
    LINK();
    NEEDS(active);
    *active = link_up(gpu, link);
    return RC_SUCCESS;
}

API int nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, u32 link, u32 *version)
{
    LINK();
    return number(gpu, "nvlink_version", version);
}

/* Counters: 0 replay, 1 recovery, 2 CRC of flow control, 3 CRC of data, 4 ECC of data. A value is one number for every link, or
 * LINK:NUMBER for some. */
static u64 link_errors(int gpu, u32 link, u32 counter)
{
    static const char *const keys[] = { "nvlink_replay", "nvlink_recovery", "nvlink_crc_flit", "nvlink_crc_data", "nvlink_ecc_data" };
    const char *value = state_get(gpu, keys[counter]);

    if (!value || !strchr(value, ':'))
        return (u64)state_int(gpu, keys[counter], 0);
    while (*value) {
        char *end;
        unsigned long long first = strtoull(value, &end, 10);

        if (end == value) {
            value++;
            continue;
        }
        value = end;
        if (*value == ':') {
            unsigned long long count = strtoull(value + 1, &end, 10);

            value = end;
            if (first == link)
                return count;
        }
    }
    return 0;
}

API int nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, u32 link, u32 counter, u64 *value)
{
    LINK();
    NEEDS(value);
    if (counter > 4)
        return RC_INVALID_ARGUMENT;
    /* NVLink 5 counts in other ways: fields 206 to 222. */
    SUPPORTED(state_int(gpu, "nvlink_version", 0) < 5);
    *value = link_errors(gpu, link, counter);
    return RC_SUCCESS;
}

static int link_remote(int gpu, u32 link, nvmlPciInfo_t *pci)
{
    const char *switches = state_node("node", "nvswitches");
    long count = switches ? strtol(switches, NULL, 10) : 0;
    u32 function, back;
    const char *address;
    char key[32];
    int other;

    NEEDS(pci);
    SUPPORTED(link_up(gpu, link) && !state_int(gpu, "nvlink_remote_hidden", 0));
    memset(pci, 0, sizeof(*pci));
    if (count > 0) {
        snprintf(key, sizeof(key), "nvswitch %ld", (long)link % count);
        address = state_node(key, "pci");
        pci->pciDeviceId = (u32)strtoul(state_node(key, "pci_device_id") ? state_node(key, "pci_device_id") : "0", NULL, 0);
    } else {
        SUPPORTED(link_other_end(gpu, link, &other, &back));
        address = state_get(other, "pci");
        pci->pciDeviceId = (u32)state_int(other, "pci_device_id", 0);
        pci->pciSubSystemId = (u32)state_int(other, "pci_subsystem_id", 0);
    }
    if (!address || sscanf(address, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function) < 3)
        return RC_UNKNOWN;
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    return RC_SUCCESS;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, u32 link, nvmlPciInfo_t *pci)
{
    LINK();
    return link_remote(gpu, link, pci);
}

/* Kinds: 0 GPU, 2 switch. */
API int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, u32 link, u32 *kind)
{
    u32 back;
    int other;

    LINK();
    NEEDS(kind);
    SUPPORTED(link_up(gpu, link));
    if (switched() || state_int(gpu, "nvlink_remote_hidden", 0)) {
        *kind = 2;
        return RC_SUCCESS;
    }
    SUPPORTED(link_other_end(gpu, link, &other, &back));
    *kind = 0;
    return RC_SUCCESS;
}

/* Capabilities asked for: 0 read, 1 write, 2 NVLink, 3 atomics, 4 PCI. Answers: 0 ok, 5 not supported. A broken GPU reaches none,
 * or not those that p2p_broken_with lists. */
static int peer_broken(int gpu, int other)
{
    return state_int(gpu, "p2p_broken", 0) || listed(state_get(gpu, "p2p_broken_with"), (u32)other);
}

API int nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, u32 capability, u32 *status)
{
    int other = gpu_of(peer), broken, linked;

    DEVICE();
    NEEDS(status);
    if (other < 0 || capability > 4)
        return RC_INVALID_ARGUMENT;
    linked = state_int(gpu, "nvlink_count", 0) > 0;
    broken = peer_broken(gpu, other) || peer_broken(other, gpu);
    *status = broken || (!linked && capability != 4) ? 5 : 0;
    return RC_SUCCESS;
}

/* The cluster of a machine without a rack-wide fabric is all zero; fabric_cluster holds it as hexadecimal digits otherwise. */
static void cluster_uuid(int gpu, unsigned char out[16])
{
    const char *value = state_get(gpu, "fabric_cluster");
    int digits = 0;

    memset(out, 0, 16);
    for (; value && *value && digits < 32; value++) {
        int digit = *value >= '0' && *value <= '9' ? *value - '0' : *value >= 'a' && *value <= 'f' ? *value - 'a' + 10 : -1;

        if (digit < 0)
            continue;
        out[digits / 2] = (unsigned char)(out[digits / 2] << 4 | digit);
        digits++;
    }
}

API int nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    DEVICE();
    NEEDS(info);
    SUPPORTED(state_get(gpu, "fabric_state"));
    memset(info, 0, sizeof(*info));
    cluster_uuid(gpu, info->clusterUuid);
    info->status = (u32)state_int(gpu, "fabric_status", 0);
    info->cliqueId = (u32)state_int(gpu, "fabric_clique", 0);
    info->state = (unsigned char)state_int(gpu, "fabric_state", 0);
    return RC_SUCCESS;
}

API int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info)
{
    u32 version;

    DEVICE();
    NEEDS(info);
    version = info->version;
    if (version != STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2) &&
        (version != STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3) || state_major(state_loaded_version()) < 570))
        return RC_ARGUMENT_VERSION;
    SUPPORTED(state_get(gpu, "fabric_state"));
    memset(info, 0, version == STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2) ? sizeof(nvmlGpuFabricInfo_v2_t) : sizeof(*info));
    info->version = version;
    cluster_uuid(gpu, info->clusterUuid);
    info->status = (u32)state_int(gpu, "fabric_status", 0);
    info->cliqueId = (u32)state_int(gpu, "fabric_clique", 0);
    info->state = (unsigned char)state_int(gpu, "fabric_state", 0);
    info->healthMask = (u32)state_int(gpu, "fabric_health_mask", 0);
    if (version == STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3))
        info->healthSummary = (unsigned char)state_int(gpu, "fabric_health_summary", 1);
    return RC_SUCCESS;
}

/* ---- modes ---- */

VALUE(nvmlDeviceGetPersistenceMode, u32,
      state_get(gpu, "persistence") ? (u32)state_int(gpu, "persistence", 0) : (u32)state_persistenced_mode())

/* A mode that was set before MIG mode came on does not hold in its instances. */
static int compute_mode(int gpu, const struct mig_device *mig, u32 *mode)
{
    NEEDS(mode);
    *mode = mig ? 0 : (u32)state_int(gpu, "compute_mode", 0);
    return RC_SUCCESS;
}

MIG_OR_GPU(nvmlDeviceGetComputeMode, compute_mode(-1, &mig, mode), compute_mode(gpu, NULL, mode), u32 *mode)

VALUE(nvmlDeviceGetVirtualizationMode, u32, (u32)state_int(gpu, "virtualization_mode", 0))

API int nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_v1_t *mode)
{
    DEVICE();
    NEEDS(mode);
    if (mode->version != STRUCT_VERSION(nvmlDeviceAddressingMode_v1_t, 1))
        return RC_ARGUMENT_VERSION;
    mode->value = (u32)state_int(gpu, "addressing_mode", 0);
    return RC_SUCCESS;
}

static int gsp_runs(int gpu)
{
    const char *gsp = state_loaded("gsp");

    return state_int(gpu, "gsp_supported", 0) && gsp && !strcmp(gsp, "loaded") && !state_int(gpu, "gsp_off", 0);
}

/* The caller's buffer holds 64 characters. */
API int nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    DEVICE();
    SUPPORTED(gsp_runs(gpu));
    return text(version, 64, state_get(gpu, "gsp_version") ? state_get(gpu, "gsp_version") : state_loaded_version());
}

API int nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, u32 *enabled, u32 *fallback)
{
    DEVICE();
    NEEDS(enabled && fallback);
    SUPPORTED(state_int(gpu, "gsp_supported", 0));
    *enabled = (u32)gsp_runs(gpu);
    *fallback = 1;
    return RC_SUCCESS;
}

/* ---- processes ---- */

/* Those of a GPU, or of one MIG device of it. */
static int processes(int gpu, const struct mig_device *mig, char type, u32 *count, void *out, size_t item)
{
    struct state_process list[128];
    int all, found = 0;

    NEEDS(count);
    all = state_processes(gpu, type, list, 128);
    for (int i = 0; i < all && i < 128; i++)
        if (!mig || mig_has(mig, &list[i]))
            list[found++] = list[i];
    if (!found) {
        *count = 0;
        return RC_SUCCESS;
    }
    if (*count < (u32)found || !out) {
        *count = (u32)found;
        return RC_INSUFFICIENT_SIZE;
    }
    for (int i = 0; i < found; i++) {
        char *place = (char *)out + (size_t)i * item;

        if (item == sizeof(nvmlProcessInfo_v1_t)) {
            nvmlProcessInfo_v1_t process = { .pid = list[i].pid, .usedGpuMemory = list[i].used_bytes };

            memcpy(place, &process, sizeof(process));
        } else {
            nvmlProcessInfo_v3_t process = { .pid = list[i].pid, .usedGpuMemory = list[i].used_bytes,
                                             .gpuInstanceId = (u32)list[i].gpu_instance, .computeInstanceId = (u32)list[i].compute_instance };

            memcpy(place, &process, sizeof(process));
        }
    }
    *count = (u32)found;
    return RC_SUCCESS;
}

#define PROCESSES(function, type, structure)                                              \
    MIG_OR_GPU(function, processes(mig.gpu, &mig, type, count, infos, sizeof(structure)), \
               processes(gpu, NULL, type, count, infos, sizeof(structure)), u32 *count, structure *infos)

PROCESSES(nvmlDeviceGetComputeRunningProcesses, 'C', nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 'C', nvmlProcessInfo_v3_t)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 'G', nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G', nvmlProcessInfo_v3_t)

/* ---- field values ---- */

/* A number of the type that the field has. */
static int field_value(nvmlFieldValue_t *field, u32 type, long long value)
{
    field->valueType = type;
    if (type == TYPE_SINT)
        field->value.siVal = (int)value;
    else if (type == TYPE_UINT)
        field->value.uiVal = (u32)value;
    else
        field->value.ullVal = (u64)value;
    return RC_SUCCESS;
}

static int field_number(int gpu, const char *key, u32 type, nvmlFieldValue_t *field)
{
    const char *value = state_get(gpu, key);

    SUPPORTED(value && *value);
    return field_value(field, type, strtoll(value, NULL, 0));
}

/* NVLink 5 counts by fields. */
static int field_link(int gpu, nvmlFieldValue_t *field)
{
    int rc = link_check(gpu, field->scopeId);
    u32 counter = field->fieldId == FI_NVLINK5_RECOVERY ? 1 : field->fieldId == FI_NVLINK5_SYMBOL_ERRORS ? 2 : 3;

    if (rc)
        return rc;
    SUPPORTED(state_int(gpu, "nvlink_version", 0) >= 5);
    return field_value(field, TYPE_ULONGLONG,
                       field->fieldId == FI_NVLINK5_RECOVERY_FAILED ? 0 : (long long)link_errors(gpu, field->scopeId, counter));
}

/* A threshold as the margin that is left when it is reached: 0 at the limit itself, less beyond. */
static int field_margin(int gpu, const char *key, const char *limit, nvmlFieldValue_t *field)
{
    SUPPORTED(state_int(gpu, "temperature_relative", 0) && state_get(gpu, limit) && state_get(gpu, key));
    return field_value(field, TYPE_SINT, state_int(gpu, limit, 0) - state_int(gpu, key, 0));
}

/* nvmlDeviceGpuRecoveryAction_t: 0 none, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset. */
#define RECOVERY_DRAIN_AND_RESET 4

static int field_recovery(int gpu, int remaps, nvmlFieldValue_t *field)
{
    long long action = state_int(gpu, "recovery_action", 0);

    /* Drivers before R570 do not know the field. */
    SUPPORTED(state_major(state_loaded_version()) >= 570 && state_get(gpu, "recovery_action"));
    /* A row that waits for its remapping has taken a page out of use: drain and reset. */
    if (!action && remaps && state_int(gpu, "remap_pending", 0))
        action = RECOVERY_DRAIN_AND_RESET;
    return field_value(field, TYPE_UINT, action);
}

/* The fields that the collection asks for; any other one is not supported. */
static int field(int gpu, nvmlFieldValue_t *field)
{
    static const char *const rows[] = { "remap_corr", "remap_unc", "remap_pending", "remap_failure" };
    int remaps = state_int(gpu, "remap_supported", 0) != 0;

    switch (field->fieldId) {
    case FI_MEMORY_TEMP:
        return field_number(gpu, "temperature_memory", TYPE_UINT, field);
    case FI_PCIE_REPLAY_COUNTER:
        return field_number(gpu, "pcie_replay", TYPE_UINT, field);
    case FI_NVLINK_LINK_COUNT:
        SUPPORTED(state_int(gpu, "nvlink_count", 0));
        return field_number(gpu, "nvlink_count", TYPE_UINT, field);
    case FI_RETIRED_SBE:
    case FI_RETIRED_DBE:
        SUPPORTED(!remaps && state_get(gpu, "ecc_mode"));
        return field_value(field, TYPE_UINT, state_int(gpu, field->fieldId == FI_RETIRED_SBE ? "retired_sbe" : "retired_dbe", 0));
    case FI_REMAPPED_COR:
    case FI_REMAPPED_UNC:
    case FI_REMAPPED_PENDING:
    case FI_REMAPPED_FAILURE:
        SUPPORTED(remaps);
        /* As recorded of driver 580; of which type they are with others is not known. */
        return field_number(gpu, rows[field->fieldId - FI_REMAPPED_COR],
                            state_major(state_loaded_version()) >= 580 ? TYPE_ULONGLONG : TYPE_UINT, field);
    case FI_NVLINK5_RECOVERY_FAILED:
    case FI_NVLINK5_RECOVERY:
    case FI_NVLINK5_EFFECTIVE_ERRORS:
    case FI_NVLINK5_SYMBOL_ERRORS:
        return field_link(gpu, field);
    case FI_TEMPERATURE_SHUTDOWN_TLIMIT:
        return field_margin(gpu, "temperature_shutdown", "temperature_max", field);
    case FI_TEMPERATURE_SLOWDOWN_TLIMIT:
        return field_margin(gpu, "temperature_slowdown", "temperature_max", field);
    case FI_TEMPERATURE_MEM_MAX_TLIMIT:
        return field_margin(gpu, "temperature_memory_max", "temperature_memory_max", field);
    case FI_TEMPERATURE_GPU_MAX_TLIMIT:
        return field_margin(gpu, "temperature_max", "temperature_max", field);
    case FI_GPU_RECOVERY_ACTION:
        return field_recovery(gpu, remaps, field);
    default:
        SUPPORTED(field->fieldId >= FI_PERF_POLICY_POWER && field->fieldId <= FI_PERF_POLICY_RELIABILITY);
        return field_value(field, TYPE_ULONGLONG, (long long)violation(gpu, field->fieldId - FI_PERF_POLICY_POWER));
    }
}

API int nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    DEVICE();
    NEEDS(values && count > 0);
    for (int i = 0; i < count; i++) {
        char symbol[32];
        int rc;

        /* "field.144" names one field where a function's name stands otherwise. */
        snprintf(symbol, sizeof(symbol), "field.%u", values[i].fieldId);
        rc = state_error(gpu, symbol, 1);
        values[i].timestamp = now_us();
        values[i].latencyUsec = 0;
        values[i].valueType = TYPE_UINT;
        values[i].value.ullVal = 0;
        values[i].nvmlReturn = (u32)(rc >= 0 ? rc : field(gpu, &values[i]));
    }
    return RC_SUCCESS;
}

