#!/bin/sh
# Puts what was built into a prefix, or takes it out again: install.sh install|uninstall PREFIX
# RELAY FILE... Every file arrives by rename, so that an Emacs or a relay that runs keeps its own.
set -eu

what=$1 prefix=$2 relay=$3
shift 3
bin=$prefix/bin lisp=$prefix/share/emacs/site-lisp/emacs-runtime-mcp

put() {
    cp "$1" "$2.new"
    chmod "$3" "$2.new"
    mv -f "$2.new" "$2"
}

case $what in
install)
    mkdir -p "$bin" "$lisp"
    put "$relay" "$bin/emacs-runtime-mcp" 755
    for file; do
        case $file in
        *.el) put "$file" "$lisp/${file##*/}" 644 ;;
        *) put "$file" "$lisp/${file##*/}" 755 ;;
        esac
    done
    # Compiled Lisp is faster and cannot be struck between two forms. Without an Emacs here the
    # source works too.
    if "${EMACS:-emacs}" -Q --batch -L "$lisp" -f batch-byte-compile "$lisp"/*.el 2>/dev/null; then
        :
    else
        rm -f "$lisp"/*.elc
        echo "The Lisp was not byte-compiled: no working ${EMACS:-emacs} here." >&2
    fi
    cat <<END
Installed $bin/emacs-runtime-mcp and $lisp.

In Emacs's init file:

    (add-to-list 'load-path "$lisp")
    (require 'emacs-runtime-mcp-module)

In the agent's configuration of MCP servers:

    { "mcpServers": { "emacs": { "command": "$bin/emacs-runtime-mcp" } } }
END
    ;;
uninstall)
    rm -f "$bin/emacs-runtime-mcp"
    for file; do
        rm -f "$lisp/${file##*/}" "$lisp/$(basename "$file" .el).elc"
    done
    rmdir "$lisp" 2>/dev/null || :
    echo "Removed emacs-runtime-mcp from $prefix. The lines in your init file are yours."
    ;;
esac
