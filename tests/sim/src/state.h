/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * State of the simulated node: INI files below GPUSIM_ROOT, read again at every call. */
#ifndef GPUSIM_STATE_H
#define GPUSIM_STATE_H

#include <pthread.h>
#include <stddef.h>

#define GPUSIM_MAX_GPUS 64
#define GPUSIM_VERSION_SIZE 80

/* Path below GPUSIM_ROOT (empty on a node); false when it does not fit. */
int state_path(char *out, size_t size, const char *path);
int state_rooted(void);

/* Reads every state file again. Cheap: unchanged text is not parsed twice. */
void state_refresh(void);

const char *state_node(const char *section, const char *key);
int state_gpu_count(void);

/* The value of a key for one GPU: an active fault, then the volatile settings, the InfoROM, the GPU, the model. */
const char *state_get(int gpu, const char *key);
long long state_int(int gpu, const char *key, long long fallback);

/* The driver: version of the loaded kernel module (empty when none) and of the installed library (empty when none). */
const char *state_loaded_version(void);
const char *state_loaded(const char *key);
void state_library_version(char *out, size_t size);
int state_major(const char *version);

/* Faults on functions. Seconds to hang (0 none, -1 for ever), return code (-1 none),
 * and whether a setter only says that it did it. */
double state_hang(int gpu, const char *symbol);
void state_pause(pthread_mutex_t *mutex, double seconds);  /* hangs without the library's lock, and reads the files again */
unsigned long state_count_call(int gpu, const char *symbol);
int state_error(int gpu, const char *symbol, unsigned long calls);
int state_ignored(int gpu, const char *symbol);

/* Processes registered on a GPU; calls back for each one that is alive. */
struct state_process {
    unsigned pid;
    unsigned long long used_bytes;
    char type;
    /* Of the MIG instances that it is on, -1 for the whole GPU. */
    int gpu_instance, compute_instance;
};
int state_processes(int gpu, char type, struct state_process *out, int size);

int state_persistenced_mode(void);

/* Notes that a call was asked to change something, in /run/gpusim/writes. */
void state_wrote(int gpu, const char *symbol);

/* Writes one key of one GPU into /run/gpusim/settings.ini, or the InfoROM when persistent; 0 when done. */
int state_put(int gpu, const char *key, const char *value, int persistent);

#endif
