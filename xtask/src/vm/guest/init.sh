#!/bin/busybox sh
# The machine's first process. Runs the steps in order and reports the status of each on the second
# serial port; the first port has the kernel's log. Then it switches the machine off in any case.

/bin/busybox mkdir -p /dev /proc /sys /tmp /run /root
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mkdir -p /dev/shm
/bin/busybox mount -t tmpfs shm /dev/shm
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TERM=linux LD_LIBRARY_PATH=
cd /root
ulimit -l unlimited
echo 30 >/proc/sys/kernel/hung_task_timeout_secs
ip link set lo up

if [ -e /guest/shell ]; then
    . /guest/steps.sh
    load && ready
    exec </dev/console >/dev/console 2>&1
    echo 'The device is there. The machine ends with this shell.'
    setsid cttyhack sh -l
    poweroff -f
fi

exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw -echo

while read -r name limit needed; do
    echo "<5>vm: step $name" >/dev/kmsg
    printf '\n\036begin %s\n' "$name"
    timeout -s KILL "$limit" sh "/guest/steps/$name"
    status=$?
    printf '\n\036end %s %s\n' "$name" "$status"
    if [ "$status" -ne 0 ] && [ "$needed" = needed ]; then break; fi
done </guest/list

echo '<5>vm: over' >/dev/kmsg
printf '\n\036over\n'
sync
sleep 0.2
poweroff -f
