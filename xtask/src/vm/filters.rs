//! Steps for the filters of the kernel's network interfaces: multicast groups, promiscuous mode,
//! VLANs.
//!
//! The kernel changes addresses some time after the request. The steps wait until the device has
//! them: the driver writes its flow tables first, then the function's context.

/// The part of the device that drops frames for other stations.
#[derive(Clone, Copy)]
pub(super) enum Keeper {
    /// The interface's flow tables.
    Tables,
    /// The switch before its virtual function.
    Switch,
}

/// Name and script of each step. The scripts run between two namespaces and restore the interfaces.
pub(super) fn scripts(keeper: Keeper) -> [(&'static str, String); 4] {
    let scripts = [
        ("net-multicast", MULTICAST),
        ("net-promiscuous", PROMISCUOUS),
        ("net-further-address", FURTHER_ADDRESS),
        ("net-vlan-filter", VLAN_FILTER),
    ];
    let keeper = match keeper {
        Keeper::Tables => "tables",
        Keeper::Switch => "switch",
    };
    let before = format!("KEEPER={keeper}\n. /guest/filters.sh && quiet || exit 1");
    scripts.map(|(name, script)| (name, format!("{before}\n{script} && no_errors && aloud")))
}

/// An interface receives the frames of a group that it joined and of no other group; in
/// all-multicast mode it receives every group.
const MULTICAST: &str = "\
    one=01:00:5e:01:02:03 two=01:00:5e:01:02:04
    remember && frames 3 $one && took 0 3 &&
        inside 1 $IPROUTE/ip maddr add $one dev $(interface 1) && wait_for 20 listed 1 1 $one &&
        unlisted 1 1 $two &&
        remember && frames 3 $one && frames 2 $two && took 3 2 &&
        inside 1 $IPROUTE/ip maddr del $one dev $(interface 1) && wait_for 20 unlisted 1 1 $one &&
        remember && frames 3 $one && took 0 3 &&
        inside 1 $IPROUTE/ip link set $(interface 1) allmulticast on && wait_for 20 flagged 1 2 &&
        remember && frames 2 $one && frames 2 $two && frames 1 $NOBODY && took 4 1 &&
        inside 1 $IPROUTE/ip link set $(interface 1) allmulticast off && wait_for 20 flagged 1 0 &&
        remember && frames 1 $one && took 0 1";

/// An interface receives frames for other stations in promiscuous mode, and neither before nor
/// after it.
const PROMISCUOUS: &str = "\
    remember && frames 3 $NOBODY && took 0 3 &&
        inside 1 $IPROUTE/ip link set $(interface 1) promisc on && wait_for 20 flagged 1 1 &&
        unlisted 1 0 $NOBODY &&
        remember && frames 3 $NOBODY && frames 2 01:00:5e:01:02:03 && took 5 0 &&
        inside 1 $IPROUTE/ip link set $(interface 1) promisc off && wait_for 20 flagged 1 0 &&
        remember && frames 3 $NOBODY && took 0 3";

/// An interface receives frames for each of its addresses.
const FURTHER_ADDRESS: &str = "\
    listed 1 0 $(mac 1) && unlisted 1 0 $NOBODY &&
        inside 1 $IPROUTE/bridge fdb add $NOBODY dev $(interface 1) self && wait_for 20 listed 1 0 $NOBODY &&
        flagged 1 0 && listed 1 0 $(mac 1) &&
        remember && frames 3 $NOBODY && frames 2 02:00:00:00:00:78 && took 3 2 &&
        inside 1 $IPROUTE/bridge fdb del $NOBODY dev $(interface 1) self && wait_for 20 unlisted 1 0 $NOBODY &&
        remember && frames 3 $NOBODY && took 0 3";

/// An interface receives tagged frames if the filter is off, or if the filter has their VLAN.
const VLAN_FILTER: &str = "\
    for vlan in 5 6; do
        inside 0 ip link add link $(interface 0) name vlan$vlan type vlan id $vlan &&
            inside 0 ip addr add 10.9.$vlan.1/24 dev vlan$vlan && inside 0 ip link set vlan$vlan up || exit 1
    done
    there=$(mac 1)
    unlisted 1 2 005 && remember && frames 3 $there 5 && took 0 0 3 &&
        inside 1 ethtool -K $(interface 1) rx-vlan-filter off &&
        remember && frames 3 $there 5 && frames 2 $there 6 && frames 1 $NOBODY 5 && took 5 1 &&
        inside 1 ethtool -K $(interface 1) rx-vlan-filter on &&
        remember && frames 3 $there 5 && took 0 0 3 &&
        inside 1 ip link add link $(interface 1) name vlan5 type vlan id 5 && inside 1 ip link set vlan5 up &&
        wait_for 20 listed 1 2 005 && unlisted 1 2 006 &&
        remember && frames 3 $there 5 && frames 2 $there 6 && took 3 0 2 &&
        inside 1 ip link del vlan5 && wait_for 20 unlisted 1 2 005 &&
        remember && frames 3 $there 5 && took 0 0 3 &&
        inside 0 ip link del vlan5 && inside 0 ip link del vlan6";
