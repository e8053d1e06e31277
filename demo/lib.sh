# Helpers of demo/run: what it prints, what it measures, and what it checks.
# shellcheck shell=bash disable=SC2154  # tmp, package, txos and note are set by demo/run

bold='' green='' red='' plain_text=''
if [ -t 1 ]; then
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain_text=$'\e[0m'
fi

step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain_text"; }
say() { printf '  %s\n' "$*"; }
show() { printf '  $ %s\n' "$*"; }
indent() { sed 's/^/    | /'; }
fail() {
    printf '  %sfailed:%s %s\n' "$red" "$plain_text" "$*"
    local log
    for log in "$tmp"/*.err; do
        [ -s "$log" ] && { say "${log##*/}:"; tail -n 20 "$log" | indent; }
    done
    exit 1
}

# check "a claim" COMMAND…: prints the claim as checked, or ends the demonstration.
check() {
    local claim=$1
    shift
    "$@" || fail "$claim"
    printf '  %sok%s %s\n' "$green" "$plain_text" "$claim"
}

# wait_for "what" COMMAND…: tries for a minute.
wait_for() {
    local what=$1 tries
    shift
    for ((tries = 0; tries < 600; tries++)); do
        "$@" && return
        sleep 0.1
    done
    fail "waited in vain for $what"
}

# measure COMMAND…: sets took to milliseconds.
measure() {
    local start=${EPOCHREALTIME/./} status=0
    "$@" || status=$?
    took=$(((${EPOCHREALTIME/./} - start) / 1000))
    return "$status"
}

# plain_dpkg ARG…: dpkg outside of any transaction, as soon as nobody else holds its lock; sets took
# for the attempt that went through.
plain_dpkg() {
    local tries
    for ((tries = 0; tries < 60; tries++)); do
        measure dpkg "$@" >"$tmp/plain.err" 2>&1 && return
        grep -q "lock" "$tmp/plain.err" || break
        sleep 1
    done
    fail "plain dpkg $*"
}

median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / (b > 0 ? b : 1) }'; }

is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' installed$'; }
# Installed, or removed with its configuration left.
known_to_dpkg() {
    case $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) in
    '' | not-installed) return 1 ;;
    esac
}
absent() {
    hash -r # the shell remembers where commands were
    ! known_to_dpkg "$1" && ! command -v "$1" >/dev/null
}

works() {
    is_installed "$1" || return 1
    case $1 in
    figlet) figlet txos >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

maintainer_scripts() {
    dpkg-deb --ctrl-tarfile "$1" | tar t | grep -Eo '(pre|post)(inst|rm)$' | paste -sd ' '
}

# Small, harmless, with a postinst and a prerm of their own, and nothing but common libraries below.
candidates=(figlet tcsh ed nano)

# Sets package and deb to the first one that is not there and that needs nothing else.
choose_package() {
    local why=()
    for package in "$@"; do
        if ! absent "$package"; then
            why+=("$package is installed")
        elif ! deb=$(fetch_package "$package" "$tmp"); then
            why+=("apt-get cannot download $package: $(tail -n 1 "$tmp/apt.err")")
        elif ! needs_nothing_else "$deb"; then
            why+=("$package needs further packages")
        else
            return 0
        fi
    done
    package=
    echo "demo: found no package to install:" >&2
    printf '  %s\n' "${why[@]}" >&2
    exit 1
}

needs_nothing_else() {
    # Not piped: grep would end before apt-get has written all, which counts as its failure.
    local plan
    plan=$(apt-get -s --no-install-recommends install "$1" 2>/dev/null) &&
        grep -q '^0 upgraded, 1 newly installed, 0 to remove' <<<"$plan"
}

# Fetches it with apt-get into a directory of the demonstration; where this machine's own package
# lists don't know it, with lists of the demonstration's own.
fetch_package() {
    local package=$1 dir=$2/deb files
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    chmod -R a+rwX "$dir"
    if ! (cd "$dir" && apt-get -q download "$package") >"$2/apt.err" 2>&1; then
        local own=(-o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache")
        (cd "$dir" && apt-get -q "${own[@]}" update && apt-get -q "${own[@]}" download "$package") \
            >"$2/apt.err" 2>&1 || return
    fi
    files=("$dir/$package"_*.deb)
    echo "${files[0]}"
}

# Where a package may put things, and where dpkg keeps its own state.
roots=(/etc /usr /opt /boot /bin /sbin /lib /var/lib/dpkg /var/lib/misc /var/cache/man)
places() { echo "/etc /usr /opt /boot /var/lib/dpkg"; }

# One line for each object: kind, mode, owner, size, time of change of its content, target; and what
# is in the files that packages share.
fingerprint() {
    local existing=() root
    for root in "${roots[@]}"; do
        [ ! -L "$root" ] && [ -d "$root" ] && existing+=("$root")
    done
    # Lock files are young whenever anybody has looked for an update.
    find "${existing[@]}" -xdev ! -path "$note" ! -path '/var/lib/dpkg/lock*' -printf '%p %y %m %U:%G %s %T@ %l\n' | sort
    dpkg-query -W -f '${Package} ${Architecture} ${Version} ${Status}\n' | sort
    find /etc /var/lib/dpkg/alternatives /var/lib/dpkg/info -xdev -type f ! -path "$note" \
        -exec sha256sum {} + | sort
    sha256sum /var/lib/dpkg/status
}

same_as_before() {
    fingerprint >"$tmp/after"
    # /etc itself was touched by the one outside.
    diff <(grep -v '^/etc d ' "$tmp/before") <(grep -v '^/etc d ' "$tmp/after") >"$tmp/diff.err"
}

# After an installation and its purge, as with plain dpkg: the same objects with the same owners,
# modes, sizes, targets and contents; but directories are younger, and so are files that maintainer
# scripts changed and changed back, and what dpkg and man-db keep for themselves is written anew.
same_files_as_before() {
    fingerprint >"$tmp/after"
    diff <(without_rewritten "$tmp/before") <(without_rewritten "$tmp/after") >"$tmp/diff.err"
}

without_rewritten() {
    grep -vE '^(/var/lib/dpkg/(status|status-old|available|available-old|statoverride.*|diversions.*|triggers/.*)|/var/cache/man/.*|/etc/ld.so.cache) f |status$' "$1" |
        sed -E -e 's/^(.* d [0-7]+ [0-9]+:[0-9]+) .*/\1/' \
            -e 's/^(.* [fl] [0-7]+ [0-9]+:[0-9]+ [0-9]+) [0-9.]+ /\1 /'
}

no_mounts_left() { ! grep -qE ' - (fuse[^ ]* txos|overlay txos)' /proc/self/mountinfo; }

# The contention manager ends a second after the last transaction.
no_processes_left() {
    local try
    for try in $(seq 50); do
        ! some_process_left && return 0
        sleep 0.2
    done
    return 1
}

# Anything that this demonstration started, or that runs its txos.
some_process_left() {
    local environ pid
    for environ in /proc/[0-9]*/environ; do
        pid=${environ#/proc/}
        pid=${pid%/environ}
        # This shell, its subshells, and what they run.
        [ "$pid" = "$$" ] || [ "$pid" = "$BASHPID" ] && continue
        if [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$txos" ]; then return 0; fi
        tr '\0' '\n' 2>/dev/null <"$environ" | grep -qx "TXOS_DEMO=$$" || continue
        is_own_child "$pid" || return 0
    done
    return 1
}

# A direct child of this shell, as a pipeline's parts are.
is_own_child() {
    local parent
    parent=$(sed -n 's/^PPid:\t//p' "/proc/$1/status" 2>/dev/null) || return 0
    [ "$parent" = "$$" ] || [ "$parent" = "$BASHPID" ] || [ -z "$parent" ]
}
