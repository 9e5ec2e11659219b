#!/bin/sh
# Which Emacsen a run is for: the one that EMACS names, and where nobody chose, Emacs 30 beside it.
# To be read by other scripts, from the checkout.

# for_each_emacs COMMAND: runs COMMAND with EMACS and EMACSCLIENT set to each.
for_each_emacs() {
    chosen=${EMACS:-emacs}
    on_emacs "$1" "$chosen" "${EMACSCLIENT:-emacsclient}"
    [ "$chosen" = emacs ] || return 0
    second=$(tests/install-emacs-30.sh | tail -n 1)
    case $second in
    EMACS=*)
        # EMACS=PROGRAM EMACSCLIENT=PROGRAM
        program=${second#EMACS=}
        on_emacs "$1" "${program%% *}" "${second##*=}"
        ;;
    *) echo "$second" ;;
    esac
}

on_emacs() {
    export EMACS="$2" EMACSCLIENT="$3"
    "$1"
}

lint_lisp() {
    echo "lint: Lisp on $("$EMACS" --version | head -n 1)"
    "$EMACS" -Q --batch -L lisp -l tests/lint.el -f emacs-runtime-mcp-lint
}

# Sets LISP to a folder with the Lisp as it is installed: compiled by the Emacs that loads it.
compile_lisp() {
    LISP=$PWD/target/lisp-$("$EMACS" -Q --batch --eval '(princ emacs-version)')
    rm -rf "$LISP"
    mkdir -p "$LISP"
    cp lisp/emacs-runtime-mcp-* "$LISP"
    "$EMACS" -Q --batch -L "$LISP" -f batch-byte-compile "$LISP"/*.el
    export LISP
}
