# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exported DKMS trees: looking into the archive before DKMS does, and putting several into one."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile

from .._kernel import modules
from .._node import files
from . import dkms

MAX_MEMBERS = 10000
MAX_BYTES = 4 * 1024 * 1024 * 1024
SUFFIX = ".dkms.tar.gz"
INFO = "dkms_binaries_only"
MAIN = "dkms_main_tree"
# Where a node keeps archives: those of the driver it had, to roll back, and those it will get. Only root writes there.
STORE = "/var/lib/gpufleet/dkms"
WORKPLACE = ".gpufleet-import"
SOURCE = re.compile(r"^# source ([0-9a-f]{64})$", re.M)
CONF_FIELD = re.compile(r"""^\s*(?P<key>PACKAGE_NAME|PACKAGE_VERSION)=["']?(?P<value>[^"'\s#]+)""", re.M)


# Larger blocks cost more: each is a mapping of its own, which the kernel fills with zeros first.
READ_BYTES = 64 * 1024
# Of this process, by the path of a file and its signature.
_EXAMINED, _DIGESTS = {}, {}


class TreeError(Exception):
    """An archive that must not be given to DKMS; the text says why."""


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(READ_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def known_sha256(path):
    """The same, read once for as long as the file is the same: a task looks before and after it has the node to
    itself.
    """
    key = (path,) + _signature(path)
    _DIGESTS[key] = digest = _DIGESTS.get(key) or sha256_of(path)
    return digest


def expected_sha256(path):
    """The digest in the file beside an archive, in sha256sum's form."""
    beside = path + ".sha256"
    try:
        with open(beside, encoding="ascii") as handle:
            words = handle.read(4096).split()
    except (OSError, UnicodeDecodeError) as exc:
        raise TreeError("its digest %s cannot be read: %s" % (beside, exc)) from exc
    if not words or not re.match(r"^[0-9a-f]{64}$", words[0]):
        raise TreeError("%s holds no sha256 digest" % beside)
    return words[0]


def write_sha256(path, digest, source=None):
    """The digest in sha256sum's form, and what the modules were built from in a comment, which sha256sum leaves out."""
    remark = "# source %s\n" % source if source else ""
    write_atomic(path + ".sha256", ("%s  %s\n%s" % (digest, os.path.basename(path), remark)).encode("ascii"))


def source_of(path):
    """The digest of the source that an archive was built from, as its export noted it; None where it was not noted."""
    try:
        with open(path + ".sha256", encoding="ascii") as handle:
            found = SOURCE.search(handle.read(4096))
    except (OSError, UnicodeDecodeError):
        return None
    return found.group(1) if found else None


def source_digest(root, name, version):
    """One digest of a module's source on a node, None where there is none: two packages of one driver version may
    differ in their patches.
    """
    return digest_below(files.under(root, "/usr/src/%s-%s" % (name, version)))


def digest_below(base):
    """One digest of all files below a directory, with their names; None where there are none."""
    total, there = hashlib.sha256(), False
    for top, directories, names in os.walk(base):
        directories.sort()
        for each in sorted(names):
            path = os.path.join(top, each)
            there, value = True, os.readlink(path) if os.path.islink(path) else known_sha256(path)
            total.update(("%s\0%s\n" % (os.path.relpath(path, base), value)).encode("utf-8", "surrogateescape"))
    return total.hexdigest() if there else None


def other_source(noted, node):
    """Return whether an archive was built from other source than a node has; False where one of the two is not
    known.
    """
    return bool(noted and node and noted != node)


def write_atomic(path, data):
    handle, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def whole(path):
    """The digest of an archive that is there with the digest beside it, and agrees with it; else None."""
    try:
        digest = known_sha256(path)
        return digest if digest == expected_sha256(path) else None
    except (OSError, TreeError):
        return None


def promised(path):
    """Return the digest beside an archive that is there, which a reader of the archive still has to compare; else
    None.
    """
    try:
        return expected_sha256(path) if os.path.isfile(path) else None
    except TreeError:
        return None


def superfluous(kept, version, kernels, versions=2):
    """Names of archives to remove from a store. Pure.

    ``kept`` is ``[(name, age)]``. Those of kernels that are gone go, and all but the wanted version and the youngest
    others, ``versions`` in all.
    """
    parts = [
        (name, age) + tuple(name.split("_", 2)[1:])
        for name, age in kept
        if name.endswith(SUFFIX) and name.count("_") >= 4
    ]
    ages = {}
    for dummy, age, other, dummy in parts:
        ages[other] = min(age, ages.get(other, age))
    others = sorted((other for other in ages if other != version), key=lambda other: (ages[other], other))
    wanted = set([version] + others[: versions - 1])
    return sorted(
        name
        for name, dummy, other, rest in parts
        if other not in wanted or not any(rest.startswith("%s_" % kernel) for kernel in kernels)
    )


@contextlib.contextmanager
def private_directory():
    """A directory that only this user can enter, as long as it is needed."""
    directory = tempfile.mkdtemp(prefix="gpufleet-dkms-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


class Workplace:
    """The directory in which an archive becomes a tree before DKMS gets it.

    It lies beside DKMS's trees, so that the tree is moved and not copied, and has a name that DKMS passes over.

    It is made when it is first needed, and what a killed run left there is removed then. Without a DKMS tree it is
    anywhere.
    """

    def __init__(self, root):
        self.beside, self.path, self.umask = files.under(root, dkms.TREE), None, None

    def directory(self, name):
        """A new directory in it."""
        if self.path is None and os.path.isdir(self.beside):
            path = os.path.join(self.beside, WORKPLACE)
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path, 0o700)
            self.path = path
        elif self.path is None:
            self.path = tempfile.mkdtemp(prefix="gpufleet-dkms-")
        os.mkdir(os.path.join(self.path, name))
        return os.path.join(self.path, name)

    def __enter__(self):
        self.umask = os.umask(0o022)  # as dkms does: everybody may read its tree
        return self

    def __exit__(self, *exc):
        os.umask(self.umask)
        if self.path is not None:
            shutil.rmtree(self.path)


@contextlib.contextmanager
def private_copies(paths):
    """Copies of archives in a directory that only this user can enter, each checked against its digest.

    What is inspected is what is loaded: it cannot be changed in between.
    """
    with private_directory() as directory:
        copies = []
        for index, path in enumerate(paths):
            copy_path = os.path.join(directory, "%d.dkms.tar.gz" % index)
            try:
                wanted = expected_sha256(path)
                shutil.copyfile(path, copy_path)
            except FileNotFoundError as exc:
                raise TreeError("The archive %s cannot be used: it is not there." % path) from exc
            except TreeError as exc:
                raise TreeError("The archive %s cannot be used: %s." % (path, exc)) from exc
            found = sha256_of(copy_path)
            if found != wanted:
                raise TreeError(
                    "The archive %s cannot be used: its sha256 is %s, and %s.sha256 says %s."
                    % (path, found, path, wanted)
                )
            copies.append({"path": path, "copy": copy_path, "sha256": found, "source": source_of(path)})
        yield copies


class _Source:
    """An archive's file, and the digest of what was read of it.

    What is wrong with it is a TreeError, unlike what is wrong where something is written.
    """

    def __init__(self, stream):
        self.stream, self.digest = stream, hashlib.sha256()

    def read(self, size):
        try:
            block = self.stream.read(size)
        except OSError as exc:
            raise TreeError("it is not a readable tar archive: %s" % exc) from exc
        self.digest.update(block)
        return block

    def sha256(self):
        """Of the whole file: what follows the end of the archive counts."""
        while self.read(READ_BYTES):
            pass
        return self.digest.hexdigest()


def inspect(path, take=None):
    """``{name, version, conf, sha256, kernels: {(kernel, arch): {"module": member, "compiler": id}}}`` of an archive,
    which is read once.

    Raises TreeError for anything but plain files and directories at the places where DKMS writes them. What is built is
    written to the directory ``take``, where one is given, as KERNEL/ARCH/..., and the path of a main module is its
    ``"file"``.
    """
    try:
        stream = open(path, "rb")
    except OSError as exc:
        raise TreeError("it is not a readable tar archive: %s" % exc) from exc
    with stream:
        source = _Source(stream)
        try:
            with tarfile.open(fileobj=source, mode="r|*", bufsize=READ_BYTES) as archive:
                tree = _inspect(archive, take)
        except (tarfile.TarError, EOFError) as exc:
            raise TreeError("it is not a readable tar archive: %s" % exc) from exc
        for (kernel, arch), item in tree["kernels"].items():
            if take and item["module"]:
                item["file"] = os.path.join(take, kernel, arch, "module", os.path.basename(item["module"]))
        return dict(tree, sha256=source.sha256())


def _inspect(archive, take):
    kernels, texts, total, count = {}, {}, 0, 0
    for member in archive:
        count, total = count + 1, total + member.size
        if count > MAX_MEMBERS or total > MAX_BYTES:
            raise TreeError("it holds more than a DKMS tree does (%d members, %d bytes)" % (count, total))
        parts = member_parts(member)
        if parts[:1] == [INFO] and len(parts) == 2 and member.isfile():
            texts[parts[1]] = _small(archive, member, 1024 * 1024).decode("utf-8", "replace")
        elif parts[:1] == [MAIN] and len(parts) > 3:
            data = _built(
                archive, member, parts, kernels.setdefault((parts[1], parts[2]), {"module": None, "compiler": None})
            )
            if take:
                _take(archive, member, data, os.path.join(take, *parts[1:]))
    conf = texts.get("dkms.conf", "")
    fields = dict((found.group("key"), found.group("value")) for found in CONF_FIELD.finditer(conf))
    name, version = (texts.get(key, "").strip() for key in ("PACKAGE_NAME", "PACKAGE_VERSION"))
    if not conf or not name or not version:
        raise TreeError(
            "it has no %s/ with dkms.conf, PACKAGE_NAME and PACKAGE_VERSION (dkms mktarball --binaries-only makes it)"
            % INFO
        )
    if (fields.get("PACKAGE_NAME"), fields.get("PACKAGE_VERSION")) != (name, version):
        raise TreeError(
            "its dkms.conf is of %s/%s, its PACKAGE_NAME and PACKAGE_VERSION say %s/%s"
            % (fields.get("PACKAGE_NAME"), fields.get("PACKAGE_VERSION"), name, version)
        )
    if not kernels:
        raise TreeError("it holds no built modules")
    return {"name": name, "version": version, "conf": conf, "kernels": kernels}


def name_compiler(tree, path):
    """Fill in the compiler from an archive's name, as its export gave it: dkms from 3.1 on keeps no configuration of
    the kernel with the modules.
    """
    for (kernel, arch), item in tree["kernels"].items():
        start, end = "_".join((tree["name"], tree["version"], kernel, arch, "")), ".dkms.tar.gz"
        name = os.path.basename(path)
        if item["compiler"] is None and name.startswith(start) and name.endswith(end):
            item["compiler"] = name[len(start) : -len(end)] or None


def member_parts(member):
    """The path of a member in parts; raises TreeError for one that could be written anywhere else than in the tree."""
    if not (member.isfile() or member.isdir()):
        raise TreeError("its member %s is neither a file nor a directory" % member.name)
    if member.name.startswith("/"):
        raise TreeError("its member %s has an absolute path" % member.name)
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise TreeError("its member %s leads out of the tree" % member.name)
    if parts and parts[0] not in (INFO, MAIN):
        raise TreeError("its member %s is not part of a binaries-only DKMS tree" % member.name)
    return parts


def _built(archive, member, parts, item):
    """Note what a member says of the kernel that it is for; answers what was read of it."""
    if not member.isfile() or len(parts) != 5:
        return None
    if parts[3] == "module" and modules.MAIN.match(parts[4]):
        if item["module"]:
            raise TreeError(
                "it holds two main modules for kernel %s, %s and %s" % (parts[1], item["module"], member.name)
            )
        item["module"] = member.name
    if parts[3] != "log" or parts[4] not in (".config", "config-%s" % parts[1]):
        return None
    data = _small(archive, member, 4 * 1024 * 1024)
    item["compiler"] = dkms.compiler_id(data.decode("utf-8", "replace"))
    return data


def _small(archive, member, limit):
    """Return the content of a member that is read as text."""
    if member.size > limit:
        raise TreeError(
            "its member %s is larger than such a file is (%d bytes, %d at most)" % (member.name, member.size, limit)
        )
    return archive.extractfile(member).read()


def _take(archive, member, data, path):
    """Write a member, of which ``data`` was read already, with rights of our own and no owner but this process's."""
    try:
        if member.isdir():
            os.makedirs(path, 0o755, exist_ok=True)
            return
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        stream = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb")
    except (FileExistsError, NotADirectoryError) as exc:
        raise TreeError("its member %s is where another one is" % member.name) from exc
    with stream:
        shutil.copyfileobj(archive.extractfile(member) if data is None else io.BytesIO(data), stream, READ_BYTES)


def examine(path, runner, sha256=None, take=None):
    """``(tree, described)``: :func:`inspect`, and what modinfo says of the main module of each (kernel, arch).

    modinfo sees nothing of an archive that has another digest than ``sha256``. The answer is remembered for as long as
    the file is the same, unless the directory ``take`` is to be filled; without one what is built is written to a
    private directory for as long as this takes.
    """
    key = (path,) + _signature(path)
    if take or key not in _EXAMINED:
        with private_directory() as directory:
            tree = inspect(path, take or directory)
            if sha256 and tree["sha256"] != sha256:
                raise TreeError("its sha256 is %s, and %s was wanted" % (tree["sha256"], sha256))
            described = dict(
                (which, modules.describe("/", item["file"], runner))
                for which, item in tree["kernels"].items()
                if item["module"]
            )
        _EXAMINED[key] = (tree, described)
    return copy.deepcopy(_EXAMINED[key])


def _signature(path):
    """Return a value that differs when a file was written to or replaced: the time of its last change of status cannot
    be set.
    """
    try:
        found = os.stat(path)
    except OSError as exc:
        raise TreeError("it is not a readable tar archive: %s" % exc) from exc
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def refusals(tree, node, described):
    """Return why a tree does not fit a node, in sentences; an empty list when it fits. Pure.

    ``node``: name, version, kernels, arch, compilers by kernel, conf (of the source on the node, or None), secure_boot
    facts. ``described``: what modinfo says of the main module of each (kernel, arch).
    """
    found = []
    if (tree["name"], tree["version"]) != (node["name"], node["version"]):
        found.append(
            "it is %s/%s, and %s/%s is wanted" % (tree["name"], tree["version"], node["name"], node["version"])
        )
    if node["conf"] is not None and tree["conf"].strip() != node["conf"].strip():
        found.append("its dkms.conf is not the one of the source on this node")
    for (kernel, arch), item in sorted(tree["kernels"].items()):
        found += kernel_refusals(kernel, arch, item, node, described.get((kernel, arch)))
    return found


def kernel_refusals(kernel, arch, item, node, module):
    if kernel not in node["kernels"]:
        yield "it is for kernel %s, and the kernels wanted on this node are %s" % (
            kernel,
            ", ".join(node["kernels"]) or "none",
        )
        return
    if arch != node["arch"]:
        yield "it is for architecture %s, and this node is %s" % (arch, node["arch"])
    compiler = node["compilers"].get(kernel)
    if not compiler or not item["compiler"]:
        yield "the compiler of kernel %s is not known (%s in the tree, %s on this node)" % (
            kernel,
            item["compiler"] or "none",
            compiler or "none",
        )
    elif compiler != item["compiler"]:
        yield "it was made for a kernel %s of compiler %s, and here that kernel is of %s" % (
            kernel,
            item["compiler"],
            compiler,
        )
    if module is None:
        yield "it has no main NVIDIA kernel module for kernel %s" % kernel
        return
    if module["error"] or not module["version"] or not module["vermagic"]:
        yield "its module for kernel %s cannot be read: %s" % (
            kernel,
            module["error"] or "modinfo names no version or no vermagic",
        )
        return
    if module["version"] != node["version"]:
        yield "its module for kernel %s is of version %s" % (kernel, module["version"])
    if not modules.made_for(kernel, module["vermagic"]):
        yield "its module for kernel %s has the vermagic '%s'" % (kernel, module["vermagic"])
    yield from signature_refusals(kernel, module, node["secure_boot"])


def signature_refusals(kernel, module, state):
    if state["state"] == "disabled":
        return
    if state["state"] != "enabled":
        yield (
            "whether Secure Boot is on is not known, so the signature of its module for kernel %s cannot be judged"
            % kernel
        )
    elif not module["signer"]:
        yield "Secure Boot is on and its module for kernel %s is not signed" % kernel
    elif module["signer"] not in (state["keys"] or []):
        yield "Secure Boot is on and the signer of its module for kernel %s, '%s', is not among this node's keys" % (
            kernel,
            module["signer"],
        )


def merge(copies, target):
    """One archive of several of the same module version: DKMS's own hook takes a single file."""
    seen = set()
    with tarfile.open(target, "w:gz", compresslevel=1) as output:
        for path in copies:
            with tarfile.open(path, "r:*") as archive:
                for member in archive:
                    key = "/".join(member_parts(member))
                    if key in seen:
                        continue
                    seen.add(key)
                    output.addfile(member, archive.extractfile(member) if member.isfile() else None)


def fingerprint(paths):
    """The content of archives, whatever their compression: path and digest of every file."""
    found = {}
    for path in paths:
        try:
            with tarfile.open(path, "r:*") as archive:
                for member in archive:
                    if member.isfile():
                        key = "/".join(member_parts(member))
                        found.setdefault(key, hashlib.sha256(archive.extractfile(member).read()).hexdigest())
        except (tarfile.TarError, OSError, EOFError) as exc:
            raise TreeError("it is not a readable tar archive: %s" % exc) from exc
    return found


def staging_path(name, version):
    """Return where the maintainer script of a distribution's DKMS package looks for a prebuilt tree before it
    compiles.
    """
    return "/usr/share/%s-dkms/%s-%s.dkms.tar.gz" % (name, name, version)
