#!/bin/sh
# Runs every test: those of the crates, and then, on each Emacs there is, the Lisp's own and those of
# the whole.
set -eu
cd "$(dirname "$0")/.."
. tests/emacsen.sh

cargo test --quiet --locked --workspace --exclude it
cargo build --quiet --locked --tests -p it

on_one_emacs() {
    echo
    echo "== $("$EMACS" --version | head -n 1)"
    for file in tests/*-tests.el; do
        [ -e "$file" ] || continue
        "$EMACS" -Q --batch -L lisp -l "$file" -f ert-run-tests-batch-and-exit
    done
    # As it is installed: compiled by the Emacs that loads it.
    LISP=$PWD/target/lisp-$("$EMACS" -Q --batch --eval '(princ emacs-version)')
    rm -rf "$LISP"
    mkdir -p "$LISP"
    cp lisp/emacs-runtime-mcp-* "$LISP"
    "$EMACS" -Q --batch -L "$LISP" -f batch-byte-compile "$LISP"/*.el
    export LISP
    # Most of it waits; what measures a time has the machine to itself.
    cargo test --quiet --locked -p it --test it -- --skip timed_ --test-threads=3
    measure || {
        # On a shared machine a measurement fails now and then for what others do; not twice.
        echo "a measurement failed; all of them once more"
        measure
    }
}
measure() {
    cargo test --quiet --locked -p it --test it -- timed_ --test-threads=1
}

for_each_emacs on_one_emacs
