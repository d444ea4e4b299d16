# The checkout's commands. `make help` lists them; CONTRIBUTING.md says which of them a change needs.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

NOX := tests/tools/nox.sh
# A command in an environment. The first form makes it or brings it up to date, the second takes it as it is.
MAIN := $(NOX) -s main --
IN = $(NOX) -R -s $(1) --
LAB := $(MAIN) python3 -m tests.lab
PYTEST := python -m pytest -q -p no:cacheprovider --durations=20 --durations-min=5
PART := tests/tools/part.sh
# The number of a lab that no one uses: what `make lab-up` or another checkout has started stays as it is.
UNUSED_LAB := python3 -c "from tests.lab import config, network; print(network.unused(config.current(), 50))"
JOBS ?= $(shell echo $$(($$(nproc) + 1)))

.PHONY: help
help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

# --- What every change has to pass -----------------------------------------------------------------------------------

.PHONY: test
test: ## static checks, unit tests, sanity, a course for each promise, and the demo on four machines: what a change has to pass
	@tests/tools/test.sh test-parts

.PHONY: test-parts
test-parts: part-demo part-courses part-unit part-unit-node part-sanity part-ansible-lint part-py38 part-yamllint part-ruff \
	part-changelog

.PHONY: part-demo
part-demo:
	@GPUFLEET_LAB_ID=$$($(UNUSED_LAB)) $(PART) demo 60 $(call IN,main) python3 -m tests.lab demo --few

# Three processes that collect a third of the tests each: pytest-xdist has each of its own collect all of them.
COURSES := tests/unit/playbooks tests/unit/roles tests/unit/awx
ON_NODES := tests/unit/plugins/module_utils tests/unit/plugins/modules tests/unit/sim tests/unit/scenarios tests/unit/lab
QUICK = $(call IN,main) $(PYTEST) -m "not slow"

.PHONY: part-courses
part-courses:
	@$(PART) courses 75 $(QUICK) $(COURSES)

.PHONY: part-unit-node
part-unit-node:
	@$(PART) unit-node 75 $(QUICK) $(ON_NODES)

.PHONY: part-unit
part-unit:
	@$(PART) unit 75 $(QUICK) tests/unit $(addprefix --ignore=,$(COURSES) $(ON_NODES) tests/unit/kube)

# The files that hold such tests; the others cannot be imported without Ansible. What takes the simulator or a package
# manager for each test is left to test-pythons.
PYTHONS_FILES = $$(grep -rl --include='test_*.py' --exclude-dir=scenarios 'pytest\.mark\.pythons' tests/unit)
QUICK_PYTHONS_FILES = $$(grep -rl --include='test_*.py' --exclude-dir=scenarios --exclude='test_with_simulator.py' \
	--exclude='test_*_repository.py' 'pytest\.mark\.pythons' tests/unit)
# Without the playbooks, which test-courses takes: pytest's --ignore leaves a file that is named.
CORES_FILES = $$(grep -rl --include='test_*.py' --exclude-dir=playbooks 'pytest\.mark\.cores' tests/unit)

.PHONY: part-py38
part-py38:
	@$(PART) py38 60 $(NOX) --no-error-on-missing-interpreters -R -s py38 -- \
		$(PYTEST) -m "pythons and not slow" $(QUICK_PYTHONS_FILES)

.PHONY: part-sanity
part-sanity:
	@$(PART) sanity 45 $(call IN,newest) python -m tests.tools.sanity --skip-test import --skip-test compile

.PHONY: part-ansible-lint
part-ansible-lint:
	@$(PART) ansible-lint 45 $(call IN,main) ansible-lint --offline --nocolor

.PHONY: part-yamllint
part-yamllint:
	@$(PART) yamllint 10 $(call IN,main) yamllint --strict .

.PHONY: part-ruff
part-ruff:
	@$(PART) ruff 10 $(call IN,main) bash -c 'ruff check --no-cache --output-format concise . && ruff format --no-cache --check .'

.PHONY: part-changelog
part-changelog:
	@$(PART) changelog 10 $(call IN,main) antsibull-changelog lint

# --- What a release has to pass, in parts ----------------------------------------------------------------------------

.PHONY: test-full
test-full: ## everything, as before a release: `make test` and all of the following test-* (up to two hours)
	@tests/tools/test.sh test-parts full-slow full-courses full-cores full-pythons full-kube full-ee full-molecule \
		full-site full-sanity full-bench full-release

.PHONY: test-slow
test-slow: ## the slow unit tests: plays of roles, AWX's configuration, and the property tests with more examples
	@tests/tools/test.sh full-slow
.PHONY: full-slow
full-slow:
	@$(PART) slow 60 $(call IN,main) $(PYTEST) -n 2 --dist loadfile -m slow tests/unit \
		--ignore=tests/unit/playbooks --ignore=tests/unit/kube
	@$(PART) properties 60 $(call IN,main) $(PYTEST) -n 2 --hypothesis-profile=full -m hypothesis tests/unit/plugins

.PHONY: test-courses
test-courses: ## all courses of a rollout and of the other playbooks over stand-in nodes, and those that differ on other ansible-cores
	@tests/tools/test.sh full-courses
PLAYBOOKS := tests/unit/playbooks
.PHONY: full-courses
full-courses:
	@$(PART) all-courses 120 $(call IN,main) $(PYTEST) -n 2 --dist loadfile $(PLAYBOOKS)
	@$(PART) courses-core218 60 $(call IN,core218) $(PYTEST) -n 2 --dist loadfile $(PLAYBOOKS)/test_failure_matrix.py \
		$(PLAYBOOKS)/test_resume.py $(PLAYBOOKS)/test_upgrade_course.py $(PLAYBOOKS)/test_hostile.py $(PLAYBOOKS)/test_node_facts.py \
		-k "matrix or wherever or once_and or budget or signal or hostile or node_facts"
	@$(PART) promises-core218 60 $(call IN,core218) $(PYTEST) -n 2 --dist loadfile -m "promise or cores" $(PLAYBOOKS)
	@$(PART) courses-newest 60 $(call IN,newest) $(PYTEST) -n 2 --dist loadfile -m cores $(PLAYBOOKS)

.PHONY: test-cores
test-cores: ## what calls Ansible, SQLAlchemy or the Kubernetes client, on the oldest and the newest ansible-core
	@tests/tools/test.sh full-cores
.PHONY: full-cores
full-cores:
	@$(PART) core218 60 $(call IN,core218) $(PYTEST) -n 2 --dist loadfile -m cores $(CORES_FILES)
	@$(PART) newest 60 $(call IN,newest) $(PYTEST) -n 2 --dist loadfile -m cores $(CORES_FILES)

.PHONY: test-pythons
test-pythons: ## what runs on nodes, on the oldest Python and the newest (`make test` has most of it on the oldest)
	@tests/tools/test.sh full-pythons
.PHONY: full-pythons
full-pythons:
	@$(PART) pyoldest 60 $(NOX) -R -s py38 -- $(PYTEST) -m pythons $(PYTHONS_FILES)
	@$(PART) pynewest 60 $(NOX) -R -s pynewest -- $(PYTEST) -m pythons $(PYTHONS_FILES)

.PHONY: test-kube
test-kube: ## Kubernetes on a real API server, which is compiled once (up to 12 minutes)
	@tests/tools/test.sh full-kube
.PHONY: full-kube
full-kube:
	@$(PART) apiserver 60 $(call IN,main) python3 -m tests.lab apiserver
	@$(PART) kube 60 $(call IN,main) $(PYTEST) tests/unit/kube

.PHONY: test-ee
test-ee: ## AWX's jobs, on stand-in nodes and on machines, and the inventory plugins, with the packages of the execution environment alone
	@tests/tools/test.sh full-ee
.PHONY: full-ee
full-ee:
	@$(PART) ee 60 $(call IN,ee) $(PYTEST) tests/unit/plugins/inventory $(PLAYBOOKS)/test_awx.py
	@GPUFLEET_LAB_ID=$$($(UNUSED_LAB)) $(PART) jobs 60 $(call IN,ee) python3 -m tests.lab jobs

.PHONY: test-molecule
test-molecule: ## the scenarios on machines; SCENARIOS="bringup kernel" takes some
	@tests/tools/test.sh full-molecule
.PHONY: full-molecule
full-molecule:
	@GPUFLEET_LAB_ID=$$($(UNUSED_LAB)) $(call IN,main) tests/tools/scenarios.sh $(SCENARIOS)

.PHONY: test-site
test-site: ## the documentation as a site in .lab/site/html; a link that leads nowhere is an error
	@tests/tools/test.sh full-site
.PHONY: full-site
full-site:
	@$(PART) site 30 $(NOX) -s site -- python -m tests.tools.website

.PHONY: test-sanity
test-sanity: ## ansible-test sanity on ansible-core 2.18 and 2.19 (`make test` has the newest), and imports on the oldest Pythons
	@tests/tools/test.sh full-sanity
.PHONY: full-sanity
full-sanity:
	@$(PART) sanity-core218 45 $(call IN,core218) bash -c 'python -m tests.tools.sanity --test compile --test import --python 3.8 \
		&& python -m tests.tools.sanity --skip-test compile --skip-test import'
	@$(PART) sanity-core219 45 $(call IN,main) python -m tests.tools.sanity --skip-test compile --skip-test import
	@$(PART) sanity-pythons 45 $(call IN,newest) bash -c 'python -m tests.tools.sanity --test compile --test import --python 3.9'

.PHONY: test-bench
test-bench: ## the benchmark with limits: what gpu_info costs a node
	@tests/tools/test.sh full-bench
.PHONY: full-bench
full-bench:
	@$(PART) bench-gpu-info 30 $(call IN,main) python3 -m tests.bench.gpu_info

.PHONY: test-release
test-release: setup ## what is released: a licence for every file, Galaxy's importer, and the tarball installed from its file into an empty home, and used for the demo
	@tests/tools/test.sh full-release
.PHONY: full-release
full-release: build
	@$(PART) licences 10 $(NOX) -s release -- reuse --root . lint
	@$(PART) importer 30 $(NOX) -s importer -- tests/tools/importer.sh
	@$(PART) newcomer 30 tests/tools/newcomer.sh
	@GPUFLEET_LAB_ID=$$($(UNUSED_LAB)) $(PART) demo-tarball 60 $(MAIN) tests/tools/released.sh python3 -m tests.lab demo --few

# --- Looking for what no test knows yet ------------------------------------------------------------------------------

.PHONY: search
search: setup-test ## property tests with thousands of random examples (minutes)
	@$(MAIN) $(PYTEST) --hypothesis-profile=search -m hypothesis tests/unit/plugins

.PHONY: mutants
mutants: setup-test ## whether `make test` catches mistakes that are made one by one in a copy; names each that it does not (minutes)
	@$(MAIN) python3 -m tests.tools.mutate $(ARGS)

.PHONY: kills
kills: setup-test ## kill the controllers of ten rollouts over 20 stand-in nodes again and again, and compare with what the nodes say (half an hour)
	@$(MAIN) python3 -m tests.tools.kills $(ARGS)

.PHONY: slices
slices: setup-test ## the nodes and the fault of the demo, by several controllers as AWX's jobs; one is killed, PostgreSQL restarts (20 minutes)
	@$(LAB) slices

# --- Benchmarks ------------------------------------------------------------------------------------------------------

.PHONY: bench
bench: setup-test ## what reading 8 simulated GPUs costs a node, against ansible.builtin.ping; fails past its limits
	@$(MAIN) python3 -m tests.bench.gpu_info

.PHONY: bench-rollout
bench-rollout: setup-test ## how close a rollout over 100 stand-in nodes comes to the shortest time, against waves, in one run of about 75 minutes
	@$(MAIN) python3 -m tests.bench.rollout $(ARGS)

.PHONY: bench-memory
bench-memory: setup-test ## what a node in flight costs the controller in memory, with 100 stand-in nodes; as root, fails past its limit of 35 MB
	@$(MAIN) python3 -m tests.bench.rollout.memory $(ARGS)

# --- Work on the checkout --------------------------------------------------------------------------------------------

.PHONY: lint
lint: ## the static checks of `make test`
	@tests/tools/test.sh part-ansible-lint part-yamllint part-ruff part-changelog

.PHONY: format
format: ## format the Python files, as `make lint` expects them
	@$(MAIN) ruff format --no-cache .

.PHONY: rehearse
rehearse: setup ## run your own playbook on the lab: INVENTORY=path PLAYBOOK=path [ARGS="-e ..."]
	@test -n "$(INVENTORY)" -a -n "$(PLAYBOOK)" || { echo "usage: make rehearse INVENTORY=path PLAYBOOK=path [ARGS=\"-e ...\"]" >&2; exit 2; }
	@$(LAB) rehearse --inventory "$(INVENTORY)" --playbook "$(PLAYBOOK)" -- $(ARGS)

.PHONY: lab-up
lab-up: setup ## start the lab's machines and leave them running
	@$(LAB) up

.PHONY: lab-down
lab-down: ## stop the lab; leaves no process, mount, bridge or firewall rule
	@python3 -m tests.lab down

.PHONY: build
build: ## build the collection's tarball in .lab/build
	@$(MAIN) ansible-galaxy collection build --force --output-path .lab/build

.PHONY: docs
docs: ## write the pages of health checks and alerts, and the rulebook, from their data
	@$(MAIN) python3 -m tests.tools.data_pages

.PHONY: site
site: ## check the documentation of plugins and build the site with their reference in .lab/site/html
	@$(NOX) -s site -- python -m tests.tools.website

.PHONY: clean
clean: lab-down ## stop the lab and remove what runs left in the checkout; the cache outside it stays
	@rm -rf .lab .ansible tests/output .pytest_cache .hypothesis .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
