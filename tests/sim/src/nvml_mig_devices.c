/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG: the devices that applications see, one for each compute instance. */
#define _GNU_SOURCE
#include "nvml_mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char mig_slots[GPUSIM_MAX_GPUS * GI_IDS * CI_IDS];

static nvmlDevice_t mig_handle(int gpu, u32 gi, u32 ci)
{
    return &mig_slots[((u32)gpu * GI_IDS + gi) * CI_IDS + ci];
}

int mig_device_of(nvmlDevice_t device, struct mig_device *mig)
{
    char *slot = device;
    struct layout layout;
    long place;

    if (slot < mig_slots || slot >= mig_slots + sizeof(mig_slots))
        return 0;
    place = slot - mig_slots;
    mig->gpu = (int)(place / (GI_IDS * CI_IDS));
    mig->gpu_instance = (int)(place / CI_IDS % GI_IDS);
    mig->compute_instance = (int)(place % CI_IDS);
    read_layout(mig->gpu, &layout);
    return ci_in(&layout, (u32)mig->gpu_instance, (u32)mig->compute_instance) != NULL;
}

/* The same places of the same GPU have the same UUID each time. */
int mig_uuid(const struct mig_device *mig, char *out, u32 size)
{
    const char *uuid = state_get(mig->gpu, "uuid");
    u64 hash = 14695981039346656037ULL, other;
    char buffer[64];

    for (const char *p = uuid; p && *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211ULL;
    hash = (hash ^ (u64)mig->gpu_instance) * 1099511628211ULL;
    hash = (hash ^ (u64)mig->compute_instance) * 1099511628211ULL;
    other = (hash ^ (hash >> 29)) * 1099511628211ULL;
    snprintf(buffer, sizeof(buffer), "MIG-%08x-%04x-%04x-%04x-%012llx", (u32)(hash >> 32), (u32)(hash >> 16) & 0xffff,
             0x5000 | ((u32)hash & 0xfff), 0x8000 | ((u32)(other >> 48) & 0x3fff), other & 0xffffffffffffULL);
    return text(out, size, buffer);
}

static int mig_parts(const struct mig_device *mig, struct gpu_instance *gi, struct compute_instance *ci)
{
    struct layout layout;
    struct gpu_instance *found_gi;
    struct compute_instance *found_ci;

    read_layout(mig->gpu, &layout);
    found_gi = gi_in(&layout, (u32)mig->gpu_instance);
    found_ci = ci_in(&layout, (u32)mig->gpu_instance, (u32)mig->compute_instance);
    NEEDS(found_gi && found_ci);
    *gi = *found_gi;
    *ci = *found_ci;
    return RC_SUCCESS;
}

int mig_name(const struct mig_device *mig, char *out, u32 size)
{
    struct gpu_instance gi;
    struct compute_instance ci;
    char part[48], name[160];
    int rc = mig_parts(mig, &gi, &ci);

    if (rc)
        return rc;
    ci_name(&gi, ci.size, part, sizeof(part));
    snprintf(name, sizeof(name), "%s %s", state_get(mig->gpu, "name") ? state_get(mig->gpu, "name") : "", part);
    return text(out, size, name);
}

int mig_memory(const struct mig_device *mig, u64 *total)
{
    struct gpu_instance gi;
    struct compute_instance ci;
    int rc = mig_parts(mig, &gi, &ci);

    if (!rc)
        *total = (u64)gi.profile.memory_mib << 20;
    return rc;
}

/* What all instances share of the window to the memory, by their memory slices. */
int mig_bar1(const struct mig_device *mig, u64 *total)
{
    struct gpu_instance gi;
    struct compute_instance ci;
    int rc = mig_parts(mig, &gi, &ci);
    long long shared = state_int(mig->gpu, "mig_bar1_mib", state_int(mig->gpu, "bar1_total_mib", 0) - 1);

    if (!rc)
        *total = (u64)(shared * gi.profile.size / state_int(mig->gpu, "mig_memory_slices", 8)) << 20;
    return rc;
}

int mig_has(const struct mig_device *mig, const struct state_process *process)
{
    return process->gpu_instance == mig->gpu_instance && process->compute_instance == mig->compute_instance;
}

nvmlDevice_t mig_with_uuid(const char *uuid)
{
    for (int gpu = 0; uuid && gpu < state_gpu_count(); gpu++) {
        struct layout layout;

        read_layout(gpu, &layout);
        for (int i = 0; i < layout.compute_instances; i++) {
            struct mig_device mig = { gpu, (int)layout.ci[i].gpu_instance, (int)layout.ci[i].id };
            char found[64];

            if (!mig_uuid(&mig, found, sizeof(found)) && !strcmp(found, uuid))
                return mig_handle(gpu, layout.ci[i].gpu_instance, layout.ci[i].id);
        }
    }
    return NULL;
}

API int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, u32 *count)
{
    DEVICE();
    NEEDS(count);
    *count = mig_on(gpu) ? (u32)state_int(gpu, "mig_max", 7) : 0;
    return RC_SUCCESS;
}

static int by_ids(const void *left, const void *right)
{
    const struct compute_instance *a = left, *b = right;

    return a->gpu_instance != b->gpu_instance ? (int)a->gpu_instance - (int)b->gpu_instance : (int)a->id - (int)b->id;
}

int mig_index(const struct mig_device *mig, u32 *index)
{
    struct layout layout;

    NEEDS(index);
    read_layout(mig->gpu, &layout);
    qsort(layout.ci, (size_t)layout.compute_instances, sizeof(*layout.ci), by_ids);
    for (int i = 0; i < layout.compute_instances; i++)
        if (layout.ci[i].gpu_instance == (u32)mig->gpu_instance && layout.ci[i].id == (u32)mig->compute_instance) {
            *index = (u32)i;
            return RC_SUCCESS;
        }
    return RC_INVALID_ARGUMENT;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, u32 index, nvmlDevice_t *mig)
{
    struct layout layout;

    DEVICE();
    NEEDS(mig);
    SUPPORTED(state_int(gpu, "mig_supported", 0));
    if (index >= (u32)state_int(gpu, "mig_max", 7))
        return RC_INVALID_ARGUMENT;
    read_layout(gpu, &layout);
    if (index >= (u32)layout.compute_instances)
        return RC_NOT_FOUND;
    qsort(layout.ci, (size_t)layout.compute_instances, sizeof(*layout.ci), by_ids);
    *mig = mig_handle(gpu, layout.ci[index].gpu_instance, layout.ci[index].id);
    return RC_SUCCESS;
}

/* A call that only MIG devices answer. */
#define MIG_DEVICE()                                           \
    struct mig_device mig;                                     \
    SYSTEM();                                                  \
    if (!mig_device_of(device, &mig))                          \
        return gpu_of(device) >= 0 ? RC_NOT_SUPPORTED : RC_INVALID_ARGUMENT

/* One for which a GPU's handle is none (driver 580). */
#define MIG_DEVICE_ALONE()                     \
    struct mig_device mig;                     \
    SYSTEM();                                  \
    NEEDS(mig_device_of(device, &mig))

API int nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, u32 *id)
{
    MIG_DEVICE_ALONE();
    NEEDS(id);
    *id = (u32)mig.gpu_instance;
    return RC_SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, u32 *id)
{
    MIG_DEVICE_ALONE();
    NEEDS(id);
    *id = (u32)mig.compute_instance;
    return RC_SUCCESS;
}

API int nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    struct gpu_instance gi;
    struct compute_instance ci;
    int rc;

    MIG_DEVICE();
    NEEDS(attributes);
    rc = mig_parts(&mig, &gi, &ci);
    if (rc)
        return rc;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = ci_multiprocessors(mig.gpu, &gi, ci.size), SHARED_ENGINES(gi.profile),
        .gpuInstanceSliceCount = gi.profile.slices, .computeInstanceSliceCount = ci.size,
        .memorySizeMB = gi.profile.memory_mib
    };
    return RC_SUCCESS;
}

