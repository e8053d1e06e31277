#!/bin/sh
# The checks of olf that `cargo test` leaves out. Usage: ./check.sh WHAT
#
#   loom       exhaustive models (LOOM_MAX_PREEMPTIONS, 2 unless set)
#   shuttle    random schedules (OLF_SHUTTLE_RUNS for each test, 2000 unless set)
#   miri       the tests under Miri with many seeds (OLF_MIRI_SEEDS, 0..16 unless set); nightly
#   tsan       the tests under ThreadSanitizer; nightly with rust-src
#   asan       the tests under AddressSanitizer; nightly
#   mutants    applies each mutant in mutants/ and shows the test that kills it
#   release    what misuse does in release builds
#   stress     random histories, checked, for OLF_STRESS_SECONDS (600 unless set)
#   no_std     builds without std and without an allocator
#   java       the Java port: unit tests, and jcstress in its quick mode
#   all        everything but stress
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}
host=$(rustc -vV | sed -n 's/^host: //p')
tests="--lib --test basic --test shelf --test histories --test recovery --test misuse"

loom() {
    CARGO_TARGET_DIR=$target/loom RUSTFLAGS="--cfg loom" \
        cargo test -p olf --release --lib models "$@"
}

shuttle() {
    CARGO_TARGET_DIR=$target/shuttle RUSTFLAGS="--cfg shuttle" \
        cargo test -p olf --release --test shuttle "$@"
}

miri() {
    CARGO_TARGET_DIR=$target/miri MIRIFLAGS="-Zmiri-many-seeds=${OLF_MIRI_SEEDS:-0..16}" \
        cargo +nightly miri test -p olf $tests
    # Once more with the stricter of the two aliasing models' rivals.
    CARGO_TARGET_DIR=$target/miri MIRIFLAGS="-Zmiri-tree-borrows" \
        cargo +nightly miri test -p olf $tests
}

# ThreadSanitizer has to see the standard library too. It knows no fences; what ours order is all atomic,
# so that it has nothing to say about them: they are loom's business.
tsan() {
    CARGO_TARGET_DIR=$target/tsan RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1" \
        cargo +nightly test -Zbuild-std --target "$host" -p olf $tests
}

asan() {
    CARGO_TARGET_DIR=$target/asan RUSTFLAGS="-Zsanitizer=address" \
        cargo +nightly test --target "$host" -p olf $tests
}

release() {
    cargo test -p olf --release --test misuse
}

stress() {
    cargo test -p olf --release --test histories -- --ignored --nocapture
}

no_std() {
    cargo build -p olf --no-default-features
    cargo build -p olf --no-default-features --features alloc
    # A target that has no std at all, if it is installed.
    if rustup target list --installed 2>/dev/null | grep -q x86_64-unknown-none; then
        cargo build -p olf --no-default-features --target x86_64-unknown-none
    else
        echo "Skip: target x86_64-unknown-none is not installed (rustup target add)"
    fi
}

java() {
    (cd ../../bindings/java-olf && ./check.sh)
}

mutants() {
    ./mutants.sh "$@"
}

what=${1:-}
case $what in
loom | shuttle | miri | tsan | asan | mutants | release | stress | no_std | java)
    shift
    "$what" "$@"
    ;;
all)
    for each in loom shuttle miri tsan asan mutants release no_std java; do
        echo "== $each"
        "$each"
    done
    ;;
*)
    sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'
    exit 2
    ;;
esac
