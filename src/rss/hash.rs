//! Queue pairs that spread packets over a table by a hash.

use super::IndirectionTable;
use super::table::TableInner;
use crate::context::{Context, Inner};
use crate::error::{DestroyError, Error, ErrorKind, RAW_PACKETS};
use crate::link::QpId;
use crate::memory::ProtectionDomain;
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::{CreateQpRss, QpFlags, RxHashFields, RxHashFunctions};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The key of a Toeplitz hash, 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HashKey(pub [u8; 40]);

/// The key of the published test vectors (Microsoft, "Verifying the RSS Hash Calculation").
impl Default for HashKey {
    fn default() -> Self {
        Self([
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ])
    }
}

/// The options of a new hash queue pair. See [`ProtectionDomain::create_hash_qp`].
#[must_use = "a builder makes nothing until `build` is called"]
#[derive(Debug)]
pub struct HashQueuePairBuilder<'a> {
    pd: &'a ProtectionDomain,
    table: &'a IndirectionTable,
    fields: RxHashFields,
    key: HashKey,
    flags: QpFlags,
}

impl ProtectionDomain {
    /// Starts building a queue pair without queues, which spreads the packets of its flow rules
    /// over the work queues of `table`. It needs CAP_NET_RAW.
    pub fn create_hash_qp<'a>(&'a self, table: &'a IndirectionTable) -> HashQueuePairBuilder<'a> {
        HashQueuePairBuilder {
            pd: self,
            table,
            fields: RxHashFields::empty(),
            key: HashKey::default(),
            flags: QpFlags::empty(),
        }
    }
}

/// Pairs of headers of which a hash can cover only one.
const EXCLUSIVE: [(RxHashFields, RxHashFields, &str); 2] = [
    (
        RxHashFields::SRC_IPV4.union(RxHashFields::DST_IPV4),
        RxHashFields::SRC_IPV6.union(RxHashFields::DST_IPV6),
        "IPv4 or IPv6, not both",
    ),
    (
        RxHashFields::SRC_PORT_TCP.union(RxHashFields::DST_PORT_TCP),
        RxHashFields::SRC_PORT_UDP.union(RxHashFields::DST_PORT_UDP),
        "TCP or UDP, not both",
    ),
];

impl HashQueuePairBuilder<'_> {
    /// The header fields that are hashed: of IPv4 or IPv6, and of TCP or UDP. Default: none, for a
    /// table of one entry. `build` refuses other combinations, and fields that the device cannot
    /// hash.
    pub fn fields(mut self, fields: RxHashFields) -> Self {
        self.fields = fields;
        self
    }

    /// The key of the Toeplitz hash. Default: [`HashKey::default`].
    pub fn key(mut self, key: HashKey) -> Self {
        self.key = key;
        self
    }

    /// Computes checksums, and the hash if [`RxHashFields::INNER`] is among its fields, over the
    /// inner headers of tunneled packets. Default: false.
    pub fn tunnel_offloads(mut self, inner: bool) -> Self {
        self.flags.set(QpFlags::TUNNEL_OFFLOADS, inner);
        self
    }

    /// Receives packets that this process sends to its own port: unicast, multicast. Default:
    /// neither.
    pub fn self_loopback(mut self, unicast: bool, multicast: bool) -> Self {
        self.flags.set(QpFlags::TIR_ALLOW_SELF_LB_UC, unicast);
        self.flags.set(QpFlags::TIR_ALLOW_SELF_LB_MC, multicast);
        self
    }

    fn check(&self) -> Result<(), Error> {
        let refused = |what: &str| Err(Error::invalid(CREATE, what.into()));
        if !Arc::ptr_eq(&self.table.inner.context, &self.pd.context) {
            return refused("table and protection domain belong to different contexts");
        }
        for (these, those, what) in EXCLUSIVE {
            if self.fields.intersects(these) && self.fields.intersects(those) {
                return refused(&format!("a hash covers {what}"));
            }
        }
        let hashed = self.fields.difference(RxHashFields::INNER);
        if hashed.is_empty() && self.table.len() != 1 {
            return refused("a hash over no field needs a table of one entry");
        }
        if self.fields.contains(RxHashFields::INNER)
            && !self.flags.contains(QpFlags::TUNNEL_OFFLOADS)
        {
            return refused("a hash over inner headers needs `tunnel_offloads`");
        }
        let caps = Context { inner: Arc::clone(&self.pd.context) }.query_device().ethernet;
        let lacks = |cause| Err(Error::new(CREATE, ErrorKind::NotSupported, cause));
        if !caps.hash_functions.contains(RxHashFunctions::TOEPLITZ) {
            return lacks(format!("{RAW_PACKETS}: the device computes no Toeplitz hash"));
        }
        let missing = self.fields.difference(caps.hash_fields);
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter_names().map(|(name, _)| name).collect();
            return lacks(format!(
                "the device does not hash {}: choose other `fields`",
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// Creates the queue pair. It receives immediately: it has no states.
    pub fn build(self) -> Result<HashQueuePair, Error> {
        let context = &self.pd.context;
        context.check(CREATE)?;
        self.check()?;
        let id = context.next_handle_id();
        let mut key = [0; 128];
        key[..self.key.0.len()].copy_from_slice(&self.key.0);
        let request = command::CreateHashQp {
            pd: self.pd.handle(),
            ind_table: self.table.inner.live(CREATE)?,
            user_handle: id,
            async_events: Some(context.async_fd()),
            driver: CreateQpRss {
                rx_hash_fields_mask: self.fields.bits(),
                rx_hash_function: RxHashFunctions::TOEPLITZ.bits(),
                rx_key_len: self.key.0.len() as u8,
                rx_hash_key: key,
                flags: self.flags.bits(),
                ..CreateQpRss::default()
            },
        };
        let made = context.run(CREATE, |file| command::create_hash(file, &request));
        let made = made.map_err(|error| error.asked_for(RAW_PACKETS))?;
        let inner = HashInner {
            context: Arc::clone(context),
            handle: Mutex::new(Some(made.handle)),
            id,
            table: Arc::clone(&self.table.inner),
            _pd: self.pd.clone(),
        };
        Ok(HashQueuePair { inner: Arc::new(inner) })
    }
}

const CREATE: &str = "create_qp";

/// The part of a hash queue pair that its flow rules keep alive.
pub(crate) struct HashInner {
    pub(crate) context: Arc<Inner>,
    handle: Mutex<Option<u32>>,
    id: u64,
    table: Arc<TableInner>,
    _pd: ProtectionDomain,
}

impl HashInner {
    /// Returns the kernel's handle, for a call.
    pub(crate) fn live(&self, verb: &'static str) -> Result<u32, Error> {
        let handle = *self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.ok_or_else(|| Error::invalid(verb, "the queue pair was destroyed".into()))
    }

    fn destroy(&self) -> Result<(), Error> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = *handle {
            self.context
                .run_destroy("destroy_qp", |file| command::destroy(file, live).map(drop))?;
            *handle = None;
        }
        Ok(())
    }
}

impl Drop for HashInner {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel destroys it when the file is closed.
        let _ = self.destroy();
    }
}

/// A queue pair without queues: it spreads the packets of its flow rules over the work queues of a
/// table, by a hash of their headers. It sends nothing, and has no number and no states.
pub struct HashQueuePair {
    pub(crate) inner: Arc<HashInner>,
}

impl fmt::Debug for HashQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashQueuePair")
            .field("table", &IndirectionTable { inner: Arc::clone(&self.inner.table) })
            .finish_non_exhaustive()
    }
}

impl HashQueuePair {
    /// Returns the identifier that events use.
    pub fn id(&self) -> QpId {
        QpId(self.inner.id)
    }

    /// Returns the table.
    pub fn table(&self) -> IndirectionTable {
        IndirectionTable { inner: Arc::clone(&self.inner.table) }
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless it was
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.live(CREATE).ok()
    }

    /// Destroys the queue pair (`ibv_destroy_qp`). If the kernel refuses, because flow rules use
    /// it, the error returns the queue pair.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        match self.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}
