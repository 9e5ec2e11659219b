#!/bin/sh
# Brings Emacs 30.1 from bookworm-backports beside Debian 12's own Emacs, as
# /usr/bin/emacs-30.1 and /usr/bin/emacsclient-30.1. Not as packages (they
# would replace the other Emacs): the files are copied out of them. Only the
# shared libraries it needs are installed as packages.
# The last line on stdout names both programs. When it can't be done, the only
# line is "skipped: Emacs 30 (REASON)", the exit code is 0, and no file stays.

set -u
umask 022

version=30.1
emacs=/usr/bin/emacs-$version
client=/usr/bin/emacsclient-$version
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

tmp=
placing=

# shellcheck disable=SC2317 # the trap calls it
cleanup() {
    [ -z "$tmp" ] || rm -rf "$tmp"
    [ -z "$placing" ] || rm -rf "/usr/share/emacs/$version" \
        "/usr/lib/emacs/$version" "/usr/libexec/emacs/$version" \
        "$emacs" "$emacs.new" "$client"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

skip() {
    printf 'skipped: Emacs 30 (%s)\n' "$1"
    exit 0
}

# Runs the command silently; where it fails, its error is the reason.
try() {
    "$@" >"$tmp/log" 2>&1 || skip "$1 failed: $(reason)"
}

reason() { grep -m 1 '^[EW]:' "$tmp/log" || tail -n 1 "$tmp/log"; }

# The programs' own words on stdout and stderr: a warning counts as failure.
works() {
    [ "$("$emacs" -Q --batch --eval '(princ emacs-version)' 2>&1)" = $version ] &&
        "$client" --version >/dev/null 2>&1
}

finish() {
    echo "EMACS=$emacs EMACSCLIENT=$client"
    exit 0
}

# apt's sources that hold bookworm, with the suite bookworm-backports instead.
# Foreign ones among them have no such suite, which does no harm.
write_sources() {
    mkdir "$tmp/sources"
    find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.list' \
        -exec awk '
            $1 == "deb" && !/cdrom:/ {
                for (i = 2; i <= NF; i++)
                    if ($i == "bookworm") {
                        $i = "bookworm-backports"
                        print
                        break
                    }
            }' {} + >"$tmp/sources/backports.list" 2>/dev/null
    find /etc/apt/sources.list.d -name '*.sources' \
        -exec awk '
            BEGIN { RS = ""; ORS = "\n\n"; FS = OFS = "\n" }
            {
                wanted = 0
                for (i = 1; i <= NF; i++) {
                    line = tolower($i)
                    if (line ~ /^suites:(.*[ \t])?bookworm([ \t]|$)/) {
                        wanted = 1
                        $i = "Suites: bookworm-backports"
                    } else if (line ~ /^types:/)
                        $i = "Types: deb"
                    else if (line ~ /^enabled:[ \t]*no/)
                        next
                }
                if (wanted) print
            }' {} + >"$tmp/sources/backports.sources" 2>/dev/null
    [ -s "$tmp/sources/backports.list" ] || [ -s "$tmp/sources/backports.sources" ]
}

# apt-get on these sources, with lists of its own: the machine's stay as they are.
backports() {
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null \
        -o Dir::Etc::sourceparts="$tmp/sources" \
        -o Dir::State::lists="$tmp/lists" -o Dir::Cache="$tmp/cache" \
        -o APT::Sandbox::User=root "$@"
}

install_libraries() {
    apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
}

! works || finish

# shellcheck disable=SC1091
[ "$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}")" = "debian 12" ] ||
    skip "only for Debian 12"
[ "$(id -u)" -eq 0 ] || skip "only as root"
[ ! -e "$emacs" ] || skip "$emacs is there but does not work: remove it and try again"
! dpkg -S "/usr/share/emacs/$version" >/dev/null 2>&1 ||
    skip "Debian's packages of Emacs $version are installed: use those"

tmp=$(mktemp -d) || skip "no temporary folder"
write_sources || skip "apt's sources have no entry for bookworm"
echo "install-emacs-30.sh: fetching Emacs $version from bookworm-backports" >&2

cd "$tmp" || skip "no temporary folder"
mkdir -p lists/partial cache/archives/partial debs files
backports update >log 2>&1
set -- lists/*bookworm-backports_main*Packages*
[ -e "$1" ] || skip "bookworm-backports cannot be fetched: $(reason)"
cd debs || skip "no temporary folder"
try backports download emacs-nox/bookworm-backports emacs-common/bookworm-backports \
    emacs-bin-common/bookworm-backports emacs-el/bookworm-backports
for deb in *.deb; do
    try dpkg-deb -x "$deb" "$tmp/files"
done
[ -d "$tmp/files/usr/share/emacs/$version" ] ||
    skip "bookworm-backports has another version: $(echo emacs-nox_*.deb)"

# What emacs-nox depends on, apart from Emacs itself, and is not installed.
# shellcheck disable=SC2046
set -- $(dpkg-deb -f emacs-nox_*.deb Depends | tr ',' '\n' |
    sed 's/^ *//; s/[ (:|].*//; /^emacs/d' |
    while read -r library; do
        dpkg-query -W -f '${db:Status-Status}\n' "$library" 2>/dev/null |
            grep -qx installed || echo "$library"
    done)
if [ $# -gt 0 ] && ! install_libraries "$@" >/dev/null 2>&1; then
    apt-get -qq update >/dev/null 2>&1
    try install_libraries "$@"
fi
missing=$(ldd "$tmp/files/usr/bin/emacs-nox" | awk '/not found/ { print $1 }' | tr '\n' ' ')
[ -z "$missing" ] || skip "no shared library ${missing% }"

# The program comes last: as long as it isn't there, a later run starts afresh.
placing=yes
for from in "$tmp/files/usr"/*/emacs/"$version"; do
    to=${from#"$tmp/files"}
    rm -rf "$to"
    mkdir -p "${to%/*}"
    try cp -a "$from" "$to"
done
try cp "$tmp/files/usr/bin/emacsclient.emacs" "$client"
try cp "$tmp/files/usr/bin/emacs-nox" "$emacs.new"
try mv "$emacs.new" "$emacs"
works || skip "it does not run: $("$emacs" -Q --batch --eval '(princ emacs-version)' 2>&1 | tail -n 1)"
placing=
finish
