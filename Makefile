# SPDX-License-Identifier: GPL-2.0-only
# The front door. What things do is in packaging/setup.sh, cargo and bench/.

TARGET   := $(CURDIR)/target
LAB      := $(TARGET)/lab
BENCH    := $(TARGET)/release/gpuaware-bench
PREFIX   ?= /usr/local
DESTDIR  ?=
RUNNER   := CARGO_TARGET_$(shell rustc -vV 2>/dev/null | sed -n 's/host: //p' | tr 'a-z-' 'A-Z_')_RUNNER
VM_TESTS := cargo test --release --test integration -- --ignored --test-threads=1
C_FILES   = $(shell git ls-files '*.c' '*.h' '*.cpp' '*.hpp' '*.cu')

# In CI a tier that cannot run is a failure, not a skip.
ifeq ($(CI),true)
export GPUAWARE_REQUIRE ?= host,root,vm
endif

.DEFAULT_GOAL := help
.PHONY: help setup build demo peers test lint install

help: ## Print this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing (Debian 12 or 13 as root); says what and why
	@bash packaging/setup.sh

build: setup ## Build the scheduler, the bench harness, the emulated libcuda and the workload
	cargo build --release --workspace
	$(MAKE) --no-print-directory -C bench/fakecuda OUT=$(LAB)
	$(MAKE) --no-print-directory -C bench/workloads/gpu_launch OUT=$(LAB)
	$(MAKE) --no-print-directory -C bench/workloads/pipeline OUT=$(LAB)

demo: build ## Boot the lab, compare with EEVDF, taskset+nice and isolcpus, print the table
	$(BENCH) run demo

peers: setup ## Build the sched_ext schedulers that the matrix peers compares with: six minutes, once
	@bash packaging/peers.sh

test: build ## Run every tier of tests that this machine can
	cargo test --release --workspace
	$(RUNNER)="$(BENCH) lab --timeout 1500 --" $(VM_TESTS) vm:: --skip vm::smt:: --skip vm::numa:: --skip vm::pins::
	$(RUNNER)="$(BENCH) lab --cpus 4 --smt --timeout 300 --" $(VM_TESTS) vm::smt::
	$(RUNNER)="$(BENCH) lab --cpus 8 --numa 2 --gpu-node 0 --timeout 400 --" $(VM_TESTS) vm::numa:: vm::pins::

lint: setup ## Check formatting and lints: rustfmt, clippy, clang-format, shellcheck
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release -- -D warnings
	clang-format-19 --dry-run --Werror $(C_FILES)
	shellcheck packaging/*.sh .ci/run tests/data/sysfs/record.sh

install: ## Install scx_gpuaware below PREFIX (after make build)
	install -D -m 755 $(TARGET)/release/scx_gpuaware $(DESTDIR)$(PREFIX)/bin/scx_gpuaware
