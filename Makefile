# txos: build, try, test, measure, install. `make help` lists the targets.
#
# Every target that compiles first runs scripts/setup, which installs what is missing with apt-get
# (as root, or with sudo) and is silent and quick where nothing is missing.

SHELL := /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
TXOS := $(TARGET)/release/txos
LIBTXOS := $(TARGET)/release/libtxos.so
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

BINDIR = $(DESTDIR)$(PREFIX)/bin
LIBDIR = $(DESTDIR)$(PREFIX)/lib
INCLUDEDIR = $(DESTDIR)$(PREFIX)/include
MANDIR = $(DESTDIR)$(PREFIX)/share/man
UNITDIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
BASHCOMPDIR = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHCOMPDIR = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHCOMPDIR = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

# A toolchain that scripts/setup installed lives in the home directory and in nobody's PATH yet.
# It comes last, so that a toolchain the user already has in PATH is taken first.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
# The end-to-end tests and the demo run the real binary; this is where they find it.
export TXOS_BIN := $(TXOS)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test programs build lint bench histories witnesses attackers system-pause power-cut kill-rounds soak install uninstall clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: build ## install a real Debian package inside `txos run`: fail, commit, compare, undo (root)
	@demo/run

test: ## build, then run the whole test suite
	@scripts/setup build test
	cargo build --release --locked -p txos -p libtxos
	@scripts/tidy $(TARGET)/release/txos
	CXLOCK_LOOM_PREEMPTIONS=3 crates/cxlock/check.sh loom
	scripts/test

programs: build ## run the real programs of the test suite in transactions, none left out (root)
	@scripts/setup build test programs
	TXOS_SKIPS=0 scripts/test --test effects_programs --test programs

build: ## build target/release/txos and libtxos
	@scripts/setup build
	cargo build --release --locked -p txos -p libtxos

lint: ## rustfmt and clippy, warnings are errors
	@scripts/setup build lint
	@scripts/tidy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

bench: build ## measure against native execution; BENCH="--quick ROW…" narrows it (root)
	@scripts/setup bench
	cargo run --release --locked -p txos-bench -- $(BENCH)

histories: build ## 20,000 random transactions have a serial order; a facet unminded is missed (root)
	cargo build --release --locked -p txos --features blind --target-dir $(TARGET)/blind
	TXOS_TEST_TRANSACTIONS=$(or $(TRANSACTIONS),20000) cargo test --release --locked -p txos-tests \
	  --test histories -- --nocapture what_random
	TXOS_BLIND_BIN=$(TARGET)/blind/release/txos cargo test --release --locked -p txos-tests \
	  --test histories -- --nocapture --ignored

witnesses: build ## each call that is not made for real is made by its test, as strace(1) sees it (root)
	cargo test --locked -p txos-effects -p txos-tests --no-run
	cargo test --locked -p txos-tests --test effects_witnesses -- --include-ignored --nocapture

attackers: build ## 10,000 transactions against each attacker who swaps paths (ROUNDS=N) (root)
	TXOS_TEST_ROUNDS=$(or $(ROUNDS),10000) cargo test --release --locked -p txos-tests \
	  --test anomalies --test swaps -- --nocapture a_check_and_a_use by_another

power-cut: build ## cut the power of a virtual machine, again and again (ARGS="--cuts N")
	@scripts/setup build virtual
	cargo build --release --locked -p endurance
	$(TARGET)/release/power-cut $(ENDURANCE) --work $(TARGET)/endurance $(ARGS)

system-pause: build ## commit towards the whole system of a virtual machine (--domain system)
	@scripts/setup build virtual
	cargo build --release --locked -p endurance
	cargo build --release --locked -p txos-tests --bin member
	$(TARGET)/release/system-pause --txos $(TXOS) --member $(TARGET)/release/member \
	  --work $(TARGET)/endurance

kill-rounds: build ## kill txos at random moments, recover, check (ARGS="--rounds N")
	cargo build --release --locked -p endurance
	$(TARGET)/release/kill-rounds $(ENDURANCE) $(ARGS)

soak: build ## an hour of everything at once, and no leaks (ARGS="--minutes N")
	cargo build --release --locked -p endurance
	$(TARGET)/release/soak $(ENDURANCE) $(ARGS)

ENDURANCE := --txos $(TXOS) --worker $(TARGET)/release/generation

# Builds only where no binary is there yet, so that `sudo make install` after `make build` needs no
# toolchain of root's own.
$(TXOS) $(LIBTXOS):
	@$(MAKE) build

install: $(TXOS) $(LIBTXOS) ## install below $(DESTDIR)$(PREFIX)
	install -d $(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR)
	install -m 0755 $(TXOS) $(BINDIR)/txos
	install -m 0755 $(LIBTXOS) $(LIBDIR)/libtxos.so
	install -m 0644 $(LIBTXOS:.so=.a) $(LIBDIR)/libtxos.a
	install -m 0644 crates/libtxos/include/txos.h $(INCLUDEDIR)/txos.h
	sed 's|@PREFIX@|$(PREFIX)|g; s|@VERSION@|$(VERSION)|g' dist/txos.pc > $(LIBDIR)/pkgconfig/txos.pc
	chmod 0644 $(LIBDIR)/pkgconfig/txos.pc
	@set -e; for page in docs/man/*.[1-8]; do \
	  [ -e "$$page" ] || continue; \
	  install -d "$(MANDIR)/man$${page##*.}"; \
	  install -m 0644 "$$page" "$(MANDIR)/man$${page##*.}/"; \
	done
	@set -e; for unit in dist/*.service; do \
	  [ -e "$$unit" ] || continue; \
	  install -d $(UNITDIR); \
	  sed 's|@PREFIX@|$(PREFIX)|g' "$$unit" > "$(UNITDIR)/$${unit##*/}"; \
	  chmod 0644 "$(UNITDIR)/$${unit##*/}"; \
	done
	@set -e; if text=$$($(TXOS) completions bash 2>/dev/null); then \
	  install -d $(BASHCOMPDIR) $(ZSHCOMPDIR) $(FISHCOMPDIR); \
	  printf '%s\n' "$$text" > $(BASHCOMPDIR)/txos; \
	  $(TXOS) completions zsh > $(ZSHCOMPDIR)/_txos; \
	  $(TXOS) completions fish > $(FISHCOMPDIR)/txos.fish; \
	fi

uninstall: ## remove what `make install` put below $(DESTDIR)$(PREFIX)
	rm -f $(LIBDIR)/libtxos.so $(LIBDIR)/libtxos.a $(LIBDIR)/pkgconfig/txos.pc $(INCLUDEDIR)/txos.h
	rm -f $(BINDIR)/txos $(BASHCOMPDIR)/txos $(ZSHCOMPDIR)/_txos $(FISHCOMPDIR)/txos.fish
	@for page in docs/man/*.[1-8]; do rm -f "$(MANDIR)/man$${page##*.}/$${page##*/}"; done
	@for unit in dist/*.service; do rm -f "$(UNITDIR)/$${unit##*/}"; done

clean: ## remove everything that was built or measured
	rm -rf $(TARGET) bench/out
