# Everything a developer types. `make` lists the targets.
# Torch is installed first and by itself, so that no other package ever decides which torch you have.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
PYTEST := $(PY) -m pytest
# -qq: pip says nothing but its errors.

# A changed dependency list, a changed recipe or a moved folder is another environment: the stamp's name changes with them.
STATE := $(shell { cat pyproject.toml constraints.txt Makefile; echo '$(TORCH) $(CURDIR)'; } | cksum | cut -d' ' -f1)
FULL := $(VENV)/.setup-$(STATE)
LIGHT := $(VENV)/.light-$(STATE)

# The seeds of the orders that `make soak` tries.
ORDERS ?= 1 2 3 4 5
# A machine with a GPU may have no .venv of ours and no network: an interpreter that is named is used as it is.
GPU_PYTHON ?= $(if $(filter-out default file undefined,$(origin PYTHON)),$(PYTHON),$(or $(wildcard $(PY)),$(PYTHON)))

.PHONY: help setup demo test docs lint format types arch bench studies soak gpu matrix clean system

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(FULL) system  ## the full environment in .venv, and the system packages the tests use
	@echo "The environment is ready in $(VENV)."

demo: $(LIGHT)  ## a light environment, the quick MNIST study, its report (a few minutes)
	$(VENV)/bin/paceline study mnist-scaling --quick
	@test -s runs/mnist-scaling-quick/report.html  # the study has said where it is; this makes sure

test: setup lint types  ## lint, types and all tests but the marked ones
	@# Three processes for two cores: one of them has the tests on Slurm, which mostly wait. PASSIVE: OpenMP's threads, of which there
	@# are more than cores then, give way to others while they wait.
	OMP_WAIT_POLICY=PASSIVE $(PYTEST) -n 3 -m "not gpu and not slow and not alone"
	@# The second pass: what is timed, with nothing beside it.
	$(PYTEST) -m "alone and not gpu and not slow"

docs: $(FULL)  ## the documentation as a site in build/site, without the network
	$(PY) scripts/commands-page
	$(VENV)/bin/zensical build --strict --clean

lint: $(FULL)  ## ruff, check and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(FULL)  ## let ruff write: format, and mend what it can
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

types: $(FULL)  ## pyright: strict on the parent, basic on the worker
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright

arch: $(FULL)  ## the plan of the house (tests/arch) alone
	$(PYTEST) -q tests/arch

bench: $(FULL)  ## how long commands take to answer, and launchers to start; what watching costs; training beside other loops
	$(PY) benchmarks/startup.py --json
	$(PY) benchmarks/probes.py --json
	$(PY) benchmarks/launch.py --json
	$(PY) benchmarks/study.py --json
	$(PY) benchmarks/messages.py --json
	$(PY) benchmarks/conv.py --json
	$(PY) benchmarks/scaling.py --json
	$(PY) benchmarks/train.py --device cpu --threads 1 --batch 32 --tasks features,mnist-convnet --json

studies: $(FULL) system  ## every study this machine can run, at the scale in scripts/studies (an hour or two, resumable), and the tables in docs/
	$(PY) scripts/studies run

soak: $(FULL)  ## the tests marked slow and those on Slurm, one at a time; then unit, contract and dist tests in five random orders
	$(PYTEST) -m "slow and not gpu" --timeout 3600
	$(PYTEST) -m "not slow" tests/e2e/test_slurm.py
	for seed in $(ORDERS); do \
	  $(PYTEST) -n 2 -p randomly --randomly-seed=$$seed -m "not gpu and not slow and not alone" tests/unit tests/contract tests/dist; \
	done

gpu:  ## tests/gpu on one NVIDIA GPU, in the environment of GPU_PYTHON (or PYTHON) as it is: nothing is installed
	PYTHONPATH=$(CURDIR)/src:$${PYTHONPATH:-} PYTHONUNBUFFERED=1 $(GPU_PYTHON) -m pytest -m gpu -v --durations=0 --timeout 300 -p no:cacheprovider tests/gpu

matrix:  ## the fast tests on every Python and torch that can be had here
	TORCH_VERSIONS="2.11.0 2.12.* 2.13.0" scripts/matrix

clean:  ## remove the environments and every cache
	rm -rf $(VENV) .venv-matrix-* .pytest_cache .ruff_cache .hypothesis .cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- environments ----

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	  echo "Paceline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2> /dev/null || echo 'not installed')." \
	    "Name another one: make setup PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# $(call install,WHAT,STAMPS): torch by itself, then WHAT held to the tested versions and to the torch that is there.
define install
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
	$(PIP) install '$(TORCH)' -c $(VENV)/constraints.txt
	$(PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >> $(VENV)/constraints.txt
	$(PIP) install -e $(1) -c $(VENV)/constraints.txt
	@rm -f $(VENV)/.setup-* $(VENV)/.light-* && touch $(2)
endef

$(FULL): | $(PY)
	$(call install,'.[dev$(comma)parquet$(comma)mpi$(comma)accelerate$(comma)bench$(comma)docs$(comma)lightning$(comma)huggingface$(comma)frames]',$(FULL) $(LIGHT))

$(LIGHT): | $(PY)
	$(call install,.,$(LIGHT))

comma := ,

system:
	@scripts/system-packages $(VENV)
