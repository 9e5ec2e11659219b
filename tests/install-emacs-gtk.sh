#!/bin/sh
# Unpacks Debian's graphical Emacs into target/emacs-gtk, for the tests that type into a window: as a
# package it would replace emacs-nox. Installs the X server and the libraries that it needs. When it
# can't be done the only line is "skipped: graphical Emacs (REASON)", and the exit code is 0.

set -u
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
to=$(cd "$(dirname "$0")/.." && pwd)/target/emacs-gtk

skip() {
    printf 'skipped: graphical Emacs (%s)\n' "$1"
    exit 0
}

[ ! -x "$to/usr/bin/emacs-gtk" ] || exit 0
command -v apt-get >/dev/null 2>&1 || skip "only where there is apt-get"
[ "$(id -u)" -eq 0 ] || skip "only as root"
version=$(dpkg-query -W -f '${Version}' emacs-nox 2>/dev/null) || skip "emacs-nox is not installed"

tmp=$(mktemp -d) || skip "no temporary folder"
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || skip "no temporary folder"
# As root it downloads into this folder, which its own user can't read.
apt-get -qq -o APT::Sandbox::User=root download "emacs-gtk=$version" >log 2>&1 ||
    skip "$(tail -n 1 log)"
# What it depends on, apart from Emacs itself.
# shellcheck disable=SC2046
set -- $(dpkg-deb -f emacs-gtk_*.deb Depends | tr ',' '\n' | sed 's/^ *//; s/[ (:|].*//; /^emacs/d')
apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends xvfb xdotool "$@" \
    >log 2>&1 || skip "$(tail -n 1 log)"
dpkg-deb -x emacs-gtk_*.deb files
# The program comes last: as long as it isn't there, a later run starts afresh.
rm -rf "$to"
mkdir -p "${to%/*}"
mv files "$to"
# Its start-up image, else it would take that of emacs-nox.
mv "$to"/usr/libexec/emacs/*/*/emacs.pdmp "$to/emacs.pdmp"
"$to/usr/bin/emacs-gtk" --dump-file="$to/emacs.pdmp" -Q --batch --eval '(kill-emacs (if (featurep (quote x)) 0 1))' >log 2>&1 || {
    rm -rf "$to"
    skip "it does not run: $(tail -n 1 log)"
}
