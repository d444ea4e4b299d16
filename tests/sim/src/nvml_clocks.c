/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The clocks that a board can run at: its memory clocks, and for each the graphics clocks from the highest down in equal steps. */
#include "nvml_sim.h"

#include <stdlib.h>

#define USUAL_STEP_KHZ 15000

/* The n-th memory clock of "6251 405", or the highest where a profile lists none; 0 when there are no more. */
static u32 memory_clock(int gpu, u32 n)
{
    const char *list = state_get(gpu, "clocks_mem_mhz");

    if (!list || !*list)
        return n ? 0 : (u32)state_int(gpu, "clock_max_mem_mhz", 0);
    for (;; n--) {
        char *end;
        u32 clock = (u32)strtoul(list, &end, 10);

        if (end == list)
            return 0;
        if (!n)
            return clock;
        list = end;
    }
}

API int nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, u32 *count, u32 *clocks)
{
    u32 found = 0;

    DEVICE();
    NEEDS(count);
    while (memory_clock(gpu, found))
        found++;
    if (*count < found) {
        *count = found;
        return RC_INSUFFICIENT_SIZE;
    }
    NEEDS(clocks || !found);
    for (u32 i = 0; i < found; i++)
        clocks[i] = memory_clock(gpu, i);
    *count = found;
    return RC_SUCCESS;
}

API int nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, u32 memory, u32 *count, u32 *clocks)
{
    long long highest, lowest, step;
    u32 found, place = 0;

    DEVICE();
    NEEDS(count);
    while (memory_clock(gpu, place) && memory_clock(gpu, place) != memory)
        place++;
    if (!memory || !memory_clock(gpu, place))
        return RC_NOT_FOUND;
    /* What a board can do is told by its profile alone, whatever it does now. */
    highest = state_int(gpu, "clock_max_graphics_mhz", 0) * 1000;
    lowest = state_int(gpu, "clock_lowest_mhz", state_int(gpu, "clock_graphics_mhz", 0)) * 1000;
    step = state_int(gpu, "clock_step_khz", USUAL_STEP_KHZ);
    SUPPORTED(highest > 0 && lowest > 0 && step > 0 && lowest <= highest);
    found = (u32)((highest - lowest) / step) + 1;
    if (*count < found) {
        *count = found;
        return RC_INSUFFICIENT_SIZE;
    }
    NEEDS(clocks);
    for (u32 i = 0; i < found; i++)
        clocks[i] = (u32)((highest - (long long)i * step) / 1000);
    *count = found;
    return RC_SUCCESS;
}
