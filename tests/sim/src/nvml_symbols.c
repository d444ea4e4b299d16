/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Every function that the real library has. Clients that are linked to it, as those written in Go, end where one is missing; what nothing here
 * answers says so as a board that cannot do it. */
#include "nvml_sim.h"

/* Weak: where another file has the function, that one is taken. */
#define SYMBOL(name, first, last)              \
    API __attribute__((weak)) int name(void);  \
    API __attribute__((weak)) int name(void)   \
    {                                          \
        SYSTEM();                              \
        return RC_NOT_SUPPORTED;               \
    }
#include "symbols.h"
#undef SYMBOL

/* Read by gpusim/library.py, which takes out what a driver's branch has not. */
#define SYMBOL(name, first, last) #name " " #first " " #last "\n"
API const char gpusim_symbols[] =
#include "symbols.h"
    ;
