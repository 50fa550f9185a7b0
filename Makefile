# `make demo` and `make test` each set up everything they need in .venv, then do their job.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test matrix wheel-test slow lint format docs bench setup lock release audit clean

demo: setup
	$(BIN)/xmtc demo

test: setup lint docs
	$(BIN)/python -m pytest

matrix:
	$(PYTHON) tools/matrix.py

wheel-test:
	$(PYTHON) tools/matrix.py --python newest --versions newest -- test_portability.py

slow: setup
	$(BIN)/python -m pytest tests/slow -s

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup
	$(BIN)/python benchmarks/tfidf.py

setup: .venv/ready

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]'
	$(BIN)/python -m xmtc.cli.warm
	touch .venv/ready

lock:
	$(PYTHON) tools/release.py lock

release: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[release]'
	$(BIN)/python tools/release.py build

audit: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[release]'
	$(BIN)/python tools/release.py audit

clean:
	rm -rf .venv build site dist
