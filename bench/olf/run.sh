#!/bin/sh
# Measures everything and renews docs/olf: results.csv, tables.md and the plots. Takes about six minutes
# (one with --quick, which says little). Usage: ./run.sh [--quick] [table|several|c|java|report]...
set -eu
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$root/docs/olf
parts=$target/olf-bench/parts
ms=60 repeats=5 quick=
if [ "${1:-}" = --quick ]; then
    ms=20 repeats=1 quick=--quick
    shift
fi
mkdir -p "$out" "$parts"

rust() {
    cargo build -q --release -p olf-bench
    "$target/release/olf-bench" "$1" $quick | tee "$parts/$1.csv"
}
table() { rust table; }
several() { rust several; }

c() {
    cargo build -q --release -p olf-capi
    for program in bench several; do
        cc -std=gnu11 -O2 -Wall -Wextra -pthread -I "$root/crates/olf/capi/include" \
            -o "$target/olf-bench/$program" c/$program.c "$target/release/libolf_c.a" -ldl -lm
        "$target/olf-bench/$program" $ms $repeats | tee "$parts/c-$program.csv"
    done
}

java() {
    (cd "$root/bindings/java-olf" && mvn -q -B compile)
    classes=$root/bindings/java-olf/target/classes
    javac -cp "$classes" -d "$target/olf-bench" java/*.java
    for program in Bench Several; do
        command java -cp "$classes:$target/olf-bench" $program $ms $repeats |
            tee "$parts/java-$program.csv"
    done
}

report() {
    {
        echo "experiment,language,implementation,threads,ns"
        for part in table c-bench java-Bench several c-several java-Several; do
            test ! -f "$parts/$part.csv" || cat "$parts/$part.csv"
        done
    } >"$out/results.csv"
    cargo build -q --release -p olf-bench
    "$target/release/olf-bench" report "$out/results.csv" "$out"
    # The tables go into the crate's README too, between two marks.
    readme=$root/crates/olf/README.md
    model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    machine="$(nproc) processors (${model:-unknown}), $(uname -m), Linux $(uname -r | cut -d- -f1)"
    awk -v tables="$out/tables.md" -v machine="$machine" '
        /<!-- \/figures -->/ { inside = 0 }
        !inside
        /<!-- figures -->/ {
            inside = 1
            print "\nMeasured on: " machine "."
            while ((getline line <tables) > 0) print line
            print ""
        }' "$readme" >"$readme.new"
    mv "$readme.new" "$readme"
}

if [ $# -eq 0 ]; then
    set -- table several c java report
fi
for step; do
    "$step"
done
