# Functions for all steps. Each step reads this file first.

. /guest/machine

# Loads the modules, each after its dependencies.
load() {
    for module in $(cat /guest/modules); do
        insmod "/guest/modules.d/$module" || return 1
    done
}

# Waits until a command succeeds: wait_for SECONDS COMMAND...
wait_for() {
    limit=$(($(date +%s) + $1))
    shift
    until "$@"; do
        if [ "$(date +%s)" -gt "$limit" ]; then
            echo "not in time: $*"
            return 1
        fi
        usleep 20000
    done
}

active() { grep -q ACTIVE "/sys/class/infiniband/mlx5_$1/ports/1/state" 2>/dev/null; }
node() { [ -e "/dev/infiniband/uverbs$1" ]; }
addressed() { ip -6 addr show dev "$1" | grep -q 'inet6 fe80.*scope link *$'; }
gid_of() { cat "/sys/class/infiniband/mlx5_$1/ports/1/gids/$2" 2>/dev/null; }
ipv4_gid() { cat /sys/class/infiniband/mlx5_$1/ports/1/gids/* 2>/dev/null | grep -q '0000:ffff:0a00'; }

# Brings every port up, with addresses if it is an Ethernet port.
ready() {
    hca=0
    while [ $hca -lt "$HCAS" ]; do
        wait_for 30 node $hca || return 1
        if [ "$LINK" = eth ]; then
            wait_for 30 netdev_of $hca >/dev/null || return 1
            netdev=$(netdev_of $hca)
            ip link set "$netdev" up || return 1
            ip addr add "10.0.$hca.1/24" dev "$netdev" 2>/dev/null
            wait_for 30 addressed "$netdev" || return 1
            wait_for 30 ipv4_gid $hca || return 1
        fi
        wait_for 30 active $hca || return 1
        hca=$((hca + 1))
    done
    if [ "$LINK" = eth ]; then neighbours; fi
}

# Sets the addresses of the other interfaces at every interface. All are in one namespace here, and
# a kernel does not answer a request of one of its own interfaces for the address of another.
neighbours() {
    for here in $(seq 0 $((HCAS - 1))); do
        for there in $(seq 0 $((HCAS - 1))); do
            if [ "$here" = "$there" ]; then continue; fi
            mac=$(cat "/sys/class/net/$(netdev_of "$there")/address")
            arp -i "$(netdev_of "$here")" -s "10.0.$there.1" "$mac" || return 1
        done
    done
}

# Prints the network interface of a device.
netdev_of() { ls "/sys/class/infiniband/mlx5_$1/device/net" 2>/dev/null | grep . | head -n 1; }

# Runs two programs that communicate: both SERVER CLIENT. Prints the server's output first.
both() {
    sh -c "$1" >/tmp/server.out 2>&1 &
    server=$!
    wait_for 20 listening || { cat /tmp/server.out; kill -9 $server; return 1; }
    sh -c "$2" >/tmp/client.out 2>&1
    client_status=$?
    if [ $client_status -ne 0 ]; then kill $server 2>/dev/null; fi
    wait $server
    server_status=$?
    echo "server ($1): status $server_status"
    cat /tmp/server.out
    echo "client ($2): status $client_status"
    cat /tmp/client.out
    [ $client_status -eq 0 ] && [ $server_status -eq 0 ]
}

# Whether a process listens at the port that all these programs use, 18515, which is 4853 in
# hexadecimal.
listening() { cat /proc/net/tcp /proc/net/tcp6 | grep -q ':4853 [0:]* 0A'; }

# Prints the index of a device's IPv4 address for RoCE v2 in its table.
gid_index() {
    for gid in /sys/class/infiniband/mlx5_$1/ports/1/gids/*; do
        index=${gid##*/}
        grep -q '0000:ffff:0a00' "$gid" || continue
        grep -q v2 "/sys/class/infiniband/mlx5_$1/ports/1/gid_attrs/types/$index" || continue
        echo "$index"
        return
    done
}

# Whether one of our programs still works.
ours_works() { mlx5 pingpong --device mlx5_0 -n 20 --events; }

# Starts a program that runs for long in the background, and waits until it works.
started() {
    sh -c "exec $1" >/tmp/started.out 2>&1 &
    pid=$!
    wait_for 20 grep -q '^remote' /tmp/started.out && wait_for 20 busy $pid && return
    cat /tmp/started.out
    return 1
}

# Whether a process has had a tenth of a second of processor time.
busy() {
    set -- $(cat "/proc/$1/stat")
    [ $((${14} + ${15})) -ge 10 ]
}

# Kills a program in the middle of its work.
killed() {
    started "$1" || return 1
    kill -9 $pid
    wait $pid
    [ $? -eq 137 ]
}

# Removes the device from a program that uses it: the program must report that and end. removed
# PROGRAM HOW BACK: HOW removes the device, and BACK brings it back.
removed() {
    started "$1" || return 1
    $2 || return 1
    if ! wait_for 20 ended $pid; then
        kill -9 $pid
        return 1
    fi
    wait $pid
    status=$?
    cat /tmp/started.out
    echo "ended with status $status"
    $3 && ready && ours_works || return 1
    [ $status -eq 1 ] && grep -q 'device is gone' /tmp/started.out
}

# Removes the device from a process that has memory and queues, and brings it back, four times: the
# process must not grow. replugged HOW BACK, as for removed.
replugged() {
    mlx5-conformance --device mlx5_0 --replug 4 >/tmp/replug.out 2>&1 &
    pid=$!
    for round in 1 2 3 4; do
        for word in 'holds' 'has let go'; do
            if ! wait_for 60 told "round $round $word"; then
                cat /tmp/replug.out
                kill -9 $pid
                return 1
            fi
            if [ "$word" = holds ]; then $1 || return 1; fi
        done
        $2 && ready || return 1
    done
    wait $pid
    status=$?
    cat /tmp/replug.out
    [ $status -eq 0 ] && ours_works
}

# Whether the process has printed a line that starts with this text.
told() { grep -q "^$1" /tmp/replug.out; }

take_driver() { rmmod mlx5_ib; }
give_driver() { insmod /guest/modules.d/mlx5_ib; }
# The number of mlx5_0's function depends on the order in which the driver found the functions.
take_function() { echo 1 >/sys/class/infiniband/mlx5_0/device/remove; }
give_function() { echo 1 >/sys/bus/pci/rescan; }

# Kills one of two programs that communicate: the other must notice and end.
peer_killed() {
    mlx5 pingpong --device mlx5_1 --listen >/tmp/server.out 2>&1 &
    server=$!
    wait_for 20 listening || return 1
    started "mlx5 pingpong --device mlx5_0 --connect localhost -n 1000000000" || return 1
    kill -9 $server
    wait_for 20 ended $pid || return 1
    wait $pid
    status=$?
    cat /tmp/started.out
    [ $status -eq 1 ] && ours_works
}

# Whether a child has ended, even if no process has waited for it yet.
ended() { ! [ -e "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status"; }

# Unloads the modules that load has loaded, the last one first.
unload() {
    for module in $(sed '1!G;h;$!d' /guest/modules); do
        rmmod "$module" || return 1
    done
}
