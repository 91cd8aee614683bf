# Everything runs in .venv, which is made on first use and again when pyproject.toml or constraints.txt changes.
# Needs Python 3.11 or later and make; another interpreter: `make test PYTHON=python3.12`.

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_ARGS ?=
GPU_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python -m
# Files of tests beside each other, which share what their tests have made: one more than there are processors, since
# tests also wait; more than four would be in each other's way.
PROCESSES = $(shell $(PYTHON) -c "import os; print(min(os.cpu_count() + 1, 4))")
BESIDE = -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
READY := $(VENV)/.ready
# Above that environment one with ray[default], which would make the start of every local Ray slower, and one with torchao,
# which transformers and PEFT import wherever it is.
CLUSTER := $(VENV)/cluster
FLOAT8 := $(VENV)/float8
# And one with other libraries that search, for benchmarks/search_quality.py.
PEERS := $(VENV)/peers

.DEFAULT_GOAL := help
.PHONY: help env demo nightly-demo test test-slow test-gpu test-slurm test-ray-jobs lint format docs lock clean

help: ## show this list
	@echo "Sweeps: hyperparameter search for distributed training"
	@echo
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

env: $(READY) ## make the environment (.venv); the others do it when they need it

demo: $(READY) ## search for the best LoRA settings of a tiny language model, on this machine's CPUs
	@$(RUN) sweeps run conf=llm_lora

nightly-demo: $(READY) ## three nights in minutes: a schedule, a champion, a regression, and the service's page
	@$(VENV)/bin/python demos/nightly/demo.py $(DEMO_ARGS)

test: lint ## lint, types and the quick tests; more for pytest in PYTEST_ARGS="-k space -x"
	@echo "==> pytest"
	@$(RUN) pytest $(BESIDE) $(PYTEST_ARGS)

test-slow: $(FLOAT8)/.ready ## the tests that take minutes; and those of fp8, with torchao in .venv/float8
	@echo "==> pytest tests/sweeps_train/test_float8.py"
	@$(FLOAT8)/bin/python -m pytest -m "not gpu" tests/sweeps_train/test_float8.py
	@echo "==> pytest -m slow"
	@$(RUN) pytest -m "slow and not gpu and not slurm" $(PYTEST_ARGS)

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

lint: $(READY) ## ruff and mypy, changing nothing
	@echo "==> ruff check"
	@$(RUN) ruff check
	@echo "==> ruff format --check"
	@$(RUN) ruff format --check
	@echo "==> mypy (the first run reads all of torch and takes a minute or two)"
	@$(RUN) mypy

format: $(READY) ## let ruff mend and lay out the code
	@$(RUN) ruff check --fix
	@$(RUN) ruff format

docs: $(READY) ## build the documentation as a site, which `python -m sweeps serve` then has under /docs
	@$(VENV)/bin/python docs/build_site.py

lock: $(CLUSTER)/.ready $(FLOAT8)/.ready ## write constraints.txt anew from what is in .venv, after `pip install --upgrade` there
	@PYTHONPATH="$$($(FLOAT8)/bin/python -c $(FOLDER))" $(CLUSTER)/bin/python -m pip freeze --all --exclude-editable \
	  | grep -v "^pip==" | sed 's/+[a-z0-9.]*$$//' > $(VENV)/constraints.txt
	@{ sed '/^[^#]/,$$d' constraints.txt; cat $(VENV)/constraints.txt; } > $(VENV)/constraints.new
	@cp $(VENV)/constraints.new constraints.txt
	@touch $(READY)

clean: ## remove .venv, caches and builds; sweeps and their records stay
	rm -rf $(VENV) build dist sweeps/docs .mypy_cache .pytest_cache .ruff_cache
	find sweeps src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Without dependencies: they are in the list, and some libraries ask for older versions than they work with.
$(PEERS)/.ready: $(READY) benchmarks/searched/requirements.txt
	@echo "==> Adding libraries that search in $(@D)"
	@$(RUN) venv --without-pip $(@D)
	@echo "import site; site.addsitedir('$$($(VENV)/bin/python -c $(FOLDER))')" \
	  > "$$($(@D)/bin/python -c $(FOLDER))/below.pth"
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r benchmarks/searched/requirements.txt
	@touch $@

# Exact versions for every call of pip, for the environments that it builds sdists in too: those inherit the
# variables and not the options. A relative path, since pip splits the value at spaces.
$(READY) $(CLUSTER)/.ready $(FLOAT8)/.ready: export PIP_CONSTRAINT = constraints.txt
$(READY): export PIP_BUILD_CONSTRAINT = constraints.txt
$(READY): export PIP_DISABLE_PIP_VERSION_CHECK = 1
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sweeps needs Python 3.11 or later, and '$(PYTHON)' is not one ($$($(PYTHON) --version 2>&1))." >&2; \
	  echo "Name another: make PYTHON=python3.12" >&2; exit 1; }
	@if ! $(VENV)/bin/python -m pip --version >/dev/null 2>&1; then \
	  echo "==> Making the environment in $(VENV) with $$($(PYTHON) --version)"; \
	  $(PYTHON) -m venv --clear $(VENV) || { \
	    echo "On Debian and Ubuntu 'python3 -m venv' needs the package python3-venv." >&2; exit 1; }; \
	fi
	@echo "==> Installing the versions of constraints.txt (the first time about 150 packages, one to a few minutes)"
	@$(RUN) pip install -qq --editable '.[dev]'
	@$(RUN) pip check --quiet
	@touch $@
	@echo "==> The environment is ready"

# Their packages come first, and then those of .venv: the line in the .pth file adds these and their own .pth files.
FOLDER = "import sysconfig; print(sysconfig.get_path('purelib'))"
$(CLUSTER)/.ready: ADDED = ray[default]
$(FLOAT8)/.ready: ADDED = torchao
$(CLUSTER)/.ready $(FLOAT8)/.ready: $(READY)
	@echo "==> Adding $(ADDED) in $(@D)"
	@$(RUN) venv --without-pip $(@D)
	@echo "import site; site.addsitedir('$$($(VENV)/bin/python -c $(FOLDER))')" \
	  > "$$($(@D)/bin/python -c $(FOLDER))/below.pth"
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check '$(ADDED)'
	@touch $@
