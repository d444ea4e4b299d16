# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truth tables: what makes a node fail, what leaves it unknown, and what it is told to do."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import _health
from ansible_collections.gpufleet.lifecycle.plugins.module_utils._health import model, registry
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health import readings
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.documents import TABLES
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils._health.readings import failed, value


def judge(snapshot=None, audit=None, baseline="healthy", **options):
    options = dict(
        {
            "expected_driver": readings.DRIVER,
            "phase": "post",
            "node": readings.NODE,
            "now": readings.NOW,
            "tables": TABLES,
            "expect": readings.EXPECT if baseline is None else None,
        },
        **options,
    )
    return _health.evaluate(
        readings.reading(snapshot, audit),
        baseline=readings.baseline() if baseline == "healthy" else baseline,
        **options,
    )


def found(health, ident, entity=None):
    return [check for check in health["checks"] if check["id"] == ident and entity in (None, check["entity"])]


def blocking(health):
    return sorted(set(check["id"] for check in health["checks"] if check["status"] in ("fail", "unknown")))


def test_a_healthy_node_passes_and_the_document_is_whole():
    health = judge()
    assert blocking(health) == []
    assert (health["schema"], health["verdict"], health["action"], health["simulated"]) == (
        "gpufleet.health/1",
        "pass",
        "none",
        True,
    )
    assert (health["node"], health["boot_id"], health["time"], health["phase"]) == (
        readings.NODE,
        "x",
        readings.NOW,
        "post",
    )
    assert health["kernel"] == readings.audit()["kernel"]["running"]
    assert health["driver"] == dict.fromkeys(
        ("nvml", "loaded", "library", "on_disk", "next_boot", "expected"), readings.DRIVER
    )
    for check in health["checks"]:
        assert set(check) == {
            "id",
            "entity",
            "status",
            "observed",
            "expected",
            "source",
            "action",
            "message",
            "notice",
            "since",
        }
        assert check["status"] in model.STATUSES and check["action"] in model.ACTIONS
        assert check["source"] in ("policy", "baseline", "hardware")


def test_every_family_has_its_say():
    idents = set(check["id"] for check in judge()["checks"])
    assert idents == registry.IDENTS


@pytest.mark.parametrize(
    "rc, verdict, action",
    [
        (9, "fail", "hold"),
        (12, "fail", "hold"),
        (18, "fail", "reboot"),
        (15, "fail", "reboot"),
        (999, "fail", "reboot"),
        (8, "fail", "field_diag"),
        (11, "fail", "field_diag"),
        (4, "unknown", "hold"),
        (17, "unknown", "hold"),
        (77, "unknown", "hold"),
    ],
)
def test_nvml_that_does_not_start(rc, verdict, action):
    snapshot = readings.snapshot()
    snapshot.update(
        status="nvml_error",
        message="it did not start",
        nvml={"rc": rc, "error": "X"},
        gpus=[],
        count=failed(rc),
        system=dict.fromkeys(snapshot["system"], failed(rc)),
    )
    health = judge(snapshot)
    (check,) = found(health, "nvml.answers")
    assert (check["status"], check["action"], check["message"]) == (verdict, action, "it did not start.")
    assert check["observed"] == "X (%d)" % rc
    assert health["verdict"] == "fail"  # the GPUs of the baseline are missing either way
    assert judge(snapshot, baseline=None, phase="adhoc")["verdict"] == verdict


@pytest.mark.parametrize(
    "status, verdict",
    [
        ("timeout", "fail"),
        ("stuck", "fail"),
        ("no_binding", "unknown"),
        ("nvml_error", "fail"),
        ("new", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_reading_that_did_not_happen(status, verdict):
    snapshot = {"status": status, "message": "why", "nvml": {"rc": None, "error": None}}
    (check,) = found(judge(snapshot, baseline=None, phase="adhoc"), "nvml.answers")
    assert (check["status"], check["message"]) == (verdict, "why.")


def change_gpu(key, content, index=1):
    snapshot = readings.snapshot()
    snapshot["gpus"][index][key] = content
    return snapshot


@pytest.mark.parametrize(
    "key, content, ident, status, action",
    [
        ("handle", failed(15), "gpu.handle", "fail", "reboot"),
        ("handle", failed(16), "gpu.handle", "fail", "reset_gpu"),
        ("handle", failed(14), "gpu.handle", "fail", "field_diag"),
        ("handle", failed(4), "gpu.handle", "unknown", "hold"),
    ],
)
def test_one_gpu_against_the_baseline(key, content, ident, status, action):
    health = judge(change_gpu(key, content))
    (check,) = found(health, ident, readings.uuid(1))
    assert (check["status"], check["action"]) == (status, action)
    if status in ("fail", "unknown"):
        assert readings.uuid(1) in check["message"]
        assert health["verdict"] in (status, "fail")
        assert model.ACTIONS.index(health["action"]) >= model.ACTIONS.index(action)
    assert all(other["status"] != "fail" for other in found(health, ident, readings.uuid(0)))


def test_a_missing_gpu_is_named_with_its_place():
    snapshot = readings.snapshot(1)
    health = judge(snapshot)
    assert (health["verdict"], health["action"]) == ("fail", "hold")
    assert blocking(health) == ["gpu.count", "gpu.on_bus", "gpu.present"]
    assert found(health, "gpu.count")[0]["observed"] == 1 and found(health, "gpu.count")[0]["expected"] == 2
    (check,) = found(health, "gpu.present", readings.uuid(1))
    assert check["message"].startswith("GPU GPU-00000001 of the baseline, at 0000:1b:00.0, is missing.")
    assert "0000:1b:00.0" in found(health, "gpu.on_bus")[0]["message"]


def test_a_gpu_that_nvml_counts_and_does_not_open_is_named_by_its_place_on_the_bus():
    snapshot = readings.snapshot()
    snapshot["gpus"][1] = dict.fromkeys(readings.gpu(1), failed(15))
    snapshot["gpus"][1]["index"] = 1
    health = judge(snapshot)
    assert blocking(health) == ["gpu.handle", "gpu.on_bus", "gpu.present"]
    assert found(health, "gpu.handle", "gpu index 1")[0]["action"] == "reboot"
    assert "not opened by NVML: 0000:1b:00.0" in found(health, "gpu.on_bus")[0]["message"]
    assert "gpu index 1 at 0000:1b:00.0" in found(health, "gpu.handle", "gpu index 1")[0]["message"]
    assert judge(snapshot, baseline=None, phase="adhoc")["verdict"] == "fail"
    snapshot["gpus"][0] = dict(snapshot["gpus"][1], index=0)
    for check in found(judge(snapshot), "gpu.handle"):
        assert "0000:" not in check["message"], "which of two it is, is not known"


def test_a_gpu_that_was_exchanged_or_moved_fails():
    (check,) = found(judge(change_gpu("uuid", value("GPU-new"))), "gpu.present", "GPU-new")
    assert check["status"] == "fail" and "not in the baseline" in check["message"]
    (check,) = found(judge(change_gpu("pci_bus_id", value("00000000:99:00.0"))), "gpu.present", readings.uuid(1))
    assert (check["status"], check["observed"], check["expected"]) == ("fail", "0000:99:00.0", "0000:1b:00.0")


def test_two_gpus_of_one_uuid_fail():
    assert "gpu.present" in blocking(judge(change_gpu("uuid", value(readings.uuid(0))), baseline=None, phase="adhoc"))


def test_a_list_that_is_shorter_than_the_count_is_unknown():
    snapshot = readings.snapshot()
    snapshot["gpus"].pop()
    assert found(judge(snapshot), "gpu.count")[0]["status"] == "unknown"


@pytest.mark.parametrize(
    "pci, status", [(None, "unknown"), ([], "unknown"), ([{"address": "x"}], "unknown"), ("text", "unknown")]
)
def test_a_bus_that_cannot_be_listed_is_unknown(pci, status):
    health = judge(audit=dict(readings.audit(), pci=pci))
    assert found(health, "gpu.on_bus")[0]["status"] == status
    assert health["verdict"] == status


def test_no_gpu_at_all_fails():
    health = judge(readings.snapshot(0), readings.audit(0), baseline=None, phase="adhoc")
    assert found(health, "gpu.count")[0]["status"] == "fail"


OTHER = "535.261.03"


@pytest.mark.parametrize(
    "place, path",
    [
        ("nvml", None),
        ("loaded", ("versions", "loaded")),
        ("library", ("versions", "library")),
        ("on_disk", ("versions", "modules", readings.KERNEL, "version")),
    ],
)
@pytest.mark.parametrize("content, status", [(OTHER, "fail"), (None, "unknown"), ("", "unknown")])
def test_a_version_that_is_another_or_not_known(place, path, content, status):
    snapshot, audit = readings.snapshot(), readings.audit()
    if path is None:
        snapshot["system"]["driver_version"] = value(content) if content else failed(9)
    else:
        target = audit
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = content
    (check,) = found(judge(snapshot, audit), "driver." + place)
    assert (check["status"], check["observed"] or None, check["expected"]) == (status, content or None, readings.DRIVER)
    assert judge(snapshot, audit)["verdict"] == status


def test_a_next_kernel_without_the_module_is_named():
    audit = readings.audit()
    audit["kernel"]["next_boot"] = "6.1.0-51-amd64"
    (check,) = found(judge(audit=audit), "driver.next_boot")
    assert check["status"] == "unknown" and "Do not reboot" in check["message"]
    audit["versions"]["modules"]["6.1.0-51-amd64"] = {"version": OTHER}
    assert found(judge(audit=audit), "driver.next_boot")[0]["status"] == "fail"


@pytest.mark.parametrize("place", ["on_disk", "next_boot"])
@pytest.mark.parametrize(
    "module, status, text",
    [
        (None, "fail", "There is no NVIDIA kernel module on disk for kernel " + readings.KERNEL),
        (
            {"version": readings.DRIVER, "vermagic": "6.1.0-1-amd64 SMP", "path": "/lib/x.ko"},
            "fail",
            "/lib/x.ko was made for kernel 6.1.0-1-amd64, not for",
        ),
        ({"version": readings.DRIVER, "vermagic": readings.KERNEL + " SMP"}, "pass", ""),
        ({"version": readings.DRIVER, "vermagic": None}, "pass", ""),
        ({"version": None, "vermagic": None}, "unknown", "not known"),
        ("gone", "unknown", "not known"),
    ],
)
def test_a_module_that_is_not_there_or_does_not_load(place, module, status, text):
    audit = readings.audit()
    if module == "gone":
        del audit["versions"]["modules"][readings.KERNEL]
    else:
        audit["versions"]["modules"][readings.KERNEL] = module
    (check,) = found(judge(audit=audit), "driver." + place)
    assert check["status"] == status and text in check["message"]


@pytest.mark.parametrize("finding, status", [("fail", "fail"), ("unknown", "unknown"), ("not_applicable", "unknown")])
def test_no_driver_is_loaded_or_that_cannot_be_read(finding, status):
    audit = readings.audit()
    audit["versions"]["loaded"] = None
    audit["findings"] = [item for item in audit.get("findings", []) if item["id"] != "loaded_version"]
    audit["findings"].append(
        {
            "id": "loaded_version",
            "entity": "node",
            "status": finding,
            "observed": None,
            "expected": None,
            "message": "",
            "next_step": "",
        }
    )
    (check,) = found(judge(audit=audit), "driver.loaded")
    assert check["status"] == status


@pytest.mark.parametrize("also, status", [(None, "unknown"), ("0000:99:00.0", "fail")])
def test_a_gpu_that_is_open_and_does_not_tell_where_it_is_is_not_called_closed(also, status):
    snapshot, audit = readings.snapshot(), readings.audit()
    snapshot["gpus"][0]["pci_bus_id"] = failed(4)
    if also:
        audit["pci"] = audit["pci"] + [{"address": also, "device": "0x2330", "class": "0x030200"}]
    (check,) = found(judge(snapshot, audit), "gpu.on_bus")
    assert check["status"] == status


@pytest.mark.parametrize("answered, status", [(True, "fail"), (False, "pass")])
def test_a_library_that_did_not_answer_did_not_say_what_it_is(answered, status):
    snapshot, old = readings.snapshot(), readings.baseline()
    old["snapshot"]["simulated"] = not snapshot["simulated"]
    if not answered:
        snapshot.update(status="timeout", nvml={"rc": None, "error": None})
    health = judge(snapshot, baseline=old)
    assert found(health, "baseline.usable")[0]["status"] == status and health["verdict"] == "fail"


def test_a_reader_without_permission_is_told_to_become_root():
    snapshot = readings.snapshot()
    snapshot["gpus"][0]["vbios_version"] = failed(4)
    check = [check for check in found(judge(snapshot), "gpu.vbios") if check["status"] == "fail"][0]
    assert "Read it as root" in check["message"] and "Compare the driver" not in check["message"]


def test_gpus_that_a_silent_nvml_does_not_show_are_not_called_missing():
    snapshot = readings.snapshot()
    snapshot.update(status="timeout", nvml={"rc": None, "error": None}, gpus=[])
    for check in found(judge(snapshot), "gpu.present"):
        assert check["status"] == "fail" and "NVML shows no GPU at all. See nvml.answers." in check["message"]


def test_the_target_must_be_loaded_and_packages_versions_are_understood():
    assert judge(expected_driver=readings.DRIVER + "-2~bpo12+1")["verdict"] == "pass"
    assert judge(expected_driver=None)["verdict"] == "pass"
    audit = readings.audit()
    audit["versions"]["library"] = OTHER
    assert blocking(judge(audit=audit, expected_driver=None)) == [
        "driver.library",
        "driver.versions_agree",
        "nvml.library_match",
    ]


def test_coherent_node_with_another_driver_has_one_finding():
    health = judge(expected_driver=OTHER)
    assert health["verdict"] == "fail" and blocking(health) == ["driver.loaded"]
    (check,) = found(health, "driver.loaded")
    assert (check["observed"], check["expected"], check["action"]) == (readings.DRIVER, OTHER, "hold")


@pytest.mark.parametrize(
    "place, value, blocks",
    [
        (("audit", "versions", "library"), None, ["driver.library", "driver.loaded", "driver.on_disk"]),
        (("audit", "versions", "library"), OTHER, ["driver.loaded", "driver.on_disk", "driver.versions_agree"]),
        (("audit", "versions", "driver_packages", "nvidia-smi"), OTHER, ["driver.loaded", "driver.packages"]),
        (("audit", "versions", "driver_packages"), None, ["driver.loaded", "driver.on_disk", "driver.packages"]),
        (("audit", "versions", "loaded"), None, ["driver.loaded", "driver.on_disk"]),
    ],
)
def test_parts_that_differ_or_are_unknown_are_compared_with_the_wanted_driver(place, value, blocks):
    read = {"audit": readings.audit()}
    item = read
    for key in place[:-1]:
        item = item[key]
    item[place[-1]] = value
    assert set(blocks) <= set(blocking(judge(audit=read["audit"], expected_driver=OTHER)))


def test_without_an_audit_nothing_passes():
    health = judge(audit={})
    assert health["verdict"] == "unknown"
    assert blocking(health) == sorted(
        [
            "driver.library",
            "driver.loaded",
            "driver.next_boot",
            "driver.on_disk",
            "gpu.on_bus",
            "driver.dkms",
            "driver.flavour",
            "driver.gsp_firmware_file",
            "driver.nouveau",
            "driver.packages",
            "driver.reboot_safe",
            "driver.versions_agree",
            "nvml.library_match",
            "reading.complete",
        ]
    )


@pytest.mark.parametrize(
    "phase, status, verdict",
    [
        ("baseline", "not_applicable", "pass"),
        ("adhoc", "not_applicable", "pass"),
        ("post", "unknown", "unknown"),
        ("soak", "unknown", "unknown"),
    ],
)
def test_a_phase_that_compares_needs_a_baseline(phase, status, verdict):
    health = judge(baseline=None, phase=phase)
    assert (found(health, "baseline.usable")[0]["status"], health["verdict"]) == (status, verdict)


def test_an_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="phase is 'later'"):
        judge(phase="later")


@pytest.mark.parametrize(
    "baseline, text",
    [
        (["x"], "is a list"),
        ({"schema": "other/1"}, "has schema 'other/1'"),
        (readings.baseline(node="gpu-2"), "that of node gpu-2, not of gpu-1"),
        (readings.baseline(node=None), "names no node"),
        (readings.baseline(snapshot={}), "holds no reading"),
        (readings.baseline(snapshot=None), "holds no reading"),
    ],
)
def test_what_is_no_baseline_of_this_node_is_refused(baseline, text):
    with pytest.raises(_health.BaselineError, match=text):
        judge(baseline=baseline)


def test_a_baseline_taken_on_a_sick_node_is_not_usable():
    sick = readings.baseline(snapshot=dict(readings.snapshot(), status="nvml_error", gpus=[]))
    assert found(judge(baseline=sick), "baseline.usable")[0]["status"] == "unknown"
    nameless = readings.baseline()
    nameless["snapshot"]["gpus"][0]["uuid"] = failed(15)
    assert found(judge(baseline=nameless), "baseline.usable")[0]["status"] == "unknown"


@pytest.mark.parametrize(
    "taken, refused",
    [
        ("2026-03-01T12:10:00Z", ""),
        ("2026-03-01T12:10:01Z", "the clock of one of the controllers is wrong"),
        ("2027-01-01", "the clock of one"),
        ("2026-02-28", ""),
        ("1999-01-01T00:00:00Z", ""),
        ("yesterday", "which is no time"),
        (None, "which is no time"),
        (7, "which is no time"),
    ],
)
def test_a_baseline_is_of_the_past(taken, refused):
    document = readings.baseline(time=taken)
    if not refused:
        _health.check_baseline(document, readings.NODE, readings.NOW)
        return
    with pytest.raises(_health.BaselineError, match=refused) as caught:
        _health.check_baseline(document, readings.NODE, readings.NOW)
    assert caught.value.path == ("time",)


@pytest.mark.parametrize("section", ["snapshot", "audit", "system", "kernel_log"])
def test_a_baseline_of_another_version_is_refused(section):
    document = readings.baseline()
    document[section] = dict(document[section], schema="gpufleet.other/9")
    with pytest.raises(_health.BaselineError, match="of another version of the collection") as caught:
        judge(baseline=document)
    assert caught.value.path == (section, "schema")


@pytest.mark.parametrize("section", ["snapshot", "audit", "system", "kernel_log"])
@pytest.mark.parametrize("schema", ["gpufleet.other/9", None, 7])
def test_a_reading_of_another_version_does_not_pass(section, schema):
    reading = readings.reading()
    reading[section] = dict(reading[section], schema=schema)
    health = _health.evaluate(reading, readings.baseline(), phase="post", node=readings.NODE, now=readings.NOW)
    (check,) = found(health, "reading.complete")
    assert (check["status"], check["action"], health["verdict"]) == ("unknown", "hold", "unknown")
    assert section in check["observed"][0]


@pytest.mark.parametrize("ident", ["reading.complete", "nvml.answers"])
def test_what_says_that_there_is_a_reading_cannot_be_waived(ident):
    with pytest.raises(_health.PolicyError, match="cannot be waived"):
        judge(policy=waiver(check=ident, expires="2099-01-01"))


def test_a_node_that_cannot_be_read_does_not_pass_however_much_is_waived():
    every = {
        "waivers": [
            dict(waiver(expires="2099-01-01")["waivers"][0], check=ident)
            for ident in registry.IDENTS
            if ident not in ("reading.complete", "nvml.answers")
        ]
    }
    for snapshot in ({}, dict(readings.snapshot(), status="timeout", gpus=[])):
        assert judge(snapshot, policy=every)["verdict"] in ("fail", "unknown")


def test_hardware_is_not_compared_with_a_simulation():
    snapshot = readings.snapshot()
    snapshot["simulated"] = False
    assert found(judge(snapshot), "baseline.usable")[0]["status"] == "fail"


def test_baseline_of_makes_what_evaluate_takes():
    document = _health.baseline_of(readings.reading(), readings.NODE, readings.NOW)
    assert document["boot_id"] == "x" and "smoke" not in document
    assert judge(baseline=document)["verdict"] == "pass"


def waiver(**change):
    return {
        "waivers": [
            dict(
                {"check": "gpu.persistence", "reason": "persistence is off on purpose", "expires": "2026-03-01"},
                **change,
            )
        ]
    }


def test_a_live_waiver_takes_the_check_out_and_stays_visible():
    health = judge(change_gpu("persistence_mode", value(0)), policy=waiver())
    (check,) = found(health, "gpu.persistence", readings.uuid(1))
    assert (check["status"], check["action"], health["verdict"]) == ("waived", "none", "pass")
    assert "on purpose" in check["message"] and "it was fail" in check["message"]


@pytest.mark.pythons
@pytest.mark.parametrize(
    "change",
    [
        {"expires": "2026-02-28"},
        {"expires": "2026-03-01T12:00:00Z"},
        {"check": "gpu.power_limit"},
        {"entity": readings.uuid(0)},
    ],
)
def test_a_waiver_holds_no_longer_and_no_wider_than_it_says(change):
    assert judge(change_gpu("persistence_mode", value(0)), policy=waiver(**change))["verdict"] == "fail"


@pytest.mark.pythons
@pytest.mark.parametrize(
    "node, baseline, verdict",
    [
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z", "pass"),
        ("2026-03-01T11:00:00Z", "2026-01-01T00:00:00Z", "pass"),
        # The waiver ended with March 1st. The controller's clock was set back to it, and the node's was not.
        ("2026-03-02T00:00:00Z", "2026-03-01T12:00:00Z", "fail"),
        ("2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "fail"),
        # What is no time ends no waiver and revives none.
        (None, "2026-03-01T12:00:00Z", "pass"),
        ("soon", "2026-03-01T12:00:00Z", "pass"),
        (5, "2026-03-01T12:00:00Z", "pass"),
    ],
)
def test_a_clock_that_was_set_back_revives_no_expired_waiver(node, baseline, verdict):
    reading = dict(readings.reading(change_gpu("persistence_mode", value(0))), time=node)
    health = _health.evaluate(
        reading,
        dict(readings.baseline(), time=baseline),
        phase="post",
        node=readings.NODE,
        now=readings.NOW,
        policy=waiver(),
    )
    assert health["verdict"] == verdict and health["time"] == readings.NOW


@pytest.mark.pythons
def test_nor_does_one_set_back_a_little_before_the_baseline():
    """Clocks of controllers may differ by some minutes; a baseline taken after the waiver's end says that it is
    over.
    """
    reading = readings.reading(change_gpu("persistence_mode", value(0)))
    old = dict(readings.baseline(), time="2026-03-02T00:00:00Z")
    for policy, verdict in ((waiver(), "fail"), (waiver(expires="2026-03-02"), "pass")):
        health = _health.evaluate(
            reading, old, phase="post", node=readings.NODE, now="2026-03-01T23:59:00Z", policy=policy
        )
        assert health["verdict"] == verdict


@pytest.mark.pythons
@pytest.mark.parametrize(
    "policy, text",
    [
        (waiver(reason=" "), "has no reason"),
        (waiver(check=None), "has no check"),
        (waiver(expires=None), "has no expires"),
        (waiver(expires="soon"), "expires is 'soon'"),
        ({"waivers": ["x"]}, "is no dictionary"),
        ({"schema": "x"}, "has schema"),
        ({"ecc_volatile_uncorrected_maximum": 1}, "unknown entry"),
        ({"ecc_volatile_uncorrected_max": "1"}, "expected a number"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused(policy, text):
    with pytest.raises(_health.PolicyError, match=text):
        judge(policy=policy)


def test_the_summary_is_for_a_person():
    snapshot = change_gpu("persistence_mode", value(0))
    lines = _health.summary(judge(snapshot, expected_driver=OTHER)).split("\n")
    assert lines[0].startswith(
        "gpu-1: GPU health FAIL (phase post, action hold): %d failed, 0 unknown, 0 waived, " % (len(lines) - 1,)
    )
    assert lines[0].endswith("[simulated]")
    assert [
        line
        for line in lines
        if "FAIL driver.loaded node: found 535.216.03, expected 535.261.03. The node runs driver 535.216.03, " in line
    ]
    assert [line for line in lines if line.startswith("FAIL gpu.persistence GPU-00000001: found 0, expected 1.")]
    assert len(lines) > 2 and all(line.startswith("FAIL ") for line in lines[1:])


def test_what_explains_the_rest_comes_first():
    snapshot = readings.snapshot()
    snapshot.update(status="nvml_error", nvml={"rc": 9, "error": "DRIVER_NOT_LOADED"}, gpus=[], count=failed(9))
    blocked = [check["id"] for check in judge(snapshot)["checks"] if check["status"] == "fail"]
    assert blocked[0] == "nvml.answers" and "gpu.present" in blocked


def test_nothing_that_is_given_is_changed():
    given = [readings.reading(), readings.baseline()]
    before = copy.deepcopy(given)
    _health.evaluate(given[0], given[1], phase="post", node=readings.NODE, now=readings.NOW)
    assert given == before


@pytest.mark.parametrize(
    "text, expected",
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("00010000:1b:00.0", "10000:1b:00.0"),
        ("", None),
        (None, None),
        ("x:y:z", None),
        (7, None),
    ],
)
def test_one_spelling_of_pci_addresses(text, expected):
    assert model.pci_address(text) == expected


@pytest.mark.parametrize("section", ["snapshot", "audit", "system", "kernel_log", "boot_id"])
def test_a_section_that_could_not_be_read_is_unknown_and_says_why(section):
    document = readings.reading(problems={section: "OSError: no such luck"})
    document[section] = None
    health = _health.evaluate(document, phase="adhoc", node=readings.NODE, now=readings.NOW)
    (check,) = found(health, "reading.complete")
    assert (check["status"], check["observed"]) == ("unknown", [section])
    assert "%s (OSError: no such luck)" % section in check["message"]


@pytest.mark.parametrize("document", [None, [], "x", {}, {"snapshot": []}])
def test_what_is_no_reading_is_never_a_pass(document):
    health = _health.evaluate(document, readings.baseline(), phase="post", node=readings.NODE, now=readings.NOW)
    assert health["verdict"] != "pass" and "reading.complete" in blocking(health)


def with_table(monkeypatch, *rows):
    monkeypatch.setattr(registry, "TABLE", registry.TABLE + rows)
    monkeypatch.setattr(registry, "IDENTS", frozenset(row.ident for row in registry.TABLE))


def row(ident, judge_it, scope="node"):
    return model.Row(scope, ident, judge_it, "title", (), "source")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "x",
        [{"id": "x.other"}],
        [model.check("x.other", "node", "pass")],
        [model.check("x.mine", "node", "great")],
        [model.check("x.mine", "node", "pass", action="dance")],
        [None],
    ],
)
def test_a_judge_that_breaks_is_unknown_and_named(monkeypatch, answer):
    with_table(monkeypatch, row("x.mine", lambda ctx: answer))
    health = judge()
    (check,) = found(health, "x.mine")
    assert (check["status"], check["entity"], health["verdict"]) == ("unknown", "node", "unknown")
    assert "The check x.mine could not judge this reading" in check["message"]


def test_a_judge_that_raises_is_unknown_of_the_gpu_it_was_asked_about(monkeypatch):
    def burst(ctx, gpu):
        raise KeyError("surprise")

    with_table(monkeypatch, row("x.mine", burst, "gpu"))
    checks = found(judge(), "x.mine")
    assert [(check["status"], check["entity"]) for check in checks] == [
        ("unknown", readings.uuid(0)),
        ("unknown", readings.uuid(1)),
    ]
    assert "KeyError: 'surprise'" in checks[0]["message"]


def test_a_notice_passes_is_shown_and_may_be_made_strict(monkeypatch):
    with_table(
        monkeypatch,
        row("x.mine", lambda ctx: model.check("x.mine", "node", "pass", 7, 5, message="Look at it.", notice=True)),
    )
    health = judge()
    assert (health["verdict"], health["notices"]) == ("pass", 1)
    lines = _health.summary(health).split("\n")
    assert ", 1 notices" in lines[0] and lines[1] == "NOTICE x.mine node: Look at it."
    for pattern in ("x.mine", "x.*"):
        health = judge(policy={"strict": [pattern]})
        (check,) = found(health, "x.mine")
        assert (health["verdict"], health["notices"], check["status"], check["action"], check["notice"]) == (
            "fail",
            0,
            "fail",
            "hold",
            False,
        )
    assert judge(policy={"strict": ["gpu.*"]})["verdict"] == "pass"


def test_only_what_passes_is_a_notice():
    assert model.check("x", "node", "fail", notice=True)["notice"] is False
    assert model.check("x", "node", "pass", notice=True)["notice"] is True


def test_every_row_of_the_table_is_whole_and_judges_by_its_own_name():
    assert len(registry.IDENTS) == len(registry.TABLE)
    for entry in registry.TABLE:
        assert entry.scope in model.SCOPES and entry.title and entry.signals and entry.source
        assert callable(entry.judge)
    assert all("could not judge" not in check["message"] for check in judge()["checks"] + judge({}, {})["checks"])


@pytest.mark.parametrize(
    "given, expected",
    [
        ("it did not start", "it did not start."),
        ("Read it again.", "Read it again."),
        ("why?", "why?"),
        ("pid 1 (x)\n", "pid 1 (x)."),
        ("", ""),
        (None, ""),
    ],
)
def test_what_a_check_says_is_a_sentence(given, expected):
    assert model.check("x.y", "node", "fail", message=given)["message"] == expected
