# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""dnf (version 4) and rpm of one machine: asking them, and running them. No decision is made here.

Version locks stay on the disk during a change: the plugin is left out of the one command, so that nothing has to be
put back when it is killed.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile

from .._node import files
from .._node.files import write_atomically
from .._node.urls import mask_credentials
from .dnf_locks import lock_pattern, render_locks
from .dnf_output import (
    INDEX_FORMAT,
    OFFER_FORMAT,
    QUERY_FORMAT,
    find_rpm_errors,
    find_silent,
    parse_advisories,
    parse_download_size,
    parse_enabled,
    parse_index,
    parse_offers,
    parse_query,
    parse_sections,
    parse_streams,
    parse_transaction,
    parse_unmet,
)
from .manager import NO_NAMES, Manager, ManagerError, tail

INSTALL_OPTIONS = (
    "--disableplugin=versionlock",
    "--allowerasing",
    "--setopt=install_weak_deps=False",
    "--setopt=clean_requirements_on_remove=False",
    "--setopt=keepcache=1",
)
REPOQUERY = [
    "dnf",
    "-q",
    "--disableplugin=versionlock",
    "repoquery",
    "--available",
    "--showduplicates",
    "--disable-modular-filtering",
]
# What dnf has of a repository may be days old. One that does not answer is found out in a minute or so.
LOOK_OPTIONS, LOOK_S = ("--refresh", "--setopt=timeout=20", "--setopt=retries=1"), 120
LOCK_PACKAGE = "python3-dnf-plugin-versionlock"
LOCK_PLUGIN = "/etc/dnf/plugins/versionlock.conf"
LOCKS = "/etc/dnf/plugins/versionlock.list"
MODULES = "/etc/dnf/modules.d"
REMOVE, STREAM = "!", "stream:"
# Where metadata did not come: dnf's words for a mirror that does not answer, and for a cache that it lacks.
NO_METADATA = re.compile(r"Failed to download metadata|Cannot download repomd|Cache-only enabled but no cache")
# A repository that is left out (skip_if_unavailable) is told in the words of an error, and fails nothing.
LEFT_OUT = re.compile(r"^Error: Failed to download metadata for repo '([^']*)'.*\n?", re.M)
FOREIGN = ("i686", "i386", "src", "nosrc")
REPOSITORIES = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")  # dnf.conf(5), reposdir
CONFIGURATION = "/etc/dnf/dnf.conf"
CACHE_DIRECTORY = re.compile(r"(.+)-[0-9a-f]{16}")  # of one repository: its id, and a digest of its addresses
NO = ("0", "no", "false", "off")
ALL = "all"  # an option of ours: downloads are of packages that are installed too


class DnfError(ManagerError):
    """A command of dnf or rpm failed."""

    ERRORS = ("Error: ", " Problem", "  - ")

    @property
    def packages(self) -> list[str]:
        return sorted(set(word for line in self.unmet for word in re.findall(r"(?:package|match:) (\S+-\S+)", line)))

    @staticmethod
    def find_unmet(out, err) -> list[str]:
        return parse_unmet(out + "\n" + err)


def name_package(name, version) -> str:
    """Return what dnf and rpm call one package: a foreign architecture follows, see ``dpkg.key_of``."""
    plain, dummy, arch = name.partition(":")
    return "%s-%s%s" % (plain, version, "." + arch if arch else "")


def without_left_out(err) -> str:
    """Return what dnf said, without its errors about repositories that it then left out."""
    ignored = set(
        name for names in re.findall(r"^Ignoring repositories: (.*)$", err, re.M) for name in names.split(", ")
    )
    return LEFT_OUT.sub(lambda match: "" if match.group(1) in ignored else match.group(0), err)


class Dnf(Manager):
    """dnf and rpm of one machine."""

    name = "dnf"
    unattended_file = "/etc/dnf/automatic.conf"
    error = DnfError

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.told = {}  # what dnf answered since the last change: asking takes it seconds
        self.is_offline = False  # whether a repository did not answer, and the node's store takes its place

    # reading

    def lock_settings(self) -> dict[str, str]:
        """The settings of the plugin that reads the locks; {} where it is not installed."""
        text = files.read_text(self.path(LOCK_PLUGIN)) or ""
        return dict(
            (key.strip(), value.strip())
            for key, sep, value in (line.partition("=") for line in text.splitlines())
            if sep
        )

    def lock_file(self) -> str:
        return self.path(self.lock_settings().get("locklist") or LOCKS)

    def hold_problem(self) -> tuple[str, str] | None:
        """Return why a lock would hold nothing: a list that no plugin reads. The first hold installs the plugin."""
        settings = self.lock_settings()
        if not settings:
            if self.query(["--queryformat", "%{name}", LOCK_PACKAGE]).split():
                return None
            return (
                "dnf's plugin versionlock is not installed, and no repository offers it",
                "install %s on the node, then run again" % LOCK_PACKAGE,
            )
        off = self.list_switches_off()
        if not off:
            return None
        return "dnf's plugin versionlock is switched off", "set %s = 1 in %s on the node, then run again" % off[0]

    def list_switches_off(self) -> list[tuple[str, str]]:
        """Return the options that keep dnf from reading the locks, as (option, file)."""
        main = self.read_sections(CONFIGURATION).get("main", {})
        return [
            (option, path)
            for path, option, value in (
                (LOCK_PLUGIN, "enabled", self.lock_settings().get("enabled", "1")),
                (CONFIGURATION, "plugins", main.get("plugins", "1")),
            )
            if value.strip().lower() in NO
        ]

    def locks(self) -> list[str]:
        """The locks that dnf follows: none of a plugin that is not installed or is switched off."""
        if not self.lock_settings() or self.list_switches_off():
            return []
        return [
            pattern for pattern in map(lock_pattern, (files.read_text(self.lock_file()) or "").splitlines()) if pattern
        ]

    def find_lock_package(self) -> str | None:
        return None if self.lock_settings() else LOCK_PACKAGE

    def list_installed(self) -> dict[str, dict]:
        rc, out, err = self.runner(["rpm", "-qa", "--qf", QUERY_FORMAT], 120)
        if rc or find_rpm_errors(err):
            raise DnfError("rpm -qa", rc, "", err or out)
        return parse_query(out, self.locks())

    def index(self, name_pattern, also=()) -> dict[str, list]:
        if name_pattern != NO_NAMES:
            self.kept = self.store.index()
        names = [] if name_pattern == NO_NAMES else self.query(["--queryformat", "%{name}"]).split()
        wanted = sorted(set(name for name in names if re.search(name_pattern, name)) | set(also))
        shown = self.query(["--queryformat", INDEX_FORMAT] + wanted) if wanted else ""
        stored = [
            item["control"]
            for (name, dummy), item in sorted(self.kept.items())
            if re.search(name_pattern, name) or name in also
        ]
        return parse_index("\n".join([shown] + stored))

    def query(self, arguments) -> str:
        """Ask the repositories. Where one of them does not answer, what the node keeps is all there is."""
        if self.is_offline:
            return ""
        try:
            return self.run("dnf repoquery", REPOQUERY + arguments, timeout=300)
        except DnfError as exc:
            if not self.kept or not NO_METADATA.search(exc.output):
                raise
            self.is_offline = True
            return ""

    def security(self, names) -> dict[str, list] | None:
        """``{name: [versions]}`` of security advisories; None where the repositories publish none that dnf can read."""
        if self.is_offline:
            return None
        rc, out, dummy = self.runner(
            ["dnf", "-q", "--disableplugin=versionlock", "updateinfo", "list", "--security", "--updates"], 300
        )
        return parse_advisories(out) if rc == 0 else None

    def find_interrupted(self, installed) -> tuple[list, list]:
        """An rpm that was killed leaves old and new side by side."""
        return [], sorted(name for name, have in installed.items() if not have["ok"])

    def streams(self, module) -> list[str]:
        """The streams of a module; [] where the repositories have no such module."""
        rc, out, dummy = self.runner(["dnf", "-q", "module", "list", module], 300)
        return parse_streams(out, module) if rc == 0 else []

    def enabled_stream(self, module) -> str | None:
        return parse_enabled(files.read_text(self.path(MODULES, "%s.module" % module)) or "", module)

    def arguments(self, wanted, obsolete=(), stream=None) -> list[str]:
        """Words for dnf. What is kept here is taken from here: that needs no mirror, and no module stream."""
        installed = self.list_installed() if self.kept else {}
        words = [
            self.kept[item]["path"]
            if item in self.kept and installed.get(item[0], {}).get("version") != item[1]
            else name_package(*item)
            for item in sorted(wanted.items())
        ]
        return ([STREAM + stream] if stream else []) + words + [REMOVE + name for name in obsolete]

    def lacking(self, words) -> list[str]:
        """Return the words of a download without those that the node's store has."""
        kept = set(name_package(*item) for item in self.kept) | set(item["path"] for item in self.kept.values())
        return [item for item in words if item not in kept]

    @staticmethod
    def fix_options(broken) -> list:
        return []

    def download_options(self, broken) -> list[str]:
        return [ALL]

    def parts(self, words) -> list[tuple]:
        """``[(action, words)]`` whose archives have to be fetched: of what is installed already too, for a way back."""
        have = set(name_package(name, item["version"]) for name, item in self.list_installed().items())
        wanted = [word for word in words if not word.startswith(REMOVE)]
        new, there = [word for word in wanted if word not in have], [word for word in wanted if word in have]
        return [(action, part) for action, part in (("install", new), ("reinstall", there)) if part]

    @staticmethod
    def deferred_dkms_options() -> list:
        """The packages' scripts find dkms by a path that rpm sets: they build for the running kernel in any case."""
        return []

    def simulate(self, arguments, action="install", options=()) -> dict:
        installed = self.list_installed()
        stream, words = self.split(arguments)
        transaction = parse_transaction(
            self.ask(words, action, self.unfiltered_options(stream) + list(options)), installed
        )
        if stream:
            module, name = stream.split(":", 1)
            transaction["streams"] = {module: (self.enabled_stream(module), name)}
        return transaction

    def to_download(self, arguments, options=()) -> dict[str, int]:
        stream, words = self.split(arguments)
        chosen = self.unfiltered_options(stream) + list(options)
        words = self.lacking(words) if ALL in options else words
        parts = self.parts(words) if ALL in options else [("install", words)]
        sizes = [
            (action, parse_download_size(self.ask(part, action, [word for word in chosen if word != ALL])))
            for action, part in parts
        ]
        return dict((action, size) for action, size in sizes if size)

    def silent_mirrors(self, arguments, options=()) -> list[dict]:
        """Ask the repositories that have these packages for their metadata again."""
        words = self.split(arguments)[1]
        parts = self.parts(self.lacking(words) if ALL in options else words)
        wanted = [word for action, part in parts if ALL in options or action == "install" for word in part]
        offers = parse_offers(self.query(["--queryformat", OFFER_FORMAT] + wanted)) if wanted else {}
        answers = {}
        for repository in sorted(set().union(*(offers.get(word, ()) for word in wanted))):
            asked = [word for word in wanted if repository in offers.get(word, ())]
            command = REPOQUERY + ["--repo=%s" % repository, *LOOK_OPTIONS, "--queryformat", OFFER_FORMAT]
            rc, out, err = self.runner(command + asked, LOOK_S)
            why = mask_credentials(tail((err or out).strip(), 1)) or "it has the package no more"
            answers[repository] = (parse_offers(out) if rc == 0 else {}, why)
        return find_silent(wanted, offers, answers)

    @staticmethod
    def split(arguments) -> tuple[str | None, list]:
        """``(stream or None, the other words)``."""
        streams = [word[len(STREAM) :] for word in arguments if word.startswith(STREAM)]
        return (streams[0] if streams else None), [word for word in arguments if not word.startswith(STREAM)]

    def unfiltered_options(self, stream) -> list[str]:
        """Options under which packages of a stream that is not enabled yet can be chosen: nothing is changed by
        looking.
        """
        if not stream:
            return []
        if "repolist" not in self.told:
            self.told["repolist"] = self.run("dnf repolist", ["dnf", "-q", "repolist", "--enabled"])
        return [
            "--setopt=%s.module_hotfixes=1" % line.split()[0]
            for line in self.told["repolist"].splitlines()[1:]
            if line.strip()
        ]

    def ask(self, words, action, options) -> str:
        """Return what dnf would do: it is answered no."""
        question = (tuple(words), action, tuple(options))
        if question in self.told:
            return self.told[question]
        rc, out, err = self.transact("--assumeno", words, action, options, 600)
        told_no = "Operation aborted." in err or "Operation aborted." in out
        if (
            rc not in (0, 1)
            or (rc == 1 and not told_no)
            or (not told_no and re.search(r"^(Error:|No match for argument)", without_left_out(err) + "\n" + out, re.M))
        ):
            raise DnfError("the simulated transaction", rc, out, err)
        self.told[question] = out
        return out

    def transact(self, answer, words, action, options, timeout) -> tuple[int, str, str]:
        """One transaction; removals beside installations need dnf's shell."""
        if answer == "-y":
            self.told = {}
        wanted = [word for word in words if not word.startswith(REMOVE)]
        gone = [word[len(REMOVE) :] for word in words if word.startswith(REMOVE)]
        command = ["dnf", answer] + list(INSTALL_OPTIONS) + (["--disablerepo=*"] if self.is_offline else [])
        command += list(options)
        if not gone or not wanted:
            return self.runner(command + ([action] + wanted if wanted else ["remove"] + gone), timeout)
        with tempfile.NamedTemporaryFile("w", prefix="gpufleet-dnf-", suffix=".txt", encoding="utf-8") as script:
            script.write("%s %s\nremove %s\nrun\n" % (action, " ".join(wanted), " ".join(gone)))
            script.flush()
            return self.runner(command + ["shell", script.name], timeout)

    # the node's own store

    def describe(self, path) -> tuple[str, str, str]:
        command = ["dnf", "-q", "--disableplugin=versionlock", "--disablerepo=*", "repoquery", "--queryformat"]
        rc, out, dummy = self.runner(command + [INDEX_FORMAT, path], 300)
        records = [record for found in parse_index(out).values() for record in found] if rc == 0 else []
        return (records[0]["name"], records[0]["version"], out) if len(records) == 1 else ("", "", "")

    def find_cached(self, wanted, index) -> dict:
        found = {}
        for name, version in wanted.items():
            plain, dummy, arch = name.partition(":")
            start = "%s-%s." % (plain, version.split(":", 1)[-1])
            for path, repository in self.find_archives(glob.escape(start) + "*.rpm"):
                its_arch = os.path.basename(path)[len(start) : -len(".rpm")]
                if (its_arch == arch or not arch and its_arch not in FOREIGN) and self.is_verified(path, repository):
                    found[(name, version)] = path
        return found

    def find_archives(self, pattern) -> list[tuple[str, str]]:
        """``[(path, repository)]`` in dnf's cache, and in directories of the node, of which dnf makes no copy."""
        found = []
        for repository, options in self.list_repositories():
            if options.get("enabled", "1").strip().lower() in NO:
                continue
            for url in re.findall(r"file:(/\S*)", options.get("baseurl", "")):
                directory = re.sub(r"\$\{?\w+\}?", "*", "/" + url.strip("/"))
                paths = glob.glob(self.path(directory, "**", pattern), recursive=True)
                found += [(path, repository) for path in sorted(paths)]
        for path in sorted(glob.glob(self.path("/var/cache/dnf/*/packages", pattern))):
            match = CACHE_DIRECTORY.fullmatch(os.path.basename(os.path.dirname(os.path.dirname(path))))
            found.append((path, match.group(1) if match else ""))
        return found

    def is_verified(self, path, repository) -> bool:
        """Return whether an archive in dnf's cache is whole and signed as its repository demands.

        dnf leaves an archive in its cache after a broken download, and after a signature that it refused.
        """
        options = ["--nosignature"]
        if self.needs_signature(repository):
            options = ["--define=_pkgverify_level all", "--define=_pkgverify_flags 0x0"]
        return self.runner(["rpmkeys", "--checksig"] + options + [path], 300)[0] == 0

    def needs_signature(self, repository) -> bool:
        """Return whether the packages of a repository have to be signed: unless its ``gpgcheck`` is off."""
        default = self.read_sections(CONFIGURATION).get("main", {}).get("gpgcheck", "1")
        values = [options.get("gpgcheck", default) for name, options in self.list_repositories() if name == repository]
        return not values or any(value.strip().lower() not in NO for value in values)

    def list_repositories(self) -> list[tuple[str, dict]]:
        """``[(id, options)]`` of every configured repository; one may be there twice."""
        return [
            section
            for name in REPOSITORIES
            for path in sorted(glob.glob(self.path(name, "*.repo")))
            for section in self.read_sections(os.path.join(name, os.path.basename(path))).items()
        ]

    def read_sections(self, path) -> dict[str, dict]:
        return parse_sections(files.read_text(self.path(path)) or "")

    def fetch(self, missing, index) -> dict:
        """By way of dnf's cache; what came is checked again, since dnf also leaves there what it refused."""
        why = "it did not come into dnf's cache"
        try:
            self.download([name_package(*item) for item in sorted(missing.items())])
        except DnfError as exc:
            why = str(exc)
        archives = self.find_cached(missing, index)
        wrong = dict(
            (item, "dnf's cache has no archive of it that passes its check, and %s" % why)
            for item in missing.items()
            if item not in archives
        )
        wrong.update(self.store.add(archives))
        return wrong

    # acting

    def configure(self, names=()) -> DnfError | None:
        """Erase the older one of each of these packages that an interrupted run left twice; return the error, if any.

        rpm refuses what something else depends on. dnf remove --duplicates would upgrade whatever the newer one needs.
        """
        installed = self.list_installed()
        older = [
            "%s.%s" % (name_package(name.split(":", 1)[0], version.split(":", 1)[-1]), installed[name]["architecture"])
            for name in sorted(names)
            if not installed[name]["ok"]
            for version in installed[name]["more"]
        ]
        rc, out, err = self.runner(["rpm", "-e"] + older, self.timeout_s) if older else (0, "", "")
        return None if rc == 0 else DnfError("rpm -e", rc, out, err)

    def change(self, arguments, action="install", options=()) -> str:
        stream, words = self.split(arguments)
        before = self.switch(stream)
        try:
            rc, out, err = self.transact("-y", words, action, list(options), self.timeout_s)
            if rc or re.search(r"^Error:", without_left_out(err), re.M):
                raise DnfError("dnf %s" % action, rc, out, err)
            return out
        except BaseException:
            if stream:
                self.switch_back(stream, before)
            raise

    def switch(self, stream) -> str | None:
        """Enable a module stream; answers the one that was enabled before."""
        if not stream:
            return None
        module = stream.split(":", 1)[0]
        before = self.enabled_stream(module)
        try:
            self.run("dnf module reset", ["dnf", "-y", "-q", "module", "reset", module], timeout=600)
            self.run("dnf module enable", ["dnf", "-y", "-q", "module", "enable", stream], timeout=600)
        except BaseException:
            self.switch_back(stream, before)
            raise
        return before

    def switch_back(self, stream, before) -> None:
        module = stream.split(":", 1)[0]
        self.runner(["dnf", "-y", "-q", "module", "reset", module], 600)
        if before:
            self.runner(["dnf", "-y", "-q", "module", "enable", "%s:%s" % (module, before)], 600)

    def download(self, arguments, options=()) -> None:
        stream, words = self.split(arguments)
        chosen = self.unfiltered_options(stream) + ["--downloadonly"] + [word for word in options if word != ALL]
        for action, part in self.parts(self.lacking(words)):
            rc, out, err = self.transact("-y", part, action, chosen, self.timeout_s)
            if rc or re.search(r"^Error:", without_left_out(err), re.M):
                raise DnfError("dnf %s --downloadonly" % action, rc, out, err)

    def mark(self, action, names) -> None:
        """Lock packages at the version they have, or lift their locks. A line of the list is for every architecture."""
        if not names:
            return
        if action == "hold" and self.find_lock_package():
            self.install_lock_plugin()
        path, plain = self.lock_file(), set(name.split(":", 1)[0] for name in names)
        hold = dict(
            (name, have["version"])
            for name, have in self.list_installed().items()
            if name.split(":", 1)[0] in plain and (action == "hold" if name in names else have["hold"])
        )
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, render_locks(files.read_text(path) or "", hold, plain))

    def forget(self, names) -> None:
        """Take out the locks of packages that are gone, which would keep them from coming back."""
        path = self.lock_file()
        text = files.read_text(path)
        if names and text is not None:
            write_atomically(path, render_locks(text, {}, list(names)))

    def install_lock_plugin(self) -> None:
        command = ["dnf", "-y", "-q", "--setopt=install_weak_deps=False", "--exclude=kernel*", "--exclude=*nvidia*"]
        rc, out, err = self.runner(command + ["install", LOCK_PACKAGE], self.timeout_s)
        if rc or not self.lock_settings():
            raise DnfError("dnf install %s" % LOCK_PACKAGE, rc, out, err)
