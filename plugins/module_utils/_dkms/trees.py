# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exported DKMS trees: looking into an archive before DKMS does, whether it fits a node, and several put into one."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import os
import re
import shutil
import struct
import tarfile
from collections.abc import Iterator

from .._kernel import modules, secureboot
from . import dkms
from .tree_archives import READ_BYTES, TreeError, private_directory, read_signature


def find_refusals(tree, node, described) -> list[str]:
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


def kernel_refusals(kernel, arch, item, node, module) -> Iterator:
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
    if not modules.made_for(kernel, module):
        yield "its module for kernel %s has the vermagic '%s'" % (kernel, module["vermagic"])
    yield from signature_refusals(kernel, module, node["secure_boot"])


def signature_refusals(kernel, module, state) -> Iterator:
    verdict, subject = secureboot.judge(state, module["signer"]), "its module for kernel %s" % kernel
    if verdict == "unsigned":
        yield "Secure Boot is on and %s is not signed" % subject
    elif verdict == "untrusted":
        yield "Secure Boot is on and the signer of %s, '%s', is not among this node's keys" % (
            subject,
            module["signer"],
        )
    elif verdict == "unknown" and state["state"] == "enabled":
        yield "Secure Boot is on and the keys that %s could be signed with cannot be listed" % subject
    elif verdict == "unknown":
        yield "whether Secure Boot is on is not known, so the signature of %s cannot be judged" % subject


MAX_MEMBERS = 10000
MAX_BYTES = 4 * 1024 * 1024 * 1024
INFO = "dkms_binaries_only"
MAIN = "dkms_main_tree"
CONF_FIELD = re.compile(r"""^\s*(?P<key>PACKAGE_NAME|PACKAGE_VERSION)=["']?(?P<value>[^"'\s#]+)""", re.M)
# What scripts/sign-file of the kernel appends: a signature, struct module_signature, whose last field is the length of
# the signature, and this.
SIGNED = b"~Module signature appended~\n"
MAX_SIGNATURE = 64 * 1024
# Of this process, by the path of a file and its signature.
_EXAMINED = {}


class _Source:
    """An archive's file, and the digest of what was read of it.

    What is wrong with it is a TreeError, unlike what is wrong where something is written.
    """

    def __init__(self, stream) -> None:
        self.stream, self.digest = stream, hashlib.sha256()

    def read(self, size) -> bytes:
        try:
            block = self.stream.read(size)
        except OSError as exc:
            raise TreeError("it is not a readable tar archive: %s" % exc) from exc
        self.digest.update(block)
        return block

    def sha256(self) -> str:
        """Of the whole file: what follows the end of the archive counts."""
        while self.read(READ_BYTES):
            pass
        return self.digest.hexdigest()


def inspect_archive(path, take=None) -> dict:
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


def _inspect(archive, take) -> dict:
    kernels, texts, total, count = {}, {}, 0, 0
    for member in archive:
        count, total = count + 1, total + member.size
        if count > MAX_MEMBERS or total > MAX_BYTES:
            raise TreeError("it holds more than a DKMS tree does (%d members, %d bytes)" % (count, total))
        parts = member_parts(member)
        if parts[:1] == [INFO] and len(parts) == 2 and member.isfile():
            texts[parts[1]] = _small(archive, member, 1024 * 1024).decode("utf-8", "replace")
        elif parts[:1] == [MAIN] and len(parts) > 3:
            data = _note_build(
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


def unsigned_digest(path) -> str:
    """Return one digest of all that an archive brings to a node, with its modules as they are before they are signed.

    Two machines that compile the same source with the same compiler get the same. Logs, which have the time, are left
    out.

    Raises:
        TreeError: it is no archive, or has a module that cannot be read, such as one compressed with zstd.
    """
    rows, total = [], 0
    try:
        with tarfile.open(path, mode="r:*") as archive:
            for count, member in enumerate(archive):
                parts = member_parts(member)
                if count > MAX_MEMBERS or total + member.size > MAX_BYTES:
                    raise TreeError("it holds more than a DKMS tree does")
                total += member.size
                if not member.isfile() or parts[3:4] == ["log"]:
                    continue
                digest, size = _digest_member(archive.extractfile(member), parts[-1], MAX_BYTES - total)
                rows.append("%s\0%s\n" % ("/".join(parts), digest))
                total += size
    except (tarfile.TarError, EOFError, OSError, ValueError) as exc:
        raise TreeError("it is not a readable archive of modules: %s" % exc) from exc
    return hashlib.sha256("".join(sorted(rows)).encode("utf-8", "surrogateescape")).hexdigest()


def _digest_member(stream, name, most) -> tuple[str, int]:
    """Return (digest, size) of a member, unpacked and without its signature."""
    if name.endswith(".xz"):
        import lzma  # only on the controller: a node's Python may be without it

        try:
            return _digest_unsigned(lzma.open(stream), most)
        except lzma.LZMAError as exc:
            raise TreeError("its member %s is damaged: %s" % (name, exc)) from exc
    if name.endswith(".gz"):
        return _digest_unsigned(gzip.open(stream), most)
    if ".ko." in name:
        raise TreeError("its member %s is compressed in a way that cannot be read here" % name)
    return _digest_unsigned(stream, most)


def _digest_unsigned(stream, most) -> tuple[str, int]:
    digest, end, size = hashlib.sha256(), b"", 0
    for block in iter(lambda: stream.read(READ_BYTES), b""):
        size += len(block)
        if size > most:
            raise TreeError("it holds more than a DKMS tree does (%d bytes)" % MAX_BYTES)
        end += block
        digest.update(end[:-MAX_SIGNATURE])
        end = end[-MAX_SIGNATURE:]
    if end.endswith(SIGNED):
        head = len(SIGNED) + 12
        head += struct.unpack(">I", end[-len(SIGNED) - 4 : -len(SIGNED)])[0] if len(end) >= head else 0
        if head > len(end):
            raise TreeError("a module in it has a signature that is longer than one can be")
        end = end[:-head]
    digest.update(end)
    return digest.hexdigest(), size


def name_compiler(tree, path) -> None:
    """Fill in the compiler from an archive's name, as its export gave it: dkms from 3.1 on keeps no configuration of
    the kernel with the modules.
    """
    for (kernel, arch), item in tree["kernels"].items():
        start, end = "_".join((tree["name"], tree["version"], kernel, arch, "")), ".dkms.tar.gz"
        name = os.path.basename(path)
        if item["compiler"] is None and name.startswith(start) and name.endswith(end):
            item["compiler"] = name[len(start) : -len(end)] or None


def member_parts(member) -> list[str]:
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


def _note_build(archive, member, parts, item) -> bytes | None:
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


def _small(archive, member, limit) -> bytes:
    """Return the content of a member that is read as text."""
    if member.size > limit:
        raise TreeError(
            "its member %s is larger than such a file is (%d bytes, %d at most)" % (member.name, member.size, limit)
        )
    return archive.extractfile(member).read()


def _take(archive, member, data, path) -> None:
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


def examine_archive(path, runner, sha256=None, take=None) -> tuple[dict, dict]:
    """``(tree, described)``: :func:`inspect`, and what modinfo says of the main module of each (kernel, arch).

    modinfo sees nothing of an archive that has another digest than ``sha256``. The answer is remembered for as long as
    the file is the same, unless the directory ``take`` is to be filled; without one what is built is written to a
    private directory for as long as this takes.
    """
    key = (path,) + read_signature(path)
    if take or key not in _EXAMINED:
        with private_directory() as directory:
            tree = inspect_archive(path, take or directory)
            if sha256 and tree["sha256"] != sha256:
                raise TreeError("its sha256 is %s, and %s was wanted" % (tree["sha256"], sha256))
            described = dict(
                (which, modules.describe("/", item["file"], runner))
                for which, item in tree["kernels"].items()
                if item["module"]
            )
        _EXAMINED[key] = (tree, described)
    return copy.deepcopy(_EXAMINED[key])


def merge_archives(copies, target) -> None:
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


def read_fingerprint(paths) -> dict[str, str]:
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
