#!/bin/busybox sh
# The first process of the virtual machine. It takes the host's file system as its own, read-only
# below and in memory above, runs the job there, and switches the machine off.
/bin/busybox --install -s /bin
export PATH=/bin
R=/root

give_up() {
    echo "vm: $1"
    poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# What is no module here is part of the kernel, or the next step fails.
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe $module
done
share="trans=virtio,version=9p2000.L,msize=512000"
mount -t 9p -o "$share,cache=loose,ro" host /lower || give_up "the host's files are not there"
mount -t tmpfs -o size=75% upper /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root $R ||
    give_up "the host's files cannot be laid under"
mount -t proc proc $R/proc
mount -t sysfs sys $R/sys
mount -t devtmpfs dev $R/dev
mkdir -p $R/dev/pts $R/dev/shm
mount -t devpts pts $R/dev/pts
mount -t tmpfs shm $R/dev/shm
mount -t tmpfs run $R/run
mkdir $R/run/job
mount -t 9p -o "$share" job $R/run/job || give_up "the job is not there"
ip link set lo up
chroot $R /bin/sh /run/job/job.sh
poweroff -f
