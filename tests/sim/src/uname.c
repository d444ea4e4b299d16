/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Loaded into every process of a simulated node by /etc/ld.so.preload: uname() answers the release of the simulated
 * kernel, kept in /run/gpusim/release, and the real one as long as that file is missing. It calls nothing but system
 * calls, allocates nothing, keeps errno, and reads no environment in a set-user-ID program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

__attribute__((visibility("default"))) int uname(struct utsname *name)
{
    static const char file[] = "/run/gpusim/release";
    char path[512], release[sizeof(name->release)];
    int saved = errno;
    const char *root;
    size_t length;
    ssize_t got;
    int fd;

    if (syscall(SYS_uname, name) != 0)
        return -1;
    root = secure_getenv("GPUSIM_ROOT");
    length = root ? strlen(root) : 0;
    if (length + sizeof(file) > sizeof(path))
        return 0;
    if (length)
        memcpy(path, root, length);
    memcpy(path + length, file, sizeof(file));
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        got = read(fd, release, sizeof(release) - 1);
        close(fd);
        while (got > 0 && (release[got - 1] == '\n' || release[got - 1] == ' '))
            got--;
        if (got > 0) {
            release[got] = '\0';
            memcpy(name->release, release, (size_t)got + 1);
        }
    }
    errno = saved;
    return 0;
}
