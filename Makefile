# Every target installs its dependencies below .venv/ and target/, and reports it. Only e2e-aws needs an AWS account, and none needs Docker.
# The programs in tools/ prepare environments and stop processes. They use only Python's standard library.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
# For `make demo` and `make chaos`: the store, dynamodb, postgres or redis, for `make chaos` also redis-cluster. `DETAILS=1` prints each delivery.
STORE ?= dynamodb
DETAILS ?=
# With BUILT=1 nothing is built, and the programs must exist from a build of the tests.
BUILT ?=
# For `make bench`: `--quick`, or some parts (`batches`, `alone`, `layer`, `one-thread`, `stores`, `starts`). `--write` updates their
# sections of the page.
BENCH_ARGS ?=
# For `make test` and `make test-all`: filters, of which a test's path must contain one.
TESTS ?=
# For `make test-servers`: some of `redis-7.0`, `postgres-15`, `postgres-18`, `pgbouncer` and `consumer`.
TEST_SERVERS ?=
# For `make plants`: rules, test binaries, or parts of a mutation's text. The default is all mutations.
PLANTS ?=
# For `make mutants`: lua, sql, expressions or rust, and parts of the mutants' descriptions (`--list` prints them).
MUTANTS ?= lua
# For `make sim`: options of the program, such as `--seed`, `--steps` and `--bug` (`--help` lists them).
SIM_ARGS ?=
# For `make chaos`: the number of operations (by default as many as take half a minute), and options of the program, such as `--control` and `--seed` (`--help` lists them).
OPS ?=
CHAOS_ARGS ?=
# For `make fuzz`: parts of the names of targets, the seconds for each, and `--corpus`, `--write` or `--list`.
FUZZ ?=
SECONDS ?= 10
FUZZ_ARGS ?=
# For `make model`: worlds, `--trace` with rules, or `--write`. For `make model-deep`: worlds, or `--minutes` with a number.
MODEL_ARGS ?=
# For `make nightly`: some of its parts, or `--list`.
NIGHTLY_ARGS ?=
# For `make instructions`: `--write` updates the baseline.
INSTRUCTIONS_ARGS ?=
# For `make browser`: `--required` fails without a browser.
BROWSER_ARGS ?=
# For `make e2e`: `--sam-build` builds the functions with SAM, `--all` adds the scenarios with faults.
E2E_ARGS ?=
# For `make concurrent`: `--watch` builds and starts the function with cargo lambda watch.
CONCURRENT_ARGS ?=
# As on docs.rs, which shows the features of each item.
DOC := RUSTDOC="$(CURDIR)/tools/checks/rustdoc-unstable.sh" cargo doc --all-features --no-deps
TARGET := $(or $(CARGO_TARGET_DIR),target)

export PYTHON STORE DETAILS BUILT
export SAM_CLI_TELEMETRY = 0

.PHONY: help require demo watch build test test-all test-servers stress fuzz sim chaos plants mutants model model-deep nightly powertools clients concurrent browser e2e e2e-aws
.PHONY: lint lint-rust lint-features lint-rest minimum-rust advisories durable tutorial doc book bench instructions scale sizes clean

help: ## Lists the targets
	@echo 'For users:'
	@sed -nE 's/^([a-z0-9-]+):.*## For users: (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo 'For contributors:'
	@sed -nE '/## For users:/d; s/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# Checks the prerequisites, and prints one line per missing package.
require:
	@tools/setup/require.sh

demo: require ## For users: Shows the effects of repeated deliveries with and without lambda-once (STORE, DETAILS=1)
	@$(PYTHON) -m tools.scenarios.demo

watch: require ## For users: Runs the functions under cargo lambda watch, with an embedded DynamoDB
	@$(PYTHON) -m tools.scenarios.watch

# SAM looks for the binaries in target/, regardless of Cargo's setting.
build: require ## For users: Builds the functions for sam deploy, for the architecture in samconfig.toml
	@echo '-- the first build takes about 8 minutes on two cores' >&2
	@CARGO_TARGET_DIR="$(CURDIR)/target" $(PYTHON) -m tools.setup.with_tools cargo-lambda sam -- sam build

test: require ## For users: Runs all tests, on DynamoDB Local, Valkey, PostgreSQL and MiniStack (or DYNAMODB_ENDPOINT, REDIS_URL, POSTGRES_URL, MINISTACK_ENDPOINT)
	@$(PYTHON) -m tools.tests.run $(TESTS)

test-all: require ## Runs all tests with ten times the random cases
	@$(PYTHON) -m tools.tests.run --all $(TESTS)

test-servers: require ## Runs the stores' tests on Redis 7.0, PostgreSQL 15 and 18, and through PgBouncer, and kills the consumer (TEST_SERVERS)
	@$(PYTHON) -m tools.tests.other_servers $(TEST_SERVERS)

stress: require ## Runs the property test of batches with 100,000 plans (PROPERTY_CASES)
	@PROPERTY_CASES=$${PROPERTY_CASES:-100000} PROPERTY_SEED=$${PROPERTY_SEED:-$$RANDOM} cargo test --workspace --all-features --test property

fuzz: require ## Searches with the fuzz targets for 10 seconds each (FUZZ, SECONDS, FUZZ_ARGS)
	@$(PYTHON) -m tools.tests.fuzz --seconds $(SECONDS) $(FUZZ_ARGS) $(FUZZ)

# With BUILT=1 a debug build runs, which is slower.
sim: require ## Simulates the whole engine with every fault, for 60 seconds (SIM_ARGS)
	@[[ -n "$(BUILT)" ]] || cargo build --quiet --profile measure -p lambda-once-sim
	@$(TARGET)/$(if $(BUILT),debug,measure)/sim --commit "$$(git describe --always --dirty) of $$(git log -1 --format=%cs)" $(SIM_ARGS)

chaos: require ## Kills workers and servers on a real store, loses requests, and counts effects (STORE, OPS, CHAOS_ARGS)
	@[[ -n "$(BUILT)" ]] || cargo build --quiet --workspace --all-features --bin chaos --bin lambda-once
	@$(TARGET)/debug/chaos --store $(STORE) $(if $(OPS),--operations $(OPS)) --commit "$$(git describe --always --dirty) of $$(git log -1 --format=%cs)" $(CHAOS_ARGS)

plants: require ## Runs the mutation tests: bugs against each rule, with the plan or the test that detects each (PLANTS)
	@PROPERTY_WRITE_PLANS=1 cargo test --quiet --workspace --all-features --test property every_planted_bug
	@$(PYTHON) -m tools.servers.run_with -- $(PYTHON) -m tools.tests.plants $(PLANTS)

mutants: require ## Changes the stores' Lua, SQL or expressions, or the Rust, place by place, and runs the tests against each change (MUTANTS)
	@$(PYTHON) -m tools.servers.run_with -- $(PYTHON) -m tools.tests.mutants $(MUTANTS)

model: require ## Explores the protocol's model, with and without bugs against each rule (MODEL_ARGS)
	@cargo build --quiet --profile measure -p lambda-once-model
	@$(TARGET)/measure/model $(MODEL_ARGS)

model-deep: require ## Explores larger worlds of the model for hours, and resumes where it was stopped (MODEL_ARGS)
	@cargo build --quiet --profile measure -p lambda-once-model
	@$(TARGET)/measure/model --deep $(MODEL_ARGS)

nightly: require ## Runs the checks that CI omits, in parts that can be resumed (NIGHTLY_ARGS)
	@$(PYTHON) -m tools.tests.nightly $(NIGHTLY_ARGS)

lint: lint-rust lint-features lint-rest ## Checks formatting, clippy, features, docs, dependencies, template, OpenAPI

# The parts of lint that CI runs at different times.
lint-rust: require
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

lint-features: require
	$(PYTHON) -m tools.checks.features
	$(PYTHON) -m tools.checks.messages

# Without "advisories", because their database is not in a package registry.
lint-rest: require
	RUSTDOCFLAGS="--cfg docsrs -D warnings" $(DOC) --workspace
	$(PYTHON) -m tools.checks.surface
	$(PYTHON) -m tools.setup.with_tools cargo-deny -- cargo deny --workspace check bans licenses sources
	$(PYTHON) -m tools.setup.with_tools sam -- sam validate --lint --region us-east-1
	$(PYTHON) -m tools.setup.with_tools iac sam -- python -m tools.checks.iac
	$(PYTHON) -m tools.checks.package
	$(PYTHON) -m tools.checks.docs
	$(PYTHON) -m tools.checks.english
	$(PYTHON) -m tools.setup.with_tools workflows -- python -m tools.checks.workflows
	$(PYTHON) -m tools.setup.with_tools openapi -- python -m tools.checks.openapi
	$(PYTHON) -m tools.tests.plants --check
	$(PYTHON) -m tools.tests.mutants --check
	$(PYTHON) -m tools.tests.fuzz --check
	$(PYTHON) -m tools.checks.protocol
	$(PYTHON) -m tools.checks.requirements
	$(PYTHON) -m tools.measure.scale
	$(PYTHON) -m tools.measure.chaos
	$(PYTHON) -m tools.checks.contract
	$(PYTHON) -m tools.checks.names

minimum-rust: require ## Compiles the library with the oldest Rust that it supports; needs rustup
	@rustup toolchain install --profile minimal "$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
	cargo "+$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)" check --package lambda-once --all-features

advisories: require ## Checks the dependencies against the RustSec advisories, from a database on GitHub
	$(PYTHON) -m tools.setup.with_tools cargo-deny -- cargo deny --workspace check advisories

powertools: require ## Tests interoperability with AWS Powertools functions in Python and TypeScript on one table
	@$(PYTHON) -m tools.servers.run_with dynamodb -- $(PYTHON) -m tools.tests.powertools -- cargo test --quiet --workspace --all-features --test powertools

clients: require ## The retries of others' clients (reqwest-retry, axios-retry, stripe-node, the AWS SDK) against the layer
	@$(PYTHON) -m tools.servers.run_with dynamodb -- $(PYTHON) -m tools.tests.clients -- cargo test --quiet --workspace --all-features --test examples retries

concurrent: require ## Sends 100 identical requests concurrently, which must have one effect
	@$(PYTHON) -m tools.scenarios.concurrent_charges $(CONCURRENT_ARGS)

browser: require ## Checks the demo's report, and charges from a page of another origin, in headless Chromium
	@$(PYTHON) -m tools.scenarios.report $(BROWSER_ARGS)
	@$(PYTHON) -m tools.scenarios.browser $(BROWSER_ARGS)

e2e: require ## Deploys template.yaml to a local AWS endpoint, and tests it through SQS and API Gateway (E2E_ARGS)
	@$(PYTHON) -m tools.scenarios.e2e $(E2E_ARGS)

e2e-aws: require ## Runs the end-to-end test in the account of an AWS profile (PROFILE, REGION), then deletes the stack; below 1 USD
	@$(PYTHON) -m tools.scenarios.e2e_aws $(PROFILE) $(REGION)

durable: require ## An operation inside a step of the AWS durable execution SDK, which builds AWS-LC and is therefore no member of the workspace
	@CARGO_TARGET_DIR="$(abspath $(TARGET))/durable" cargo test --quiet --manifest-path examples/durable/Cargo.toml

tutorial: require ## Executes the commands of docs/getting-started.md
	@$(PYTHON) -m tools.scenarios.tutorial

doc: require ## For users: Builds the documentation of the API, with the features of each item, in target/doc
	@RUSTDOCFLAGS="--cfg docsrs" $(DOC) --package lambda-once

book: require ## Builds the pages in docs/ as a book in target/book, and checks its links
	@$(PYTHON) -m tools.setup.with_tools mdbook -- $(PYTHON) -m tools.checks.book build

bench: require ## Measures the cost of protection compared with hand-written code; writes docs/internals/benchmark.md
	@echo '-- the first build takes about 15 minutes on two cores' >&2
	@cargo build --quiet --profile measure -p benches --bins
	@cargo build --quiet --release -p functions -p bench-functions --bin orders --bin orders-cold --bin raw-orders
	@$(PYTHON) -m tools.servers.run_with valkey postgres -- $(TARGET)/measure/bench $(BENCH_ARGS)

instructions: require ## Counts instructions under callgrind, and compares them with bench/instructions.json
	@echo '-- the first build takes about 3 minutes on two cores' >&2
	@cargo build --quiet --profile measure -p bench-batches --bin instructions
	@$(PYTHON) -m tools.measure.instructions $(INSTRUCTIONS_ARGS) $(TARGET)/measure/instructions

scale: require ## Computes the cost and limits of the stores at 10 to 100,000 operations a second, from measured times and sizes; writes docs/internals/scale.md
	@$(PYTHON) -m tools.servers.run_with valkey postgres -- $(PYTHON) -m tools.measure.scale --measure

sizes: require ## Builds functions in the release profile, one of them without the AWS SDK, and checks the sizes of their binaries
	@echo '-- the first build takes about 10 minutes on two cores' >&2
	@$(PYTHON) -m tools.measure.sizes

clean: ## Removes everything that was built or installed
	rm -rf target .aws-sam .venv tools/__pycache__ tools/*/__pycache__ tools/*/*/__pycache__
