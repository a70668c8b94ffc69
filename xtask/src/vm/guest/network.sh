# Functions for the steps that use the kernel's network interfaces. Each of the two devices has its
# interface in a network namespace of its own, so all traffic between them uses the simulated wire.

# Port of the receivers: 5001, which is 1389 in hexadecimal.
PORT=5001
RECEIVING=':1389 [0:]* 0A'

# Runs a command in the namespace of an end: inside END COMMAND...
inside() {
    space=$(cat "/run/namespace$1")
    shift
    nsenter -t "$space" -n "$@"
}

# Prints the name of an end's interface.
interface() { cat "/run/interface$1"; }

# Whether both interfaces are in namespaces of their own.
is_apart() { elsewhere "$(cat /run/namespace1 2>/dev/null)" 2>/dev/null; }

# Moves the interfaces of both devices to namespaces of their own, with addresses 10.9.0.1 and
# fd09::1 at end 0 and so on.
apart() {
    for end in 0 1; do
        netdev=$(netdev_of $end)
        echo "$netdev" >/run/interface$end
        unshare -n sleep 100000 &
        keeper=$!
        echo $keeper >/run/namespace$end
        wait_for 10 elsewhere $keeper && ip link set "$netdev" netns $keeper || return 1
        inside $end ip link set lo up
        inside $end sysctl -q -w net.ipv6.conf.all.accept_dad=0 net.ipv6.conf."$netdev".accept_dad=0
        addressed_as "$netdev" $end 0 && inside $end ip link set "$netdev" up || return 1
    done
    wait_for 20 carried 0 && wait_for 20 carried 1
}

# Gives an interface its addresses in a network: addressed_as INTERFACE END NETWORK
addressed_as() {
    inside "$2" ip addr add "10.9.$3.$(($2 + 1))/24" dev "$1" &&
        inside "$2" ip -6 addr add "fd09:$3::$(($2 + 1))/64" dev "$1"
}

elsewhere() { [ -e "/proc/$1/ns/net" ] && [ "$(readlink /proc/$1/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
carried() { inside "$1" ip link show dev "$(interface "$1")" | grep -q LOWER_UP; }
has_netdev() { [ -n "$(netdev_of "$1")" ]; }

# Moves the interfaces back, and brings them up as before.
together() {
    for end in 0 1; do
        kill "$(cat /run/namespace$end)" && rm /run/namespace$end || return 1
    done
    for end in 0 1; do wait_for 20 has_netdev $end || return 1; done
    ready
}

# Runs a command for both interfaces: both_ends COMMAND... with INTERFACE in place of the name
both_ends() {
    for end in 0 1; do
        inside $end $(echo "$*" | sed "s/INTERFACE/$(interface $end)/") || return 1
    done
}

# Checks whether the receive queues of both interfaces have strides: both_stride on, or off
both_stride() {
    for end in 0 1; do
        inside $end ethtool --show-priv-flags "$(interface $end)" | grep rx_striding_rq | tee /tmp/strides
        grep -q ": $1\$" /tmp/strides || return 1
    done
}

# Saves the counters of both interfaces.
remember() {
    for end in 0 1; do inside $end ethtool -S "$(interface $end)" >/run/counted$end || return 1; done
}

# Prints the growth of a counter since then: grown END COUNTER
grown() {
    before=$(sed -n "s/^ *$2: //p" "/run/counted$1")
    now=$(inside "$1" ethtool -S "$(interface "$1")" | sed -n "s/^ *$2: //p")
    echo $((now - before))
}

# Checks the growth of a counter: counted END COUNTER COMPARISON NUMBER
counted() {
    found=$(grown "$1" "$2")
    echo "end $1: $2 $found"
    if ! [ "$found" "$3" "$4" ]; then
        echo "expected $3 $4"
        return 1
    fi
}

# Checks that no queue had an error.
no_errors() {
    for end in 0 1; do
        for name in tx_cqe_err rx_wqe_err tx_recover rx_recover; do
            counted $end $name -eq 0 || return 1
        done
    done
}

# Creates the files to send: ten megabytes of random data, and the first two of them.
patterns() {
    [ -e /tmp/two ] && return
    dd if=/dev/urandom of=/tmp/ten bs=1000000 count=10 2>/dev/null || return 1
    head -c 2000000 /tmp/ten >/tmp/two
}

# Creates a file with ten times the ten megabytes.
repeated() {
    patterns && for copy in 1 2 3 4 5 6 7 8 9 10; do cat /tmp/ten; done >/tmp/hundred
}

receives() { inside "$1" cat /proc/net/tcp /proc/net/tcp6 | grep -q "$RECEIVING"; }

# Sends a file over TCP; the receiver compares every byte: moved FROM TO ADDRESS FILE
moved() {
    patterns || return 1
    # The receiver's input stays open, since nc would otherwise tell the sender that it is done.
    [ -e /tmp/nothing ] || mkfifo /tmp/nothing
    inside "$2" sh -c "nc -l -p $PORT <>/tmp/nothing | cmp - '$4'" >/tmp/moved.out 2>&1 &
    receiver=$!
    wait_for 10 receives "$2" || return 1
    begun=$(cut -d' ' -f1 /proc/uptime)
    inside "$1" nc "$3" $PORT <"$4"
    sent=$?
    wait $receiver
    compared=$?
    cat /tmp/moved.out
    echo "$(wc -c <"$4") bytes, from second $begun to second $(cut -d' ' -f1 /proc/uptime)"
    [ $sent -eq 0 ] && [ $compared -eq 0 ]
}

# Whether iperf3 listens at its port, 5201, which is 1451 in hexadecimal.
streams() { inside "$1" cat /proc/net/tcp /proc/net/tcp6 | grep -q ':1451 [0:]* 0A'; }

# Sends bytes with iperf3: streamed FROM TO ADDRESS BYTES. The window is small, because iperf3
# counts data in flight after the last write as sent, and such data may never arrive.
streamed() {
    inside "$2" iperf3 --server --one-off >/tmp/server.out 2>&1 &
    server=$!
    wait_for 20 streams "$2" || { cat /tmp/server.out; kill -9 $server; return 1; }
    inside "$1" iperf3 --client "$3" --bytes "$4" --window 64K
    client_status=$?
    if [ $client_status -ne 0 ]; then kill $server 2>/dev/null; fi
    wait $server
    server_status=$?
    cat /tmp/server.out
    [ $client_status -eq 0 ] && [ $server_status -eq 0 ]
}

# Prints the frames of the capture that match: found EXPRESSION...
found() { tcpdump -Z root -n -v -r /tmp/capture.pcapng "$@" 2>/tmp/tcpdump.err; }

# Whether both ends of a connection have sent a FIN in the capture.
both_done() { [ "$(found 'tcp[tcpflags] & tcp-fin != 0' | grep -c Flags)" -ge 2 ]; }

# Captures the frames that the first device sends and receives during a ping and a transfer from end
# 0 to end 1. They are no more than there are buffers for, so that none may be lost. Checks the
# capture with tcpdump, including checksums.
captured() {
    patterns && head -c 300000 /tmp/ten >/tmp/some || return 1
    mlx5 capture --device mlx5_0 -w /tmp/capture.pcapng 2>/tmp/capture.out &
    capturing=$!
    wait_for 20 grep -q capturing /tmp/capture.out || { cat /tmp/capture.out; kill -9 $capturing; return 1; }
    inside 0 ping -A -c 5 -w 10 10.9.0.2 && moved 0 1 10.9.0.2 /tmp/some && wait_for 20 both_done
    went=$?
    kill -INT $capturing
    wait $capturing
    status=$?
    cat /tmp/capture.out
    echo "capture: status $status"
    # If the kernel reports the number of packets that found no buffer, it must be zero.
    [ $went -eq 0 ] && [ $status -eq 0 ] && grep -q ' 0 dropped\|does not tell' /tmp/capture.out || return 1
    requests=$(found 'icmp[icmptype] == icmp-echo' | grep -c 'echo request')
    replies=$(found 'icmp[icmptype] == icmp-echoreply' | grep -c 'echo reply')
    found 'tcp and src 10.9.0.1' >/tmp/sent
    bytes=$(sed -n 's/.*Flags.*, length \([0-9]*\)$/\1/p' /tmp/sent | sum_of)
    acknowledged=$(found 'tcp and src 10.9.0.2' | grep -c 'ack')
    longer=$(found 'greater 1515' | wc -l)
    wrong=$(found | grep -c -i 'incorrect\|bad .*cksum')
    echo "$requests requests, $replies replies, $bytes bytes, $acknowledged packets back, $longer long, $wrong wrong"
    [ $requests -eq 5 ] && [ $replies -eq 5 ] && [ $bytes -ge 300000 ] && [ $acknowledged -ge 10 ] &&
        [ $longer -eq 0 ] && [ $wrong -eq 0 ]
}

# Prints the sum of the numbers on standard input, one per line.
sum_of() { sum=0; while read -r number; do sum=$((sum + number)); done; echo $sum; }

# Prints the program of a command, after the assignments before it.
program_of() {
    for word in $1; do
        case $word in *=*) ;; *) echo "$word" && return ;; esac
    done
}

# Runs a program of the connection manager at each end: managed SERVER CLIENT. The server is at end
# 1.
managed() {
    serving=$(program_of "$1")
    inside 1 sh -c "exec env $1" >/tmp/server.out 2>&1 &
    server=$!
    wait_for 20 waits "$serving" || { cat /tmp/server.out; kill -9 $(pidof "$serving"); return 1; }
    inside 0 sh -c "$2" >/tmp/client.out 2>&1
    client_status=$?
    if [ $client_status -ne 0 ]; then kill $(pidof "$serving") 2>/dev/null; fi
    wait $server
    server_status=$?
    echo "server ($1): status $server_status"
    cat /tmp/server.out
    echo "client ($2): status $client_status"
    cat /tmp/client.out
    [ $client_status -eq 0 ] && [ $server_status -eq 0 ]
}

# Runs an HTTP server without the kernel at end 1; the kernel's TCP at end 0 fetches a page from it:
# served SERVER ADDRESS
served() {
    $1 >/tmp/server.out 2>&1 &
    server=$!
    inside 0 curl --silent --show-error --fail --retry 10 --retry-connrefused --retry-max-time 60 \
        --max-time 60 "http://$2/" >/tmp/page
    fetched=$?
    kill $server
    wait $server
    cat /tmp/server.out /tmp/page
    [ $fetched -eq 0 ] && [ "$(grep -c 'of a page that no kernel has sent' /tmp/page)" -eq 20 ]
}

# Whether a program sleeps until an event.
waits() {
    for process in $(pidof "$1"); do
        grep -q -E 'futex|ucma_get_event|poll' "/proc/$process/wchan" && return
    done
    return 1
}
