#!/bin/sh
# Makes sure that the tests have an Emacs 28 or newer with module support, an
# emacsclient, and the programs named as arguments (say "tmux"). What is
# missing is installed with the machine's package manager; nothing missing,
# nothing said. $EMACS and $EMACSCLIENT stand in for those on PATH.

set -u

help="Install what is missing by hand; for Emacs, 28 or newer, it is enough that \
EMACS and EMACSCLIENT name one."

fail() {
    printf 'install-emacs.sh: %s\n' "$1" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

emacs_fits() {
    "${EMACS:-emacs}" -Q --batch --eval '(kill-emacs
        (if (and (>= emacs-major-version 28) module-file-suffix) 0 1))' \
        </dev/null >/dev/null 2>&1 &&
        "${EMACSCLIENT:-emacsclient}" --version </dev/null >/dev/null 2>&1
}

as_root() {
    if [ "$(id -u)" -ne 0 ] && have sudo; then sudo -n "$@"; else "$@"; fi
}

install() {
    case $manager in
    apt-get)
        # A foreign source that fails to update need not stop the install.
        as_root apt-get -qq update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq \
            -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
        ;;
    dnf) as_root dnf -q -y install "$@" ;;
    pacman)
        # A fresh machine has no package lists yet.
        as_root pacman -S --needed --noconfirm "$@" ||
            as_root pacman -Sy --needed --noconfirm "$@"
        ;;
    brew) brew install -q "$@" ;;
    esac
}

for tool; do # leaves those that are missing in "$@"
    shift
    case $tool in
    '' | -*) fail "usage: install-emacs.sh [PROGRAM...]" ;;
    esac
    have "$tool" || set -- "$@" "$tool"
done
tools=$*

if ! emacs_fits; then
    [ -z "${EMACS:-}${EMACSCLIENT:-}" ] || fail "EMACS=${EMACS:-} \
EMACSCLIENT=${EMACSCLIENT:-}: not an Emacs 28 or newer with module support \
and an emacsclient. Correct these variables, or unset them."
    set -- emacs "$@"
fi
[ $# -gt 0 ] || exit 0

manager=
for name in apt-get dnf pacman brew; do
    if have $name; then
        manager=$name
        break
    fi
done
[ -n "$manager" ] || fail "missing: $*; and neither apt-get, dnf, pacman nor \
brew is there to install it. $help"

if [ "$1" = emacs ] && [ "$manager" != brew ]; then
    shift
    set -- emacs-nox "$@"
fi

echo "install-emacs.sh: installing $* with $manager"
install "$@" >&2 || fail "$manager could not install $* (is this root, or \
does sudo work without a password?). $help"

hash -r
for tool in $tools; do
    have "$tool" || fail "$manager installed $tool, yet it is not on PATH."
done
emacs_fits || fail "the Emacs that $manager gave is too old, without module \
support or not on PATH: $(emacs --version 2>&1 | head -n 1). $help"
