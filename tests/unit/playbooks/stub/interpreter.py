# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of a stub node.

What every module imports is there compiled already; the module itself comes as it comes to any node.

Half of what a stub node costs is the compilation of these few files, again for each module.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

if len(sys.argv) > 1:
    os.execv(sys.executable, [sys.executable] + sys.argv[1:])
source = sys.stdin.read()
importlib.import_module("ansible.module_utils.basic")
with contextlib.suppress(ImportError):  # ansible-core 2.18 has none
    importlib.import_module("ansible.module_utils._internal._ansiballz._loader")
exec(compile(source, "<stdin>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
