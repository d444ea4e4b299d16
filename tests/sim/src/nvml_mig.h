/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG profiles, the layout of a GPU, and where instances are placed. */
#ifndef GPUSIM_NVML_MIG_H
#define GPUSIM_NVML_MIG_H

#include "nvml_sim.h"

#define GI_IDS 16
#define CI_IDS 8
#define MIG_PLACES 8
#define MIG_PROFILES 16

struct profile {
    /* The number that NVML's calls take, and the constant with which the profile is asked for. */
    u32 id, index;
    u32 slices, size, count;
    u32 places, starts[MIG_PLACES];
    u32 memory_mib, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
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

/* The slices of each profile of compute instances; 0 for those that there are not. */
u32 ci_slices(u32 profile);

/* The multiprocessors and the name of a compute instance of so many slices. */
u32 ci_multiprocessors(int gpu, const struct gpu_instance *gi, u32 size);
void ci_name(const struct gpu_instance *gi, u32 size, char *out, size_t room);

#define SHARED_ENGINES(profile)                                                                               \
    .sharedCopyEngineCount = (profile).copy_engines, .sharedDecoderCount = (profile).decoders,                \
    .sharedEncoderCount = (profile).encoders, .sharedJpegCount = (profile).jpegs, .sharedOfaCount = (profile).ofas

int profile_of(int gpu, u32 id, struct profile *profile);
int profile_at(int gpu, u32 index, struct profile *profile);

void read_layout(int gpu, struct layout *layout);
int write_layout(int gpu, const struct layout *layout);
struct gpu_instance *gi_in(struct layout *layout, u32 id);
struct compute_instance *ci_in(struct layout *layout, u32 gi, u32 id);

/* How many more instances of a profile there is room for. */
int gi_capacity(int gpu, const struct layout *layout, const struct profile *profile);
/* Adds an instance, at the start that is wanted or, with -1, where the driver puts it; NULL when there is no room. */
struct gpu_instance *gi_place(int gpu, struct layout *layout, const struct profile *profile, int wanted);

/* The capability files of a GPU's instances. */
void mig_capabilities(int gpu, const struct layout *layout);

#endif
