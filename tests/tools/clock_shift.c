/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A library to preload: the clock of the process is CLOCK_SHIFT_S seconds ahead of the machine's, which stays as it is.
 * Debian's faketime replaces clock_nanosleep too, and refuses the absolute times with which Python sleeps.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void)
{
    const char *text = getenv("CLOCK_SHIFT_S");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int rc = syscall(SYS_clock_gettime, clock, now);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return rc;
}

int gettimeofday(struct timeval *now, void *zone)
{
    int rc = syscall(SYS_gettimeofday, now, zone);
    if (rc == 0)
        now->tv_sec += shift();
    return rc;
}

time_t time(time_t *now)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now)
        *now = found.tv_sec;
    return found.tv_sec;
}
