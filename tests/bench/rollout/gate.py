# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a question to the gate costs in a rollout of 10,000 nodes of which 200 are down, against one of 400.

    tests/tools/nox.sh -s main -- python3 -m tests.bench.rollout.gate [--nodes N] [--ledger URL] [--busy]

The ledger is as the playbooks have it. Measured are a node that waits and looks, and a node that is granted a ticket as
another one serves again. CPU seconds of this process are counted; those of PostgreSQL are not among them. On a machine
that is busy with other things a millisecond of CPU does less: with --busy the growth alone is judged. Exits with 1 if a
limit is not kept.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT_MS, GROWTH_LIMIT = 10.0, 2.0
DOWN, FEW, ROUNDS = 200, 400, 40
OPTIONS = {
    "hold_queries": [],
    "unusable_hold": "",
    "step": "",
    "resume_step": "",
    "claim_dir": "",
    "documents": {},
    "detail": "",
    "layout": {},
    "install": True,
    "version": "2",
    "kernel": "",
    "peers": None,
    "on_failure": "rollback",
}


def measure(nodes: int, place: pathlib.Path, url: str) -> dict[str, float]:
    """Return the median milliseconds of CPU of each question in a rollout of NODES."""
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger import owner, state
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._ledger.ledger import Ledger
    from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._rollout import limits, requests

    names = ["n%d-%05d" % (nodes, number) for number in range(nodes)]
    rollout, me = "bench-%d" % nodes, owner.identify_process(os.getpid())
    ledger = Ledger(str(place), rollout, url)
    racks = {name: {"rack": "r%d" % (number % (nodes // 32 + 1))} for number, name in enumerate(names)}
    entries = {name: {"state": "pending", "from": "1", "to": "2", "domains": racks[name]} for name in names}
    policy = limits.complete_policy({"max_down": DOWN, "max_draining": DOWN, "domain_caps": {"rack": 31}}, nodes)

    def prepare(transaction) -> None:
        owner.claim_rollout(transaction, rollout, "run", names, me)
        transaction.append(
            "plan", run="run", rollout_id=rollout, target="2", order=names, nodes=entries, policy=policy, sha256="f"
        )

    def ask(work, name: str) -> tuple[dict, float]:
        request = requests.Request(name, state.DRAIN, me, names, OPTIONS)
        begun = time.process_time()
        answer = work(request)
        return answer, 1000 * (time.process_time() - begun)

    def grant(request):
        return ledger.transact(lambda transaction: requests.answer_request(transaction, rollout, request, None))

    def look(request):
        return ledger.rehearse(lambda transaction: requests.find_wait(transaction, rollout, request))

    def serve(name: str) -> None:
        ledger.transact(lambda one: one.append("state", run="run", node=name, state="done", reason=""))

    ledger.transact(prepare)
    costs: dict[str, list[float]] = {"look": [], "grant": []}
    for name in names[:DOWN]:
        answer, dummy = ask(grant, name)
        assert answer["answer"] == "go", answer
    for number in range(ROUNDS):
        waiting = names[-1 - number]
        answer, cost = ask(look, waiting)
        if answer is None:  # a heartbeat was due, which a look does not record
            ask(grant, waiting)
            answer, cost = ask(look, waiting)
        assert answer["answer"] == "wait" and answer["ahead"] > 0, answer
        costs["look"].append(cost)
        serve(names[number])
        answer, cost = ask(grant, names[DOWN + number])
        assert answer["answer"] == "go", answer
        costs["grant"].append(cost)
    return {name: statistics.median(found) for name, found in costs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=10000)
    parser.add_argument("--ledger", default="", help="URL of the ledger (default: a file)")
    parser.add_argument("--busy", action="store_true", help="judge the growth alone")
    options = parser.parse_args()
    subprocess.run([str(ROOT / "tests/tools/collections.sh")], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(ROOT / ".lab" / "collections"))
    with tempfile.TemporaryDirectory() as base:
        few = measure(FEW, pathlib.Path(base), options.ledger)
        many = measure(options.nodes, pathlib.Path(base), options.ledger)
    for name, cost in many.items():
        print(
            "%-6s %6.2f ms of CPU with %d nodes, %6.2f with %d: %.2f times"
            % (name + ":", cost, options.nodes, few[name], FEW, cost / few[name])
        )
    print("at most %.0f ms, and %.1f times" % (LIMIT_MS, GROWTH_LIMIT))
    kept = all(cost <= GROWTH_LIMIT * few[name] and (options.busy or cost <= LIMIT_MS) for name, cost in many.items())
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
