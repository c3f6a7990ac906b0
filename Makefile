# Begin with `make demo` or `make test`; each first installs what it needs. A second run starts at once.

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# Images of containers often set it. The tests start hundreds of processes of Python: each would compile all that
# it imports, which takes longer than to run it, if Airflow is among that.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-deep setup java azurite delta-spark hadoop-aws yarn-minicluster cloud-providers postgres spark-classes check lint types layers golden docs bench pins clean

demo: setup
	@. scripts/find_java.sh && $(VENV_PYTHON) scripts/demo.py

test: setup azurite delta-spark hadoop-aws postgres spark-classes
	@. scripts/find_java.sh && $(VENV_PYTHON) -m pytest -n 2 --dist loadfile -m "not deep"

# Tests that take too long to run after each change: many cases of the fuzzer and of races, killed processes,
# more tables for Delta Spark, DAGs whose tasks start Spark, and most jobs on a cluster, all those on YARN.
test-deep: setup azurite delta-spark hadoop-aws yarn-minicluster cloud-providers postgres spark-classes
	@. scripts/find_java.sh && $(VENV_PYTHON) -m pytest -n 2 --dist loadfile -m deep \
		$$(grep -rlE "mark\.deep|deep_but_for" tests --include="test_*.py")

setup: $(STAMP)

# Before the installation, which takes a minute, so that a missing Java is reported first.
java:
	@. scripts/find_java.sh

$(STAMP): pyproject.toml constraints.txt constraints-build.txt scripts/setup.sh | java
	@scripts/setup.sh $(VENV)
	@touch $(STAMP)

# Azurite, the emulator of Azure Blob Storage for the storage tests: an npm package with the versions and hashes
# of its lock file. Its install scripts don't run. If it can't be installed, its tests are skipped and say why;
# in continuous integration this is an error.
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

# Delta Spark, a Maven artifact: in the tests it reads the engine's tables, and writes tables for the engine.
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

# Spark's connector to S3, Maven artifacts, for the tests that copy tables on a cluster.
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

# Hadoop's YARN cluster in one JVM, Maven artifacts, for the deep tests of deploy mode cluster.
YARN_VERSION := $(shell sed -n '/hadoop-client-minicluster</,/version/s:.*<version>\(.*\)</version>.*:\1:p' tests/yarn/pom.xml)
yarn-minicluster: $(VENV)/yarn-minicluster/.installed-$(YARN_VERSION)

$(VENV)/yarn-minicluster/.installed-$(YARN_VERSION): tests/yarn/pom.xml | $(STAMP)
	@if command -v mvn >/dev/null; then \
		echo "setup: fetching Hadoop's YARN cluster for the tests"; \
		rm -rf $(VENV)/yarn-minicluster; \
		if . scripts/find_java.sh && mvn --batch-mode --quiet -Dstyle.color=never --file tests/yarn/pom.xml \
			dependency:copy-dependencies -DoutputDirectory="$(CURDIR)/$(VENV)/yarn-minicluster"; \
		then touch $@; \
		elif [ -z "$$CI" ]; then echo "setup: no YARN cluster; its tests are skipped"; \
		else echo "setup: Maven can't fetch Hadoop's YARN cluster" >&2; exit 1; fi; \
	fi

# Airflow's providers for Amazon, Google and Azure, for the deep tests of their logins. They aren't installed into
# the environment, because all other tests shall run without them.
CLOUD_PROVIDERS_LOCKS := tests/cloud_providers/libraries.txt tests/cloud_providers/providers.txt
cloud-providers: $(VENV)/cloud-providers/.installed

$(VENV)/cloud-providers/.installed: $(CLOUD_PROVIDERS_LOCKS) | $(STAMP)
	@echo "setup: installing the clouds' providers for the tests"
	@rm -rf $(VENV)/cloud-providers
	@if $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--only-binary :all: --target $(VENV)/cloud-providers $(CLOUD_PROVIDERS_LOCKS:%=--requirement %); \
		then touch $@; \
		elif [ -z "$$CI" ]; then echo "setup: no providers of the clouds; their tests are skipped"; \
		else echo "setup: pip can't install the clouds' providers" >&2; exit 1; fi

# PostgreSQL, a system package: the commit store of managed tables in the tests.
postgres:
	@scripts/postgres.sh

# An archive of the classes that Spark loads, with which the JVMs of the tests start in half the time.
spark-classes: $(VENV)/spark-classes.jsa

$(VENV)/spark-classes.jsa: $(STAMP) scripts/spark_classes.py
	@echo "setup: writing an archive of Spark's classes for the tests"
	@. scripts/find_java.sh && $(VENV_PYTHON) scripts/spark_classes.py $@ >$@.log 2>&1 || \
		echo "setup: no archive ($@.log says why); the tests' JVMs start more slowly"

# All checks other than the tests.
check: lint types layers golden docs

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: setup
	$(VENV)/bin/mypy

layers: setup
	$(VENV)/bin/lint-imports

golden: setup
	$(VENV_PYTHON) -m pytest tests/golden

# The site in build/docs. Broken links and faulty docstrings are errors. Airflow, which is imported for the docstrings,
# writes files to its home.
docs: setup
	@AIRFLOW_HOME=$(CURDIR)/build/airflow $(VENV_PYTHON) -m sphinx --fail-on-warning --keep-going --quiet \
		--conf-dir docs --doctree-dir build/doctrees . build/docs
	@echo "docs: build/docs/index.html"

bench: setup
	$(VENV_PYTHON) -m benchmarks

# After a change of the dependencies.
pins: setup
	scripts/pins.sh $(VENV)

clean:
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache
