//! Protection signature variables, and the report of a signature that does not match.

use mlx5_prm::cqe::{CqeOpcode, OPCODE_SHIFT};
use mlx5_prm::signature::{SetPsvSegment, SignatureErrorCqe};
use mlx5_prm::wqe::UNIT;
use zerocopy::FromBytes;

use crate::engine::state::codes::{self, Code};
use crate::engine::state::drain::{Drain, DrainAt};
use crate::engine::state::fence::Change;
use crate::engine::state::mkey::{Side, User};
use crate::engine::state::signature::{Domain, Mismatch, Psv};
use crate::engine::wqe::Request;
use crate::engine::{Device, Error};

/// PSVs that a device has.
const PSVS: usize = 1 << 16;

/// The side of a key whose signature is meant; the numbers are those of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    Wire = 0,
    Memory = 1,
}

impl Device {
    /// Creates a PSV, whose value is not set yet.
    pub(crate) fn create_psv(&mut self, pd: u32) -> Result<u32, Error> {
        self.pds.get(pd).ok_or(Error::NotFound)?;
        if self.psvs.len() >= PSVS {
            return Err(Error::Exhausted);
        }
        loop {
            self.last_psv = self.last_psv % PSVS as u32 + 1;
            if !self.psvs.contains_key(&self.last_psv) {
                self.psvs.insert(self.last_psv, Psv { pd, transient: 0, failed: true });
                return Ok(self.last_psv);
            }
        }
    }

    /// Destroys a PSV.
    pub(crate) fn destroy_psv(&mut self, number: u32) -> Result<(), Error> {
        self.psvs.remove(&number).map(drop).ok_or(Error::NotFound)
    }

    /// Executes a SET_PSV WQE.
    pub(crate) fn set_psv(&mut self, qpn: u32, request: &Request) -> Result<(), Code> {
        let bytes = request.bytes().get(UNIT..).unwrap_or(&[]);
        let (segment, _) = SetPsvSegment::read_from_prefix(bytes).map_err(|_| codes::UMR_SIZE)?;
        let pd = self.qps.get(qpn).ok_or(codes::UMR_KEY)?.config.pd;
        let psv = self.psvs.get_mut(&segment.psv_index.get()).ok_or(codes::UMR_KEY)?;
        if psv.pd != pd {
            return Err(codes::UMR_KEY);
        }
        psv.transient = segment.transient_signature.get();
        psv.failed = segment.syndrome.get() != 0;
        self.changed(qpn, request, Change::Psv(segment.psv_index.get()));
        Ok(())
    }

    /// Reports a signature that does not match, unless its PSV or its key suppresses reports. Stops
    /// the send queue if it has that option.
    pub(super) fn report_mismatch(
        &mut self,
        user: User,
        index: u32,
        (place, domain): (Where, &Domain),
        block: u64,
        mismatch: Mismatch,
    ) {
        let (Some(psv), Some(key)) = (self.psvs.get_mut(&domain.psv), self.mkeys.get_mut(index))
        else {
            return;
        };
        let signatures = &mut key.signatures;
        if std::mem::replace(&mut psv.failed, true) || signatures.expected == signatures.reported {
            return;
        }
        signatures.reported = !signatures.reported;
        let mkey = index << 8 | u32::from(key.tag);
        let Mismatch { syndrome, found, computed } = mismatch;
        let cqe = SignatureErrorCqe {
            expected_transaction_signature: ((found >> 32) as u32).into(),
            actual_transaction_signature: ((computed >> 32) as u32).into(),
            expected_reference_tag: (found as u32).into(),
            actual_reference_tag: (computed as u32).into(),
            syndrome: syndrome.into(),
            domain: place as u8,
            mkey: mkey.into(),
            offset: (block * domain.stride()).into(),
            qpn: user.qpn.into(),
            op_own: (CqeOpcode::SignatureError as u8) << OPCODE_SHIFT,
            ..SignatureErrorCqe::default()
        };
        let receive = user.side == Side::Responder;
        self.complete(user.qpn, receive, zerocopy::transmute!(cqe), &[], true);
        if let Some(qp) = self.qps.get_mut(user.qpn)
            && qp.attributes.drain_sigerr
            && !receive
            && qp.drain.is_none()
        {
            // The current request counts, too.
            let more = self.config.signature_drain.map_or(u32::MAX, |more| more.saturating_add(1));
            let at = DrainAt::After(more);
            qp.drain = Some(Drain { at, before_fence: true, notify: true });
        }
    }
}
