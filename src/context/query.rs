//! Properties of the device, its ports, and their GID and P_Key tables.

mod device;
mod ethernet;
mod port;

pub use device::{CompletionCaps, DeviceAttr, OnDemandCaps, QueueLimits, TagMatchingCaps};
pub use ethernet::{EthernetCaps, StridingCaps};
pub use port::{LinkSpeed, PhysicalState, PortAttr, mtu_bytes};

use crate::{
    context::{Context, Gid, Inner},
    error::{Error, ErrorKind},
};
use mlx5_uapi::{
    Errno,
    cmd::query,
    sysfs,
    verbs::{self, GidType},
};
use std::net::IpAddr;

/// An entry of a port's GID table (`struct ibv_gid_entry`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Its index.
    pub gid_index: u32,
    /// Its port.
    pub port_num: u32,
    /// Its type, which determines the packet format: InfiniBand, RoCE v1 or RoCE v2.
    pub gid_type: GidType,
    /// The network interface that it belongs to, on Ethernet.
    pub netdev_ifindex: Option<u32>,
}

impl GidEntry {
    /// Converts the kernel's entry. Returns `None` if the GID type is unknown.
    fn from_kernel(entry: &verbs::GidEntry) -> Option<Self> {
        Some(Self {
            gid: Gid::from_bytes(entry.gid),
            gid_index: entry.gid_index,
            port_num: entry.port_num,
            gid_type: GidType::from_raw(entry.gid_type)?,
            netdev_ifindex: Some(entry.netdev_ifindex).filter(|index| *index != 0),
        })
    }
}

impl Inner {
    /// Issues QUERY_PORT.
    pub(crate) fn query_port(&self, port_num: u8) -> Result<PortAttr, Error> {
        const VERB: &str = "query_port";
        self.port(VERB, port_num)?;
        let answer = self.run(VERB, |file| query::port(file, port_num))?;
        Ok(PortAttr::from_kernel(&answer))
    }

    /// Issues QUERY_GID_ENTRY.
    pub(crate) fn query_gid(&self, port_num: u8, gid_index: u32) -> Result<GidEntry, Error> {
        const VERB: &str = "query_gid";
        self.port(VERB, port_num)?;
        let entry =
            self.run(VERB, |file| query::gid_entry(file, u32::from(port_num), gid_index))?;
        GidEntry::from_kernel(&entry).ok_or_else(|| Error::kernel(VERB, Errno::EPROTO))
    }

    /// Issues QUERY_GID_TABLE.
    pub(crate) fn gid_table(&self) -> Result<Vec<GidEntry>, Error> {
        const VERB: &str = "query_gid_table";
        let mut room = 0_usize;
        for port_num in 1..=self.num_ports() {
            room += self.query_port(port_num as u8)?.gid_tbl_len as usize;
        }
        let entries = self.run(VERB, |file| query::gid_table(file, room))?;
        Ok(entries.iter().filter_map(GidEntry::from_kernel).collect())
    }

    /// Returns the index of a GID in a port's GID table.
    pub(crate) fn find_gid(
        &self,
        operation: &'static str,
        port_num: u8,
        gid: Gid,
        gid_type: GidType,
    ) -> Result<u32, Error> {
        let wanted = |entry: &&GidEntry| {
            entry.port_num == u32::from(port_num) && entry.gid == gid && entry.gid_type == gid_type
        };
        self.gid_table()?.iter().find(wanted).map(|entry| entry.gid_index).ok_or_else(|| {
            let cause = format!("port {port_num} has no GID {gid} of type {gid_type:?}");
            Error::new(operation, ErrorKind::NotFound, cause)
        })
    }
}

impl Context {
    /// Returns the properties of the device (`ibv_query_device_ex`), as queried when it was opened.
    pub fn query_device(&self) -> DeviceAttr {
        DeviceAttr::new(&self.inner)
    }

    /// Queries a port (`ibv_query_port`), counted from 1.
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr, Error> {
        self.inner.query_port(port_num)
    }

    /// Queries an entry of a port's GID table (`ibv_query_gid_ex`).
    pub fn query_gid(&self, port_num: u8, gid_index: u32) -> Result<GidEntry, Error> {
        self.inner.query_gid(port_num, gid_index)
    }

    /// Queries the GIDs of all ports, without empty entries (`ibv_query_gid_table`).
    pub fn gid_table(&self) -> Result<Vec<GidEntry>, Error> {
        self.inner.gid_table()
    }

    /// Returns the index of a GID in a port's GID table.
    pub fn find_gid(&self, port_num: u8, gid: Gid, gid_type: GidType) -> Result<u32, Error> {
        self.inner.port("find_gid", port_num)?;
        self.inner.find_gid("find_gid", port_num, gid, gid_type)
    }

    /// Returns the entry of the GID table with an IP address. Of several entries: RoCE v2 before
    /// v1, then the lowest port, then the lowest index.
    ///
    /// Only RoCE ports have IP addresses as GIDs. On InfiniBand an address belongs to an IPoIB
    /// interface, which [`Context::net_interfaces`] names.
    ///
    /// ```no_run
    /// # fn f(context: &mlx5::Context) -> Result<(), mlx5::Error> {
    /// use std::net::Ipv4Addr;
    ///
    /// let gid = context.find_ip(Ipv4Addr::new(192, 168, 0, 1))?;
    /// let port = context.local_port(gid.port_num as u8, Some(gid.gid_index as u8))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_ip(&self, ip: impl Into<IpAddr>) -> Result<GidEntry, Error> {
        let ip = ip.into();
        let gid = Gid::from(ip);
        let table = self.inner.gid_table()?;
        let best = table
            .iter()
            .filter(|entry| entry.gid == gid && entry.gid_type != GidType::InfiniBand)
            .min_by_key(|entry| {
                (entry.gid_type != GidType::RoceV2, entry.port_num, entry.gid_index)
            });
        best.copied().ok_or_else(|| {
            let cause = format!("no RoCE port of {} has the address {ip}", self.name());
            Error::new("find_ip", ErrorKind::NotFound, cause)
        })
    }

    /// Returns the names of the network interfaces of a port, such as `eth0`.
    ///
    /// On RoCE these are the interfaces whose addresses are in the GID table, VLANs and bonds
    /// included, in the order of the table. On InfiniBand they are the IPoIB interfaces.
    ///
    /// ```no_run
    /// # fn f(context: &mlx5::Context) -> Result<(), mlx5::Error> {
    /// for interface in context.net_interfaces(1)? {
    ///     println!("{} port 1 is {interface}", context.name());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn net_interfaces(&self, port_num: u8) -> Result<Vec<String>, Error> {
        const VERB: &str = "net_interfaces";
        let inner = &self.inner;
        let caps = inner.port(VERB, port_num)?;
        inner.check(VERB)?;
        if !caps.ethernet {
            return sysfs::interfaces(&*inner.kernel, &inner.info.name, port_num.into())
                .map_err(|errno| inner.fail(VERB, errno));
        }
        let mut names: Vec<String> = Vec::new();
        for entry in inner.gid_table()? {
            if entry.port_num == u32::from(port_num)
                && let Some(name) = self.net_interface(&entry)?
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns the name of the network interface that an entry of the GID table belongs to, or
    /// `None` on InfiniBand, or if the entry is gone.
    pub fn net_interface(&self, entry: &GidEntry) -> Result<Option<String>, Error> {
        const VERB: &str = "net_interface";
        let inner = &self.inner;
        inner.check(VERB)?;
        let (port_num, index) = (entry.port_num, entry.gid_index);
        match sysfs::gid_interface(&*inner.kernel, &inner.info.name, port_num, index) {
            Ok(name) => Ok(Some(name)),
            Err(Errno::ENOENT | Errno::EINVAL) => Ok(None),
            Err(errno) => Err(inner.fail(VERB, errno)),
        }
    }

    /// Queries an entry of a port's P_Key table (`ibv_query_pkey`).
    pub fn query_pkey(&self, port_num: u8, index: u32) -> Result<u16, Error> {
        const VERB: &str = "query_pkey";
        let inner = &self.inner;
        inner.port(VERB, port_num)?;
        inner.check(VERB)?;
        match sysfs::pkey(&*inner.kernel, &inner.info.name, u32::from(port_num), index) {
            Err(Errno::ENOENT | Errno::EINVAL) => {
                let cause = format!("port {port_num} has no P_Key with index {index}");
                Err(Error::new(VERB, ErrorKind::NotFound, cause))
            }
            answer => answer.map_err(|errno| inner.fail(VERB, errno)),
        }
    }
}
