/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The calls that change something. Who is not root is refused. All but the ECC mode and, on some boards, the MIG mode is lost
 * with the driver: it lies in the settings of this load. */
#define _GNU_SOURCE
#include "nvml_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AMPERE 7

int privileged(int gpu)
{
    return (geteuid() == 0 || state_rooted()) && !state_int(gpu, "unprivileged", 0);
}

int put_text(int gpu, const char *key, const char *value, int persistent)
{
    return state_put(gpu, key, value, persistent) ? RC_NO_PERMISSION : RC_SUCCESS;
}

int put_number(int gpu, const char *key, long long value, int persistent)
{
    char buffer[32];

    snprintf(buffer, sizeof(buffer), "%lld", value);
    return put_text(gpu, key, buffer, persistent);
}

/* Waits for the next reset, which a driver load stands for, or the next boot. */
API int nvmlDeviceSetEccMode(nvmlDevice_t device, u32 mode)
{
    DEVICE();
    SUPPORTED(state_get(gpu, "ecc_mode"));
    if (mode > 1)
        return RC_INVALID_ARGUMENT;
    SETTER(__func__);
    return put_number(gpu, "ecc_mode_pending", mode, 1);
}

API int nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, u32 limit)
{
    DEVICE();
    SUPPORTED(state_get(gpu, "power_default_mw"));
    if (limit < state_int(gpu, "power_min_mw", 0) || limit > state_int(gpu, "power_max_mw", 0))
        return RC_INVALID_ARGUMENT;
    SETTER(__func__);
    return put_number(gpu, "power_limit_mw", limit, 0);
}

static int application_clocks(int gpu, long long memory, long long graphics)
{
    int rc = put_number(gpu, "clock_app_mem_mhz", memory, 0);

    rc = rc ? rc : put_number(gpu, "clock_app_sm_mhz", graphics, 0);
    return rc ? rc : put_number(gpu, "clock_app_graphics_mhz", graphics, 0);
}

API int nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, u32 memory, u32 graphics)
{
    DEVICE();
    NOT_FROM(590);
    SUPPORTED(state_get(gpu, "clock_default_graphics_mhz"));
    if (!memory || !graphics || memory > state_int(gpu, "clock_max_mem_mhz", 0) || graphics > state_int(gpu, "clock_max_graphics_mhz", 0))
        return RC_INVALID_ARGUMENT;
    SETTER(__func__);
    return application_clocks(gpu, memory, graphics);
}

API int nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    DEVICE();
    NOT_FROM(590);
    SUPPORTED(state_get(gpu, "clock_default_graphics_mhz"));
    SETTER(__func__);
    return application_clocks(gpu, state_int(gpu, "clock_default_mem_mhz", 0), state_int(gpu, "clock_default_graphics_mhz", 0));
}

/* Locked clocks cannot be read back: only the clocks themselves show them. 0 and 1 are NVML's words for TDP and unlimited. */
static int lock_clocks(const char *symbol, int gpu, const char *kind, const char *most, u32 low, u32 high)
{
    char low_key[32], high_key[32];
    int rc;

    SUPPORTED(state_get(gpu, most));
    if ((low < 2) != (high < 2) || low > high || (high >= 2 && high > state_int(gpu, most, 0)))
        return RC_INVALID_ARGUMENT;
    SETTER(symbol);
    snprintf(low_key, sizeof(low_key), "locked_%s_min_mhz", kind);
    snprintf(high_key, sizeof(high_key), "locked_%s_max_mhz", kind);
    rc = put_number(gpu, low_key, low < 2 ? 0 : low, 0);
    return rc ? rc : put_number(gpu, high_key, high < 2 ? 0 : high, 0);
}

API int nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, u32 low, u32 high)
{
    DEVICE();
    return lock_clocks(__func__, gpu, "gpu", "clock_max_graphics_mhz", low, high);
}

API int nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    DEVICE();
    return lock_clocks(__func__, gpu, "gpu", "clock_max_graphics_mhz", 0, 0);
}

API int nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, u32 low, u32 high)
{
    DEVICE();
    SUPPORTED(state_int(gpu, "architecture", 0) >= AMPERE);
    return lock_clocks(__func__, gpu, "mem", "clock_max_mem_mhz", low, high);
}

API int nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    DEVICE();
    SUPPORTED(state_int(gpu, "architecture", 0) >= AMPERE);
    return lock_clocks(__func__, gpu, "mem", "clock_max_mem_mhz", 0, 0);
}

API int nvmlDeviceSetPersistenceMode(nvmlDevice_t device, u32 mode)
{
    DEVICE();
    if (mode > 1)
        return RC_INVALID_ARGUMENT;
    SETTER(__func__);
    return put_number(gpu, "persistence", mode, 0);
}

/* Modes: 0 default, 2 prohibited, 3 exclusive process. The exclusive thread mode, 1, is gone. In MIG mode it is set of MIG devices only. */
API int nvmlDeviceSetComputeMode(nvmlDevice_t device, u32 mode)
{
    DEVICE();
    if (mode > 3)
        return RC_INVALID_ARGUMENT;
    SUPPORTED(mode != 1 && !mig_on(gpu));
    SETTER(__func__);
    return put_number(gpu, "compute_mode", mode, 0);
}

/* As the driver does when the last program closes a GPU without persistence mode. Here it is the fault "settings-forgotten", as the simulator
 * does not count the programs of the node. */
void forget_settings(void)
{
    static const char *const locks[] = { "locked_gpu_min_mhz", "locked_gpu_max_mhz", "locked_mem_min_mhz", "locked_mem_max_mhz" };

    for (int gpu = 0; gpu < state_gpu_count(); gpu++) {
        if (!state_int(gpu, "settings_forgotten", 0) || state_int(gpu, "persistence", state_persistenced_mode()))
            continue;
        if (state_get(gpu, "power_default_mw"))
            put_number(gpu, "power_limit_mw", state_int(gpu, "power_default_mw", 0), 0);
        if (state_get(gpu, "clock_default_graphics_mhz"))
            application_clocks(gpu, state_int(gpu, "clock_default_mem_mhz", 0), state_int(gpu, "clock_default_graphics_mhz", 0));
        put_number(gpu, "compute_mode", 0, 0);
        for (size_t i = 0; i < sizeof(locks) / sizeof(*locks); i++)
            put_number(gpu, locks[i], 0, 0);
    }
}

/* ---- the clocks that a board can run at: its memory clocks, and for each the graphics clocks from the highest down in equal steps ---- */

#define USUAL_STEP_KHZ 15000

