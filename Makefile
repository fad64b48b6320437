# Requires make, a POSIX shell and Python 3.11+; everything else is downloaded into .venv and .tools. See `make help`.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv servers try-servers try-deep-servers lint format docs checks test test-unit test-integration test-system test-deep test-lowest test-matrix durations screenshots demo chaos pins dist clean

# Every command runs with the pinned tools and the same environment.
WITH := . tools/environment.sh &&
READY := .venv/.ready
PAGES := .venv/.pages

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' Makefile | expand -t 18

venv: $(READY) $(PAGES) ## create .venv from the pinned versions

$(READY): requirements/dev.txt pyproject.toml tools/bootstrap.sh
	@PYTHON="$(filter-out 3.%,$(PYTHON))" tools/bootstrap.sh
	@touch $@

# Without the pages, everything else works.
$(PAGES): $(READY) tools/pages.py $(wildcard pages/*.* pages/src/*.ts* pages/src/*/*.ts*)
	@. tools/certificates.sh && $(WITH) if python tools/pages.py; then touch $@; else echo "venv: there are no pages in Airflow's UI" >&2; fi

servers: venv ## download the Kinesis and DynamoDB servers, and Java, MariaDB and Chromium if they are missing
	@tools/servers.sh tests

# Without the servers, a test run continues and skips the tests that need them, unless CI=true.
try-servers: venv
	@tools/servers.sh tests || [ "$$CI" != true ]

lint: venv ## run ruff, mypy, the layer contracts, the dependency check, the prose check and the measure of the structure; eslint, tsc and the tests of the pages
	@$(WITH) ruff check .
	@$(WITH) ruff format --check .
	@$(WITH) mypy
	@$(WITH) lint-imports --no-cache
	@$(WITH) deptry --no-ansi .
	@$(WITH) python tools/prose.py
	@$(WITH) python tools/structure.py
	@tools/check_pages.sh

format: venv ## format the code, and fix what ruff can fix
	@$(WITH) ruff format . && ruff check --fix .

docs: venv ## build the manual into .site; warnings are errors
	@tools/mermaid.sh
	@$(WITH) mkdocs build --quiet --strict

test-unit: venv ## run the tests that need no server, in under two minutes
	@$(WITH) python -m pytest -n 3 --dist worksteal -m "not integration and not system and not deep"

# Each process runs one file or folder at a time, since its tests share servers, and starts servers of its own.
BY_FILE := python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations=40

test-integration: try-servers ## run the tests that use real services
	@$(WITH) $(BY_FILE) -m "integration and not system"

test-system: try-servers ## run the tests with a whole Airflow and Spark
	@$(WITH) $(BY_FILE) -m system

# What only the deep tests need: 750 MB.
try-deep-servers: venv
	@tools/servers.sh deep || [ "$$CI" != true ]

PART ?= jobs airflow strikes tables benchmarks

test-deep: try-deep-servers ## run the long searches, an hour for each part (PART=jobs, airflow, strikes, tables or benchmarks); resumes at the same commit
	@tools/test_deep.sh $(PART)

durations: try-servers ## record the duration of each test file, which sets the order of `make test`
	@$(WITH) $(BY_FILE) --record-durations -m "integration or system"

test-lowest: venv ## run the unit tests of the Airflow code with the lowest versions that pyproject.toml allows
	@tools/lowest.sh
	@$(WITH) PATH="$$PWD/.tools/lowest/bin:$$PATH" python -m pytest -n 3 --dist worksteal --ignore-glob '*/test_ui_fuzzing.py' \
	    -m "not integration and not system and not deep" tests/airflow tests/cli tests/test_versions.py

test-matrix: try-deep-servers ## install the wheel with each Airflow, Spark and Python, and test it there (AIRFLOW=3.1 PYTHON=3.12, SPARK=4.0, or both: one cell; AGAIN=1: also what passed)
	@. tools/certificates.sh && $(WITH) AIRFLOW="$(AIRFLOW)" SPARK="$(SPARK)" PYTHON="$(PYTHON)" AGAIN="$(AGAIN)" nice python tools/matrix.py

# The checks that need no server; they run while the servers are downloaded.
checks: lint docs
	@$(MAKE) --no-print-directory test-unit

test: venv ## run all checks and tests
	@$(MAKE) --no-print-directory --jobs=3 checks try-servers
	@$(WITH) $(BY_FILE) -m "integration or system"

screenshots: try-servers ## take the manual's screenshots again, in docs/images
	@$(WITH) SCREENSHOTS=1 python -m pytest --deep tests/system/airflow/browser/test_screenshots.py

demo: venv ## ingest a stream across a shard split and a crash (FAST=1: a tenth of the data; SINK=delta, iceberg or parquet; CLUSTER=1: on a Spark cluster; SOURCE=dynamodb: follow a table)
	@tools/servers.sh $(SOURCE)
	@$(WITH) FAST="$(FAST)" python -m demo.run $(if $(SOURCE),--source "$(SOURCE)") $(if $(SINK),--sink "$(SINK)") $(if $(filter-out 0,$(CLUSTER)),--cluster)

chaos: try-servers ## let three jobs ingest into all sinks for an hour while everything fails, then count what each sink has (MINUTES=5: shorter)
	@$(WITH) python -m benchmarks.chaos $(if $(MINUTES),--minutes "$(MINUTES)")

# The lists of each Airflow that services offer, from the index as it was when that Airflow appeared.
CONSTRAINTS := 3.1@2026-03-11T20:00:00Z 3.2@2026-04-22T09:00:00Z 3.3@2026-07-06T15:00:00Z

COMPILE := .venv/bin/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --upgrade

pins: venv ## compile requirements/*.txt: the newest compatible versions, the lowest, and those of each Airflow; and pin what the pages need
	@. tools/certificates.sh && $(WITH) python tools/pages.py --pin
	@$(COMPILE) --universal --extra spark pyproject.toml requirements/base.in -o requirements/base.txt
	@$(COMPILE) --universal --all-extras pyproject.toml requirements/dev.in -o requirements/dev.txt
	@$(COMPILE) --resolution lowest-direct --all-extras --constraint requirements/lowest.in pyproject.toml -o requirements/lowest.txt
	@$(COMPILE) --universal requirements/ministack.in -o requirements/ministack.txt
	@for name in base dev lowest ministack; do \
	    sed -i "1i # Made by \`make pins\` from pyproject.toml: do not edit." requirements/$$name.txt || exit 1; \
	done
	@for one in $(CONSTRAINTS); do \
	    name=constraints-$${one%@*}; \
	    $(COMPILE) --exclude-newer "$${one#*@}" requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	    sed -i "1i # Made by \`make pins\` from $$name.in and the package index of $${one#*@}: do not edit.\n# Stands in for Airflow's official constraints, Python 3.11 and 3.12, and has only what this package needs. The official file wins." \
	        requirements/$$name.txt || exit 1; \
	done

dist: venv ## build the wheel and the sdist of this commit in dist/, the same bytes each time, and check them
	@tools/dist.sh

clean: ## remove everything that was downloaded or built
	@rm -rf .venv .tools .demo .site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log airflow_provider_coordination/ui/static pages/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
