# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data: which architecture a GPU's PCI device id is of, and which kernel modules drive that architecture.

Ranges of ids, both ends included. An id that is in none is of an architecture that is not known here.
"""

from __future__ import annotations

DEVICES = (
    (0x0FC0, 0x103F, "kepler"),
    (0x1180, 0x12BF, "kepler"),
    (0x1340, 0x14FF, "maxwell"),
    (0x15F0, 0x15FF, "pascal"),
    (0x1600, 0x17FF, "maxwell"),
    (0x1B00, 0x1D7F, "pascal"),
    (0x1D80, 0x1DFF, "volta"),
    (0x1E00, 0x1FFF, "turing"),
    (0x2080, 0x20FF, "ampere"),
    (0x2180, 0x21FF, "turing"),
    (0x2200, 0x228F, "ampere"),
    (0x2300, 0x233F, "hopper"),
    (0x2340, 0x237F, "grace-hopper"),
    (0x2400, 0x25FF, "ampere"),
    (0x2680, 0x28FF, "ada"),
    (0x2900, 0x29FF, "blackwell"),
    (0x2B80, 0x2DFF, "blackwell"),
    (0x2E00, 0x2E7F, "blackwell"),
    (0x2F00, 0x2F7F, "blackwell"),
    (0x3180, 0x31FF, "blackwell"),
)

# ``flavour: (first branch, last branch)``; None as last: no end is known. A flavour that is not there does not drive
# it.
ARCHITECTURES = {
    "kepler": {"proprietary": (390, 470)},
    "maxwell": {"proprietary": (390, 580)},
    "pascal": {"proprietary": (390, 580)},
    "volta": {"proprietary": (390, 580)},
    "turing": {"proprietary": (410, 615), "open": (515, None)},
    "ampere": {"proprietary": (450, 615), "open": (515, None)},
    "ada": {"proprietary": (520, 615), "open": (520, None)},
    "hopper": {"proprietary": (520, 615), "open": (520, None)},
    "grace-hopper": {"open": (535, None)},
    "blackwell": {"open": (570, None)},
}

# From this branch on the open module is the one that NVIDIA recommends where both work.
OPEN_SINCE = 560
