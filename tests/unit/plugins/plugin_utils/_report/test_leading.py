# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import itertools

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, registry
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._report import leading

GPU, OTHER, LOST = "GPU-3", "GPU-4", "gpu index 3"
IDENTS = [row.ident for row in registry.TABLE]


def finding(ident, entity=model.NODE, action="hold", status="fail"):
    return {"id": ident, "entity": entity, "action": action, "status": status, "message": "%s is bad." % ident}


HANDLE = finding("gpu.handle", LOST, "reboot")
SECOND = dict(HANDLE, entity="gpu index 5")
XID = finding("gpu.xid", GPU, "reboot")
ON_BUS, PRESENT, COUNT = finding("gpu.on_bus"), finding("gpu.present", GPU), finding("gpu.count")
HARDWARE, INIT = finding("node.hardware", action="field_diag"), finding("gpu.init_failed", action="field_diag")
UNREAD = finding("nvml.answers", status="unknown")


@pytest.mark.parametrize(
    "checks, expected",
    [
        ([HANDLE], [("gpu.handle", "")]),
        # A GPU that is lost: what counts the GPUs, or misses it, follows, whatever its action is.
        (
            [ON_BUS, PRESENT, COUNT, HARDWARE, INIT, HANDLE],
            [("gpu.handle", "")]
            + [(one, "gpu.handle") for one in ("gpu.present", "gpu.on_bus", "gpu.count")]
            + [(one, "gpu.handle") for one in ("node.hardware", "gpu.init_failed")],
        ),
        ([HANDLE, XID], [("gpu.xid", ""), ("gpu.handle", "gpu.xid")]),
        ([HANDLE, dict(XID, action="restart_service")], [("gpu.handle", ""), ("gpu.xid", "")]),
        ([PRESENT, COUNT, ON_BUS], [("gpu.present", ""), ("gpu.on_bus", "gpu.present"), ("gpu.count", "gpu.present")]),
        # Findings of another GPU are faults of their own.
        ([XID, finding("gpu.nvlink", OTHER)], [("gpu.xid", ""), ("gpu.nvlink", "")]),
        ([XID, finding("gpu.nvlink", GPU)], [("gpu.xid", ""), ("gpu.nvlink", "gpu.xid")]),
        ([XID, finding("gpu.ecc_volatile", GPU, "field_diag")], [("gpu.xid", ""), ("gpu.ecc_volatile", "")]),
        # A cause that is not known for sure explains failures too; else failed is before unknown, severe before mild.
        ([ON_BUS, dict(HANDLE, status="unknown")], [("gpu.handle", ""), ("gpu.on_bus", "gpu.handle")]),
        ([UNREAD, finding("gpu.vbios", GPU)], [("nvml.answers", ""), ("gpu.vbios", "nvml.answers")]),
        ([UNREAD, dict(XID, action="hold")], [("gpu.xid", ""), ("nvml.answers", "gpu.xid")]),
        ([UNREAD, dict(XID, action="restart_service")], [("gpu.xid", ""), ("nvml.answers", "")]),
        (
            [finding("gpu.vbios", GPU, status="unknown"), finding("gpu.persistence", GPU, "restore_setting")],
            [("gpu.persistence", ""), ("gpu.vbios", "")],
        ),
        (
            [finding("gpu.persistence", GPU, "restore_setting"), finding("gpu.vbios")],
            [("gpu.vbios", ""), ("gpu.persistence", "")],
        ),
        ([finding("new.check", action="dance"), finding("gpu.vbios")], [("gpu.vbios", ""), ("new.check", "")]),
        ([finding("gpu.handle", LOST, status="pass"), {"id": "x"}], []),
    ],
)
def test_finding_that_explains_others_leads(checks, expected):
    for order in itertools.islice(itertools.permutations(checks), 24):
        assert [(one["id"], cause) for one, cause in leading.sort_findings(order)] == expected
    assert [(one["id"], one["explained_by"]) for one in leading.tabulate(checks)] == expected, "none is lost"


def test_reason_is_the_message_of_the_finding_that_leads_and_names_faults_of_their_own():
    others = [finding(ident, OTHER) for ident in ("gpu.vbios", "gpu.serial", "gpu.vbios")]
    assert leading.describe_findings([ON_BUS, PRESENT, HANDLE]) == "gpu.handle is bad."
    assert (
        leading.describe_findings([ON_BUS, HANDLE, *others]) == "gpu.handle is bad. Beside it: gpu.serial, gpu.vbios."
    )
    idents = [ident for ident in IDENTS if ident.startswith(("gpu.ecc", "gpu.temperature"))]
    many = [finding(ident, OTHER) for ident in idents]
    assert leading.describe_findings([HANDLE, *many]).endswith(" and %d more." % (len(idents) - leading.LISTED))
    assert leading.describe_findings([dict(HANDLE, message=""), COUNT]) == "gpu.count is bad."
    assert leading.describe_findings([], "no answer") == "no answer"


def test_reason_names_the_same_fault_of_another_gpu():
    assert leading.describe_findings([HANDLE, SECOND]) == "gpu.handle is bad. Beside it: gpu.handle of gpu index 5."
    assert leading.describe_findings([HANDLE, ON_BUS]) == "gpu.handle is bad."


@pytest.mark.parametrize(
    "causes, handles, beside",
    [
        ([XID], [HANDLE], ""),
        ([XID], [HANDLE, SECOND], " Beside it: gpu.handle of gpu index 3, gpu.handle of gpu index 5."),
        ([XID, dict(XID, entity=OTHER)], [HANDLE, SECOND], " Beside it: gpu.xid of GPU-4."),
    ],
)
def test_reason_names_every_lost_gpu_where_fewer_of_them_have_a_cause(causes, handles, beside):
    checks = [*causes, *handles, finding("gpu.init_failed", LOST), ON_BUS]
    assert leading.describe_findings(checks) == "gpu.xid is bad." + beside


def test_a_cause_is_a_check_and_explains_none_that_stands_above_it():
    order = list(leading.CAUSES)
    assert {*order, *leading.SEVERE} <= set(IDENTS)
    for cause, other in itertools.product(order, order):
        assert not (leading.explains(finding(cause), finding(other)) and order.index(cause) >= order.index(other))
    patterns = {one for follows in leading.CAUSES.values() for one in follows}
    assert [one for one in patterns if not leading.fnmatch.filter(IDENTS, one)] == []
