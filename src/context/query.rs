//! Properties of the device, its ports, and their GID and P_Key tables.

mod device;
mod gid;
mod port;

pub use device::{CompletionCaps, DeviceAttr, OnDemandCaps, QueueLimits, TagMatchingCaps};
pub use gid::Gid;
pub use port::{LinkSpeed, PhysicalState, PortAttr, mtu_bytes};

use crate::{
    context::{Context, Inner},
    error::{Error, ErrorKind},
};
use mlx5_uapi::{
    Errno,
    cmd::query,
    sysfs,
    verbs::{self, GidType},
};

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
