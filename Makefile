# Only Python and make are needed. Everything lands in .venv; PyTorch never does (see `parity`).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint fix types parity triton spark llama bench clean

# The runtime as a user installs it.
$(VENV)/runtime: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[cpu,default]'
	touch $@

# What the tests and checks need on top.
$(VENV)/develop: $(VENV)/runtime
	$(BIN)/python -m pip install --quiet -e '.[cpu,default,export,parquet,experiments,report,visil,video,ray]' --group test --group lint
	touch $@

demo: $(VENV)/runtime
	$(BIN)/vcs-runtime demo

test: $(VENV)/develop
	$(BIN)/vcs-runtime fetch default
	$(BIN)/python -m pytest

lint: $(VENV)/develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

fix: $(VENV)/develop
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/develop
	$(BIN)/mypy

# The oracles (reference package, PyTorch) live in an environment of their own.
.venv-parity/ready: pyproject.toml
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet --upgrade pip
	.venv-parity/bin/python -m pip install --quiet torch==2.13.0
	.venv-parity/bin/python -m pip install --quiet -e '.[cpu,default,export,parity]' --group test
	touch $@

parity: .venv-parity/ready
	.venv-parity/bin/vcs-runtime fetch default
	.venv-parity/bin/python -m pytest tests/parity

# Spark itself: 400 MB, and it needs Java.
.venv-spark/ready: pyproject.toml
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip install --quiet --upgrade pip
	.venv-spark/bin/python -m pip install --quiet -e '.[cpu,default,export]' --group test 'pyspark[sql]>=3.4'
	touch $@

spark: .venv-spark/ready
	.venv-spark/bin/python -m pytest tests/spark

# llama-cpp-python's server. Its wheel is built here: a quarter of an hour on two cores, once.
.venv-llama/ready: pyproject.toml
	$(PYTHON) -m venv .venv-llama
	.venv-llama/bin/python -m pip install --quiet --upgrade pip
	CMAKE_ARGS=-DLLAVA_BUILD=OFF .venv-llama/bin/python -m pip install --quiet -e '.[cpu,default]' --group llama --group test
	touch $@

llama: .venv-llama/ready
	.venv-llama/bin/python -m pytest tests/llama

# The real Triton server, out of a wheel that lags behind: only what starts the server is taken from it, without
# its dependencies, but its Python backend is from before NumPy 2.
.venv-triton/ready: pyproject.toml
	$(PYTHON) -m venv .venv-triton
	.venv-triton/bin/python -m pip install --quiet --upgrade pip
	.venv-triton/bin/python -m pip install --quiet -e '.[cpu,default,export]' --group test 'tritonclient[grpc,http]' 'numpy<2'
	.venv-triton/bin/python -m pip install --quiet --no-deps nvidia-pytriton
	touch $@

triton: .venv-triton/ready
	.venv-triton/bin/python -m pytest tests/triton

bench: .venv-parity/ready
	.venv-parity/bin/python benchmarks/core.py

clean:
	rm -rf .venv .venv-parity .venv-triton .venv-spark .venv-llama dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
