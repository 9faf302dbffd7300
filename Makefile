.DEFAULT_GOAL := help
.PHONY: help demo test test-consumers docs check proto pins bench-accuracy bench-footprint bench-ingest bench-query bench-page bench-fleet bench-routes bench-schedule bench-decide bench-truth bench-outages bench-hedge bench-client bench-alerts bench-attack chaos first-hour first-sight clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the demo needs, and what tests, checks and benches need in addition.
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
DOCS_STAMP := $(VENV)/.installed-docs
INSTALL := $(BIN)/python tests/tools/install_progress.py
ARGS ?=
CONSUMER_TESTS := tests/integration/isochrone tests/integration/client/gateways tests/integration/client/test_mcp.py tests/integration/collector/xds
# Some environments set it; then every process compiles all modules again, which takes longer than its start.
unexport PYTHONDONTWRITEBYTECODE
IS_NEW_ENOUGH := import sys; sys.version_info >= (3, 11) or sys.exit("Isochrone needs Python 3.11 or newer; name one with PYTHON=python3.12")

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# Everything is installed in the checkout, at the exact versions of constraints.txt; what is there already stays. An
# environment without pip, which a failure leaves, and one of an older Python are made again.
$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -c '$(IS_NEW_ENOUGH); import pip' 2> /dev/null || { $(PYTHON) -c '$(IS_NEW_ENOUGH)' && $(PYTHON) -m venv --clear $(VENV); }
	@$(INSTALL) collector,embedded 'about 540 MB'
	@touch $@

$(DEV_STAMP): $(STAMP)
	@$(INSTALL) collector,embedded,dev 'about 250 MB more'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(INSTALL) collector,embedded,docs 'about 110 MB more'
	@touch $@

demo: $(STAMP) ## run the demo: collector, agents in three regions, simulated providers (ARGS="--for 60s" or ARGS="--faults")
	@$(BIN)/isochrone demo --folder .demo $(ARGS)

test: $(DEV_STAMP) ## run all tests on all cores; tests that cannot run here are skipped with the reason (ARGS="-k name")
	@$(BIN)/python -m pytest --numprocesses=auto --dist=loadfile --no-loadscope-reorder $(ARGS)

test-consumers: $(DEV_STAMP) ## run the contract tests of gateways and SDKs, pinned and newest, and print a table (ARGS="--only newest --tools litellm")
	@PYTHONPATH=tests $(BIN)/python -m tools.consumers --numprocesses=auto --dist=loadfile $(ARGS) $(CONSUMER_TESTS)

docs: $(DOCS_STAMP) ## build the documentation site in build/site; every broken link is an error
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=tests $(BIN)/python -m mkdocs build
	@echo 'the pages are in build/site; `$(BIN)/python -m http.server --directory build/site` serves them, with their search'

check: $(DEV_STAMP) ## check lint, format, types, layering, generated code and README
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import-linter
	$(BIN)/python tests/tools/proto_drift.py
	PYTHONPATH=tests $(BIN)/python -m tools.readme_drift

proto: $(DEV_STAMP) ## regenerate the code of every .proto
	@$(BIN)/python tests/tools/proto_drift.py --write

pins: $(DEV_STAMP) ## write the hashes of packages and the digests of images in deploy/ as their registries state them; needs uv and docker
	@$(BIN)/python tests/tools/pins.py

bench-accuracy: $(DEV_STAMP) ## measurement error of the agent, compared with a typical script (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.accuracy $(ARGS)

bench-footprint: $(DEV_STAMP) ## memory and CPU of an agent at one probe per second (ARGS="--seconds 60")
	@PYTHONPATH=tests $(BIN)/python -m bench.footprint $(ARGS)

bench-ingest: $(DEV_STAMP) ## samples per second compared with raw COPY, and push latency (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.ingest $(ARGS)

bench-query: $(DEV_STAMP) ## query times over ten million samples under ingest; needs 8 GB and some minutes (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.query $(ARGS)

bench-page: $(DEV_STAMP) ## first view and load of the live page over ten million samples; needs Chromium and 9 GB (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.page $(ARGS)

bench-fleet: $(DEV_STAMP) ## a thousand agents on one collector, then a reconnect of all at once (ARGS="--agents 200")
	@PYTHONPATH=tests $(BIN)/python -m bench.fleet $(ARGS)

bench-routes: $(DEV_STAMP) ## time from the commit of samples to a thousand watchers of changed route tables (ARGS="--changes 10")
	@PYTHONPATH=tests $(BIN)/python -m bench.routes $(ARGS)

chaos: $(DEV_STAMP) ## kill processes at random and check that every sample arrives (ARGS="--kills 200 --seed 7")
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

first-hour: $(DEV_STAMP) ## what a new user does first, from a fresh clone and the pages only, on terminals of 80 and 140 columns
	@PYTHONPATH=tests $(BIN)/python -m first_hour $(ARGS)

first-sight: $(DEV_STAMP) ## what the demo shows after 10, 30, 60 and 180 s, idle and busy, seven minutes (ARGS="--part idle")
	@PYTHONPATH=tests $(BIN)/python -m first_hour.sight $(ARGS)

bench-decide: $(DEV_STAMP) ## route decisions against simple rules in worlds that change, five minutes (ARGS="--seed 7")
	@PYTHONPATH=tests $(BIN)/python -m bench.decide $(ARGS)

bench-truth: $(DEV_STAMP) ## the statistics against simulated series with known truth, about three minutes (ARGS=7: another seed)
	@PYTHONPATH=tests $(BIN)/python -m bench.truth $(ARGS)

bench-outages: $(DEV_STAMP) ## outages of real requests in four answers, 80 minutes (ARGS="--cycles 4 --speed 20")
	@PYTHONPATH=tests $(BIN)/python -m bench.outages $(ARGS)

bench-hedge: $(DEV_STAMP) ## hedged and unhedged requests under stalls; Envoy, LiteLLM: real programs; six minutes (ARGS="--seconds 60")
	@PYTHONPATH=tests $(BIN)/python -m bench.hedge $(ARGS)

bench-client: $(DEV_STAMP) ## processor time of transports beside plain httpx, of the gateway beside LiteLLM's proxy, a minute (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.client $(ARGS)

bench-alerts: $(DEV_STAMP) ## alerts on 20 injected faults and in 24 simulated quiet hours (ARGS="--hours 1 --seed 7")
	@PYTHONPATH=tests $(BIN)/python -m bench.alerts $(ARGS)

bench-attack: $(DEV_STAMP) ## attacks on a collector while agents push, seven minutes (ARGS="--quick")
	@PYTHONPATH=tests $(BIN)/python -m bench.attack $(ARGS)

bench-schedule: $(DEV_STAMP) ## punctuality of rounds of agents on two vantages (ARGS="--seconds 60")
	@PYTHONPATH=tests $(BIN)/python -m bench.schedule $(ARGS)

clean: ## remove everything that the other targets created
	rm -rf $(VENV) .cache .demo .hypothesis .pytest_cache .ruff_cache dist build
