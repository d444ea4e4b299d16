/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Events: an XID that the driver writes into the simulated kernel log arrives at those who have registered for it. Nothing else arrives. */
#define _GNU_SOURCE
#include "nvml_sim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ECC_SINGLE 0x1ULL
#define ECC_DOUBLE 0x2ULL
#define PSTATE 0x4ULL
#define XID 0x8ULL
#define CLOCK 0x10ULL
#define TYPES (ECC_SINGLE | ECC_DOUBLE | PSTATE | XID | CLOCK)
/* What driver 580 names on an H100 and an H200; it takes registrations for each of these 16 bits, also for those that it does not name. */
#define TYPES_580 0xff9fULL
#define TAKEN_580 0xffffULL
#define NO_INSTANCE 0xffffffffU
#define EVENT_SETS 64
#define LOOK_AGAIN_NS 20000000L

struct watch {
    nvmlDevice_t device;
    u64 types;
    u32 domain, bus, slot;
};

/* Which GPUs are watched for what, and the last record of the log that was looked at. */
static struct event_set {
    int used, count;
    long long seen;
    struct watch watches[GPUSIM_MAX_GPUS];
} sets[EVENT_SETS];

/* A wait does not hold the library's lock. */
static pthread_mutex_t sets_mutex = PTHREAD_MUTEX_INITIALIZER;

static void unlock_sets(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&sets_mutex);
}

#define LOCK_SETS()                                                   \
    int locked __attribute__((cleanup(unlock_sets), unused)) = 0;     \
    pthread_mutex_lock(&sets_mutex)

static struct event_set *set_of(nvmlEventSet_t handle)
{
    struct event_set *set = handle;

    for (int i = 0; i < EVENT_SETS; i++)
        if (set == &sets[i] && set->used)
            return set;
    return NULL;
}

/* The whole log. A kernel's own device is none of the simulator's, and never read. */
static char *kernel_log(void)
{
    char path[PATH_MAX];
    struct stat info;
    char *text = NULL;
    ssize_t got;
    int fd;

    fd = state_path(path, sizeof(path), "/dev/kmsg") ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && (text = malloc((size_t)info.st_size + 1))) {
        got = read(fd, text, (size_t)info.st_size);
        text[got > 0 ? got : 0] = '\0';
    }
    close(fd);
    return text;
}

/* The number of a record "priority,number,microseconds,-;text". */
static long long record_number(const char *record)
{
    const char *comma = strchr(record, ',');

    return comma ? strtoll(comma + 1, NULL, 10) : -1;
}

static long long last_record(void)
{
    char *text = kernel_log();
    long long last = -1;

    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        last = record_number(line) > last ? record_number(line) : last;
    free(text);
    return last;
}

/* "...;NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 79, ...": the event of a GPU that is watched for it. */
static int is_event(const struct event_set *set, const char *line, nvmlEventData_t *data)
{
    const char *end = strchr(line, '\n'), *text = strstr(line, "NVRM: Xid (PCI:"), *closing, *instance;
    u32 domain, bus, slot;

    if (!text || (end && text > end) || sscanf(text, "NVRM: Xid (PCI:%x:%x:%x", &domain, &bus, &slot) != 3)
        return 0;
    closing = strchr(text, ')');
    if (!closing || closing[1] != ':')
        return 0;
    for (int i = 0; i < set->count; i++) {
        const struct watch *watch = &set->watches[i];

        if (watch->domain != domain || watch->bus != bus || watch->slot != slot || !(watch->types & XID))
            continue;
        instance = strstr(text, " GPU-I:");
        data->device = watch->device;
        data->eventType = XID;
        data->eventData = strtoull(closing + 2, NULL, 10);
        data->gpuInstanceId = instance && instance < closing ? (u32)strtoul(instance + 7, NULL, 10) : NO_INSTANCE;
        data->computeInstanceId = NO_INSTANCE;
        return 1;
    }
    return 0;
}

/* The oldest record that was not looked at yet and is an event. */
static int next_event(struct event_set *set, nvmlEventData_t *data)
{
    char *text = kernel_log();
    int found = 0;

    for (const char *line = text; line && *line && !found; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        long long number = record_number(line);

        if (number <= set->seen)
            continue;
        set->seen = number;
        found = is_event(set, line, data);
    }
    free(text);
    return found;
}

API int nvmlEventSetCreate(nvmlEventSet_t *set)
{
    SYSTEM();
    NEEDS(set);
    LOCK_SETS();
    for (int i = 0; i < EVENT_SETS; i++) {
        if (sets[i].used)
            continue;
        sets[i] = (struct event_set){ .used = 1, .seen = last_record() };
        *set = &sets[i];
        return RC_SUCCESS;
    }
    return RC_INSUFFICIENT_RESOURCES;
}

API int nvmlEventSetFree(nvmlEventSet_t set)
{
    SYSTEM();
    LOCK_SETS();
    NEEDS(set_of(set));
    set_of(set)->used = 0;
    return RC_SUCCESS;
}

API int nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *types)
{
    DEVICE();
    NEEDS(types);
    *types = state_major(state_loaded_version()) >= 580 ? TYPES_580 : TYPES;
    return RC_SUCCESS;
}

API int nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t handle)
{
    struct event_set *set;
    struct watch watch;
    const char *address;

    DEVICE();
    LOCK_SETS();
    set = set_of(handle);
    NEEDS(set);
    SUPPORTED(!(types & ~(state_major(state_loaded_version()) >= 580 ? TAKEN_580 : TYPES)));
    watch = (struct watch){ .device = device, .types = types };
    address = state_get(gpu, "pci");
    if (!address || sscanf(address, "%x:%x:%x", &watch.domain, &watch.bus, &watch.slot) != 3)
        return RC_UNKNOWN;
    for (int i = 0; i < set->count; i++) {
        if (set->watches[i].device == device) {
            set->watches[i].types |= types;
            return RC_SUCCESS;
        }
    }
    set->watches[set->count++] = watch;
    return RC_SUCCESS;
}

static long long milliseconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int event_wait(const char *symbol, nvmlEventSet_t handle, nvmlEventData_t *data, u32 milliseconds)
{
    const struct timespec pause = { .tv_nsec = LOOK_AGAIN_NS };
    long long end = milliseconds_now() + milliseconds;

    {
        struct scope scope __attribute__((cleanup(leave))) = enter(symbol, -1, 1);

        if (scope.rc)
            return scope.rc;
    }
    for (;;) {
        {
            LOCK_SETS();
            NEEDS(data && set_of(handle));
            if (next_event(set_of(handle), data))
                return RC_SUCCESS;
        }
        if (milliseconds_now() >= end)
            return RC_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

/* The structure of the first version ends before the instances. */
API int nvmlEventSetWait(nvmlEventSet_t set, void *data, u32 milliseconds)
{
    nvmlEventData_t event;
    int rc = event_wait(__func__, set, data ? &event : NULL, milliseconds);

    if (!rc)
        memcpy(data, &event, offsetof(nvmlEventData_t, gpuInstanceId));
    return rc;
}

API int nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, u32 milliseconds)
{
    return event_wait(__func__, set, data, milliseconds);
}
