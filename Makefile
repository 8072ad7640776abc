# make            libsq.a, libsq.so, sq, sq-convert
# make demo       convert a real checkpoint and embed a few sentences (CHECKPOINT=DIR: that one, nothing is fetched)
# make test       every test; the last line counts them
# make eval       accuracy of real checkpoints on labelled rows, and the targets: SQ_MODELS and SQ_SHARED are folders (tests/eval.cpp)
# make eval-peers what other libraries' INT8 answers to those rows, for make eval: once; SQ_PEERS_PYTHON is the python that has them
# make bench      kernel and end-to-end benchmarks
# make compare    sq beside OpenVINO, ONNX Runtime and others, by tests/bench/compare: SQ_SHARED is a folder; COMPARE='--suite' or other arguments of it
# make san tsan   the tests under AddressSanitizer and UBSan, those with threads under ThreadSanitizer
# make fuzz       libFuzzer (clang) for FUZZ_SECONDS on each target
# make soak       64 threads with mixed tasks on one model for SOAK_SECONDS, answers and growth checked (tests/soak.cpp; SOAK=MODEL.sq)
# make spark      the Spark job of examples/spark on two executors, one of which is killed; SQ_SPARK_PYTHON is a python that has pyspark[sql]
# make static     sq and sq-convert without shared libraries, in OUT/static; with a musl toolchain as CXX and CC, such as 'zig c++ -target x86_64-linux-musl', without glibc
# make amalgamation  the library as amalgamation/sq-amalgamation.cpp with sq.h beside it, to copy into other trees
# make install    to DESTDIR/PREFIX (MAN_PAGES= without manual pages, whose making runs the programs);   make clean
#
# Variables: CXX CC AR LD OBJCOPY CXXFLAGS LDFLAGS PREFIX DESTDIR OPENMP; WERROR=1 makes warnings errors. B is where objects go, OUT where products go.
# Instruction sets are chosen at run time from target regions in the sources: no -m flag belongs here.

# All cores, unless -j says otherwise.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=$(shell nproc 2>/dev/null || echo 1)
endif

ifeq ($(origin CXX),default)
CXX = g++
endif
ifneq ($(findstring clang++,$(CXX)),)
CC_OF_CXX = $(subst clang++,clang,$(CXX))
else
CC_OF_CXX = $(subst g++,gcc,$(CXX))
endif
ifeq ($(origin CC),default)
CC = $(CC_OF_CXX)
endif
CXXFLAGS ?= -O2
OBJCOPY ?= objcopy
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
B ?= build
OUT ?= .
FUZZ_SECONDS ?= 60

version_part = $(shell sed -n 's/^\#define SQ_VERSION_$(1) //p' sq.h)
VERSION := $(call version_part,MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)
SONAME := libsq.so.$(call version_part,MAJOR)

# ---- flags ----

# For libsq.o, whose symbols become local: an object of LTO has none yet, and objcopy leaves GCC's unique ones (static variables in templates) as they are.
LOCAL := -fno-lto $(shell $(CXX) -fno-gnu-unique -fsyntax-only -x c++ /dev/null 2>/dev/null && echo -fno-gnu-unique)
WARNINGS = -Wall -Wextra -Wshadow $(if $(WERROR),-Werror)
COMMON = $(CXXFLAGS) $(LOCAL) -ffp-contract=off -fvisibility=hidden -fPIC -pthread $(WARNINGS) -MMD -MP
CXX_ALL = -std=c++17 $(COMMON)
C_ALL = -std=c11 -pedantic $(COMMON)

# OpenMP serves sq-convert's loops only. Without it (clang without libomp) sq-convert computes on one core.
# The probe links a loop that no optimiser removes, into a file: zig links nothing for /dev/null.
PROBE_OPENMP = t=$$(mktemp) && printf 'int main(int n, char **) {\n\#pragma omp parallel reduction(+ : n)\n++n;\nreturn n; }\n' | $(CXX) -fopenmp -x c++ - -o $$t 2>/dev/null && echo -fopenmp; rm -f $$t
ifeq ($(origin OPENMP),undefined)
OPENMP := $(shell $(PROBE_OPENMP))
endif

# ---- sources ----

LIB_SRC := $(wildcard sq.cpp sq-tasks.cpp sq-model.cpp sq-threads.cpp sq-tune.cpp sq-cpu.cpp sq-tok*.cpp sq-kernels-*.cpp)
CONVERT_MAIN := convert/sq-convert.cpp
CONVERT_SRC := $(filter-out $(CONVERT_MAIN),$(wildcard sq-quant*.cpp convert/*.cpp))
CLI_SRC := $(wildcard examples/sq-cli.cpp examples/cli-*.cpp)
TEST_CXX := $(wildcard tests/test-*.cpp)
TEST_C := $(wildcard tests/test-*.c)
TEST_TOOLS := $(wildcard tests/amx-*.cpp tests/single-step.cpp)
FUZZ_SRC := $(filter-out tests/fuzz/replay.cpp,$(wildcard tests/fuzz/*.cpp))
BENCH_SRC := $(wildcard tests/bench/*.cpp)

objects = $(patsubst %,$(B)/%.o,$(1))
LIB_OBJ := $(call objects,$(LIB_SRC))
CONVERT_OBJ := $(call objects,$(CONVERT_SRC))
CLI_OBJ := $(call objects,$(CLI_SRC))
# The forward pass once more, reporting its tensors (SQ_TAPS in sq-model.h): for calibration and layer tests.
TAPS_OBJ := $(filter-out $(B)/sq.cpp.o $(B)/sq-tasks.cpp.o,$(LIB_OBJ)) $(B)/taps/sq.cpp.o $(B)/taps/sq-tasks.cpp.o

TEST_PROGRAMS := $(patsubst tests/%.cpp,$(B)/%,$(TEST_CXX)) $(patsubst tests/%.c,$(B)/%,$(TEST_C))
REPLAY_PROGRAMS := $(patsubst tests/fuzz/%.cpp,$(B)/replay/%,$(FUZZ_SRC))
FUZZ_PROGRAMS := $(patsubst tests/fuzz/%.cpp,$(B)/fuzz/%,$(FUZZ_SRC))
BENCH_PROGRAMS := $(filter-out $(B)/bench/worker,$(patsubst tests/bench/%.cpp,$(B)/bench/%,$(BENCH_SRC)))
PRODUCTS := $(OUT)/libsq.a $(OUT)/libsq.so $(OUT)/sq $(OUT)/sq-convert
AMALGAMATION := $(OUT)/amalgamation/sq-amalgamation.cpp
MAN_PAGES ?= $(B)/man/sq.1 $(B)/man/sq-convert.1

# ---- rules ----

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all programs static lib-sources amalgamation test eval eval-peers bench compare san tsan fuzz fuzz-programs soak spark demo install clean

all: $(PRODUCTS)

programs: all $(TEST_PROGRAMS) $(REPLAY_PROGRAMS) $(B)/hello $(AMALGAMATION) $(MAN_PAGES)

lib-sources:
	@echo $(LIB_SRC)

amalgamation: $(AMALGAMATION)
$(AMALGAMATION): cmake/amalgamate.awk LICENSE $(LIB_SRC) $(wildcard sq*.h) sq-unicode.inc
	@mkdir -p $(@D)
	awk -v version=$(VERSION) -f cmake/amalgamate.awk $(LIB_SRC) >$@
	cp sq.h $(@D)

$(B)/man/%.1: man/%.1.in cmake/man.awk $(OUT)/%
	@mkdir -p $(@D)
	awk -v version=$(VERSION) -v program=$(OUT)/$* -f cmake/man.awk $< >$@

# Objects depend on the compiler and its flags.
FLAGS_LINE := $(CXX) | $(CC) | $(CXX_ALL) | $(LDFLAGS) | $(OPENMP)
$(B)/flags: FORCE
	@mkdir -p $(B)
	@echo '$(FLAGS_LINE)' | cmp -s - $@ || echo '$(FLAGS_LINE)' >$@
.PHONY: FORCE
FORCE:

$(B)/%.cpp.o: %.cpp $(B)/flags
	@mkdir -p $(@D)
	$(CXX) $(CXX_ALL) $(FLAGS_HERE) -c $< -o $@
$(B)/taps/%.cpp.o: %.cpp $(B)/flags
	@mkdir -p $(@D)
	$(CXX) $(CXX_ALL) -DSQ_TAPS -c $< -o $@
$(B)/%.c.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(C_ALL) $(FLAGS_HERE) -c $< -o $@
$(CONVERT_OBJ) $(B)/$(CONVERT_MAIN).o: FLAGS_HERE = -DSQ_TAPS $(OPENMP)
$(B)/tests/%.o: FLAGS_HERE = -DSQ_TAPS
$(B)/examples/hello.c.o: FLAGS_HERE = -I.

# The static library is one object in which nothing but sq_* is global, so that applications may use every other name of sq's, and no instance of the C++ library
# that was compiled here serves them.
$(B)/libsq.o: $(LIB_OBJ)
	$(LD) -r --force-group-allocation $^ -o $@
	$(OBJCOPY) --wildcard --keep-global-symbol='sq_*' $@
$(OUT)/libsq.a: $(B)/libsq.o
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^
# The map keeps template instances of the C++ library, which have default visibility, out of the exported symbols.
$(B)/sq.map: $(B)/flags
	echo '{ global: sq_*; local: *; };' >$@
$(OUT)/libsq.so: $(LIB_OBJ) $(B)/sq.map
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -shared -pthread -Wl,-soname,$(SONAME) -Wl,--version-script,$(B)/sq.map $(LIB_OBJ) $(LDFLAGS) -o $@
	ln -sf libsq.so $(OUT)/$(SONAME)

LINK = $(CXX) $(CXXFLAGS) -pthread $(filter %.o %.a,$^) $(LDFLAGS)
$(OUT)/sq: $(CLI_OBJ) $(OUT)/libsq.a
	$(LINK) -o $@
$(OUT)/sq-convert: $(B)/$(CONVERT_MAIN).o $(CONVERT_OBJ) $(TAPS_OBJ)
	@mkdir -p $(@D)
	$(LINK) $(OPENMP) -o $@

static: $(OUT)/static/sq $(OUT)/static/sq-convert
$(OUT)/static/sq: $(CLI_OBJ) $(OUT)/libsq.a
	@mkdir -p $(@D)
	$(LINK) -static -o $@
$(OUT)/static/sq-convert: $(B)/$(CONVERT_MAIN).o $(CONVERT_OBJ) $(TAPS_OBJ)
	@mkdir -p $(@D)
	$(LINK) $(OPENMP) -static -o $@

# Tests see everything inside; the C programs and hello.c see what a user of the shared library sees.
$(B)/tests.a: $(CONVERT_OBJ) $(TAPS_OBJ) $(call objects,$(TEST_TOOLS))
	rm -f $@
	$(AR) rcs $@ $^
$(B)/test-%: $(B)/tests/test-%.cpp.o $(B)/tests.a
	$(LINK) $(OPENMP) -o $@
$(B)/test-%: $(B)/tests/test-%.c.o $(OUT)/libsq.so
	$(CXX) $(CXXFLAGS) -pthread $< -L$(OUT) -lsq -Wl,-rpath,$(abspath $(OUT)) $(LDFLAGS) -lm -o $@
$(B)/hello: $(B)/examples/hello.c.o $(OUT)/libsq.so
	$(CXX) $(CXXFLAGS) -pthread $< -L$(OUT) -lsq -Wl,-rpath,$(abspath $(OUT)) $(LDFLAGS) -lm -o $@
$(B)/eval: $(B)/tests/eval.cpp.o $(B)/tests.a
	$(LINK) $(OPENMP) -o $@
$(B)/soak: $(B)/tests/soak.cpp.o $(B)/tests.a
	$(LINK) $(OPENMP) -o $@
# The worker of `make compare` runs what users link.
$(B)/bench/worker: $(B)/tests/bench/worker.cpp.o $(OUT)/libsq.a
	@mkdir -p $(@D)
	$(LINK) -o $@
$(B)/bench/%: $(B)/tests/bench/%.cpp.o $(B)/tests.a
	@mkdir -p $(@D)
	$(LINK) $(OPENMP) -o $@
$(B)/replay/%: $(B)/tests/fuzz/%.cpp.o $(B)/tests/fuzz/replay.cpp.o $(B)/tests.a
	@mkdir -p $(@D)
	$(LINK) $(OPENMP) -o $@
$(B)/fuzz/%: $(B)/tests/fuzz/%.cpp.o $(B)/tests.a
	@mkdir -p $(@D)
	$(LINK) $(OPENMP) -fsanitize=fuzzer -o $@

# The command line's reader of lines, without the rest of the command line.
$(B)/replay/fuzz-lines $(B)/fuzz/fuzz-lines: $(call objects,examples/cli-io.cpp examples/cli-fail.cpp)

-include $(shell find $(B) -name '*.d' 2>/dev/null)

# ---- tasks ----

test: programs
	B=$(B) OUT=$(OUT) CXX='$(CXX)' CC='$(CC)' bash tests/run-tests.sh

eval: $(B)/eval
	$(B)/eval $(EVAL)
eval-peers:
	"$${SQ_PEERS_PYTHON:-$${SQ_PEERS:-$$HOME/sq-peers}/venv/bin/python}" tests/eval-peers $(PEERS)

bench: $(BENCH_PROGRAMS)
	@set -e; for p in $^; do echo "$$p"; "$$p"; done

COMPARE ?= --suite
compare: $(B)/bench/worker $(OUT)/sq-convert
	@[ -n "$$SQ_SHARED" ] || { echo "make compare: SQ_SHARED must name the folder that has peers/bench.py (see tests/bench/compare)" >&2; exit 2; }
	B=$(B) OUT=$(OUT) tests/bench/compare $(COMPARE)

SAN = -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=address,undefined
san:
	$(MAKE) B=build-san OUT=build-san CXXFLAGS='$(SAN)' programs
	B=build-san OUT=build-san bash tests/run-tests.sh --programs

# libgomp is not built for ThreadSanitizer, which then sees races that are none: no OpenMP here.
tsan:
	$(MAKE) B=build-tsan OUT=build-tsan CXXFLAGS='-O1 -g -fsanitize=thread' OPENMP= programs
	B=build-tsan OUT=build-tsan bash tests/run-tests.sh --programs test-threads test-forward test-api test-amx test-signals

FUZZ_CXX ?= $(firstword $(foreach c,clang++ clang++-14,$(if $(shell command -v $(c)),$(c))) clang++)
fuzz:
	$(MAKE) B=build-fuzz OUT=build-fuzz CXX=$(FUZZ_CXX) CXXFLAGS='$(SAN) -fsanitize=fuzzer-no-link' OPENMP= fuzz-programs
	B=build-fuzz bash tests/run-tests.sh --fuzz $(FUZZ_SECONDS)
fuzz-programs: $(FUZZ_PROGRAMS)

soak: $(B)/soak
	$(B)/soak $(SOAK)

spark: all
	B=$(B) OUT=$(OUT) bash tests/test-spark.sh

demo: $(OUT)/sq $(OUT)/sq-convert
	@B=$(B) OUT=$(OUT) CHECKPOINT='$(CHECKPOINT)' bash examples/demo.sh

INSTALLED_SO = libsq.so.$(VERSION)
install: all $(MAN_PAGES)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 644 sq.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(OUT)/libsq.a $(DESTDIR)$(LIBDIR)
	install -m 755 $(OUT)/libsq.so $(DESTDIR)$(LIBDIR)/$(INSTALLED_SO)
	ln -sf $(INSTALLED_SO) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libsq.so
	install -m 755 $(OUT)/sq $(OUT)/sq-convert $(DESTDIR)$(PREFIX)/bin
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' cmake/sq.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/sq.pc
	$(if $(MAN_PAGES),install -d $(DESTDIR)$(MANDIR)/man1 && install -m 644 $(MAN_PAGES) $(DESTDIR)$(MANDIR)/man1)

clean:
	rm -rf build build-san build-tsan build-fuzz amalgamation static libsq.a libsq.so $(SONAME) sq sq-convert
