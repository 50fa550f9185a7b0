# `make demo` and `make test` each set up everything they need in .venv, then do their job.
PYTHON ?= python3
BIN := .venv/bin
PARALLEL := -n auto --dist loadfile
CHECKED := $(addprefix tests/,core data text features labels linear evaluation scores explain output project/test_imports.py)

.PHONY: demo test check coverage matrix wheel-test browser-test cluster-test slow lint format docs bench setup lock release audit campaign clean

demo: setup
	$(BIN)/xmtc demo

# Everything that decides whether a change lands, on all cores.
test: setup lint docs
	$(BIN)/python -m pytest $(PARALLEL)

# Lint, types and the unit tests of the packages that change most; answers within two minutes.
check: setup lint
	$(BIN)/python -m pytest $(PARALLEL) -m "not integration" $(CHECKED)

# Line and branch coverage of `make test`, of child processes too.
coverage: setup
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

matrix:
	$(PYTHON) tools/matrix.py

wheel-test:
	$(PYTHON) tools/matrix.py --python newest --versions newest -- project/test_portability.py

# The page in Chromium, which must be on this machine; without playwright and it, these tests skip themselves.
browser-test: setup
	$(BIN)/pip install --quiet --disable-pip-version-check playwright
	$(BIN)/python -m pytest tests/browser

# Clusters of several nodes on this machine; without Ray, these tests skip themselves.
cluster-test: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	$(BIN)/python -m pytest tests/cluster/test_ray_cluster.py tests/security/test_cluster_token.py

slow: setup
	$(BIN)/python -m pytest tests/slow -s

# Each of the campaigns for its share of the minutes; all are run, and what one of them finds fails the whole.
MINUTES ?= 10
SEED ?= 0
SHARE = $(shell $(PYTHON) -c "print($(MINUTES) / 7)")
CAMPAIGNS := readers folders kills faults parameters soak server

campaign: setup
	@failed=; for name in $(CAMPAIGNS); do \
	  echo "== $$name"; \
	  $(BIN)/python tests/campaigns/$$name.py --minutes $(SHARE) --seed $(SEED) || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "findings in:$$failed"; exit 1; }

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	$(BIN)/python benchmarks/tfidf.py

setup: .venv/ready

# Everything is installed by its hash but PyTorch, whose build depends on the machine.
.venv/ready: pyproject.toml requirements.lock constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m xmtc.cli.precompile
	touch .venv/ready

lock:
	$(PYTHON) tools/release.py lock

release: setup
	$(BIN)/python tools/release.py build

audit: setup
	$(BIN)/python tools/release.py audit

clean:
	rm -rf .venv build site dist
