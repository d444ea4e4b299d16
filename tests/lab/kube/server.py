# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane of its own: etcd and kube-apiserver on free ports of this machine, with all files in one directory.

Both are children of the process that starts them and end with it. There is no scheduler, no controller and no kubelet:
agent.py stands in for the kubelet, and whoever needs more writes the objects himself.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from ..common import LabError, run, write_whole

ADMIN = "admin"
PATIENCE = 600
ISSUER = "https://kubernetes.default.svc"
SETTINGS = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none",
    "--authorization-mode=RBAC",
    f"--service-account-issuer={ISSUER}",
    "--service-cluster-ip-range=10.96.0.0/24",
    "--disable-admission-plugins=ServiceAccount",  # nothing makes accounts and their tokens here
    "--storage-media-type=application/json",
    "--allow-privileged=true",
)


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _number in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class ControlPlane:
    """One API server and its store."""

    def __init__(self, directory: Path, binary: Path):
        self.directory = directory
        self.binary = binary
        self.url = ""
        self.tokens = {ADMIN: secrets.token_hex(16)}
        self._users = {ADMIN: ("admin", "admin", ["system:masters"])}
        self._children: dict[str, subprocess.Popen] = {}
        self._trust: ssl.SSLContext | None = None

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    def add_user(self, name: str, user: str, groups: list[str]) -> None:
        """A token for a user; before the start, since the server reads its file then."""
        self.tokens[name] = secrets.token_hex(16)
        self._users[name] = (user, name, groups)

    def add_service_account(self, name: str, namespace: str, account: str) -> None:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        self.add_user(name, f"system:serviceaccount:{namespace}:{account}", groups)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._certificates()
        lines = [
            f'{self.tokens[name]},{user},{uid},"{",".join(groups)}"\n'
            for name, (user, uid, groups) in self._users.items()
        ]
        write_whole(self.directory / "tokens.csv", "".join(lines), 0o600)
        write_whole(self.directory / "audit-policy.json", json.dumps(self._audit_policy()) + "\n")
        for attempt in range(3):  # somebody may take a port between choosing and using it
            try:
                self._start_both()
                return
            except LabError:
                self.stop()
                if attempt == 2:
                    raise

    def _audit_policy(self) -> dict:
        """Keep what accounts other than the admin ask for, and not what the server asks itself."""
        asking = [user for name, (user, _uid, _groups) in self._users.items() if name != ADMIN]
        rules = [{"level": "Request", "users": asking}] if asking else []
        return {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [*rules, {"level": "None"}],
        }

    def audit(self) -> list[dict]:
        """What accounts other than the admin have asked for, and what they were answered, as the server's own log of it
        says.
        """
        path = self.directory / "audit.log"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the server may be at the last line
        return [json.loads(line) for line in whole.splitlines()]

    def _certificates(self) -> None:
        at = self.directory
        self._openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=lab-kube-ca",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout",
            at / "ca.key",
            "-out",
            at / "ca.crt",
        )
        self._openssl(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=kube-apiserver",
            "-keyout",
            at / "server.key",
            "-out",
            at / "server.csr",
        )
        write_whole(
            at / "server.ext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n",
        )
        self._openssl(
            "x509",
            "-req",
            "-in",
            at / "server.csr",
            "-CA",
            at / "ca.crt",
            "-CAkey",
            at / "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            at / "server.ext",
            "-out",
            at / "server.crt",
        )
        self._openssl("genrsa", "-out", at / "accounts.key", "2048")
        self._trust = ssl.create_default_context(cafile=str(self.authority))
        self._trust.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by itself

    @staticmethod
    def _openssl(*words: object) -> None:
        run("openssl", *words)

    def _spawn(self, name: str, *words: object) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", *(str(word) for word in words)]
        with open(self.directory / f"{name}.log", "ab") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory)
        self._children[name] = child

    def _start_both(self) -> None:
        at = self.directory
        client, peer, secure = _free_ports(3)
        etcd = f"http://127.0.0.1:{client}"
        self._spawn(
            "etcd",
            "etcd",
            f"--data-dir={at}/etcd",
            "--log-level=warn",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self.url = f"https://127.0.0.1:{secure}"
        self._spawn(
            "kube-apiserver",
            self.binary,
            *SETTINGS,
            f"--etcd-servers={etcd}",
            f"--secure-port={secure}",
            f"--cert-dir={at}/certificates",
            f"--tls-cert-file={at}/server.crt",
            f"--tls-private-key-file={at}/server.key",
            f"--token-auth-file={at}/tokens.csv",
            f"--service-account-key-file={at}/accounts.key",
            f"--service-account-signing-key-file={at}/accounts.key",
            f"--audit-policy-file={at}/audit-policy.json",
            f"--audit-log-path={at}/audit.log",
        )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        last = "no answer"
        while True:
            for name, child in self._children.items():
                if child.poll() is not None:
                    self._fail(f"{name} ended ({child.returncode})")
            try:
                # Ready, and with the namespace that everybody expects.
                if (
                    self.request("GET", "/readyz")[0] == 200
                    and self.request("GET", "/api/v1/namespaces/default")[0] == 200
                ):
                    return
                last = "it answers, and says that it is not ready"
            except OSError as problem:
                last = str(problem)
            if time.monotonic() > deadline:
                self._fail(f"not ready in {PATIENCE} s: {last}")
            time.sleep(0.2)

    def _fail(self, why: str) -> None:
        tails = []
        for path in sorted(self.directory.glob("*.log")):
            tails += [f"--- {path}", *path.read_text(errors="replace").splitlines()[-12:]]
        raise LabError("\n".join([f"the control plane in {self.directory}: {why}", *tails]))

    def stop(self) -> None:
        for child in reversed(self._children.values()):
            child.terminate()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children = {}

    def request(
        self, method: str, path: str, body=None, token: str | None = None, kind: str = "application/json"
    ) -> tuple[int, dict]:
        """Status and answer of one request, as admin unless another token is given."""
        headers = {
            "Authorization": f"Bearer {token or self.tokens[ADMIN]}",
            "Content-Type": kind,
            "Accept": "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30, context=self._trust) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            status, text = refusal.code, refusal.read()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, {"text": text.decode(errors="replace")}

    def must(self, method: str, path: str, body=None, kind: str = "application/json") -> dict:
        status, answer = self.request(method, path, body, kind=kind)
        if status >= 300:
            raise LabError(f"{method} {path}: {status} {answer.get('message', answer)}")
        return answer

    def kubeconfig(self, name: str, token: str | None = None, server: str = "") -> Path:
        """A kubeconfig of a user, or with any token."""
        path = self.directory / f"kubeconfig-{name}"
        cluster = {"server": server or self.url, "certificate-authority": str(self.authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token or self.tokens[name]}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        }
        write_whole(path, json.dumps(document, indent=1) + "\n", 0o600)
        return path

    def signed_token(self, namespace: str, account: str, uid: str, lifetime_s: int) -> str:
        """A service account's token as the server itself would sign it; one that has expired with a negative
        lifetime.
        """
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "iat": now - 7200,
            "nbf": now - 7200,
            "exp": now + lifetime_s,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}},
        }
        head = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
        key = str(self.directory / "accounts.key")
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", key], input=head.encode(), capture_output=True, check=True
        ).stdout
        return f"{head}.{_base64url(signature)}"
