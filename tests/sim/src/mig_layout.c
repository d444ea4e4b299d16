/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG profiles, the layout of a GPU, and where instances are placed.
 *
 * A GPU's instances are two values among the settings of this driver load, as they are lost with the driver:
 * mig_gpu_instances holds PROFILE@START for each GPU instance, mig_compute_instances holds GI/CI=PROFILE@START.
 * Values of a model:
 * mig_profile_ID = INDEX SLICES SIZE COUNT STARTS MIB SM CE DEC ENC JPEG OFA NAME: a profile, SIZE in memory slices,
 * STARTS with commas; mig_profile_ID_since: the first driver branch that has it; mig_memory_slices: slices of the
 * board's memory, 8 unless it says so; mig_engines = DEC ENC JPEG OFA: what all instances share, else no limit. */
#define _GNU_SOURCE
#include "nvml_mig.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LIST_SIZE 1024

static const u32 profile_ids[] = { 0, 5, 6, 9, 14, 15, 19, 20, 21, 32, 35, 47, 64, 65, 66, 67 };
_Static_assert(sizeof(profile_ids) / sizeof(*profile_ids) == MIG_PROFILES, "one place for each profile");

/* ---- profiles ---- */

int profile_of(int gpu, u32 id, struct profile *profile)
{
    char key[32], starts[64], *next = starts;
    const char *value;

    memset(profile, 0, sizeof(*profile));
    profile->id = id;
    snprintf(key, sizeof(key), "mig_profile_%u_since", id);
    if (state_major(state_loaded_version()) < state_int(gpu, key, 0))
        return 0;
    snprintf(key, sizeof(key), "mig_profile_%u", id);
    value = state_get(gpu, key);
    if (!value ||
        sscanf(value, "%u %u %u %u %63s %u %u %u %u %u %u %u %31s", &profile->index, &profile->slices, &profile->size,
               &profile->count, starts, &profile->memory_mib, &profile->multiprocessors, &profile->copy_engines,
               &profile->decoders, &profile->encoders, &profile->jpegs, &profile->ofas, profile->name) != 13)
        return 0;
    while (*next && profile->places < MIG_PLACES) {
        profile->starts[profile->places++] = (u32)strtoul(next, &next, 10);
        next += *next == ',';
    }
    return 1;
}

int profile_at(int gpu, u32 index, struct profile *profile)
{
    for (size_t i = 0; i < MIG_PROFILES; i++)
        if (profile_of(gpu, profile_ids[i], profile) && profile->index == index)
            return 1;
    return 0;
}

/* ---- compute instances ---- */

u32 ci_slices(u32 profile)
{
    static const u32 slices[] = { 1, 2, 3, 4, 7 };

    return profile < sizeof(slices) / sizeof(*slices) ? slices[profile] : 0;
}

/* An instance that shares the GPU instance has its slices as the smallest profile has them; one alone has all. */
u32 ci_multiprocessors(int gpu, const struct gpu_instance *gi, u32 size)
{
    struct profile smallest;

    if (size < gi->profile.slices && profile_at(gpu, 0, &smallest))
        return size * smallest.multiprocessors;
    return gi->profile.multiprocessors;
}

void ci_name(const struct gpu_instance *gi, u32 size, char *out, size_t room)
{
    if (size == gi->profile.slices)
        snprintf(out, room, "MIG %s", gi->profile.name);
    else
        snprintf(out, room, "MIG %uc.%s", size, gi->profile.name);
}

/* ---- layouts ---- */

/* One number for each place in the tree of halves, quarters and eighths, as the driver numbers instances. */
static u32 instance_id(int gpu, const struct profile *profile, u32 start)
{
    u32 parts = (u32)state_int(gpu, "mig_memory_slices", 8) / profile->size;

    return parts - 1 + start / profile->size;
}

void read_layout(int gpu, struct layout *layout)
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
        gi->id = instance_id(gpu, &gi->profile, gi->start);
        layout->gpu_instances++;
    }
    list = state_get(gpu, "mig_compute_instances");
    while (list && sscanf(list, " %u/%u=%u@%u%n", &values[0], &values[1], &values[2], &values[3], &used) == 4 &&
           layout->compute_instances < GI_IDS * CI_IDS) {
        struct compute_instance *ci = &layout->ci[layout->compute_instances];

        list += used;
        if (!ci_slices(values[2]))
            continue;
        *ci = (struct compute_instance){ values[0], values[1], values[2], values[3], ci_slices(values[2]) };
        layout->compute_instances++;
    }
}

int write_layout(int gpu, const struct layout *layout)
{
    char list[LIST_SIZE] = "";
    size_t used = 0;
    int rc;

    for (int i = 0; i < layout->gpu_instances; i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u@%u", i ? " " : "", layout->gi[i].profile.id,
                                 layout->gi[i].start);
    rc = put_text(gpu, "mig_gpu_instances", list, 0);
    used = 0;
    list[0] = '\0';
    for (int i = 0; i < layout->compute_instances; i++) {
        const struct compute_instance *ci = &layout->ci[i];

        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u/%u=%u@%u", i ? " " : "", ci->gpu_instance,
                                 ci->id, ci->profile, ci->start);
    }
    rc = rc ? rc : put_text(gpu, "mig_compute_instances", list, 0);
    if (!rc)
        mig_capabilities(gpu, layout);
    return rc;
}

struct gpu_instance *gi_in(struct layout *layout, u32 id)
{
    for (int i = 0; i < layout->gpu_instances; i++)
        if (layout->gi[i].id == id)
            return &layout->gi[i];
    return NULL;
}

struct compute_instance *ci_in(struct layout *layout, u32 gi, u32 id)
{
    for (int i = 0; i < layout->compute_instances; i++)
        if (layout->ci[i].gpu_instance == gi && layout->ci[i].id == id)
            return &layout->ci[i];
    return NULL;
}

/* ---- places ---- */

/* Whether an instance may stand at the start: its memory is free, and what all instances share suffices. */
static int gi_fits(int gpu, const struct layout *layout, const struct profile *profile, u32 start)
{
    const char *engines = state_get(gpu, "mig_engines");
    u32 decoders = profile->decoders, encoders = profile->encoders, jpegs = profile->jpegs, ofas = profile->ofas;
    u32 same = 0, most[4];

    for (int i = 0; i < layout->gpu_instances; i++) {
        const struct gpu_instance *gi = &layout->gi[i];

        if (start < gi->start + gi->profile.size && gi->start < start + profile->size)
            return 0;
        same += gi->profile.id == profile->id;
        decoders += gi->profile.decoders;
        encoders += gi->profile.encoders;
        jpegs += gi->profile.jpegs;
        ofas += gi->profile.ofas;
    }
    if (same >= profile->count || layout->gpu_instances >= GI_IDS)
        return 0;
    return !engines || sscanf(engines, "%u %u %u %u", &most[0], &most[1], &most[2], &most[3]) != 4 ||
           (decoders <= most[0] && encoders <= most[1] && jpegs <= most[2] && ofas <= most[3]);
}

static struct gpu_instance *add(int gpu, struct layout *layout, const struct profile *profile, u32 start)
{
    struct gpu_instance *gi = &layout->gi[layout->gpu_instances++];

    *gi = (struct gpu_instance){ instance_id(gpu, profile, start), start, *profile };
    return gi;
}

int gi_capacity(int gpu, const struct layout *layout, const struct profile *profile)
{
    struct layout filled = *layout;

    for (u32 i = 0; i < profile->places; i++)
        if (gi_fits(gpu, &filled, profile, profile->starts[i]))
            add(gpu, &filled, profile, profile->starts[i]);
    return filled.gpu_instances - layout->gpu_instances;
}

/* How many places there are, over all profiles. */
static u32 open_places(int gpu, const struct layout *layout, const struct profile *profiles, u32 count)
{
    u32 open = 0;

    for (u32 i = 0; i < count; i++)
        for (u32 j = 0; j < profiles[i].places; j++)
            open += (u32)gi_fits(gpu, layout, &profiles[i], profiles[i].starts[j]);
    return open;
}

/* Drivers place an instance where it leaves the most places open to others, and at the lowest of equal starts: this one
 * rule gives the numbers of all sequences in tests/unit/sim/fixtures/mig.json, which are from real boards. */
struct gpu_instance *gi_place(int gpu, struct layout *layout, const struct profile *profile, int wanted)
{
    struct profile profiles[MIG_PROFILES];
    u32 count = 0, best_open = 0;
    int best = -1;

    for (size_t i = 0; i < MIG_PROFILES; i++)
        count += (u32)profile_of(gpu, profile_ids[i], &profiles[count]);
    for (u32 i = 0; i < profile->places; i++) {
        struct layout tried = *layout;
        u32 start = profile->starts[i], open;

        if ((wanted >= 0 && start != (u32)wanted) || !gi_fits(gpu, layout, profile, start))
            continue;
        add(gpu, &tried, profile, start);
        open = open_places(gpu, &tried, profiles, count);
        if (best < 0 || open > best_open) {
            best = (int)start;
            best_open = open;
        }
    }
    return best < 0 ? NULL : add(gpu, layout, profile, (u32)best);
}

/* ---- the files that stand for the right to use an instance: /proc/driver/nvidia/capabilities/gpuN/mig, /dev/nvidia-caps ---- */

#define FIRST_MINOR 3
#define GIS 15
#define MINORS_OF_GI (1 + CI_IDS)

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
}

/* One capability: its file in /proc and its device, there or not there. */
static void capability(const char *folder, u32 minor, int wanted)
{
    char name[PATH_MAX - 64], path[PATH_MAX], device[PATH_MAX], text[96];
    int fd;

    snprintf(name, sizeof(name), "/dev/nvidia-caps/nvidia-cap%u", minor);
    if (!state_path(path, sizeof(path), folder) || strlen(path) + 8 > sizeof(path) ||
        !state_path(device, sizeof(device), name))
        return;
    strcat(path, "/access");
    if (!wanted) {
        if (unlink(path) == 0)
            unlink(device);
        *strrchr(path, '/') = '\0';
        rmdir(path);
        return;
    }
    if (access(path, F_OK) == 0)
        return;
    make_folders(path);
    make_folders(device);
    /* The null device under the driver's name, as all devices here. Without the right to make one, a file. */
    if (mknod(device, S_IFCHR | 0444, makedev(1, 3)) != 0) {
        fd = open(device, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
        if (fd >= 0)
            close(fd);
    }
    chmod(device, 0444);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    if (fd < 0)
        return;
    /* 292 is 0444. */
    snprintf(text, sizeof(text), "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor);
    if (write(fd, text, strlen(text)) < 0)
        perror("gpusim: a capability could not be written");
    close(fd);
}

void mig_capabilities(int gpu, const struct layout *given)
{
    struct layout layout = *given;
    u32 gpu_minor = (u32)state_int(gpu, "minor", gpu);
    char folder[160], base[128];

    snprintf(base, sizeof(base), "/run/gpusim/proc-driver/nvidia/capabilities/gpu%u/mig", gpu_minor);
    for (u32 gi = 0; gi < GIS; gi++) {
        u32 minor = FIRST_MINOR + (gpu_minor * GIS + gi) * MINORS_OF_GI;

        for (u32 ci = 0; ci < CI_IDS; ci++) {
            snprintf(folder, sizeof(folder), "%s/gi%u/ci%u", base, gi, ci);
            capability(folder, minor + 1 + ci, ci_in(&layout, gi, ci) != NULL);
        }
        snprintf(folder, sizeof(folder), "%s/gi%u", base, gi);
        capability(folder, minor, gi_in(&layout, gi) != NULL);
    }
}
