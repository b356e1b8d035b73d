# Every target installs what it needs below .venv/ and target/ and says so; none needs an AWS account or Docker.
# What prepares an environment or stops processes stands in tools/, written in Python's standard library.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
# For `make bench`: `--quick`, or parts of it (`batches`, `alone`, `layer`, `one-thread`, `stores`, `starts`); `--write` renews their sections
# of the page.
BENCH_ARGS ?=
# For `make test-servers`: some of `redis-7.0`, `postgres-15`, `postgres-18`, `pgbouncer` and `consumer`.
TEST_SERVERS ?=
# For `make plants`: rules, or parts of what is planted. Without any all.
PLANTS ?=
# For `make instructions`: `--write` renews the baseline.
INSTRUCTIONS_ARGS ?=
# For `make browser`: `--required` fails where there is no browser.
BROWSER_ARGS ?=
# For `make demo`: where the functions keep their claims, dynamodb, postgres or redis.
STORE ?= dynamodb
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Said once, before the dependencies are compiled.
first-build = if [[ ! -d $(1) ]]; then echo "-- first build: $(2) on two cores" >&2; fi

export SAM_CLI_TELEMETRY = 0

.PHONY: help demo concurrent test test-servers stress plants powertools lint lint-rust lint-features lint-rest watch build e2e browser bench instructions sizes clean

help: ## Lists the targets
	@sed -nE 's/^([a-z0-9-]+):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

# The server behind each store that the demo can use. Its DynamoDB is a part of it.
SERVERS_dynamodb = none
SERVERS_redis = valkey
SERVERS_postgres = postgres

demo: export STORE := $(STORE)
demo: ## Duplicate, failing and poisonous deliveries, with protection and without
	@$(call first-build,target/debug,3 to 8 minutes)
	@cargo build --quiet --workspace --all-features --bin demo
	@$(PYTHON) tools/with-servers.py $(SERVERS_$(STORE)) -- $(PYTHON) tools/with.py cargo-lambda -- $(TARGET)/debug/demo

concurrent: ## 100 equal requests at once, which have to have one effect
	@$(call first-build,$(TARGET)/debug,3 to 8 minutes)
	@$(PYTHON) tools/concurrent-charges.py

test: ## All tests, against DynamoDB Local, Valkey and PostgreSQL (or DYNAMODB_ENDPOINT, REDIS_URL, POSTGRES_URL)
	@$(call first-build,target/debug,3 to 8 minutes)
	@$(PYTHON) tools/with-servers.py -- cargo test --workspace --all-features

test-servers: ## The stores' tests on Redis 7.0, PostgreSQL 15 and 18, and through PgBouncer; the consumer, killed (TEST_SERVERS)
	@$(call first-build,target/debug,3 to 8 minutes)
	@$(PYTHON) tools/test-servers.py $(TEST_SERVERS)

stress: ## Ten times the cases of the property test of batches (PROPERTY_CASES)
	@PROPERTY_CASES=$${PROPERTY_CASES:-100000} PROPERTY_SEED=$${PROPERTY_SEED:-$$RANDOM} cargo test --workspace --all-features --test property

plants: ## Bugs planted against each rule, and the plans of the property test or the tests that notice each (PLANTS)
	@cargo test --quiet --workspace --all-features --test property planted_bugs -- --nocapture --test-threads 1
	@$(PYTHON) tools/with-servers.py -- $(PYTHON) tools/plants.py $(PLANTS)

lint: lint-rust lint-features lint-rest ## Formatting, clippy, features, docs, dependencies, template, OpenAPI

# The parts of lint that CI runs at different times.
lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --workspace --all-features --test powertools -- -D warnings

lint-features:
	$(PYTHON) tools/check-features.py
	$(PYTHON) tools/check-messages.py

# Not "advisories": their database is in none of the package registries.
lint-rest:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
	$(PYTHON) tools/with.py cargo-deny -- cargo deny --workspace check bans licenses sources
	$(PYTHON) tools/with.py sam -- sam validate --lint --region us-east-1
	$(PYTHON) tools/with.py openapi -- python tools/check-openapi.py
	$(PYTHON) tools/plants.py --check

powertools: ## Functions with AWS Powertools, in Python and TypeScript, and the library do each other's work on one table
	@$(call first-build,target/debug,3 to 8 minutes)
	@$(PYTHON) tools/with-servers.py dynamodb -- $(PYTHON) tools/powertools.py -- cargo test --quiet --workspace --all-features --test powertools

watch: ## The functions under cargo lambda watch, with an embedded DynamoDB
	@$(PYTHON) tools/watch.py

# SAM looks for the binaries in target/, wherever Cargo is told to put them.
build: ## The functions as sam deploy takes them, for the architecture in samconfig.toml
	@$(call first-build,.aws-sam,about 8 minutes)
	@CARGO_TARGET_DIR="$(CURDIR)/target" $(PYTHON) tools/with.py cargo-lambda sam -- sam build

e2e: ## Deploys template.yaml onto a local AWS endpoint, tests it through SQS and API Gateway
	@$(call first-build,target/e2e/build,about 6 minutes)
	@$(PYTHON) tools/e2e.py

browser: ## A page of another origin charges in headless Chromium, and reads answer, replay and refusals
	@$(call first-build,$(TARGET)/debug,3 to 8 minutes)
	@$(PYTHON) tools/browser.py $(BROWSER_ARGS)

bench: ## Measures what protection costs, beside the same by hand; writes docs/benchmark.md
	@$(call first-build,$(TARGET)/measure,about 15 minutes)
	@cargo build --quiet --profile measure -p benches --bins
	@cargo build --quiet --release -p functions -p bench-functions --bin orders --bin orders-cold --bin raw-orders
	@$(PYTHON) tools/with-servers.py valkey postgres -- $(TARGET)/measure/bench $(BENCH_ARGS)

instructions: ## Counts instructions under callgrind, and compares them with benches/instructions.json
	@$(call first-build,$(TARGET)/measure,about 4 minutes)
	@cargo build --quiet --profile measure -p benches --no-default-features --bin instructions
	@$(PYTHON) tools/instructions.py $(INSTRUCTIONS_ARGS) $(TARGET)/measure/instructions

sizes: ## Builds functions in the release profile, one of them without the AWS SDK, and checks the sizes of their binaries
	@$(call first-build,$(TARGET)/release,about 10 minutes)
	@$(PYTHON) tools/check-sizes.py

clean: ## Removes everything that was built or installed
	rm -rf target .aws-sam .venv tools/__pycache__
