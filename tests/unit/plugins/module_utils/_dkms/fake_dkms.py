# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node in a directory, with a dkms and a modinfo that act on it the way the real ones do (dkms 3.0, Debian 12).

Module files are text: ``version|vermagic|signer``. What the real commands answered in each case was observed once and
is kept in ``fixtures``; here it is replayed on files, so that a task can be run from its options to its result.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile

from ansible_collections.gpufleet.lifecycle.plugins.module_utils._dkms import dkms, trees
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.module_utils.recordings import kernel, recorded, write

ARCH = "x86_64"
CONF = 'PACKAGE_NAME="nvidia-current"\nPACKAGE_VERSION="%s"\n'


class FakeNode:
    """``root`` is the node's root directory; the object is its runner."""

    def __init__(self, root, kernels=("6.1.0-56-amd64",), versions=("535.261.03",), name="nvidia-current"):
        self.root, self.name, self.calls = str(root), name, []
        self.fail = {}  # action -> (rc, stdout, stderr)
        self.lie = set()  # actions that answer 0 and do nothing
        self.places = {}  # of the command that runs: directories that take the place of the node's own
        self.packages = {}  # a package file -> the version whose source it holds
        self.parts = {}  # a package file -> what of that source, where it is not dkms.conf
        self.compiled_of = []  # the files of the source of the last command with a place of its own
        os.makedirs(self.path("/sys/kernel"))
        for item in kernels:
            kernel(root, item)
            write(root, "/usr/src/linux-headers-%s/.config" % item, recorded("kernel-config.txt"))
        for version in versions:
            self.source(version)

    def path(self, *parts):
        return os.path.join(self.root, *[part.lstrip("/") for part in parts])

    def source(self, version):
        write(self.root, "/usr/src/%s-%s/dkms.conf" % (self.name, version), CONF % version)

    def tree(self, version, *parts):
        if self.places:
            return os.path.join(self.places["tree"], self.name, version, *parts)
        return self.path(dkms.TREE, self.name, version, *parts)

    def module(self, kernel_name):
        return self.path("/lib/modules", kernel_name, "updates/dkms", self.name + ".ko")

    def __call__(self, argv, timeout=None):
        argv = list(argv)
        self.calls.append(argv)
        if argv[0] == "nice":
            argv = argv[argv.index("dkms") :]
        if argv[0] == "modinfo":
            return self.modinfo(argv[1])
        if argv[:2] == ["dpkg-deb", "-x"]:
            return self.unpack(*argv[2:])
        if argv[0] != "dkms":
            return 127, "", "%s: command not found" % argv[0]
        action = argv[1]
        with self.apart(argv):
            return self.act(action, argv)

    @contextlib.contextmanager
    def apart(self, argv):
        """--dkmstree and --sourcetree, as long as one command takes."""
        options = (("tree", "--dkmstree"), ("source", "--sourcetree"))
        self.places = (
            dict((key, argv[argv.index(option) + 1]) for key, option in options) if "--sourcetree" in argv else {}
        )
        assert not self.places or os.path.isfile(
            os.path.join(self.places["source"], "%s-%s" % (self.name, argv[argv.index("-v") + 1]), "dkms.conf")
        )
        if self.places:
            of = os.path.join(self.places["source"], "%s-%s" % (self.name, argv[argv.index("-v") + 1]))
            self.compiled_of = sorted(os.listdir(of))
        try:
            yield
        finally:
            self.places = {}

    def unpack(self, package, target):
        if "broken" in package:
            return 2, "", "dpkg-deb: error: not a Debian format archive"
        os.makedirs(target, exist_ok=True)
        if package in self.packages:
            version, part = self.packages[package], self.parts.get(package, "dkms.conf")
            write(target, "/usr/src/%s-%s/%s" % (self.name, version, part), CONF % version)
        return 0, "", ""

    def act(self, action, argv):
        if action in self.fail:
            if action == "build":
                version = argv[argv.index("-v") + 1]
                write(self.tree(version), "build/make.log", recorded("make.log"))
            return self.fail[action]
        if action in self.lie:
            return 0, "", ""
        return getattr(self, "do_" + action)(dict(zip(argv, argv[1:] + [None])), "--force" in argv)

    def modinfo(self, path):
        try:
            with open(path, encoding="utf-8") as handle:
                version, vermagic, signer = handle.read().split("|")
        except (OSError, ValueError):
            return 1, "", recorded("modinfo-error.txt")
        return (
            0,
            "version:        %s\nlicense:        NVIDIA\nvermagic:       %s SMP preempt \nsigner:         %s\n"
            % (version, vermagic, signer),
            "",
        )

    def active(self, kernel_name):
        try:
            return os.readlink(self.path(dkms.TREE, self.name, "kernel-%s-%s" % (kernel_name, ARCH))).split("/")[0]
        except OSError:
            return None

    def built(self, version, kernel_name):
        return os.path.isfile(self.tree(version, kernel_name, ARCH, "module", self.name + ".ko"))

    def do_status(self, options, force):
        lines = []
        for name, version in dkms.list_trees(self.root):
            kernels = [item for item, dummy in dkms.built_dirs(self.tree(version)) if self.built(version, item)]
            if not os.path.lexists(self.tree(version, "source")):
                continue
            for item in kernels:
                state = "installed" if self.active(item) == version else "built"
                note = ""
                if state == "installed" and (
                    not os.path.exists(self.module(item))
                    or read(self.module(item)) != read(self.tree(version, item, ARCH, "module", self.name + ".ko"))
                ):
                    note = " (WARNING! Diff between built and installed module!)"
                lines.append("%s/%s, %s, %s: %s%s" % (name, version, item, ARCH, state, note))
            if not kernels:
                lines.append("%s/%s: added" % (name, version))
        return 0, "".join(line + "\n" for line in lines), ""

    def do_add(self, options, force):
        version = options["-v"]
        if os.path.lexists(self.tree(version, "source")):
            return 3, "", "Error! DKMS tree already contains: %s-%s" % (self.name, version)
        os.makedirs(self.tree(version, "build"))
        os.symlink("/usr/src/%s-%s" % (self.name, version), self.tree(version, "source"))
        return 0, "", ""

    def do_build(self, options, force):
        version, kernel_name = options["-v"], options["-k"]
        if not os.path.lexists(self.tree(version, "source")):
            self.do_add(options, False)
        if os.path.isdir(self.tree(version, kernel_name, ARCH)):
            return 3, "", "Error! This module/version has already been built on: %s" % kernel_name
        shutil.rmtree(self.tree(version, "build"), ignore_errors=True)
        write(
            self.tree(version),
            "%s/%s/module/%s.ko" % (kernel_name, ARCH, self.name),
            "%s|%s|key" % (version, kernel_name),
        )
        write(self.tree(version), "%s/%s/log/.config" % (kernel_name, ARCH), recorded("kernel-config.txt"))
        return 0, "", ""

    def do_install(self, options, force):
        version, kernel_name = options["-v"], options["-k"]
        if self.active(kernel_name) == version and not force:
            return 0, "already installed on kernel", ""
        target = self.module(kernel_name)
        if force or not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(self.tree(version, kernel_name, ARCH, "module", self.name + ".ko"), target)
        mark = self.path(dkms.TREE, self.name, "kernel-%s-%s" % (kernel_name, ARCH))
        if os.path.lexists(mark):
            os.unlink(mark)
        os.symlink("%s/%s/%s" % (version, kernel_name, ARCH), mark)
        return 0, "", ""

    def do_uninstall(self, options, force):
        version, kernel_name = options["-v"], options["-k"]
        if self.active(kernel_name) == version:
            os.unlink(self.path(dkms.TREE, self.name, "kernel-%s-%s" % (kernel_name, ARCH)))
            if os.path.exists(self.module(kernel_name)):
                os.unlink(self.module(kernel_name))
        return 0, "", ""

    def do_remove(self, options, force):
        version = options["-v"]
        kernels = [options["-k"]] if "-k" in options else [item for item, dummy in dkms.built_dirs(self.tree(version))]
        for item in kernels:
            self.do_uninstall({"-v": version, "-k": item}, False)
            if self.built(version, item):
                shutil.rmtree(self.tree(version, item))
        if not list(dkms.built_dirs(self.tree(version))):
            shutil.rmtree(self.tree(version), ignore_errors=True)
        return 0, "", ""

    def do_mktarball(self, options, force):
        version, kernel_name = options["-v"], options["-k"]
        if not self.built(version, kernel_name):
            return 6, "", "Error! No modules built for %s" % kernel_name
        files = {
            trees.INFO + "/dkms.conf": CONF % version,
            trees.INFO + "/PACKAGE_NAME": self.name,
            trees.INFO + "/PACKAGE_VERSION": version,
        }
        for name in ("module/%s.ko" % self.name, "log/.config"):
            files["%s/%s/%s/%s" % (trees.MAIN, kernel_name, ARCH, name)] = read(
                self.tree(version, kernel_name, ARCH, name)
            )
        make_archive(options["--archive"], files)
        return 0, "", ""

    def do_ldtarball(self, options, force):
        with tarfile.open(options["--archive"]) as archive:
            version = archive.extractfile("./%s/PACKAGE_VERSION" % trees.INFO).read().decode().strip()
            known = os.path.lexists(self.tree(version, "source"))
            if known and not force:
                return 8, "", "Error! %s-%s is already added!" % (self.name, version)
            for member in archive:
                if member.isfile() and member.name.startswith("./%s/" % trees.MAIN):
                    write(self.tree(version), member.name.split("/", 2)[2], archive.extractfile(member).read())
        if known:
            return 3, "", "Error! DKMS tree already contains: %s-%s" % (self.name, version)
        return self.do_add({"-v": version}, False) if not os.path.isdir(self.tree(version, "build")) else (0, "", "")


def read(path):
    with open(path, encoding="utf-8") as handle:
        return handle.read()


def make_archive(path, files, extra=()):
    """A gzipped tar as dkms mktarball writes it: names begin with ./, directories are members."""
    with tarfile.open(path, "w:gz") as archive:
        directories = set()
        for name in sorted(files):
            for end in range(1, len(name.split("/"))):
                directories.add("/".join(name.split("/")[:end]))
        for name in sorted(directories):
            member = tarfile.TarInfo("./" + name)
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        for name in sorted(files):
            data = files[name].encode("utf-8")
            member = tarfile.TarInfo("./" + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in extra:
            archive.addfile(member)
    return path
