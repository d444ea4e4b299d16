/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libcuda.so.1 without a GPU behind it: the part of the driver interface that gpu_smoke uses. The GPU's memory is memory of the process,
 * the kernels of gpu_smoke are known by name and computed here, and time is not measured but follows from the node's state files. */
#define _GNU_SOURCE
#include "state.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#define API __attribute__((visibility("default")))

/* Its presence tells a reader of this library that nothing here is hardware. */
API const char gpusim_marker[] = "gpusim: simulated CUDA, no hardware";

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef const struct kernel *CUfunction;
typedef struct event *CUevent;
typedef void *CUstream;
typedef struct { unsigned char bytes[16]; } CUuuid;

_Static_assert(sizeof(CUuuid) == 16, "CUuuid");

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    STUB_LIBRARY = 34,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
    DRIVER_MISMATCH = 803,
    UNKNOWN = 999,
};

static const struct {
    int rc;
    const char *name, *text;
} errors[] = {
    { 0, "CUDA_SUCCESS", "no error" },
    { 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { 34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library" },
    { 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable" },
    { 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered" },
    { 218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed" },
    { 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution" },
    { 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found" },
    { 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain." },
    { 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
    { 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
    { 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated" },
    { 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered" },
    { 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
    { 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
    { 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized" },
    { 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination" },
    { 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW" },
    { 999, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

struct block {
    struct block *next;
    unsigned char *data;
    size_t size;
    int gpu;
    /* Grows with each write. What was computed from unchanged inputs is not computed again: only its time passes. */
    unsigned long version;
    struct {
        const void *what, *left, *right;
        unsigned long left_version, right_version, version;
        size_t from, to, size;
    } made;
};

struct context {
    int retained;
    int error; /* one that stays until the process ends */
    double clock_us;
    unsigned noise, turn;
    struct block *blocks;
};

struct event {
    int gpu, recorded;
    double at_us;
};

struct module {
    char *image;
};

struct kernel {
    const char *name;
    CUresult (*run)(int gpu, void **parameters, double *us);
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct context contexts[GPUSIM_MAX_GPUS];
static int visible[GPUSIM_MAX_GPUS], visible_count = -1;
static unsigned long writes;
static _Thread_local int current = -1;

/* ---- entering a call ---- */

static void leave(int *dummy)
{
    (void)dummy;
    pthread_mutex_unlock(&mutex);
}

static CUresult enter(const char *symbol, int gpu)
{
    int rc;

    pthread_mutex_lock(&mutex);
    state_refresh();
    state_pause(&mutex, state_hang(gpu, symbol));
    rc = state_error(gpu, symbol, state_count_call(gpu, symbol));
    return rc < 0 ? OK : rc;
}

#define ENTER(gpu)                                        \
    int locked __attribute__((cleanup(leave), unused)) = 1; \
    CUresult failed = enter(__func__, (gpu));             \
    if (failed)                                           \
        return failed

#define NEEDS(condition) \
    if (!(condition))    \
    return INVALID_VALUE

/* After cuInit. */
#define STARTED()          \
    ENTER(current);        \
    if (visible_count < 0) \
    return NOT_INITIALIZED

/* With a current context that no earlier error has spoiled. */
#define WORKING()                                        \
    STARTED();                                           \
    if (current < 0 || !contexts[current].retained)      \
        return INVALID_CONTEXT;                          \
    if (contexts[current].error)                         \
        return contexts[current].error;                  \
    if (state_int(current, "lost", 0))                   \
    return contexts[current].error = UNKNOWN

/* ---- time ---- */

/* A number of the state files, or of the model; the model's own when the file has none. */
static double rate(int gpu, const char *key, double fallback)
{
    const char *value = state_get(gpu, key);
    double found = value && *value ? strtod(value, NULL) : fallback;

    return found > 0 ? found : fallback;
}

/* Lets so much nominal time pass on the GPU, longer where a fault says so. */
static void pass(int gpu, double us)
{
    double slow = (double)state_int(gpu, "cuda_slow_percent", 0);

    contexts[gpu].clock_us += us / (1 - (slow < 99 ? slow : 99) / 100);
}

/* What two events read between them, the noise with it: a healthy GPU varies by a tenth of a percent. Less, the same and more take
 * turns, so that any three in a row vary, however often it was asked before. */
static double noisy(int gpu, double us)
{
    struct context *context = &contexts[gpu];
    const char *value = state_get(gpu, "cuda_noise_percent");
    double noise = value && *value ? strtod(value, NULL) : 0.1;

    context->noise = context->noise * 1103515245u + 12345u;
    context->turn = (context->turn + 1) % 3;
    return us * (1 + noise / 100 * ((int)context->turn - 1) * (0.8 + 0.2 * ((context->noise >> 16) & 0x7fff) / 32767));
}

/* ---- devices ---- */

static int present(int gpu)
{
    return gpu >= 0 && gpu < state_gpu_count() && !state_int(gpu, "absent", 0) && !state_int(gpu, "mig_mode", 0);
}

static int named(const char *word, size_t length)
{
    char *end;
    long index;

    if (!strncasecmp(word, "GPU-", 4)) {
        int found = -1;

        for (int gpu = 0; gpu < state_gpu_count(); gpu++) {
            const char *uuid = state_get(gpu, "uuid");

            if (present(gpu) && uuid && !strncasecmp(uuid, word, length))
                found = found < 0 ? gpu : -2;
        }
        return found;
    }
    index = strtol(word, &end, 10);
    if (end == word || end != word + length || index < 0)
        return -1;
    for (int gpu = 0; gpu < state_gpu_count(); gpu++)
        if (present(gpu) && index-- == 0)
            return gpu;
    return -1;
}

/* As the driver reads it: up to the first word that names no GPU. */
static void choose_visible(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");

    visible_count = 0;
    if (!text) {
        for (int gpu = 0; gpu < state_gpu_count(); gpu++)
            if (present(gpu))
                visible[visible_count++] = gpu;
        return;
    }
    while (*text && visible_count < GPUSIM_MAX_GPUS) {
        size_t length = strcspn(text, ",");
        int gpu = length ? named(text, length) : -1;

        if (gpu < 0)
            return;
        visible[visible_count++] = gpu;
        text += length + (text[length] == ',');
    }
}

static int gpu_of(CUdevice device)
{
    return visible_count > 0 && device >= 0 && device < visible_count ? visible[device] : -1;
}

/* Is the package's own library there? Without it a process would not find this one either; the linker's own stub answers 34. */
static int library_in(const char *directory, int deeper)
{
    char path[PATH_MAX], inner[PATH_MAX];
    struct dirent *entry;
    int found = 0;
    DIR *dir;

    if (!state_path(path, sizeof(path), directory) || !(dir = opendir(path)))
        return 0;
    while (!found && (entry = readdir(dir))) {
        if (!strncmp(entry->d_name, "libcuda.so.", 11) && isdigit((unsigned char)entry->d_name[11]) && strchr(entry->d_name + 11, '.'))
            found = 1;
        else if (deeper && entry->d_name[0] != '.' &&
                 (size_t)snprintf(inner, sizeof(inner), "%s/%s", directory, entry->d_name) < sizeof(inner))
            found = library_in(inner, 0);
    }
    closedir(dir);
    return found;
}

static int installed(void)
{
    return library_in("/usr/lib/x86_64-linux-gnu", 0) || library_in("/usr/lib/x86_64-linux-gnu/nvidia", 1) || library_in("/usr/lib64", 0);
}

API CUresult cuInit(unsigned flags)
{
    char library[GPUSIM_VERSION_SIZE];

    ENTER(-1);
    NEEDS(flags == 0);
    if (!installed())
        return STUB_LIBRARY;
    state_library_version(library, sizeof(library));
    if (!*state_loaded_version())
        return NO_DEVICE;
    if (*library && strcmp(library, state_loaded_version()))
        return DRIVER_MISMATCH;
    choose_visible();
    if (!visible_count) {
        visible_count = -1;
        return NO_DEVICE;
    }
    return OK;
}

API CUresult cuDriverGetVersion(int *version)
{
    static const struct {
        int major, cuda;
    } table[] = {
        { 590, 13010 }, { 580, 13000 }, { 575, 12090 }, { 570, 12080 }, { 565, 12070 }, { 560, 12060 }, { 555, 12050 },
        { 550, 12040 }, { 545, 12030 }, { 535, 12020 }, { 530, 12010 }, { 525, 12000 }, { 520, 11080 }, { 515, 11070 },
        { 510, 11060 }, { 470, 11040 }, { 450, 11000 },
    };
    char library[GPUSIM_VERSION_SIZE];

    ENTER(-1);
    NEEDS(version);
    state_library_version(library, sizeof(library));
    *version = 10020;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (state_major(library) >= table[i].major) {
            *version = table[i].cuda;
            break;
        }
    }
    return OK;
}

static CUresult describe(CUresult rc, const char **out, int text)
{
    NEEDS(out);
    *out = NULL;
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        if (errors[i].rc == rc) {
            *out = text ? errors[i].text : errors[i].name;
            return OK;
        }
    }
    return INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult rc, const char **out)
{
    return describe(rc, out, 0);
}

API CUresult cuGetErrorString(CUresult rc, const char **out)
{
    return describe(rc, out, 1);
}

API CUresult cuDeviceGetCount(int *count)
{
    STARTED();
    NEEDS(count);
    *count = visible_count;
    return OK;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    STARTED();
    NEEDS(device);
    if (gpu_of(ordinal) < 0)
        return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    int gpu = gpu_of(device), byte = 0;
    const char *text;

    STARTED();
    NEEDS(uuid);
    if (gpu < 0)
        return INVALID_DEVICE;
    text = state_get(gpu, "uuid");
    memset(uuid, 0, sizeof(*uuid));
    for (text = text && strlen(text) > 4 ? text + 4 : ""; *text && byte < 16; text++) {
        unsigned value;

        if (*text == '-')
            continue;
        if (sscanf(text, "%2x", &value) != 1)
            break;
        uuid->bytes[byte++] = (unsigned char)value;
        text++;
    }
    return byte == 16 ? OK : UNKNOWN;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

API CUresult cuDeviceGetPCIBusId(char *out, int length, CUdevice device)
{
    int gpu = gpu_of(device);
    const char *text;

    STARTED();
    NEEDS(out && length > 12);
    if (gpu < 0)
        return INVALID_DEVICE;
    text = state_get(gpu, "pci");
    if (!text || strlen(text) != 16)
        return UNKNOWN;
    for (int i = 0; i <= 12; i++)
        out[i] = (char)toupper((unsigned char)text[4 + i]);
    return OK;
}

API CUresult cuDeviceGetName(char *out, int length, CUdevice device)
{
    int gpu = gpu_of(device);
    const char *text;

    STARTED();
    NEEDS(out && length > 0);
    if (gpu < 0)
        return INVALID_DEVICE;
    text = state_get(gpu, "name");
    snprintf(out, (size_t)length, "%s", text ? text : "");
    return OK;
}

/* ---- contexts ---- */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    int gpu = gpu_of(device);
    struct state_process one;
    long long mode;

    ENTER(gpu);
    if (visible_count < 0)
        return NOT_INITIALIZED;
    NEEDS(context);
    if (gpu < 0)
        return INVALID_DEVICE;
    mode = state_int(gpu, "compute_mode", 0);
    if (state_int(gpu, "lost", 0))
        return UNKNOWN;
    if (mode == 2 || (mode == 3 && state_processes(gpu, 'C', &one, 1) > 0))
        return DEVICE_UNAVAILABLE;
    contexts[gpu].retained++;
    contexts[gpu].noise = contexts[gpu].noise ? contexts[gpu].noise : (unsigned)gpu * 7919u + 1u;
    *context = &contexts[gpu];
    return OK;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    int gpu = gpu_of(device);

    ENTER(gpu);
    if (gpu < 0)
        return INVALID_DEVICE;
    if (!contexts[gpu].retained)
        return INVALID_CONTEXT;
    contexts[gpu].retained--;
    return OK;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
    STARTED();
    if (!context) {
        current = -1;
        return OK;
    }
    if (context < contexts || context >= contexts + GPUSIM_MAX_GPUS)
        return INVALID_CONTEXT;
    current = (int)(context - contexts);
    return OK;
}

API CUresult cuCtxSynchronize(void)
{
    WORKING();
    return OK;
}

/* ---- memory ---- */

static struct block *block_at(CUdeviceptr address, size_t size)
{
    if (current < 0)
        return NULL;
    for (struct block *block = contexts[current].blocks; block; block = block->next) {
        uint64_t start = (uint64_t)(uintptr_t)block->data;

        if (address >= start && address - start <= block->size && size <= block->size - (address - start))
            return block;
    }
    return NULL;
}

static void *memory(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static size_t mib(int gpu, const char *key, long long fallback)
{
    long long value = state_int(gpu, key, fallback);

    return (size_t)(value < 0 ? 0 : value) << 20;
}

static size_t taken(int gpu)
{
    size_t sum = 0;

    for (struct block *block = contexts[gpu].blocks; block; block = block->next)
        sum += block->size;
    return sum;
}

/* CUDA programs get a part of the memory only: it is memory of this machine. */
static size_t free_memory(int gpu)
{
    size_t whole = mib(gpu, "cuda_free_mib", 256), used = taken(gpu);

    return used < whole ? whole - used : 0;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    WORKING();
    NEEDS(free_bytes && total);
    *free_bytes = free_memory(current);
    *total = mib(current, "memory_total_mib", 0);
    return OK;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    struct block *block;

    WORKING();
    NEEDS(address && size);
    if (size > free_memory(current))
        return OUT_OF_MEMORY;
    block = calloc(1, sizeof(*block));
    if (!block)
        return OUT_OF_MEMORY;
    block->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block->data == MAP_FAILED) {
        free(block);
        return OUT_OF_MEMORY;
    }
    block->size = size;
    block->gpu = current;
    block->version = ++writes;
    block->next = contexts[current].blocks;
    contexts[current].blocks = block;
    *address = (uint64_t)(uintptr_t)block->data;
    return OK;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
    WORKING();
    for (struct block **link = &contexts[current].blocks; *link; link = &(*link)->next) {
        struct block *block = *link;

        if (block->data == memory(address)) {
            *link = block->next;
            munmap(block->data, block->size);
            free(block);
            return OK;
        }
    }
    return INVALID_VALUE;
}

API CUresult cuMemAllocHost_v2(void **address, size_t size)
{
    WORKING();
    NEEDS(address && size);
    return posix_memalign(address, 4096, size) ? OUT_OF_MEMORY : OK;
}

API CUresult cuMemFreeHost(void *address)
{
    WORKING();
    free(address);
    return OK;
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t size)
{
    struct block *block = block_at(to, size);

    NEEDS(block && from);
    memcpy(memory(to), from, size);
    block->version = ++writes;
    pass(current, 2 + (double)size / (rate(current, "cuda_h2d_gbps", 25) * 1e3));
    return OK;
}

static CUresult to_host(void *to, CUdeviceptr from, size_t size)
{
    NEEDS(block_at(from, size) && to);
    memcpy(to, memory(from), size);
    pass(current, 2 + (double)size / (rate(current, "cuda_d2h_gbps", 25) * 1e3));
    return OK;
}

static CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    static const char what[] = "copy";
    struct block *target = block_at(to, size), *source = block_at(from, size);
    size_t to_offset, from_offset;

    NEEDS(target && source);
    to_offset = (size_t)(to - (uint64_t)(uintptr_t)target->data);
    from_offset = (size_t)(from - (uint64_t)(uintptr_t)source->data);
    if (target->made.what != what || target->made.left != source || target->made.left_version != source->version ||
        target->made.version != target->version || target->made.from != from_offset || target->made.to != to_offset ||
        target->made.size != size) {
        memmove(memory(to), memory(from), size);
        target->version = ++writes;
        target->made.what = what;
        target->made.left = source;
        target->made.left_version = source->version;
        target->made.version = target->version;
        target->made.from = from_offset;
        target->made.to = to_offset;
        target->made.size = size;
    }
    /* Each byte is read and written. */
    pass(current, 2 + 2.0 * (double)size / (rate(current, "cuda_copy_gbps", 1000) * 1e3));
    return OK;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    WORKING();
    return to_device(to, from, size);
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    WORKING();
    return to_host(to, from, size);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    WORKING();
    return on_device(to, from, size);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    WORKING();
    NEEDS(!stream);
    return to_device(to, from, size);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    WORKING();
    NEEDS(!stream);
    return to_host(to, from, size);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    WORKING();
    NEEDS(!stream);
    return on_device(to, from, size);
}

/* ---- kernels ---- */

#define PARAMETER(type, index) (*(const type *)parameters[index])

static CUresult run_fill(int gpu, void **parameters, double *us)
{
    CUdeviceptr address = PARAMETER(uint64_t, 0);
    uint32_t words = PARAMETER(uint32_t, 1), base = PARAMETER(uint32_t, 2), step = PARAMETER(uint32_t, 3);
    struct block *block = block_at(address, (size_t)words * 4);
    uint32_t *word = memory(address);

    if (!block)
        return ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < words; i++)
        word[i] = base + i * step;
    if (words && state_int(gpu, "cuda_corrupt_byte", 0))
        ((unsigned char *)word)[(size_t)words * 2 + 1] ^= 0x10;
    block->version = ++writes;
    *us = words * 4.0 / (rate(gpu, "cuda_copy_gbps", 1000) * 1e3);
    return OK;
}

static CUresult run_verify(int gpu, void **parameters, double *us)
{
    CUdeviceptr address = PARAMETER(uint64_t, 0), answer = PARAMETER(uint64_t, 4);
    uint32_t words = PARAMETER(uint32_t, 1), base = PARAMETER(uint32_t, 2), step = PARAMETER(uint32_t, 3);
    struct block *result = block_at(answer, 12);
    const uint32_t *word = memory(address);
    uint32_t *out = memory(answer);

    if (!block_at(address, (size_t)words * 4) || !result)
        return ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < words; i++) {
        uint32_t differs = word[i] ^ (base + i * step);

        if (differs) {
            out[0]++;
            out[1] = i < out[1] ? i : out[1];
            out[2] |= differs;
        }
    }
    result->version = ++writes;
    *us = words * 4.0 / (rate(gpu, "cuda_copy_gbps", 1000) * 1e3);
    return OK;
}

static CUresult run_add(int gpu, void **parameters, double *us)
{
    uint32_t count = PARAMETER(uint32_t, 3);
    size_t size = (size_t)count * 4;
    struct block *block = block_at(PARAMETER(uint64_t, 2), size);
    const float *left = memory(PARAMETER(uint64_t, 0)), *right = memory(PARAMETER(uint64_t, 1));
    float *sum = memory(PARAMETER(uint64_t, 2));

    if (!block || !block_at(PARAMETER(uint64_t, 0), size) || !block_at(PARAMETER(uint64_t, 1), size))
        return ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < count; i++)
        sum[i] = left[i] + right[i];
    if (count && (state_int(gpu, "cuda_wrong_result", 0) & 1))
        sum[count / 3] += 1;
    block->version = ++writes;
    *us = 3.0 * (double)size / (rate(gpu, "cuda_copy_gbps", 1000) * 1e3);
    return OK;
}

static CUresult run_product(int gpu, void **parameters, double *us)
{
    static const char what[] = "product";
    uint32_t edge = PARAMETER(uint32_t, 3);
    size_t size = (size_t)edge * edge * 4;
    struct block *block = block_at(PARAMETER(uint64_t, 2), size);
    struct block *first = block_at(PARAMETER(uint64_t, 0), size), *second = block_at(PARAMETER(uint64_t, 1), size);
    const float *left = memory(PARAMETER(uint64_t, 0)), *right = memory(PARAMETER(uint64_t, 1));
    float *product = memory(PARAMETER(uint64_t, 2));

    if (!block || !first || !second)
        return ILLEGAL_ADDRESS;
    if (block->made.what != what || block->made.left != first || block->made.left_version != first->version || block->made.right != second ||
        block->made.right_version != second->version || block->made.version != block->version || block->made.size != size) {
        memset(product, 0, size);
        for (size_t row = 0; row < edge; row++) {
            for (size_t k = 0; k < edge; k++) {
                float factor = left[row * edge + k];

                for (size_t column = 0; column < edge; column++)
                    product[row * edge + column] += factor * right[k * edge + column];
            }
        }
        if (size && (state_int(gpu, "cuda_wrong_result", 0) & 2))
            product[(size_t)edge * edge / 3] += 1;
        block->version = ++writes;
        block->made.what = what;
        block->made.left = first;
        block->made.left_version = first->version;
        block->made.right = second;
        block->made.right_version = second->version;
        block->made.version = block->version;
        block->made.size = size;
    }
    *us = 2.0 * edge * edge * edge / (rate(gpu, "cuda_gflops", 3000) * 1e3);
    return OK;
}

static const struct kernel kernels[] = {
    { "gpufleet_fill", run_fill },
    { "gpufleet_verify", run_verify },
    { "gpufleet_add", run_add },
    { "gpufleet_product", run_product },
};

/* Text of PTX for a GPU no newer than this one; that is all that is looked at, beside the names of its entries. */
API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const char *target;

    WORKING();
    NEEDS(module && image);
    target = strstr(image, ".target sm_");
    if (strncmp(image, ".version ", 9) || !target ||
        strtol(target + 11, NULL, 10) > state_int(current, "compute_major", 7) * 10 + state_int(current, "compute_minor", 0))
        return INVALID_PTX;
    *module = calloc(1, sizeof(**module));
    if (!*module)
        return OUT_OF_MEMORY;
    (*module)->image = strdup(image);
    return (*module)->image ? OK : OUT_OF_MEMORY;
}

API CUresult cuModuleUnload(CUmodule module)
{
    WORKING();
    if (!module)
        return INVALID_HANDLE;
    free(module->image);
    free(module);
    return OK;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    char entry[128];
    const char *found;

    WORKING();
    NEEDS(function && name);
    if (!module)
        return INVALID_HANDLE;
    snprintf(entry, sizeof(entry), ".entry %s", name);
    found = strstr(module->image, entry);
    if (!found || isalnum((unsigned char)found[strlen(entry)]) || found[strlen(entry)] == '_')
        return NOT_FOUND;
    for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
        if (!strcmp(kernels[i].name, name)) {
            *function = &kernels[i];
            return OK;
        }
    }
    return NOT_SUPPORTED;
}

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra)
{
    double us = 0;
    long long planned;

    WORKING();
    NEEDS(grid_x && grid_y && grid_z && block_x && block_y && block_z && !shared_bytes && !stream && parameters && !extra);
    NEEDS(block_x * block_y * block_z <= 1024);
    if (function < kernels || function >= kernels + sizeof(kernels) / sizeof(*kernels))
        return INVALID_HANDLE;
    planned = state_int(current, "cuda_launch_error", 0);
    /* As on a GPU: the launch itself succeeds, and the next call that looks says what happened. */
    contexts[current].error = planned ? (int)planned : function->run(current, parameters, &us);
    pass(current, 2 + us);
    return OK;
}

/* ---- events ---- */

API CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    WORKING();
    NEEDS(event && !flags);
    *event = calloc(1, sizeof(**event));
    if (!*event)
        return OUT_OF_MEMORY;
    (*event)->gpu = current;
    return OK;
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    WORKING();
    if (!event)
        return INVALID_HANDLE;
    free(event);
    return OK;
}

API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    WORKING();
    if (!event || stream || event->gpu != current)
        return INVALID_HANDLE;
    event->recorded = 1;
    event->at_us = contexts[current].clock_us;
    return OK;
}

API CUresult cuEventSynchronize(CUevent event)
{
    WORKING();
    return event && event->recorded ? OK : INVALID_HANDLE;
}

API CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    WORKING();
    NEEDS(ms);
    if (!start || !end || !start->recorded || !end->recorded)
        return INVALID_HANDLE;
    *ms = (float)(noisy(current, end->at_us - start->at_us) / 1e3);
    return OK;
}
