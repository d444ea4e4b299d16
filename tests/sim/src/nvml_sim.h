/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the parts of the simulated NVML share: how a call is entered, and how values are looked up. */
#ifndef GPUSIM_NVML_SIM_H
#define GPUSIM_NVML_SIM_H

#include "nvml_abi.h"
#include "state.h"

#define API __attribute__((visibility("default")))

/* Holds the library's lock for as long as the call lasts. */
struct scope {
    int rc;
};
struct scope enter(const char *symbol, int gpu, int needs_init);
void leave(struct scope *scope);

/* The GPU of a handle, -1 when it is none. */
int gpu_of(nvmlDevice_t device);
/* A handle, or the code with which the GPU does not come up. */
int open_gpu(int gpu, const char *symbol, nvmlDevice_t *device);

int text(char *out, u32 size, const char *value);
int number(int gpu, const char *key, u32 *out);
u64 mib(int gpu, const char *key);
u64 memory_used(int gpu);
int put_text(int gpu, const char *key, const char *value, int persistent);
int put_number(int gpu, const char *key, long long value, int persistent);

/* Whether the caller may what only root may. A fault can take that from root, too. */
int privileged(int gpu);
#define PRIVILEGED()     \
    if (!privileged(gpu)) \
    return RC_NO_PERMISSION

/* A call that changes something: only root does, each one is noted, and a fault may make it a call that says yes and does nothing. */
#define SETTER(symbol)              \
    PRIVILEGED();                   \
    state_wrote(gpu, symbol);       \
    if (state_ignored(gpu, symbol)) \
    return RC_SUCCESS

/* What a GPU without persistence mode does when the last program closes it. */
void forget_settings(void);

/* MIG: whether the mode is on, whether instances exist, and what a handle of a MIG device is asked. */
int mig_on(int gpu);
int mig_instances_exist(int gpu);
struct mig_device {
    int gpu, gpu_instance, compute_instance;
};
int mig_device_of(nvmlDevice_t device, struct mig_device *mig);
int mig_uuid(const struct mig_device *mig, char *out, u32 size);
int mig_name(const struct mig_device *mig, char *out, u32 size);
int mig_memory(const struct mig_device *mig, u64 *total);
int mig_index(const struct mig_device *mig, u32 *index);
int mig_bar1(const struct mig_device *mig, u64 *total);
int mig_has(const struct mig_device *mig, const struct state_process *process);
nvmlDevice_t mig_with_uuid(const char *uuid);

#define ENTER(gpu, needs_init)                                                                   \
    struct scope scope __attribute__((cleanup(leave))) = enter(__func__, (gpu), (needs_init)); \
    if (scope.rc)                                                                               \
        return scope.rc

#define SYSTEM() ENTER(-1, 1)

/* A call on a device: a bad handle is an invalid argument, a GPU that went away is lost. */
#define DEVICE()                                       \
    int gpu = gpu_of(device);                          \
    ENTER(gpu < 0 ? -1 : gpu, 1);                      \
    if (gpu < 0)                                       \
        return RC_INVALID_ARGUMENT;                    \
    if (state_int(gpu, "lost", 0))                     \
        return RC_GPU_IS_LOST;                         \
    if (state_int(gpu, "reset_required", 0))           \
        return RC_RESET_REQUIRED

#define NEEDS(pointer) \
    if (!(pointer))    \
    return RC_INVALID_ARGUMENT

#define SUPPORTED(condition) \
    if (!(condition))        \
    return RC_NOT_SUPPORTED

/* What NVIDIA took out of service with a driver branch. */
#define NOT_FROM(branch)                                   \
    if (state_major(state_loaded_version()) >= (branch)) \
    return RC_DEPRECATED

#define NUMBER(function, key)                            \
    API int function(nvmlDevice_t device, u32 *out)      \
    {                                                    \
        DEVICE();                                        \
        return number(gpu, key, out);                    \
    }

/* A call of a GPU that one expression answers; after it come the arguments that follow the handle. */
#define ANSWER(function, expression, ...)         \
    API int function(nvmlDevice_t device, __VA_ARGS__) \
    {                                             \
        DEVICE();                                 \
        return expression;                        \
    }

/* A call of a GPU that gives one value of a type. */
#define VALUE(function, type, value)                \
    API int function(nvmlDevice_t device, type *out) \
    {                                               \
        DEVICE();                                   \
        NEEDS(out);                                 \
        *out = value;                               \
        return RC_SUCCESS;                          \
    }

#endif
