#!/bin/sh
# Takes the figures of crates/cxlock/README.md. Usage: bench/cxlock/measure.sh [DIRECTORY]
#
# Writes DIRECTORY/figures.md (tables, with machine, commands and date) and DIRECTORY/rounds.csv
# (every round); DIRECTORY is bench/cxlock/figures unless given. As root it runs at real-time
# priority, so that what else the machine does stays out; not where more threads than processors
# spin, because a real-time thread that spins would keep the one it waits for from running. That
# workload runs at the highest ordinary priority. An ordinary user gets what the machine gives.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-bench/cxlock/figures}
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked -p cxlock-bench
bench=$target/release/cxlock-bench
mkdir -p "$out"
rm -f "$out/rounds.csv"

quiet="" many=""
if chrt -f 50 true 2>/dev/null; then quiet="chrt -f 50"; fi
if [ "$(id -u)" = 0 ]; then many="nice -n -20"; fi

{
    echo "# cxlock: figures as they came out"
    echo
    echo "- $(date -u +%Y-%m-%d), $(uname -srm), $(nproc) processors: $(
        sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
    echo "- $(rustc --version)"
    echo "- load before: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo
    for workload in uncontended "uncontended, read" read-mostly "read-mostly, long" \
        "disjoint, long" contended "contended, 8 threads"; do
        priority=$quiet
        case $workload in *8*) priority=$many ;; esac
        echo "    $priority cxlock-bench --rounds 9 --only \"$workload\""
        echo
        timeout 120 $priority "$bench" --rounds 9 --only "$workload" --csv "$out/rounds.csv" |
            grep -v '^Hardware\|^ns a section' | cat -s
    done
} >"$out/figures.md"
