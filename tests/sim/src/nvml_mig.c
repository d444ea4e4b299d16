/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG: the mode, GPU instances, compute instances, and the devices that applications see.
 *
 * A GPU's instances are two values among the settings of this driver load, as they are lost with the driver: mig_gpu_instances holds
 * PROFILE@START for each GPU instance, mig_compute_instances holds GI/CI=PROFILE@START. A model's value
 * mig_profile_ID = INDEX SLICES MEMORY_SLICES COUNT PLACEMENTS MULTIPROCESSORS NAME describes a profile. */
#define _GNU_SOURCE
#include "nvml_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_SLICES 8
#define COMPUTE_SLICES 7
#define GI_IDS 16
#define CI_IDS 8
#define LIST_SIZE 512

static char gi_slots[GPUSIM_MAX_GPUS * GI_IDS];
static char ci_slots[GPUSIM_MAX_GPUS * GI_IDS * CI_IDS];
static char mig_slots[GPUSIM_MAX_GPUS * GI_IDS * CI_IDS];

struct profile {
    u32 id, index, slices, memory, count, placements, multiprocessors;
    char name[32];
};

struct gpu_instance {
    u32 id, start;
    struct profile profile;
};

struct compute_instance {
    u32 gpu_instance, id, profile, start, size;
};

struct layout {
    int gpu_instances, compute_instances;
    struct gpu_instance gi[GI_IDS];
    struct compute_instance ci[GI_IDS * CI_IDS];
};

static const u32 profile_ids[] = { 0, 5, 9, 14, 15, 19, 20 };
static const u32 ci_slices[] = { 1, 2, 3, 4, 7 };
#define CI_PROFILES (sizeof(ci_slices) / sizeof(*ci_slices))

static int profile_of(int gpu, u32 id, struct profile *profile)
{
    char key[32];
    const char *value;

    snprintf(key, sizeof(key), "mig_profile_%u", id);
    value = state_get(gpu, key);
    memset(profile, 0, sizeof(*profile));
    profile->id = id;
    return value && sscanf(value, "%u %u %u %u %u %u %31s", &profile->index, &profile->slices, &profile->memory, &profile->count,
                           &profile->placements, &profile->multiprocessors, profile->name) == 7;
}

static int profile_at(int gpu, u32 index, struct profile *profile)
{
    for (size_t i = 0; i < sizeof(profile_ids) / sizeof(*profile_ids); i++)
        if (profile_of(gpu, profile_ids[i], profile) && profile->index == index)
            return 1;
    return 0;
}

static u64 memory_mb(int gpu, const struct profile *profile)
{
    return (u64)state_int(gpu, "memory_total_mib", 0) * profile->memory / MEMORY_SLICES;
}

/* Where a profile may start, by its number; whole-GPU profiles at 0 only. */
static u32 placement(const struct profile *profile, u32 number_of_it)
{
    return number_of_it * profile->memory;
}

/* One number for each place in the tree of placements, as the driver numbers instances. */
static u32 instance_id(const struct profile *profile, u32 start)
{
    switch (profile->memory) {
    case 8:
        return 0;
    case 4:
        return 1 + start / 4;
    case 2:
        return 3 + start / 2;
    default:
        return 7 + start;
    }
}

static void read_layout(int gpu, struct layout *layout)
{
    const char *list = state_get(gpu, "mig_gpu_instances");
    u32 values[4];
    int used;

    memset(layout, 0, sizeof(*layout));
    if (!mig_on(gpu))
        return;
    while (list && sscanf(list, " %u@%u%n", &values[0], &values[1], &used) == 2 && layout->gpu_instances < GI_IDS) {
        struct gpu_instance *gi = &layout->gi[layout->gpu_instances];

        list += used;
        if (!profile_of(gpu, values[0], &gi->profile))
            continue;
        gi->start = values[1];
        gi->id = instance_id(&gi->profile, gi->start);
        layout->gpu_instances++;
    }
    list = state_get(gpu, "mig_compute_instances");
    while (list && sscanf(list, " %u/%u=%u@%u%n", &values[0], &values[1], &values[2], &values[3], &used) == 4 &&
           layout->compute_instances < GI_IDS * CI_IDS) {
        struct compute_instance *ci = &layout->ci[layout->compute_instances];

        list += used;
        if (values[2] >= CI_PROFILES)
            continue;
        *ci = (struct compute_instance){ values[0], values[1], values[2], values[3], ci_slices[values[2]] };
        layout->compute_instances++;
    }
}

static int write_layout(int gpu, const struct layout *layout)
{
    char list[LIST_SIZE] = "";
    size_t used = 0;
    int rc;

    for (int i = 0; i < layout->gpu_instances; i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u@%u", i ? " " : "", layout->gi[i].profile.id, layout->gi[i].start);
    rc = put_text(gpu, "mig_gpu_instances", list, 0);
    used = 0;
    list[0] = '\0';
    for (int i = 0; i < layout->compute_instances; i++) {
        const struct compute_instance *ci = &layout->ci[i];

        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u/%u=%u@%u", i ? " " : "", ci->gpu_instance, ci->id, ci->profile, ci->start);
    }
    return rc ? rc : put_text(gpu, "mig_compute_instances", list, 0);
}

static struct gpu_instance *gi_in(struct layout *layout, u32 id)
{
    for (int i = 0; i < layout->gpu_instances; i++)
        if (layout->gi[i].id == id)
            return &layout->gi[i];
    return NULL;
}

static struct compute_instance *ci_in(struct layout *layout, u32 gi, u32 id)
{
    for (int i = 0; i < layout->compute_instances; i++)
        if (layout->ci[i].gpu_instance == gi && layout->ci[i].id == id)
            return &layout->ci[i];
    return NULL;
}

int mig_on(int gpu)
{
    return state_int(gpu, "mig_supported", 0) && state_int(gpu, "mig_mode", 0);
}

int mig_instances_exist(int gpu)
{
    struct layout layout;

    read_layout(gpu, &layout);
    return layout.gpu_instances > 0;
}

/* ---- the mode ---- */

API int nvmlDeviceGetMigMode(nvmlDevice_t device, u32 *current, u32 *pending)
{
    DEVICE();
    NEEDS(current && pending);
    SUPPORTED(state_int(gpu, "mig_supported", 0));
    *current = (u32)state_int(gpu, "mig_mode", 0);
    *pending = (u32)state_int(gpu, "mig_mode_pending", *current);
    return RC_SUCCESS;
}

/* A busy GPU keeps its mode until the next reset; where the InfoROM holds no MIG bit, a driver load forgets it. The change resets the
 * GPU, and no instance outlives that. */
API int nvmlDeviceSetMigMode(nvmlDevice_t device, u32 mode, int *activation)
{
    struct layout empty = { 0 };
    struct state_process process;
    int persistent, rc;

    DEVICE();
    NEEDS(activation);
    SUPPORTED(state_int(gpu, "mig_supported", 0));
    if (mode > 1)
        return RC_INVALID_ARGUMENT;
    persistent = state_int(gpu, "mig_persistent", 0) != 0;
    PRIVILEGED();
    rc = put_number(gpu, "mig_mode_pending", mode, persistent);
    if (rc)
        return rc;
    *activation = RC_SUCCESS;
    if (mode == state_int(gpu, "mig_mode", 0))
        return RC_SUCCESS;
    if (state_processes(gpu, 'C', &process, 1)) {
        *activation = RC_IN_USE;
        return RC_SUCCESS;
    }
    rc = mig_instances_exist(gpu) ? write_layout(gpu, &empty) : RC_SUCCESS;
    return rc ? rc : put_number(gpu, "mig_mode", mode, persistent);
}

/* ---- GPU instances ---- */

#define MIG()                 \
    DEVICE();                 \
    SUPPORTED(mig_on(gpu))

API int nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, u32 index, nvmlGpuInstanceProfileInfo_t *info)
{
    struct profile profile;

    DEVICE();
    NEEDS(info);
    SUPPORTED(state_int(gpu, "mig_supported", 0) && profile_at(gpu, index, &profile));
    *info = (nvmlGpuInstanceProfileInfo_t){ .id = profile.id, .sliceCount = profile.slices, .instanceCount = profile.count,
                                            .multiprocessorCount = profile.multiprocessors, .copyEngineCount = profile.slices,
                                            .memorySizeMB = memory_mb(gpu, &profile) };
    return RC_SUCCESS;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, u32 index, void *info)
{
    struct profile profile;
    u32 version;

    DEVICE();
    NEEDS(info);
    memcpy(&version, info, sizeof(version));
    if (version != STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2) && version != STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3))
        return RC_ARGUMENT_VERSION;
    SUPPORTED(state_int(gpu, "mig_supported", 0) && profile_at(gpu, index, &profile));
    if (version == STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        nvmlGpuInstanceProfileInfo_v2_t filled = { .version = version, .id = profile.id, .sliceCount = profile.slices,
                                                   .instanceCount = profile.count, .multiprocessorCount = profile.multiprocessors,
                                                   .copyEngineCount = profile.slices, .memorySizeMB = memory_mb(gpu, &profile) };

        snprintf(filled.name, sizeof(filled.name), "MIG %s", profile.name);
        memcpy(info, &filled, sizeof(filled));
    } else {
        nvmlGpuInstanceProfileInfo_v3_t filled = { .version = version, .id = profile.id, .sliceCount = profile.slices,
                                                   .instanceCount = profile.count, .multiprocessorCount = profile.multiprocessors,
                                                   .copyEngineCount = profile.slices, .memorySizeMB = memory_mb(gpu, &profile) };

        snprintf(filled.name, sizeof(filled.name), "MIG %s", profile.name);
        memcpy(info, &filled, sizeof(filled));
    }
    return RC_SUCCESS;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, u32 id, nvmlGpuInstancePlacement_t *placements, u32 *count)
{
    struct profile profile;

    MIG();
    NEEDS(count);
    PRIVILEGED();
    SUPPORTED(profile_of(gpu, id, &profile));
    for (u32 i = 0; placements && i < profile.placements; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){ placement(&profile, i), profile.memory };
    *count = profile.placements;
    return RC_SUCCESS;
}

static int gi_fits(const struct layout *layout, const struct profile *profile, u32 start)
{
    u32 slices = profile->slices, same = 0;

    for (int i = 0; i < layout->gpu_instances; i++) {
        const struct gpu_instance *gi = &layout->gi[i];

        slices += gi->profile.slices;
        same += gi->profile.id == profile->id;
        if (start < gi->start + gi->profile.memory && gi->start < start + profile->memory)
            return 0;
    }
    return slices <= COMPUTE_SLICES && same < profile->count;
}

static int gi_capacity(struct layout layout, const struct profile *profile)
{
    int capacity = 0;

    for (u32 i = 0; i < profile->placements && layout.gpu_instances < GI_IDS; i++) {
        if (gi_fits(&layout, profile, placement(profile, i))) {
            layout.gi[layout.gpu_instances].profile = *profile;
            layout.gi[layout.gpu_instances++].start = placement(profile, i);
            capacity++;
        }
    }
    return capacity;
}

API int nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, u32 id, u32 *count)
{
    struct profile profile;
    struct layout layout;

    MIG();
    NEEDS(count);
    PRIVILEGED();
    SUPPORTED(profile_of(gpu, id, &profile));
    read_layout(gpu, &layout);
    *count = (u32)gi_capacity(layout, &profile);
    return RC_SUCCESS;
}

static nvmlGpuInstance_t gi_handle(int gpu, u32 id)
{
    return &gi_slots[(u32)gpu * GI_IDS + id];
}

static int create_gi(int gpu, u32 id, const nvmlGpuInstancePlacement_t *wanted, nvmlGpuInstance_t *instance)
{
    struct profile profile;
    struct layout layout;
    int rc;

    NEEDS(instance);
    PRIVILEGED();
    SUPPORTED(profile_of(gpu, id, &profile));
    read_layout(gpu, &layout);
    for (u32 i = 0; i < profile.placements && layout.gpu_instances < GI_IDS; i++) {
        struct gpu_instance *gi = &layout.gi[layout.gpu_instances];
        u32 start = placement(&profile, i);

        if ((wanted && wanted->start != start) || !gi_fits(&layout, &profile, start))
            continue;
        *gi = (struct gpu_instance){ instance_id(&profile, start), start, profile };
        layout.gpu_instances++;
        rc = write_layout(gpu, &layout);
        *instance = gi_handle(gpu, gi->id);
        return rc;
    }
    return RC_INSUFFICIENT_RESOURCES;
}

API int nvmlDeviceCreateGpuInstance(nvmlDevice_t device, u32 id, nvmlGpuInstance_t *instance)
{
    MIG();
    return create_gi(gpu, id, NULL, instance);
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, u32 id, const nvmlGpuInstancePlacement_t *wanted, nvmlGpuInstance_t *instance)
{
    MIG();
    NEEDS(wanted);
    return create_gi(gpu, id, wanted, instance);
}

API int nvmlDeviceGetGpuInstances(nvmlDevice_t device, u32 id, nvmlGpuInstance_t *instances, u32 *count)
{
    struct profile profile;
    struct layout layout;

    MIG();
    NEEDS(instances && count);
    PRIVILEGED();
    SUPPORTED(profile_of(gpu, id, &profile));
    read_layout(gpu, &layout);
    *count = 0;
    for (int i = 0; i < layout.gpu_instances; i++)
        if (layout.gi[i].profile.id == id)
            instances[(*count)++] = gi_handle(gpu, layout.gi[i].id);
    return RC_SUCCESS;
}

API int nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, u32 id, nvmlGpuInstance_t *instance)
{
    struct layout layout;

    MIG();
    NEEDS(instance);
    PRIVILEGED();
    read_layout(gpu, &layout);
    if (!gi_in(&layout, id))
        return RC_NOT_FOUND;
    *instance = gi_handle(gpu, id);
    return RC_SUCCESS;
}

/* A call on a GPU instance: one that is gone is an invalid argument. */
#define GPU_INSTANCE()                                                                                        \
    char *slot = instance;                                                                                    \
    int known = slot >= gi_slots && slot < gi_slots + sizeof(gi_slots);                                       \
    int gpu = known ? (int)((slot - gi_slots) / GI_IDS) : -1;                                                 \
    u32 gi_id = known ? (u32)((slot - gi_slots) % GI_IDS) : 0;                                                \
    struct layout layout;                                                                                     \
    struct gpu_instance *gi;                                                                                  \
    ENTER(gpu, 1);                                                                                            \
    if (!known)                                                                                               \
        return RC_INVALID_ARGUMENT;                                                                           \
    read_layout(gpu, &layout);                                                                                \
    gi = gi_in(&layout, gi_id);                                                                               \
    NEEDS(gi)

API int nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    GPU_INSTANCE();
    PRIVILEGED();
    for (int i = 0; i < layout.compute_instances; i++)
        if (layout.ci[i].gpu_instance == gi_id)
            return RC_IN_USE;
    *gi = layout.gi[--layout.gpu_instances];
    return write_layout(gpu, &layout);
}

API int nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    nvmlDevice_t device = NULL;

    GPU_INSTANCE();
    NEEDS(info);
    (void)open_gpu(gpu, __func__, &device);
    *info = (nvmlGpuInstanceInfo_t){ device, gi->id, gi->profile.id, { gi->start, gi->profile.memory } };
    return RC_SUCCESS;
}

/* ---- compute instances ---- */

static int ci_allowed(const struct gpu_instance *gi, u32 profile)
{
    u32 size = profile < CI_PROFILES ? ci_slices[profile] : 0;

    if (!size || size > gi->profile.slices)
        return 0;
    /* Four slices divide into halves and quarters only. */
    return gi->profile.slices != 4 || size != 3;
}

static int ci_start(const struct layout *layout, const struct gpu_instance *gi, u32 size, int wanted)
{
    for (u32 start = 0; start + size <= gi->profile.slices; start++) {
        int taken = wanted >= 0 && (u32)wanted != start;

        for (int i = 0; i < layout->compute_instances && !taken; i++) {
            const struct compute_instance *ci = &layout->ci[i];

            taken = ci->gpu_instance == gi->id && start < ci->start + ci->size && ci->start < start + size;
        }
        if (!taken)
            return (int)start;
    }
    return -1;
}

static u32 ci_multiprocessors(const struct gpu_instance *gi, u32 size)
{
    return gi->profile.multiprocessors / gi->profile.slices * size;
}

static void ci_name(const struct gpu_instance *gi, u32 size, char *out, size_t room)
{
    if (size == gi->profile.slices)
        snprintf(out, room, "MIG %s", gi->profile.name);
    else
        snprintf(out, room, "MIG %uc.%s", size, gi->profile.name);
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, u32 profile, u32 engine, nvmlComputeInstanceProfileInfo_t *info)
{
    GPU_INSTANCE();
    NEEDS(info && engine == 0);
    SUPPORTED(ci_allowed(gi, profile));
    *info = (nvmlComputeInstanceProfileInfo_t){ .id = profile, .sliceCount = ci_slices[profile],
                                                .instanceCount = gi->profile.slices / ci_slices[profile],
                                                .multiprocessorCount = ci_multiprocessors(gi, ci_slices[profile]),
                                                .sharedCopyEngineCount = gi->profile.slices };
    return RC_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, u32 profile, u32 engine, void *info)
{
    nvmlComputeInstanceProfileInfo_v3_t filled = { 0 };
    u32 version;

    GPU_INSTANCE();
    NEEDS(info && engine == 0);
    memcpy(&version, info, sizeof(version));
    if (version != STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2) && version != STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3))
        return RC_ARGUMENT_VERSION;
    SUPPORTED(ci_allowed(gi, profile));
    filled.version = version;
    filled.id = profile;
    filled.sliceCount = ci_slices[profile];
    filled.instanceCount = gi->profile.slices / ci_slices[profile];
    filled.multiprocessorCount = ci_multiprocessors(gi, ci_slices[profile]);
    filled.sharedCopyEngineCount = gi->profile.slices;
    ci_name(gi, ci_slices[profile], filled.name, sizeof(filled.name));
    /* The third version is the second with one member more. */
    memcpy(info, &filled, version == STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2) ? sizeof(nvmlComputeInstanceProfileInfo_v2_t) : sizeof(filled));
    return RC_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, u32 profile, nvmlComputeInstancePlacement_t *placements, u32 *count)
{
    u32 size;

    GPU_INSTANCE();
    NEEDS(count);
    PRIVILEGED();
    SUPPORTED(ci_allowed(gi, profile));
    size = ci_slices[profile];
    *count = gi->profile.slices - size + 1;
    for (u32 i = 0; placements && i < *count; i++)
        placements[i] = (nvmlComputeInstancePlacement_t){ i, size };
    return RC_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, u32 profile, u32 *count)
{
    u32 used = 0;

    GPU_INSTANCE();
    NEEDS(count);
    PRIVILEGED();
    SUPPORTED(ci_allowed(gi, profile));
    for (int i = 0; i < layout.compute_instances; i++)
        used += layout.ci[i].gpu_instance == gi_id ? layout.ci[i].size : 0;
    *count = (gi->profile.slices - used) / ci_slices[profile];
    return RC_SUCCESS;
}

static nvmlComputeInstance_t ci_handle(int gpu, u32 gi, u32 ci)
{
    return &ci_slots[((u32)gpu * GI_IDS + gi) * CI_IDS + ci];
}

static int create_ci(int gpu, struct layout *layout, const struct gpu_instance *gi, u32 profile, int wanted, nvmlComputeInstance_t *created)
{
    struct compute_instance *ci = &layout->ci[layout->compute_instances];
    u32 id = 0;
    int start;

    NEEDS(created);
    PRIVILEGED();
    SUPPORTED(ci_allowed(gi, profile));
    start = ci_start(layout, gi, ci_slices[profile], wanted);
    if (start < 0)
        return RC_INSUFFICIENT_RESOURCES;
    while (ci_in(layout, gi->id, id))
        id++;
    *ci = (struct compute_instance){ gi->id, id, profile, (u32)start, ci_slices[profile] };
    layout->compute_instances++;
    *created = ci_handle(gpu, gi->id, id);
    return write_layout(gpu, layout);
}

API int nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, u32 profile, nvmlComputeInstance_t *created)
{
    GPU_INSTANCE();
    return create_ci(gpu, &layout, gi, profile, -1, created);
}

API int nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, u32 profile, const nvmlComputeInstancePlacement_t *wanted,
                                                          nvmlComputeInstance_t *created)
{
    GPU_INSTANCE();
    NEEDS(wanted);
    return create_ci(gpu, &layout, gi, profile, (int)wanted->start, created);
}

API int nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, u32 profile, nvmlComputeInstance_t *instances, u32 *count)
{
    GPU_INSTANCE();
    NEEDS(instances && count);
    PRIVILEGED();
    SUPPORTED(ci_allowed(gi, profile));
    *count = 0;
    for (int i = 0; i < layout.compute_instances; i++)
        if (layout.ci[i].gpu_instance == gi_id && layout.ci[i].profile == profile)
            instances[(*count)++] = ci_handle(gpu, gi_id, layout.ci[i].id);
    return RC_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, u32 id, nvmlComputeInstance_t *found)
{
    GPU_INSTANCE();
    NEEDS(found);
    PRIVILEGED();
    if (!ci_in(&layout, gi_id, id))
        return RC_NOT_FOUND;
    *found = ci_handle(gpu, gi_id, id);
    return RC_SUCCESS;
}

#define COMPUTE_INSTANCE()                                                        \
    char *slot = instance;                                                        \
    int known = slot >= ci_slots && slot < ci_slots + sizeof(ci_slots);           \
    int gpu = known ? (int)((slot - ci_slots) / (GI_IDS * CI_IDS)) : -1;          \
    u32 gi_id = known ? (u32)((slot - ci_slots) / CI_IDS % GI_IDS) : 0;           \
    u32 ci_id = known ? (u32)((slot - ci_slots) % CI_IDS) : 0;                    \
    struct layout layout;                                                         \
    struct compute_instance *ci;                                                  \
    ENTER(gpu, 1);                                                                \
    if (!known)                                                                   \
        return RC_INVALID_ARGUMENT;                                               \
    read_layout(gpu, &layout);                                                    \
    ci = ci_in(&layout, gi_id, ci_id);                                            \
    NEEDS(ci)

API int nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
    COMPUTE_INSTANCE();
    PRIVILEGED();
    *ci = layout.ci[--layout.compute_instances];
    return write_layout(gpu, &layout);
}

API int nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    nvmlDevice_t device = NULL;

    COMPUTE_INSTANCE();
    NEEDS(info);
    (void)open_gpu(gpu, __func__, &device);
    *info = (nvmlComputeInstanceInfo_t){ device, gi_handle(gpu, gi_id), ci->id, ci->profile, { ci->start, ci->size } };
    return RC_SUCCESS;
}

/* ---- the devices that applications see ---- */

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
    *mig = (struct mig_device){ (int)(place / (GI_IDS * CI_IDS)), (int)(place / CI_IDS % GI_IDS), (int)(place % CI_IDS) };
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
        *total = memory_mb(mig->gpu, &gi.profile) << 20;
    return rc;
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
    *count = state_int(gpu, "mig_supported", 0) ? (u32)state_int(gpu, "mig_max", 7) : 0;
    return RC_SUCCESS;
}

static int by_ids(const void *left, const void *right)
{
    const struct compute_instance *a = left, *b = right;

    return a->gpu_instance != b->gpu_instance ? (int)a->gpu_instance - (int)b->gpu_instance : (int)a->id - (int)b->id;
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

API int nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, u32 *is_mig)
{
    struct mig_device mig;

    SYSTEM();
    NEEDS(is_mig);
    *is_mig = (u32)mig_device_of(device, &mig);
    return *is_mig || gpu_of(device) >= 0 ? RC_SUCCESS : RC_INVALID_ARGUMENT;
}

/* A call that only MIG devices answer. */
#define MIG_DEVICE()                                           \
    struct mig_device mig;                                     \
    SYSTEM();                                                  \
    if (!mig_device_of(device, &mig))                          \
        return gpu_of(device) >= 0 ? RC_NOT_SUPPORTED : RC_INVALID_ARGUMENT

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    MIG_DEVICE();
    return open_gpu(mig.gpu, __func__, parent);
}

API int nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, u32 *id)
{
    MIG_DEVICE();
    NEEDS(id);
    *id = (u32)mig.gpu_instance;
    return RC_SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, u32 *id)
{
    MIG_DEVICE();
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
    *attributes = (nvmlDeviceAttributes_t){ .multiprocessorCount = ci_multiprocessors(&gi, ci.size), .sharedCopyEngineCount = gi.profile.slices,
                                            .gpuInstanceSliceCount = gi.profile.slices, .computeInstanceSliceCount = ci.size,
                                            .memorySizeMB = memory_mb(mig.gpu, &gi.profile) };
    return RC_SUCCESS;
}
