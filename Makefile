# Everything runs in .venv, which the first target that needs it builds. Nothing has to be activated.
.DEFAULT_GOAL := help
.PHONY: help setup check test coverage nightly matrix bench lint format lock demo demo-stream docs clean java
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# Every package, also those that packages are built with, must have one of the hashes in requirements*.txt.
PIP = $(PY) -m pip install --disable-pip-version-check
# Test files are distributed over JOBS processes. Each starts a broker and a Spark and needs 3 GB. Three keep two cores busy:
# much of the time a test waits for a process to start or to end.
JOBS ?= 3
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder
# A test that hangs fails after 15 minutes, and the others go on.
BEFORE_PUSH = $(SPREAD) -m 'not nightly' --durations=20 --timeout=900 --timeout-method=signal
COVERAGE = $(PY) -m coverage
# dbt's adapter suites run dbt inside pytest's process, which can have one Spark only. Small queries do not need C2.
SUITES = SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" $(PY)
UV = .lock/bin/uv
LOCK = $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet $(ARGS)

help:
	@echo 'make check    before each commit: ruff, import contract, mypy and the tests without JVM, broker and network (1 minute)'
	@echo 'make test     before each push: lint and the tests on a real Kafka and a real Spark (25 to 40 minutes on two cores)'
	@echo '              make test ARGS="tests/functional/test_guards.py -k deletes" runs these tests only'
	@echo 'make coverage  the tests of make test, with the coverage of the package (slower)'
	@echo 'make nightly  all tests: all adapter suites of dbt, property tests with new seeds, slow fault tests, two rows of the matrix'
	@echo 'make matrix   the core of the tests with other versions of Python, dbt, Spark, Java and Kafka (docs/compatibility.md)'
	@echo 'make lint     ruff, mypy and the import contract'
	@echo 'make format   let ruff format the code'
	@echo 'make demo     a SELECT becomes a Kafka topic: build, look, change, build again, look at the difference'
	@echo 'make demo-stream  the same as a stream: results appear while events flow, for half a minute'
	@echo 'make docs     build the documentation as a site in build/site; broken links are errors'
	@echo 'make bench    benchmark against Spark and Flink, results in docs/performance (an hour, on an idle machine)'
	@echo 'make lock     pin the dependencies of pyproject.toml, with hashes, in requirements*.txt; ARGS=--upgrade for newer ones'
	@echo 'make setup    build $(VENV) only'
	@echo 'make clean    remove $(VENV) and generated files'

setup: $(READY)

check: lint
	$(PY) -m pytest tests/unit tests/fuzz --no-services -q $(ARGS)

test: lint
	$(PY) -m pytest $(or $(ARGS),$(BEFORE_PUSH))
	$(if $(ARGS),,$(SUITES) -m pytest tests/adapter_suites $(BEFORE_PUSH))

# Not part of `make test`: measuring every process that the tests start makes them slower.
coverage: lint
	$(COVERAGE) erase
	$(COVERAGE) run -m pytest $(BEFORE_PUSH)
	$(SUITES) -m coverage run -m pytest tests/adapter_suites $(BEFORE_PUSH)
	$(COVERAGE) combine --quiet
	$(COVERAGE) report --skip-covered --skip-empty

nightly: export UPSERT_KAFKA_NIGHTLY = 1
nightly: lint
	$(PY) -m pytest $(or $(ARGS),$(SPREAD))
	$(if $(ARGS),,$(SUITES) -m pytest tests/adapter_suites $(SPREAD))
	$(if $(ARGS),,$(PY) -m tests.matrix --nightly)

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m tests.import_contract
	$(PY) -m mypy

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

matrix: $(READY)
	$(PY) -m tests.matrix $(ARGS)

bench: $(READY)
	$(PY) -m benchmarks $(ARGS)

# Does not need .venv: a changed pyproject.toml would rebuild it from the old pins first.
lock: $(UV)
	$(LOCK) --extra aws --extra connect --extra dev pyproject.toml -o requirements.txt
	echo 'editables hatchling setuptools wheel' | tr ' ' '\n' | $(LOCK) - -c requirements.txt -o requirements-build.txt
	echo 'zensical<0.1' | $(LOCK) - -o requirements-docs.txt

$(UV):
	python3 -m venv .lock
	.lock/bin/python -m pip install --disable-pip-version-check --quiet uv

demo: $(READY)
	@$(PY) examples/pageviews/demo.py

demo-stream: $(READY)
	@$(PY) examples/pageviews_stream/demo.py

docs: .docs/.ready
	.docs/bin/zensical build --strict --clean

# Zensical needs a newer pathspec than dbt-core, so it can't be in the same environment.
.docs/.ready: requirements-docs.txt
	python3 -m venv --clear .docs
	.docs/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-docs.txt
	@touch $@

clean:
	rm -rf $(VENV) .lock .docs .demo .coverage .coverage.* build dist

# Spark and Kafka need Java. Check before the packages are installed, which takes minutes.
java:
	@java=$${JAVA_HOME:+"$$JAVA_HOME/bin/"}java; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)*\([0-9]*\).*/\2/p' | head -n 1); \
	if [ -z "$$version" ]; then \
		echo "Java 17 or newer is required, '$$java' was not found. Install it (for example openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; \
	elif [ "$$version" -lt 17 ]; then \
		echo "Java 17 or newer is required, '$$java' is version $$version. Install a newer one or set JAVA_HOME." >&2; exit 1; \
	fi

$(READY): pyproject.toml requirements.txt requirements-build.txt | java
	@python=; for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
		if "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "Python 3.11, 3.12 or 3.13 is required. Install one or run make PYTHON=/path/to/python." >&2; exit 1; fi; \
	echo "Building $(VENV) with $$python (takes a few minutes, once)"; \
	"$$python" -m venv --clear $(VENV)
	$(PIP) --require-hashes -r requirements-build.txt
	$(PIP) --require-hashes --no-deps --no-build-isolation -r requirements.txt
	$(PIP) --no-deps --no-build-isolation -e .
	$(VENV)/bin/upsert-kafka warm-up
	@touch $(READY)
