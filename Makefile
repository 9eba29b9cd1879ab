# The commands of this repository. `make help` lists them; CI runs `make test` and nothing else.

PYTHON ?= python3
PYTHON2 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/2.7*/bin/python2.7) python2.7)
VENV := .venv
AUTOBAHN := $(VENV)/autobahn
BIN := $(VENV)/bin
TESTED := packaging/tested-versions.txt
ARGS ?=
SEEDS ?= 10000
N ?= 100000
SEED ?= 1
FUZZ_S ?= 300
ORIGINAL ?= $(VENV)/stock/java
MATRIX := 3.11 3.12 3.13 3.14

# What is quick comes first, what writes 10 GB last.
BENCHES_OF_CPU := $(addprefix tests/bench/test_,turn.py cpu.py)
BENCHES := $(BENCHES_OF_CPU) $(addprefix tests/bench/test_,steps.py drain.py memory.py speed.py tls.py) \
  tests/process/test_idle_connections.py tests/bench/test_start.py

.DEFAULT_GOAL := help
.PHONY: help run test test-matrix lint docs charts engine-faults owner-kills bench bench-cpu bench-large bench-celery bench-client bench-fanout bench-against bench-page \
  bench-spark crash crash-archive crash-celery crash-changes crash-cluster crash-mqcloud crash-nodes crash-semq crash-sink crash-states crash-webhooks crash-workers check-nodes check-workers disk-full soak simulate simulate-cluster simulate-semq simulate-workers h1spec autobahn fuzz mutants check \
  stock-clients stock-python upgrade clean system-packages load-generators other-brokers

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
	  | while IFS='	' read -r name text; do printf '  %-13s %s\n' "$$name" "$$text"; done

run: $(VENV)/run.stamp ## Start a broker; options in ARGS="--port 15600"
	exec $(BIN)/zbus serve $(ARGS)

# Debian's packages and pip's come at the same time, once Python is there; and ruff and mypy run beside
# the tests. What they say is kept, and shown at the end; either fails all of it.
test: $(BIN)/python ## Set up, lint, check types, run the tests: nine minutes on two cores
	@$(MAKE) --no-print-directory -j3 system-packages $(VENV)/test.stamp stock-python
	@$(MAKE) --no-print-directory build/tsc/stamp
	@mkdir -p build
	@$(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest -n 4 --dist loadfile --durations=15 $(ARGS); tested=$$?; \
	wait $$lint; linted=$$?; echo "== ruff and mypy"; cat build/lint.log; \
	[ $$tested = 0 ] || echo "== the tests FAILED" >&2; \
	[ $$linted = 0 ] || echo "== ruff or mypy FAILED" >&2; \
	[ $$tested = 0 ] && [ $$linted = 0 ]

stock-python:
	@tests/process/stock/set_up.sh $(VENV)/stock python

# The types of the client in JavaScript are checked by it. Where there is no npm, that test is skipped.
build/tsc/stamp:
	@mkdir -p build/tsc
	@! command -v npm >/dev/null || npm install --silent --prefix build/tsc typescript || true
	@touch $@

# Each Python has an environment of its own; one that fails does not keep the others from running.
test-matrix: system-packages ## Run the tests with each Python of 3.11 to 3.14 that is here; ARGS="tests/core"
	@said=; failed=; \
	for version in $(MATRIX); do \
	  python=; \
	  for each in python$$version $(HOME)/.pyenv/versions/$$version.*/bin/python$$version; do \
	    if $$each -c 'import ensurepip' 2>/dev/null; then python=$$each; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then said="$$said $$version was not found;"; continue; fi; \
	  env=build/python$$version; \
	  echo "== Python $$version: $$python, in $$env"; \
	  if $(MAKE) --no-print-directory VENV=$$env PYTHON=$$python $$env/test.stamp \
	    && $$env/bin/python -m pytest -n 4 --dist loadfile $(ARGS); \
	  then said="$$said $$version passed;"; else said="$$said $$version FAILED;"; failed=1; fi; \
	done; \
	echo "== Python:$$said"; [ -z "$$failed" ]

lint: $(VENV)/test.stamp ## ruff and mypy alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-page: load-generators other-brokers $(VENV)/test.stamp ## Print the first tables of docs/explanation/performance.md anew (five minutes)
	$(BIN)/python -m tests.bench.verb_costs $(COMMIT)
	$(BIN)/python -m tests.bench.produce_rates $(COMMIT) --original $(ORIGINAL)
	$(BIN)/python -m tests.bench.ack_rates

bench: bench-page ## Run the benchmarks (wants a quiet machine)
	$(BIN)/python -m tests.bench.new_names
	$(BIN)/python -m tests.bench.dialect_rates
	$(BIN)/python -m tests.bench.replicated
	$(BIN)/python -m tests.bench.worker_rates
	$(BIN)/python -m tests.bench.large_fanout --quick
	$(BIN)/python -m tests.bench.large_replay --quick
	$(BIN)/python -m pytest -m bench -s $(BENCHES) $(ARGS)

bench-cpu: $(VENV)/test.stamp ## Run those of processor time, beside COMMIT=... if it is given: four minutes, on a busy machine too
	$(BIN)/python -m tests.bench.verb_costs $(COMMIT)
	$(BIN)/python -m tests.bench.lonely $(COMMIT)
	$(BIN)/python -m tests.bench.long_polls $(COMMIT)
	$(BIN)/python -m tests.bench.starts $(COMMIT)
	$(BIN)/python -m pytest -m bench -s $(BENCHES_OF_CPU) $(ARGS)

bench-large: $(VENV)/test.stamp ## Measure 10 GB, 10,000 topics, replay beside live, 10 million delays (20 minutes; 10 GB of disk)
	$(BIN)/python -m tests.bench.large_restart
	$(BIN)/python -m tests.bench.large_topics
	$(BIN)/python -m tests.bench.large_replay
	$(BIN)/python -m tests.bench.large_delayed

bench-spark: $(VENV)/test.stamp ## Measure Spark: reads, an archive beside live produces, a search of 5 million messages (30 minutes)
	$(BIN)/python -m tests.bench.spark_read
	$(BIN)/python -m tests.bench.archive_rates
	$(BIN)/python -m tests.bench.search_rates --messages 5000000

bench-client: $(VENV)/test.stamp ## This client next to redis-py (wants redis-server)
	$(BIN)/python -m tests.bench.client_against_redis $(ARGS)

bench-celery: $(VENV)/test.stamp ## Celery through this broker next to Redis (wants redis-server)
	$(BIN)/python -m tests.bench.celery_against_redis $(ARGS)

bench-fanout: $(VENV)/test.stamp ## Measure 1,000 followers of one topic, and 100 that take nothing; ARGS="--followers 10000 --rate 10"
	$(BIN)/python -m tests.bench.large_fanout $(ARGS)

bench-against: load-generators $(VENV)/test.stamp ## This version against COMMIT=..., in turn
	$(BIN)/python -m tests.bench.verb_costs $(COMMIT)
	$(BIN)/python -m tests.bench.produce_rates $(COMMIT) --original $(ORIGINAL)
	$(BIN)/python -m tests.bench.new_names $(COMMIT)
	$(BIN)/python -m tests.bench.against $(COMMIT) $(ARGS)

docs: $(VENV)/test.stamp build/docs/stamp ## Make the documentation's site in build/site, and check its links
	$(BIN)/python -m tests.docs.site build/pages
	build/docs/bin/mkdocs --quiet build --clean

charts: $(VENV)/test.stamp build/docs/stamp ## Draw the charts of docs/explanation/performance.md anew, from its tables
	PYTHONPATH=$$(build/docs/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	  $(BIN)/python -m tests.docs.charts

build/docs/stamp: pyproject.toml
	$(PYTHON) -m venv build/docs
	build/docs/bin/pip install --quiet 'mkdocs-material>=9.5,<10' 'pygal>=3,<4'
	@touch $@

h1spec: $(VENV)/test.stamp ## HTTP/1.1 conformance; H1SPEC=a clone of github.com/dropseed/h1spec
	@test -n "$(H1SPEC)" || { echo "say where it is: git clone \
	  https://github.com/dropseed/h1spec build/h1spec; make h1spec H1SPEC=build/h1spec" >&2; exit 1; }
	$(BIN)/python -m tests.process.h1spec $(H1SPEC) $(ARGS)

trial: $(VENV)/test.stamp ## Three NATS servers, an owner and a standby on this machine, with failures: 40 seconds; ARGS="--shards 6": three nodes
	$(BIN)/python examples/replicated/trial.py $(ARGS)

owner-kills: KILLS ?= 50
owner-kills: $(VENV)/test.stamp ## kill -9 the owner of a replicated cluster under load KILLS=50 times
	$(BIN)/python -m tests.process.owner_kills --kills $(KILLS) $(ARGS)

engine-faults: KILLS ?= 30
engine-faults: LOSSES ?= 10
engine-faults: SECONDS ?= 600
engine-faults: $(VENV)/test.stamp ## Faults of NATS servers and connections under load, then under two owners: 20 minutes
	$(BIN)/python -m tests.process.engine_faults servers --leader-kills $(KILLS) --majority-losses $(LOSSES) --seed $(SEED)
	$(BIN)/python -m tests.process.engine_faults owners --seconds $(SECONDS) --seed $(SEED)

crash: CYCLES ?= 1000
crash: $(VENV)/test.stamp ## kill -9 a broker under load CYCLES=1000 times
	$(BIN)/python -m tests.process.kill_cycles --cycles $(CYCLES) $(ARGS)

crash-changes: CYCLES ?= 300
crash-changes: $(VENV)/test.stamp ## kill -9 a broker while it changes topics and moves messages CYCLES=300 times
	$(BIN)/python -m tests.process.change_kills --cycles $(CYCLES) $(ARGS)

crash-mqcloud: SECONDS ?= 60
crash-mqcloud: $(VENV)/test.stamp ## kill -9 a broker under the sample of MQCloud's manual for SECONDS=60
	$(BIN)/python -m tests.process.mqcloud_kills --seconds $(SECONDS) $(ARGS)

crash-semq: KILLS ?= 50
crash-semq: $(VENV)/test.stamp ## kill -9 endpoints of SEMQ and their platform KILLS=50 times amid 1,000 messages, twice
	$(BIN)/python -m tests.process.semq_kills --kills $(KILLS) $(ARGS)
	$(BIN)/python -m tests.process.semq_kills --kills $(KILLS) --no-direct $(ARGS)

crash-celery: $(VENV)/test.stamp ## kill -9 workers of Celery, and the broker, amid 10,000 tasks: three minutes
	$(BIN)/python -m tests.process.celery_kills $(ARGS)

crash-webhooks: $(VENV)/test.stamp ## 100,000 deliveries to an endpoint that fails at random, and 30,000 amid 6 kill -9
	$(BIN)/python -m tests.process.webhook_campaign $(ARGS)
	$(BIN)/python -m tests.process.webhook_campaign --deliveries 30000 --kills 6 $(ARGS)

crash-sink: $(VENV)/test.stamp ## kill -9 drivers of Spark, and the broker, while they write a stream into a topic
	$(BIN)/python -m tests.process.sink_kills $(ARGS)

crash-archive: $(VENV)/test.stamp ## kill -9 drivers and an executor of Spark while they archive topics
	$(BIN)/python -m tests.process.archive_kills --kills 6 $(ARGS)

crash-cluster: $(VENV)/test.stamp ## kill -9 executors, drivers and the broker of a real cluster of Spark that reads, archives and streams
	$(BIN)/python -m tests.process.cluster_kills $(ARGS)

crash-workers: SECONDS ?= 600
crash-workers: $(VENV)/test.stamp ## kill -9 workers of a server, and their parent, under load for SECONDS=600
	$(BIN)/python -m tests.process.worker_kills --seconds $(SECONDS) $(ARGS)

crash-nodes: ROUNDS ?= 100
crash-nodes: $(VENV)/test.stamp ## Faults of three nodes, their network (as root) and their NATS servers, ROUNDS=100 of them: 25 minutes
	$(BIN)/python -m tests.process.node_kills --rounds $(ROUNDS) $(ARGS)

check-workers: WORKERS ?= 3
check-workers: $(VENV)/test.stamp ## Run the tests of clients with requests at random workers, and those of real processes and of Spark with WORKERS=3 (six minutes)
	$(BIN)/python -m pytest -p tests.workers.random_edges -n 2 tests/dialects tests/conformance
	ZBUS_WORKERS=$(WORKERS) $(BIN)/python -m pytest -p tests.process.several_workers -n 2 --dist loadfile tests/process $(ARGS)
	ZBUS_WORKERS=$(WORKERS) $(BIN)/python -m pytest -n 2 --dist loadgroup tests/spark/test_source.py tests/spark/test_sink.py tests/spark/test_lag.py tests/spark/archive

check-nodes: $(VENV)/test.stamp ## Run the tests of clients with owners that end amid them, and those of real processes against three nodes with NATS servers (fifteen minutes)
	$(BIN)/python -m pytest -p tests.workers.failovers -n 2 tests/dialects tests/conformance
	$(BIN)/python -m pytest -p tests.process.several_nodes -n 2 --dist loadfile tests/process $(ARGS)

disk-full: CYCLES ?= 100
disk-full: $(VENV)/test.stamp ## Fill a small disk under a broker CYCLES=100 times (as root: a real one)
	$(BIN)/python -m tests.process.disk_full --cycles $(CYCLES) $(ARGS)

soak: SECONDS ?= 3600
soak: $(VENV)/test.stamp ## Attack a broker beside brisk clients for SECONDS=3600; a row for each attack: ARGS=--table
	$(BIN)/python -m tests.soak --seconds $(SECONDS) $(ARGS)

simulate: $(VENV)/test.stamp ## Run the broker in SEEDS=10000 simulated worlds, on all cores
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

simulate-semq: $(VENV)/test.stamp ## Run endpoints and platform of SEMQ in SEEDS=10000 simulated worlds
	$(BIN)/python -m tests.simulation --dialect semq --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m tests.simulation --dialect semq-wide --seeds $(SEEDS) $(ARGS)

simulate-workers: $(VENV)/test.stamp ## Run a server of three workers in SEEDS=10000 simulated worlds
	$(BIN)/python -m tests.simulation --dialect workers --seeds $(SEEDS) $(ARGS)

simulate-cluster: $(VENV)/test.stamp ## Run three machines that share out shards in SEEDS=10000 simulated worlds
	$(BIN)/python -m tests.simulation --dialect cluster --seeds $(SEEDS) $(ARGS)

stock-clients: $(VENV)/test.stamp ## Bring the original's own clients, and run them against brokers
	tests/process/stock/set_up.sh $(VENV)/stock
	$(BIN)/python -m pytest tests/process/test_stock_clients.py $(ARGS)

crash-states: $(VENV)/test.stamp ## Recover from N crashes and N / 10 torn logs, from seed SEED on
	$(BIN)/python -m tests.simulation.crash_states --states $(N) --seed $(SEED)
	$(BIN)/python -m tests.simulation.torn_tails --cases $$(($(N) / 10)) --seed $(SEED)

fuzz: $(VENV)/test.stamp ## N heads and N streams of frames before judges, FUZZ_S=300 seconds of anything over a simulated broker, and as long over a real one's edge
	$(BIN)/python -m tests.wire.head_fuzz --heads $(N) --seed $(SEED)
	$(BIN)/python -m tests.wire.frame_fuzz --streams $(N) --seed $(SEED)
	$(BIN)/python -m tests.simulation.grammar_fuzz --seconds $(FUZZ_S) --seed $(SEED)
	$(BIN)/python -m tests.process.edge_fuzz --seconds $(FUZZ_S) --seed $(SEED)

mutants: $(VENV)/test.stamp ## Plant bugs and run the tests that should notice; ARGS="name ..." (30 minutes)
	$(BIN)/python -m tests.mutants $(ARGS)

# One after another: each takes all cores. What measures and what wants others' programs is left out.
check: $(VENV)/test.stamp ## What `make test` does a part of, and all campaigns with their defaults: mutants, crash-states, fuzz, simulate, simulate-semq, simulate-workers, simulate-cluster, disk-full, crash, crash-changes, crash-mqcloud, crash-semq, crash-celery, crash-webhooks, crash-workers, check-workers, check-nodes, crash-sink, crash-archive, crash-cluster, five minutes of soak (4 hours; a quiet machine)
	WHOLE_TESTS=1 $(BIN)/python -m pytest -n 4 --dist loadfile -m "not bench"
	$(MAKE) mutants
	$(MAKE) crash-states
	$(MAKE) fuzz
	$(MAKE) simulate
	$(MAKE) simulate-semq
	$(MAKE) simulate-workers
	$(MAKE) simulate-cluster
	$(MAKE) disk-full
	$(MAKE) crash
	$(MAKE) crash-changes
	$(MAKE) crash-mqcloud
	$(MAKE) crash-semq
	$(MAKE) crash-celery
	$(MAKE) crash-webhooks
	$(MAKE) crash-workers
	$(MAKE) check-workers
	$(MAKE) check-nodes
	$(MAKE) crash-sink
	$(MAKE) crash-archive
	$(MAKE) crash-cluster
	$(MAKE) soak SECONDS=300

autobahn: $(VENV)/test.stamp $(AUTOBAHN)/bin/wstest ## Autobahn's test suite against the WebSocket (wants Python 2.7)
	$(BIN)/python -W ignore -m tests.process.autobahn $(AUTOBAHN)/bin/wstest $(ARGS)

upgrade: $(BIN)/python ## Test with the newest versions of all packages from now on; then run `make test`
	$(BIN)/python packaging/install.py --upgrade-tested

clean: ## Remove everything that was made, the data folder excepted
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than these two files exactly when the installation follows them.
$(VENV)/run.stamp: pyproject.toml $(TESTED) | $(BIN)/python
	@echo "zbus and what it needs are installed in $(VENV); this is done once, and takes a moment."
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint $(TESTED) -e . \
	  || { echo "The tested versions cannot be had; pip takes the newest." >&2; \
	  $(BIN)/python -m pip install --disable-pip-version-check -e .; }
	@touch $@

$(VENV)/test.stamp: pyproject.toml $(TESTED) | $(BIN)/python
	@echo "zbus and what its tests need are installed in $(VENV); this is done once, and takes a while."
	@$(BIN)/python packaging/install.py -e '.[test]'
	@touch $(VENV)/run.stamp $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "zbus needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(call debian-package,python3-venv)
	@echo "A virtual environment is made in $(VENV)."
	@$(PYTHON) -m venv $(VENV)

# The suite that works is of 2018 and runs on Python 2.7 alone.
$(AUTOBAHN)/bin/wstest:
	@$(PYTHON2) -c '' 2>/dev/null || { echo "Autobahn's test suite needs Python 2.7, and there is" \
	  "none here; say where it is: make autobahn PYTHON2=/path/of/python2.7" >&2; exit 1; }
	$(PYTHON2) -m pip install --quiet --target $(AUTOBAHN)-tool virtualenv
	PYTHONPATH=$(AUTOBAHN)-tool $(PYTHON2) -m virtualenv --quiet $(AUTOBAHN)
	$(AUTOBAHN)/bin/pip install --quiet autobahntestsuite==0.8.2

# The browser tests drive the system's Chromium, the documentation's sessions the system's curl, and
# tests/process/test_proxies.py has a broker behind four proxies. Most of the browser tests can do with
# a Chromium without a window, which takes half the processor time, and without it they take the other.
system-packages:
	@command -v curl >/dev/null || $(call debian-package,curl)
	@command -v node >/dev/null || $(call debian-package,nodejs) 2>/dev/null || true
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	  || command -v google-chrome >/dev/null || $(call debian-package,chromium)
	@command -v chromium-headless-shell >/dev/null \
	  || $(call debian-package,chromium-headless-shell) 2>/dev/null || true
	@for program in nginx haproxy varnishd caddy; do \
	  PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v $$program >/dev/null && continue; \
	  package=$${program%d}; [ $$program = varnishd ] || package=$$program; \
	  $(call debian-package,$$package) || exit 1; \
	done

load-generators:
	@command -v ab >/dev/null || $(call debian-package,apache2-utils)
	@command -v wrk >/dev/null || $(call debian-package,wrk)

other-brokers:
	@command -v redis-server >/dev/null || $(call debian-package,redis-server)
	@command -v nats-server >/dev/null || $(call debian-package,nats-server)

define debian-package
{ if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends $(1); \
  else \
    echo "$(1) is missing; install it first, for example: sudo apt-get install $(1)" >&2; exit 1; \
  fi; }
endef
