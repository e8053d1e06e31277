#!/bin/sh
# What a pause of a domain takes, and what outsiders notice of a transaction that listens to them.
#
#   [ONLY=pause|calls] [ROUNDS=N] [CALLS=N] bench/domain.sh [TXOS [MEMBER]]
#
# Needs root and a writable cgroup v2 hierarchy. TXOS is the binary to be measured (default
# target/release/txos), MEMBER the helper of the tests (target/release/member, built by
# `cargo build --release -p txos-tests`). Works in a directory of its own below /var/tmp, which is
# removed at the end. All figures are medians.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
txos=${1:-$here/target/release/txos}
member=${2:-$here/target/release/member}
rounds=${ROUNDS:-7}
work=$(mktemp -d /var/tmp/txos-bench-domain.XXXXXX)
export TXOS_STATE="$work/state"
domain=bench$$
end() {
    kill $members 2>/dev/null || :
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$txos" domain remove $domain 2>/dev/null && break
        sleep 0.2
    done
    rm -rf "$work"
}
members=
trap end EXIT
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
start() { # KIND COUNT
    for _ in $(seq "$2"); do
        "$member" "$1" </dev/null >/dev/null &
        members="$members $!"
        "$txos" domain add $domain $!
    done
}
# The seconds that the domain stood still, in milliseconds.
pause() { # OPTIONS SCRIPT
    for _ in $(seq "$rounds"); do
        (cd "$work/tree" && "$txos" run -q --domain $domain --retries 3 --json "$work/report" $1 -- sh -c "$2" >/dev/null)
        awk -F'[:,]' '/"pause"/ { print $2 * 1000 }' "$work/report"
    done | median
}
row() { printf '%-66s %8.2f ms   %s\n' "$1" "$2" "$3"; }

mkdir "$work/tree"
pauses() {
mkdir "$work/tree/thousand" "$work/tree/read"
cd "$work/tree"
for i in $(seq 1000); do echo 0 >thousand/$i; done
(cd read && seq 100000 | xargs -n 1000 sh -c 'for n; do : >$n; done' sh)
echo 0 >one
"$txos" domain create $domain
start idle 10
one='echo x >one'
many='for f in thousand/*; do echo x >$f; done'
row "10 idle processes, 1 file, not durable" "$(pause --nondurable "$one")" "goal 1 ms"
row "10 idle processes, 1 file, durable (the record's flush is inside)" "$(pause "" "$one")" ""
row "10 idle processes, 1,000 files, not durable" "$(pause --nondurable "$many")" "goal 30 ms"
row "the same, durable" "$(pause "" "$many")" ""
for n in 1000 100000; do
    row "10 idle processes, 1 file, $n objects read" \
        "$(pause --nondurable "cd read; ls -U | head -$n | xargs stat -c '' ; cd ..; $one")" "independent of it"
done
start busy 90
row "10 idle and 90 busy processes, 1 file, not durable" "$(pause "--nondurable --pause-limit 2s" "$one")" "within its limit"
kill $members; members=
}

calls() { # NAME
    "$member" calls "$work/calls" "${CALLS:-20000}" | while read -r what took; do echo "$took" >>"$work/$1.$what"; done
}
beside() { # NAME OPTION
    (cd "$work" && exec "$txos" run -q $2 --live "$work/calls" -- sleep 1000) &
    sleep 1
    calls "$1"
    # Not INT: a shell lets its background commands ignore that.
    kill -TERM $!
    wait $! || :
}
[ "${ONLY:-pause}" != pause ] || pauses
[ "${ONLY:-calls}" = calls ] || exit 0
mkdir "$work/calls"
for _ in $(seq "$rounds"); do
    calls alone
    beside deaf --no-early-doom
    beside hears ""
done
printf '\n%-8s %12s %18s %18s\n' call alone 'txos, not listening' 'txos, listening'
for what in access stat open read write unlink link mkdir; do
    echo "$what $(median <"$work/alone.$what") $(median <"$work/deaf.$what") $(median <"$work/hears.$what")"
done | awk '{ printf "%-8s %9d ns %15.2fx %17.2fx\n", $1, $2, $3 / $2, $4 / $2; d += log($3 / $2); h += log($4 / $2) }
    END { printf "%-8s %12s %15.2fx %17.2fx\n", "mean", "", exp(d / NR), exp(h / NR) }'
