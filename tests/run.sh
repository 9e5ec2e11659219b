#!/bin/sh
# Runs the tests: those of the crates, and then, on each Emacs there is, the Lisp's own and those of
# the whole. With "measure" those that compare times (their names begin with timed_), else the others;
# with "bench" the bench instead.
set -eu
cd "$(dirname "$0")/.."
. tests/emacsen.sh

bench_one_emacs() {
    compile_lisp
    cargo run --release --locked --quiet -p bench
}

if [ "${1:-}" = bench ]; then
    for_each_emacs bench_one_emacs
    exit
fi

cargo test --quiet --locked --workspace --exclude it --exclude bench
cargo build --quiet --locked --tests -p it

on_one_emacs() {
    echo
    echo "== $("$EMACS" --version | head -n 1)"
    for file in tests/*-tests.el; do
        [ -e "$file" ] || continue
        "$EMACS" -Q --batch -L lisp -l "$file" -f ert-run-tests-batch-and-exit
    done
    compile_lisp
    # shellcheck disable=SC2086 # several words
    cargo test --quiet --locked -p it --test it -- $which $again
    # What is between client and relay is the same whatever Emacs there is; and one soak is enough.
    again="--skip wire:: --skip clients:: --skip short_soak::"
}

again=

case ${1:-} in
# Alone on the machine: these compare times.
measure)
    cargo build --quiet --release --locked -p it --bin echo
    which="timed_ --test-threads=1"
    ;;
# Most of these wait.
*) which="--skip timed_ --test-threads=2" ;;
esac
for_each_emacs on_one_emacs
