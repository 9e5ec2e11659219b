#!/bin/sh
# Runs the relay with the official clients: run.sh SERVER_COMMAND [ARGUMENT...]
# The command is the relay with its arguments. The clients are installed into a
# cache folder; where Node, Python or a registry is missing, theirs are skipped.
# The exit code is 1 when a client that ran failed.

set -u

python_pins='mcp==2.3.0 jsonschema==4.26.0'
node_pins='@modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2 ajv@8.20.0'

[ $# -gt 0 ] || {
    echo "usage: run.sh SERVER_COMMAND [ARGUMENT...]" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
cache=${EMACS_RUNTIME_MCP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/emacs-runtime-mcp-tests}
mkdir -p "$cache" && cache=$(cd "$cache" && pwd) || exit 1
log=$cache/install.log

# Runs the command silently; where it fails, $reason says why.
try() {
    "$@" >"$log" 2>&1 </dev/null && return
    reason="${1##*/} failed: $(grep -i -m 1 error "$log" || tail -n 1 "$log")"
    return 1
}

# The pins stand in a file once everything is installed.
is_installed() { [ "$(cat "$cache/$1/pins" 2>/dev/null)" = "$2" ]; }

install_python() {
    reason='Python 3.10 or newer is missing'
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || return
    is_installed python "$python_pins" &&
        "$cache/python/bin/python" -c '' 2>/dev/null && return
    rm -rf "$cache/python"
    # shellcheck disable=SC2086 # several words
    try python3 -m venv "$cache/python" &&
        try "$cache/python/bin/pip" install -q --disable-pip-version-check $python_pins &&
        echo "$python_pins" >"$cache/python/pins"
}

install_node() {
    reason='Node 20 or newer is missing'
    node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || return
    is_installed node "$node_pins" && return
    reason='npm is missing'
    command -v npm >/dev/null || return
    rm -rf "$cache/node"
    mkdir "$cache/node" && echo '{"private": true}' >"$cache/node/package.json"
    # shellcheck disable=SC2086 # several words
    try npm install --prefix "$cache/node" --no-audit --no-fund --no-package-lock \
        --save-exact $node_pins &&
        echo "$node_pins" >"$cache/node/pins"
}

failed=0
if install_python; then
    "$cache/python/bin/python" "$here/python_client.py" "$@" || failed=1
else
    echo "skipped: python mcp client ($reason)"
fi
if install_node; then
    # Node looks for packages next to the script.
    cp "$here"/*.mjs "$cache/node/"
    node "$cache/node/client.mjs" "$@" || failed=1
    node "$cache/node/sdk.mjs" "$@" || failed=1
else
    echo "skipped: TypeScript clients ($reason)"
fi
exit $failed
