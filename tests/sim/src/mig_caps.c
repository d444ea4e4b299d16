/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The files that stand for the right to use an instance: /proc/driver/nvidia/capabilities/gpuN/mig, /dev/nvidia-caps.
 * Their minor numbers follow from the place, as /proc/driver/nvidia-caps/mig-minors lists them (gpusim/sysfs.py). */
#define _GNU_SOURCE
#include "nvml_mig.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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
