#!/usr/bin/env python3
# Runs the relay (argv: its command) with the official Python client in its
# modes auto (its default) and legacy, and checks the tool's answers.

import difflib
import json
import sys

import anyio
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters

VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}

CALLS = [
    (
        {"expression": "(+ 1 1)"},
        {"isError": False, "ok": True, "value": "2", "code": None, "symbol": None},
    ),
    (
        {"expression": "(car 1)"},
        {"isError": True, "ok": False, "value": None, "code": "elisp_error", "symbol": "wrong-type-argument"},
    ),
    (
        {"expression": "1", "timeout_ms": 5},
        {"isError": True, "ok": False, "value": None, "code": "invalid_request", "symbol": None},
    ),
]


def same(what, got, want):
    lines = [json.dumps(x, indent=1, sort_keys=True).splitlines() for x in (want, got)]
    diff = list(difflib.unified_diff(*lines, "wanted", "got", n=99, lineterm=""))
    assert not diff, "\n".join([what, *diff])


async def check(mode):
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    with anyio.fail_after(60):  # seconds
        async with Client(server, mode=mode) as client:
            same("protocol version", client.protocol_version, VERSIONS[mode])
            tools = (await client.list_tools()).tools
            same("tools", [tool.name for tool in tools], ["emacs_eval"])
            schema = tools[0].output_schema
            same("root type of the output schema", (schema or {}).get("type"), "object")
            Draft202012Validator.check_schema(schema)

            for arguments, want in CALLS:
                what = json.dumps(arguments)
                result = await client.call_tool("emacs_eval", arguments)
                envelope = result.structured_content or {}
                error = envelope.get("error", {})
                got = {
                    "isError": result.is_error,
                    "ok": envelope.get("ok"),
                    "value": envelope.get("value"),
                    "code": error.get("code"),
                    "symbol": error.get("data", {}).get("symbol"),
                }
                same(what, got, want)
                same(f"{what}: content", [item.type for item in result.content], ["text"])
                same(f"{what}: text", json.loads(result.content[0].text), envelope)
                errors = [f"{e.json_path}: {e.message}" for e in Draft202012Validator(schema).iter_errors(envelope)]
                same(f"{what}: against the output schema", errors, [])


def causes(error):
    """The errors inside the groups that the client's tasks wrap them in."""
    if isinstance(error, BaseException) and hasattr(error, "exceptions"):
        return [cause for inner in error.exceptions for cause in causes(inner)]
    return [error]


failed = False
for mode in VERSIONS:
    name = f"python mcp 2.3 ({mode})"
    try:
        anyio.run(check, mode)
        print(f"ok: {name}", flush=True)
    except Exception as error:
        failed = True
        for cause in causes(error):
            text = str(cause) if isinstance(cause, AssertionError) else repr(cause)
            print(f"FAILED: {name}: {text}", flush=True)
sys.exit(failed)
