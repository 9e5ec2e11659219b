#!/bin/sh
# Runs the relay with public validators: validators.sh SERVER_COMMAND [ARGUMENT...]
# The command is the relay with its arguments; its Emacs has to be there. The validators
# are installed into a cache folder; where Node, Python or a registry is missing, theirs
# are skipped. What is known not to pass is listed here, with the reason, and anything
# else that does not pass makes the exit code 1.

set -u

node_pins='node@22.23.3 @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0'
python_pins='mcpscore==1.29.0 amagi-mcp-probe==0.1.0'
specs='2025-11-25 2026-07-28'
jobs=4

# Scenarios with nothing to look at in a server that offers one tool and one skill.
not_applicable() {
    case $1 in
    tools-call-simple-text | tools-call-image | tools-call-audio | tools-call-embedded-resource | \
        tools-call-mixed-content | tools-call-with-logging | tools-call-error | \
        tools-call-with-progress | tools-call-sampling | tools-call-elicitation | \
        json-schema-2020-12 | elicitation-sep1034-defaults | elicitation-sep1330-enums | \
        input-required-result-basic-elicitation | input-required-result-basic-sampling | \
        input-required-result-basic-list-roots | input-required-result-request-state | \
        input-required-result-multiple-input-requests | input-required-result-multi-round | \
        input-required-result-missing-input-response | input-required-result-result-type | \
        input-required-result-tampered-state | input-required-result-capability-check | \
        input-required-result-ignore-extra-params | input-required-result-validate-input)
        reason="calls a test tool of the suite's own" ;;
    resources-read-text | resources-read-binary | resources-templates-read)
        reason="reads a test resource of the suite's own" ;;
    prompts-list | prompts-get-simple | prompts-get-with-args | prompts-get-embedded-resource | \
        prompts-get-with-image | input-required-result-non-tool-request)
        reason='no prompts are offered' ;;
    completion-complete) reason='no prompts or resource templates to complete' ;;
    logging-set-level) reason='logging is not offered' ;;
    resources-subscribe | resources-unsubscribe) reason='no resource changes' ;;
    server-sse-polling | server-sse-multiple-streams)
        reason='about event streams; the bridge answers with JSON' ;;
    http-custom-header-server-validation) reason='no parameter is to be an HTTP header' ;;
    tasks-*) reason='the extension tasks is not offered' ;;
    *) return 1 ;;
    esac
}

# The checks that cannot pass in a scenario: all of these have to be missed, and no others.
missed_checks() {
    case $1 in
    server-stateless)
        reason="needs a test tool of the suite's own"
        missed='sep-2575-server-rejects-undeclared-capability
            sep-2575-missing-capability-http-400
            sep-2575-http-server-no-independent-requests-on-stream
            sep-2575-server-no-log-without-loglevel' ;;
    caching)
        reason='no prompts are offered'
        missed=sep-2549-prompts-list-caching-hints ;;
    sep-2640-skills-directory)
        reason='the skill has no subfolder'
        missed=sep-2640-directory-read-subdir-mimetype ;;
    *) missed='' ;;
    esac
}

explained_rule() {
    case $1 in
    server_icons_present) reason='optional; a title is there' ;;
    capability_tools_list_changed | capability_resources_list_changed)
        reason='nothing that is offered changes' ;;
    *) return 1 ;;
    esac
}

[ $# -gt 0 ] || {
    echo "usage: validators.sh SERVER_COMMAND [ARGUMENT...]" >&2
    exit 2
}

# shellcheck source=tests/clients/installed.sh
. "$(dirname "$0")/installed.sh"
modules=$cache/validators-node/node_modules
venv=$cache/validators-python
work=$(mktemp -d) || exit 1
bridge=
# shellcheck disable=SC2317 # the trap calls it
finish() {
    [ -z "$bridge" ] || kill "$bridge" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# The validators want a newer Node than the clients, so npm installs it with them.
with_node() { env PATH="$modules/node/bin:$PATH" "$@"; }

failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# Prints how many checks passed; fails with what differs from the checks to be missed.
# shellcheck disable=SC2016 # no shell variables
judge='
const [file, ...expected] = process.argv.slice(1);
const checks = JSON.parse(require("fs").readFileSync(file));
const missed = checks.filter(({ status }) => ["FAILURE", "WARNING"].includes(status));
const passed = checks.filter(({ status }) => status === "SUCCESS").length;
const wrong = missed.filter(({ id }) => !expected.includes(id)).map(({ id, errorMessage }) => `${id}: ${errorMessage}`)
  .concat(expected.filter((id) => !missed.some((check) => check.id === id)).map((id) => `${id} is no longer missed`));
if (!wrong.length && !passed) wrong.push("no check passed");
console.log(wrong.join("; ").replace(/\s+/g, " ") || passed);
process.exitCode = wrong.length ? 1 : 0;'

run_scenario() {
    with_node "$modules/.bin/conformance" server --url "$url" --scenario "$1" --spec-version "$2" \
        --force -o "$work/$1@$2" >"$work/$1@$2.log" 2>&1 </dev/null
}

report_scenario() {
    missed_checks "$1"
    # shellcheck disable=SC2086 # several words
    if result=$(with_node node -e "$judge" "$work/$1@$2"/*/checks.json $missed 2>/dev/null); then
        echo "ok: conformance $1 ($2): $result checks"
        for check in $missed; do echo "explained: $check ($reason)"; done
    else
        fail "conformance $1 ($2): ${result:-$(first_error "$work/$1@$2.log")}"
    fi
}

# The suite names its scenarios with the revisions each is for; an extension is for all.
# What it says of server-session-lifecycle, dns-rebinding-protection and
# http-header-validation, it says of the bridge.
conformance() {
    mkfifo "$work/url" || return
    "$modules/node/bin/node" "$here/bridge.mjs" "$@" >"$work/url" 2>"$work/bridge.log" </dev/null &
    bridge=$!
    read -r url <"$work/url" || {
        fail "bridge: $(tail -n 1 "$work/bridge.log")"
        return
    }
    with_node "$modules/.bin/conformance" list --server 2>/dev/null </dev/null |
        sed -n 's/^  - \([^ ]*\) \[\(.*\)\]$/\1 \2/p' >"$work/scenarios"
    [ -s "$work/scenarios" ] || fail 'conformance: it lists no scenarios'
    while read -r scenario for; do
        if not_applicable "$scenario"; then
            echo "not applicable: $scenario ($reason)"
            continue
        fi
        for spec in $specs; do
            case $for in *"$spec"* | extension) echo "$scenario $spec" >>"$work/runs" ;; esac
        done
    done <"$work/scenarios"
    pids='' started=0
    while read -r scenario spec; do
        run_scenario "$scenario" "$spec" &
        pids="$pids $!"
        started=$((started + 1))
        # shellcheck disable=SC2086 # several words
        [ $((started % jobs)) -ne 0 ] || wait $pids
    done <"$work/runs"
    # shellcheck disable=SC2086 # several words
    wait $pids # not for the bridge
    while read -r scenario spec; do report_scenario "$scenario" "$spec"; done <"$work/runs"
}

# Its warnings are on stderr and do not show in its exit code.
inspector() {
    for era in legacy modern; do
        if with_node "$modules/.bin/mcp-inspector" --cli --protocol-era $era --strict \
            --method tools/list "$@" >"$work/out" 2>"$work/err" </dev/null &&
            ! grep -q '^Warning' "$work/err"; then
            echo "ok: inspector --strict tools/list ($era)"
        else
            fail "inspector --strict tools/list ($era): $(head -n 3 "$work/err" | tr '\n' ' ')"
        fi
        if with_node "$modules/.bin/mcp-inspector" --cli --protocol-era $era --verify \
            --method skills/list "$@" >"$work/out" 2>"$work/err" </dev/null &&
            grep -q '"outcome":"verified"' "$work/out"; then
            echo "ok: inspector --verify skills/list ($era)"
        else
            fail "inspector --verify skills/list ($era): $(head -n 1 "$work/out") $(head -n 1 "$work/err")"
        fi
    done
}

# It calls the tool with arguments of its own making, such as an empty form and a number.
mcpscore() {
    "$venv/bin/mcpscore" --smoke --call-all --no-config --json --stdio "$@" \
        >"$work/score" 2>"$work/err" </dev/null
    status=$?
    "$venv/bin/python" -c '
import json, sys
report = json.load(open(sys.argv[1]))
print("score", "%s/%s" % (report["score"], report["max_score"]), report["partial"])
for result in report["results"]:
    if not result["passed"]:
        print("rule", result["rule_id"], result["message"])
for check in report["smoke"]["checks"]:
    if check["verdict"] == "fail":
        print("smoke", check["check_id"], check["message"])
' "$work/score" >"$work/out" 2>/dev/null || {
        fail "mcpscore: exit code $status, $(tail -n 1 "$work/err")"
        return
    }
    [ $status -eq 0 ] || [ $status -eq 4 ] || fail "mcpscore: exit code $status"
    while read -r kind name rest; do
        case $kind in
        score)
            echo "ok: mcpscore: $name"
            [ "$rest" = False ] || fail 'mcpscore: it could not audit everything'
            ;;
        rule)
            if explained_rule "$name"; then
                echo "explained: $name ($reason)"
            else
                fail "mcpscore $name: $rest"
            fi
            ;;
        smoke) fail "mcpscore $name: $rest" ;;
        esac
    done <"$work/out"
}

# What it makes up for a string is no Emacs Lisp, so it is told what to call.
amagi() {
    echo '{"emacs_eval": [{"expression": "(+ 1 1)"}, {"expression": "(list 1 \"a\")", "timeout_ms": 5000}]}' \
        >"$work/arguments"
    if "$venv/bin/amagi-mcp-probe" --strict --allow-destructive --args "$work/arguments" -- "$@" \
        >"$work/out" 2>&1 </dev/null && tail -n 1 "$work/out" | grep -q 'PASS$'; then
        echo "ok: amagi-mcp-probe: PASS"
    else
        fail "amagi-mcp-probe: $(sed -n '3,$p' "$work/out" | tr -s ' \n' ' ')"
    fi
}

if install_node validators-node "$node_pins" && try with_node node -e ''; then
    conformance "$@"
    inspector "$@"
else
    echo "skipped: conformance ($reason)"
    echo "skipped: inspector ($reason)"
fi
if install_python validators-python "$python_pins" 11; then
    mcpscore "$@"
    amagi "$@"
else
    echo "skipped: mcpscore ($reason)"
    echo "skipped: amagi-mcp-probe ($reason)"
fi
exit $failed
