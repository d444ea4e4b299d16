# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection, with a web server that answers what it is told.

The exchanges of policy/v1 are written by hand after the API's documentation: the server that tests can start is too old
for it.
"""

from __future__ import annotations

import http.server
import json
import socket
import sys
import threading
from unittest import mock

import pytest
import urllib3

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import client
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube.client import ApiError, KubeError

pytestmark = pytest.mark.cores

pytest.importorskip("kubernetes", reason="ansible-test's environment has none; the plain pytest run has it")

SECRET = "s3cr3t-token-of-the-test"


class Server(http.server.ThreadingHTTPServer):
    """ANSWERS: (status, body[, headers]) one after the other; the last one stays."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = []
        self.asked = []
        self.url = "http://127.0.0.1:%d" % self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, json.loads(body) if body else None, dict(self.headers)))
        status, content, *more = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (more[0] if more else {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def log_message(self, *dummy):
        pass


@pytest.fixture
def server():
    one = Server()
    thread = threading.Thread(target=one.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield one
    one.shutdown()
    one.server_close()
    thread.join()


def config(path, url, user=None, context="one"):
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": context,
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user or {"token": SECRET}}],
                "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return str(path)


@pytest.fixture(autouse=True)
def no_other_way(clean_environment, tmp_path):
    clean_environment.setattr(client, "BACKOFF_S", 0)
    for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        clean_environment.delenv(name, raising=False)
    clean_environment.setenv("HOME", str(tmp_path / "home"))
    return clean_environment


@pytest.fixture
def api(server, tmp_path):
    return client.Api(client.Cluster.connect(config(tmp_path / "kubeconfig", server.url), timeout_s=600))


def sent(server):
    return [each[:3] for each in server.asked]


def headers(server):
    return dict((name.lower(), value) for name, value in server.asked[0][3].items())


def test_a_node_is_read_by_its_name_with_the_token_of_the_kubeconfig(api, server):
    server.answers = [(200, {"kind": "Node"})]
    assert api.node("gpu-1") == {"kind": "Node"} and api.requests == 1
    assert sent(server) == [("GET", "/api/v1/nodes/gpu-1", None)]
    assert headers(server)["authorization"] == "Bearer " + SECRET
    assert SECRET not in api.cluster.shown


def test_pods_are_asked_for_by_their_node(api, server):
    server.answers = [(200, {"items": [1, 2], "metadata": {}})]
    assert api.pods("gpu-1") == [1, 2] and api.requests == 1
    assert sent(server)[0][1] == "/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu-1"


def test_a_patch_is_a_merge_patch(api, server):
    server.answers = [(200, {})]
    api.patch_node("gpu-1", {"metadata": {"resourceVersion": "7"}})
    assert sent(server) == [("PATCH", "/api/v1/nodes/gpu-1", {"metadata": {"resourceVersion": "7"}})]
    assert headers(server)["content-type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        "<html>",
        {"items": "x"},
        {"items": {}},
        [],
        {"kind": "Status"},
        {"items": [1], "metadata": {"continue": "more"}},
    ],
)
def test_list_that_is_not_whole_is_an_error(api, server, answer):
    server.answers = [(200, answer)]
    with pytest.raises(KubeError, match="pods of node gpu-1"):
        api.pods("gpu-1")


def test_nodes_are_listed_with_a_selector_and_who_may_not_is_told_of_the_role_for_it(api, server):
    server.answers = [(200, {"items": [1], "metadata": {}}), (403, {"message": "no"})]
    assert api.nodes("a=b") == [1] and "labelSelector=a%3Db" in server.asked[0][1]
    with pytest.raises(KubeError, match="rbac-inventory.yml"):
        api.nodes()


EVICTION = {"name": "pods/eviction", "kind": "Eviction", "namespaced": True, "group": "policy"}


@pytest.mark.parametrize(
    ("resources", "version"),
    [
        ([dict(EVICTION, version="v1")], "v1"),
        ([{"name": "pods"}, dict(EVICTION, version="v1beta1")], "v1beta1"),
        ([dict(EVICTION, version="v2")], ""),
        ([dict(EVICTION, version="v1", group="other")], ""),
        ([{"name": "pods"}], ""),
        ([], ""),
    ],
)
def test_the_version_of_evictions_is_what_the_server_lists(api, server, resources, version):
    assert client.find_eviction_version(resources) == version
    server.answers = [(200, {"resources": resources}), (201, {})]
    if not version:
        with pytest.raises(KubeError, match="offers no eviction"):
            api.discover_eviction()
        return
    api.evict("team-a", "train-0", "uid-1", 30, dry_run=True)
    api.evict("team-a", "train-1", "uid-2")
    assert [each[1] for each in sent(server)] == [
        "/api/v1",
        "/api/v1/namespaces/team-a/pods/train-0/eviction",
        "/api/v1/namespaces/team-a/pods/train-1/eviction",
    ]
    assert sent(server)[1][2] == {
        "apiVersion": "policy/" + version,
        "kind": "Eviction",
        "metadata": {"name": "train-0", "namespace": "team-a"},
        "deleteOptions": {"preconditions": {"uid": "uid-1"}, "gracePeriodSeconds": 30, "dryRun": ["All"]},
    }
    assert sent(server)[2][2]["deleteOptions"] == {"preconditions": {"uid": "uid-2"}}


def test_an_eviction_is_not_sent_twice(api, server):
    api.eviction = "v1"
    server.answers = [
        (
            429,
            {
                "message": "budget",
                "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget x"}]},
            },
        )
    ]
    with pytest.raises(ApiError) as caught:
        api.evict("a", "b", "c")
    assert caught.value.status == 429 and len(sent(server)) == 1 and caught.value.reasons == ["DisruptionBudget"]


def test_busy_server_is_asked_again_and_the_time_it_names_is_no_wait(api, server):
    server.answers = [(429, {}, {"Retry-After": "9999"}), (503, {}), (200, {"kind": "Node"})]
    assert api.node("gpu-1") == {"kind": "Node"} and len(sent(server)) == 3


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (urllib3.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), False),
        (urllib3.exceptions.SSLError("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred"), True),
        (urllib3.exceptions.ProtocolError("Connection aborted"), True),
    ],
)
def test_certificate_that_is_not_valid_is_not_waited_for(error, passing):
    pool = mock.Mock(request=mock.Mock(side_effect=urllib3.exceptions.MaxRetryError(None, "/", error)))
    with pytest.raises(KubeError) as caught:
        client.Api(client.Cluster(pool, "https://k8s.example", dict, "test")).node("gpu-1")
    assert caught.value.passing is passing


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ["refuses the credentials", "expired", "Renew"]),
        (403, ["does not permit", "patch nodes gpu-1", "said so", "rbac.yml"]),
        (422, ["422", "patch nodes gpu-1", "said so"]),
        (302, ["302"]),
    ],
)
def test_a_refusal_says_what_was_asked(api, server, status, words):
    server.answers = [(status, {"message": "said so"}, {"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(ApiError) as caught:
        api.patch_node("gpu-1", {})
    assert all(word in str(caught.value) for word in words) and server.url in str(caught.value)
    assert len(sent(server)) == 1 and SECRET not in str(caught.value)


def test_an_unknown_node_names_the_option(api, server):
    server.answers = [(404, {"message": "not found"})]
    with pytest.raises(KubeError, match="has no node gpu-9.*node_name"):
        api.node("gpu-9")


def test_an_answer_that_is_no_json(api, server):
    server.answers = [(502, "<html>gateway</html>")]
    with pytest.raises(ApiError, match="502"):
        api.node("gpu-1")
    assert len(sent(server)) == client.TRIES


@pytest.mark.parametrize("answer", ["<html>maintenance</html>", "[]", '{"kind": "No', ""])
def test_success_that_is_no_object_is_a_server_that_is_away(api, server, answer):
    server.answers = [(200, answer)]
    with pytest.raises(KubeError) as caught:
        api.node("gpu-1")
    assert caught.value.passing


@pytest.mark.parametrize(
    ("status", "passing"), [(401, False), (403, False), (408, True), (422, False), (429, True), (503, True)]
)
def test_refusal_that_may_be_different_in_a_moment(api, server, status, passing):
    server.answers = [(status, {"message": "no"})]
    with pytest.raises(ApiError) as caught:
        api.node("gpu-1")
    assert caught.value.passing is passing


def test_no_answer(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    cluster = client.Cluster.connect(config(tmp_path / "k", "http://127.0.0.1:%d" % port), timeout_s=600)
    with pytest.raises(KubeError, match="does not answer.*refused") as caught:
        client.Api(cluster).node("gpu-1")
    assert caught.value.passing


def test_an_answer_that_never_comes(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = client.Cluster.connect(
            config(tmp_path / "k", "http://127.0.0.1:%d" % silent.getsockname()[1]), timeout_s=0.2
        )
        with pytest.raises(KubeError, match="does not answer"):
            client.Api(cluster).node("gpu-1")


def test_no_kubeconfig(no_other_way, tmp_path):
    with pytest.raises(KubeError, match="no kubeconfig.*/nowhere/config.*KUBECONFIG"):
        client.Cluster.connect("/nowhere/config")
    with pytest.raises(KubeError, match="~/.kube/config"):
        client.Cluster.connect()


@pytest.mark.parametrize("name", ["KUBECONFIG", "K8S_AUTH_KUBECONFIG"])
def test_the_kubeconfig_of_the_environment(no_other_way, tmp_path, name):
    no_other_way.setenv(name, config(tmp_path / "k", "http://127.0.0.1:1"))
    assert client.Cluster.connect().host == "http://127.0.0.1:1"


def test_a_context_that_is_not_there(tmp_path):
    with pytest.raises(KubeError, match="context other.*Invalid kube-config"):
        client.Cluster.connect(config(tmp_path / "k", "http://127.0.0.1:1"), context="other")


@pytest.mark.parametrize("text", ["", "[", "a: [1, 2", "token: " + SECRET, '{"users": "' + SECRET + '"}', "\x00\x01"])
def test_a_file_that_is_none(tmp_path, text):
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(KubeError) as caught:
        client.Cluster.connect(str(path))
    assert str(path) in str(caught.value) and SECRET not in str(caught.value)


def test_what_a_credential_plugin_prints_stays_secret(tmp_path):
    plugin = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "interactiveMode": "Never",
            "args": ["-c", "import sys; print('%s'); sys.exit('%s')" % (SECRET, SECRET)],
        }
    }
    try:
        cluster = client.Cluster.connect(config(tmp_path / "k", "http://127.0.0.1:1", plugin))
        client.Api(cluster).node("gpu-1")
    except KubeError as exc:
        assert SECRET not in str(exc)
    else:
        pytest.fail("a failing credential plugin was taken for credentials")


def test_an_error_of_the_package_may_quote_a_secret_and_is_not_passed_on(monkeypatch, tmp_path):
    from kubernetes import config as package

    def load(**dummy):
        raise package.ConfigException("exec: process returned 1. " + SECRET)

    monkeypatch.setattr(package, "load_kube_config", load)
    with pytest.raises(KubeError, match="its credentials cannot be had") as caught:
        client.Cluster.connect(config(tmp_path / "k", "http://127.0.0.1:1"))
    assert SECRET not in str(caught.value)


def test_the_package_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(KubeError, match="lacks the package kubernetes.*pip install kubernetes"):
        client.Cluster.connect(config(tmp_path / "k", "http://127.0.0.1:1"))


@pytest.mark.parametrize("token", [SECRET + "\n", SECRET + "\nX: y", "\u2026" + SECRET])
def test_token_that_cannot_be_sent_is_refused_unsent_and_unseen(server, tmp_path, token):
    path = config(tmp_path / "kubeconfig", server.url, {"token": token})
    with pytest.raises(KubeError) as caught:
        client.Api(client.Cluster.connect(path)).node("gpu-1")
    assert SECRET not in str(caught.value) and "uthorization" in str(caught.value) and not server.asked
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("status", [403, 422, 500])
def test_server_that_repeats_the_token_does_not_make_it_known(api, server, status):
    server.answers = [(status, {"message": "Bearer %s \x1b[2K%s" % (SECRET, "x" * 5000)})]
    with pytest.raises(KubeError) as caught:
        api.node("gpu-1")
    assert SECRET not in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize("closed", [False, True])
def test_user_and_password_in_the_address_of_the_server_are_not_shown(server, tmp_path, closed):
    server.answers = [(401, {})]
    address = server.url.replace("//", "//user:%s@" % SECRET) if not closed else "http://u:%s@127.0.0.1:1" % SECRET
    cluster = client.Cluster.connect(config(tmp_path / "kubeconfig", address))
    with pytest.raises(KubeError) as caught:
        client.Api(cluster).node("gpu-1")
    assert SECRET not in cluster.shown and SECRET not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__ == closed
