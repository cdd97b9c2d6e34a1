# Needs Python >= 3.11, git and make; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test soak lint format bench clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "overnight needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/overnight demo

test: $(READY)
	$(BIN)/python -m pytest -m "not soak" -n 2 --dist loadfile

soak: $(READY)
	$(BIN)/python -m pytest -m soak -n 2 --dist worksteal --timeout 1500

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks.night
	$(BIN)/python -m benchmarks.log
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.dispatcher

clean:
	rm -rf $(VENV) build *.egg-info
