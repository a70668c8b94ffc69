//! Tables of the codes of failed requests: what they mean, what to do, and the source of that
//! knowledge. NVIDIA publishes the syndromes only. The meanings of its other codes come from what
//! users of real cards have reported, with the cause that they found.

use mlx5_prm::cqe::Syndrome;

/// A syndrome: the status of libibverbs for it, its usual cause, and what to try.
pub(super) struct Status {
    pub(super) syndrome: Syndrome,
    pub(super) number: u8,
    pub(super) name: &'static str,
    /// Words that every program's text for it contains.
    key: &'static str,
    pub(super) cause: &'static str,
    pub(super) remedy: &'static str,
}

/// A vendor code: the syndromes beside it, its meaning, what to try, and the source.
pub(super) struct Vendor {
    code: u8,
    beside: &'static [Syndrome],
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
    pub(super) source: &'static str,
}

/// A hardware syndrome: the vendor codes beside it, its meaning, and the source.
pub(super) struct Hardware {
    code: u8,
    beside: &'static [u8],
    pub(super) meaning: &'static str,
    pub(super) source: &'static str,
}

/// The row of a syndrome.
pub(super) fn status(syndrome: u8) -> Option<&'static Status> {
    STATUSES.iter().find(|row| row.syndrome as u8 == syndrome)
}

/// The row of a status of libibverbs.
pub(super) fn status_of_number(number: u64) -> Option<&'static Status> {
    STATUSES.iter().find(|row| u64::from(row.number) == number)
}

/// The row of a program's text for a status.
pub(super) fn status_of_text(text: &str) -> Option<&'static Status> {
    let text = text.to_ascii_lowercase();
    STATUSES.iter().find(|row| text.contains(row.key))
}

/// The row of a vendor code beside a syndrome; without one, that of the code alone.
pub(super) fn vendor(code: u8, syndrome: Option<u8>) -> Option<&'static Vendor> {
    let fits = |row: &&Vendor| match syndrome {
        Some(syndrome) => {
            row.beside.is_empty() || row.beside.iter().any(|one| *one as u8 == syndrome)
        }
        None => true,
    };
    VENDORS.iter().filter(|row| row.code == code).find(fits)
}

/// The row of a hardware syndrome beside a vendor code.
pub(super) fn hardware(code: u8, vendor: Option<u8>) -> Option<&'static Hardware> {
    let fits = |row: &&Hardware| vendor.is_some_and(|vendor| row.beside.contains(&vendor));
    HARDWARE.iter().filter(|row| row.code == code).find(fits)
}

/// Measured faults of ConnectX-5 and ConnectX-6 on RoCE.
const STUDY: &str = "github.com/unionxic/rdma-fault-characterization";

macro_rules! statuses {
    ($($syndrome:ident $number:literal $name:literal $key:literal: $cause:literal, $remedy:literal;)*) => {
        static STATUSES: &[Status] = &[$(Status {
            syndrome: Syndrome::$syndrome,
            number: $number,
            name: $name,
            key: $key,
            cause: $cause,
            remedy: $remedy,
        },)*];
    };
}

macro_rules! vendors {
    ($($code:literal [$($syndrome:ident)*]: $meaning:literal, $remedy:expr, $source:expr;)*) => {
        static VENDORS: &[Vendor] = &[$(Vendor {
            code: $code,
            beside: &[$(Syndrome::$syndrome),*],
            meaning: $meaning,
            remedy: $remedy,
            source: $source,
        },)*];
    };
}

macro_rules! hardware {
    ($($code:literal [$($vendor:literal)*]: $meaning:literal, $source:literal;)*) => {
        static HARDWARE: &[Hardware] = &[$(Hardware {
            code: $code,
            beside: &[$($vendor),*],
            meaning: $meaning,
            source: $source,
        },)*];
    };
}

statuses! {
    LocalLength 1 "IBV_WC_LOC_LEN_ERR" "local length":
        "a message and its buffers have different lengths, or a packet is longer than the path MTU",
        "compare the lengths of request and buffer, and the path MTU of both ends";
    LocalQpOperation 2 "IBV_WC_LOC_QP_OP_ERR" "local qp operation":
        "the device refuses the request: its form or its operation does not fit the queue",
        "take the request apart: `mlx5 dump --kind wqe` of its bytes, or `mlx5 trace -- PROGRAM`";
    LocalProtection 4 "IBV_WC_LOC_PROT_ERR" "local protection":
        "a buffer of this side: its key is invalid, of another protection domain, too short or without the right",
        "check lkey, address and length of the request against the memory region, and that it still exists";
    WorkRequestFlushed 5 "IBV_WC_WR_FLUSH_ERR" "flush":
        "no fault of its own: the queue pair was in the error state already",
        "look for the first completion with another error, or for the step that moved the queue pair";
    MemoryWindowBind 6 "IBV_WC_MW_BIND_ERR" "bind":
        "a memory window or key cannot be bound: it is not free, revoked, or has other rights",
        "check that the key exists, is free, and allows binding";
    BadResponse 7 "IBV_WC_BAD_RESP_ERR" "bad response":
        "the peer's answer does not fit the request",
        "compare firmware and settings of both ends; report it if they are alike";
    LocalAccess 8 "IBV_WC_LOC_ACCESS_ERR" "local access":
        "the responder's own memory does not allow what a message needs",
        "check the rights of the memory that receives";
    RemoteInvalidRequest 9 "IBV_WC_REM_INV_REQ_ERR" "invalid request":
        "the peer refuses the operation: its queue pair lacks the right, or the message does not fit it",
        "compare the access rights, the path MTU and the message sizes of both queue pairs";
    RemoteAccess 10 "IBV_WC_REM_ACCESS_ERR" "remote access":
        "the peer's key does not allow the access: unknown, outside its range, or without the right",
        "check rkey, address and length against the peer's memory region, and that it still exists";
    RemoteOperation 11 "IBV_WC_REM_OP_ERR" "remote operation":
        "the peer could not carry out the operation",
        "look at the peer's completions and kernel log at the same time";
    RetryExceeded 12 "IBV_WC_RETRY_EXC_ERR" "transport retry":
        "the peer did not answer",
        "check that the peer's queue pair is in RTR, that addresses, GID index and MTU fit, and the link";
    RnrRetryExceeded 13 "IBV_WC_RNR_RETRY_EXC_ERR" "rnr retry":
        "the peer had no receive posted, each time",
        "post receives before the peer sends, or raise rnr_retry (7 is without end)";
    RemoteAborted 16 "IBV_WC_REM_ABORT_ERR" "abort":
        "the peer gave the operation up",
        "look at the peer's completions and kernel log at the same time";
}

const PEER_TO_PEER: &str = "of GPU memory: switch off access control services (ACS) of the PCIe switches between card and GPU, and check the peer-memory module; else look for PCIe errors in the kernel log";
const OWN_KEY: &str = "check that the lkey is registered, of the queue pair's protection domain, and not yet deregistered";
const OWN_RANGE: &str = "check that address and length of the buffer lie within its memory region";
const FLUSHED: &str = "look for the first completion with another error, or for the step that moved the queue pair to the error state";

vendors! {
    0x11 [LocalQpOperation]: "the receive of a datagram was refused",
        "take the receive apart: `mlx5 dump --kind recv` of its bytes",
        "openucx/ucx issue 6808, one report";
    0x32 [LocalProtection]: "receive: the buffer's key is unknown, of another protection domain or without LOCAL_WRITE",
        OWN_KEY, "openucx/ucx issues 7801 and 9167, lore.kernel.org/netdev/1762238915-1027590-2-git-send-email-tariqt@nvidia.com";
    0x33 [LocalProtection]: "data that arrives lies outside the key's memory, or the key lacks LOCAL_WRITE; for an RDMA READ too",
        "check length and LOCAL_WRITE of the memory that receives", STUDY;
    0x3a []: "responder: the key was gone while the peer used it",
        "keep the memory registered until the peer has finished", STUDY;
    0x3b []: "responder: the access lies outside the key's memory",
        "compare the peer's address and length with the memory region", "linux-rdma/perftest issue 394";
    0x41 []: "the completion queue of this queue pair overran",
        "make the completion queue longer, or poll it more often", "linux-rdma mailing list";
    0x51 [LocalProtection]: "the device could not read the buffer over PCIe",
        PEER_TO_PEER, "openucx/ucx issues 7774 and 9515, linux-rdma/perftest issues 140 and 173, NVIDIA/nccl issue 928";
    0x52 [LocalProtection]: "gather: the key is invalid, or its memory region no longer exists",
        OWN_KEY, "github.com/unionxic/rdma-fault-characterization, openucx/ucx issue 6414, spdk/spdk issue 961";
    0x53 [LocalProtection]: "gather: the buffer lies outside the key's memory",
        OWN_RANGE, "github.com/unionxic/rdma-fault-characterization, Juniper/warp17 issue 81, spdk/spdk issue 500";
    0x56 [LocalProtection]: "an address could not be translated: the IOMMU refused it, or a page of on-demand memory is missing",
        "look for IOMMU faults in the kernel log; keep buffers mapped while requests use them",
        "lore.kernel.org/linux-rdma/4501e9b1-47b4-970d-dfce-325687f64b91@arm.com, openucx/ucx issue 3453";
    0x60 [LocalQpOperation]: "the send of a datagram was refused",
        "take the request apart: `mlx5 dump --kind wqe --transport ud` of its bytes", "openucx/ucx issue 6808, one report";
    0x61 [LocalQpOperation]: "an RDMA WRITE was refused",
        "take the request apart: `mlx5 dump --kind wqe` of its bytes", "openucx/ucx issue 857, one report";
    0x68 [LocalLength]: "an Ethernet send lacks the inline headers that the device demands",
        "put the Ethernet header (18 bytes) into the request itself", "lore.kernel.org/netdev/CAJ8uoz1yFtqO1nx=768Fv2tcWSko9hFALpcPKE74EGLuxbY1Yg@mail.gmail.com, one report (ConnectX-4 Lx)";
    0x68 []: "the request is malformed: stale bytes, or a list that is not aligned",
        "compare the request in the ring with the one that was posted; a UMR list is a multiple of 4 entries of 16 bytes",
        "lore.kernel.org/netdev/20260513064613.334602-1-tariqt@nvidia.com, openucx/ucx issues 1151 and 3618";
    0x78 [MemoryWindowBind]: "UMR or bind on a key that is free, revoked or too small",
        "check that the key still exists and has room for the new translation", "lore.kernel.org/linux-rdma/68a1e007c25b2b8fe5d625f238cc3b63e5341f77.1737290229.git.leon@kernel.org and lore.kernel.org/linux-rdma/3d4be7ca2155bf239dd8c00a2d25974a92c26ab8.1689757344.git.leon@kernel.org";
    0x81 [RetryExceeded]: "the peer did not answer within all retries",
        "check that the peer's queue pair is in RTR, that addresses, GID index and MTU fit, and the link; `mlx5 doctor` on both ends",
        STUDY;
    0x83 [RetryExceeded]: "the peer did not answer; its completion queue may be the cause",
        "check the peer's completion queue", "NVIDIA/nccl issue 2383, one report";
    0x87 [RnrRetryExceeded]: "the peer had no receive posted, each time",
        "post receives before the peer sends, or raise rnr_retry (7 is without end)", STUDY;
    0x88 [RemoteAccess]: "the peer answered that the key does not allow the access",
        "check rkey, address and length against the peer's memory region, and that it still exists", STUDY;
    0x89 [RemoteOperation]: "the peer answered that it could not carry out the operation",
        "look at the peer's kernel log; of GPU memory: check that the peer's card reaches it",
        "openucx/ucx issues 5472 and 10755, NVIDIA/nccl issue 214";
    0x8a [RemoteInvalidRequest]: "the peer answered that the request is invalid: a missing right of its queue pair, another path MTU, a wrong DC key",
        "compare access rights and path MTU of both queue pairs", "github.com/unionxic/rdma-fault-characterization, charmplusplus/charm issue 2532";
    0x8e [LocalLength]: "responder: a packet is longer than the path MTU of this queue pair",
        "set the same path MTU on both ends", "kvcache-ai/Mooncake issue 3299";
    0x93 [RemoteAborted]: "a page of on-demand memory is missing",
        "no error where the memory is paged on demand: the operation goes on after the page fault", "UCX's source, ib_mlx5.h";
    0x99 [RemoteAborted]: "a packet with an unexpected sequence number",
        "look at the counters of the port: packets are lost or come twice", "UCX's source, ib_mlx5.h";
    0xd6 []: "the request is malformed",
        "compare the request in the ring with the one that was posted", "an engineer of NVIDIA, openucx/ucx issue 11444";
    0xda [LocalLength]: "the answer to an RDMA READ has another length; seen with on-demand memory",
        "try it without on-demand paging, and with another firmware", "openucx/ucx issues 2433, 2481 and 2706";
    0xf4 [WorkRequestFlushed]: "a receive was flushed", FLUSHED, "NVIDIA/nccl issues";
    0xf5 [WorkRequestFlushed]: "flushed: the first unfinished request after the move to the error state", FLUSHED, STUDY;
    0xf9 [WorkRequestFlushed]: "flushed: the queue pair was in the error state already", FLUSHED, STUDY;
}

hardware! {
    0x01 [0x51 0x52]: "the PCIe read failed", "linux-rdma/perftest issue 140";
    0x02 [0x51]: "the PCIe read failed", "openucx/ucx issue 9515";
    0x04 [0x51]: "the PCIe read failed", "ofiwg/libfabric issue 6733";
    0x08 [0x78]: "the key is revoked", "lore.kernel.org/linux-rdma/68a1e007c25b2b8fe5d625f238cc3b63e5341f77.1737290229.git.leon@kernel.org";
    0x0f [0x78]: "the key's translation is too small", "lore.kernel.org/linux-rdma/3d4be7ca2155bf239dd8c00a2d25974a92c26ab8.1689757344.git.leon@kernel.org";
    0x60 [0x68]: "an inline header is missing", "lore.kernel.org/netdev/CAJ8uoz1yFtqO1nx=768Fv2tcWSko9hFALpcPKE74EGLuxbY1Yg@mail.gmail.com";
    0x86 [0x68]: "the UMR list is not aligned", "lore.kernel.org/netdev/20221122022559.89459-10-saeed@kernel.org";
    0x92 [0x32 0x52]: "the key is unknown, of another domain or without the right", "openucx/ucx issues 6414, 7801 and 9167";
    0x93 [0x32 0x3a 0x52]: "the key is unknown, of another domain or without the right", "spdk/spdk issue 961, lore.kernel.org/netdev/1762238915-1027590-2-git-send-email-tariqt@nvidia.com";
    0x9d [0x33 0x3b 0x53]: "outside the key's memory", "Juniper/warp17 issue 81, spdk/spdk issue 500";
    0xa9 [0x56]: "the IOMMU refused the address", "lore.kernel.org/linux-rdma/4501e9b1-47b4-970d-dfce-325687f64b91@arm.com";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_syndrome_has_one_status_and_text_and_number_lead_to_it() {
        for syndrome in Syndrome::ALL {
            let row = status(*syndrome as u8).unwrap_or_else(|| panic!("{syndrome:?}"));
            assert!(std::ptr::eq(row, status_of_number(row.number.into()).expect("a row")));
            let own = status_of_text(syndrome.text()).expect("a row");
            assert_eq!(own.syndrome, *syndrome, "{}", syndrome.text());
        }
        let numbers: BTreeSet<u8> = STATUSES.iter().map(|row| row.number).collect();
        assert_eq!(numbers.len(), STATUSES.len());
    }

    #[test]
    fn texts_of_other_programs_lead_to_their_status() {
        for (text, name) in [
            ("Work Request Flushed Error", "IBV_WC_WR_FLUSH_ERR"),
            ("REMOTE ACCESS ERROR", "IBV_WC_REM_ACCESS_ERR"),
            ("transport retry counter exceeded", "IBV_WC_RETRY_EXC_ERR"),
            ("RNR retry counter exceeded", "IBV_WC_RNR_RETRY_EXC_ERR"),
            ("memory bind operation error", "IBV_WC_MW_BIND_ERR"),
            ("remote invalid request error", "IBV_WC_REM_INV_REQ_ERR"),
        ] {
            assert_eq!(status_of_text(text).map(|row| row.name), Some(name), "{text}");
        }
        assert!(status_of_text("unrecognized status").is_none());
    }

    #[test]
    fn one_code_means_one_thing_beside_one_syndrome() {
        for (index, row) in VENDORS.iter().enumerate() {
            let beside = row.beside.first().map(|syndrome| *syndrome as u8);
            let first = vendor(row.code, beside.or(Some(2))).expect("a row");
            assert!(std::ptr::eq(first, row), "{index}: {:#x} is hidden", row.code);
        }
        let length = vendor(0x68, Some(1)).expect("a row").meaning;
        let other = vendor(0x68, Some(2)).expect("a row").meaning;
        assert!(length.contains("inline headers") && other.contains("malformed"), "{other}");
        assert!(vendor(0x51, Some(5)).is_none() && vendor(0x51, None).is_some());
        assert!(hardware(0x92, Some(0x32)).is_some() && hardware(0x92, Some(0x51)).is_none());
    }
}
