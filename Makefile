# The two commands of a newcomer are `make demo` and `make test`; each sets up what it needs first.
# A second run finds everything in place and starts at once.

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test test-deep setup java azurite delta-spark hadoop-aws postgres check lint types layers golden bench pins clean

demo: setup
	@. scripts/find_java.sh && $(VENV_PYTHON) scripts/demo.py

test: setup azurite delta-spark hadoop-aws postgres
	@. scripts/find_java.sh && $(VENV_PYTHON) -m pytest -n 2 --dist loadfile -m "not deep"

# What takes too long to be run after each change: the fuzzer's many cases.
test-deep: setup
	$(VENV_PYTHON) -m pytest -n 2 --dist load -m deep

setup: $(STAMP)

# Before the installation: it takes a minute, and what is missing shall be told first.
java:
	@. scripts/find_java.sh

$(STAMP): pyproject.toml constraints.txt constraints-build.txt scripts/setup.sh | java
	@scripts/setup.sh $(VENV)
	@touch $(STAMP)

# The emulator that the storage contract's tests speak to as Azure Blob Storage: an npm package, of the
# versions and hashes of its lock. Nothing of it runs while it is installed.
# Where it can't be had those tests say why they are skipped; only continuous integration insists.
AZURITE_VERSION := $(shell sed -n 's/.*"azurite": "\(.*\)".*/\1/p' tests/azurite/package.json)
azurite: $(VENV)/azurite/.installed-$(AZURITE_VERSION)

$(VENV)/azurite/.installed-$(AZURITE_VERSION): tests/azurite/package.json tests/azurite/package-lock.json | $(STAMP)
	@if command -v npm >/dev/null; then \
		echo "setup: installing the Azure emulator for the tests"; \
		rm -rf $(VENV)/azurite && mkdir -p $(VENV)/azurite && \
		cp tests/azurite/package.json tests/azurite/package-lock.json $(VENV)/azurite; \
		if npm ci --silent --no-audit --no-fund --ignore-scripts --prefix $(VENV)/azurite; \
		then touch $@; \
		elif [ -z "$$CI" ]; then echo "setup: no Azurite; its tests are skipped"; \
		else echo "setup: npm can't install Azurite" >&2; exit 1; fi; \
	fi

# Delta Spark, which the tests have read what we write, and write what we read: a Maven artifact.
DELTA_SPARK_VERSION := $(shell sed -n 's:.*<version>\(.*\..*\)</version>.*:\1:p' tests/delta_spark/pom.xml)
delta-spark: $(VENV)/delta-spark/.installed-$(DELTA_SPARK_VERSION)

$(VENV)/delta-spark/.installed-$(DELTA_SPARK_VERSION): tests/delta_spark/pom.xml | $(STAMP)
	@if command -v mvn >/dev/null; then \
		echo "setup: fetching Delta Spark for the tests"; \
		rm -rf $(VENV)/delta-spark; \
		if . scripts/find_java.sh && mvn --batch-mode --quiet -Dstyle.color=never --file tests/delta_spark/pom.xml \
			dependency:copy-dependencies -DincludeGroupIds=io.delta,io.unitycatalog \
			-DoutputDirectory="$(CURDIR)/$(VENV)/delta-spark"; \
		then touch $@; \
		elif [ -z "$$CI" ]; then echo "setup: no Delta Spark; its tests are skipped"; \
		else echo "setup: Maven can't fetch Delta Spark" >&2; exit 1; fi; \
	fi

# Spark's connector to S3, with which the tests on a cluster copy tables: Maven artifacts.
HADOOP_AWS_VERSION := $(shell sed -n '/hadoop-aws</,/version/s:.*<version>\(.*\)</version>.*:\1:p' tests/cluster/pom.xml)
hadoop-aws: $(VENV)/hadoop-aws/.installed-$(HADOOP_AWS_VERSION)

$(VENV)/hadoop-aws/.installed-$(HADOOP_AWS_VERSION): tests/cluster/pom.xml | $(STAMP)
	@if command -v mvn >/dev/null; then \
		echo "setup: fetching Spark's connector to S3 for the tests"; \
		rm -rf $(VENV)/hadoop-aws; \
		if . scripts/find_java.sh && mvn --batch-mode --quiet -Dstyle.color=never --file tests/cluster/pom.xml \
			dependency:copy-dependencies -DexcludeGroupIds=io.netty,org.slf4j,commons-codec,commons-logging \
			-DoutputDirectory="$(CURDIR)/$(VENV)/hadoop-aws"; \
		then touch $@; \
		elif [ -z "$$CI" ]; then echo "setup: no connector to S3; its tests are skipped"; \
		else echo "setup: Maven can't fetch Spark's connector to S3" >&2; exit 1; fi; \
	fi

# PostgreSQL, in which the tests keep the books of managed tables: a package of the system.
postgres:
	@scripts/postgres.sh

# What guards the house beside the tests.
check: lint types layers golden

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: setup
	$(VENV)/bin/mypy

layers: setup
	$(VENV)/bin/lint-imports

golden: setup
	$(VENV_PYTHON) -m pytest tests/golden

bench: setup
	$(VENV_PYTHON) -m benchmarks

# After a change of the dependencies.
pins: setup
	scripts/pins.sh $(VENV)

clean:
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache
