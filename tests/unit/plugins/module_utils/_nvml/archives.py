# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives as the controller makes them, without the controller's code."""

from __future__ import annotations

import io
import json
import pathlib
import zipfile

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._nvml import binding

CODE = pathlib.Path(binding.__file__).parent


def archive(source="answer = 42\n", version="1.2.3", code=None):
    """The bytes of an archive. SOURCE None leaves the binding out; CODE None takes the package as it is."""
    members = {"manifest.json": json.dumps({"version": version}), "data/table.json": "[1]"}
    if source is not None:
        members["pynvml.py"] = source
    if code is None:
        code = dict((str(path.relative_to(CODE)), path.read_text()) for path in CODE.rglob("*.py"))
    members.update(("_nvml/" + name, text) for name, text in code.items())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(members):
            target.writestr(zipfile.ZipInfo(name), members[name])
    return content.getvalue()
