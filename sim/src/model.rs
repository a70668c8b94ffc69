//! The simulated models and their capabilities.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::link::{LinkLayer, PortConfig};

/// The device that is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// ConnectX-5 (MT27800).
    ConnectX5,
    /// ConnectX-6 (MT28908).
    ConnectX6,
    /// ConnectX-6 Dx (MT2892).
    ConnectX6Dx,
    /// ConnectX-7 (MT2910).
    ConnectX7,
}

/// Capabilities that differ between models. All models have compact address vectors, all atomic
/// operations with and without masks, relaxed ordering, and compressed completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// InfiniBand ports, besides Ethernet.
    pub infiniband: bool,
    /// Lists of tags.
    pub tag_matching: bool,
    /// Signature errors name domain and kind (`sigerr_domain_and_sig_type`): without that a driver
    /// in user space offers no keys with signed blocks. A kernel's T10-DIF needs `sho` alone, which
    /// every model has.
    pub block_signatures: bool,
    /// Signatures of CRC-32C.
    pub crc32c: bool,
    /// Signatures of CRC-64/XP10.
    pub crc64_xp10: bool,
    /// Signed blocks of 4048 bytes.
    pub block_4048: bool,
    /// Send queues that drain on signature errors.
    pub drain_sigerr: bool,
    /// A queue pair says whether it places the data of a request in order (`qp_data_in_order`).
    pub data_in_order: bool,
    /// Completions with real-time timestamps.
    pub real_time: bool,
    /// Receives with strides may have 8 of them, and not 512 at least (`ext_stride_num_range`).
    pub few_strides: bool,
    /// Base-two logarithm of the least bytes of a receive with strides (`log_min_stride_wqe_sz`);
    /// zero if the device does not report it.
    pub log_striding_bytes: u8,
    /// Base-two logarithm of the queue pairs.
    pub log_qps: u8,
    /// Lists of tags on Ethernet ports.
    pub ethernet_tags: bool,
    /// Frequency of the device's clock in kHz.
    pub clock_khz: u32,
    /// The fastest lane, as a port's `active_speed` has it.
    pub lane: u8,
}

/// One model a line.
macro_rules! models {
    ($($model:ident: $key:literal, $name:literal, $pci:literal, $board:literal, $firmware:expr;)*) => {
        impl Model {
            /// Every model.
            pub const ALL: [Self; 4] = [$(Self::$model),*];

            /// Its name in commands and settings.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$model => $key,)* }
            }

            /// Its product name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$model => $name,)* }
            }

            /// Its PCI device id; the vendor is 0x15b3.
            pub const fn pci_device_id(self) -> u16 {
                match self { $(Self::$model => $pci,)* }
            }

            /// Its board id, as sysfs shows it.
            pub const fn board_id(self) -> &'static str {
                match self { $(Self::$model => $board,)* }
            }

            /// Its firmware's version: major, minor, sub-minor.
            pub const fn firmware_version(self) -> [u16; 3] {
                match self { $(Self::$model => $firmware,)* }
            }
        }
    };
}

models! {
    ConnectX5: "cx5", "ConnectX-5", 0x1017, "MT_0000000008", [16, 35, 4030];
    ConnectX6: "cx6", "ConnectX-6", 0x101b, "MT_0000000223", [20, 43, 2026];
    ConnectX6Dx: "cx6dx", "ConnectX-6 Dx", 0x101d, "MT_0000000359", [22, 43, 2026];
    ConnectX7: "cx7", "ConnectX-7", 0x1021, "MT_0000000838", [28, 43, 2026];
}

/// One capability a line, with a value for each model, in the order of [`Model::ALL`].
macro_rules! capabilities {
    ($($name:ident: $cx5:expr, $cx6:expr, $cx6dx:expr, $cx7:expr;)*) => {
        const CAPABILITIES: [Capabilities; 4] = [
            Capabilities { $($name: $cx5),* },
            Capabilities { $($name: $cx6),* },
            Capabilities { $($name: $cx6dx),* },
            Capabilities { $($name: $cx7),* },
        ];
    };
}

const Y: bool = true;
const N: bool = false;

// If no public source names the models, the line says so. A feature is then given to the models
// that came out after its publication, because a device that offers less makes the more cautious
// test.
capabilities! {
    // name               CX-5 CX-6 6 Dx CX-7
    //
    // NVIDIA, "Linux Kernel Upstream Release Notes v5.17", table of NICs: 6 Dx is Ethernet only.
    // docs.nvidia.com/networking/display/kernelupstreamv517
    infiniband:           Y,   Y,   N,   Y;
    // "ConnectX-5 Ex user manual", rev. 1.5, section 1.2: "Tag Matching and Rendezvous Offloads",
    // and the InfiniBand adapters after it. Nothing names the Ethernet adapter 6 Dx.
    tag_matching:         Y,   Y,   N,   Y;
    // The same manual names "T10-DIF Signature Handover" for CX-5: that is `sho`. The interface of
    // user space is of May 2021 (rdma-core, pull request 1005, commit 6d2f88dd2), and wants
    // `sigerr_domain_and_sig_type` besides; no source names the models.
    block_signatures:     N,   Y,   Y,   Y;
    // Bits of `mlx5_ifc_cmd_hca_cap_bits` that the same commit made known. A CX-5 has neither kind
    // of CRC, an engineer of the vendor says (`caps-cx5-sig` in tests/silicon/records), and a 6 Dx
    // makes CRC-32C (`sig-crc32c-cx6dx`); no source names the others.
    crc32c:               N,   N,   Y,   Y;
    crc64_xp10:           N,   N,   N,   Y;
    block_4048:           N,   N,   N,   Y;
    // A 6 Dx says so (QUERY_HCA_CAP, `mlx5ctl-caps` in tests/silicon/records). Linux 5.13, "Add
    // support of SQD2RTS" for rdma-core's signature pipelining; no source names the others.
    drain_sigerr:         N,   N,   Y,   Y;
    // rdma-core, "mlx5: Implement ibv_query_qp_data_in_order", June 2021; no source names models.
    data_in_order:        N,   N,   N,   Y;
    // DPDK, doc/guides/nics/mlx5.rst, "REAL_TIME_CLOCK_ENABLE", and its example for mt4125, a 6 Dx.
    real_time:            N,   N,   Y,   Y;
    // Linux 5.7, `ext_stride_num_range`; no source names the models.
    few_strides:          N,   N,   N,   Y;
    // DPDK 21.11, which takes 16 KiB if the field is zero. No source names the models or a value:
    // this is that of the fewest and smallest strides.
    log_striding_bytes:   0,   0,   0,   9;
    // `ibv_devinfo -v` of a CX-5 (part 4119) in open-mpi/ompi pull request 6137: max_qp 262144; of
    // a 6 Lx in openucx/ucx issue 10317: 131072.
    log_qps:              18,  17,  17,  17;
    // `tag matching not supported` in `ibv_devinfo -v` of Ethernet ports: a CX-5, a 6 Dx (and a
    // bond of unknown model, `devinfo-ucx-10430`). No record shows the others.
    ethernet_tags:        N,   N,   N,   Y;
    // `hca_core_clock`: CX-5 and 6 156,250 (`devinfo-ucx-4770`, `devinfo-ucx-8139`), 6 Dx
    // 1,000,000 (`mlx5ctl-caps`); a CX-5 Ex, which is not here, has 78,125.
    clock_khz:            156_250, 156_250, 1_000_000, 1_000_000;
    // Data sheets: a CX-5 has 100 Gb/s (4 lanes of EDR), later ones 200 (HDR) or more.
    lane:                 32,  64,  64,  64;
}

impl Model {
    /// Its capabilities.
    pub const fn capabilities(self) -> Capabilities {
        CAPABILITIES[self as usize]
    }

    /// Its port by default.
    pub const fn port(self) -> PortConfig {
        if self.capabilities().infiniband { PortConfig::INFINIBAND } else { PortConfig::ROCE }
    }

    /// Whether the model exists with such ports.
    pub const fn has(self, link: LinkLayer) -> bool {
        matches!(link, LinkLayer::Ethernet) || self.capabilities().infiniband
    }

    /// The names in settings and commands, separated by commas.
    #[must_use]
    pub fn keys() -> String {
        Self::ALL.map(Self::key).join(", ")
    }
}

/// A name that no model has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownModel {
    name: String,
}

impl fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no model \"{}\"; there are {}", self.name, Model::keys())
    }
}

impl Error for UnknownModel {}

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let found = Self::ALL.into_iter().find(|model| model.key() == name);
        found.ok_or_else(|| UnknownModel { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_one_name_and_a_wrong_one_tells_them() {
        for model in Model::ALL {
            assert_eq!(model.key().parse(), Ok(model));
        }
        let error = "connectx7".parse::<Model>().expect_err("its name is cx7");
        assert!(error.to_string().ends_with("cx5, cx6, cx6dx, cx7"), "{error}");
    }

    /// A later model lacks nothing except features of the other kind of network.
    #[test]
    fn signatures_come_one_after_another() {
        let signatures = |model: Model| {
            let has = model.capabilities();
            [has.block_signatures, has.crc32c, has.drain_sigerr, has.crc64_xp10, has.block_4048]
        };
        for pair in Model::ALL.windows(2) {
            let earlier = signatures(pair[0]).into_iter().zip(signatures(pair[1]));
            assert!(earlier.into_iter().all(|(earlier, later)| later || !earlier), "{pair:?}");
        }
    }
}
