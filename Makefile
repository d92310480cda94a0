# make run    set up everything and run 16 agents on synthetic data (ARGS="--reference" adds options, RANKS=4 fewer agents)
# make test   set up everything and run the tests
# make test-hosts  16 agents over four hosts and under Slurm, made on this machine for as long as it takes (root; else skipped)
# make bench  measure against the peers that are installed: pip install -e '.[bench]' gets them (ARGS="--only peers")
# make adaptation  the table of domain adaptation (ARGS="--sets digits")
# make chaos       runs with faults in them, 200 by default (ARGS='--runs 20')
# make scale       how far it scales: measured to 64 ranks, modelled beyond (ARGS=--quick, ARGS='--only links')
# make privacy     the paper's figure of accuracy against privacy, with stronger attacks
# make browser     Debian's Chromium, for the tests that look at reports (root only; without it they are skipped)
# make reproduce   every figure and table of the paper, and a page that judges its claims (reproduce-quick: minutes)
# make check  lint and types
# make setup  only make .venv: Python packages and an MPI, nothing from the system
PYTHON ?= python3
RANKS ?= 16
ARGS ?=
VENV := .venv
READY := $(VENV)/.ready

# Root in a container or a CI job; Open MPI takes this from the environment only.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
# Tests and benches start hundreds of processes that import the same modules: they share what is compiled of them.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(abspath $(VENV)/bin):$(PATH)

.PHONY: run test test-hosts bench scale adaptation privacy chaos reproduce reproduce-quick browser check setup clean test-%

run: $(READY)
	mpirun -n $(RANKS) python -m deot_mpi.run $(ARGS)

test: $(READY)
	python scripts/run_tests.py

test-hosts: $(READY)
	python scripts/run_host_tests.py

# One number of ranks only: make test-4
test-%: $(READY)
	python scripts/run_tests.py --ranks $*

bench: $(READY)
	python scripts/bench.py $(ARGS)

scale: $(READY)
	python scripts/scale.py $(ARGS)

adaptation: $(READY)
	python scripts/adaptation_table.py $(ARGS)

chaos: $(READY)
	python scripts/chaos.py $(ARGS)

privacy: $(READY)
	python scripts/privacy_figure.py $(ARGS)

# Never fails: without a browser, its tests are skipped.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "no Chromium, and none could be installed: reports are not looked at"

reproduce: $(READY)
	python scripts/reproduce.py $(ARGS)

reproduce-quick: $(READY)
	python scripts/reproduce.py --quick $(ARGS)

check: $(READY)
	ruff check .
	ruff format --check .
	mypy

setup: $(READY)

$(READY): pyproject.toml scripts/configure_mpi.py $(wildcard deot_mpi/kernel/passes/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@rm -f deot_mpi/kernel/_loops*.so
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[mpi,test,check]'
	$(VENV)/bin/python scripts/configure_mpi.py
	@$(VENV)/bin/python -c 'from deot_mpi.kernel import loops; print("innermost passes:", "compiled" if loops.compiled else "in NumPy, slower (no C compiler that could build them)")'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info deot_mpi/kernel/_loops*.so
