# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to one cluster: how to reach it, one request at a time, each counted, and what its refusals mean.

Objects are plain JSON, so that one code serves every version of the API that a server has. The kubernetes package finds
the way to the server (kubeconfig, contexts, certificates, credential plugins, the pod's own account) and holds the
connection.
"""

from __future__ import annotations

import json
import os
import time
import urllib.parse

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _web as web
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.words import ApiError, Away, KubeError

CONNECT_S = 10
TRIES = 3  # of a request that may be repeated
PAGE = 500
MERGE = "application/merge-patch+json"


def _configuration(kubeconfig, context):
    """The way to the server, and a description of where it comes from that holds nothing secret."""
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
    """One API server. REQUESTS counts what was sent."""

    def __init__(self, pool, host, headers, shown, timeout_s=30, sleep=time.sleep):
        self._pool = pool
        self._headers = headers
        self.host = host.rstrip("/")
        self.shown = "%s (%s)" % (redaction.mask_credentials(self.host), shown)
        self.requests = 0
        self.log = []  # (verb, resource) of every request
        self._timeout_s = timeout_s
        self._sleep = sleep

    @classmethod
    def connect(cls, kubeconfig="", context="", timeout_s=30):
        """Reads how to reach the server; sends nothing yet."""
        configuration, shown = _configuration(kubeconfig, context)
        from kubernetes import client

        configuration.retries = False  # a request that is sent is counted
        pool = client.ApiClient(configuration=configuration).rest_client.pool_manager

        def headers():
            settings = configuration.auth_settings().values()
            return dict(
                (each["key"], each["value"]) for each in settings if each.get("in") == "header" and each.get("value")
            )

        return cls(pool, configuration.host, headers, shown, timeout_s)

    def get(self, path, what, **query):
        return self.request("get", "GET", path, what, query=query)

    def patch(self, path, what, body):
        return self.request("patch", "PATCH", path, what, body=body, kind=MERGE)

    def create(self, path, what, body, repeat=False):
        return self.request("create", "POST", path, what, body=body, repeat=repeat)

    def items(self, path, what, **query):
        """All objects of a list, page by page."""
        found = []
        query["limit"] = PAGE
        while True:
            page = self.request("list", "GET", path, what, query=query)
            if not isinstance(page.get("items", ""), (list, type(None))):
                # What is no list must not look like an empty one: a proxy's page, another API, half an answer.
                raise KubeError(
                    "%s was asked to list %s and answered something else: no JSON with items. See what answers "
                    "at that address." % (self.shown, what)
                )
            found += page["items"] or []
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            query["continue"] = following

    def request(self, verb, method, path, what, query=None, body=None, kind="application/json", repeat=True):
        """One answer. Repeated a few times where that is harmless: no answer, a server that is busy or starts."""
        url = self.host + path + ("?" + urllib.parse.urlencode(query) if query else "")
        data = None if body is None else json.dumps(body).encode("utf-8")
        tries = TRIES if repeat else 1
        for attempt in range(1, tries + 1):
            try:
                status, answer, wait = self._send(verb, method, url, what, data, kind)
            except KubeError as exc:
                if attempt == tries or not exc.passing:
                    raise
                self._sleep(attempt)
                continue
            if status < 300:
                return answer
            if attempt == tries or not (status == 429 or status >= 500):
                break
            self._sleep(min(wait or attempt, 10))
        raise self._refusal(verb, what, status, answer)

    def _send(self, verb, method, url, what, data, kind):
        import urllib3

        headers = {"Accept": "application/json", "User-Agent": "gpufleet.lifecycle"}
        if data is not None:
            headers["Content-Type"] = kind
        self.requests += 1
        self.log.append((verb, what))
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
        try:
            reply = self._pool.request(
                method,
                url,
                body=data,
                headers=headers,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, self._timeout_s), read=self._timeout_s),
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as exc:
            why = exc.reason if getattr(exc, "reason", None) else exc
            raise Away(
                "The API server %s does not answer (%s: %s). Look at the address, the certificate authority and the "
                "network from the controller."
                % (self.shown, type(why).__name__, redaction.redact(str(why).rsplit(": ", 1)[-1], secrets))
            ) from None
        try:
            answer = json.loads(reply.data.decode("utf-8"))
        except ValueError:
            answer = None
        if reply.status < 300 and not isinstance(answer, dict):
            # A proxy's page, or another server at that address.
            raise Away("%s was asked to %s %s and answered no JSON object." % (self.shown, verb, what))
        if isinstance(answer, dict) and "message" in answer and reply.status >= 300:
            answer["message"] = redaction.redact(answer["message"], secrets)
        wait = str(reply.headers.get("Retry-After") or "")
        return reply.status, answer if isinstance(answer, dict) else {}, int(wait) if wait.isdigit() else 0

    def _refusal(self, verb, what, status, answer):
        said = str(answer.get("message") or "no reason given")
        if status == 401:
            text = "%s refuses the credentials (401): they are wrong or have expired. Renew them and run again." % (
                self.shown,
            )
        elif status == 403:
            text = (
                "%s does not permit to %s %s (403): %s. Give the account the permissions in "
                "roles/gpu_scheduler/files/kubernetes/%s."
                % (
                    self.shown,
                    verb,
                    what,
                    said,
                    "rbac-inventory.yml" if (verb, what) == ("list", "nodes") else "rbac.yml",
                )
            )
        else:
            text = "%s answered %d when asked to %s %s: %s" % (self.shown, status, verb, what, said)
        return ApiError(text, status, answer)


def quoted(name):
    return urllib.parse.quote(str(name), safe="")


class Api:
    """The requests this collection makes, and no other."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.eviction = None

    @property
    def requests(self):
        return self.cluster.requests

    def node(self, name):
        try:
            return self.cluster.get("/api/v1/nodes/" + quoted(name), "nodes %s" % name)
        except ApiError as exc:
            if exc.status != 404:
                raise
            raise KubeError(
                "%s has no node %s. If the cluster calls it by another name than the inventory, set node_name."
                % (self.cluster.shown, name)
            ) from exc

    def nodes(self, selector=""):
        return self.cluster.items("/api/v1/nodes", "nodes", **({"labelSelector": selector} if selector else {}))

    def patch_node(self, name, body):
        return self.cluster.patch("/api/v1/nodes/" + quoted(name), "nodes %s" % name, body)

    def pods(self, node):
        return self.cluster.items("/api/v1/pods", "pods of node %s" % node, fieldSelector="spec.nodeName=" + node)

    def allowed(self, attributes):
        """Tell if this account is allowed to do it, as the server reports; None if it gives no answer."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = self.cluster.create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "selfsubjectaccessreviews", body, repeat=True
        )
        return bool((answer.get("status") or {}).get("allowed"))

    def discover_eviction(self):
        """The version of the API group policy in which this server takes evictions."""
        if self.eviction is None:
            found = self.cluster.get("/api/v1", "the resources of the API version v1").get("resources") or []
            self.eviction = eviction_version(found)
            if not self.eviction:
                raise KubeError(
                    "%s offers no eviction of pods (no resource pods/eviction in /api/v1): the node cannot be drained."
                    % (self.cluster.shown,)
                )
        return self.eviction

    def evict(self, namespace, pod, uid, grace_period_s=None, dry_run=False):
        options = {"preconditions": {"uid": uid}}
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
        path = "/api/v1/namespaces/%s/pods/%s/eviction" % (quoted(namespace), quoted(pod))
        return self.cluster.create(path, "pods/eviction %s/%s" % (namespace, pod), body)


def eviction_version(resources):
    """v1 or v1beta1, out of the resources that a server lists; empty when it takes no evictions."""
    for each in resources:
        if each.get("name") == "pods/eviction" and each.get("kind") == "Eviction":
            return each["version"] if each.get("version") in ("v1", "v1beta1") and each.get("group") == "policy" else ""
    return ""
