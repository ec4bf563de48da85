# Only Python and make are needed. Everything lands in .venv; PyTorch never does (see `parity`).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Markers of the tests that `make test` leaves to `make test-all`; pyproject.toml says what they mean.
SLOW := slow or ray or browser or toolchain
# A process that dies ends the run: after it pytest-xdist would wait for ever.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --max-worker-restart 0 --complete

.PHONY: help demo test test-all attack lint fix docs release types parity optimum gpu-dry versions deepeval triton spark llama bench clean

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

# The runtime as a user installs it.
$(VENV)/runtime: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[cpu,default]'
	touch $@

# What the tests and checks need on top.
$(VENV)/develop: $(VENV)/runtime
	$(BIN)/python -m pip install --quiet -e '.[cpu,openvino,default,export,parquet,xlsx,experiments,report,visil,video,ray,serve,kit]' --group test --group lint
	touch $@

demo: $(VENV)/runtime  ## set up .venv, get the embedded model and score a small story
	$(BIN)/vcs-runtime demo

test: $(VENV)/develop  ## tests of every room in about three minutes
	$(BIN)/vcs-runtime fetch default
	$(BIN)/vcs-runtime warm-up
	$(PYTEST) -m 'not ($(SLOW))'

test-all: test  ## the same, then what is slow by nature: Ray, Chromium, compiling C, killed jobs, peaks of memory
	$(PYTEST) -m '$(SLOW)'

attack: $(VENV)/develop  ## ten minutes of attacks with fresh cases on every door; ARGS="-k files" attacks one
	$(BIN)/vcs-runtime warm-up
	$(PYTEST) --hypothesis-profile attack -o faulthandler_timeout=1800 -o faulthandler_exit_on_timeout=true tests/attack $(ARGS)

lint: $(VENV)/develop  ## style, size, complexity, docstrings; which module may import which; workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pydoclint vcs_numba runtime export/vcs_export
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
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

docs: $(VENV)/docs  ## the manual, into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What is published, built and checked in an environment of its own. Nothing is uploaded.
.venv-release/ready: pyproject.toml
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --upgrade pip
	.venv-release/bin/python -m pip install --quiet --group release
	touch $@

release: .venv-release/ready  ## build, check and try what is published; ARGS=--tag tags it
	.venv-release/bin/python .ci/release.py $(ARGS)

types: $(VENV)/develop  ## mypy, strict
	$(BIN)/mypy

# The oracles (reference package, PyTorch) live in an environment of their own.
.venv-parity/ready: pyproject.toml
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet --upgrade pip
	.venv-parity/bin/python -m pip install --quiet torch==2.13.0
	.venv-parity/bin/python -m pip install --quiet -e '.[cpu,default,export,parity]' --group test
	touch $@

parity: .venv-parity/ready  ## compare with the originals, in an environment of its own with PyTorch
	.venv-parity/bin/vcs-runtime fetch default
	.venv-parity/bin/python -m pytest tests/parity

# optimum wants a transformers below 4.58, and the oracles one from 5 on: two environments.
.venv-optimum/ready: pyproject.toml
	$(PYTHON) -m venv .venv-optimum
	.venv-optimum/bin/python -m pip install --quiet --upgrade pip
	.venv-optimum/bin/python -m pip install --quiet torch==2.13.0
	.venv-optimum/bin/python -m pip install --quiet 'transformers<4.58' optimum-onnx onnxruntime
	touch $@

optimum: .venv-parity/ready .venv-optimum/ready  ## export by optimum beside PyTorch, in an environment of its own
	VCS_RUNTIME_OPTIMUM_PYTHON="$(CURDIR)/.venv-optimum/bin/python" .venv-parity/bin/python -m pytest tests/parity/test_encoders.py -k optimum

# The real CUDA provider, without NVIDIA's packages: stand-ins take their place. It is the release whose kernels,
# placement and memory the tests expect.
.venv-gpu/ready: pyproject.toml
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --upgrade pip
	.venv-gpu/bin/python -m pip install --quiet onnxruntime-gpu==1.31.1 tensorrt-cu13-bindings==10.16.1.11
	.venv-gpu/bin/python -m pip install --quiet -e '.[default,export]' --group test
	touch $@

gpu-dry: .venv-gpu/ready  ## what the real CUDA provider makes of every bundle, without a GPU; needs a C compiler
	.venv-gpu/bin/vcs-runtime fetch default
	.venv-gpu/bin/python -m pytest tests/gpu

# nox makes an environment for each session. A Python that is missing is skipped, and nox says so.
.venv-versions/ready: pyproject.toml
	$(PYTHON) -m venv .venv-versions
	.venv-versions/bin/python -m pip install --quiet --upgrade pip
	.venv-versions/bin/python -m pip install --quiet --group versions
	touch $@

versions: .venv-versions/ready  ## each Python there is, the lowest versions of all dependencies, the source archive; ARGS="-s lowest" runs one
	PATH="$(CURDIR)/.venv-versions/bin:$$PATH" .venv-versions/bin/nox $(ARGS)

# DeepEval wants older versions of what other oracles use, and brings a pytest plugin that reports every run.
.venv-deepeval/ready: pyproject.toml
	$(PYTHON) -m venv .venv-deepeval
	.venv-deepeval/bin/python -m pip install --quiet --upgrade pip
	.venv-deepeval/bin/python -m pip install --quiet -e '.[cpu,default]' 'deepeval>=3'
	touch $@

deepeval: .venv-deepeval/ready  ## the metric for DeepEval, in an environment of its own
	DEEPEVAL_TELEMETRY_OPT_OUT=1 .venv-deepeval/bin/python -m pytest -p no:deepeval -p no:asyncio tests/deepeval

# Spark itself: 400 MB, and it needs Java.
.venv-spark/ready: pyproject.toml
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip install --quiet --upgrade pip
	.venv-spark/bin/python -m pip install --quiet -e '.[cpu,default,export]' --group test 'pyspark[sql]>=3.4'
	touch $@

spark: .venv-spark/ready  ## Spark itself, in an environment of its own; needs Java
	.venv-spark/bin/vcs-runtime fetch default
	.venv-spark/bin/python -m pytest tests/spark

# llama-cpp-python's server. Its wheel is built here: a quarter of an hour on two cores, once.
.venv-llama/ready: pyproject.toml
	$(PYTHON) -m venv .venv-llama
	.venv-llama/bin/python -m pip install --quiet --upgrade pip
	CMAKE_ARGS=-DLLAVA_BUILD=OFF .venv-llama/bin/python -m pip install --quiet -e '.[cpu,default]' --group llama --group test
	touch $@

llama: .venv-llama/ready  ## ViSIL with a real llama.cpp server, which is built first: a quarter of an hour
	.venv-llama/bin/python -m pytest tests/llama

# The real Triton server, out of a wheel that lags behind: only what starts the server is taken from it, without
# its dependencies, but its Python backend is from before NumPy 2.
.venv-triton/ready: pyproject.toml
	$(PYTHON) -m venv .venv-triton
	.venv-triton/bin/python -m pip install --quiet --upgrade pip
	.venv-triton/bin/python -m pip install --quiet -e '.[cpu,default,export]' --group test 'tritonclient[grpc,http]' 'numpy<2'
	.venv-triton/bin/python -m pip install --quiet --no-deps nvidia-pytriton
	touch $@

triton: .venv-triton/ready  ## a real Triton server, in an environment of its own
	.venv-triton/bin/vcs-runtime fetch default
	.venv-triton/bin/python -m pytest tests/triton

# Each keeps its figures; then the manual's tables are written. ARGS="capi.py sanitizers" runs that one.
BENCHMARKS := "core.py parity" "core.py speed --keep" "latency.py start --keep" "segmenter.py --keep" "capi.py memory --keep"

bench: .venv-parity/ready  ## benchmarks that need no data, and the manual's tables; ARGS="capi.py sanitizers" runs one script
	.venv-parity/bin/vcs-runtime fetch default
	for script in $(if $(ARGS),"$(ARGS)",$(BENCHMARKS)); do .venv-parity/bin/python benchmarks/$$script || exit 1; done
	.venv-parity/bin/python benchmarks/tables.py

clean:  ## remove all environments and caches
	rm -rf .venv .venv-parity .venv-optimum .venv-gpu .venv-versions .nox .venv-deepeval .venv-triton .venv-spark .venv-llama .venv-release dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
