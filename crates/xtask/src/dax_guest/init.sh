#!/bin/busybox sh
# The first process of the guest. These words of the kernel's command line are its variables:
#   eyrie_format=yes       first make an ext4 file system in the emulated memory; later boots mount it again
#   eyrie_run="..."        a command line for `sh`, run in the mounted file system
# At the end this script prints a line "guest: passed" or "guest: failed", and turns the machine off.

/bin/busybox --install -s /bin
export PATH=/bin:/sbin

fail() {
    echo "guest: failed, $1"
    poweroff -f
}

appears() {
    tries=100
    while [ ! -e "$1" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "$1 does not appear"
        usleep 100000
    done
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || fail "no module $module"
done < /modules/order

if [ "$eyrie_format" = yes ]; then
    appears /sys/bus/nd/devices/region0/pfn_seed
    appears /dev/pmem0
    cd /sys/bus/nd || fail "no bus of persistent memory"
    echo namespace0.0 > drivers/nd_pmem/unbind || fail "unbind"
    device=$(cat devices/region0/pfn_seed)
    echo pmem > "devices/$device/mode" || fail "mode"
    echo 2097152 > "devices/$device/align" || fail "align"
    cat /proc/sys/kernel/random/uuid > "devices/$device/uuid" || fail "uuid"
    echo namespace0.0 > "devices/$device/namespace" || fail "namespace"
    echo "$device" > drivers/nd_pmem/bind || fail "bind"
    cd /
    appears /dev/pmem0
    # mke2fs is called by its path, because the shell prefers a busybox program of the same name.
    /sbin/mke2fs -q -t ext4 -b 4096 /dev/pmem0 || fail "mke2fs"
fi

appears /dev/pmem0
mount -t ext4 -o dax=always /dev/pmem0 /mnt || fail "mount with DAX"
cd /mnt || fail "no mount"
if sh -c "$eyrie_run"; then
    cd /
    umount /mnt || fail "unmount"
    echo "guest: passed"
else
    echo "guest: failed, $eyrie_run"
fi
poweroff -f
