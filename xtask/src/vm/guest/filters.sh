# Functions for the steps that check an interface's filters. End 0 sends; end 1 counts the frames
# that it got, those that its flow tables had no entry for, and those that its port got and its
# function did not. Needs network.sh, and KEEPER: "tables" if the interface's flow tables drop
# frames for other stations, or "switch" if a switch before its function does.

# Programs of iproute2, which have more features than busybox's of the same names.
IPROUTE=/guest/iproute

# The kernel's debugfs.
DEBUG=/sys/kernel/debug

# An address of no station.
NOBODY=02:00:00:00:00:77

# Stops all traffic other than the steps': disables IPv6, which sends by itself, and sets the
# neighbours' addresses, so that no end has to resolve one.
quiet() {
    [ -d $DEBUG/mlx5 ] || mount -t debugfs debugfs $DEBUG || return 1
    for end in 0 1; do
        inside $end sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 &&
            knows $end "10.9.0.$((2 - end))" "$(mac $((1 - end)))" || return 1
    done
}

# Undoes `quiet`.
aloud() {
    for end in 0 1; do
        name=$(interface $end)
        inside $end arp -i "$name" -d "10.9.0.$((2 - end))" &&
            inside $end sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 &&
            inside $end ip -6 addr add "fd09:0::$((end + 1))/64" dev "$name" || return 1
    done
}

mac() { inside "$1" ip link show dev "$(interface "$1")" | sed -n 's/.*link.ether \([0-9a-f:]*\).*/\1/p'; }

# Sets a station's address in an end's table: knows END ADDRESS MAC [INTERFACE]
knows() { inside "$1" arp -i "${4:-$(interface "$1")}" -s "$2" "$3"; }

# Sends frames that no station answers: frames COUNT MAC [VLAN]
frames() {
    unanswered=10.9.${3:-0}.77
    knows 0 "$unanswered" "$2" ${3:+"vlan$3"} || return 1
    pings=
    for frame in $(seq "$1"); do
        inside 0 ping -q -c 1 -W 1 "$unanswered" >/dev/null &
        pings="$pings $!"
    done
    wait $pings
    [ $? -eq 1 ]
}

# Checks the frames at end 1 since `remember`: the number that it got, the number for other
# stations, and the number for itself with a tag that its tables had no entry for: took COUNT OTHERS
# [TAGGED]
took() {
    case $KEEPER in
        tables) missed=$(($2 + ${3:-0})) kept=0 ;;
        switch) missed=${3:-0} kept=$2 ;;
    esac
    # The answer comes after all frames that were sent before.
    inside 0 ping -q -c 1 -W 10 10.9.0.2 >/dev/null || return 1
    wait_for 20 at_least 1 rx_packets $(($1 + 1))
    counted 1 rx_packets -eq $(($1 + 1)) && counted 1 rx_steer_missed_packets -eq $missed && kept_away $kept
}

# Checks the number of frames since `remember` that reached the port of end 1 and not its function:
# kept_away COUNT
kept_away() {
    there rx_packets_phy || return 1
    away=$(grown 1 rx_packets_phy)
    for kind in unicast multicast broadcast; do
        there rx_vport_${kind}_packets || return 1
        away=$((away - $(grown 1 rx_vport_${kind}_packets)))
    done
    echo "end 1: $away frames reached the port alone"
    if [ $away -ne "$1" ]; then
        echo "expected $1"
        return 1
    fi
}

# Whether end 1 has a counter: a missing one would never grow.
there() {
    if ! grep -q "^ *$1: " /run/counted1; then
        echo "no counter $1"
        return 1
    fi
}

at_least() { [ "$(grown "$1" "$2")" -ge "$3" ]; }

# Prints the device's context of a function in hexadecimal, from the promiscuous flags on: context
# END KIND. KIND is 0 for the list of unicast addresses, 1 for multicast, 2 for VLANs. The kernel
# sends any firmware command that root writes into this file; this one is QUERY_NIC_VPORT_CONTEXT.
context() {
    door=$DEBUG/mlx5/$(basename "$(readlink "/sys/class/infiniband/mlx5_$1/device")")/cmd
    printf "\\007\\124\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\00$2\\0\\0\\0" >"$door/in" &&
        echo $((272 + 8 * 256)) >"$door/out_len" && printf go >"$door/run" || return 1
    od -A n -v -t x1 "$door/out" | tr -d ' \n' | cut -c 513-
}

# Prints the entries of such a list, one of sixteen digits per line.
list() {
    whole=$(context "$1" "$2")
    length=$((0x$(echo "$whole" | cut -c 5-8) & 0xfff))
    echo "$whole" | cut -c 33- | sed 's/.\{16\}/&\n/g' | head -n $length
}

# Whether an address, or a VLAN of three digits, is in the list: listed END KIND WHAT
listed() { list "$1" "$2" | grep -q -x -e "0000$(echo "$3" | tr -d :)" -e "00000${3}00000000"; }
unlisted() { ! listed "$@"; }

# Whether a function has these promiscuous flags: 4 for all unicast frames, 2 for all multicast, 1
# for all.
flagged() { [ $((0x$(context "$1" 0 | cut -c 1-2) >> 5)) -eq "$2" ]; }
