# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes and inhibitions, as amtool and a real Alertmanager take them."""

from __future__ import annotations

import re
import time

import pytest

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring import catalog, routes, rules
from ansible_collections.gpufleet.lifecycle.tests.unit.plugins.plugin_utils._monitoring import servers

RECEIVERS = [
    {"name": "pager", "webhook_configs": [{"url": "http://127.0.0.1:1/page"}]},
    {"name": "tickets", "webhook_configs": [{"url": "http://127.0.0.1:1/ticket"}]},
    {"name": "others", "webhook_configs": [{"url": "http://127.0.0.1:1/other"}]},
]
ALERTS = {alert["id"]: alert for alert in catalog.alerts()}
RECEIVER = {"page": "pager", "ticket": "tickets", "info": routes.NONE}


def labels(name, **more):
    alert = ALERTS[name]
    return {
        "alertname": name,
        "severity": alert["severity"],
        "scope": alert["scope"],
        "source": "gpufleet",
        "environment": "prod",
        **more,
    }


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("alertmanager") / "alertmanager.yml"
    path.write_text(rules.document(routes.config(RECEIVERS, "pager", "tickets", other="others")), encoding="utf-8")
    return path


def test_amtool_takes_the_configuration(config):
    code, output = servers.run_tool("amtool", "check-config", str(config))
    assert code == 0 and "4 receivers" in output and "%d inhibit rules" % len(routes.HELD_BACK) in output, output


ROUTED = ["GpuFallenOffBus", "GpuRowRemapPending", "GpuXidApplication", "NodeUnreachable", "RackLost", "QueueStuck"]


@pytest.mark.parametrize(
    "receiver, given",
    [(RECEIVER[ALERTS[name]["severity"]], labels(name, node="n1", rack="r1")) for name in ROUTED]
    + [("others", {"alertname": "NodeUnreachable"})],
)
def test_an_alert_is_told_to_the_receiver_of_its_severity_and_that_of_others_elsewhere(config, receiver, given):
    """One alert of each kind of route; that every alert has a known severity and scope is tested with the rules."""
    options = ("--config.file=%s" % config, "--verify.receivers=" + receiver)
    pairs = ("%s=%s" % pair for pair in given.items())
    code, output = servers.run_tool("amtool", "config", "routes", "test", *options, *pairs)
    assert code == 0, output


def test_every_alert_that_a_rule_names_is_there():
    text = " ".join(" ".join(source + target) for source, target, dummy in routes.HELD_BACK)
    named = {word for word in text.replace('"', "|").split("|") if word[:1].isupper()}
    assert named and named <= set(ALERTS)


NODES = [("n%d" % number, "r1") for number in range(8)]
STORY = (
    # A rack of eight nodes is lost, and with it every alert of its nodes and GPUs.
    [labels("RackLost", rack="r1")]
    + [labels("NodeUnreachable", rack=rack, node=node) for node, rack in NODES]
    + [
        labels("GpuEccUncorrectable", rack="r1", node="n0", gpu="1", UUID="a"),
        labels("ExporterDown", rack="r1", node="n1", job="gpufleet-dcgm"),
    ]
    # A node is lost, and with it its own.
    + [
        labels("NodeUnreachable", rack="r2", node="m0"),
        labels("GpuXidReset", rack="r2", node="m0", gpu="0", UUID="b"),
        labels("DcgmStale", rack="r2", node="m0"),
    ]
    # What has no rack and no node is not held back by them.
    + [labels("GpuXidReset", node="m1", gpu="0", UUID="c"), labels("NodeUnreachable", node="m2"), labels("QueueStuck")]
    # Another environment has a rack and a node of the same names.
    + [dict(labels("GpuXidReset", rack="r1", node="n0", gpu="0", UUID="d"), environment="test")]
    # Heat is told once, at its highest place.
    + [
        labels("RackHot", rack="r3"),
        labels("NodeGpusHot", rack="r3", node="h0"),
        labels("GpuHot", rack="r3", node="h1", gpu="0", UUID="e"),
        labels("NodeGpusHot", rack="r4", node="h2"),
        labels("GpuThrottledThermal", rack="r4", node="h2", gpu="0", UUID="f"),
        labels("GpuFallenOffBus", rack="r4", node="h2", gpu="1", UUID="g"),
    ]
)


# Alertmanager takes alerts in one after the other, later than it answers that it has them: once it holds back the
# second one, and has a group of the first, it has taken in all that was there before.
LAST = [labels("NodeUnreachable", rack="r9", node="z"), labels("GpuXidReset", rack="r9", node="z", gpu="0", UUID="h")]


def test_what_is_lost_or_hot_holds_back_what_follows_from_it(config):
    with servers.alertmanager(config, config.parent) as url:
        for alerts in (STORY, LAST):
            servers.ask(url + "/api/v2/alerts", [{"labels": one} for one in alerts])
        servers.until(
            lambda: servers.ask(url + "/api/v2/alerts?inhibited=true&active=false&filter=node=z"), "z is not held back"
        )
        servers.until(lambda: servers.ask(url + "/api/v2/alerts/groups?filter=node=z"), "z is in no group")
        found = servers.ask(url + "/api/v2/alerts?filter=node!=z")
        groups = servers.ask(url + "/api/v2/alerts/groups?silenced=false&inhibited=false")
    assert len(found) == len(STORY)
    heard = sorted(
        (one["labels"]["alertname"], one["labels"].get("node", one["labels"].get("rack", "")))
        for one in found
        if not one["status"]["inhibitedBy"]
    )
    assert heard == sorted(
        [
            ("RackLost", "r1"),
            ("NodeUnreachable", "m0"),
            ("GpuXidReset", "m1"),
            ("NodeUnreachable", "m2"),
            ("QueueStuck", ""),
            ("GpuXidReset", "n0"),
            ("RackHot", "r3"),
            ("NodeGpusHot", "h2"),
            ("GpuFallenOffBus", "h2"),
        ]
    )
    told = [
        {one["labels"]["alertname"] for one in group["alerts"]}
        for group in groups
        if group["labels"].get("rack") == "r1"
    ]
    assert {"RackLost"} in told and sum("NodeUnreachable" in names for names in told) == 0


def find_route(route, alert, **inherited):
    """Return the settings of the route that Alertmanager takes for an alert; matchers are =, =~ and !=."""
    settings = {**inherited, **{key: value for key, value in route.items() if key != "routes"}}
    for child in route.get("routes", []):
        found = [re.fullmatch(r'(\w+)(=~|=)"(.*)"', matcher).groups() for matcher in child.get("matchers", [])]
        if all(
            re.fullmatch(text if kind == "=~" else re.escape(text), alert.get(name, "")) for name, kind, text in found
        ):
            return find_route(child, alert, **settings)
    return settings


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_an_alert_that_comes_and_goes_notifies_at_most_once_an_hour(name):
    """It stays for an hour, or its group, which is of its name and node, notifies once an hour."""
    rule = rules.alert_rule(ALERTS[name], catalog.thresholds({"rack_power_limit_watts": 1}))
    given = labels(name, node="n1", rack="r1", gpu="0")
    found = find_route(routes.config(RECEIVERS, "pager", "tickets")["route"], given)
    assert found["receiver"] == RECEIVER[ALERTS[name]["severity"]]
    if "keep_firing_for" in rule:
        assert (rule["keep_firing_for"], found["group_interval"]) == ("3600s", "5m")
    else:
        assert (found["group_interval"], found["group_by"]) == ("1h", ["environment", "rack", "node", "alertname"])


def test_what_is_held_back_does_not_outlive_what_held_it_back():
    """An alert that stayed for an hour would be told when the one that held it back ends."""
    keeps = {name for name, alert in ALERTS.items() if alert.get("keep", True)}
    for source, targets, dummy in routes.HELD_BACK:
        (holder,) = re.findall(r'alertname="(\w+)"', " ".join(source))
        held = set(re.findall(r"\w+", " ".join(targets))) & set(ALERTS) - {"NodeUnreachable"}
        assert holder in keeps or not held & keeps, (holder, held & keeps)


SECONDS = {"s": 1, "m": 60, "h": 3600}
HOUR_S = 6.0


def shorten_times(text):
    """Return a configuration with HOUR_S for an hour in every time: a stand-in for hours, which are not waited for."""
    return re.sub(
        r"(?<=: )(\d+)([smh])$",
        lambda found: "%dms" % (int(found.group(1)) * SECONDS[found.group(2)] * HOUR_S / 3.6),
        text,
        flags=re.MULTILINE,
    )


@pytest.mark.slow
def test_a_node_that_comes_and_goes_notifies_at_most_once_an_hour(tmp_path):
    with servers.receiver() as (hook, bodies):
        told = [dict(one, webhook_configs=[{"url": hook}]) for one in RECEIVERS]
        path = tmp_path / "alertmanager.yml"
        path.write_text(shorten_times(rules.document(routes.config(told, "pager", "tickets"))), encoding="utf-8")
        with servers.alertmanager(path, tmp_path) as url:
            alert, begin = {"labels": labels("NodeUnreachable", rack="r1", node="n1")}, time.monotonic()
            while time.monotonic() < begin + 2.5 * HOUR_S:
                servers.ask(url + "/api/v2/alerts", [alert])
                time.sleep(HOUR_S / 20)
                ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                servers.ask(url + "/api/v2/alerts", [dict(alert, endsAt=ended)])
                time.sleep(HOUR_S / 20)
            hours = (time.monotonic() - begin) / HOUR_S
    assert 1 <= len(bodies) <= hours + 1


@pytest.mark.parametrize(
    "receivers, page, ticket, info, name",
    [
        ([], "", "", "", "receiver_page"),
        (RECEIVERS, "", "tickets", "", "receiver_page"),
        (RECEIVERS, "pager", "none", "", "receiver_ticket"),
        (RECEIVERS, "pager", "tickets", "none", "receiver_info"),
        (RECEIVERS + RECEIVERS[:1], "pager", "tickets", "", "gpu_monitoring_receivers"),
        ([{"webhook_configs": []}], "pager", "tickets", "", "gpu_monitoring_receivers"),
        ([{"name": routes.NONE}], "pager", "tickets", "", "gpu_monitoring_receivers"),
    ],
)
def test_receivers_that_tell_no_one_are_refused(receivers, page, ticket, info, name):
    with pytest.raises(catalog.MonitoringError) as found:
        routes.config(receivers, page, ticket, info)
    assert name in str(found.value)
