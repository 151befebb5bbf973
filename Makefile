# dlock - distributed locks inside Redis. "make help" lists what can be made.
#
#   SANITIZE=address,undefined   build with these sanitizers, into build/sanitize-...
#   REDISMODULE_H=path           use this redismodule.h (7.0.15) instead of fetching it
#   REDIS_SERVER=path            the server for demo, tests and benchmarks
#   PREFIX=dir DESTDIR=dir       where "make install" puts things
#   CI=true                      warnings are errors
VERSION := 0.1.0
VERSION_NUMBER := $(shell echo $(VERSION) | awk -F. '{print $$1 * 10000 + $$2 * 100 + $$3}')

PREFIX ?= /usr/local
MODULE_DIR = $(DESTDIR)$(PREFIX)/lib/redis/modules
DOC_DIR = $(DESTDIR)$(PREFIX)/share/doc/dlock

comma := ,
SANITIZE ?=
OUT := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))
HEADER := $(if $(REDISMODULE_H),$(REDISMODULE_H),build/include/redismodule.h)

CC ?= cc
CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
    -Wmissing-prototypes -Wvla -Wwrite-strings -Wundef -Wformat=2 $(if $(CI),-Werror)
DLOCK_CFLAGS := -std=c11 -D_POSIX_C_SOURCE=200809L -fPIC -fvisibility=hidden $(WARNINGS) -MMD -MP \
    $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
    -DDLOCK_VERSION='"$(VERSION)"' -DDLOCK_VERSION_NUMBER=$(VERSION_NUMBER)
MODULE_CFLAGS := $(DLOCK_CFLAGS) $(if $(SANITIZE),,-flto) -isystem "$(dir $(HEADER))" -Imodule
MODULE_LDFLAGS := -shared -Wl,-z,relro,-z,now $(if $(SANITIZE),-fsanitize=$(SANITIZE),-flto)

MODULE_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard module/*.c)))
SELFTEST_OBJECTS := $(OUT)/tests/selftest/selftest.o
UNIT_TESTS := $(patsubst tests/unit/%.c,$(OUT)/tests/unit/%,$(sort $(wildcard tests/unit/*_test.c)))
C_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h')

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: all
all: module ## build everything

.PHONY: module
module: $(OUT)/dlock.so ## build the Redis module, build/dlock.so

$(OUT)/dlock.so: $(MODULE_OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(MODULE_LDFLAGS)

# Only for tests, never installed.
$(OUT)/dlock_selftest.so: $(SELFTEST_OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(MODULE_LDFLAGS)

$(OUT)/%.o: %.c $(HEADER) Makefile
	@mkdir -p $(@D)
	$(CC) $(MODULE_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

build/include/redismodule.h:
	@scripts/get-redismodule-h build/include

# A unit test is one program: NAME_test.c and the pure file it names.
$(OUT)/tests/unit/%_test: tests/unit/%_test.c tests/unit/unit.h module/%.c module/%.h Makefile
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) $(CFLAGS) -Imodule -o $@ $< module/$*.c

-include $(wildcard $(OUT)/module/*.d $(OUT)/tests/selftest/*.d $(OUT)/tests/unit/*.d)

.PHONY: demo
demo: ## see it work: a private Redis, two clients, one lock
	@scripts/bootstrap run
	@$(MAKE) -s module
	@scripts/demo

.PHONY: test
test: ## build and run every test
	@scripts/bootstrap test
	@$(MAKE) -s test-build
	@$(MAKE) -s test-build SANITIZE=address,undefined
	@scripts/get-servers redis-8.0 valkey-8.0 valkey-8.1 valkey-9.1
	@scripts/run-tests

.PHONY: test-servers
test-servers: ## run the module suite on Redis 7.0, 8.0 and Valkey 8.0, 8.1, 9.1
	@scripts/bootstrap test
	@$(MAKE) -s test-build
	@scripts/test-servers $(SERVERS)

.PHONY: test-build
test-build: $(OUT)/dlock.so $(OUT)/dlock_selftest.so $(UNIT_TESTS)

.PHONY: bench
bench: ## measure it against the alternatives: cost, throughput, memory, hot lock, latency
	@scripts/bootstrap bench
	@$(MAKE) -s module
	@scripts/python tests/bench/bench.py

.PHONY: lint
lint: ## check formatting, layers, scripts and Python
	@scripts/bootstrap lint
	@scripts/lint

.PHONY: format
format: ## let clang-format lay out every C file
	@scripts/bootstrap lint
	clang-format -i $(C_FILES)

.PHONY: install
install: module ## install the module under PREFIX (default /usr/local)
	install -d "$(MODULE_DIR)" "$(DOC_DIR)"
	install -m 755 $(OUT)/dlock.so "$(MODULE_DIR)/dlock.so"
	install -m 644 README.md LICENSE CHANGELOG.md "$(DOC_DIR)/"
	install -m 644 module/README.md "$(DOC_DIR)/module.md"

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f "$(MODULE_DIR)/dlock.so"
	rm -rf "$(DOC_DIR)"

.PHONY: clean
clean: ## remove everything that was built
	rm -rf build

.PHONY: help
help: ## show this
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@sed -n '3,7s/^# / /p' Makefile
