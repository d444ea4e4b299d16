# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build kube-apiserver once from Debian's source package and keep it in the cache.

The source comes from the machine's own mirror and is checked by apt against the archive's signature. Nothing of apt's
own state changes: package lists and sources lie in the build's directory.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from .. import aptconf
from ..common import LabError, elapsed, environment, locked, run, run_logged, say, write_whole
from ..config import SUITE, Lab

RELEASE = "1.20.2"  # what Debian 12's source package holds; the cache's name for it
PACKAGE = "kubernetes"
GO = Path("/usr/lib/go-1.19/bin")  # of Debian's golang-1.19-go
COMMAND = "python3 -m tests.lab apiserver"
NEEDED = {
    "go": GO / "go",
    "dpkg-source": Path("/usr/bin/dpkg-source"),
    "rsync": Path("/usr/bin/rsync"),
    "make": Path("/usr/bin/make"),
}


def directory(lab: Lab) -> Path:
    return lab.cache / "kube" / RELEASE


def binary(lab: Lab) -> Path:
    """Where the built server is, or will be."""
    return directory(lab) / "kube-apiserver"


def missing(lab: Lab) -> str:
    """What to say when there is no server yet; empty when there is one."""
    path = binary(lab)
    if os.access(path, os.X_OK):
        return ""
    return f"no kube-apiserver in the cache ({path}): build it once with '{COMMAND}' (5 to 15 minutes)"


def choose(listing: str) -> str:
    """The newest source version with the release that was meant, from what 'apt-cache showsrc' prints."""
    offered = [line.split(":", 1)[1].strip() for line in listing.splitlines() if line.startswith("Version:")]
    fitting = [version for version in offered if version.rsplit("-", 1)[0].endswith(RELEASE)]
    if not fitting:
        raise LabError(f"the mirror has no source of {PACKAGE} {RELEASE}; it offers: {', '.join(offered) or 'none'}")
    best = fitting[0]
    for version in fitting[1:]:
        if run("dpkg", "--compare-versions", version, "gt", best, check=False).returncode == 0:
            best = version
    return best


def _apt(work: Path) -> list[str]:
    """The options that keep apt's state in the build's directory."""
    return [
        "-q",
        "-o",
        "Dir::Etc::SourceList=/dev/null",
        "-o",
        f"Dir::Etc::SourceParts={work}/sources",
        "-o",
        f"Dir::State::Lists={work}/lists",
        "-o",
        "Dir::Cache::pkgcache=",
        "-o",
        "Dir::Cache::srcpkgcache=",
        "-o",
        "APT::Get::AllowUnauthenticated=false",
    ]


def _fetch(work: Path, log: Path) -> Path:
    """Download and unpack the source; return its directory."""
    sources = aptconf.node_sources(aptconf.read_host(), SUITE)
    for each in sources:
        if each.options.get("Trusted", "no") == "yes":
            raise LabError(
                f"{', '.join(each.uris)} is configured as trusted without a signature: the source of {PACKAGE} is "
                f"built only when apt can check it"
            )
    write_whole(work / "sources/source.sources", aptconf.deb822(sources, kind="deb-src"))
    for name in ("lists/partial", "source"):
        (work / name).mkdir(parents=True)
    # apt downloads as the user _apt: it has to reach the directory.
    shutil.chown(work / "lists/partial", user="_apt")
    shutil.chown(work / "source", user="_apt")
    run_logged("package lists", log, "apt-get", *_apt(work), "update")
    version = choose(run("apt-cache", *_apt(work), "showsrc", "--only-source", PACKAGE).stdout)
    run_logged(
        f"source of {version}",
        log,
        "apt-get",
        *_apt(work),
        "source",
        "--download-only",
        "--only-source",
        f"{PACKAGE}={version}",
        cwd=work / "source",
    )
    (description,) = (work / "source").glob("*.dsc")
    tree = work / "tree"
    run_logged("unpacking the source", log, "dpkg-source", "--no-check", "-x", description, tree)
    return tree


def _compile(work: Path, tree: Path, log: Path) -> Path:
    """Compile in GOPATH mode, as the release's own makefile does; return the binary."""
    linked = work / "gopath/src/k8s.io/kubernetes"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(tree)
    settings = environment(
        GO111MODULE="off",
        GOPATH=str(work / "gopath"),
        GOCACHE=str(work / "gocache"),
        GOTOOLCHAIN="local",
        # Without the cloud providers, which no test asks for anything, and not optimized, as it serves some requests a
        # second: both are much of the compiler's work.
        GOFLAGS="-tags=providerless",
        GOGCFLAGS="all=-N -l",
        HOME=str(work),
        PATH=f"{GO}:{os.environ.get('PATH', '/usr/bin:/bin')}",
    )
    words = [
        "WHAT=cmd/kube-apiserver",
        f"KUBE_GIT_VERSION=v{RELEASE}",
        "KUBE_GIT_COMMIT=x",
        "KUBE_GIT_TREE_STATE=clean",
        "FORCE_HOST_GO=y",
    ]
    run_logged(
        "kube-apiserver", log, "nice", "-n", "19", "make", "-C", linked, *words, cwd=linked, env=settings, every=60
    )
    # The makefile puts the same binary into more than one place.
    found = sorted(
        path for path in (tree / "_output").rglob("kube-apiserver") if path.is_file() and os.access(path, os.X_OK)
    )
    if not found:
        raise LabError(f"the build left no kube-apiserver under {tree}/_output; its log is {log}")
    return found[0]


def ensure(lab: Lab) -> Path:
    """Have the server in the cache and return its path."""
    path = binary(lab)
    if not missing(lab):
        say(f"kube-apiserver {RELEASE} is there: {path}")
        return path
    lacking = [name for name, program in NEEDED.items() if not program.exists()]
    if lacking:
        raise LabError(f"cannot build kube-apiserver without {', '.join(lacking)}: run 'make setup-full'")
    with locked(lab.cache / "kube/.lock", "builds kube-apiserver"):
        if not missing(lab):
            say(f"kube-apiserver {RELEASE} was built meanwhile: {path}")
            return path
        start = time.monotonic()
        work = lab.cache / "build/kube-apiserver"
        log = lab.cache / "kube" / f"{RELEASE}.log"
        shutil.rmtree(work, ignore_errors=True)
        log.unlink(missing_ok=True)
        work.mkdir(parents=True)
        say(f"building kube-apiserver {RELEASE}, at low priority (once; its log is {log})")
        # What a failed build leaves stays for a look, until the next try.
        made = _compile(work, _fetch(work, log), log)
        said = run(made, "--version").stdout.strip()
        if said != f"Kubernetes v{RELEASE}":
            raise LabError(
                f"the built server says '{said}' of itself, expected 'Kubernetes v{RELEASE}'; its log is {log}"
            )
        _keep(made, path)
        shutil.rmtree(work, ignore_errors=True)
        say(f"kube-apiserver {RELEASE}: built in {elapsed(start)}, {path}")
    return path


def _keep(made: Path, path: Path) -> None:
    """Put the binary into the cache, all at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.copyfile(made, temporary)
    temporary.chmod(0o755)
    os.replace(temporary, path)
