# dlock - distributed locks inside Redis. "make help" lists what can be made.
#
#   SANITIZE=address,undefined   build with these sanitizers, into build/sanitize-...
#   REDISMODULE_H=path           use this redismodule.h (7.0.15) instead of fetching it
#   REDIS_SERVER=path            the server for demo, tests and benchmarks
#   SERVERS="name|path ..."      the servers for "make test-servers"; see scripts/test-servers
#   PREFIX=dir DESTDIR=dir       where "make install" puts things; LIB=lib is a folder of PREFIX
#   TLS=no                       a client library without rediss://, and without OpenSSL
#   CFLAGS=... CC=cc             another compiler, other flags: all is built again
#   CI=true                      warnings are errors
VERSION := 0.1.0
LIBRARY_ABI := 0
VERSION_NUMBER := $(shell echo $(VERSION) | awk -F. '{print $$1 * 10000 + $$2 * 100 + $$3}')

PREFIX ?= /usr/local
MODULE_DIR = $(DESTDIR)$(PREFIX)/lib/redis/modules
LIB ?= lib
LIB_DIR = $(DESTDIR)$(PREFIX)/$(LIB)
LIB_UP = $(shell echo "$(LIB)" | sed 's|[^/][^/]*|..|g')
CMAKE_DIR = $(LIB_DIR)/cmake/dlock
INCLUDE_DIR = $(DESTDIR)$(PREFIX)/include
DOC_DIR = $(DESTDIR)$(PREFIX)/share/doc/dlock
BIN_DIR = $(DESTDIR)$(PREFIX)/bin
MAN_DIR = $(DESTDIR)$(PREFIX)/share/man/man1
BASH_DIR = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_DIR = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_DIR = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

comma := ,
SANITIZE ?=
OUT := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))
HEADER := $(if $(REDISMODULE_H),$(REDISMODULE_H),build/include/redismodule.h)

CC ?= cc
OBJCOPY ?= objcopy
CFLAGS ?= -O2 -g
# A parameter may have the name of its type, which gcc's plain -Wshadow takes for a mistake.
SHADOW := -Wshadow$(shell $(CC) -Werror -Wshadow=local -E -x c /dev/null >/dev/null 2>&1 && \
    echo =local)
WARNINGS := -Wall -Wextra -Wpedantic $(SHADOW) -Wconversion -Wstrict-prototypes \
    -Wmissing-prototypes -Wvla -Wwrite-strings -Wundef -Wformat=2 $(if $(CI),-Werror)
DLOCK_CFLAGS := -std=c11 -fPIC -fvisibility=hidden $(WARNINGS) -MMD -MP \
    $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
    -DDLOCK_VERSION='"$(VERSION)"' -DDLOCK_VERSION_NUMBER=$(VERSION_NUMBER)
MODULE_CFLAGS := $(DLOCK_CFLAGS) -D_POSIX_C_SOURCE=200809L $(if $(SANITIZE),,-flto) \
    -isystem "$(dir $(HEADER))" -Imodule
MODULE_LDFLAGS := -shared -Wl,-z,relro,-z,now $(if $(SANITIZE),-fsanitize=$(SANITIZE),-flto)

# Where OpenSSL is, unless it is said otherwise.
ifndef TLS
TLS := $(shell $(CC) $(CPPFLAGS) -include openssl/ssl.h -E -x c /dev/null >/dev/null 2>&1 && \
    echo yes || echo no)
endif
$(if $(filter yes no,$(TLS)),,$(error dlock: TLS is yes or no))
PC_TLS := $(if $(filter yes,$(TLS)),libssl$(comma) libcrypto)
CLIENT_LIBS := $(if $(filter yes,$(TLS)),-lssl -lcrypto)

CLIENT_CFLAGS := $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread -Iclient/include -Iclient/src
CLIENT_LDFLAGS := -shared -pthread -Wl,-soname,libdlock.so.$(LIBRARY_ABI) \
    -Wl,-z,relro,-z,now $(if $(SANITIZE),-fsanitize=$(SANITIZE),-Wl,-z,defs)

MODULE_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard module/*.c)))
CLIENT_SOURCES := $(filter-out client/src/net/tls$(if $(filter yes,$(TLS)),_none).c, \
    $(sort $(wildcard client/src/*/*.c)))
CLIENT_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(CLIENT_SOURCES))
CLIENT_TESTS := $(patsubst %.c,$(OUT)/%,$(sort $(wildcard tests/client/*.c)))
CLI_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard client/cli/*.c)))
TORTURE_WORKERS := $(OUT)/tests/torture/worker $(OUT)/tests/torture/recipe
FENCED_WRITERS := $(patsubst %,$(OUT)/client/examples/fenced_%,file sqlite redis)
SELFTEST_OBJECTS := $(OUT)/tests/selftest/selftest.o
UNIT_TESTS := $(patsubst %.c,$(OUT)/%,$(sort $(wildcard tests/unit/*/*_test.c \
    tests/unit/client/*/*_test.c)))
# Every object is built again when the Makefile or one of the BUILD_FLAGS changes.
BUILD_FLAGS = $(CC) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) TLS=$(TLS)
BUILT_BY := Makefile $(OUT)/flags
C_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp')

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: all
all: module client cli ## build everything

# Written only if the flags have changed, so that its time is that of the change.
$(OUT)/flags: always
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(BUILD_FLAGS))' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
.PHONY: always

.PHONY: module
module: $(OUT)/dlock.so ## build the Redis module, build/dlock.so

$(OUT)/dlock.so: $(MODULE_OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(MODULE_LDFLAGS)

.PHONY: client
client: $(OUT)/libdlock.so $(OUT)/libdlock.a ## build the client library, build/libdlock.so and .a

$(OUT)/libdlock.so: $(CLIENT_OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(CLIENT_OBJECTS) $(CLIENT_LDFLAGS) $(CLIENT_LIBS)
	@ln -sf libdlock.so $@.$(LIBRARY_ABI)

# One object in which only the public names are left, so that they cannot clash with a program's.
$(OUT)/libdlock.a: $(CLIENT_OBJECTS)
	$(LD) -r -o $(OUT)/client/libdlock.o $(CLIENT_OBJECTS)
	$(OBJCOPY) --localize-hidden $(OUT)/client/libdlock.o
	@rm -f $@
	$(AR) rcs $@ $(OUT)/client/libdlock.o

.PHONY: cli
cli: $(OUT)/dlock ## build the command line tool, build/dlock

$(OUT)/dlock: $(CLI_OBJECTS) $(OUT)/libdlock.a
	$(CC) $(CFLAGS) $(LDFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pthread -o $@ $^ \
	    $(CLIENT_LIBS)

# It sees the library as its users do.
$(OUT)/client/cli/%.o: client/cli/%.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_GNU_SOURCE -pthread -Iclient/include $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

# Only for tests, never installed.
$(OUT)/dlock_selftest.so: $(SELFTEST_OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(MODULE_LDFLAGS)

$(CLIENT_OBJECTS): | $(if $(filter yes,$(TLS)),openssl)
.PHONY: openssl
openssl:
	@echo '#include <openssl/ssl.h>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 || \
	    { echo "dlock: OpenSSL is missing; on Debian: apt-get install libssl-dev" >&2; exit 1; }

$(OUT)/client/%.o: client/%.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(CLIENT_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

$(OUT)/%.o: %.c $(HEADER) $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(MODULE_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

build/include/redismodule.h:
	@scripts/get-redismodule-h build/include

# A unit test is one program: NAME_test.c and the pure file of the module or the tool that it names,
# or those files of the client that it needs and does not replace by fakes of its own.
lease_index_NEEDS := module/deadlines.c
exposition_NEEDS := client/cli/escape.c
$(OUT)/tests/unit/module/%_test: tests/unit/module/%_test.c tests/unit/unit.h module/%.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) $(CFLAGS) -Imodule -Itests/unit -o $@ $< module/$*.c $($*_NEEDS)

$(OUT)/tests/unit/cli/%_test: tests/unit/cli/%_test.c tests/unit/unit.h client/cli/%.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) $(CFLAGS) -Iclient/cli -Itests/unit -o $@ $< client/cli/$*.c $($*_NEEDS)

$(OUT)/client/files.a: $(CLIENT_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $(CLIENT_OBJECTS)

$(OUT)/tests/unit/client/%_test: tests/unit/client/%_test.c tests/unit/unit.h $(OUT)/client/files.a
	@mkdir -p $(@D)
	$(CC) $(CLIENT_CFLAGS) $(CFLAGS) -Itests/unit -o $@ $< $(OUT)/client/files.a $(CLIENT_LIBS)

# These see the library as its users do.
$(OUT)/tests/client/%: tests/client/%.c $(OUT)/libdlock.a
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread $(CFLAGS) -Iclient/include -o $@ $< \
	    $(OUT)/libdlock.a $(CLIENT_LIBS) $(if $(filter counter,$*),-lhiredis)

# A worker of the torture: several files, and hiredis for the data that the locks protect.
$(TORTURE_WORKERS): $(OUT)/tests/torture/%: tests/torture/%.c $(OUT)/libdlock.a \
    $(patsubst %,tests/torture/%.c,visit settings update history) $(wildcard tests/torture/*.h)
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread $(CFLAGS) -Iclient/include -o $@ \
	    $(filter %.c,$^) $(OUT)/libdlock.a $(CLIENT_LIBS) -lhiredis

# The example that is two files: the writer, and a store that takes its writes.
$(OUT)/client/examples/fenced_%: client/examples/fenced_writer.c client/examples/fenced_%.c \
    $(OUT)/libdlock.a client/examples/fenced_store.h
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread $(CFLAGS) -Iclient/include -o $@ \
	    $(filter-out %.h,$^) $(CLIENT_LIBS) $(if $(filter sqlite,$*),-lsqlite3) \
	    $(if $(filter redis,$*),-lhiredis)

-include $(wildcard $(OUT)/module/*.d $(OUT)/client/*/*.d $(OUT)/client/src/*/*.d \
    $(OUT)/tests/*/*.d $(OUT)/tests/*/*/*.d $(OUT)/tests/unit/client/*/*.d)

.PHONY: demo
demo: ## see it work: a private Redis, two clients, one lock
	@scripts/bootstrap run
	@$(MAKE) -s module
	@scripts/demo

.PHONY: try
try: ## type commands into a private Redis with the module, on port PORT (default 7379)
	@scripts/bootstrap run
	@$(MAKE) -s module
	@scripts/with-server $(or $(PORT),7379) redis-cli -p $(or $(PORT),7379)

# As many jobs as there are processors, unless make was told how many.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: test
test: ## build and run every test
	@scripts/bootstrap test
	@$(MAKE) -s $(JOBS) test-build
	@$(MAKE) -s $(JOBS) test-build SANITIZE=address,undefined
	@$(MAKE) -s $(JOBS) test-build-client SANITIZE=thread
	@$(MAKE) -s $(JOBS) fuzz-build
	@scripts/get-servers redis-8.0 redis-8.6 valkey-8.0 valkey-8.1 valkey-9.1 redict-7.3 || \
	    [ $$? -eq 3 ] # run-tests skips those that cannot be had
	@scripts/run-tests

.PHONY: test-servers
test-servers: ## run the module suite on Redis 7.0, 8.0, 8.6, Valkey 8.0, 8.1, 9.1 and Redict 7.3
	@scripts/bootstrap test
	@$(MAKE) -s test-build
	@scripts/test-servers $(SERVERS)

.PHONY: test-build
test-build: $(OUT)/dlock.so $(OUT)/dlock_selftest.so $(OUT)/libdlock.so $(OUT)/libdlock.a \
    $(OUT)/dlock $(if $(SANITIZE),$(UNIT_TESTS)) $(CLIENT_TESTS) $(FENCED_WRITERS) \
    $(TORTURE_WORKERS)

.PHONY: test-build-client
test-build-client: $(OUT)/libdlock.so $(CLIENT_TESTS) $(FENCED_WRITERS)

# SCENARIO, SECONDS (of each), SEED, SERVER (a name of get-servers, or a path), WAY: see its README.
.PHONY: torture
torture: ## throw faults at locks, and judge what their holders saw: see tests/torture/README.md
	@scripts/bootstrap test
	@$(MAKE) -s $(JOBS) test-build
	@scripts/python tests/torture/torture.py --scenario $(or $(SCENARIO),all) \
	    --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) --server "$(SERVER)" \
	    $(if $(WAY),--way $(WAY))

.PHONY: model
model: ## let spin check the models of tests/model, and that it catches their mutants
	@scripts/bootstrap model
	@scripts/python tests/model/check.py

# The targets of tests/fuzz, each with the files that it fuzzes. libFuzzer is a part of clang.
FUZZ_CFLAGS := -std=c11 -D_DEFAULT_SOURCE -g -O1 -Wall -Wextra -Itests/fuzz \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
FUZZ_TARGETS := codec args resp urls replies
codec_FUZZES := module/lock_codec.c
args_FUZZES := module/args.c module/fence.c
resp_FUZZES := client/src/net/resp.c client/src/base/text.c
urls_FUZZES := client/src/deployment/topology.c client/src/base/text.c
replies_FUZZES := $(sort $(wildcard client/src/protocol/*.c)) client/src/net/error_reply.c \
    client/src/net/resp.c client/src/base/text.c

.PHONY: fuzz
fuzz: ## fuzz the readers of bytes for SECONDS (default 300) in all, see tests/fuzz/README.md
	@scripts/bootstrap fuzz
	@$(MAKE) -s $(JOBS) fuzz-build
	@scripts/python tests/fuzz/fuzz.py --seconds $(or $(SECONDS),300)

.PHONY: fuzz-build
fuzz-build: $(patsubst %,build/fuzz/%,$(FUZZ_TARGETS))

.SECONDEXPANSION:
build/fuzz/%: tests/fuzz/%.c tests/fuzz/fuzz.h $$($$*_FUZZES) $(HEADER) Makefile
	@mkdir -p $(@D)
	clang $(FUZZ_CFLAGS) -Iclient/include -Iclient/src -Imodule -isystem "$(dir $(HEADER))" \
	    -o $@ $< $($*_FUZZES)

.PHONY: bench
bench: bench-build ## measure it against the alternatives, in a few minutes
	@scripts/get-servers valkey-9.1 || echo "dlock: the bench goes on without Valkey 9.1" >&2
	@scripts/python tests/bench/bench.py

.PHONY: bench-quick
bench-quick: bench-build ## see in a minute whether a figure has become worse than promised
	@scripts/python tests/bench/bench.py --quick

.PHONY: bench-build
bench-build:
	@scripts/bootstrap bench
	@$(MAKE) -s all

.PHONY: check-figures
check-figures: ## compare the figures of the pages with those of the last make bench
	@scripts/check-figures

.PHONY: plots
plots: ## draw what the benchmark has measured: build/bench/*.svg and *.png, and those of the pages
	@scripts/bootstrap bench
	@scripts/python tests/bench/plots.py

.PHONY: lint
lint: ## check formatting, layers, scripts, Python and pages
	@scripts/bootstrap lint
	@scripts/lint

.PHONY: format
format: ## let clang-format lay out every C and C++ file
	@scripts/bootstrap lint
	clang-format -i $(C_FILES)

.PHONY: install
install: install-module install-client install-cli install-doc ## install it under PREFIX

.PHONY: install-module
install-module: module
	install -d "$(MODULE_DIR)"
	install -m 755 $(OUT)/dlock.so "$(MODULE_DIR)/dlock.so"

# The pages lie as they do here, so that their links work. The units name the installed tool.
DOC_FILES = README.md LICENSE CHANGELOG.md CONTRIBUTING.md client/README.md client/ARCHITECTURE.md \
    client/cli/dlock.1 module/README.md module/ARCHITECTURE.md scripts/Containerfile \
    tests/bench/README.md $(filter-out %/__pycache__, $(wildcard client/include/* \
    client/examples/* module/examples/* tests/bench/plots/*.svg))
.PHONY: install-doc
install-doc:
	for file in $(DOC_FILES); do install -D -m 644 "$$file" "$(DOC_DIR)/$$file" || exit; done
	sed -i 's|/usr/local/bin/dlock |$(PREFIX)/bin/dlock |' "$(DOC_DIR)"/module/examples/*.service

CLIENT_HEADERS := $(sort $(wildcard client/include/*))
.PHONY: install-client
install-client: client
	@case "$(PREFIX)" in /*) ;; *) echo "dlock: PREFIX must begin with /" >&2; exit 1 ;; esac
	install -d "$(LIB_DIR)/pkgconfig" "$(CMAKE_DIR)" "$(INCLUDE_DIR)"
	install -m 755 $(OUT)/libdlock.so "$(LIB_DIR)/libdlock.so.$(VERSION)"
	ln -sf libdlock.so.$(VERSION) "$(LIB_DIR)/libdlock.so.$(LIBRARY_ABI)"
	ln -sf libdlock.so.$(LIBRARY_ABI) "$(LIB_DIR)/libdlock.so"
	install -m 644 $(OUT)/libdlock.a "$(LIB_DIR)/libdlock.a"
	install -m 644 $(CLIENT_HEADERS) "$(INCLUDE_DIR)/"
	{ printf 'prefix=%s\n' "$(PREFIX)"; \
	    sed 's/@VERSION@/$(VERSION)/;s/@TLS@/$(PC_TLS)/;s|@LIB@|$(LIB)|' client/dlock.pc.in; \
	} >"$(LIB_DIR)/pkgconfig/dlock.pc"
	for file in dlockConfig.cmake dlockConfigVersion.cmake; do \
	    sed 's/@VERSION@/$(VERSION)/;s/@ABI@/$(LIBRARY_ABI)/;s/@TLS@/$(TLS)/;s|@UP@|$(LIB_UP)|' \
	        client/$$file.in >"$(CMAKE_DIR)/$$file" || exit; done

.PHONY: install-cli
install-cli: cli
	install -d "$(BIN_DIR)" "$(MAN_DIR)" "$(BASH_DIR)" "$(ZSH_DIR)" "$(FISH_DIR)"
	install -m 755 $(OUT)/dlock "$(BIN_DIR)/dlock"
	sed 's|@VERSION@|$(VERSION)|;s|@BIN_DIR@|$(PREFIX)/bin|' client/cli/dlock.1 \
	    >"$(MAN_DIR)/dlock.1"
	install -m 644 client/cli/dlock.bash "$(BASH_DIR)/dlock"
	install -m 644 client/cli/dlock.zsh "$(ZSH_DIR)/_dlock"
	install -m 644 client/cli/dlock.fish "$(FISH_DIR)/dlock.fish"

.PHONY: deb
deb: ## build Debian packages of it, into build/deb
	@scripts/bootstrap deb
	@scripts/make-deb

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f "$(MODULE_DIR)/dlock.so" "$(BIN_DIR)/dlock" "$(MAN_DIR)/dlock.1"
	rm -f "$(BASH_DIR)/dlock" "$(ZSH_DIR)/_dlock" "$(FISH_DIR)/dlock.fish"
	rm -f "$(LIB_DIR)/libdlock.so.$(VERSION)" "$(LIB_DIR)/libdlock.so.$(LIBRARY_ABI)" \
	    "$(LIB_DIR)/libdlock.so" "$(LIB_DIR)/libdlock.a" "$(LIB_DIR)/pkgconfig/dlock.pc" \
	    $(patsubst client/include/%,"$(INCLUDE_DIR)/%",$(CLIENT_HEADERS))
	rm -rf "$(CMAKE_DIR)"
	rm -rf "$(DOC_DIR)"

.PHONY: clean
clean: ## remove everything that was built
	rm -rf build

.PHONY: help
help: ## show this
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@sed -n '3,10s/^# / /p' Makefile
