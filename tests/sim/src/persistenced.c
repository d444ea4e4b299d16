/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Stands in for nvidia-persistenced on a simulated node: same options, same pid file, same way into the background.
 * While it lives, the simulated driver's persistence mode is on, and it holds the device files open. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

static const char directory[] = "/run/nvidia-persistenced";
static const char pid_file[] = "/run/nvidia-persistenced/nvidia-persistenced.pid";
static const char state_file[] = "/run/gpusim/persistenced";

static void usage(FILE *out)
{
    fputs("nvidia-persistenced (simulated by gpusim): maintains the persistence mode of simulated GPUs.\n"
          "  -h, --help  -v, --version  -V, --verbose  -u, --user=NAME  -g, --group=NAME\n"
          "  --persistence-mode  --no-persistence-mode  --uvm-persistence-mode  --no-uvm-persistence-mode\n"
          "  --nvidia-cfg-path=PATH\n",
          out);
}

static int write_file(const char *name, const char *text)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    FILE *file;

    if (!state_path(path, sizeof(path), name))
        return -1;
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    file = fopen(temporary, "we");
    if (!file)
        return -1;
    fputs(text, file);
    if (fclose(file) || rename(temporary, path)) {
        unlink(temporary);
        return -1;
    }
    return 0;
}

static void remove_file(const char *name)
{
    char path[PATH_MAX];

    if (state_path(path, sizeof(path), name))
        unlink(path);
}

static int fail(const char *reason)
{
    fprintf(stderr, "nvidia-persistenced failed to initialize. Check syslog for more details.\n"
                    "nvidia-persistenced (simulated): %s\n", reason);
    syslog(LOG_ERR, "(simulated) %s", reason);
    return 1;
}

/* The state belongs to root; the daemon itself goes on as the user asked for, as the real one does. */
static int drop(const char *user, const char *group)
{
    struct passwd *account = user ? getpwnam(user) : NULL;
    struct group *members = group ? getgrnam(group) : NULL;
    char path[PATH_MAX];
    gid_t gid;

    if (!user)
        return 0;
    if (!account || (group && !members))
        return -1;
    if (geteuid() != 0)
        return 0;
    gid = members ? members->gr_gid : account->pw_gid;
    if (state_path(path, sizeof(path), directory) && chown(path, account->pw_uid, gid))
        return -1;
    return setgroups(0, NULL) || setgid(gid) || setuid(account->pw_uid) ? -1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'v' },
        { "verbose", no_argument, NULL, 'V' },
        { "user", required_argument, NULL, 'u' },
        { "group", required_argument, NULL, 'g' },
        { "persistence-mode", no_argument, NULL, 1 },
        { "no-persistence-mode", no_argument, NULL, 2 },
        { "uvm-persistence-mode", no_argument, NULL, 3 },
        { "no-uvm-persistence-mode", no_argument, NULL, 3 },
        { "nvidia-cfg-path", required_argument, NULL, 4 },
        { NULL, 0, NULL, 0 },
    };
    const char *user = NULL, *group = NULL;
    sigset_t ends;
    char path[PATH_MAX], text[128], answer = 1;
    int mode = 1, option, verbose = 0, ready[2], number;
    pid_t child;

    while ((option = getopt_long(argc, argv, "hvVu:g:", options, NULL)) != -1) {
        switch (option) {
        case 'h':
            usage(stdout);
            return 0;
        case 'v':
            puts("nvidia-persistenced:  simulated by gpusim");
            return 0;
        case 'V':
            verbose = 1;
            break;
        case 'u':
            user = optarg;
            break;
        case 'g':
            group = optarg;
            break;
        case 1:
            mode = 1;
            break;
        case 2:
            mode = 0;
            break;
        case 3:
        case 4:
            break;
        default:
            usage(stderr);
            return 1;
        }
    }
    openlog("nvidia-persistenced", LOG_PID, LOG_DAEMON);
    state_refresh();
    if (!*state_loaded_version())
        return fail("Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) exist, "
                    "and that user 0 has read and write permissions for those files.");
    if (user && !getpwnam(user))
        return fail("the user asked for does not exist");
    if (state_path(path, sizeof(path), directory) && mkdir(path, 0755) && errno != EEXIST)
        return fail("cannot create /run/nvidia-persistenced");
    if (pipe(ready))
        return fail("cannot create a pipe");
    child = fork();
    if (child < 0)
        return fail("cannot fork");
    if (child > 0) {
        close(ready[1]);
        return read(ready[0], &answer, 1) == 1 ? answer : 1;
    }
    close(ready[0]);
    setsid();
    if (chdir("/"))
        return 1;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    snprintf(text, sizeof(text), "[persistenced]\npid = %ld\nmode = %d\n", (long)getpid(), mode);
    if (write_file(state_file, text))
        return fail("cannot write /run/gpusim/persistenced");
    snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (write_file(pid_file, text))
        return fail("cannot write the pid file");
    for (int gpu = 0; mode && gpu < state_gpu_count(); gpu++) {
        char device[32];

        snprintf(device, sizeof(device), "/dev/nvidia%lld", state_int(gpu, "minor", gpu));
        /* Held until the daemon ends: this is what keeps the module from being unloaded. */
        if (state_path(path, sizeof(path), device) && open(path, O_RDWR | O_CLOEXEC) < 0 && verbose)
            syslog(LOG_NOTICE, "(simulated) cannot open %s: %m", path);
    }
    if (drop(user, group))
        return fail("cannot become the user asked for");
    syslog(LOG_NOTICE, "(simulated) Started (%ld), persistence mode %s", (long)getpid(), mode ? "enabled" : "disabled");
    for (int fd = 0; fd < 3; fd++) {
        int null = open("/dev/null", O_RDWR);

        if (null >= 0 && null != fd) {
            dup2(null, fd);
            close(null);
        }
    }
    answer = 0;
    if (write(ready[1], &answer, 1) != 1)
        return 1;
    close(ready[1]);
    while (sigwait(&ends, &number) == EINTR)
        continue;
    syslog(LOG_NOTICE, "(simulated) Shutdown (%ld)", (long)getpid());
    remove_file(pid_file);
    remove_file(state_file);
    return 0;
}
