# txos: build, try, test, measure, install. `make help` lists the targets.
#
# Every target that compiles first runs scripts/setup, which installs what is missing with apt-get
# (as root, or with sudo) and is silent and quick where nothing is missing.

SHELL := /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
TXOS := $(TARGET)/release/txos

BINDIR = $(DESTDIR)$(PREFIX)/bin
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
.PHONY: help demo test build lint bench install uninstall clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: build ## install a real Debian package inside `txos run`: fail, commit, compare, undo (root)
	@demo/run

test: ## build, then run the whole test suite
	@scripts/setup build test
	cargo build --release --locked -p txos
	cargo test --workspace --locked --no-fail-fast

build: ## build target/release/txos
	@scripts/setup build
	cargo build --release --locked -p txos

lint: ## rustfmt and clippy, warnings are errors
	@scripts/setup build lint
	@scripts/tidy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

bench: build ## measure against native execution; BENCH="--quick ROW…" narrows it (root)
	@scripts/setup bench
	cargo run --release --locked -p txos-bench -- $(BENCH)

# Builds only where no binary is there yet, so that `sudo make install` after `make build` needs no
# toolchain of root's own.
$(TXOS):
	@$(MAKE) build

install: $(TXOS) ## install below $(DESTDIR)$(PREFIX)
	install -d $(BINDIR)
	install -m 0755 $(TXOS) $(BINDIR)/txos
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
	rm -f $(BINDIR)/txos $(BASHCOMPDIR)/txos $(ZSHCOMPDIR)/_txos $(FISHCOMPDIR)/txos.fish
	@for page in docs/man/*.[1-8]; do rm -f "$(MANDIR)/man$${page##*.}/$${page##*/}"; done
	@for unit in dist/*.service; do rm -f "$(UNITDIR)/$${unit##*/}"; done

clean: ## remove everything that was built or measured
	rm -rf $(TARGET) bench/out
