//! The receiving side of an extended connection.

use super::attributes::{QpAttributes, QpInfo};
use super::endpoint::{ConnectOptions, Endpoint, LocalPort, to_init, to_rtr, to_rts};
use super::{Psn, QpNumber, transitions};
use crate::context::{Context, Inner};
use crate::error::{DestroyError, Error, ErrorKind};
use crate::link::QpId;
use crate::srq::XrcDomain;
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::{CreateQp, ModifyQp};
use mlx5_uapi::verbs::{QpAttrMask, QpCap, QpCreateFlags, QpType};
use mlx5_wqe::QueueState;
use std::{fmt, sync::Arc};

/// The user index for objects without completions.
const NO_USER_INDEX: u32 = 0xff_ffff;

/// An XRC target queue pair, the peer of an [`XrcSend`](crate::transport::XrcSend) queue pair. It
/// neither posts nor polls. Messages go to the shared receive queue of its domain that they name.
///
/// ```no_run
/// # use mlx5::{CompletionQueue, ConnectOptions, Context, Endpoint, LocalPort, ProtectionDomain};
/// # use mlx5::Psn;
/// # fn f(context: &Context, pd: &ProtectionDomain, cq: &CompletionQueue, port: &LocalPort,
/// #     sender: &Endpoint)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let domain = context.open_xrcd()?;
/// let srq = pd.create_srq(64).xrc(&domain, cq).build()?;
/// let mut target = domain.create_target()?;
/// let (psn, options) = (Psn::default(), ConnectOptions::default());
/// println!("connect to {}, send to {:#x}", target.endpoint(port, psn, &options), srq.srqn());
/// target.connect(port, psn, sender, &options)?;
/// # Ok(())
/// # }
/// ```
pub struct XrcTarget {
    domain: XrcDomain,
    handle: u32,
    qp_num: u32,
    id: u64,
    state: QueueState,
    /// Whether the kernel object exists.
    live: bool,
}

impl XrcDomain {
    /// Creates a target queue pair, in state RESET.
    pub fn create_target(&self) -> Result<XrcTarget, Error> {
        const VERB: &str = "create_qp";
        let context = &self.domain.context;
        context.check(VERB)?;
        let id = context.next_handle_id();
        let request = command::CreateQp {
            qp_type: QpType::XrcTgt,
            pd: None,
            xrcd: Some(self.domain.handle),
            send_cq: None,
            recv_cq: None,
            srq: None,
            user_handle: id,
            cap: QpCap::default(),
            flags: QpCreateFlags::empty(),
            source_qpn: None,
            async_events: Some(context.async_fd()),
            driver: CreateQp { uidx: NO_USER_INDEX, ..CreateQp::default() },
        };
        // SAFETY: the request names no queue and no record.
        let made = context.run(VERB, |file| unsafe { command::create(file, &request) })?;
        Ok(XrcTarget {
            domain: self.clone(),
            handle: made.handle,
            qp_num: made.qp_num,
            id,
            state: QueueState::Reset,
            live: true,
        })
    }

    /// Opens a target queue pair of the domain by its number (`ibv_open_qp`), also one that another
    /// process created. The queue pair exists until every process that opened it has destroyed it.
    ///
    /// ```no_run
    /// # use mlx5::{Error, QpNumber, XrcDomain};
    /// # fn f(domain: &XrcDomain, number: QpNumber) -> Result<(), Error> {
    /// let target = domain.open_target(number)?;
    /// println!("{:#x} is in state {:?}", target.qp_num(), target.state());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_target(&self, number: QpNumber) -> Result<XrcTarget, Error> {
        const VERB: &str = "open_qp";
        let context = &self.domain.context;
        let id = context.next_handle_id();
        let (handle, qp_num) =
            context.run(VERB, |file| command::open(file, self.domain.handle, number.get(), id))?;
        let mut target = XrcTarget {
            domain: self.clone(),
            handle,
            qp_num,
            id,
            state: QueueState::Reset,
            live: true,
        };
        target.state = target.query()?.qp_state;
        Ok(target)
    }
}

impl XrcTarget {
    fn inner(&self) -> &Arc<Inner> {
        &self.domain.domain.context
    }

    /// Returns the number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> u32 {
        self.handle
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> QpId {
        QpId(self.id)
    }

    /// Returns the XRC domain.
    pub fn domain(&self) -> &XrcDomain {
        &self.domain
    }

    /// Returns the state that was last set or found here. Another handle of the queue pair
    /// ([`XrcDomain::open_target`]) may have changed it since; [`query`](Self::query) asks the
    /// kernel.
    pub fn state(&self) -> QueueState {
        self.state
    }

    /// Changes state and attributes (`ibv_modify_qp`), after checking them against the table of
    /// transitions.
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<(), Error> {
        const VERB: &str = "modify_qp";
        self.inner().check(VERB)?;
        let check = |state| transitions::check_attributes(QpType::XrcTgt, state, attributes);
        let to = match check(self.state) {
            Ok(to) => to,
            // Another handle may have changed the state.
            Err(_) => {
                self.state = self.query()?.qp_state;
                check(self.state).map_err(|error| Error::invalid(VERB, error.to_string()))?
            }
        };
        let request = attributes.encode(self.handle);
        self.inner().run(VERB, |file| {
            if attributes.is_extended() {
                command::modify_ex(file, &request, &ModifyQp::default()).map(drop)
            } else {
                command::modify(file, &request.base)
            }
        })?;
        self.state = to;
        Ok(())
    }

    /// Queries the kernel (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpInfo, Error> {
        const VERB: &str = "query_qp";
        self.inner().check(VERB)?;
        let handle = self.handle;
        let answer =
            self.inner().run(VERB, |file| command::query(file, handle, QpAttrMask::all()))?;
        QpInfo::decode(&answer)
            .map_err(|error| Error::new(VERB, ErrorKind::Kernel, error.to_string()))
    }

    /// Returns the address and numbers that the sending side needs to reach this queue pair.
    pub fn endpoint(&self, port: &LocalPort, psn: Psn, options: &ConnectOptions) -> Endpoint {
        let context = Context { inner: Arc::clone(self.inner()) };
        let number = QpNumber::new(self.qp_num & 0xff_ffff).unwrap_or_default();
        port.endpoint(QpType::XrcTgt, number, psn, &context.clamp(QpType::XrcTgt, options))
    }

    /// Connects the queue pair to `remote` and brings it to RTS, from RESET or INIT.
    pub fn connect(
        &mut self,
        port: &LocalPort,
        psn: Psn,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let context = Context { inner: Arc::clone(self.inner()) };
        let options = context.clamp(QpType::XrcTgt, options);
        let ready = to_rtr(QpType::XrcTgt, port, remote, &options)
            .map_err(|error| Error::invalid("connect", error.to_string()))?;
        if self.state == QueueState::Reset {
            self.modify(&to_init(QpType::XrcTgt, port, &options))?;
        }
        self.modify(&ready)?;
        self.modify(&to_rts(QpType::XrcTgt, psn, remote, &options))
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.live {
            let handle = self.handle;
            self.inner()
                .run_destroy("destroy_qp", |file| command::destroy(file, handle).map(drop))?;
            self.live = false;
        }
        Ok(())
    }

    /// Destroys the queue pair (`ibv_destroy_qp`). If the kernel refuses, the error returns the
    /// queue pair.
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        self.end().map_err(|error| DestroyError::new(self, error))
    }
}

impl Drop for XrcTarget {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel destroys it when the file is closed.
        let _ = self.end();
    }
}

impl fmt::Debug for XrcTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcTarget")
            .field("qp_num", &format_args!("{:#x}", self.qp_num))
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
