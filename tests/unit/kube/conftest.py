# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server with a real store, once for all tests, and a node and a namespace of its own for each."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pathlib
import time
from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.lifecycle.plugins.action import kube_node
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._kube import client, session
from tests.lab.kube import cluster
from tests.lab.kube.cluster import LIFECYCLE, PATHS

ROOT = pathlib.Path(__file__).resolve().parents[3]
STRANGER = "stranger"  # an account without any permission
READER = "reader"  # one that may look and nothing else
NO_EVICTION = "no-eviction"  # one that may do all but evict
BOUNDS = {
    READER: [("nodes", ["get"]), ("pods", ["list"])],
    NO_EVICTION: [("nodes", ["get", "patch"]), ("pods", ["list"])],
}

_number = itertools.count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    with cluster.running(tmp_path_factory.mktemp("kube"), (STRANGER, READER, NO_EVICTION)) as one:
        for name, rules in BOUNDS.items():
            grant(one, name, rules)
        yield one


def grant(one, name, rules):
    group = "rbac.authorization.k8s.io"
    one.must(
        "POST",
        PATHS["ClusterRole"],
        {
            "apiVersion": group + "/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in rules],
        },
    )
    one.must(
        "POST",
        PATHS["ClusterRoleBinding"],
        {
            "apiVersion": group + "/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        },
    )


class World(cluster.Space):
    """One node, one namespace, and kube_node as a task would run it."""

    def __init__(self, plane):
        number = next(_number)
        super().__init__(plane, "team-%d" % number, "gpu-%d" % number)
        self.log = []
        self.add_node(self.node)

    def task(self, state, check=False, account=LIFECYCLE, kubeconfig=None, inventory_name=None, over=None, **options):
        """The result of the task; every request it sent is in LOG afterwards, and while it runs.

        Its time is over when OVER() is so, and not before.
        """
        with contextlib.ExitStack() as stack:
            if over:
                options.setdefault("timeout_s", 600)
                late = functools.partial(session.Session, clock=lambda: time.monotonic() + 3600 * bool(over()))
                stack.enter_context(mock.patch.object(session, "Session", late))
            return self._task(state, check, account, kubeconfig, inventory_name, options)

    def _task(self, state, check, account, kubeconfig, inventory_name, options):
        arguments = dict(options, state=state, kubeconfig=str(kubeconfig or self.plane.kubeconfig(account)))
        if state in ("cordoned", "drained", "resumed"):
            arguments.setdefault("token", "r7")
            arguments.setdefault("timeout_s", 60)
        task = mock.Mock(args=arguments, async_val=0, check_mode=check, diff=True, action="x", environment=None)
        action = kube_node.ActionModule(task, mock.Mock(), mock.Mock(check_mode=check), DataLoader(), mock.Mock(), None)
        action._load_name = "x"
        action._shared_loader_obj = mock.Mock()
        made = []

        def connect(*words, **more):
            made.append(original(*words, **more))
            self.log = made[0].log
            return made[0]

        original = client.Cluster.connect
        with mock.patch.object(client.Cluster, "connect", connect):
            result = action.run(task_vars={"inventory_hostname": inventory_name or self.node})
        self.log = made[0].log if made else []
        tokens = [token for token in self.plane.tokens.values() if token in repr(result)]
        assert not tokens, "a token is in the result"
        return result

    def ok(self, state, **more):
        result = self.task(state, **more)
        assert not result.get("failed"), result.get("msg")
        return result

    def fails(self, state, **more):
        result = self.task(state, **more)
        assert result.get("failed"), result
        return result


@pytest.fixture
def world(plane):
    return World(plane)
