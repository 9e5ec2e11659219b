#!/bin/sh
# All that a machine can say about the source: formatting, clippy, layering, Lisp, shell.
set -eu
cd "$(dirname "$0")/.."

step() { echo "lint: $*"; }

step "cargo fmt"
cargo fmt --all --check

step "clippy, warnings denied"
cargo clippy --quiet --locked --workspace --all-targets -- -D warnings

step "layering: relay -> protocol <- module"
tree() { cargo tree --locked --edges normal --prefix none --format '{p}' -p "$1" | cut -d' ' -f1; }
absent() {
    crate=$1
    shift
    for other; do
        if tree "$crate" | grep -qx "$other"; then
            echo "lint: $crate must not depend on $other" >&2
            exit 1
        fi
    done
}
absent emacs-runtime-mcp emacs emacs-runtime-mcp-module
absent emacs-runtime-mcp-module tokio rmcp clap emacs-runtime-mcp
absent emacs-runtime-mcp-protocol tokio rmcp emacs interprocess nix emacs-runtime-mcp emacs-runtime-mcp-module
if grep -rln 'rmcp::' relay/src | grep -v '^relay/src/mcp/'; then
    echo "lint: rmcp's types belong in relay/src/mcp" >&2
    exit 1
fi
if grep -rln '\bemacs::' module/src | grep -vE '^module/src/(lib|lisp)\.rs$'; then
    echo "lint: the emacs crate's types belong in module/src/lib.rs and lisp.rs" >&2
    exit 1
fi

. tests/emacsen.sh
for_each_emacs lint_lisp

step "shellcheck"
if ! command -v shellcheck >/dev/null 2>&1; then
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq shellcheck >/dev/null 2>&1 || :
    fi
fi
if command -v shellcheck >/dev/null 2>&1; then
    shellcheck -x tests/*.sh tests/clients/*.sh .ci/run
else
    echo "skipped: shellcheck (not to be had here)"
fi
echo "lint: clean"
