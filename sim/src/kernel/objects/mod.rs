//! The objects of an open file, by handle.

pub(crate) mod cq;
pub(crate) mod devx;
pub(crate) mod dm;
pub(crate) mod flow;
pub(crate) mod mr;
pub(crate) mod qp;
pub(crate) mod rate;
pub(crate) mod raw;
pub(crate) mod srq;
pub(crate) mod uar;
pub(crate) mod xrcd;

use std::collections::BTreeMap;
use std::sync::Arc;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::DeallocPdIn;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::object;
use zerocopy::IntoBytes;

use crate::kernel::hca::Hca;

pub(crate) use cq::Cq;
pub(crate) use devx::{DevxObject, Umem};
pub(crate) use dm::{DevicePages, Dm};
pub(crate) use flow::{Counters, Flow, Matcher};
pub(crate) use mr::{Mr, Mw};
pub(crate) use qp::Qp;
pub(crate) use rate::RateEntry;
pub(crate) use raw::{IndirectionTable, Wq};
pub(crate) use srq::Srq;
pub(crate) use uar::{UarObject, UarPage};
pub(crate) use xrcd::Xrcd;

/// The answer to an object's destruction: the numbers of its events that were read, in the form of
/// the method, or nothing.
pub(crate) type Report = Vec<u8>;

/// The kind and the parts of an object.
#[derive(Debug)]
pub(crate) enum Body {
    Pd { pdn: u32 },
    Xrcd(Xrcd),
    Ah,
    Mr(Mr),
    Mw(Mw),
    Dm(Dm),
    Cq(Cq),
    Qp(Box<Qp>),
    Srq(Srq),
    Uar(UarObject),
    Devx(DevxObject),
    Umem(Umem),
    Wq(Wq),
    IndirectionTable(IndirectionTable),
    Flow(Flow),
    Matcher(Matcher),
    Counters(Counters),
    Rate(RateEntry),
}

impl Body {
    /// The kind of object, as methods name it.
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Self::Pd { .. } => object::PD,
            Self::Xrcd(_) => object::XRCD,
            Self::Ah => object::AH,
            Self::Mr(_) => object::MR,
            Self::Mw(_) => object::MW,
            Self::Dm(_) => object::DM,
            Self::Cq(_) => object::CQ,
            Self::Qp(_) => object::QP,
            Self::Srq(_) => object::SRQ,
            Self::Uar(_) => object::UAR,
            Self::Devx(_) => object::DEVX_OBJ,
            Self::Umem(_) => object::DEVX_UMEM,
            Self::Wq(_) => object::WQ,
            Self::IndirectionTable(_) => object::RWQ_IND_TBL,
            Self::Flow(_) => object::FLOW,
            Self::Matcher(_) => object::FLOW_MATCHER,
            Self::Counters(_) => object::COUNTERS,
            Self::Rate(_) => object::PP,
        }
    }

    /// Ends the object on the device.
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<Report, Errno> {
        let mut reported = Report::new();
        match self {
            Self::Pd { pdn } => dealloc_pd(hca, *pdn)?,
            Self::Xrcd(body) => body.end(hca)?,
            // The pages are freed with their last mapping.
            Self::Ah | Self::Uar(_) | Self::Dm(_) | Self::Matcher(_) => {}
            Self::Mr(body) => body.end(hca)?,
            Self::Mw(body) => body.end(hca)?,
            Self::Cq(body) => reported.extend(body.end(hca)?.as_bytes()),
            Self::Qp(body) => reported.extend(body.end(hca)?.as_bytes()),
            Self::Srq(body) => reported.extend(body.end(hca)?.as_bytes()),
            Self::Devx(body) => body.end(hca)?,
            Self::Umem(body) => body.end(hca)?,
            Self::Wq(body) => reported.extend(body.end(hca)?.as_bytes()),
            Self::IndirectionTable(body) => body.end(hca)?,
            Self::Flow(body) => body.end(hca)?,
            Self::Counters(body) => body.end(hca)?,
            Self::Rate(body) => body.end(hca),
        }
        Ok(reported)
    }
}

fn dealloc_pd(hca: &Hca, pdn: u32) -> Result<(), Errno> {
    let mut input = DeallocPdIn::request();
    input.set_pd(pdn);
    hca.command(&input).map(drop)
}

/// An object that can be mapped.
pub(crate) enum Mappable {
    Uar(Arc<UarPage>),
    Dm(Arc<DevicePages>),
}

/// An object, the number of its users, and the handles of the objects that it uses.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) body: Body,
    users: u32,
    parents: Vec<u32>,
}

/// The objects of a file. Handles are the lowest that are free, as the kernel gives them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    table: BTreeMap<u32, Object>,
    /// Handles in the order in which their objects were made.
    order: Vec<u32>,
}

impl Objects {
    /// Adds an object that uses others, and returns its handle.
    pub(crate) fn add(&mut self, body: Body, parents: &[u32]) -> u32 {
        let taken = self.table.keys();
        let handle = (0..)
            .zip(taken)
            .find(|(free, used)| free != *used)
            .map_or(self.table.len() as u32, |(free, _)| free);
        for parent in parents {
            if let Some(parent) = self.table.get_mut(parent) {
                parent.users += 1;
            }
        }
        self.table.insert(handle, Object { body, users: 0, parents: parents.to_vec() });
        self.order.push(handle);
        handle
    }

    /// An object of any kind.
    pub(crate) fn get(&self, handle: u32) -> Result<&Body, Errno> {
        self.table.get(&handle).map(|object| &object.body).ok_or(Errno::ENOENT)
    }

    /// An object of any kind, to change it.
    pub(crate) fn get_mut(&mut self, handle: u32) -> Result<&mut Body, Errno> {
        self.table.get_mut(&handle).map(|object| &mut object.body).ok_or(Errno::ENOENT)
    }

    /// Checks that a handle is of a kind.
    pub(crate) fn expect(&self, handle: u32, kind: u16) -> Result<(), Errno> {
        if self.get(handle)?.kind() == kind { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Whether no other object uses an object.
    pub(crate) fn is_free(&self, handle: u32) -> bool {
        self.table.get(&handle).is_none_or(|object| object.users == 0)
    }

    /// Removes an object that has ended.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<Object> {
        let object = self.table.remove(&handle)?;
        for &parent in &object.parents {
            if let Some(parent) = self.table.get_mut(&parent) {
                parent.users -= 1;
            }
            self.undescribe_unused(parent);
        }
        self.order.retain(|other| *other != handle);
        Some(object)
    }

    /// Once no rule uses counters, also after a first rule that failed, the kernel drops their
    /// description.
    pub(crate) fn undescribe_unused(&mut self, handle: u32) {
        if let Some(Object { users: 0, body: Body::Counters(counters), .. }) =
            self.table.get_mut(&handle)
        {
            counters.described.clear();
        }
    }

    /// Replaces one of the objects that an object uses.
    pub(crate) fn adopt(&mut self, handle: u32, from: u32, to: u32) {
        let Some(object) = self.table.get_mut(&handle) else { return };
        let Some(parent) = object.parents.iter_mut().find(|parent| **parent == from) else {
            return;
        };
        *parent = to;
        if let Some(old) = self.table.get_mut(&from) {
            old.users -= 1;
        }
        if let Some(new) = self.table.get_mut(&to) {
            new.users += 1;
        }
    }

    /// The handles of all objects, the last made first.
    pub(crate) fn newest_first(&self) -> Vec<u32> {
        self.order.iter().rev().copied().collect()
    }

    /// The handles of all objects of a kind.
    pub(crate) fn of_kind(&self, kind: u16) -> Vec<u32> {
        let objects = self.table.iter();
        objects
            .filter(|(_, object)| object.body.kind() == kind)
            .map(|(handle, _)| *handle)
            .collect()
    }
}

macro_rules! typed {
    ($($name:ident, $name_mut:ident: $Variant:ident($Type:ty);)*) => {
        impl Objects {
            $(
                #[allow(dead_code, reason = "not every kind is both looked at and changed")]
                pub(crate) fn $name(&self, handle: u32) -> Result<&$Type, Errno> {
                    match self.get(handle)? {
                        Body::$Variant(body) => Ok(body),
                        _ => Err(Errno::EINVAL),
                    }
                }

                #[allow(dead_code, reason = "not every kind is both looked at and changed")]
                pub(crate) fn $name_mut(&mut self, handle: u32) -> Result<&mut $Type, Errno> {
                    match self.get_mut(handle)? {
                        Body::$Variant(body) => Ok(body),
                        _ => Err(Errno::EINVAL),
                    }
                }
            )*
        }
    };
}

typed! {
    mr, mr_mut: Mr(Mr);
    dm, dm_mut: Dm(Dm);
    cq, cq_mut: Cq(Cq);
    qp, qp_mut: Qp(Box<Qp>);
    srq, srq_mut: Srq(Srq);
    uar, uar_mut: Uar(UarObject);
    devx, devx_mut: Devx(DevxObject);
    wq, wq_mut: Wq(Wq);
    table, table_mut: IndirectionTable(IndirectionTable);
    matcher, matcher_mut: Matcher(Matcher);
    counters, counters_mut: Counters(Counters);
}

impl Objects {
    /// The device's number of a protection domain.
    pub(crate) fn pdn(&self, handle: u32) -> Result<u32, Errno> {
        match self.get(handle)? {
            Body::Pd { pdn } => Ok(*pdn),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The device's number of an XRC domain.
    pub(crate) fn xrcd(&self, handle: u32) -> Result<u32, Errno> {
        match self.get(handle)? {
            Body::Xrcd(body) => Ok(body.xrcd),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Finds the object that is mapped at an offset.
    pub(crate) fn mapped_at(&self, offset: u64) -> Option<Mappable> {
        self.table.values().find_map(|object| match &object.body {
            Body::Uar(uar) if uar.mmap_offset() == offset => {
                Some(Mappable::Uar(Arc::clone(&uar.page)))
            }
            Body::Dm(dm) if dm.mmap_offset() == offset => Some(Mappable::Dm(Arc::clone(&dm.pages))),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_the_lowest_free_ones_and_parents_are_counted() {
        let mut objects = Objects::default();
        let pd = objects.add(Body::Pd { pdn: 5 }, &[]);
        let ah = objects.add(Body::Ah, &[pd]);
        let other = objects.add(Body::Ah, &[pd]);
        assert_eq!((pd, ah, other), (0, 1, 2));
        assert!(!objects.is_free(pd));
        objects.remove(ah);
        assert_eq!(objects.add(Body::Ah, &[pd]), 1);
        objects.remove(1);
        objects.remove(2);
        assert!(objects.is_free(pd));
        assert_eq!(objects.expect(pd, object::AH), Err(Errno::EINVAL));
        assert_eq!(objects.expect(9, object::PD), Err(Errno::ENOENT));
        assert_eq!(objects.newest_first(), [0]);
    }
}
