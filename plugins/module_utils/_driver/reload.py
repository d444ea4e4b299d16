# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a driver can be reloaded without a reboot, and why not. Only data in, only data out."""

from __future__ import annotations

from collections.abc import Iterator

from .._kernel import loaded, modules, secureboot
from .._node import holders
from .._node.hung import IN_DRIVER

RELOAD, REBOOT, NONE, REFUSE = "reload", "reboot", "none", "refuse"
AT_WORK = "at_work"
# Every CUDA context opens it; a monitor or an X server does not.
UVM = "/dev/nvidia-uvm"
ACTIVE = ("active", "activating", "reloading", "deactivating", "refreshing")


def explain_holder(ident: str, message: str, next_step: str, reboot_helps: bool = True) -> dict:
    return {"id": ident, "message": message, "next_step": next_step, "reboot_helps": reboot_helps}


def is_needed(facts) -> str:
    """Return why what is loaded is not what is on the disk; empty when it is."""
    loaded, disk = facts["loaded"], facts["module"] or {}
    if loaded["state"] == "not_loaded":
        return "no driver is loaded"
    if loaded["state"] != "loaded":
        return "it cannot be told which driver is loaded"
    if loaded["version"] != disk.get("version"):
        return "driver %s is loaded, and %s is on the disk for the running kernel" % (
            loaded["version"],
            disk.get("version") or "none",
        )
    kinds = loaded["flavour"], modules.flavour(disk.get("license"))
    if None not in kinds and kinds[0] != kinds[1]:
        return "the %s driver %s is loaded, and the %s one is on the disk" % (kinds[0], loaded["version"], kinds[1])
    return ""


def running_services(facts: dict, services: list[str]) -> list[str] | None:
    """The services to stop, in the order in which they were named, each once: those that run; None when systemd did not
    say.
    """
    if facts["services"] is None:
        return None
    found, seen = [], set()
    for name in services:
        state = facts["services"].get(name) or {}
        names = set(state.get("names") or [name]) | {name}
        if state.get("active") in ACTIVE and not names & seen:
            found.append(name)
        seen |= names
    return found


def find_strangers(facts: dict, services: list[str]) -> list[dict]:
    """Holders that no service to be stopped explains. A pod or a job is a stranger whatever its unit is called."""
    names = set(services)
    for name in services:
        names |= set(((facts["services"] or {}).get(name) or {}).get("names") or [])
    return [item for item in facts["holders"] or [] if item["unit"] not in names or item["pod"] or item["job"]]


def module_reasons(facts, wanted) -> Iterator:
    """Yield what keeps the module on the disk from being loaded; a reboot into the same kernel would not help."""
    running, disk = facts["kernel"]["running"], facts["module"]
    if not disk or not disk.get("version"):
        why = (disk or {}).get("error") or "there is no NVIDIA module"
        yield explain_holder(
            "no_module",
            "for the running kernel %s no module can be loaded: %s" % (running, why),
            "build it (module dkms_module), and run again",
            False,
        )
        return
    if not modules.made_for(running, disk):
        yield explain_holder(
            "vermagic",
            "%s is made for %s, and kernel %s runs"
            % (disk["path"], disk.get("vermagic") or "no kernel it names", running),
            "build it for this kernel (module dkms_module)",
            False,
        )
    if wanted and disk["version"] != wanted:
        yield explain_holder(
            "wrong_version",
            "driver %s is wanted, and %s is on the disk (%s)" % (wanted, disk["version"], disk["path"]),
            "install the wanted driver first (role nvidia_driver)",
            False,
        )
    if facts["gsp_firmware"] and disk["version"] not in facts["gsp_firmware"] and not facts["gsp_disabled"]:
        yield explain_holder(
            "gsp_firmware",
            "the GSP firmware of %s is not on the disk, only that of %s"
            % (disk["version"], ", ".join(facts["gsp_firmware"])),
            "install the firmware package of this driver",
            False,
        )
    verdict = secureboot.judge(facts["secure_boot"], disk.get("signer"), is_running=True)
    if verdict in ("unsigned", "untrusted"):
        why = (
            "is not signed" if verdict == "unsigned" else "is signed by '%s', which is no enrolled key" % disk["signer"]
        )
        yield explain_holder(
            "unsigned",
            "Secure Boot is on, and %s %s" % (disk["path"], why),
            "sign it with an enrolled key, or use a prebuilt signed module",
            False,
        )


def node_reasons(facts, nvswitch) -> Iterator:
    """Yield what about the node needs a reboot before anything else is looked at."""
    running, following = facts["kernel"]["running"], facts["kernel"]["next_boot"]
    if following and following != running:
        yield explain_holder(
            "kernel_pending",
            "kernel %s runs and %s boots next (%s)" % (running, following, facts["kernel"]["next_boot_source"]),
            "reboot once the driver is proven for that kernel",
        )
    if facts["loaded"]["nouveau"]:
        yield explain_holder(
            "nouveau", "nouveau is loaded and has the GPUs", "reboot with nouveau kept out of the initramfs"
        )
    for task in facts["hung"] or []:
        yield explain_holder(
            "hung_task",
            "%s (pid %s) waits in the driver and cannot be interrupted (%s)"
            % (task["comm"], task["pid"], task["where"]),
            "reboot the node",
        )
    if facts["hung"] is None:
        yield explain_holder(
            "hung_unknown",
            "/proc cannot be listed, so it is unknown whether a task hangs in the driver",
            "look at the node",
        )
    yield from fabric_reasons(facts["nvswitches"], facts["nvlink_managers"], nvswitch)
    for line in (facts["framebuffers"] or "").splitlines():
        if "nvidia" in line:
            yield explain_holder(
                "console",
                "the console is on a GPU (/proc/fb: %s)" % line.strip(),
                "reboot the node, or move its console off the GPU",
            )


def fabric_reasons(switches, managers, allowed) -> Iterator:
    """Yield what a fabric that joins the GPUs has against a reload.

    ALLOWED: a reload is known to work on this model.
    """
    if switches is None or managers is None:
        yield explain_holder(
            "fabric_unknown",
            "the PCI bus cannot be listed, so that it is not known whether NVSwitches join the GPUs",
            "look at the node",
        )
        return
    found = ["%d NVSwitches join the GPUs" % len(switches)] if switches else []
    if managers["found"]:
        found.append("%d adapters manage the NVLink switches that join the GPUs" % len(managers["found"]))
    if allowed:
        return
    if found:
        yield explain_holder(
            "fabric",
            "%s, and their fabric is set up again by a boot" % " and ".join(found),
            "reboot, or set nvswitch=true where a reload is known to work on this model",
        )
    elif managers["unread"]:
        yield explain_holder(
            "fabric_unknown",
            "adapters do not tell whether they manage NVLink switches (vpd of %s)" % ", ".join(managers["unread"]),
            "look at the node, or set nvswitch=true where a reload is known to work on this model",
        )


def reference_reasons(table, held) -> Iterator:
    """Yield what holds the modules, or may; ``held`` says whether processes have device files open, or may have."""
    if table is None:
        yield explain_holder(
            "modules_unknown",
            "/sys/module cannot be listed, so it is unknown what holds the modules",
            "reboot the node",
        )
        return
    for name in loaded.find_unknown(table):
        yield explain_holder(
            "refcnt_unknown", "the reference count of module %s cannot be read" % name, "reboot the node"
        )
    for name, used in loaded.find_foreign(table).items():
        yield explain_holder(
            "foreign_module",
            "module %s uses %s, and it is not known how to bring it back" % (name, ", ".join(used)),
            "reboot the node, or unload %s" % name,
        )
    if loaded.order_unloading(table) is None:
        yield explain_holder(
            "module_circle", "the modules %s use each other" % ", ".join(sorted(table)), "reboot the node"
        )
    for name, count in loaded.find_unexplained(table).items() if not held else ():
        yield explain_holder(
            "unexplained_reference",
            "module %s has %d references that no process with a device file and no other module explains "
            "(its holders: %s)" % (name, count, ", ".join(table[name]["holders"]) or "none"),
            "reboot the node",
        )


def at_work(item, hung) -> bool:
    """Return whether a process would lose work by a reboot: of a pod or a job, or with CUDA's memory (/dev/nvidia-uvm).

    One that hangs in the driver by its stack cannot go on; one that waits for something else, such as a slow file
    system, can.
    """
    if item["pid"] in [task["process"] for task in hung or [] if task["where"].startswith(IN_DRIVER)]:
        return False
    return bool(item["pod"] or item["job"] or any(path.startswith(UVM) for path in item["devices"]))


def holder_reasons(facts, services) -> Iterator:
    if facts["holders"] is None:
        yield explain_holder(
            "holders_unknown", "/proc cannot be listed, so it is unknown what holds the GPUs", "look at the node", False
        )
        return
    for item in find_strangers(facts, services):
        what = "%s has %s open and is none of the services to stop" % (
            holders.in_words(item),
            ", ".join(item["devices"]),
        )
        if at_work(item, facts["hung"]):
            yield explain_holder(
                AT_WORK,
                what + ", and a reboot would end its work",
                "let it end or end it, and run again; or name its service in services",
                False,
            )
        else:
            yield explain_holder("foreign_holder", what, "end it, or name its service in services")


def decide_reload(facts: dict, params: dict) -> dict:
    """``{"action", "why", "reasons", "stop", "unload", "version"}``.

    ``reasons`` are those against a reload. With policy auto they lead to a reboot if a reboot helps, and to a refusal
    otherwise; with policy reload always to a refusal. Policy reboot looks at nothing but whether anything is due, and
    whether the GPUs are in use.
    """
    table = facts["references"]
    stop = running_services(facts, params["services"])
    answer = {
        "action": NONE,
        "why": is_needed(facts),
        "reasons": [],
        "stop": [],
        "unload": [],
        "version": (facts["module"] or {}).get("version"),
    }
    blockers, pending = list(module_reasons(facts, params["version"])), list(node_reasons(facts, params["nvswitch"]))
    kernel = [item for item in pending if item["id"] == "kernel_pending"]
    if not answer["why"] and not (
        params["force"] or kernel or [item for item in blockers if item["id"] == "wrong_version"]
    ):
        return answer
    answer["why"] = answer["why"] or (kernel[0]["message"] if kernel else "it was asked for")
    if kernel:
        # Another kernel is about to run: what is on the disk for this one matters no more.
        blockers = [item for item in blockers if item["id"] == "wrong_version"]
    if params["policy"] == REBOOT:
        # Whether a service runs is not asked here: a process of its unit says so itself.
        answer["reasons"] = [explain_holder("policy", "the policy is to reboot", "reboot the node")] + [
            item for item in blockers if item["id"] == "wrong_version"
        ]
        answer["reasons"] += [item for item in holder_reasons(facts, params["services"]) if not item["reboot_helps"]]
    else:
        answer["reasons"] = blockers + pending
        if stop is None:
            named = ", ".join(params["services"])
            answer["reasons"].append(
                explain_holder(
                    "services_unknown", "systemd does not say which of the services run: %s" % named, "look at the node"
                )
            )
        else:
            answer["reasons"] += list(holder_reasons(facts, stop))
        answer["reasons"] += list(reference_reasons(table, facts["holders"] != []))
    if not answer["reasons"]:
        return dict(answer, action=RELOAD, stop=stop, unload=loaded.order_unloading(table))
    return dict(answer, action=judge_reload(answer["reasons"], params["policy"]))


def judge_reload(reasons: list[dict], policy: str) -> str:
    """reboot or refuse, of reasons against a reload."""
    if policy == RELOAD or not all(item["reboot_helps"] for item in reasons):
        return REFUSE
    return REBOOT


def make_sentence(reasons: list[dict]) -> str:
    """The reasons for an operator, with what to do next."""
    steps = []
    for item in reasons:
        if item["next_step"] not in steps:
            steps.append(item["next_step"])
    return "%s. Next step: %s." % ("; ".join(item["message"] for item in reasons), "; ".join(steps))
