# Every target installs the tools that it needs; `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

SLUICE_DEMO_PROFILE ?= release

.PHONY: help setup build demo demo-inspect demo-routers demo-subscribers demo-vm test test-vm lab fmt fuzz sanitize soak nightly audit bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install missing Debian packages and cargo tools, and report them
	@scripts/setup

build: setup ## Build the optimised binaries `sluice` and `sluice-bench`
	cargo build --release --locked -p sluice -p sluice-bench

demo: setup ## Show address translation with real traffic, in separate namespaces
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo --profile $(SLUICE_DEMO_PROFILE)

demo-inspect: setup ## Show an inspecting bridge: dropped and accepted traffic, and the assist under load
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-inspect --profile $(SLUICE_DEMO_PROFILE)

demo-routers: setup ## Show three virtual routers with FRR: a link is cut, a daemon killed, a router removed, without an effect on others
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-routers --profile $(SLUICE_DEMO_PROFILE)

demo-subscribers: setup ## Show sites behind an access switch: addresses by DHCP, virtual MACs, servers killed, the gateway restarted
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-subscribers --profile $(SLUICE_DEMO_PROFILE)

demo-vm: setup ## Show a virtual machine as gateway: Sluice binds, checks and drives its cards, and a link is disconnected
	@scripts/setup vm
	cargo build --profile $(SLUICE_DEMO_PROFILE) --locked -p sluice
	@lab/demo-vm --profile $(SLUICE_DEMO_PROFILE)

test: setup ## Run every test (TESTS="format unit" runs only these steps)
	@scripts/test $(TESTS)

lab: setup ## Run only the system tests (LAB="-k ping" is passed to pytest)
	cargo build --locked -p sluice
	@lab/run-tests $(LAB)

test-vm: setup ## Run only the tests with virtual machines (VM="-k bond" is passed to pytest)
	@scripts/setup vm
	cargo build --locked -p sluice
	@lab/run-vm-tests $(VM)

fmt: ## Format the code
	cargo fmt --all

fuzz: ## Fuzz each target for FUZZ_SECONDS (60), or only TARGET (nightly Rust)
	@scripts/setup fuzz
	@scripts/fuzz $(TARGET)

sanitize: ## Run AddressSanitizer and Miri on the crates without devices (nightly Rust)
	@scripts/setup sanitize
	@scripts/sanitize

soak: setup ## Run property tests ROUNDS (4) times from SEED (random), CONVERSATIONS (1000000) of inspection, STEPS (50000) of route changes compared with the kernel, random traffic for SECONDS (600)
	@SEED=$(SEED) ROUNDS=$(ROUNDS) scripts/properties
	cargo build --release --locked -p sluice
	SLUICE_CONVERSATIONS=$(or $(CONVERSATIONS),1000000) cargo test --release --locked -p sluice-inspect --test conversations
	SLUICE_ROUTE_SEED=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') SLUICE_ROUTE_STEPS=$(or $(STEPS),50000) \
	lab/run-tests --profile release -k kernel_table
	@lab/soak --profile release --seconds $(or $(SECONDS),600)

nightly: ## Run the tests of a night: soak with 32 ROUNDS, fuzz with 600 FUZZ_SECONDS
	$(MAKE) soak ROUNDS=$(or $(ROUNDS),32)
	$(MAKE) fuzz FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600)

audit: setup ## Check the dependencies against known advisories (needs the network)
	cargo deny check advisories

bench: setup ## Run every benchmark and render the results (QUICK=1 for a short run; SIGNATURES=FILE for inspection)
	cargo build --release --locked -p sluice -p sluice-bench
	scripts/bench

clean: ## Remove build outputs
	cargo clean
	rm -rf fuzz/target
