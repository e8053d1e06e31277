#!/bin/sh
# The checks of cxlock that `cargo test` leaves out. Usage: ./check.sh WHAT
#
#   loom    exhaustive models (CXLOCK_LOOM_PREEMPTIONS caps each model's own bound of 4 or 5);
#           `make test` runs them with 3
#   miri    the tests under Miri with seeds CXLOCK_MIRI_SEEDS (0..2 unless set); nightly with miri
#   all     both
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}

loom() {
    CARGO_TARGET_DIR=$target/loom RUSTFLAGS="--cfg loom" \
        cargo test -p cxlock --release --locked --test loom
}

miri() {
    CARGO_TARGET_DIR=$target/miri \
        MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=${CXLOCK_MIRI_SEEDS:-0..2}" \
        cargo +nightly miri test -p cxlock --lib --tests
}

case ${1-} in
loom | miri) "$1" ;;
all)
    loom
    miri
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
