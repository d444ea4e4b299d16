# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of a stub node. What every module imports is there compiled already; the module itself comes as it comes to any node.

Half of what a stub node costs is the compilation of these few files, again for each module.
"""

import os
import sys

if len(sys.argv) > 1:
    os.execv(sys.executable, [sys.executable] + sys.argv[1:])
SOURCE = sys.stdin.read()
import ansible.module_utils.basic  # noqa: E402,F401

try:
    import ansible.module_utils._internal._ansiballz._loader  # ansible-core 2.19 and newer
except ImportError:
    pass
exec(compile(SOURCE, "<stdin>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
