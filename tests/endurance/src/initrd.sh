#!/bin/busybox sh
# Loads what the root disk needs, and goes on there.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
@MODULES@
while [ ! -b /dev/vdc ]; do usleep 10000; done
mount -t ext4 -o ro /dev/vda /root
umount /proc
mount --move /dev /root/dev
exec switch_root /root /sbin/guest
