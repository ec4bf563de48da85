# Only Python and make are needed. Everything lands in .venv; PyTorch never does (see `parity`).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# uv fills every environment, from one cache and with the versions of a lock: a new release of a library changes nothing here.
# `make nox` tries the newest versions and the lowest; `make nox ARGS="-s lock"` writes the locks.
LOCK := tests/locks/main.txt
UV := .nox/runner/bin/uv
export UV_PYTHON_DOWNLOADS := never
export UV_BUILD_CONSTRAINT := $(CURDIR)/$(LOCK)
INSTALL = $(UV) pip install --quiet --constraints $(LOCK) --python

# Markers of the tests that `make test` leaves to `make test-all`; pyproject.toml says what they mean.
SLOW := slow or ray or browser or toolchain
# Two processes. One that dies ends the run: after it pytest-xdist would wait for ever.
IN_TWO := --numprocesses 2 --dist loadgroup --max-worker-restart 0
PYTEST := $(BIN)/python -m pytest $(IN_TWO) --complete

.PHONY: help demo test test-all attack lint fix docs parity gpu-dry nox release bench clean

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

# What fills environments: uv, and for `make nox` nox. nox makes one for each session below .nox, too.
.nox/runner/ready: $(LOCK)
	$(PYTHON) -m venv .nox/runner
	.nox/runner/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) uv
	touch $@

# The extras that a user installs.
$(VENV)/runtime: pyproject.toml $(LOCK) .nox/runner/ready
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) $(VENV) -e '.[cpu,default]'
	touch $@

# What the tests and checks need on top.
$(VENV)/develop: $(VENV)/runtime
	$(INSTALL) $(VENV) -e '.[cpu,openvino,default,export,parquet,xlsx,experiments,report,visil,video,ray,serve,kit]' --group test --group lint
	touch $@

demo: $(VENV)/runtime  ## set up .venv, get the embedded model and score a small story
	$(BIN)/vcs-runtime demo

test: $(VENV)/develop  ## tests of every room in about three and a half minutes
	$(BIN)/vcs-runtime fetch default
	$(PYTEST) -m 'not ($(SLOW))'

test-all: test  ## the same, then what is slow by nature: Ray, Chromium, compiling C, killed jobs, peaks of memory
	$(PYTEST) -m '$(SLOW)'

attack: $(VENV)/develop  ## ten minutes of attacks with fresh cases on every door; ARGS="-k files" attacks one
	$(BIN)/vcs-runtime warm-up
	$(PYTEST) --hypothesis-profile attack -o faulthandler_timeout=1800 -o faulthandler_exit_on_timeout=true tests/attack $(ARGS)

lint: $(VENV)/develop  ## style, size, complexity, docstrings; types; which module may import which; workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pydoclint vcs_numba runtime export/vcs_export
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/zizmor --offline --no-progress --quiet .github

fix: $(VENV)/develop  ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The manual needs the package itself, for the reference of commands and of Python.
$(VENV)/docs: $(VENV)/develop
	$(INSTALL) $(VENV) --group docs
	touch $@

docs: $(VENV)/docs  ## the manual, into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/vcs-runtime fetch default
	$(BIN)/python docs/images/make.py site/images

# What is published, built and checked in an environment of its own. Nothing is uploaded.
.venv-release/ready: pyproject.toml tests/locks/release.txt .nox/runner/ready
	$(PYTHON) -m venv .venv-release
	$(UV) pip install --quiet --constraints tests/locks/release.txt --python .venv-release --group release
	touch $@

release: .venv-release/ready  ## build, check and try what is published; ARGS=--tag tags it
	.venv-release/bin/python .ci/release.py $(ARGS)

# The oracles (reference package, PyTorch) live in an environment of their own. pip installs PyTorch: unlike uv, it takes
# a build for the CPU where pip is set up to find one, and PyPI's has 3 GB of dependencies.
.venv-parity/ready: pyproject.toml $(LOCK) .nox/runner/ready
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) torch==2.13.0
	$(INSTALL) .venv-parity -e '.[cpu,default,export,parity]' --group test
	touch $@

parity: .venv-parity/ready  ## compare with the originals, in an environment of its own with PyTorch
	.venv-parity/bin/vcs-runtime fetch default
	.venv-parity/bin/python -m pytest $(IN_TWO) tests/parity

# The real CUDA provider, without NVIDIA's packages: stand-ins take their place.
.venv-gpu/ready: pyproject.toml $(LOCK) .nox/runner/ready
	$(PYTHON) -m venv .venv-gpu
	$(INSTALL) .venv-gpu -e '.[default,export]' --group test --group gpu-dry
	touch $@

gpu-dry: .venv-gpu/ready  ## what the real CUDA provider makes of every bundle, without a GPU; needs a C compiler
	.venv-gpu/bin/vcs-runtime fetch default
	.venv-gpu/bin/python -m pytest $(IN_TWO) tests/gpu

nox: .nox/runner/ready  ## other Pythons, newest and lowest versions, the source archive; docs/development/testing.md names all sessions
	$(INSTALL) .nox/runner --group nox
	PATH="$(CURDIR)/.nox/runner/bin:$$PATH" .nox/runner/bin/nox $(ARGS)

# Each keeps its figures; then the manual's tables are written. ARGS="capi.py sanitizers" runs that one.
BENCHMARKS := "core.py parity" "core.py speed --keep" "latency.py start --keep" "segmenter.py --keep" "capi.py memory --keep"

bench: .venv-parity/ready  ## benchmarks that need no data, and the manual's tables; ARGS="capi.py sanitizers" runs one script
	.venv-parity/bin/vcs-runtime fetch default
	for script in $(if $(ARGS),"$(ARGS)",$(BENCHMARKS)); do .venv-parity/bin/python benchmarks/$$script || exit 1; done
	.venv-parity/bin/python benchmarks/tables.py

clean:  ## remove all environments and caches
	rm -rf .venv .venv-parity .venv-gpu .venv-release .nox dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
