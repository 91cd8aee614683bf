# Everything runs in .venv, which is made on first use and brought up to date when pyproject.toml or a file of
# requirements/ changes. Needs Python 3.11 or later and make; another interpreter: `make test PYTHON=python3.12`.

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_ARGS ?=
FAULTS_ARGS ?=
SOAK_ARGS ?=
GPU_ARGS ?=
VERSIONS_ARGS ?=
LOCK_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python -m
# Files of tests beside each other, which share what their tests have made: one more than there are processors, since
# tests also wait; more than four would be in each other's way.
PROCESSES = $(shell $(PYTHON) -c "import os; print(min(os.cpu_count() + 1, 4))")
BESIDE = -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
# The environment with what a sweep needs, and with what the tests need beside it.
RUN_READY := $(VENV)/.run-ready
READY := $(VENV)/.ready
# Above that environment one with ray[default], which would make the start of every local Ray slower, and one with torchao,
# which transformers and PEFT import wherever it is.
CLUSTER := $(VENV)/cluster
FLOAT8 := $(VENV)/float8
# And one with other libraries that search, for benchmarks/search_quality.py.
PEERS := $(VENV)/peers

.DEFAULT_GOAL := help
.PHONY: help env demo nightly-demo test test-slow faults soak test-gpu test-slurm test-ray-jobs test-versions lint format docs lock \
  release clean

help: ## show this list
	@echo "Sweeps: hyperparameter search for distributed training"
	@echo
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

env: $(READY) ## make the environment (.venv); the others do it when they need it

demo: $(RUN_READY) ## search for the best LoRA settings of a tiny language model, on this machine's CPUs
	@$(RUN) sweeps run conf=llm_lora

nightly-demo: $(RUN_READY) ## three nights in minutes: a schedule, a champion, a regression, and the service's page
	@$(VENV)/bin/python demos/nightly/demo.py $(DEMO_ARGS)

# Types are checked beside the tests, since these wait as often as they compute; pytest's summary stays the last line.
test: $(READY) ## lint, types and the quick tests; more for pytest in PYTEST_ARGS="-k space -x"
	@echo "==> ruff, pytest, and mypy beside it"
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy >$(VENV)/mypy.log 2>&1 & types=$$!; \
	  $(RUN) pytest $(BESIDE) $(PYTEST_ARGS); tests=$$?; \
	  wait $$types || { cat $(VENV)/mypy.log; exit 1; }; \
	  exit $$tests

test-slow: $(FLOAT8)/.ready ## the tests that take minutes; and those of fp8, with torchao in .venv/float8
	@echo "==> pytest tests/sweeps_train/test_float8.py"
	@$(FLOAT8)/bin/python -m pytest -m "not gpu" tests/sweeps_train/test_float8.py
	@echo "==> pytest -m slow"
	@$(RUN) pytest -m "slow and not gpu and not slurm" $(PYTEST_ARGS)

faults: $(READY) ## 200 faults in running sweeps, 20 minutes (docs/faults.md); FAULTS_ARGS="--seed 1"
	@$(VENV)/bin/python tests/faults/campaign.py $(FAULTS_ARGS)

soak: $(READY) ## two services on PostgreSQL, 20 clients and faults, 20 minutes (docs/operating.md); SOAK_ARGS="--minutes 5"
	@$(VENV)/bin/python tests/soak/soak.py $(SOAK_ARGS)

test-slurm: $(READY) ## sweeps on a real Slurm of two nodes, which this installs with apt (Debian, as root)
	@command -v slurmctld >/dev/null && command -v munged >/dev/null || { \
	  echo "==> Installing Slurm" ; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge iproute2; }
	@echo "==> pytest -m slurm"
	@$(RUN) pytest -m slurm $(PYTEST_ARGS)

test-ray-jobs: $(CLUSTER)/.ready ## sweeps through Ray Jobs on a cluster of two nodes (as root), with ray[default] in .venv/cluster
	@echo "==> pytest -m slow tests/launch/test_ray_jobs.py"
	@$(CLUSTER)/bin/python -m pytest -m slow tests/launch/test_ray_jobs.py $(PYTEST_ARGS)

test-gpu: $(FLOAT8)/.ready ## the tests and the measurements of a GPU, with results to send to us (docs/gpu_checklist.md)
	@PYTHON=$(FLOAT8)/bin/python bash benchmarks/gpu/measure.sh --limit-factor 10 $(GPU_ARGS)

test-versions: $(READY) ## sweeps and tests with other Pythons, Rays, torches (docs/versions.md): an hour and more
	@$(VENV)/bin/python requirements/versions.py $(VERSIONS_ARGS)

lint: $(READY) ## ruff and mypy, changing nothing
	@echo "==> ruff check"
	@$(RUN) ruff check
	@echo "==> ruff format --check"
	@$(RUN) ruff format --check
	@echo "==> mypy (the first run reads the libraries' types, too, and takes a minute)"
	@$(RUN) mypy

format: $(READY) ## let ruff mend and lay out the code
	@$(RUN) ruff check --fix
	@$(RUN) ruff format

docs: $(READY) ## build the documentation as a site, which `python -m sweeps serve` then has under /docs
	@$(VENV)/bin/python docs/build_site.py

lock: $(RUN_READY) ## lock the versions in requirements/ anew; LOCK_ARGS=--upgrade takes the newest
	@$(VENV)/bin/python requirements/lock.py $(LOCK_ARGS)

release: $(READY) ## build what goes to an index from the last commit: sdist, wheel, bill of materials, checksums in dist/
	@$(VENV)/bin/python requirements/release.py

clean: ## remove .venv, caches and builds; sweeps and their records stay
	rm -rf $(VENV) build dist sweeps/docs .mypy_cache .pytest_cache .ruff_cache
	find sweeps src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN_READY): pyproject.toml requirements/install.py requirements/uv.txt requirements/run.txt requirements/torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sweeps needs Python 3.11 or later, and '$(PYTHON)' is not one ($$($(PYTHON) --version 2>&1))." >&2; \
	  echo "Name another: make PYTHON=python3.12" >&2; exit 1; }
	@if ! $(VENV)/bin/python -m pip --version >/dev/null 2>&1; then \
	  echo "==> Making the environment in $(VENV) with $$($(PYTHON) --version)"; \
	  $(PYTHON) -m venv --clear $(VENV) || { \
	    echo "On Debian and Ubuntu 'python3 -m venv' needs the package python3-venv." >&2; exit 1; }; \
	fi
	@$(VENV)/bin/python requirements/install.py run
	@touch $@

$(READY): $(RUN_READY) requirements/dev.txt
	@$(VENV)/bin/python requirements/install.py dev
	@touch $@

# Their packages come first, and then those of .venv: the line in the .pth file adds these and their own .pth files.
FOLDER = "import sysconfig; print(sysconfig.get_path('purelib'))"
ABOVE = $(RUN) venv --without-pip $(@D) && echo "import site; site.addsitedir('$$($(VENV)/bin/python -c $(FOLDER))')" \
	  > "$$($(@D)/bin/python -c $(FOLDER))/below.pth"

$(CLUSTER)/.ready: $(READY) requirements/cluster.txt
	@$(ABOVE)
	@$(@D)/bin/python requirements/install.py cluster
	@touch $@

$(FLOAT8)/.ready: $(READY) requirements/fp8.txt
	@$(ABOVE)
	@$(@D)/bin/python requirements/install.py fp8
	@touch $@

# Without dependencies: they are in the list, and some libraries ask for older versions than they work with.
$(PEERS)/.ready: $(READY) benchmarks/searched/requirements.txt
	@echo "==> Adding libraries that search in $(@D)"
	@$(ABOVE)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r benchmarks/searched/requirements.txt
	@touch $@
