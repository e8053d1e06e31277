#!/bin/sh
# Applies each mutant of mutants/ to a copy of the crate and runs the check that its second line names,
# which must fail. Usage: ./mutants.sh [NAME-PART]
set -eu
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
copy=$target/mutants/copy
only=${1:-}
survivors=0

# A workspace with this one crate.
prepare() {
    rm -rf "$copy"
    mkdir -p "$copy/olf"
    sed 's/^members = .*/members = ["olf"]/; /^exclude/d' "$root/Cargo.toml" >"$copy/Cargo.toml"
    cp "$root/Cargo.lock" "$copy/"
    cp -r Cargo.toml build.rs src tests "$copy/olf/"
    test ! -f README.md || cp README.md "$copy/olf/"
}

# Runs the named check in the copy; a hang counts as a death.
run() {
    cd "$copy/olf"
    case $1 in
    loom)
        CARGO_TARGET_DIR=$target/mutants/loom RUSTFLAGS="--cfg loom" \
            timeout 300 cargo test -p olf --release --lib "$2"
        ;;
    shuttle)
        CARGO_TARGET_DIR=$target/mutants/shuttle RUSTFLAGS="--cfg shuttle" \
            OLF_SHUTTLE_RUNS=2000 RUST_BACKTRACE=0 timeout 300 cargo test -p olf --release --test shuttle
        ;;
    unit)
        CARGO_TARGET_DIR=$target/mutants/unit timeout 300 cargo test -p olf --lib "$2"
        ;;
    basic)
        CARGO_TARGET_DIR=$target/mutants/unit timeout 300 cargo test -p olf --test basic "$2"
        ;;
    esac
}

for patch in mutants/*"$only"*.patch; do
    name=$(basename "$patch" .patch)
    kill=$(sed -n '2s/^# kill: //p' "$patch")
    prepare
    patch -s -p1 -d "$copy/olf" <"$patch"
    log=$target/mutants/$name.log
    printf '%-28s ' "$name"
    # shellcheck disable=SC2086 # the check and its argument
    if (run $kill) >"$log" 2>&1; then
        echo "SURVIVED $kill"
        survivors=$((survivors + 1))
    elif grep -q 'could not compile' "$log"; then
        echo "DOES NOT COMPILE (see $log)"
        survivors=$((survivors + 1))
    else
        dead=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | head -1)
        why=$(grep -m1 -A1 'panicked at' "$log" | tail -1 | cut -c1-60)
        echo "killed by $kill: ${dead:-no end in sight} (${why:-timeout})"
    fi
done
test "$survivors" -eq 0
