# dlock - distributed locks inside Redis. "make help" lists what can be made.
#
#   SANITIZE=address,undefined   build with these sanitizers, into build/sanitize-...
#   REDISMODULE_H=path           use this redismodule.h (7.0.15) instead of fetching it
#   REDIS_SERVER=path            the server for demo, tests and benchmarks
#   SERVERS="name|path ..."      the servers for "make test-servers"; see scripts/test-servers
#   PREFIX=dir DESTDIR=dir       where "make install" puts things; libdir, includedir, ... too
#   TLS=no                       a client library without rediss://, and without OpenSSL
#   CFLAGS=... CC=cc             another compiler, other flags: all is built again
#   WERROR=1                     warnings are errors
VERSION := 1.0.0
LIBRARY_ABI := 1
VERSION_NUMBER := $(shell echo $(VERSION) | awk -F. '{print $$1 * 10000 + $$2 * 100 + $$3}')

# The names of the GNU coding standards, for packagers; PREFIX and DESTDIR are enough for others.
PREFIX ?= /usr/local
prefix = $(PREFIX)
exec_prefix = $(prefix)
bindir = $(exec_prefix)/bin
libdir = $(exec_prefix)/lib
includedir = $(prefix)/include
datarootdir = $(prefix)/share
datadir = $(datarootdir)
docdir = $(datarootdir)/doc/dlock
mandir = $(datarootdir)/man
moduledir = $(exec_prefix)/lib/redis/modules
pkgconfigdir = $(libdir)/pkgconfig
cmakedir = $(libdir)/cmake/dlock
bashdir = $(datadir)/bash-completion/completions
zshdir = $(datadir)/zsh/site-functions
fishdir = $(datadir)/fish/vendor_completions.d

comma := ,
percent := %
SANITIZE ?=
OUT := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))
HEADER := $(if $(REDISMODULE_H),$(REDISMODULE_H),build/include/redismodule.h)
ifneq ($(REDISMODULE_H),)
$(if $(filter redismodule.h,$(notdir $(HEADER))),,$(error dlock: REDISMODULE_H=$(HEADER) must be \
    the path of a file redismodule.h))
$(if $(wildcard $(HEADER)),,$(error dlock: REDISMODULE_H=$(HEADER): there is no such file))
endif

CC ?= cc
OBJCOPY ?= objcopy
# Sanitizers name lines and functions, for which -g1 suffices; both take two thirds of the time.
CFLAGS ?= $(if $(SANITIZE),-O1 -g1,-O2 -g)
# A parameter may have the name of its type, which gcc's plain -Wshadow takes for a mistake.
SHADOW := -Wshadow$(shell $(CC) -Werror -Wshadow=local -E -x c /dev/null >/dev/null 2>&1 && \
    echo =local)
WARNINGS := -Wall -Wextra -Wpedantic $(SHADOW) -Wconversion -Wstrict-prototypes \
    -Wmissing-prototypes -Wvla -Wwrite-strings -Wundef -Wformat=2 $(if $(WERROR),-Werror)
DLOCK_CFLAGS := -std=c11 -fPIC -fvisibility=hidden $(WARNINGS) -MMD -MP \
    $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
    -DDLOCK_VERSION='"$(VERSION)"' -DDLOCK_VERSION_NUMBER=$(VERSION_NUMBER)
MODULE_CFLAGS := $(DLOCK_CFLAGS) -D_POSIX_C_SOURCE=200809L $(if $(SANITIZE),,-flto=auto) \
    -isystem "$(dir $(HEADER))" -Imodule
MODULE_LDFLAGS := -shared -Wl,-z,relro,-z,now $(if $(SANITIZE),-fsanitize=$(SANITIZE),-flto=auto)

# Where OpenSSL is, unless it is said otherwise.
HAS_OPENSSL := $(CC) $(CPPFLAGS) -include openssl/ssl.h -E -x c /dev/null >/dev/null 2>&1
ifndef TLS
TLS := $(shell $(HAS_OPENSSL) && echo yes || echo no)
WITHOUT_TLS := $(filter no,$(TLS))
endif
$(if $(filter yes no,$(TLS)),,$(error dlock: TLS is yes or no))
PC_TLS := $(if $(filter yes,$(TLS)),libssl$(comma) libcrypto)
CLIENT_LIBS := $(if $(filter yes,$(TLS)),-lssl -lcrypto)

# The compiler's files for -flto have symbols of their own, which objcopy cannot make local: the
# client is compiled without, whatever CFLAGS say.
NO_LTO := -fno-lto
CLIENT_CFLAGS := $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread -Iclient/include -Iclient/src
# nodelete: threads of the library and of OpenSSL may still run its code after dlclose(3).
CLIENT_LDFLAGS := -shared -pthread -Wl,-soname,libdlock.so.$(LIBRARY_ABI) \
    -Wl,--version-script=client/libdlock.map \
    -Wl,-z,relro,-z,now,-z,nodelete $(if $(SANITIZE),-fsanitize=$(SANITIZE),-Wl,-z,defs)

MODULE_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard module/*.c)))
CLIENT_SOURCES := $(filter-out client/src/net/tls$(if $(filter yes,$(TLS)),_none).c, \
    $(sort $(wildcard client/src/*/*.c)))
CLIENT_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(CLIENT_SOURCES))
CLIENT_TESTS := $(patsubst %.c,$(OUT)/%,$(sort $(wildcard tests/client/*.c)))
CLI_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard client/cli/*.c)))
TORTURE_WORKERS := $(patsubst %,$(OUT)/tests/torture/%,worker recipe crowd)
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

# Written only if the flags have changed, so that its time is that of the change. Several makes may
# run at a time.
$(OUT)/flags: always
	@mkdir -p $(@D)
	@new=$@.$$$$; printf '%s\n' '$(subst ','\'',$(BUILD_FLAGS))' >$$new; \
	    if cmp -s $$new $@; then rm $$new; else mv $$new $@; fi
.PHONY: always

.PHONY: module
module: $(OUT)/dlock.so ## build the Redis module, build/dlock.so

$(OUT)/dlock.so: $(MODULE_OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(MODULE_LDFLAGS)

.PHONY: client
client: $(OUT)/libdlock.so $(OUT)/libdlock.a ## build the client library, build/libdlock.so and .a

$(OUT)/libdlock.so: $(CLIENT_OBJECTS) client/libdlock.map
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

$(CLIENT_OBJECTS): | openssl
.PHONY: openssl
openssl:
ifeq ($(TLS),yes)
	@$(HAS_OPENSSL) || \
	    { echo "dlock: OpenSSL is missing; on Debian: apt-get install libssl-dev" >&2; exit 1; }
else ifdef WITHOUT_TLS
	@echo "dlock: no headers of OpenSSL, so this is built without TLS; on Debian: libssl-dev" >&2
endif

$(OUT)/client/%.o: client/%.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(CLIENT_CFLAGS) $(CFLAGS) $(CPPFLAGS) $(NO_LTO) -c -o $@ $<

$(OUT)/%.o: %.c $(HEADER) $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(MODULE_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

build/include/redismodule.h:
	@scripts/get-redismodule-h build/include

# A unit test is one program: NAME_test.c and the pure file of the module or the tool that it names,
# or those files of the client that it needs and does not replace by fakes of its own. The tests are
# compiled without optimization, which takes a fifth of the time; what they test is not.
UNIT_CFLAGS = $(filter-out -O%,$(CFLAGS)) -O0 -Itests/unit
lease_index_NEEDS := module/heap
exposition_NEEDS := client/cli/text
.SECONDEXPANSION:
$(OUT)/tests/unit/module/%_test: tests/unit/module/%_test.c tests/unit/unit.h $(OUT)/module/%.o \
    $$(patsubst $$(percent),$(OUT)/$$(percent).o,$$($$*_NEEDS))
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) $(UNIT_CFLAGS) -Imodule -o $@ $< $(filter %.o,$^)

$(OUT)/tests/unit/cli/%_test: tests/unit/cli/%_test.c tests/unit/unit.h $(OUT)/client/cli/%.o \
    $$(patsubst $$(percent),$(OUT)/$$(percent).o,$$($$*_NEEDS))
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) $(UNIT_CFLAGS) -Iclient/cli -o $@ $< $(filter %.o,$^)

$(OUT)/client/files.a: $(CLIENT_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $(CLIENT_OBJECTS)

$(OUT)/tests/unit/client/%_test: tests/unit/client/%_test.c tests/unit/unit.h $(OUT)/client/files.a
	@mkdir -p $(@D)
	$(CC) $(CLIENT_CFLAGS) $(UNIT_CFLAGS) -o $@ $< $(OUT)/client/files.a $(CLIENT_LIBS)

.PHONY: unit
unit: $(UNIT_TESTS) ## run the unit tests as they are built here, which needs nothing but a compiler
	@for test in $(UNIT_TESTS); do timeout 60 $$test || { echo "$$test: failed"; exit 1; }; done

# These see the library as its users do.
$(OUT)/tests/client/%: tests/client/%.c $(wildcard tests/client/*.h) $(OUT)/libdlock.a
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread $(CFLAGS) -Iclient/include -o $@ $< \
	    $(OUT)/libdlock.a $(CLIENT_LIBS) $(if $(filter counter,$*),-lhiredis)

# A worker of the torture: several files, and hiredis for the data that the locks protect.
$(OUT)/tests/torture/%.o: tests/torture/%.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread $(CFLAGS) -Iclient/include -c -o $@ $<

TORTURE_SHARED := visit settings source update transfer history
$(TORTURE_WORKERS): %: %.o $(TORTURE_SHARED:%=$(OUT)/tests/torture/%.o) $(OUT)/libdlock.a
	$(CC) $(CFLAGS) $(LDFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pthread -o $@ \
	    $(filter %.o %.a,$^) $(CLIENT_LIBS) -lhiredis

# The example that is two files: the writer, and a store that takes its writes.
$(OUT)/client/examples/fenced_%: client/examples/fenced_writer.c client/examples/fenced_%.c \
    $(OUT)/libdlock.a client/examples/fenced_store.h
	@mkdir -p $(@D)
	$(CC) $(DLOCK_CFLAGS) -D_DEFAULT_SOURCE -pthread $(CFLAGS) -Iclient/include -o $@ \
	    $(filter-out %.h,$^) $(CLIENT_LIBS) $(if $(filter sqlite,$*),-lsqlite3) \
	    $(if $(filter redis,$*),-lhiredis)

-include $(wildcard $(OUT)/module/*.d $(OUT)/client/*/*.d $(OUT)/client/src/*/*.d \
    $(OUT)/tests/*/*.d $(OUT)/tests/*/*/*.d $(OUT)/tests/unit/client/*/*.d)

.PHONY: deps
deps: ## install the Debian packages that are missing for any of these targets
	@scripts/bootstrap all

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
test: ## build and run the tests, with sanitizers where they find most: 5 minutes on two cores
	@scripts/bootstrap test
	@scripts/run-tests

.PHONY: check
check: test

.PHONY: test-unit test-module test-client test-cli
test-unit test-module test-client test-cli: ## run a part of make test
	@scripts/bootstrap test
	@scripts/run-tests --part $(or $(PART_$@),$(@:test-%=%))
PART_test-cli := tool

.PHONY: test-all
test-all: ## run every test: all servers, forms and sanitizers, models, fuzzing: 13 minutes
	@scripts/bootstrap test-all
	@scripts/run-tests --all

.PHONY: test-rest
test-rest: ## run what make test-all runs and make test does not
	@scripts/bootstrap test-all
	@scripts/run-tests --rest

.PHONY: test-servers
test-servers: ## run the module suite on Redis 7.0, 8.0, 8.6, Valkey 8.0, 8.1, 9.1 and Redict 7.3
	@scripts/bootstrap test
	@$(MAKE) -s test-build
	@scripts/test-servers $(SERVERS)

.PHONY: test-build
test-build: $(OUT)/dlock.so $(OUT)/dlock_selftest.so $(OUT)/libdlock.so $(OUT)/libdlock.a \
    $(OUT)/dlock $(if $(SANITIZE),$(UNIT_TESTS)) $(CLIENT_TESTS) $(FENCED_WRITERS) \
    $(TORTURE_WORKERS) build/tests/clock.so

# Preloaded into servers, whose clocks the tests set.
build/tests/clock.so: tests/support/clock.c
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -O2 -o $@ $<

# What tests of the module and the library need of a build with sanitizers.
.PHONY: test-build-sanitized
test-build-sanitized: $(UNIT_TESTS) $(OUT)/dlock.so $(OUT)/dlock_selftest.so $(OUT)/libdlock.so \
    $(OUT)/plain_malloc.so

$(OUT)/plain_malloc.so: tests/support/plain_malloc.c $(BUILT_BY)
	@mkdir -p $(@D)
	$(CC) -shared -fPIC $(CFLAGS) -o $@ $<

.PHONY: test-build-client
test-build-client: $(OUT)/libdlock.so $(CLIENT_TESTS) $(FENCED_WRITERS)

# SCENARIO, SECONDS (of each), SEED, SERVER (a name of get-servers, or a path), WAY: see its README.
.PHONY: torture
torture: ## throw faults at locks, and judge what their holders saw: see tests/torture/README.md
	@scripts/bootstrap test
	@$(MAKE) -s $(JOBS) test-build
	@scripts/python tests/torture/torture.py --scenario $(or $(SCENARIO),all) \
	    --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) --server "$(SERVER)" \
	    $(if $(WAY),--way $(WAY)) $(if $(PYTHON_WORKERS),--python)

# SECONDS: the sum of all runs; SCENARIO and SERVER: some of them, with commas between.
.PHONY: torture-hour
torture-hour: ## every scenario of the torture on every server, an hour in all
	@scripts/bootstrap test
	@scripts/get-servers || [ $$? -eq 3 ] # those that can be fetched today
	@$(MAKE) -s $(JOBS) test-build
	@scripts/python tests/torture/hour.py --seconds $(or $(SECONDS),3600) \
	    $(if $(SEED),--seed $(SEED)) --scenarios "$(SCENARIO)" --servers "$(SERVER)"

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
	install -d "$(DESTDIR)$(moduledir)"
	install -m 755 $(OUT)/dlock.so "$(DESTDIR)$(moduledir)/dlock.so"

# The pages lie as they do here, so that their links work. The units name the installed tool.
DOC_FILES = README.md LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md \
    $(wildcard client/*.md module/commands/*.md) client/cli/README.md \
    client/cli/dlock.1 $(wildcard module/*.md) module/commands.json scripts/Containerfile \
    tests/README.md tests/bench/README.md $(filter-out %/__pycache__, $(wildcard client/include/* \
    client/examples/* module/examples/* tests/bench/plots/*.svg client/python/README.md))
.PHONY: install-doc
install-doc:
	for file in $(DOC_FILES); do \
	    install -D -m 644 "$$file" "$(DESTDIR)$(docdir)/$$file" || exit; done
	sed -i 's|/usr/local/bin/dlock |$(bindir)/dlock |' \
	    "$(DESTDIR)$(docdir)"/module/examples/*.service

# For distributions: pip knows best where packages for Python go otherwise.
.PHONY: install-python
install-python:
	@[ -n "$(pythondir)" ] || { echo "dlock: say pythondir=..., or use pip" >&2; exit 1; }
	install -d "$(DESTDIR)$(pythondir)/dlock" "$(DESTDIR)$(pythondir)/dlock-$(VERSION).dist-info"
	install -m 644 client/python/dlock/*.py client/python/dlock/py.typed \
	    "$(DESTDIR)$(pythondir)/dlock/"
	printf 'Metadata-Version: 2.1\nName: dlock\nVersion: %s\nRequires-Dist: redis>=4.3.4\n' \
	    "$(VERSION)" >"$(DESTDIR)$(pythondir)/dlock-$(VERSION).dist-info/METADATA"

# A folder as dlock.pc names it, so that pkg-config finds an installation that was moved.
IN_PREFIX = $(subst ^$(prefix)/,$${prefix}/,^$(1))
CLIENT_HEADERS := $(sort $(wildcard client/include/*))
PUBLIC_NAMES := $(shell sed -n 's/^        \(dlock_[a-z_]*\);$$/\1/p' client/libdlock.map)
# The manual page FOLDER/dlock.SECTION: $(call INSTALL_MAN,FOLDER,SECTION)
INSTALL_MAN = install -d "$(DESTDIR)$(mandir)/man$(2)" && \
    sed 's|@VERSION@|$(VERSION)|;s|@BIN_DIR@|$(bindir)|;s|@DOC_DIR@|$(docdir)|' $(1)/dlock.$(2) \
    >"$(DESTDIR)$(mandir)/man$(2)/dlock.$(2)"
.PHONY: install-client
install-client: client
	@case "$(prefix)" in /*) ;; *) echo "dlock: PREFIX must begin with /" >&2; exit 1 ;; esac
	install -d "$(DESTDIR)$(libdir)" "$(DESTDIR)$(pkgconfigdir)" "$(DESTDIR)$(cmakedir)" \
	    "$(DESTDIR)$(includedir)"
	install -m 755 $(OUT)/libdlock.so "$(DESTDIR)$(libdir)/libdlock.so.$(VERSION)"
	ln -sf libdlock.so.$(VERSION) "$(DESTDIR)$(libdir)/libdlock.so.$(LIBRARY_ABI)"
	ln -sf libdlock.so.$(LIBRARY_ABI) "$(DESTDIR)$(libdir)/libdlock.so"
	install -m 644 $(OUT)/libdlock.a "$(DESTDIR)$(libdir)/libdlock.a"
	install -m 644 $(CLIENT_HEADERS) "$(DESTDIR)$(includedir)/"
	$(call INSTALL_MAN,client,3)
	for name in $(PUBLIC_NAMES); do \
	    ln -sf dlock.3 "$(DESTDIR)$(mandir)/man3/$$name.3" || exit; done
	sed -e 's|@prefix@|$(prefix)|;s/@VERSION@/$(VERSION)/;s/@TLS@/$(PC_TLS)/' \
	    -e 's|@libdir@|$(call IN_PREFIX,$(libdir))|' \
	    -e 's|@includedir@|$(call IN_PREFIX,$(includedir))|' -e 's/=^/=/' \
	    client/dlock.pc.in >"$(DESTDIR)$(pkgconfigdir)/dlock.pc"
	for file in dlockConfig.cmake dlockConfigVersion.cmake; do \
	    sed 's/@VERSION@/$(VERSION)/;s/@ABI@/$(LIBRARY_ABI)/;s/@TLS@/$(TLS)/' client/$$file.in | \
	        sed "s|@libdir@|$$(realpath -m --relative-to="$(cmakedir)" "$(libdir)")|" | \
	        sed "s|@includedir@|$$(realpath -m --relative-to="$(cmakedir)" "$(includedir)")|" \
	        >"$(DESTDIR)$(cmakedir)/$$file" || exit; done

.PHONY: install-cli
install-cli: cli
	install -d "$(DESTDIR)$(bindir)" "$(DESTDIR)$(bashdir)" "$(DESTDIR)$(zshdir)" \
	    "$(DESTDIR)$(fishdir)"
	install -m 755 $(OUT)/dlock "$(DESTDIR)$(bindir)/dlock"
	$(call INSTALL_MAN,client/cli,1)
	$(call INSTALL_MAN,client,7)
	install -m 644 client/cli/dlock.bash "$(DESTDIR)$(bashdir)/dlock"
	install -m 644 client/cli/dlock.zsh "$(DESTDIR)$(zshdir)/_dlock"
	install -m 644 client/cli/dlock.fish "$(DESTDIR)$(fishdir)/dlock.fish"

.PHONY: deb
deb: ## build Debian packages of it, into build/deb
	@scripts/bootstrap deb
	@scripts/make-deb

.PHONY: dist
dist: ## make the files of a release, into build/dist: tarball, packages, checksums, SBOM
	@scripts/bootstrap deb
	@scripts/make-dist

.PHONY: commands-json
commands-json: module ## write module/commands.json anew, from what the module says of its commands
	@scripts/bootstrap test
	@scripts/with-server 0 scripts/python scripts/commands-json >build/commands.json
	@mv build/commands.json module/commands.json

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f "$(DESTDIR)$(moduledir)/dlock.so" "$(DESTDIR)$(bindir)/dlock" \
	    "$(DESTDIR)$(mandir)"/man[137]/dlock.[137] "$(DESTDIR)$(bashdir)/dlock" \
	    $(patsubst %,"$(DESTDIR)$(mandir)/man3/%.3",$(PUBLIC_NAMES)) \
	    "$(DESTDIR)$(zshdir)/_dlock" "$(DESTDIR)$(fishdir)/dlock.fish"
	rm -f "$(DESTDIR)$(libdir)/libdlock.so.$(VERSION)" "$(DESTDIR)$(libdir)/libdlock.a" \
	    "$(DESTDIR)$(libdir)/libdlock.so.$(LIBRARY_ABI)" "$(DESTDIR)$(libdir)/libdlock.so" \
	    "$(DESTDIR)$(pkgconfigdir)/dlock.pc" \
	    $(patsubst client/include/%,"$(DESTDIR)$(includedir)/%",$(CLIENT_HEADERS))
	rm -rf "$(DESTDIR)$(cmakedir)" "$(DESTDIR)$(docdir)"

# What was fetched: redismodule.h and the servers.
FETCHED := include servers
.PHONY: clean
clean: ## remove everything that was built, and keep what was fetched
	[ ! -d build ] || find build -mindepth 1 -maxdepth 1 $(patsubst %,! -name %,$(FETCHED)) \
	    -exec rm -rf {} +

.PHONY: distclean
distclean: ## remove what was built and what was fetched
	rm -rf build

.PHONY: help
help: ## show this
	@awk -F':.*## ' '/^[a-z][a-z -]*:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@sed -n '3,10s/^# / /p' Makefile
