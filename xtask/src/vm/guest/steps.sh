# What steps have in common. Each step reads this first.

. /guest/machine

# Loads the modules, each behind what it needs.
load() {
    for module in $(cat /guest/modules); do
        insmod "/guest/modules.d/$module" || return 1
    done
}

# Waits for something to become true: wait_for SECONDS WHAT...
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

# Brings every port up, with addresses where it is an Ethernet port.
ready() {
    hca=0
    while [ $hca -lt "$HCAS" ]; do
        wait_for 30 node $hca || return 1
        if [ "$LINK" = eth ]; then
            wait_for 30 netdev_of $hca || return 1
            netdev=$(netdev_of $hca)
            ip link set "$netdev" up || return 1
            ip addr add "10.0.$hca.1/24" dev "$netdev" 2>/dev/null
            wait_for 30 addressed "$netdev" || return 1
            wait_for 30 ipv4_gid $hca || return 1
        fi
        wait_for 30 active $hca || return 1
        hca=$((hca + 1))
    done
}

# The network interface of a device.
netdev_of() { ls "/sys/class/infiniband/mlx5_$1/device/net" 2>/dev/null | grep . | head -n 1; }

# Two programs that talk to each other: both SERVER CLIENT. The server's words come first.
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

# Whether somebody listens at the port that all these programs use, 18515, which is 4853 in hexadecimal.
listening() { cat /proc/net/tcp /proc/net/tcp6 | grep -q ':4853 [0:]* 0A'; }
