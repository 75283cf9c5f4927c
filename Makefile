# Everything runs in .venv, which the first target that needs it builds; nothing has to be activated.
.DEFAULT_GOAL := help
.PHONY: help setup test suites fuzz bench lint format lock demo clean java
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# Nothing is installed that has not one of the hashes in requirements*.txt; that goes for what packages are built with, too.
PIP = $(PY) -m pip install --disable-pip-version-check
# dbt's own suites run dbt in this process, with a Spark of their own; a JVM for small queries needs no best compiler.
SUITES = SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" $(PY) -m pytest tests/adapter_suites
LOCK = $(VENV)/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet $(ARGS)
# Test files are spread over as many processes, each with a broker and a Spark of its own (3 GB).
JOBS ?= 2
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder

help:
	@echo 'make demo    a model becomes a Kafka topic: seed, run, test, change, run again'
	@echo 'make test    lint, types and the tests, on a real Kafka and a real Spark; with ARGS=… those only'
	@echo 'make suites  the adapter suites of dbt itself, those that take long as well (ten minutes)'
	@echo 'make fuzz    hostile options, profiles and messages, 100,000 and more (half an hour)'
	@echo 'make bench   speed against bare Spark and Flink, into docs/performance (half an hour, on a calm machine)'
	@echo 'make lint    ruff and mypy'
	@echo 'make format  let ruff write the layout'
	@echo 'make lock    pin what pyproject.toml asks for, with hashes, into requirements*.txt'
	@echo 'make setup   build $(VENV) only'
	@echo 'make clean   remove $(VENV) and what the demo left'

setup: $(READY)

test: lint
	$(PY) -m pytest $(or $(ARGS),$(SPREAD))
	$(if $(ARGS),,$(SUITES) $(SPREAD) -m 'not lengthy')

suites: $(READY)
	$(SUITES) $(SPREAD) $(ARGS)

fuzz: $(READY)
	UPSERT_KAFKA_FUZZ=10000 $(PY) -m pytest tests/fuzz $(ARGS)

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(READY)
	$(PY) -m benchmarks $(ARGS)

# Keeps the pins that there are; say ARGS=--upgrade for newer ones.
lock: $(READY)
	$(PY) -m pip install --quiet uv
	$(LOCK) --extra connect --extra dev pyproject.toml -o requirements.txt
	echo 'editables hatchling setuptools wheel' | tr ' ' '\n' | $(LOCK) - -c requirements.txt -o requirements-build.txt

demo: $(READY)
	@$(PY) examples/pageviews/demo.py

clean:
	rm -rf $(VENV) .demo build dist

# Spark and Kafka need Java; better said now than after two minutes of installing.
java:
	@java=$${JAVA_HOME:+"$$JAVA_HOME/bin/"}java; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)*\([0-9]*\).*/\2/p' | head -n 1); \
	if [ -z "$$version" ]; then \
		echo "Java 17 or newer is needed and '$$java' was not found: install it (for example openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; \
	elif [ "$$version" -lt 17 ]; then \
		echo "Java 17 or newer is needed and '$$java' is version $$version: install a newer one or set JAVA_HOME" >&2; exit 1; \
	fi

$(READY): pyproject.toml requirements.txt requirements-build.txt | java
	@python=; for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
		if "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "Python 3.11, 3.12 or 3.13 is needed and was not found: install one or say make PYTHON=/path/to/python" >&2; exit 1; fi; \
	echo "Building $(VENV) with $$python (a few minutes, once)"; \
	"$$python" -m venv --clear $(VENV)
	$(PIP) --require-hashes -r requirements-build.txt
	$(PIP) --require-hashes --no-deps --no-build-isolation -r requirements.txt
	$(PIP) --no-deps --no-build-isolation -e .
	$(VENV)/bin/upsert-kafka warm-up
	@touch $(READY)
