#!/bin/sh
# shellcheck disable=SC2034 # who reads this uses them
# What run.sh and validators.sh share, to be read by them: the cache folder, and what they install into
# it. Each folder in it has a file of its pins once everything is there.

here=$(cd "$(dirname "$0")" && pwd)
cache=${EMACS_RUNTIME_MCP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/emacs-runtime-mcp-tests}
mkdir -p "$cache" && cache=$(cd "$cache" && pwd) || exit 1

first_error() { grep -i -m 1 error "$1" || tail -n 1 "$1"; }

# Runs the command silently; where it fails, $reason says why.
try() {
    "$@" >"$cache/install.$$.log" 2>&1 </dev/null
    status=$?
    [ $status -eq 0 ] || reason="${1##*/} failed: $(first_error "$cache/install.$$.log")"
    rm -f "$cache/install.$$.log"
    return $status
}

is_installed() { [ "$(cat "$cache/$1/pins" 2>/dev/null)" = "$2" ]; }

# install_python FOLDER PINS MINOR: at least Python 3.MINOR.
install_python() {
    reason="Python 3.$3 or newer is missing"
    python3 -c "import sys; sys.exit(sys.version_info < (3, $3))" 2>/dev/null || return
    is_installed "$1" "$2" && "$cache/$1/bin/python" -c '' 2>/dev/null && return
    rm -rf "${cache:?}/$1"
    # shellcheck disable=SC2086 # several words
    try python3 -m venv "$cache/$1" &&
        try "$cache/$1/bin/pip" install -q --disable-pip-version-check $2 &&
        echo "$2" >"$cache/$1/pins"
}

# install_node FOLDER PINS: at least Node 20.
install_node() {
    reason='Node 20 or newer is missing'
    node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || return
    is_installed "$1" "$2" && return
    reason='npm is missing'
    command -v npm >/dev/null || return
    rm -rf "${cache:?}/$1"
    mkdir "$cache/$1" && echo '{"private": true}' >"$cache/$1/package.json"
    # shellcheck disable=SC2086 # several words
    try npm install --prefix "$cache/$1" --no-audit --no-fund --no-package-lock --save-exact $2 &&
        echo "$2" >"$cache/$1/pins"
}
