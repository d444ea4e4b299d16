/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE
#include "state.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct pair {
    const char *section, *key, *value;
};

struct ini {
    const char *path;
    char *raw;
    size_t raw_size;
    char *text;
    struct pair *pairs;
    size_t count;
};

enum { NODE, FAULTS, LOADED, SETTINGS, INFOROM, PROCESSES, PERSISTENCED, FILES };

static struct ini files[FILES] = {
    [NODE] = { .path = "/etc/gpusim/node.ini" },
    [FAULTS] = { .path = "/etc/gpusim/faults.ini" },
    [LOADED] = { .path = "/run/gpusim/loaded" },
    [SETTINGS] = { .path = "/run/gpusim/settings.ini" },
    [INFOROM] = { .path = "/var/lib/gpusim/inforom.ini" },
    [PROCESSES] = { .path = "/run/gpusim/processes.ini" },
    [PERSISTENCED] = { .path = "/run/gpusim/persistenced" },
};

static const char *root(void)
{
    const char *value = secure_getenv("GPUSIM_ROOT");

    return value && strcmp(value, "/") ? value : "";
}

int state_rooted(void)
{
    return root()[0] != '\0';
}

int state_path(char *out, size_t size, const char *path)
{
    int length = snprintf(out, size, "%s%s", root(), path);

    return length > 0 && (size_t)length < size;
}

/* ---- INI ---- */

static char *slurp(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0, room = 8192;
    char *data;

    *size = 0;
    if (fd < 0)
        return NULL;
    data = malloc(room + 1);
    while (data) {
        ssize_t got = read(fd, data + used, room - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
        if (used == room) {
            char *more = realloc(data, room * 2 + 1);

            if (!more)
                break;
            data = more;
            room *= 2;
        }
    }
    close(fd);
    if (data) {
        data[used] = '\0';
        *size = used;
    }
    return data;
}

static char *trim(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

static void parse(struct ini *ini)
{
    const char *section = "";
    size_t lines = 1;
    char *save = NULL;

    free(ini->text);
    free(ini->pairs);
    ini->count = 0;
    ini->text = ini->raw ? strdup(ini->raw) : NULL;
    for (const char *p = ini->raw; p && *p; p++)
        lines += *p == '\n';
    ini->pairs = calloc(lines, sizeof(*ini->pairs));
    if (!ini->text || !ini->pairs)
        return;
    for (char *line = strtok_r(ini->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *equals;

        line = trim(line);
        if (!*line || *line == '#' || *line == ';')
            continue;
        if (*line == '[') {
            char *close = strchr(line, ']');

            if (close)
                *close = '\0';
            section = trim(line + 1);
            continue;
        }
        equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = '\0';
        ini->pairs[ini->count].section = section;
        ini->pairs[ini->count].key = trim(line);
        ini->pairs[ini->count].value = trim(equals + 1);
        ini->count++;
    }
}

static void load(struct ini *ini)
{
    char path[PATH_MAX];
    size_t size = 0;
    char *raw = NULL;

    if (state_path(path, sizeof(path), ini->path))
        raw = slurp(path, &size);
    if (ini->text && raw && ini->raw && size == ini->raw_size && !memcmp(raw, ini->raw, size)) {
        free(raw);
        return;
    }
    if (!raw && !ini->raw)
        return;
    free(ini->raw);
    ini->raw = raw;
    ini->raw_size = size;
    parse(ini);
}

/* Grows with every call of the library: a value that changes from call to call changes between calls, never within one. */
static unsigned long epoch;

void state_refresh(void)
{
    epoch++;
    for (int i = 0; i < FILES; i++)
        load(&files[i]);
}

static const char *find(const struct ini *ini, const char *section, const char *key)
{
    for (size_t i = 0; i < ini->count; i++)
        if (!strcmp(ini->pairs[i].key, key) && !strcmp(ini->pairs[i].section, section))
            return ini->pairs[i].value;
    return NULL;
}

const char *state_node(const char *section, const char *key)
{
    return find(&files[NODE], section, key);
}

int state_gpu_count(void)
{
    const char *value = state_node("node", "gpus");
    long count = value ? strtol(value, NULL, 10) : 0;

    return count < 0 ? 0 : count > GPUSIM_MAX_GPUS ? GPUSIM_MAX_GPUS : (int)count;
}

/* ---- the driver ---- */

const char *state_loaded(const char *key)
{
    return find(&files[LOADED], "nvidia", key);
}

const char *state_loaded_version(void)
{
    const char *value = state_loaded("version");

    return value ? value : "";
}

int state_major(const char *version)
{
    return (int)strtol(version, NULL, 10);
}

static const char *library_suffix(const char *name)
{
    static const char prefix[] = "libnvidia-ml.so.";
    const char *suffix = name + sizeof(prefix) - 1;

    if (strncmp(name, prefix, sizeof(prefix) - 1) || !isdigit((unsigned char)*suffix) || !strchr(suffix, '.'))
        return NULL;
    return suffix;
}

static int library_in(const char *directory, char *out, size_t size)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    int found = 0;

    if (!dir)
        return 0;
    while ((entry = readdir(dir))) {
        const char *suffix = library_suffix(entry->d_name);

        if (suffix && (!found || strverscmp(suffix, out) > 0)) {
            snprintf(out, size, "%s", suffix);
            found = 1;
        }
    }
    closedir(dir);
    return found;
}

/* What the dynamic linker would find: the soname link, followed; without one, the files themselves. */
void state_library_version(char *out, size_t size)
{
    static const char *const directories[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib64" };
    char path[PATH_MAX], real[PATH_MAX + 257];

    out[0] = '\0';
    for (size_t i = 0; i < sizeof(directories) / sizeof(*directories); i++) {
        char inner[PATH_MAX];
        struct dirent *entry;
        DIR *dir;

        snprintf(inner, sizeof(inner), "%s/libnvidia-ml.so.1", directories[i]);
        if (state_path(path, sizeof(path), inner) && realpath(path, real)) {
            const char *suffix = library_suffix(strrchr(real, '/') + 1);

            if (suffix) {
                snprintf(out, size, "%s", suffix);
                return;
            }
        }
        snprintf(inner, sizeof(inner), "%s/nvidia", directories[i]);
        if (state_path(path, sizeof(path), inner) && (dir = opendir(path))) {
            int found = 0;

            while (!found && (entry = readdir(dir))) {
                if (entry->d_name[0] == '.')
                    continue;
                snprintf(real, sizeof(real), "%s/%s", path, entry->d_name);
                found = library_in(real, out, size);
            }
            closedir(dir);
            if (found)
                return;
        }
        if (state_path(path, sizeof(path), directories[i]) && library_in(path, out, size))
            return;
    }
}

/* ---- faults ---- */

static int fault_active(const char *section, int gpu)
{
    const struct ini *faults = &files[FAULTS];
    const char *value;

    value = find(faults, section, "gpu");
    if (value && strcmp(value, "all") && (gpu < 0 || strtol(value, NULL, 10) != gpu))
        return 0;
    value = find(faults, section, "driver");
    if (value && strcmp(value, state_loaded_version()))
        return 0;
    value = find(faults, section, "from_s");
    if (value || find(faults, section, "until_s")) {
        const char *loaded_at = state_loaded("time");
        const char *until = find(faults, section, "until_s");
        double age = loaded_at ? (double)time(NULL) - strtod(loaded_at, NULL) : 0;

        if (value && age < strtod(value, NULL))
            return 0;
        if (until && age >= strtod(until, NULL))
            return 0;
    }
    return 1;
}

/* How many calls of all processes asked for this, this one included. The count is the size of a file, as appending one byte to it
 * needs no lock. A fault that is made or taken away begins a new count. */
static unsigned long reads(int gpu, const char *key)
{
    static struct {
        int gpu;
        char key[64];
        unsigned long epoch, count;
    } seen[64];
    static size_t next;
    char name[PATH_MAX], path[PATH_MAX];
    struct stat info;
    unsigned long count = 1;
    int fd;

    for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++)
        if (seen[i].gpu == gpu && seen[i].epoch == epoch && !strcmp(seen[i].key, key))
            return seen[i].count;
    snprintf(name, sizeof(name), "/run/gpusim/calls/%d.%s", gpu, key);
    if (state_path(path, sizeof(path), "/run/gpusim/calls"))
        mkdir(path, 0777);
    fd = state_path(path, sizeof(path), name) ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        if (write(fd, "+", 1) == 1 && !fstat(fd, &info))
            count = (unsigned long)info.st_size;
        close(fd);
    }
    seen[next].gpu = gpu;
    snprintf(seen[next].key, sizeof(seen[next].key), "%s", key);
    seen[next].epoch = epoch;
    seen[next].count = count;
    next = (next + 1) % (sizeof(seen) / sizeof(*seen));
    return count;
}

/* Values that change from call to call. "2*3,3" is 2 for three calls and then 3; "5++2" is 5, then 7, then 9, and in "4:5++2" the
 * last number grows. */
static const char *moving(int gpu, const char *key, const char *value)
{
    static char buffers[16][128];
    static size_t next;
    const char *grows = strstr(value, "++"), *star = strchr(value, '*');
    char *out = buffers[next % 16];

    if (grows && isdigit((unsigned char)grows[2])) {
        const char *number = grows;

        while (number > value && isdigit((unsigned char)number[-1]))
            number--;
        next++;
        snprintf(out, sizeof(buffers[0]), "%.*s%llu", (int)(number - value), value,
                 strtoull(number, NULL, 10) + strtoull(grows + 2, NULL, 10) * (reads(gpu, key) - 1));
        return out;
    }
    if (star && star > value && isdigit((unsigned char)star[1])) {
        unsigned long count = reads(gpu, key);

        next++;
        for (;;) {
            size_t length = strcspn(value, "*,");
            const char *end = value + length;
            unsigned long times = *end == '*' ? strtoul(end + 1, (char **)&end, 10) : 0;

            if (!times || count <= times) {
                snprintf(out, sizeof(buffers[0]), "%.*s", (int)length, value);
                return out;
            }
            count -= times;
            if (*end != ',')
                return out[0] = '\0', out;
            value = end + 1;
        }
    }
    return value;
}

static const char *fault_value(int gpu, const char *prefix, const char *key)
{
    const struct ini *faults = &files[FAULTS];
    size_t length = strlen(prefix);

    for (size_t i = 0; i < faults->count; i++) {
        const struct pair *pair = &faults->pairs[i];

        if (strncmp(pair->section, "fault ", 6) || strncmp(pair->key, prefix, length) || strcmp(pair->key + length, key))
            continue;
        if (fault_active(pair->section, gpu))
            return pair->value;
    }
    return NULL;
}

double state_hang(int gpu, const char *symbol)
{
    const char *value = fault_value(gpu, "hang.", symbol);

    if (!value)
        return 0;
    return !strcmp(value, "forever") ? -1 : strtod(value, NULL);
}

/* Seconds, or for ever with every signal but SIGKILL held back, as a call stuck in the kernel. */
static void hang(double seconds)
{
    struct timespec pause_time = { .tv_sec = 3600 };
    sigset_t all;

    if (seconds < 0) {
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        for (;;)
            nanosleep(&pause_time, NULL);
    }
    pause_time.tv_sec = (time_t)seconds;
    pause_time.tv_nsec = (long)((seconds - (double)pause_time.tv_sec) * 1e9);
    while (nanosleep(&pause_time, &pause_time))
        continue;
}

void state_pause(pthread_mutex_t *mutex, double seconds)
{
    if (seconds == 0)
        return;
    pthread_mutex_unlock(mutex);
    hang(seconds);
    pthread_mutex_lock(mutex);
    state_refresh();
}

unsigned long state_count_call(int gpu, const char *symbol)
{
    static struct {
        const char *symbol;
        unsigned long calls[GPUSIM_MAX_GPUS + 1];
    } counters[512];

    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++) {
        if (!counters[i].symbol)
            counters[i].symbol = symbol;
        if (!strcmp(counters[i].symbol, symbol))
            return ++counters[i].calls[gpu + 1];
    }
    return 1;
}

int state_error(int gpu, const char *symbol, unsigned long calls)
{
    const char *value = fault_value(gpu, "error.", symbol);
    const char *after, *first;

    if (!value)
        return -1;
    first = strstr(value, "first");
    if (first && reads(gpu, symbol) > strtoul(first + 5, NULL, 10))
        return -1;
    after = strstr(value, "after");
    if (after && calls <= strtoul(after + 5, NULL, 10))
        return -1;
    return (int)strtol(value, NULL, 10);
}

int state_ignored(int gpu, const char *symbol)
{
    return fault_value(gpu, "ignore.", symbol) != NULL;
}

/* ---- values ---- */

const char *state_get(int gpu, const char *key)
{
    char section[32];
    const char *value = fault_value(gpu, "set.", key);

    if (value)
        return moving(gpu, key, value);
    snprintf(section, sizeof(section), "gpu %d", gpu);
    value = find(&files[SETTINGS], section, key);
    if (!value)
        value = find(&files[INFOROM], section, key);
    if (!value)
        value = find(&files[NODE], section, key);
    if (!value)
        value = find(&files[NODE], "gpu", key);
    return value;
}

long long state_int(int gpu, const char *key, long long fallback)
{
    const char *value = state_get(gpu, key);

    return value && *value ? strtoll(value, NULL, 0) : fallback;
}

/* ---- processes ---- */

static int alive(long pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%ld", pid);
    return pid > 0 && access(path, F_OK) == 0;
}

int state_processes(int gpu, char type, struct state_process *out, int size)
{
    const struct ini *ini = &files[PROCESSES];
    int count = 0;

    for (size_t i = 0; i < ini->count; i++) {
        const char *section = ini->pairs[i].section, *value;
        long pid;
        char kind;

        if (strcmp(ini->pairs[i].key, "gpu") || strtol(ini->pairs[i].value, NULL, 10) != gpu)
            continue;
        value = find(ini, section, "pid");
        pid = value ? strtol(value, NULL, 10) : 0;
        value = find(ini, section, "type");
        kind = value && *value ? *value : 'C';
        if (kind != type || !alive(pid))
            continue;
        value = find(ini, section, "used_mib");
        if (count < size) {
            out[count].pid = (unsigned)pid;
            out[count].used_bytes = (value ? strtoull(value, NULL, 10) : 0) << 20;
            out[count].type = kind;
            value = find(ini, section, "gi");
            out[count].gpu_instance = value ? (int)strtol(value, NULL, 10) : -1;
            value = find(ini, section, "ci");
            out[count].compute_instance = value ? (int)strtol(value, NULL, 10) : -1;
        }
        count++;
    }
    return count;
}

/* 1: a live persistence daemon keeps the mode on; 0: none runs, or it was told not to. */
int state_persistenced_mode(void)
{
    const char *pid = find(&files[PERSISTENCED], "persistenced", "pid");
    const char *mode = find(&files[PERSISTENCED], "persistenced", "mode");

    char path[64], name[32] = "";
    FILE *file;

    if (!pid || (mode && strtol(mode, NULL, 10) == 0))
        return 0;
    /* The number alone proves nothing: the daemon may be gone and its number given to another. */
    snprintf(path, sizeof(path), "/proc/%ld/comm", strtol(pid, NULL, 10));
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (!fgets(name, sizeof(name), file))
        name[0] = '\0';
    fclose(file);
    return !strncmp(name, "nvidia-persiste", 15);
}

/* ---- writing ---- */

void state_wrote(int gpu, const char *symbol)
{
    char path[PATH_MAX], line[160];
    int length = snprintf(line, sizeof(line), "%s %d\n", symbol, gpu);
    int fd = state_path(path, sizeof(path), "/run/gpusim/writes") ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;

    if (fd < 0 || write(fd, line, (size_t)length) != length)
        perror("gpusim: a write could not be noted");
    if (fd >= 0)
        close(fd);
}

int state_put(int gpu, const char *key, const char *value, int persistent)
{
    struct ini *ini = &files[persistent ? INFOROM : SETTINGS];
    char path[PATH_MAX], lock[PATH_MAX], temporary[PATH_MAX + 16], section[32];
    const char *open_section = NULL;
    int lock_fd, written = 0, failed;
    FILE *out;

    if ((geteuid() != 0 && !state_rooted()) || !state_path(path, sizeof(path), ini->path) ||
        !state_path(lock, sizeof(lock), "/run/gpusim/lock"))
        return -1;
    snprintf(section, sizeof(section), "gpu %d", gpu);
    lock_fd = open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock_fd < 0)
        return -1;
    while (flock(lock_fd, LOCK_EX) && errno == EINTR)
        continue;
    load(ini);
    snprintf(temporary, sizeof(temporary), "%s.%ld", path, (long)getpid());
    out = fopen(temporary, "we");
    if (!out) {
        close(lock_fd);
        return -1;
    }
    for (size_t i = 0; i < ini->count; i++) {
        const struct pair *pair = &ini->pairs[i];

        if (!open_section || strcmp(open_section, pair->section)) {
            if (open_section && !strcmp(open_section, section) && !written) {
                fprintf(out, "%s = %s\n", key, value);
                written = 1;
            }
            fprintf(out, "[%s]\n", pair->section);
            open_section = pair->section;
        }
        if (!strcmp(pair->section, section) && !strcmp(pair->key, key)) {
            if (!written)
                fprintf(out, "%s = %s\n", key, value);
            written = 1;
        } else {
            fprintf(out, "%s = %s\n", pair->key, pair->value);
        }
    }
    if (!written) {
        if (!open_section || strcmp(open_section, section))
            fprintf(out, "[%s]\n", section);
        fprintf(out, "%s = %s\n", key, value);
    }
    failed = fclose(out) != 0 || rename(temporary, path) != 0;
    if (failed)
        unlink(temporary);
    load(ini);
    close(lock_fd);
    return failed ? -1 : 0;
}
