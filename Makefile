# Every target installs what it needs below .venv/ and target/ and says so; none needs an AWS account or Docker.
# What prepares an environment or stops processes stands in tools/, written in Python's standard library.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
# For `make demo`: where the functions keep their claims, dynamodb, postgres or redis; and `DETAILS=1` prints each delivery.
STORE ?= dynamodb
DETAILS ?=
# With BUILT=1 nothing is built: the programs are there from a build of the tests.
BUILT ?=
# For `make bench`: `--quick`, or parts of it (`batches`, `alone`, `layer`, `one-thread`, `stores`, `starts`); `--write` renews their sections
# of the page.
BENCH_ARGS ?=
# For `make test` and `make test-all`: words, of which a test's path holds one.
TESTS ?=
# For `make test-servers`: some of `redis-7.0`, `postgres-15`, `postgres-18`, `pgbouncer` and `consumer`.
TEST_SERVERS ?=
# For `make plants`: rules, or parts of what is planted. Without any all.
PLANTS ?=
# For `make nightly`: some of its parts, and `--list`.
NIGHTLY_ARGS ?=
# For `make instructions`: `--write` renews the baseline.
INSTRUCTIONS_ARGS ?=
# For `make browser`: `--required` fails where there is no browser.
BROWSER_ARGS ?=
# For `make e2e`: `--sam-build` has SAM build the functions.
E2E_ARGS ?=
# For `make concurrent`: `--watch` has cargo lambda watch build and start the function.
CONCURRENT_ARGS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)

export PYTHON STORE DETAILS BUILT
export SAM_CLI_TELEMETRY = 0

.PHONY: help require demo watch build test test-all test-servers stress plants nightly powertools concurrent browser e2e
.PHONY: lint lint-rust lint-features lint-rest bench instructions sizes clean

help: ## Lists the targets
	@echo 'To see it work, and to deploy it:'
	@sed -nE 's/^([a-z0-9-]+):.*## For users: (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo 'To change it:'
	@sed -nE '/## For users:/d; s/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# What this machine has to have, or one line that names the package.
require:
	@tools/require.sh

demo: require ## For users: what repeated deliveries do with lambda-once and without (STORE, DETAILS=1)
	@$(PYTHON) tools/demo.py

watch: require ## For users: the functions under cargo lambda watch, with an embedded DynamoDB
	@$(PYTHON) tools/watch.py

# SAM looks for the binaries in target/, wherever Cargo is told to put them.
build: require ## For users: the functions as sam deploy takes them, for the architecture in samconfig.toml
	@echo '-- the first build takes about 8 minutes on two cores' >&2
	@CARGO_TARGET_DIR="$(CURDIR)/target" $(PYTHON) tools/with.py cargo-lambda sam -- sam build

test: require ## For users: all tests, on DynamoDB Local, Valkey and PostgreSQL (or DYNAMODB_ENDPOINT, REDIS_URL, POSTGRES_URL)
	@$(PYTHON) tools/test.py $(TESTS)

test-all: require ## The same with ten times the random cases
	@$(PYTHON) tools/test.py --all $(TESTS)

test-servers: require ## The stores' tests on Redis 7.0, PostgreSQL 15 and 18, and through PgBouncer; the consumer, killed (TEST_SERVERS)
	@$(PYTHON) tools/test-servers.py $(TEST_SERVERS)

stress: require ## The property test of batches with 100,000 plans (PROPERTY_CASES)
	@PROPERTY_CASES=$${PROPERTY_CASES:-100000} PROPERTY_SEED=$${PROPERTY_SEED:-$$RANDOM} cargo test --workspace --all-features --test property

plants: require ## Bugs planted against each rule, and the plans of the property test or the tests that notice each (PLANTS)
	@PROPERTY_WRITE_PLANS=1 cargo test --quiet --workspace --all-features --test property every_planted_bug
	@$(PYTHON) tools/with-servers.py -- $(PYTHON) tools/plants.py $(PLANTS)

nightly: require ## What CI leaves out, in parts that go on where they were interrupted (NIGHTLY_ARGS)
	@$(PYTHON) tools/nightly.py $(NIGHTLY_ARGS)

lint: lint-rust lint-features lint-rest ## Formatting, clippy, features, docs, dependencies, template, OpenAPI

# The parts of lint that CI runs at different times.
lint-rust: require
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

lint-features: require
	$(PYTHON) tools/check-features.py
	$(PYTHON) tools/check-messages.py

# Not "advisories": their database is in none of the package registries.
lint-rest: require
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
	$(PYTHON) tools/check-surface.py
	$(PYTHON) tools/with.py cargo-deny -- cargo deny --workspace check bans licenses sources
	$(PYTHON) tools/with.py sam -- sam validate --lint --region us-east-1
	$(PYTHON) tools/with.py openapi -- python tools/check-openapi.py
	$(PYTHON) tools/plants.py --check
	$(PYTHON) tools/check-protocol.py
	$(PYTHON) tools/check-contract.py

powertools: require ## Functions with AWS Powertools, in Python and TypeScript, and the library do each other's work on one table
	@$(PYTHON) tools/with-servers.py dynamodb -- $(PYTHON) tools/powertools.py -- cargo test --quiet --workspace --all-features --test powertools

concurrent: require ## 100 equal requests at once, which have to have one effect
	@$(PYTHON) tools/concurrent-charges.py $(CONCURRENT_ARGS)

browser: require ## A page of another origin charges in headless Chromium, and reads answer, replay and refusals
	@$(PYTHON) tools/browser.py $(BROWSER_ARGS)

e2e: require ## Deploys template.yaml onto a local AWS endpoint, tests it through SQS and API Gateway (E2E_ARGS)
	@$(PYTHON) tools/e2e.py $(E2E_ARGS)

bench: require ## Measures what protection costs, beside the same by hand; writes docs/benchmark.md
	@echo '-- the first build takes about 15 minutes on two cores' >&2
	@cargo build --quiet --profile measure -p benches --bins
	@cargo build --quiet --release -p functions -p bench-functions --bin orders --bin orders-cold --bin raw-orders
	@$(PYTHON) tools/with-servers.py valkey postgres -- $(TARGET)/measure/bench $(BENCH_ARGS)

instructions: require ## Counts instructions under callgrind, and compares them with bench/instructions.json
	@echo '-- the first build takes about 3 minutes on two cores' >&2
	@cargo build --quiet --profile measure -p bench-batches --bin instructions
	@$(PYTHON) tools/instructions.py $(INSTRUCTIONS_ARGS) $(TARGET)/measure/instructions

sizes: require ## Builds functions in the release profile, one of them without the AWS SDK, and checks the sizes of their binaries
	@echo '-- the first build takes about 10 minutes on two cores' >&2
	@$(PYTHON) tools/check-sizes.py

clean: ## Removes everything that was built or installed
	rm -rf target .aws-sam .venv tools/__pycache__ tools/*/__pycache__
