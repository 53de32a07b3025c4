# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
DEBIAN_PACKAGES := openvswitch-switch nftables iproute2 ethtool iputils-ping tcpdump openssl ca-certificates python3-venv gcc libc6-dev
# A development extra: the lab's training job (tests/lab/train.py) runs on Debian's PyTorch.
DEBIAN_PACKAGES += python3-torch
OVN_PACKAGES := ovn-central ovn-host ovn-common
PODMAN_PACKAGES := podman runc conmon busybox-static
PROMETHEUS_PACKAGES := prometheus prometheus-alertmanager
VM_PACKAGES := qemu-system-x86 mmdebstrap busybox-static cpio e2fsprogs kmod xz-utils zstd debian-archive-keyring
DISTRIBUTIONS ?= debian-12 debian-13
# What a guest is asked; those that bring the whole lab up and break it take minutes more. VM_MARKS: marks of files that
# it has to read.
VM_TESTS ?= rdma or kernel or ovs
VM_MARKS ?= $(CAPABLE)
# Of those of what boots guests.
VM_OWN ?= vm
MINUTES ?= 60
# Seconds for a guest's tests.
GUEST_S ?= 2700
# Marks of tests that need root, or more.
CAPABLE := netns or ovs or lab or kernel or rdma or packages or browser
# Those of them that bring something up, and wait for it most of the time: several at once, file by file, each in a
# machine of its own as far as it can tell.
OWN ?= ovs or lab or browser
AT_ONCE ?= 2
APART = --tx '$(AT_ONCE)*popen//python=tools/apart.sh $(BIN)/python' --dist loadfile --no-loadscope-reorder --durations 10
# Files with tests of such marks: an emulated guest is slow to import all others, only to deselect them.
# That a mark is written in the file of its test: tests/test_repository.py.
marked = $(sort $(shell grep -rlE --include='test_*.py' 'mark\.($(subst $() or $(),|,$(1)))\b' tests))
# Where an API server is built, once.
KUBERNETES ?= $(HOME)/.cache/netagent/kubernetes
SLURM ?= $(HOME)/.cache/netagent/slurm
BROWSER_PACKAGES := chromium fonts-dejavu-core
DEB_PACKAGES := debhelper dpkg-dev fakeroot lintian
STAMP := $(VENV)/.installed
PACKAGES := netagent netagent_torch bpf ovs_checks analyzer

.DEFAULT_GOAL := help
.PHONY: help setup setup-ovn setup-podman setup-prometheus setup-vm image lock demo demo-rdma demo-ovn demo-skeleton demo-operators setup-deb deb test test-hermetic test-ovs test-thorough test-long test-packages test-debs test-ovn test-podman test-kubernetes test-prometheus test-slurm test-interpreters test-vm format lint types types-all types-host floors check chaos drill health soak webhooks alerts generated eval-skeleton eval-localize campaign campaign-full bench bench-vm fuzz wheel try-wheel clean setup-browser test-browser screenshots campaign-operators

help: ## list every target
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## install Debian packages and the virtual environment (quick when nothing is to do)

$(STAMP): requirements.lock pyproject.toml tools/setup.sh
	tools/setup.sh "$(VENV)" $(DEBIAN_PACKAGES)
	@touch $(STAMP)

setup-ovn: setup ## install what the lab on OVN needs; no service of it is started
	tools/setup.sh "" $(OVN_PACKAGES)

setup-podman: setup ## install what the lab with real containers needs; no service of it is started
	tools/setup.sh "" $(PODMAN_PACKAGES)

setup-prometheus: setup ## install what scrapes and alerts; none of it is started, now or later (who runs it already goes on)
	mkdir -p /etc/systemd/system
	for unit in $(PROMETHEUS_PACKAGES); do \
	  [ -e /usr/bin/$$unit ] || ln -sf /dev/null /etc/systemd/system/$$unit.service; \
	done
	tools/setup.sh "" $(PROMETHEUS_PACKAGES)

setup-browser: setup ## install what opens the page in a real browser: Debian's Chromium, Playwright's library, axe's rules
	tools/setup.sh "" $(BROWSER_PACKAGES)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-browser.lock

setup-vm: setup ## install what builds and boots guests (QEMU)
	tools/setup.sh "" $(VM_PACKAGES)

image: setup-vm ## build the guests' images that are missing
	$(BIN)/python -m vagrant.vm build $(DISTRIBUTIONS)

lock: setup ## pin every dependency with its hashes into requirements.lock
	$(BIN)/pip-compile -q --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --generate-hashes --allow-unsafe \
	  --extra analyzer --extra dev -o requirements.lock pyproject.toml
	$(BIN)/pip-compile -q --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --generate-hashes --allow-unsafe \
	  --extra browser -c requirements.lock -o requirements-browser.lock pyproject.toml

demo: setup ## bring a lab up, break it eight ways, watch netagent name each component
	$(BIN)/python -m tests.lab demo

demo-rdma: setup-vm ## the demo on Soft-RoCE over the kernel's Open vSwitch, in a guest
	$(BIN)/python -m vagrant.vm run debian-12 --timeout 1500 -- $(BIN)/python -m tests.lab demo

demo-ovn: setup-ovn ## the demo where OVN drives the virtual switches, and five minutes of its health
	$(BIN)/python -m tests.lab demo --controller ovn
	$(BIN)/python -m tests.lab health --controller ovn --minutes 5

demo-skeleton: setup ## a real training job in the lab, and what netagent makes of its traffic
	$(BIN)/python -m tests.lab demo-skeleton

demo-operators: setup ## a real job that is broken ten ways, what it recorded, and who the analyzer says holds it up
	$(BIN)/python -m tests.lab demo-operators

# Tests start hundreds of processes from this tree: it is compiled once.
unexport PYTHONDONTWRITEBYTECODE

# What the machine must be able to do: a capability that went missing fails instead of skipping.
test: export NETAGENT_TESTS_REQUIRE ?= root,netns,ovs,cc
test: test-hermetic ## every test of this machine, as root, with namespaces and Open vSwitch required
	$(BIN)/python -m pytest -m "($(CAPABLE)) and not ($(OWN)) and not vm and not ovn and not podman" $(call marked,$(CAPABLE))
	$(BIN)/python -m pytest $(APART) -m "($(OWN)) and not ovn and not podman and not again" $(call marked,$(OWN))

test-hermetic: setup ## tests that need neither root nor any capability
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not ($(CAPABLE)) and not vm and not kubernetes and not slurm and not prometheus"

test-thorough: setup ## hermetic tests with every seed and five times the examples, other ones each time (an hour)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 --dist worksteal -o faulthandler_timeout=3600 \
	  -m "not ($(CAPABLE)) and not vm and not kubernetes and not slurm and not prometheus"

test-ovs: setup ## tests on real namespaces and Open vSwitch (root)
	$(BIN)/python -m pytest -m "netns and not ovs and not lab" $(call marked,netns)
	$(BIN)/python -m pytest $(APART) -m "(ovs or lab) and not browser and not ovn and not podman and not again" $(call marked,ovs or lab)

test-long: setup ## a real job whose skeleton is learned; flow tables by the thousand against Open vSwitch (twenty minutes)
	NETAGENT_TESTS_REQUIRE=root,netns,ovs $(BIN)/python -m pytest -m "lab and again" $(call marked,again)
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m ovs -o faulthandler_timeout=5400 tests/ovs/test_oracle_trace.py

test-ovn: setup-ovn ## tests on a real OVN: faults, actions, zones, tables held against it and against packets (minutes)
	NETAGENT_TESTS_REQUIRE=root,netns,ovs,cc,ovn $(BIN)/python -m pytest -m ovn $(call marked,ovn)

test-podman: setup-podman ## tests with real containers
	NETAGENT_TESTS_REQUIRE=root,netns,ovs,podman $(BIN)/python -m pytest -m podman $(call marked,podman)

test-browser: setup-browser ## the page in a real browser: every view, keys, hostile names, axe's rules, and a lab that breaks (minutes)
	NETAGENT_TESTS_REQUIRE=root,netns,ovs,browser $(BIN)/python -m pytest -m browser $(call marked,browser)

screenshots: setup-browser ## the pictures of docs/page.md, of a lab that breaks (minutes)
	$(BIN)/python -m tests.page.pictures

test-kubernetes: setup ## tests on a real Kubernetes API server, built once from Debian's sources (minutes)
	tools/kubernetes.sh "$(KUBERNETES)"
	NETAGENT_KUBERNETES="$(KUBERNETES)" NETAGENT_TESTS_REQUIRE=kubernetes \
	  $(BIN)/python -m pytest -m kubernetes $(call marked,kubernetes)

test-prometheus: setup-prometheus ## tests with a real Prometheus and Alertmanager; one brings the lab up (minutes)
	NETAGENT_TESTS_REQUIRE=root,netns,ovs,prometheus $(BIN)/python -m pytest -m prometheus $(call marked,prometheus)

test-slurm: setup ## tests under a real Slurm, taken from Debian's packages once
	tools/slurm.sh "$(SLURM)"
	NETAGENT_SLURM="$(SLURM)" NETAGENT_TESTS_REQUIRE=slurm $(BIN)/python -m pytest -m slurm $(call marked,slurm)

test-interpreters: ## the agent's hermetic tests on each other Python that it takes, of those that are here
	tools/test-interpreters.sh

test-vm: setup-vm ## tests on RDMA, kernel datapath and eBPF, in guests (make test-vm DISTRIBUTIONS=debian-12)
	for distribution in $(DISTRIBUTIONS); do \
	  $(BIN)/python -m vagrant.vm run $$distribution --timeout $(GUEST_S) \
	    --env NETAGENT_TESTS_REQUIRE=root,netns,ovs,cc,rdma,kernel -- \
	    $(BIN)/python -m pytest -m "$(VM_TESTS)" -p no:cacheprovider --durations 10 \
	    -o faulthandler_timeout=900 $(call marked,$(VM_MARKS)) || exit 1; \
	done
	NETAGENT_TESTS_REQUIRE=vm $(BIN)/python -m pytest -m "$(VM_OWN)" --durations 10 $(call marked,vm) \
	  $(if $(filter debian-13,$(DISTRIBUTIONS)),,-k "not debian-13")

format: setup ## format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix-only .

lint: setup ## ruff
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: types-all types-host ## mypy --strict

types-all: setup ## mypy, by this Python
	$(BIN)/mypy

types-host: setup ## mypy of what hosts run, by the oldest Python that it takes
	$(BIN)/mypy --python-version 3.10 -p netagent -p bpf -p ovs_checks

floors: setup ## import-linter: a module imports only from lower floors
	$(BIN)/lint-imports

check: lint types floors ## everything static

chaos: setup ## kill agents, analyzer and vswitchd 50 times, in a lab of its own (docs/chaos.md)
	$(BIN)/python -m tests.lab chaos

drill: setup ## break a lab by every fault alone, then by thirty pairs at once (an hour; docs/lab.md)
	$(BIN)/python -m tests.lab drill --each
	$(BIN)/python -m tests.lab drill --pairs 30

health: setup ## half an hour of a lab that is well: nobody is named but for a link cut at its end (docs/lab.md)
	$(BIN)/python -m tests.lab health --minutes 30

soak: setup ## an hour of a lab whose tasks come and go: nothing may grow (docs/lab.md)
	$(BIN)/python -m tests.lab soak --minutes $(MINUTES)

webhooks: setup ## who is told of incidents is down, slow and failing for ten minutes (docs/lab.md)
	$(BIN)/python -m tests.lab webhooks

alerts: setup-prometheus ## Prometheus on a lab: six faults, each alerted of at a receiver and over again, and health (docs/lab.md)
	$(BIN)/python -m tests.lab alerts

generated: setup ## write anew what follows from the code: rules of alerts, the dashboard, the table of metrics
	$(BIN)/netagent-analyzer alerts > analyzer/alerts/netagent.rules.yml
	$(BIN)/netagent-analyzer dashboard > analyzer/alerts/netagent.dashboard.json
	$(BIN)/python -m tests.analyzer.server.metrics.documented

eval-skeleton: setup ## how well skeletons are inferred from simulated traffic
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.eval.skeleton

eval-localize: setup ## how well silent drops in fat-trees are ranked, beside MaxCount and 007
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.eval.localize

campaign: setup ## some hundred simulated failures of all 19 types, 256 RNICs (minutes; docs/campaign.md)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.campaign --output build/campaign.jsonl --figure build/campaign.svg

campaign-operators: setup ## some hundred simulated jobs and dumps: who holds them up (an hour)
	$(BIN)/python -m tests.campaign.operators --ranks 256 --episodes 300
	$(BIN)/python -m tests.campaign.operators --ranks 2048 --episodes 300
	$(BIN)/python -m tests.campaign.operators --ranks 8192 --episodes 20
	$(BIN)/python -m tests.campaign.operators.origins --episodes 300
	$(BIN)/python -m tests.campaign.operators.dumps --episodes 8

campaign-full: setup ## two thousand episodes of them, 2,048 RNICs (hours)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.campaign --hosts 256 --episodes 2000 --healthy 200 \
	  --output build/campaign-full.jsonl --resume

bench: setup ## measured claims, as JSON lines
	$(BIN)/python -m tests.bench

bench-vm: setup-vm ## those of RDMA and eBPF, in a guest
	$(BIN)/python -m vagrant.vm run debian-12 --timeout 1800 -- $(BIN)/python -m tests.bench rdma agent-cost-rdma bpf

setup-deb: setup ## install what builds Debian packages
	tools/setup.sh "" $(DEB_PACKAGES)

deb: setup-deb wheel ## build the Debian packages into build/deb, and look at them with lintian
	tools/deb/build.sh $(BIN)/python build/dist/*.whl build/deb $(DISTRIBUTIONS)
	for distribution in $(DISTRIBUTIONS); do lintian --fail-on error,warning build/deb/$$distribution/*.changes || exit 1; done

test-packages: deb ## build them, and install, use and purge them in guests with systemd (make test-packages DISTRIBUTIONS=debian-12)
	$(MAKE) test-debs

test-debs: setup-vm ## the same of packages that are built already
	for distribution in $(DISTRIBUTIONS); do \
	  $(BIN)/python -m vagrant.vm run $$distribution --systemd --timeout $(GUEST_S) \
	    --env NETAGENT_TESTS_REQUIRE=packages --env NETAGENT_DEBS=$(CURDIR)/build/deb/$$distribution -- \
	    $(BIN)/python -m pytest -x -m packages -p no:cacheprovider --durations 10 $(call marked,packages) || exit 1; \
	done

wheel: setup ## build the wheel
	rm -rf build/dist build/lib # what an earlier tree had would be in it
	$(BIN)/pip wheel -q --no-deps --no-build-isolation -w build/dist .

try-wheel: wheel ## install the wheel into an empty environment and run its commands, without and with the analyzer's extra
	tools/try-wheel.sh build/dist/*.whl

clean: ## remove what was built
	rm -rf build .venv *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

fuzz: setup ## damaged dumps for every reader, for ten minutes
	$(BIN)/python -m tests.fuzz --minutes 10
