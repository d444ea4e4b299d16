# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a report on capacity and cost out of what Prometheus has seen."""

from __future__ import annotations

import datetime
import os

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.lifecycle.plugins.modules.capacity_report import ARGUMENT_SPEC
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity import (
    catalog,
    charts,
    client,
    document,
    page,
    tables,
)
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._capacity.history import Window
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import files
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

TIME = "%Y-%m-%dT%H:%M:%SZ"


def parse_time(given: str | None) -> datetime.datetime:
    """Return the time that is GIVEN, else now."""
    if not given:
        return datetime.datetime.now(datetime.timezone.utc)
    try:
        return datetime.datetime.strptime(given, TIME).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        raise catalog.CapacityError(
            "option", "time is %r; expected a time in UTC such as 2026-12-31T12:00:00Z." % (given,)
        ) from None


def require_library() -> None:
    """Refuse a controller without the library that draws, which is no part of Ansible."""
    if charts.MISSING:
        raise catalog.CapacityError(
            "library",
            "The charts need pygal, which this controller lacks (%s). Install it beside "
            "ansible-core: pip install 'pygal>=3.0.5'. Nothing was written." % charts.MISSING,
        )


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None) -> dict:
        result = super().run(tmp, task_vars or {})
        dummy, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            result.update(self.write_report(args))
        except catalog.CapacityError as exc:
            result.update(failed=True, changed=False, code=exc.code, msg=str(exc))
        return result

    def write_report(self, args: dict) -> dict:
        asked = catalog.read_request(args)
        now = parse_time(args.get("time"))
        require_library()
        dest = os.path.abspath(args["dest"])
        self.refuse_unwritable(dest)
        prometheus = client.Prometheus(asked.url, asked.timeout, args["headers"])
        history = client.history(prometheus, asked, Window.until(now.timestamp(), asked.days))
        doc = document.document(asked, history, prometheus.place, now.strftime(TIME))
        contents, changed = page.contents(doc), True
        if not self._task.check_mode:
            try:
                changed = any(files.write(dest, contents, int(args["mode"], 8)).values())
            except OSError as exc:
                raise self.describe_unwritable(dest, exc.strerror) from exc
        lines = tables.summary(doc)
        last = (
            "not written in check mode" if self._task.check_mode else "report: %s" % os.path.join(dest, "capacity.html")
        )
        for line in lines + [last]:
            display.display(line)
        return {
            "changed": changed,
            "verdict": doc["verdict"],
            "notes": [note["id"] for note in doc["notes"]],
            "table": lines,
            "files": {name: os.path.join(dest, name) for name in contents},
        }

    @classmethod
    def refuse_unwritable(cls, dest) -> None:
        """Refuse a directory that cannot be written to before Prometheus is asked, which may take minutes."""
        place = dest
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        if not os.path.isdir(place):
            raise cls.describe_unwritable(dest, "%s is no directory" % place)
        if not os.access(place, os.W_OK | os.X_OK):
            raise cls.describe_unwritable(dest, "%s may not be written to" % place)

    @staticmethod
    def describe_unwritable(dest: str, why: str) -> catalog.CapacityError:
        return catalog.CapacityError(
            "directory",
            "The report cannot be written to %s on the controller: %s. Give another capacity_report_dir." % (dest, why),
        )
