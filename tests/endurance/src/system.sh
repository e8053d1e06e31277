#!/bin/sh
# The guest: a small system of services in groups of their own, as a service manager makes them, and
# transactions towards all of it. Everything it has to say is a line that begins with "power:".
export PATH=/bin:/sbin HOME=/root TXOS_STATE=/ext/state
exec 2>&1
say() { echo "power: $*"; }
fail() { say "BROKEN $*"; sleep 1000; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t ext4 /dev/vdb /ext || fail "ext4 cannot be mounted"
say BOOTED

groups=/sys/fs/cgroup
# Goes on as a command in a group: in_group NAME COMMAND, in a subshell
in_group() {
    mkdir -p $groups/$1 || fail "no group $1"
    exec sh -c 'echo $$ >"$0/cgroup.procs" && shift && exec "$@"' "$groups/$1" "$@"
}
mkdir -p $groups/init.scope
echo 1 >$groups/init.scope/cgroup.procs || fail "the first process stays in the root group"

files=100
mkdir /ext/data
for n in $(seq 0 $((files - 1))); do echo 0 >/ext/data/$n; done
for n in 1 2 3; do
    in_group system.slice/reader$n.service member pairs /ext/data $files /ext/pairs.$n &
    in_group system.slice/busy$n.service member idle &
done
commit() {
    (in_group user.slice/session.scope txos run -q "$@" -- \
        sh -c "for f in /ext/data/*; do echo $generation >\$f; done")
}
halves() { cat /ext/pairs.* | grep -c '^half'; }
reads() { cat /ext/pairs.* | grep -c '^read'; }
say READY

# A process in the root group can't be stopped: that is said, and nothing is committed.
sleep 1000 &
stranger=$!
echo $stranger >$groups/cgroup.procs
generation=1
commit --domain system 2>/tmp/refused && fail "one in the root group was passed over"
grep -q "in the root group" /tmp/refused || fail "refused otherwise: $(cat /tmp/refused)"
[ "$(cat /ext/data/0)" = 0 ] || fail "it was refused and did something"
kill $stranger
wait $stranger
say "REFUSED as it should be"

# The limit is that of an emulated processor.
while [ $generation -le 10 ]; do
    commit --domain system --pause-limit 50s --retries 20 --json /tmp/report ||
        fail "generation $generation: txos run: status $?"
    grep -q "all processes see all of a commit" /tmp/report || fail "$(cat /tmp/report)"
    say "COMMITTED $generation"
    generation=$((generation + 1))
done
with=$(halves)
frozen=$(cat $groups/system.slice/cgroup.freeze $groups/system.slice/*/cgroup.freeze | grep -c 1)
[ "$frozen" = 0 ] || fail "$frozen groups stand still"
before=$(reads)
while [ "$(reads)" = "$before" ]; do sleep 1; done
# Without a pause they may see it half-way; how often is a matter of luck.
while [ $generation -le 15 ]; do
    commit --retries 20 || fail "generation $generation: txos run: status $?"
    generation=$((generation + 1))
done
say "DONE $with $before $(($(halves) - with))"
sleep 1000
