#!/bin/sh
# The guest: recovers, checks what the last cut left, and then runs one transaction after the other
# until the next. Everything it has to say is a line that begins with "power:".
export PATH=/bin:/sbin HOME=/root TXOS_STATE=/ext/state
exec 2>&1
say() { echo "power: $*"; }
fail() { say "BROKEN $*"; sleep 1000; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
say BOOTED
together() {
    mount -t ext4 /dev/vdb /ext || fail "ext4 cannot be mounted"
    mount -t xfs -o nouuid /dev/vdc /xfs || fail "xfs cannot be mounted"
}
together
say RECOVERING
txos recover || fail "txos recover: status $?"
state=$(generation check /ext/data /xfs/data) || fail "$state"
for name in $(ls -A /ext) $(ls -A /xfs); do
    case $name in data | state | lost+found) ;; *) fail "left over: $name" ;; esac
done
left=$(ls -A /ext/state/tx)
[ -z "$left" ] || fail "left over in the state directory: $left"
# The checkers want to see what a mount has made of the file systems.
umount /ext /xfs || fail "the file systems are in use"
e2fsck -fn /dev/vdb > /tmp/fsck || fail "e2fsck: $(cat /tmp/fsck)"
xfs_repair -n /dev/vdc > /tmp/fsck 2>&1 || fail "xfs_repair: $(cat /tmp/fsck)"
together
say "FOUND $state"
generation=${state#generation }
[ "$generation" = none ] && generation=-1
say READY
while true; do
    generation=$((generation + 1))
    say "BEGIN $generation"
    txos run -q -- generation apply $generation /ext/data /xfs/data ||
        fail "generation $generation: txos run: status $?"
    say "COMMITTED $generation"
done
