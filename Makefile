.DEFAULT_GOAL := help
.PHONY: help demo test check proto schema bench-accuracy bench-footprint bench-ingest bench-query bench-fleet bench-routes bench-schedule chaos clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# Everything is installed into the checkout, at the exact versions of constraints.txt.
$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[collector,embedded,dev]'
	@touch $@

demo: $(STAMP) ## collector, agents in three regions and a simulated world, here and now (ARGS="--for 60s")
	@$(BIN)/isochrone demo --folder .demo $(ARGS)

test: $(STAMP) ## all tests; what cannot run here is skipped with the reason (ARGS="-k name")
	@$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## lint, format, types, layering, generated code, README drift
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import-linter
	$(BIN)/python tests/tools/proto_drift.py
	$(BIN)/python tests/tools/readme_drift.py

proto: $(STAMP) ## regenerate the code beside every .proto
	@$(BIN)/python tests/tools/proto_drift.py --write

schema: $(STAMP) ## regenerate migrations/isochrone_migrations/schema.sql from the migrations
	@$(BIN)/python tests/tools/schema_picture.py --write

bench-accuracy: $(STAMP) ## how wrong is the agent, beside the usual script (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.accuracy $(ARGS)

bench-footprint: $(STAMP) ## memory and CPU of an agent at one probe a second (ARGS="--seconds 60")
	@PYTHONPATH=tests $(BIN)/python -m bench.footprint $(ARGS)

bench-ingest: $(STAMP) ## samples a second beside raw COPY of the same rows, and how long a push waits (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.ingest $(ARGS)

bench-query: $(STAMP) ## answers out of ten million samples while more arrive; takes 8 GB and some minutes (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.query $(ARGS)

bench-fleet: $(STAMP) ## a thousand agents on one collector, then all of them again at once (ARGS="--agents 200")
	@PYTHONPATH=tests $(BIN)/python -m bench.fleet $(ARGS)

bench-routes: $(STAMP) ## from the commit of samples to a thousand watchers of the tables that they change (ARGS="--changes 10")
	@PYTHONPATH=tests $(BIN)/python -m bench.routes $(ARGS)

chaos: $(STAMP) ## kill everything at random and count what arrives (ARGS="--kills 200 --seed 7")
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

bench-schedule: $(STAMP) ## how punctually agents of two vantages begin their rounds (ARGS="--seconds 60")
	@PYTHONPATH=tests $(BIN)/python -m bench.schedule $(ARGS)

clean: ## remove everything the other targets made
	rm -rf $(VENV) .cache .demo .hypothesis .pytest_cache .ruff_cache dist build
