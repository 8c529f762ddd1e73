# A short front for CMake. `make help` lists the targets.
BUILD         ?= build
FUZZ_SECONDS  ?= 60
CMAKE_FLAGS   ?=
BENCH_FLAGS   ?=
prefix        ?= /usr/local
export DESTDIR
JOBS          ?= $(shell nproc)
SOURCES        = $(shell git ls-files '*.c' '*.h' 2>/dev/null || find src tests -name '*.[ch]')

.PHONY: all build demo test asan tsan arm64 format fuzz bench docs install uninstall deb clean dependencies test-dependencies help

all: build

help:
	@echo 'make          build $(BUILD)/farthing'
	@echo 'make demo     install what is missing, build, train for about a minute, show the report'
	@echo 'make test     install what is missing, build, run all tests'
	@echo 'make asan     all tests under the address and undefined-behaviour sanitizers'
	@echo 'make tsan     unit tests, trainings and a parameter server under ThreadSanitizer'
	@echo 'make arm64    build for arm64 on another machine, run unit and op tests in QEMU'
	@echo 'make fuzz     each fuzz target, from its seeds, for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds (needs clang)'
	@echo 'make bench    measure the engine against PyTorch (BENCH_FLAGS="--python PYTHON_WITH_TORCH")'
	@echo 'make format   format the sources with clang-format'
	@echo 'make docs     write docs/OPTIONS.md anew from the option table'
	@echo 'make install  install the program, the library, its headers and docs into prefix=$(prefix), below DESTDIR'
	@echo 'make uninstall   remove them again'
	@echo 'make deb      Debian packages of the program, the library and its headers, in $(BUILD)-deb/packages'
	@echo 'make clean    remove the build folders'

dependencies:
	@scripts/install-dependencies

test-dependencies:
	@scripts/install-dependencies --tests

build:
	@scripts/build $(BUILD) -j $(JOBS) -- $(CMAKE_FLAGS)

demo: dependencies
	@TARGET=farthing $(MAKE) --no-print-directory build
	$(BUILD)/farthing train --model mnist-cnn --data digits --for 1m
	@echo
	$(BUILD)/farthing report

test: test-dependencies
	@$(MAKE) --no-print-directory build
	@scripts/run-tests $(BUILD)

asan: test-dependencies
	@scripts/build $(BUILD)-asan -j $(JOBS) -- -DFARTHING_SANITIZE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(CMAKE_FLAGS)
	@scripts/run-tests $(BUILD)-asan

tsan: test-dependencies
	@scripts/build $(BUILD)-tsan -j $(JOBS) -- -DFARTHING_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo $(CMAKE_FLAGS)
	@scripts/run-tsan $(BUILD)-tsan

arm64:
	@scripts/install-dependencies --arm64
	@scripts/build-arm64 $(BUILD)-arm64 -j $(JOBS) -- $(CMAKE_FLAGS)
	@scripts/test-arm64 $(BUILD)-arm64 -j $(JOBS)

fuzz:
	@scripts/install-dependencies --fuzz
	@CC=clang TARGET=fuzz scripts/build $(BUILD)-fuzz -j $(JOBS) -- -DFARTHING_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(CMAKE_FLAGS)
	@scripts/run-fuzz $(BUILD)-fuzz $(FUZZ_SECONDS)

bench: build
	bench/engine/run $(BENCH_FLAGS)

docs: build
	$(BUILD)/farthing options > docs/OPTIONS.md

# A library is found by the linker of programs only after ldconfig; into a DESTDIR nothing is installed to be run.
install: build
	@cmake --install $(BUILD) --prefix '$(prefix)'
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall:
	@scripts/uninstall $(BUILD) '$(prefix)'
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" -ne 0 ] || ldconfig

deb: dependencies
	@scripts/make-deb $(BUILD)-deb -j $(JOBS) -- $(CMAKE_FLAGS)

format:
	clang-format -i $(SOURCES)

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-arm64 $(BUILD)-fuzz $(BUILD)-deb
