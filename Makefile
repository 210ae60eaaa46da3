# Every target sets up what it needs by itself; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

SLUICE_DEMO_PROFILE ?= release

.PHONY: help setup build demo demo-inspect demo-routers demo-subscribers demo-vm test test-vm lab fmt fuzz sanitize soak nightly audit bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (Debian packages, cargo tools), and say so
	@scripts/setup

build: setup ## Build the binaries `sluice` and `sluice-bench`, optimised
	cargo build --release --locked -p sluice -p sluice-bench

demo: setup ## Show the main job on real traffic, in namespaces of its own
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo --profile $(SLUICE_DEMO_PROFILE)

demo-inspect: setup ## Show a bridge that inspects: what a rule drops, what crosses, and the assist under load
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-inspect --profile $(SLUICE_DEMO_PROFILE)

demo-routers: setup ## Show three virtual routers with FRR: a link is cut, a daemon killed, a router goes, and nobody else notices
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-routers --profile $(SLUICE_DEMO_PROFILE)

demo-subscribers: setup ## Show sites behind an access switch: addresses by DHCP, a virtual MAC each, servers killed, the gateway restarted
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-subscribers --profile $(SLUICE_DEMO_PROFILE)

demo-vm: setup ## Show a virtual machine as gateway: its cards bound, checked and driven by Sluice, and a link that is pulled
	@scripts/setup vm
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-vm --profile $(SLUICE_DEMO_PROFILE)

test: setup ## Run every test (TESTS="format unit" runs only these steps)
	@scripts/test $(TESTS)

lab: setup ## Run the system tests alone (LAB="-k ping" is passed to pytest)
	cargo build --locked -p sluice
	@lab/run-tests $(LAB)

test-vm: setup ## Run the tests with virtual machines alone (VM="-k bond" is passed to pytest)
	@scripts/setup vm
	cargo build --locked -p sluice
	@lab/run-vm-tests $(VM)

fmt: ## Format the code
	cargo fmt --all

fuzz: ## Fuzz each target for FUZZ_SECONDS (60), or only TARGET (nightly Rust)
	@scripts/setup fuzz
	@scripts/fuzz $(TARGET)

sanitize: ## AddressSanitizer and Miri over the crates without devices (nightly Rust)
	@scripts/setup sanitize
	@scripts/sanitize

soak: setup ## Properties of SEED (drawn) and on, ROUNDS (4) times; CONVERSATIONS (1000000) through inspection, STEPS (50000) of routes against the kernel, traffic for SECONDS (600)
	@SEED=$(SEED) ROUNDS=$(ROUNDS) scripts/properties
	cargo build --release --locked -p sluice
	SLUICE_CONVERSATIONS=$(or $(CONVERSATIONS),1000000) cargo test --release --locked -p sluice-inspect --test conversations
	SLUICE_ROUTE_SEED=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') SLUICE_ROUTE_STEPS=$(or $(STEPS),50000) \
	lab/run-tests --profile release -k kernel_table
	@lab/soak --profile release --seconds $(or $(SECONDS),600)

nightly: ## What a night is long enough for: soak with 32 ROUNDS, fuzz with 600 FUZZ_SECONDS
	$(MAKE) soak ROUNDS=$(or $(ROUNDS),32)
	$(MAKE) fuzz FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600)

audit: setup ## Known advisories against the dependencies (wants the network)
	cargo deny check advisories

bench: setup ## Measure with every bench and render it (QUICK=1 for a short run; SIGNATURES=FILE for what inspects)
	cargo build --release --locked -p sluice -p sluice-bench
	scripts/bench

clean: ## Remove what was built
	cargo clean
	rm -rf fuzz/target
