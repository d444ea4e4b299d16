/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The functions with the driver branches that have them: gpusim/library.py reads it, and takes out what a driver's branch has not. */
#include "nvml_sim.h"

#define SYMBOL(name, first) #name " " #first "\n"
API const char gpusim_symbols[] =
#include "symbols.h"
    ;
