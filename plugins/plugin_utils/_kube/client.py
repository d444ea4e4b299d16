# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to one cluster, the requests that this collection makes, and its errors.

Objects are plain JSON, so that one code serves every version of the API that a server has. The kubernetes package finds
the way to the server (kubeconfig, contexts, certificates, credential plugins, the pod's own account) and holds the
connection. An eviction names the pod's UID and may be tried without being done, which kubernetes.core.k8s_drain cannot.
"""

from __future__ import annotations

import json
import os
import urllib.parse
from typing import Any

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web

CONNECT_S = 10
TRIES = 3  # of a request that may be repeated
BACKOFF_S = 1
# Retry-worthy by RFC 9110: 408 is also what a proxy answers when the server behind it takes too long.
BUSY = (408, 429, 500, 502, 503, 504)
MERGE = "application/merge-patch+json"
Node = dict[str, Any]


class KubeError(Exception):
    """An error for the operator, in whole sentences: WHY, and the state in which the node is left."""

    passing = False  # whether it may be different in a moment

    def __init__(self, why: str, stands: str = "") -> None:
        super().__init__(" ".join(filter(None, (why, stands))))
        self.why = why


class Away(KubeError):
    """The API server did not answer."""

    passing = True


class Refused(KubeError):
    """Nothing was changed, because of what was found: BLOCKERS."""

    def __init__(self, why: str, stands: str = "", blockers: Any = ()) -> None:
        super().__init__(why, stands)
        self.blockers = list(blockers)


class ApiError(KubeError):
    """The API server answered, and the answer was no."""

    def __init__(self, message: str, status: int, answer: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.passing = status in BUSY or status >= 500
        self.answer = answer if isinstance(answer, dict) else {}
        found = (self.answer.get("details") or {}).get("causes") or []
        self.causes = [str(cause.get("message") or "") for cause in found]
        self.reasons = [str(cause.get("reason") or "") for cause in found]


def _find_server(kubeconfig: str, context: str) -> tuple[Any, str]:
    """Return the configuration of the kubernetes package, and where it comes from, with nothing secret."""
    try:
        from kubernetes import client, config
        from kubernetes.config import config_exception
    except ImportError as exc:
        raise KubeError(
            "The controller's Python lacks the package kubernetes (%s). Install it there: python3 -m pip "
            "install kubernetes" % (exc,)
        ) from exc
    found = client.Configuration()
    path = kubeconfig or os.environ.get("K8S_AUTH_KUBECONFIG") or os.environ.get("KUBECONFIG") or ""
    if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
        try:
            config.load_incluster_config(client_configuration=found)
        except config_exception.ConfigException as exc:
            raise KubeError(
                "The controller runs in a pod whose service account cannot be used (%s). Set kubeconfig."
                % (redaction.describe(exc),)
            ) from None
        return found, "the pod's own service account"
    path = path or "~/.kube/config"
    paths = [os.path.expanduser(each) for each in path.split(os.pathsep) if each]
    if not any(os.path.isfile(each) for each in paths):
        raise KubeError(
            "There is no kubeconfig on the controller: %s does not exist. Set the option kubeconfig, or KUBECONFIG in "
            "the environment." % (path,)
        )
    shown = "kubeconfig %s, %s" % (path, "context %s" % context if context else "its current context")
    try:
        config.load_kube_config(config_file=os.pathsep.join(paths), context=context or None, client_configuration=found)
    except config_exception.ConfigException as exc:
        # Only its own words about the file's form: what a credential plugin printed may be a secret.
        said = (
            redaction.redact(str(exc).split("\n", maxsplit=1)[0])
            if str(exc).startswith("Invalid kube-config")
            else "its credentials cannot be had"
        )
        raise KubeError("The %s cannot be used: %s." % (shown, said)) from None
    except Exception as exc:  # noqa: BLE001 (parsers of a file that others wrote)
        # Whatever a malformed file does to the parsers below: its contents must not reach the result.
        raise KubeError("The %s cannot be read (%s)." % (shown, type(exc).__name__)) from None
    return found, shown


class Cluster:
    """One API server. LOG has verb and resource of every request."""

    def __init__(self, pool: Any, host: str, headers: Any, shown: str, timeout_s: float = 30) -> None:
        self._pool = pool
        self._headers = headers
        self.host = host.rstrip("/")
        self.shown = "%s (%s)" % (redaction.mask_credentials(self.host), shown)
        self.log: list[tuple[str, str]] = []
        self._timeout_s = timeout_s

    @classmethod
    def connect(cls, kubeconfig: str = "", context: str = "", timeout_s: float = 30) -> Cluster:
        """Read how to reach the server. Sends nothing yet."""
        configuration, shown = _find_server(kubeconfig, context)
        from kubernetes import client

        pool = client.ApiClient(configuration=configuration).rest_client.pool_manager

        def headers() -> dict[str, str]:
            settings = configuration.auth_settings().values()
            return {each["key"]: each["value"] for each in settings if each.get("in") == "header" and each.get("value")}

        return cls(pool, configuration.host, headers, shown, timeout_s)

    def items(self, path: str, what: str, **query: str) -> list[Node]:
        """Return all objects of a list. Anything that is not a whole list is an error."""
        answer = self.request("list", "GET", path, what, query=query)
        if not isinstance(answer.get("items", ""), (list, type(None))) or (answer.get("metadata") or {}).get(
            "continue"
        ):
            # It must not look like an empty list: a proxy's page, another API, half an answer.
            raise KubeError(
                "%s was asked to list %s and answered something else: no JSON with all items. See what answers "
                "at that address." % (self.shown, what)
            )
        return answer["items"] or []

    def request(
        self,
        verb: str,
        method: str,
        path: str,
        what: str,
        query: Any = None,
        body: Any = None,
        kind: str = "application/json",
        repeat: bool = True,
    ) -> dict[str, Any]:
        """Send a request and return its answer. REPEAT: try again a few times if the server is busy or away."""
        import urllib3

        self.log.append((verb, what))
        url = self.host + path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {"Accept": "application/json", "User-Agent": "gpufleet.lifecycle"}
        if body is not None:
            headers["Content-Type"] = kind
        try:
            own = self._headers()
        except Exception as exc:  # noqa: BLE001 (a credential plugin is a program of others)
            # A credential plugin that fails while it renews a token says so with the token's file, or worse.
            raise Away(
                "The credentials for %s cannot be had (%s). Look at the kubeconfig." % (self.shown, type(exc).__name__)
            ) from None
        secrets = web.header_secrets(own)
        wrong = web.header_problem(own)
        if wrong:
            raise KubeError("The request to %s cannot be sent: %s." % (self.shown, wrong))
        headers.update(own)
        again = urllib3.Retry(
            TRIES - 1,
            allowed_methods=None,
            status_forcelist=BUSY,
            backoff_factor=BACKOFF_S,
            raise_on_status=False,
            respect_retry_after_header=False,  # it has no upper limit
        )
        try:
            reply = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode("utf-8"),
                headers=headers,
                redirect=False,
                retries=again if repeat else False,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, self._timeout_s), read=self._timeout_s),
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as exc:
            why = exc.reason if getattr(exc, "reason", None) else exc
            # Time does not make a certificate right.
            kind_of_error = KubeError if "CERTIFICATE_VERIFY_FAILED" in str(why) else Away
            raise kind_of_error(
                "The API server %s does not answer (%s: %s). Look at the address, the certificate authority and the "
                "network from the controller."
                % (self.shown, type(why).__name__, redaction.redact(str(why).rsplit(": ", 1)[-1], secrets))
            ) from None
        try:
            answer = json.loads(reply.data.decode("utf-8"))
        except ValueError:
            answer = None
        if reply.status < 300 and isinstance(answer, dict):
            return answer
        if reply.status < 300:
            # A proxy's page, or another server at that address.
            raise Away("%s was asked to %s %s and answered no JSON object." % (self.shown, verb, what))
        answer = answer if isinstance(answer, dict) else {}
        if "message" in answer:
            answer["message"] = redaction.redact(answer["message"], secrets)
        raise self._refusal(verb, what, reply.status, answer)

    def _refusal(self, verb: str, what: str, status: int, answer: dict[str, Any]) -> ApiError:
        said = str(answer.get("message") or "no reason given")
        if status == 401:
            text = (
                "%s refuses the credentials (401): they are wrong or have expired. Renew them and run again."
                % self.shown
            )
        elif status == 403:
            rights = "rbac-inventory.yml" if (verb, what) == ("list", "nodes") else "rbac.yml"
            text = (
                "%s does not permit to %s %s (403): %s. Give the account the permissions in "
                "roles/gpu_scheduler/files/kubernetes/%s." % (self.shown, verb, what, said, rights)
            )
        else:
            text = "%s answered %d when asked to %s %s: %s" % (self.shown, status, verb, what, said)
        return ApiError(text, status, answer)


def quote(name: str) -> str:
    return urllib.parse.quote(str(name), safe="")


class Api:
    """The requests this collection makes, and no other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.eviction = ""

    @property
    def requests(self) -> int:
        return len(self.cluster.log)

    def node(self, name: str) -> Node:
        try:
            return self.cluster.request("get", "GET", "/api/v1/nodes/" + quote(name), "nodes %s" % name)
        except ApiError as exc:
            if exc.status != 404:
                raise
            raise KubeError(
                "%s has no node %s. If the cluster calls it by another name than the inventory, set node_name."
                % (self.cluster.shown, name)
            ) from exc

    def nodes(self, selector: str = "") -> list[Node]:
        return self.cluster.items("/api/v1/nodes", "nodes", **({"labelSelector": selector} if selector else {}))

    def patch_node(self, name: str, body: Any) -> Node:
        path = "/api/v1/nodes/" + quote(name)
        return self.cluster.request("patch", "PATCH", path, "nodes %s" % name, body=body, kind=MERGE)

    def pods(self, node: str) -> list[Any]:
        return self.cluster.items("/api/v1/pods", "pods of node %s" % node, fieldSelector="spec.nodeName=" + node)

    def is_allowed(self, attributes: dict[str, str]) -> bool:
        """Return whether this account may do it, as the server says."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.cluster.request("create", "POST", path, "selfsubjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    def discover_eviction(self) -> str:
        """Return the version of the API group policy in which this server takes evictions."""
        if not self.eviction:
            answer = self.cluster.request("get", "GET", "/api/v1", "the resources of the API version v1")
            self.eviction = find_eviction_version(answer.get("resources") or [])
            if not self.eviction:
                raise KubeError(
                    "%s offers no eviction of pods (no resource pods/eviction in /api/v1): the node cannot be drained."
                    % (self.cluster.shown,)
                )
        return self.eviction

    def evict(
        self, namespace: str, pod: str, uid: str, grace_period_s: int | None = None, dry_run: bool = False
    ) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/" + self.discover_eviction(),
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": options,
        }
        path = "/api/v1/namespaces/%s/pods/%s/eviction" % (quote(namespace), quote(pod))
        self.cluster.request("create", "POST", path, "pods/eviction %s/%s" % (namespace, pod), body=body, repeat=False)


def find_eviction_version(resources: Any) -> str:
    """Return v1 or v1beta1, of the resources that a server lists. Empty if it takes no evictions."""
    for each in resources:
        if each.get("name") == "pods/eviction" and each.get("kind") == "Eviction":
            return each["version"] if each.get("version") in ("v1", "v1beta1") and each.get("group") == "policy" else ""
    return ""
