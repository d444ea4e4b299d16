# The checkout's commands. `make help` lists them; CONTRIBUTING.md says what each is for.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
LAB := tests/tools/with.sh main python3 -m tests.lab
TESTS := $(PYTHON) -m tests.tools.run_tests

.PHONY: help
help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install the Debian packages of the lab that are missing here (the other targets do it by themselves)
	@tests/tools/setup.sh
	@tests/tools/collections.sh > /dev/null

.PHONY: setup-test
setup-test: setup ## the same with the packages of `make test`
	@tests/tools/setup.sh tests/tools/host-packages.txt

.PHONY: setup-full
setup-full: setup-test ## the same with the packages of `make test-full`
	@tests/tools/setup.sh tests/tools/host-packages-full.txt

.PHONY: demo
demo: setup ## roll 6 simulated nodes from one real driver to another, one of them with a fault; ends with a table and removes the nodes (ARGS=--keep leaves them)
	@$(LAB) demo $(ARGS)

.PHONY: test
test: setup ## what a change has to pass: lint, unit, sanity, molecule on the lab
	@$(TESTS)

.PHONY: test-all
test-all: setup ## the same with the slow tests, as before a release
	@$(TESTS) --all

.PHONY: lint
lint: setup ## ansible-lint, yamllint, ruff, changelog, documentation, its site, galaxy-importer
	@$(TESTS) lint

.PHONY: format
format: setup ## format the Python files, as `make lint` expects them
	@tests/tools/with.sh main ruff format --no-cache .

.PHONY: unit
unit: setup ## unit tests: ansible-core 2.19, what can differ with 2.18, node-side code on the oldest Python, a course on the newest
	@$(TESTS) unit

.PHONY: search
search: setup ## property tests with thousands of random examples: looks for what no test knows yet (minutes)
	@tests/tools/with.sh main python3 -m pytest -q -p no:cacheprovider --hypothesis-profile=search -m hypothesis tests/unit/plugins

.PHONY: mutants
mutants: setup ## whether the tests notice mistakes that are made one by one in a copy: fails and names each that they do not (minutes)
	@tests/tools/with.sh main python3 -m tests.tools.mutants $(ARGS)

.PHONY: kills
kills: setup ## kill the controllers of ten rollouts over 20 stand-in nodes again and again, and compare with what the nodes say (half an hour)
	@tests/tools/with.sh main python3 -m tests.tools.kills $(ARGS)

.PHONY: slices
slices: setup ## the nodes and the fault of the demo, by several controllers as AWX's jobs; one is killed, PostgreSQL restarts (20 minutes)
	@$(LAB) slices

.PHONY: sanity
sanity: setup ## ansible-test sanity, on the newest ansible-core and the oldest supported
	@$(TESTS) sanity

.PHONY: molecule
molecule: setup ## the scenarios on the lab alone
	@$(TESTS) molecule

.PHONY: bench
bench: setup ## what reading 8 simulated GPUs costs a node, against ansible.builtin.ping; fails past its limits
	@tests/tools/with.sh main python3 -m tests.bench.gpu_info

.PHONY: bench-rollout
bench-rollout: setup ## how close a rollout over 100 stand-in nodes comes to the shortest time, against waves, in one run of about 75 minutes
	@tests/tools/with.sh main python3 -m tests.bench.rollout $(ARGS)

.PHONY: bench-memory
bench-memory: setup ## what a node in flight costs the controller in memory, with 100 stand-in nodes; as root, fails past its limit of 35 MB
	@tests/tools/with.sh main python3 -m tests.bench.rollout.memory $(ARGS)

.PHONY: rehearse
rehearse: setup ## run your own playbook on the lab: INVENTORY=path PLAYBOOK=path [ARGS="-e ..."]
	@test -n "$(INVENTORY)" -a -n "$(PLAYBOOK)" || { echo "usage: make rehearse INVENTORY=path PLAYBOOK=path [ARGS=\"-e ...\"]" >&2; exit 2; }
	@$(LAB) rehearse --inventory "$(INVENTORY)" --playbook "$(PLAYBOOK)" -- $(ARGS)

.PHONY: lab-up
lab-up: setup ## start the lab's machines and leave them running
	@$(LAB) up

.PHONY: lab-down
lab-down: ## stop the lab; leaves no process, mount, bridge or firewall rule
	@$(PYTHON) -m tests.lab down

.PHONY: build
build: setup ## build the collection's tarball in .lab/build
	@tests/tools/with.sh main ansible-galaxy collection build --force --output-path .lab/build

.PHONY: docs
docs: setup ## write the generated documentation again: roles/*/README.md, docs/modules/*.md, docs/callbacks/*.md and docs/reference/health-checks.md
	@tests/tools/with.sh main python3 -m tests.tools.docs

.PHONY: site
site: setup ## build the documentation as a site in .lab/site/html; a link that leads nowhere is an error
	@tests/tools/with.sh site python3 -m tests.tools.website

.PHONY: clean
clean: lab-down ## stop the lab and remove what runs left in the checkout; the cache outside it stays
	@rm -rf .lab .ansible tests/output .pytest_cache .hypothesis .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
