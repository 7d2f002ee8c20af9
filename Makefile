PYTHON ?= python3
# More than there are cores on a small machine: many tests wait for a process or a lease.
TEST_PROCESSES ?= 3

BIN := .venv/bin
PYTEST := $(BIN)/pytest --numprocesses=$(TEST_PROCESSES)
# Without its extras, a pin does not bind who asks for them: older pips in hash mode then take
# psycopg[pool] for another requirement, without a version, as soon as a newer psycopg is released.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version=3.11 \
	--generate-hashes --no-strip-extras --no-emit-index-url --no-header $(LOCK_OPTIONS)

# Tests start hundreds of processes: what one has compiled, the others need not.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up deployment cluster chaos walls containers test check lint fmt docs bench build lock clean runtime dev

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

up: runtime ## Start Rota with the example jobs; Ctrl-C stops it
	@exec $(BIN)/rota up --apply examples/welcome.yaml

deployment: runtime ## Start a shop of five machines, and Rota, for the tutorial; Ctrl-C stops it
	@exec $(BIN)/python examples/deployment/site.py

cluster: dev ## Start a whole cluster on this machine; Ctrl-C stops it
	@exec $(BIN)/python tools/cluster.py

chaos: dev ## Break a cluster in every way for ten minutes, and judge it
	$(BIN)/python tools/chaos.py --minutes 10

walls: dev ## Break workers while 1,000 processes and sandboxes run; some twenty minutes
	@$(PYTHON) tools/system_packages.py busybox bwrap ip slirp4netns
	$(BIN)/pytest --long -m long -v -k "not docker and not podman" tests/system/walls

containers: dev ## Break workers and engines while 400 containers run; some thirty minutes
	@$(PYTHON) tools/system_packages.py \
		busybox docker-registry dockerd htpasswd ip podman slirp4netns
	$(BIN)/pytest --long -m long -v -k "docker or podman" tests/conformance tests/system/walls

test: lint ## Everything CI runs: all checks, all tests
	@$(PYTHON) tools/system_packages.py \
		busybox bwrap chromium chromedriver docker-registry dockerd faketime git go htpasswd ip \
		nginx openssl pgbouncer podman slirp4netns sshd
	$(PYTEST) -m "not campaign"
	$(BIN)/pytest -m campaign tests/system

check: lint ## The inner loop: all checks, fast tests
	$(PYTEST) --hypothesis-profile=quick --ignore=tests/system -m "not slow and not servers"

lint: dev ## Format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fmt: dev ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: dev ## Renew the pages and the OpenAPI snapshot that are made from the code
	$(BIN)/python tools/generate_docs.py

bench: dev ## Measure Rota beside its peers
	$(BIN)/python -m bench

build: runtime ## Build the wheel into dist/
	$(BIN)/python -m hatchling build --target wheel

lock: dev ## Renew requirements/ and the bench's peers (LOCK_OPTIONS=--upgrade for newer versions)
	$(LOCK) --output-file=requirements/dev.txt --extra=cluster --group=dev pyproject.toml
	$(LOCK) --output-file=requirements/runtime.txt --constraint=requirements/dev.txt --extra=cluster pyproject.toml
	$(LOCK) --output-file=requirements/build.txt --constraint=requirements/dev.txt --group=build
	$(LOCK) --output-file=bench/peers/requirements.txt bench/peers/requirements.in

clean: ## Remove environments, caches and build outputs; data in .rota stays
	rm -rf .venv bench/.peers .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist

runtime dev:
	@$(PYTHON) tools/bootstrap.py $@
