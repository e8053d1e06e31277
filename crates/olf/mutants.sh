#!/bin/sh
# Runs each check that the mutants of mutants/ name on the crate as it is, where it has to pass; then applies
# each mutant to a copy and runs the check that its second line names, where the test that the line names has
# to fail. A check that does not end in five minutes kills nobody: it is reported as undecided.
# Usage: ./mutants.sh [NAME-PART]
set -eu
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
copy=$target/mutants/copy
only=${1:-}
limit=300
bad=0

# A workspace with this one crate.
prepare() {
    rm -rf "$copy"
    mkdir -p "$copy/olf"
    sed 's/^members = .*/members = ["olf"]/; /^exclude/d' "$root/Cargo.toml" >"$copy/Cargo.toml"
    cp "$root/Cargo.lock" "$copy/"
    cp -r Cargo.toml build.rs src tests "$copy/olf/"
    test ! -f README.md || cp README.md "$copy/olf/"
}

# Runs the check KIND [TEST] in the copy; 124 if it does not end. It is built first, without a limit.
run() {
    cd "$copy/olf"
    flags= args=
    case $1 in
    loom) flags="--cfg loom" args="--release --lib" ;;
    shuttle) flags="--cfg shuttle" args="--release --test shuttle" ;;
    unit) args="--lib" ;;
    *) args="--test $1" ;;
    esac
    export CARGO_TARGET_DIR="$target/mutants/$1" RUSTFLAGS="$flags" RUST_BACKTRACE=0
    export OLF_SHUTTLE_RUNS="${OLF_SHUTTLE_RUNS:-2000}" OLF_LITMUS_MS=20000
    # shellcheck disable=SC2086 # several arguments
    cargo test -q -p olf $args --no-run && timeout "$limit" cargo test -p olf $args ${2:+"$2"}
}

for patch in mutants/*"$only"*.patch; do
    sed -n '2s/^# kill: //p' "$patch"
done | sort -u >"$target/mutants.checks"
prepare
while read -r check; do
    log=$target/mutants-baseline.log
    printf 'unmutated: %-40s ' "$check"
    began=$(date +%s)
    # shellcheck disable=SC2086 # the check and its argument
    if (run $check) >"$log" 2>&1 && grep -q '^test .* ok$' "$log"; then
        echo "passes ($(($(date +%s) - began)) s)"
    else
        echo "FAILS, so it can kill nobody (see $log)"
        exit 1
    fi
done <"$target/mutants.checks"

for patch in mutants/*"$only"*.patch; do
    name=$(basename "$patch" .patch)
    check=$(sed -n '2s/^# kill: //p' "$patch")
    prepare
    log=$target/mutants-$name.log
    printf '%-30s ' "$name"
    if ! patch -s -p1 -F0 -d "$copy/olf" <"$patch" >"$log" 2>&1; then
        echo "DOES NOT APPLY (see $log)"
        bad=$((bad + 1))
        continue
    fi
    status=0
    # shellcheck disable=SC2086 # the check and its argument
    (run $check) >"$log" 2>&1 || status=$?
    dead=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | tr '\n' ' ')
    if [ "$status" -eq 0 ]; then
        echo "SURVIVED $check"
        bad=$((bad + 1))
    elif grep -q 'could not compile' "$log"; then
        echo "DOES NOT COMPILE (see $log)"
        bad=$((bad + 1))
    elif [ "$status" -eq 124 ]; then
        echo "UNDECIDED: $check did not end within $limit s (see $log)"
        bad=$((bad + 1))
    elif [ -z "$dead" ]; then
        echo "UNDECIDED: no test failed, yet the status is $status (see $log)"
        bad=$((bad + 1))
    else
        why=$(grep -m1 -A1 'panicked at' "$log" | tail -1 | cut -c1-70)
        echo "killed by $check: $dead($why)"
    fi
done
test "$bad" -eq 0
