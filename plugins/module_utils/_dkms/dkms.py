# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DKMS: what it says, what lies in its tree, and the commands that change it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from .._node import files, proc_tasks
from .._node.runner import missing

TREE = "/var/lib/dkms"
# Room a build of the driver takes below /var/lib/dkms, per kernel (MiB; seen: 330).
DKMS_BUILD_MIB = 400
LOG_LINES = 60
LOG_LINE_CHARS = 240
STATUS = re.compile(
    r"^(?P<name>[^,/\s]+)(?:/|, )(?P<version>[^,:\s]+)(?:, (?P<kernel>[^,\s]+), (?P<arch>[^,:\s]+))?"
    r": (?P<state>[a-z-]+)(?: from (?P<origin>\S+))?\s*(?P<note>.*)$"
)
STATES = dict((word, word) for word in ("added", "built", "installed", "broken"))
STATES["installed-weak"] = "installed"
# The remarks of dkms status, as words of every release (up to 3.0, from 3.1 and from 3.1.3 on), and the state that they
# make of an installed module. Another remark makes it unknown.
REMARKS = (
    (r"missing some built modules|built modules are missing", "incomplete"),
    (r"diff(erences)? between built and installed", "differs"),
    (r"original_?\s?modules? exists?", None),
)
# Names that the distributions give the driver's module: nvidia, nvidia-srv, nvidia-current-open, nvidia-tesla-470.
NAMES = re.compile(r"^nvidia([-_](current|srv|server|open|tesla|legacy|\d+(xx)?))*$")
BUILT = re.compile(r"""^\s*BUILT_MODULE_NAME(?:\[\d+\])?=["']?([^"'\s#]+)""", re.M)
EXIT_CODES = {
    1: "the kernel headers were not found, or the command was refused",
    2: "the module source or the archive is not there",
    4: "the tree of the module has lost its source or its dkms.conf",
    3: "the module is already in the DKMS tree for that kernel, or not in it at all",
    5: "a patch named in dkms.conf is missing",
    6: "a patch did not apply, or the module could not be installed",
    7: "the compilation ended well and yet a module is missing",
    8: "the module has no source here (binaries only)",
    9: "the DKMS tree or the archive directory cannot be written",
    10: "the compilation failed",
    11: "the automatic installation of at least one module failed",
    13: "a module that this one is built on (BUILD_DEPENDS) is not there",
    21: "the kernel headers were not found",
    77: "the module's configuration excludes this kernel (BUILD_EXCLUSIVE)",
    101: "the module's pre_install script failed",
    124: "it ran past its deadline and was killed",
    127: "dkms is not installed",
}


def read(root, runner) -> dict:
    """``{"available", "error", "entries", "unparsed", "leftovers"}`` of every NVIDIA module in the tree."""
    answer = {"available": True, "error": None, "entries": [], "unparsed": []}
    argv = ["dkms", "status"]
    if root != "/":
        argv += ["--dkmstree", files.under(root, TREE), "--installtree", files.under(root, "/lib/modules")]
    rc, out, err = runner(argv, 120)
    if missing(rc):
        answer.update(available=False, error="dkms is not installed")
    elif rc:
        answer.update(available=False, error="dkms status answered rc %s: %s" % (rc, err.strip() or out.strip()))
    else:
        entries, answer["unparsed"] = parse_status(out)
        answer["entries"] = [entry for entry in entries if is_driver(root, entry["name"], entry["version"])]
    answer["leftovers"] = leftovers(root, answer["entries"] if answer["available"] and not answer["unparsed"] else None)
    return answer


def is_driver(root, name, version) -> bool:
    """Return whether a DKMS module is the GPU driver: by what its dkms.conf builds, or by its name where there is none.

    Many others begin like it: nvidia-fs, nvidia-peermem, nvidia-peer-memory.
    """
    for path in ("%s/%s/%s/source/dkms.conf" % (TREE, name, version), "/usr/src/%s-%s/dkms.conf" % (name, version)):
        real = files.resolve(root, path)
        built = BUILT.findall((files.read_text(files.under(root, real)) if real else None) or "")
        if built and not any("$" in item for item in built):
            return any(NAMES.match(item) for item in built)
    return bool(NAMES.match(name))


def directory_of(name, version) -> str:
    """Return the directory of a module version; what is left of one without its source is removed with it."""
    return "%s/%s/%s" % (TREE, name, version)


def parse_status(out) -> tuple[list, list]:
    """Entries of ``dkms status`` in every format it has had, and the lines that are in none of them."""
    entries, unparsed = [], []
    for line in (item.strip() for item in out.splitlines()):
        if not line:
            continue
        found = STATUS.match(line)
        if not found:
            unparsed.append(line)
            continue
        entry = dict((key, found.group(key)) for key in ("name", "version", "kernel", "arch", "state", "origin"))
        entry["note"] = "; ".join(re.findall(r"\(([^()]*)\)", found.group("note"))) or found.group("note").strip()
        entries.append(entry)
    return entries, unparsed


def state_of(entries, name, version, kernel) -> str | None:
    """One word for a module version on a kernel: absent, added, built, installed, differs, incomplete, broken, or
    unknown where dkms says something else.
    """
    mine = [entry for entry in entries if (entry["name"], entry["version"]) == (name, version)]
    if not mine:
        return "absent"
    for entry in mine:
        if entry["kernel"] == kernel:
            states = [remark_state(remark) for remark in entry["note"].split("; ") if remark]
            states = [word for word in ("unknown", "incomplete", "differs") if word in states]
            return states[0] if states and entry["state"] in STATES else STATES.get(entry["state"], "unknown")
    whole = [STATES.get(entry["state"], "unknown") for entry in mine if entry["kernel"] is None]
    return next((word for word in ("broken", "unknown") if word in whole), "added")


def describe(entry) -> str:
    """Return what dkms status says of an entry, in one line."""
    return "%s %s" % (entry["state"], "(%s)" % entry["note"] if entry["note"] else "")


def remark_state(remark) -> str | None:
    return next((state for words, state in REMARKS if re.search(words, remark.lower())), "unknown")


def leftovers(root, entries=None) -> list[dict]:
    """Return the remains of an interrupted or failed build: ``[{name, version, kernel, arch, path, reason}]``.

    A build directory with files in it (dkms removes it after a good build, and makes an empty one at ``add``), or a
    kernel's directory that dkms does not count as built, which makes every later build of that kernel fail as "already
    built". Without the entries of ``dkms status`` only a directory with no module in it counts.
    """
    found = []
    for name, version in list_trees(root):
        base = files.under(root, TREE, name, version)
        if files.listing(os.path.join(base, "build")):
            log = files.read_text(os.path.join(base, "build", "make.log")) or ""
            kernel = re.search(r"make\.log for \S+ for kernel (\S+) \(([^)]+)\)", log)
            found.append(
                {
                    "name": name,
                    "version": version,
                    "kernel": kernel.group(1) if kernel else None,
                    "arch": kernel.group(2) if kernel else None,
                    "path": "%s/%s/%s/build" % (TREE, name, version),
                    "reason": "a build was interrupted or failed",
                }
            )
        known = set(
            (entry["kernel"], entry["arch"])
            for entry in entries or []
            if (entry["name"], entry["version"]) == (name, version)
        )
        for kernel, arch in built_dirs(base):
            empty = not files.listing(os.path.join(base, kernel, arch, "module"))
            if empty if entries is None else (kernel, arch) not in known:
                found.append(
                    {
                        "name": name,
                        "version": version,
                        "kernel": kernel,
                        "arch": arch,
                        "path": "%s/%s/%s/%s/%s" % (TREE, name, version, kernel, arch),
                        "reason": "a build was interrupted while its result was stored, or its source is gone",
                    }
                )
    return found


def list_trees(root) -> Iterator:
    """(name, version) of every NVIDIA module in the DKMS tree, by its directories."""
    base = files.under(root, TREE)
    for name in files.listing(base) or []:
        for version in files.listing(os.path.join(base, name)) or []:
            path = os.path.join(base, name, version)
            if (
                is_driver(root, name, version)
                and os.path.isdir(path)
                and not os.path.islink(path)
                and version != "original_module"
            ):
                yield name, version


def built_dirs(base) -> Iterator:
    """(kernel, arch) of the directories of built modules below a module version."""
    for kernel in files.listing(base) or []:
        if re.match(r"^\d+\.", kernel) and os.path.isdir(os.path.join(base, kernel)):
            for arch in files.listing(os.path.join(base, kernel)) or []:
                if os.path.isdir(os.path.join(base, kernel, arch)):
                    yield kernel, arch


def log_path(root, name, version, kernel=None, arch=None) -> str | None:
    """The make.log of the last build: in the build directory when it failed, with the modules when it ended well."""
    paths = ["%s/%s/%s/build/make.log" % (TREE, name, version)]
    if kernel and arch:
        paths.append("%s/%s/%s/%s/%s/log/make.log" % (TREE, name, version, kernel, arch))
    for path in paths:
        if os.path.isfile(files.under(root, path)):
            return path
    return None


def log_tail(root, path, lines=LOG_LINES) -> list[str]:
    content = files.read_text(files.under(root, path)) if path else None
    return last_lines(content, lines)


def last_lines(content, lines=LOG_LINES) -> list[str]:
    """The end of a log. Ubuntu's packages have the compiler say each of its command lines, of 3,000 characters: without
    the rest of these, what is wrong can be seen.
    """
    found = (content or "").splitlines()[-lines:]
    return [line if len(line) <= LOG_LINE_CHARS else line[:LOG_LINE_CHARS] + " ..." for line in found]


def meaning(rc) -> str:
    """Return the meaning of an exit code of dkms."""
    return EXIT_CODES.get(rc, "dkms ended with rc %s" % rc)


def find_running(proc="/proc") -> list[dict]:
    """Return all processes of root that change the DKMS tree now: ``[{pid, argv}]``; ``dkms status`` changes nothing.

    The compiler of a build whose dkms was killed goes on by itself: it is found by the tree it works in.
    """
    found = []
    for pid in sorted(int(item) for item in files.listing(proc) or [] if item.isdigit()):
        if pid == os.getpid() or not proc_tasks.is_of_root(proc, pid):
            continue
        argv = [item for item in (files.read_text("%s/%d/cmdline" % (proc, pid)) or "").split("\0") if item]
        scripts = [index for index, item in enumerate(argv[:3]) if os.path.basename(item) == "dkms"]
        acting = scripts and argv[scripts[0] + 1 : scripts[0] + 2] not in ([], ["status"])
        try:
            inside = "%s/nvidia" % TREE in os.readlink("%s/%d/cwd" % (proc, pid)) and "/build" in os.readlink(
                "%s/%d/cwd" % (proc, pid)
            )
        except OSError:
            inside = False
        if acting or inside:
            found.append({"pid": pid, "argv": argv[:8]})
    return found


def make_command(action, name, version, kernel=None, arch=None, force=False, apart=None) -> list[str]:
    """``dkms build|install|uninstall|unbuild|remove|add`` for one module version, and one kernel or all of them.

    ``apart`` is ``(tree, source tree)``, directories that take the place of :data:`TREE` and ``/usr/src`` (dkms(8):
    --dkmstree, --sourcetree).
    """
    argv = ["dkms", action, "-m", name, "-v", version]
    if apart:
        argv += ["--dkmstree", apart[0], "--sourcetree", apart[1]]
    if kernel:
        argv += ["-k", kernel]
        if arch:
            argv += ["-a", arch]
    elif action == "remove":
        argv.append("--all")
    if force:
        argv.append("--force")
    return argv


def export_command(name, version, kernel, arch, archive, apart=None) -> list[str]:
    """The built modules of one kernel, without the source, into a file."""
    return make_command("mktarball", name, version, kernel, arch, apart=apart) + [
        "--binaries-only",
        "--archive",
        archive,
    ]


def tree_name(name, version, kernel, arch, compiler) -> str:
    """The file name of an exported tree."""
    for field, value in (
        ("name", name),
        ("version", version),
        ("kernel", kernel),
        ("arch", arch),
        ("compiler", compiler),
    ):
        if not value or not re.match(r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$", value):
            raise ValueError("%s '%s' cannot be part of a file name" % (field, value))
    return "%s.dkms.tar.gz" % "_".join((name, version, kernel, arch, compiler))


def compiler_id(config_text) -> str | None:
    """The compiler a kernel was built with, as one word, out of its configuration: gcc-12.2.0.

    None when it is not said.
    """
    line = re.search(r'^CONFIG_CC_VERSION_TEXT="([^"]*)"', config_text or "", re.M)
    kind = re.search(r"gcc|clang", line.group(1)) if line else None
    version = re.search(r"(?<=\s)\d+\.\d+(?:\.\d+)?", re.sub(r"\([^)]*\)", "", line.group(1))) if line else None
    return "%s-%s" % (kind.group(0), version.group(0)) if kind and version else None


def kernel_config(root, kernel) -> str | None:
    """A kernel's configuration: of its headers (what DKMS builds by), or of its image."""
    for path in ("/lib/modules/%s/build/.config" % kernel, "/boot/config-%s" % kernel):
        real = files.resolve(root, path)
        content = files.read_text(files.under(root, real)) if real else None
        if content:
            return content
    return None


def is_excluded(rc) -> bool:
    """True when the module's own configuration says that it is not made for this kernel."""
    return rc == 77
