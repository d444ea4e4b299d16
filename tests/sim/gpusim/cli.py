# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands' entry points, and gpusim itself."""

from __future__ import annotations

import argparse
import os
import sys

from . import boot, faults, library, log, mig, modules, node, smi, state


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpusim", description="Controls this node's simulated GPUs. No hardware is touched."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    init = commands.add_parser("init", help="describe the node's hardware")
    init.add_argument("--model", required=True, help="one of: " + ", ".join(node.profiles()))
    init.add_argument("--gpus", type=int, help="how many GPUs (default: the model's usual number)")
    init.add_argument("--node", required=True, help="name of the node: UUIDs and serials follow from it")
    init.add_argument("--root", help="root of the machine's files, when it is not this one")
    commands.add_parser("status", help="kernel, driver, GPUs and faults in a few lines")
    commands.add_parser("faults", help="the faults there are")
    inject = commands.add_parser("inject", help="make a fault")
    inject.add_argument("name")
    inject.add_argument("words", nargs="*")
    inject.add_argument("--gpu", type=_gpu, help="its number, or all")
    inject.add_argument("--driver", help="only while this version of the driver is loaded")
    inject.add_argument("--value", type=lambda text: int(text, 0))
    inject.add_argument("--link", default="0", help="numbers of NVLinks, with commas")
    inject.add_argument("--after", type=int, help="error: so many calls of a process succeed first")
    inject.add_argument("--first", type=int, help="error: so many calls of the whole node fail, later ones succeed")
    inject.add_argument("--mig", type=int, help="xid, stray-process: of this MIG GPU instance")
    inject.add_argument("--ci", type=int, help="stray-process: of this compute instance of it (default 0)")
    inject.add_argument("--fatal", action="store_true", help="sxid: the error is fatal")
    inject.add_argument("--from-s", type=float, help="only from so many seconds after the driver was loaded")
    inject.add_argument("--until-s", type=float, help="only until so many seconds after the driver was loaded")
    inject.add_argument("--until-boot", action="store_true", help="a boot takes the fault away")
    clear = commands.add_parser("clear", help="take faults away: all, or those of one name")
    clear.add_argument("name", nargs="?")
    clear.add_argument("--gpu", type=int)
    layout = commands.add_parser(
        "mig", help="lay out MIG on a GPU, with an instance for each profile name, or switch it off without names"
    )
    layout.add_argument("profiles", nargs="*")
    layout.add_argument("--gpu", type=int, required=True)
    commands.add_parser("list", help="the faults that are set")
    commands.add_parser("kmsg", help="the simulated kernel log of this boot")
    line = commands.add_parser("log", help="write lines into the kernel log, or take old ones away")
    line.add_argument(
        "text", nargs="*", help="one record for each word; {pci} is the address of --gpu without its function"
    )
    line.add_argument("--gpu", type=int, default=0)
    line.add_argument(
        "--level", type=int, choices=range(8), help="0 emergency to 7 debug (default: as the words sound)"
    )
    line.add_argument("--forget", type=int, metavar="N", help="the N oldest records are overwritten, as in a full ring")
    commands.add_parser("boot", help="what the boot service does")
    relink = commands.add_parser("library", help="fit the NVML library's functions to the installed driver package")
    relink.add_argument("--quiet", action="store_true")
    return parser


def _status(_options) -> None:
    description = state.described()
    loaded = state.read(state.LOADED)
    name, gpu_name = (
        description.get("node", "name", fallback="(none)"),
        description.get("gpu", "name", fallback="(no GPU)"),
    )
    print("simulated node %s: %d x %s" % (name, state.gpu_count(), gpu_name))
    print("kernel release:   %s" % state.release())
    print("module loaded:    %s" % (loaded.get("nvidia", "version", fallback="") or "none"))
    print("library installed: %s" % (library.library_version() or "none"))
    for gpu in range(state.gpu_count()):
        print("GPU %d: %s %s" % (gpu, state.gpu_value(gpu, "pci"), state.gpu_value(gpu, "uuid")))
    for identity, _section in faults.active():
        print("fault: %s" % identity)


def _init(options) -> None:
    if options.root:
        os.environ["GPUSIM_ROOT"] = options.root
    state.require_root()
    node.init(options.model, options.gpus, options.node)
    print("%s describes %s with %d GPUs (simulated)" % (state.path(state.NODE), options.node, state.gpu_count()))


def _gpu(text: str):
    return text if text == "all" else int(text)


def _faults(_options) -> None:
    for words, text in faults.usage():
        print("%-60s %s" % (words, text))


def _inject(options) -> None:
    print(faults.inject(options.name, options))


def _clear(options) -> None:
    cleared = faults.clear(options.name, options.gpu)
    print("\n".join("cleared %s" % identity for identity in cleared) or "nothing to clear")


def _list(_options) -> None:
    for identity, section in faults.active():
        print("%s%s" % (identity, " (driver %s)" % section["driver"] if "driver" in section else ""))


def _log(options) -> None:
    state.require_root()
    if options.forget is not None:
        print("%d records are left in the kernel log" % log.forget(options.forget))
    for text in options.text:
        log.write(text.replace("{pci}", state.sysfs_address(state.gpu_value(options.gpu, "pci"))[:-2]), options.level)


def _library(options) -> None:
    state.require_root()
    missing = library.relink()
    if not options.quiet:
        print("functions that the library lacks: %s" % (", ".join(sorted(missing)) or "none"))


ACTIONS = {
    "init": _init,
    "status": _status,
    "faults": _faults,
    "inject": _inject,
    "clear": _clear,
    "list": _list,
    "kmsg": lambda _options: sys.stdout.write(log.shown()),
    "log": _log,
    "boot": lambda _options: boot.boot(),
    "library": _library,
    "mig": lambda options: print("\n".join(mig.lay_out(options.gpu, options.profiles))),
}


def gpusim(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    ACTIONS[options.command](options)
    return 0


COMMANDS = {
    "gpusim": gpusim,
    "modprobe": modules.modprobe,
    "rmmod": modules.rmmod,
    "lsmod": modules.lsmod,
    "nvidia-smi": smi.main,
}


def run(name: str, arguments: list[str]) -> int:
    try:
        return COMMANDS[name](arguments)
    except state.SimError as error:
        print("%s: %s" % (name, error), file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
