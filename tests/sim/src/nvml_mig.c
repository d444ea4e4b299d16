/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG: the mode, GPU instances and compute instances. The devices that applications see: nvml_mig_devices.c. */
#define _GNU_SOURCE
#include "nvml_mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char gi_slots[GPUSIM_MAX_GPUS * GI_IDS];
static char ci_slots[GPUSIM_MAX_GPUS * GI_IDS * CI_IDS];

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

static int busy(int gpu)
{
    struct state_process process;

    return state_processes(gpu, 'C', &process, 1) || state_processes(gpu, 'G', &process, 1) || state_processes(gpu, 'M', &process, 1);
}

/* Boards whose InfoROM keeps the mode (Ampere) change it with the next reset of the GPU, and NVML does none: as on a machine where it cannot. On
 * others it changes at once, unless processes use the GPU; instances are gone with that. */
API int nvmlDeviceSetMigMode(nvmlDevice_t device, u32 mode, int *activation)
{
    struct layout empty = { 0 };
    int persistent, rc;

    DEVICE();
    NEEDS(activation);
    SUPPORTED(state_int(gpu, "mig_supported", 0));
    if (mode > 1)
        return RC_INVALID_ARGUMENT;
    persistent = state_int(gpu, "mig_persistent", 0) != 0;
    *activation = RC_SUCCESS;
    SETTER(__func__);
    rc = put_number(gpu, "mig_mode_pending", mode, persistent);
    if (rc || mode == state_int(gpu, "mig_mode", 0))
        return rc;
    if (busy(gpu) || persistent) {
        *activation = busy(gpu) ? RC_IN_USE : RC_RESET_REQUIRED;
        return RC_SUCCESS;
    }
    rc = write_layout(gpu, &empty);
    return rc ? rc : put_number(gpu, "mig_mode", mode, persistent);
}

/* ---- GPU instances ---- */

#define MIG()                 \
    DEVICE();                 \
    SUPPORTED(mig_on(gpu))

#define PROFILE_FIELDS                                                                                                            \
    .id = profile.id, .sliceCount = profile.slices, .instanceCount = profile.count, .multiprocessorCount = profile.multiprocessors, \
    .copyEngineCount = profile.copy_engines, .decoderCount = profile.decoders, .encoderCount = profile.encoders,                   \
    .jpegCount = profile.jpegs, .ofaCount = profile.ofas, .memorySizeMB = profile.memory_mib

/* What nvml.h numbers; driver 580 calls a higher one an invalid argument and a profile that the board has not unsupported. */
#define PROFILE_NUMBERS 17

/* While MIG is off, driver 580 tells where instances could go and how many, which nvml.h says no driver does. */
static int tells_when_off(int gpu)
{
    return state_int(gpu, "mig_supported", 0) && state_major(state_loaded_version()) >= 580;
}

#define MIG_OR_TOLD()                                \
    DEVICE();                                        \
    SUPPORTED(mig_on(gpu) || tells_when_off(gpu))

API int nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, u32 index, nvmlGpuInstanceProfileInfo_t *info)
{
    struct profile profile;

    DEVICE();
    NEEDS(info);
    NEEDS(index < PROFILE_NUMBERS);
    SUPPORTED(state_int(gpu, "mig_supported", 0) && profile_at(gpu, index, &profile));
    *info = (nvmlGpuInstanceProfileInfo_t){ PROFILE_FIELDS };
    return RC_SUCCESS;
}

/* Bits of the third version's capabilities, by nvml.h. */
#define CAPABILITY_GRAPHICS 2

/* As driver 580 fills them: no version is in them afterwards. In the third version the name is where the second one has it, so that a reader of the
 * third finds an empty one, and tells no memory. */
static int profile_info(int gpu, int found, struct profile profile, void *info)
{
    u32 version;

    NEEDS(info);
    memcpy(&version, info, sizeof(version));
    if (version != STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2) && version != STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3))
        return RC_INVALID_ARGUMENT;
    SUPPORTED(state_int(gpu, "mig_supported", 0) && found);
    if (version == STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        nvmlGpuInstanceProfileInfo_v2_t filled = { PROFILE_FIELDS };

        snprintf(filled.name, sizeof(filled.name), "MIG %s", profile.name);
        memcpy(info, &filled, sizeof(filled));
    } else {
        const size_t misplaced = offsetof(nvmlGpuInstanceProfileInfo_v2_t, name) - offsetof(nvmlGpuInstanceProfileInfo_v3_t, name);
        nvmlGpuInstanceProfileInfo_v3_t filled = { PROFILE_FIELDS };
        const char *attribute = strpbrk(profile.name, "+-");

        filled.capabilities = attribute && !strcmp(attribute, "+gfx") ? CAPABILITY_GRAPHICS : 0;
        snprintf(filled.name + misplaced, sizeof(filled.name) - misplaced, "MIG %ug.0gb%s", profile.slices, attribute ? attribute : "");
        memcpy(info, &filled, sizeof(filled));
    }
    return RC_SUCCESS;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, u32 index, void *info)
{
    struct profile profile;
    int found;

    DEVICE();
    NEEDS(index < PROFILE_NUMBERS);
    found = profile_at(gpu, index, &profile);
    return profile_info(gpu, found, profile, info);
}

static int possible_placements(int gpu, u32 id, nvmlGpuInstancePlacement_t *placements, u32 *count)
{
    struct profile profile;

    NEEDS(count);
    PRIVILEGED();
    SUPPORTED(profile_of(gpu, id, &profile));
    for (u32 i = 0; placements && i < profile.places; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){ profile.starts[i], profile.size };
    *count = profile.places;
    return RC_SUCCESS;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, u32 id, nvmlGpuInstancePlacement_t *placements, u32 *count)
{
    MIG_OR_TOLD();
    return possible_placements(gpu, id, placements, count);
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, u32 id, nvmlGpuInstancePlacement_t *placements, u32 *count)
{
    MIG_OR_TOLD();
    return possible_placements(gpu, id, placements, count);
}

static nvmlGpuInstance_t gi_handle(int gpu, u32 id)
{
    return &gi_slots[(u32)gpu * GI_IDS + id];
}

static int create_gi(const char *symbol, int gpu, u32 id, const nvmlGpuInstancePlacement_t *wanted, nvmlGpuInstance_t *instance)
{
    struct profile profile;
    struct layout layout;
    struct gpu_instance *gi;
    int possible = !wanted, rc;

    NEEDS(instance);
    PRIVILEGED();
    state_wrote(gpu, symbol);
    SUPPORTED(profile_of(gpu, id, &profile));
    for (u32 i = 0; wanted && i < profile.places; i++)
        possible |= wanted->start == profile.starts[i] && wanted->size == profile.size;
    NEEDS(possible);
    read_layout(gpu, &layout);
    gi = gi_place(gpu, &layout, &profile, wanted ? (int)wanted->start : -1);
    if (!gi)
        return RC_INSUFFICIENT_RESOURCES;
    rc = write_layout(gpu, &layout);
    *instance = gi_handle(gpu, gi->id);
    return rc;
}

API int nvmlDeviceCreateGpuInstance(nvmlDevice_t device, u32 id, nvmlGpuInstance_t *instance)
{
    MIG();
    return create_gi(__func__, gpu, id, NULL, instance);
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, u32 id, const nvmlGpuInstancePlacement_t *wanted, nvmlGpuInstance_t *instance)
{
    MIG();
    NEEDS(wanted);
    return create_gi(__func__, gpu, id, wanted, instance);
}

API int nvmlDeviceGetGpuInstances(nvmlDevice_t device, u32 id, nvmlGpuInstance_t *instances, u32 *count)
{
    struct profile profile;
    struct layout layout;

    MIG_OR_TOLD();
    NEEDS(instances && count);
    PRIVILEGED();
    NEEDS(profile_of(gpu, id, &profile));
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
    state_wrote(gpu, __func__);
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
    *info = (nvmlGpuInstanceInfo_t){ device, gi->id, gi->profile.id, { gi->start, gi->profile.size } };
    return RC_SUCCESS;
}

/* ---- compute instances ---- */

static int ci_allowed(const struct gpu_instance *gi, u32 profile)
{
    u32 size = ci_slices(profile);

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

API int nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, u32 profile, u32 engine, nvmlComputeInstanceProfileInfo_t *info)
{
    GPU_INSTANCE();
    NEEDS(info && engine == 0);
    SUPPORTED(ci_allowed(gi, profile));
    *info = (nvmlComputeInstanceProfileInfo_t){ .id = profile, .sliceCount = ci_slices(profile),
                                                .instanceCount = gi->profile.slices / ci_slices(profile),
                                                .multiprocessorCount = ci_multiprocessors(gpu, gi, ci_slices(profile)), SHARED_ENGINES(gi->profile) };
    return RC_SUCCESS;
}

static nvmlComputeInstance_t ci_handle(int gpu, u32 gi, u32 ci)
{
    return &ci_slots[((u32)gpu * GI_IDS + gi) * CI_IDS + ci];
}

static int create_ci(const char *symbol, int gpu, struct layout *layout, const struct gpu_instance *gi, u32 profile, int wanted, nvmlComputeInstance_t *created)
{
    struct compute_instance *ci = &layout->ci[layout->compute_instances];
    u32 id = 0;
    int start;

    NEEDS(created);
    PRIVILEGED();
    state_wrote(gpu, symbol);
    SUPPORTED(ci_allowed(gi, profile));
    start = ci_start(layout, gi, ci_slices(profile), wanted);
    if (start < 0)
        return RC_INSUFFICIENT_RESOURCES;
    while (ci_in(layout, gi->id, id))
        id++;
    *ci = (struct compute_instance){ gi->id, id, profile, (u32)start, ci_slices(profile) };
    layout->compute_instances++;
    *created = ci_handle(gpu, gi->id, id);
    return write_layout(gpu, layout);
}

API int nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, u32 profile, nvmlComputeInstance_t *created)
{
    GPU_INSTANCE();
    return create_ci(__func__, gpu, &layout, gi, profile, -1, created);
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

/* Whether a process uses a compute instance. A GPU instance with a process has a compute instance, which keeps it. */
static int in_use(int gpu, u32 gi, u32 ci)
{
    static const char types[] = { 'C', 'G', 'M' };
    struct state_process processes[128];

    for (size_t type = 0; type < sizeof(types); type++) {
        int count = state_processes(gpu, types[type], processes, 128);

        for (int i = 0; i < count && i < 128; i++)
            if (processes[i].gpu_instance == (int)gi && processes[i].compute_instance == (int)ci)
                return 1;
    }
    return 0;
}

API int nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
    COMPUTE_INSTANCE();
    PRIVILEGED();
    state_wrote(gpu, __func__);
    if (in_use(gpu, gi_id, ci_id))
        return RC_IN_USE;
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

