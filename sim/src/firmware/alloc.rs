//! Objects that are little more than a number.

use mlx5_prm::cmd::alloc::{
    AllocPdOut, AllocQCounterOut, AllocTransportDomainOut, AllocUarOut, AllocXrcdOut, DeallocPdIn,
    DeallocXrcdIn, QueryQCounterIn, QueryQCounterOut,
};
use mlx5_prm::fields::{get_bits, set_bits};

use crate::engine::{Device, Error, Transport};
use crate::firmware::raw::{SHORT, long_enough};
use crate::firmware::{Answer, Firmware, qp, srq};

/// XRC domains and transport domains that a device has.
const DOMAINS: u32 = 1 << 16;
/// User contexts that a device has.
const CONTEXTS: u32 = 1 << 12;
/// Counter sets that a device has.
const COUNTER_SETS: u32 = 255;

/// Bytes of CREATE_UCTX's input, `mlx5_ifc_create_uctx_in_bits`.
const CREATE_UCTX_IN: usize = 0x40;
/// Position of a user context's number, in the output of CREATE_UCTX and the input of DESTROY_UCTX:
/// first bit and width.
const UCTX_ID: (usize, usize) = (0x50, 0x10);

impl Firmware {
    pub(super) fn alloc_pd(&mut self, device: &mut Device, out: &mut AllocPdOut) -> Answer {
        out.set_pd(device.alloc_pd()?);
        Ok(())
    }

    pub(super) fn dealloc_pd(&mut self, device: &mut Device, input: &DeallocPdIn) -> Answer {
        Ok(device.dealloc_pd(input.pd())?)
    }

    pub(super) fn alloc_uar(&mut self, device: &mut Device, out: &mut AllocUarOut) -> Answer {
        out.set_uar(device.alloc_uar(self.next_uar_memory.take())?);
        Ok(())
    }

    pub(super) fn alloc_xrcd(&mut self, out: &mut AllocXrcdOut) -> Answer {
        out.set_xrcd(self.xrcds.take(DOMAINS)?);
        Ok(())
    }

    pub(super) fn dealloc_xrcd(&mut self, input: &DeallocXrcdIn) -> Answer {
        let xrcd = input.xrcd();
        let receives = |record: &qp::Record| {
            record.transport == Transport::XrcReceive && record.created.xrcd() == xrcd
        };
        if self.srqs.values().any(|srq| matches!(srq, srq::Record::XrcSrq(c) if c.xrcd() == xrcd))
            || self.qps.values().any(receives)
        {
            return Err(Error::Busy.into());
        }
        self.xrcds.give_back(xrcd)
    }

    pub(super) fn alloc_transport_domain(&mut self, out: &mut AllocTransportDomainOut) -> Answer {
        out.set_transport_domain(self.transport_domains.take(DOMAINS)?);
        Ok(())
    }

    pub(super) fn alloc_q_counter(&mut self, out: &mut AllocQCounterOut) -> Answer {
        out.set_counter_set_id(self.counter_sets.take(COUNTER_SETS)?);
        Ok(())
    }

    /// Returns the counters of a set. Only those of frames without a buffer and of retransmissions
    /// count.
    pub(super) fn query_q_counter(
        &mut self,
        device: &mut Device,
        input: &QueryQCounterIn,
        out: &mut QueryQCounterOut,
    ) -> Answer {
        let set = input.counter_set_id();
        if set != 0 && !self.counter_sets.used.contains(&set) {
            return Err(Error::NotFound.into());
        }
        let set = set as u8;
        let retries = device.retry_counts_of_set(set);
        out.set_out_of_buffer(device.out_of_buffer(set))
            .set_out_of_sequence(retries.out_of_sequence)
            .set_duplicate_request(retries.duplicate_request)
            .set_rnr_nak_retry_err(retries.rnr_nak_retry_err)
            .set_packet_seq_err(retries.packet_seq_err)
            .set_local_ack_timeout_err(retries.local_ack_timeout_err)
            .set_req_transport_retries_exceeded(retries.req_transport_retries_exceeded);
        if input.clear() {
            device.clear_out_of_buffer(set);
            device.clear_retry_counts(set);
        }
        Ok(())
    }

    pub(super) fn create_uctx(&mut self, input: &[u8], output: &mut [u8]) -> Answer {
        long_enough(input, CREATE_UCTX_IN, output)?;
        let number = self.contexts.take(CONTEXTS)?;
        set_bits(output, UCTX_ID.0, UCTX_ID.1, number.into());
        Ok(())
    }

    pub(super) fn destroy_uctx(&mut self, input: &[u8], output: &mut [u8]) -> Answer {
        long_enough(input, SHORT, output)?;
        self.contexts.give_back(get_bits(input, UCTX_ID.0, UCTX_ID.1) as u32)
    }
}
