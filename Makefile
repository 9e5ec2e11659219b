# The only list of commands; CI calls nothing else.

PREFIX ?= $(HOME)/.local

# EMACS and EMACSCLIENT, in the environment or here, choose the Emacs under test.

CARGO ?= cargo
SUFFIX := $(if $(filter Darwin,$(shell uname -s)),dylib,so)
RELAY = target/release/emacs-runtime-mcp
CORE = lisp/emacs-runtime-mcp-core.$(SUFFIX)
LISP = $(wildcard lisp/*.el)

.PHONY: help build demo test measure test-huge test-cancels soak bench lint install uninstall emacs emacs-gtk clean

help: ## what can be done here
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1  \t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## the relay (target/release/emacs-runtime-mcp) and the native core beside the Lisp
	$(CARGO) build --release --locked
	@# What was compiled by hand from older source would be loaded instead of it.
	@rm -f lisp/*.elc
	@# By rename: an Emacs may have the old one mapped.
	@cp target/release/libemacs_runtime_mcp_core.$(SUFFIX) $(CORE).new
	@cmp -s $(CORE).new $(CORE) && rm $(CORE).new || mv -f $(CORE).new $(CORE)

demo: emacs build ## watch an agent's calls go into an Emacs and back
	@$(CARGO) run --release --locked --quiet -p it --bin demo

test: emacs build ## all that doesn't compare times; on Emacs 30 too where it can be had
	@tests/run.sh

measure: emacs emacs-gtk build ## the tests that compare times; needs a quiet machine
	@tests/run.sh measure

test-huge: emacs build ## printing a value of 200 MB takes no memory of its size
	HUGE_MB=200 $(CARGO) test --locked -p it --test it -- a_huge_value

bench: emacs build ## what a call costs, and where: a table, docs/bench-VERSION.json, docs/bench.svg
	@tests/run.sh bench

soak: emacs build ## relays at random work while things break, for SECONDS (120); SEED repeats a run
	$(CARGO) run --locked --quiet -p it --bin soak

test-cancels: emacs build ## 100,000 forms are cancelled about when they end: no signal goes astray
	CANCELS=100000 $(CARGO) test --locked -p it --test it -- never_strikes

emacs:
	@tests/install-emacs.sh tmux

emacs-gtk: emacs
	@tests/install-emacs-gtk.sh

lint: emacs ## formatting, clippy, layering, Lisp on every Emacs there is, shell
	@tests/lint.sh

install: build ## into PREFIX (default ~/.local); prints what goes into init.el and the client
	@tests/install.sh install "$(PREFIX)" $(RELAY) $(CORE) $(LISP)

uninstall: ## remove what install put into PREFIX
	@tests/install.sh uninstall "$(PREFIX)" $(RELAY) $(CORE) $(LISP)

clean: ## what was built
	$(CARGO) clean
	rm -f $(CORE) lisp/*.elc
