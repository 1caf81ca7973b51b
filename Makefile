# The targets print their own help: a "##" comment behind a target is its line.

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## open a shop, and show what happens to it: double clicks, lost answers, killed processes (DEMOFLAGS=--compare)
	go run -trimpath ./examples/shop demo $(DEMOFLAGS)

.PHONY: test
test: ## run every module's tests, most under the race detector (TESTFLAGS='-run R26'); a skipped test fails
	@scripts/test $(TESTFLAGS)

.PHONY: lint
lint: ## check formatting, vet, linters, modules, scripts and known vulnerabilities
	@scripts/lint

.PHONY: rules
rules: ## show which tests prove which rule (RULESFLAGS=-all for every test); a rule without one fails
	@go run ./internal/rules $(RULESFLAGS)

.PHONY: bench
bench: ## measure semel beside its floors and its peers, and write bench/RESULTS.md (BENCHFLAGS='-only P-4' measures a part)
	go run ./bench -results bench/RESULTS.md $(BENCHFLAGS)

.PHONY: chaos
chaos: ## kill processes, hurt servers, fill disks for CHAOS_TIME (10m), count effects (SEED=7 CHAOSFLAGS='--store postgres')
	go run ./cmd/integration/chaos/run --for $(or $(CHAOS_TIME),$(CHAOSTIME),10m) $(if $(SEED),--seed $(SEED)) $(CHAOSFLAGS)

.PHONY: chaos-long
chaos-long: ## the same for a night (CHAOS_TIME=8h), in rounds (ROUND=20m) of new seeds, up to the first broken promise
	go run ./cmd/integration/chaos/run --for $(or $(CHAOS_TIME),$(CHAOSTIME),8h) --round $(or $(ROUND),20m) $(CHAOSFLAGS)

.PHONY: model
model: ## check the protocol's model, and that it breaks without each clause (MODELFLAGS=STATE shows how; needs spin, cc)
	@docs/model/run $(MODELFLAGS)

.PHONY: verify-bugs
verify-bugs: ## prove that each check of semel-verify has a bug that only it finds: all checks against all bugs, 5 minutes
	cd cmd && SEMEL_VERIFY_MATRIX=1 go test ./integration/bugtest -run TestR89_EachBugIsFoundByItsCheck -count 1 -v

.PHONY: stress
stress: ## load two gateways on one store, kill one, count effects (RATE=50 DURATION=30s STRESSFLAGS='--store all')
	go run ./cmd/integration/fleet/run --rate $(or $(RATE),50) --duration $(or $(DURATION),30s) $(STRESSFLAGS)

.PHONY: flood
flood: ## let one principal attack a gateway on each store: 20 000 hang-ups, 100 000 keys, 300 slow bodies, 300 slow readers, all at once (FLOODFLAGS='--keys 1000000')
	go run ./cmd/integration/fleet/run --flood hangups,keys,bodies,readers,all --rate $(or $(RATE),2500) --store all $(FLOODFLAGS)

.PHONY: temporal
temporal: ## run 500 sagas and the shop's orders on a real Temporal server, with faults and with workers stopped all the time (SEED=7); the first time builds the server, minutes long
	cd semeltemporal/servertest && GOWORK=off go vet . && GOWORK=off SEED=$(SEED) go test -count 1 -v -timeout 15m .

.PHONY: test-long
test-long: ## the same in their long form: more seeds, more stores, more load, alerts by their own clocks
	@SEMEL_LONG=1 scripts/test $(TESTFLAGS)

.PHONY: proof
proof: test-long temporal model verify-bugs chaos stress flood fuzz ## everything that is slow, one after the other (about two hours): test-long, temporal, model, verify-bugs, chaos, stress, flood, fuzz

.PHONY: bench-large
bench-large: ## measure growth and sweeping with millions of records (needs 20 GB of disk, and a quiet hour)
	go run ./bench -large $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## run every fuzz target for a while (FUZZTIME=30s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: fmt
fmt: ## format every Go file
	@cd tools && GOWORK=off go tool gofumpt -w ..

.PHONY: tidy
tidy: ## tidy every module
	@scripts/each go mod tidy
	cd tools && GOWORK=off go mod tidy
	cd semeltemporal/servertest && GOWORK=off go mod tidy
