# SPDX-License-Identifier: GPL-2.0-only
# The front door. What things do is in packaging/setup.sh, cargo and bench/.

TARGET   := $(CURDIR)/target
LAB      := $(TARGET)/lab
BENCH    := $(TARGET)/release/gpuaware-bench
DIST     := $(TARGET)/dist
CARGO_DEB := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/scx_gpuaware/cargo-deb/bin/cargo-deb
PREFIX   ?= /usr/local
# What `scx_gpuaware --version` says beside the version.
export GPUAWARE_REVISION := $(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)
DESTDIR  ?=
# What make test-full tries the scheduler on: each series that the distribution has complete from 6.16 on, and its newest.
KERNELS  ?= 6.16 6.17 6.18 7.3
# As in the package: Cargo.toml.
DOCUMENTS = docs/*.md docs/decisions/*.md docs/pictures/seed-*.svg scheds/policies/*.toml hints/gpuaware.* \
            packaging/grafana/*.json bench/workloads/llm_*/README.md
C_FILES   = $(shell git ls-files '*.c' '*.h' '*.cpp' '*.hpp' '*.cu')

.DEFAULT_GOAL := help
.PHONY: help setup build demo peers vllm ray arm64 results test test-full lint deb install uninstall

help: ## Print this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing (Debian 12 or 13 as root), elsewhere name it; says what and why
	@bash packaging/setup.sh

build: setup ## Build the scheduler, the bench harness, the emulated libcuda and the workload
	cargo build --release --workspace
	$(MAKE) --no-print-directory -C bench/fakecuda OUT=$(LAB)
	$(MAKE) --no-print-directory -C bench/workloads/gpu_launch OUT=$(LAB)
	$(MAKE) --no-print-directory -C bench/workloads/vllm_emulated OUT=$(LAB)

demo: build ## Boot the lab, compare with EEVDF, taskset+nice and isolcpus, print the table
	$(BENCH) run demo

peers: setup ## Build the sched_ext schedulers that the matrix peers compares with: six minutes, once
	@bash packaging/peers.sh

vllm: build ## Install vLLM for CPUs, whose worker launches as a model on a GPU would: 6 GB, two minutes, once
	@bash packaging/vllm.sh

ray: build ## Install Ray Serve, on which pipelines run on several hosts: half a gigabyte, a minute, once
	@bash packaging/ray.sh

arm64: build ## Compile the scheduler for arm64 as well, which has run nowhere yet: three minutes, and what that takes once
	@bash packaging/arm64.sh

results: build ## Write docs/results.md and README's figures anew, from the runs that bench/runs/index.toml lists
	$(BENCH) results

test: deb ## Run every tier of tests that this machine can
	@bash tests/run.sh

test-full: deb ## The same at full length, the lab's part on each of the kernels KERNELS: some hours
	@GPUAWARE_FULL=1 bash tests/run.sh $(KERNELS)

lint: setup ## Check formatting and lints: rustfmt, clippy, clang-format, shellcheck
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release -- -D warnings
	clang-format-19 --dry-run --Werror $(C_FILES)
	shellcheck packaging/*.sh bench/*.sh packaging/debian/postrm .ci/run tests/*.sh tests/data/sysfs/record.sh fuzz/run.sh

deb: build ## Build the Debian package into target/debian
	$(TARGET)/release/scx_gpuaware generate $(DIST)
	rm -f $(TARGET)/debian/*.deb
	$(CARGO_DEB) --no-build --strip --quiet

install: ## Install below PREFIX: program, man pages, completions, service, documents; /etc stays as it is (after make build)
	$(TARGET)/release/scx_gpuaware generate $(DIST)
	install -D -m 755 $(TARGET)/release/scx_gpuaware $(DESTDIR)$(PREFIX)/bin/scx_gpuaware
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(DIST)/man/*.1
	install -D -m 644 $(DIST)/completions/scx_gpuaware.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/scx_gpuaware
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(DIST)/completions/scx_gpuaware.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DIST)/completions/_scx_gpuaware
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system packaging/scx_gpuaware.service
	sed -i 's|/usr/bin/scx_gpuaware|$(PREFIX)/bin/scx_gpuaware|' $(DESTDIR)$(PREFIX)/lib/systemd/system/scx_gpuaware.service
	install -d $(DESTDIR)$(PREFIX)/share/doc/scx-gpuaware
	cp --parents -t $(DESTDIR)$(PREFIX)/share/doc/scx-gpuaware $(DOCUMENTS)
	test -e $(DESTDIR)/etc/scx_gpuaware/policy.toml || { install -D -m 644 packaging/policy.toml $(DESTDIR)/etc/scx_gpuaware/policy.toml && \
		sed -i 's|/usr/share/doc|$(PREFIX)/share/doc|' $(DESTDIR)/etc/scx_gpuaware/policy.toml; }
	test -e $(DESTDIR)/etc/default/scx_gpuaware || install -D -m 644 packaging/scx_gpuaware.default $(DESTDIR)/etc/default/scx_gpuaware

uninstall: ## Remove what make install has put below PREFIX; /etc stays
	rm -f $(DESTDIR)$(PREFIX)/bin/scx_gpuaware $(DESTDIR)$(PREFIX)/share/man/man1/scx_gpuaware*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/scx_gpuaware
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/scx_gpuaware.fish
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_scx_gpuaware
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/scx_gpuaware.service
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/scx-gpuaware
