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

# shellcheck source=tests/clients/installed.sh
. "$(dirname "$0")/installed.sh"

failed=0
if install_python python "$python_pins" 10; then
    "$cache/python/bin/python" "$here/python_client.py" "$@" || failed=1
else
    echo "skipped: python mcp client ($reason)"
fi
if install_node node "$node_pins"; then
    # Node looks for packages next to the script.
    cp "$here"/*.mjs "$cache/node/"
    node "$cache/node/client.mjs" "$@" || failed=1
    node "$cache/node/sdk.mjs" "$@" || failed=1
else
    echo "skipped: TypeScript clients ($reason)"
fi
exit $failed
