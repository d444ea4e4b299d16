# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets that Prometheus scrapes, their labels, and its configuration. Pure.

The labels of a node come from the inventory: exporters name the host differently from version to version.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._monitoring.catalog import MonitoringError

JOBS = ("node", "dcgm")
LABELS = ("environment", "rack", "class", "model", "team")
STATIC = ("kubernetes", "slurm", "rollout")
RULES, SCRAPE, TARGETS = "gpufleet.rules.yml", "gpufleet.scrape.yml", "targets"
# What exporters of DCGM call the host: one name before 4.8.2, another one after it, a wrong host with a remote engine.
DROPPED = "Hostname|hostname"
# More samples than the exporters of a node with 16 GPUs and 512 cores have. Without a limit, root on a node could fill
# Prometheus.
SAMPLE_LIMIT = 100_000


def address(host: str, variables: t.Dict[str, t.Any]) -> str:
    """Return where the exporters of a host are reached."""
    found = str(variables.get("gpu_monitoring_address") or variables.get("ansible_host") or host)
    if not re.fullmatch(r"[0-9A-Za-z._:-]+", found):
        raise MonitoringError(
            "%s has the address %r; expected a name or an IP address. Correct gpu_monitoring_address." % (host, found)
        )
    return "[%s]" % found if found.count(":") > 1 else found


def from_group(host: str, prefix: str, groups: t.Dict[str, t.List[str]]) -> str:
    """Return what stands behind PREFIX in the name of the group that holds HOST; several are an error."""
    found = sorted(
        name[len(prefix) :]
        for name, hosts in groups.items()
        if name.startswith(prefix) and name != prefix and host in hosts
    )
    if len(found) > 1:
        raise MonitoringError(
            "%s is in the groups %s; expected one, which becomes a label of its series. Correct the inventory or "
            "gpu_monitoring_label_groups." % (host, ", ".join(prefix + name for name in found))
        )
    return found[0] if found else ""


def labels(
    host: str, variables: t.Dict[str, t.Any], groups: t.Dict[str, t.List[str]], prefixes: t.Dict[str, str]
) -> t.Dict[str, str]:
    """Return the labels of a host: what gpu_monitoring_labels says, else its failure domains, else its groups."""
    given = variables.get("gpu_monitoring_labels") or {}
    domains = variables.get("gpufleet_domains") or {}
    for source, name in ((given, "gpu_monitoring_labels"), (domains, "gpufleet_domains")):
        if not isinstance(source, dict):
            raise MonitoringError("%s of %s is %r; expected a dictionary such as {rack: r1}." % (name, host, source))
    unknown = sorted(set(given) - set(LABELS))
    if unknown:
        raise MonitoringError(
            "gpu_monitoring_labels of %s names %s; expected labels among %s: rules group by these."
            % (host, ", ".join(map(str, unknown)), ", ".join(LABELS))
        )
    found = {"node": host}
    for label in LABELS:
        value = (
            given.get(label)
            or domains.get(label)
            or (from_group(host, prefixes[label], groups) if prefixes.get(label) else "")
        )
        if value:
            found[label] = str(value)
    return found


def targets(
    hosts: t.Iterable[str],
    hostvars: t.Dict[str, t.Dict[str, t.Any]],
    groups: t.Dict[str, t.List[str]],
    prefixes: t.Dict[str, str],
    ports: t.Dict[str, int],
) -> t.Dict[str, t.List[t.Dict[str, t.Any]]]:
    """Return the targets of every job by its name, one entry a host."""
    found: t.Dict[str, t.List[t.Dict[str, t.Any]]] = {job: [] for job in (*JOBS, "ipmi")}
    for host in sorted(set(hosts)):
        known = labels(host, hostvars[host], groups, prefixes)
        for job in JOBS:
            found[job].append(
                {"targets": ["%s:%d" % (address(host, hostvars[host]), ports[job])], "labels": dict(known)}
            )
        bmc = hostvars[host].get("gpu_monitoring_bmc")
        if bmc:
            found["ipmi"].append({"targets": [str(bmc)], "labels": dict(known)})
    return found


def job(name: str, directory: str, options: t.Dict[str, t.Any], interval: int) -> t.Dict[str, t.Any]:
    """Return the scrape configuration of a job that reads its targets from a file."""
    return {
        "job_name": "gpufleet-" + name,
        "scrape_interval": "%ds" % interval,
        "sample_limit": SAMPLE_LIMIT,
        "file_sd_configs": [{"files": ["%s/%s/%s.yml" % (directory.rstrip("/"), TARGETS, name)]}],
        "relabel_configs": [{"source_labels": ["node"], "regex": "(.+)", "target_label": "instance"}],
        **options,
    }


def scrape_configs(
    directory: str,
    interval: int,
    options: t.Optional[t.Dict[str, t.Any]] = None,
    ipmi_exporter: str = "",
    static: t.Optional[t.Dict[str, t.List[t.Dict[str, t.Any]]]] = None,
) -> t.List[t.Dict[str, t.Any]]:
    """Return the scrape configurations. OPTIONS, such as tls_config, hold for the exporters on the nodes."""
    found = [job(name, directory, dict(options or {}), interval) for name in JOBS]
    found[1]["metric_relabel_configs"] = [{"action": "labeldrop", "regex": DROPPED}]
    if ipmi_exporter:
        asked = job("ipmi", directory, {}, 2 * interval)
        asked.update(metrics_path="/ipmi", scrape_timeout="%ds" % interval)
        asked["relabel_configs"] += [
            {"source_labels": ["__address__"], "target_label": "__param_target"},
            {"target_label": "__address__", "replacement": ipmi_exporter},
        ]
        found.append(asked)
    for name, entries in sorted((static or {}).items()):
        if name not in STATIC:
            raise MonitoringError("gpu_monitoring_static names %s; expected jobs among %s." % (name, ", ".join(STATIC)))
        if entries:
            # These exporters tell the node and the namespace of others, not their own.
            found.append(
                {
                    "job_name": "gpufleet-" + name,
                    "scrape_interval": "%ds" % interval,
                    "honor_labels": True,
                    "static_configs": list(entries),
                }
            )
    return found


def whole(
    directory: str, configs: t.List[t.Dict[str, t.Any]], alertmanagers: t.List[str], interval: int
) -> t.Dict[str, t.Any]:
    """Return a whole configuration of a Prometheus that serves nothing else."""
    found: t.Dict[str, t.Any] = {
        "global": {"scrape_interval": "%ds" % interval, "evaluation_interval": "%ds" % interval},
        "rule_files": ["%s/%s" % (directory.rstrip("/"), RULES)],
        "scrape_configs": configs,
    }
    if alertmanagers:
        found["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]}
    return found
