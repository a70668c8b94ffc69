//! A kernel that passes calls on to another one, and records them and the addresses of device
//! pages.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5_prm::cmd::qp::QpState;
use mlx5_uapi::ioctl::{IoctlHeader, Method, attr, method};
use mlx5_uapi::mlx5::{CreateFlow, FlowCountersData, FlowCountersDesc, MmapCommand};
use mlx5_uapi::write_cmd::WriteCommand;
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, Mapping, MemoryRequest,
};

use zerocopy::FromBytes;

use crate::event::Call;

/// Attributes that the kernel writes, by the methods whose calls are recorded.
const OUTPUTS: &[(Method, &[u16])] = &[
    (method::INVOKE_WRITE, &[attr::invoke_write::CORE_OUT.0]),
    (
        method::GET_CONTEXT,
        &[attr::get_context::NUM_COMP_VECTORS.0, attr::get_context::CORE_SUPPORT.0],
    ),
    (method::CQ_CREATE, &[attr::create_cq::RESP_CQE.0]),
    (method::QP_CREATE, &[attr::create_qp::RESP_CAP.0, attr::create_qp::RESP_QP_NUM.0]),
    (
        method::SRQ_CREATE,
        &[
            attr::create_srq::RESP_MAX_WR.0,
            attr::create_srq::RESP_MAX_SGE.0,
            attr::create_srq::RESP_SRQ_NUM.0,
        ],
    ),
    (
        method::WQ_CREATE,
        &[
            attr::create_wq::RESP_MAX_WR.0,
            attr::create_wq::RESP_MAX_SGE.0,
            attr::create_wq::RESP_WQ_NUM.0,
        ],
    ),
    (method::WQ_DESTROY, &[attr::destroy_wq::RESP.0]),
    (method::QP_DESTROY, &[attr::destroy_qp::RESP.0]),
    (method::RWQ_IND_TBL_DESTROY, &[]),
    (method::COUNTERS_CREATE, &[]),
    (method::COUNTERS_DESTROY, &[]),
    (method::FLOW_DESTROY, &[]),
];

/// The attribute under which the memory that a call's inputs point to is recorded.
pub(crate) const POINTED: u16 = 0xfff0;

#[derive(Default)]
struct Seen {
    calls: Vec<Call>,
    /// The page number of each mmap offset. `pages` has the address of each page.
    offsets: HashMap<u64, u32>,
    pages: HashMap<u32, usize>,
    /// Address of the clock page, which relates the device's clock to the system's.
    clock: Option<usize>,
    /// The block at which the firmware shall report a send queue as drained.
    drained: Option<u16>,
    /// Number of questions to the firmware since `drained` was set.
    questions: u32,
    /// Runs before the next question is answered.
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

/// The calls and pages seen so far.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

impl Watch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same kernel, watched.
    pub(crate) fn kernel(&self, kernel: Arc<dyn Kernel>) -> Arc<dyn Kernel> {
        Arc::new(Watched { kernel, watch: self.clone() })
    }

    /// Takes the calls since the last time.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.seen().calls)
    }

    /// From now on the firmware reports every send queue as drained, at this block.
    pub(crate) fn drain(&self, block: u16) {
        self.seen().drained = Some(block);
    }

    /// Number of questions to the firmware since [`Watch::drain`].
    pub(crate) fn questions(&self) -> u32 {
        self.seen().questions
    }

    /// Runs `run` before the next question is answered.
    pub(crate) fn meanwhile(&self, run: impl FnOnce() + Send + 'static) {
        self.seen().meanwhile = Some(Box::new(run));
    }

    /// Address of the clock page, once it is mapped.
    pub(crate) fn clock_page(&self) -> Option<usize> {
        self.seen().clock
    }

    /// Address of a UAR page.
    pub(crate) fn page(&self, number: u32) -> Option<usize> {
        self.seen().pages.get(&number).copied()
    }
}

struct Watched {
    kernel: Arc<dyn Kernel>,
    watch: Watch,
}

impl Kernel for Watched {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.kernel.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        let file = self.kernel.open(node, dev)?;
        Ok(Arc::new(WatchedFile { file, watch: self.watch.clone() }))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.kernel.rdma_cm()
    }
}

struct WatchedFile {
    file: Arc<dyn DeviceFile>,
    watch: Watch,
}

/// # Safety
/// The header is a valid request, as [`DeviceFile::ioctl`] demands.
unsafe fn inputs(header: *mut IoctlHeader) -> Option<Call> {
    // SAFETY: the caller promises a valid header, followed by its attributes.
    let (method, attributes) = unsafe { (Method::of(&*header), &*IoctlHeader::attributes(header)) };
    let (_, outputs) = OUTPUTS.iter().find(|(own, _)| *own == method)?;
    let mut call = Call { object: method.object, method: method.id, ..Call::default() };
    for attribute in attributes {
        let (id, length) = (attribute.attr_id, usize::from(attribute.len));
        if id == attr::uhw::OUT.0 || outputs.contains(&id) || length == 0 {
            continue;
        }
        let bytes = match attribute.data.to_ne_bytes().get(..length) {
            Some(inline) => inline.to_vec(),
            None => {
                let from = std::ptr::with_exposed_provenance::<u8>(attribute.data as usize);
                // SAFETY: the caller promises a valid request, whose inputs are readable for their
                // lengths.
                unsafe { std::slice::from_raw_parts(from, length) }.to_vec()
            }
        };
        call.inputs.insert(id, bytes);
    }
    // SAFETY: the caller promises a valid request, so the memory that an input points to is
    // readable.
    if let Some(counted) = unsafe { counted(&call) } {
        call.inputs.insert(POINTED, counted);
    }
    Some(call)
}

/// The descriptions of a rule's counters, if the call has some.
///
/// # Safety
/// The inputs are those of a valid call to the kernel.
unsafe fn counted(call: &Call) -> Option<Vec<u8>> {
    let command = call.inputs.get(&attr::invoke_write::WRITE_CMD.0)?.first_chunk()?;
    if u32::from_ne_bytes(*command) != WriteCommand::CREATE_FLOW_EX.0 {
        return None;
    }
    let driver = call.inputs.get(&attr::uhw::IN.0)?;
    let data = FlowCountersData::read_from_prefix(driver.get(size_of::<CreateFlow>()..)?).ok()?.0;
    let from = std::ptr::with_exposed_provenance::<u8>(data.counters_data as usize);
    let length = data.ncounters as usize * size_of::<FlowCountersDesc>();
    // SAFETY: the caller promises valid inputs: `counters_data` points to `ncounters` descriptions.
    Some(unsafe { std::slice::from_raw_parts(from, length) }.to_vec())
}

/// # Safety
/// The header is of a UAR_ALLOC that was answered.
unsafe fn allocated(header: *mut IoctlHeader) -> Option<(u64, u32)> {
    use attr::uar_alloc as id;
    // SAFETY: the caller promises a valid header, followed by its attributes.
    let attributes = unsafe { &*IoctlHeader::attributes(header) };
    let output = |wanted: u16| {
        let found = attributes.iter().find(|attribute| attribute.attr_id == wanted)?;
        Some(std::ptr::with_exposed_provenance::<u8>(found.data as usize))
    };
    let (offset, page) = (output(id::MMAP_OFFSET.0)?, output(id::PAGE_ID.0)?);
    // SAFETY: the caller promises an answered call, so both outputs point to values that the kernel
    // wrote, of eight and of four bytes.
    Some(unsafe { (offset.cast::<u64>().read_unaligned(), page.cast::<u32>().read_unaligned()) })
}

/// Changes the answer to QUERY_QP, so that the send queue is drained at `block`.
///
/// # Safety
/// The header is of a DEVX_OBJ_QUERY that was answered, of a queue pair.
unsafe fn report_drained(header: *mut IoctlHeader, block: u16) {
    use attr::devx_obj_query as id;
    /// Offsets of the state and of `hw_sq_wqebb_counter` in the answer.
    const STATE: usize = 0x18;
    const COUNTER: usize = STATE + 0xb4;
    // SAFETY: the caller promises a valid header, followed by its attributes.
    let attributes = unsafe { &*IoctlHeader::attributes(header) };
    for attribute in attributes.iter().filter(|attribute| attribute.attr_id == id::CMD_OUT.0) {
        let out = std::ptr::with_exposed_provenance_mut::<u8>(attribute.data as usize);
        // SAFETY: the caller promises an answered query of a queue pair, whose output is longer
        // than `COUNTER + 2` bytes.
        unsafe {
            let state = out.add(STATE);
            state.write(state.read() & 0xf | (QpState::SQD.0 as u8) << 4);
            out.add(COUNTER).cast::<[u8; 2]>().write(block.to_be_bytes());
        }
    }
}

impl DeviceFile for WatchedFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller promises a valid header, as `DeviceFile::ioctl` demands.
        let (call, method) = unsafe { (inputs(header), Method::of(&*header)) };
        self.watch.seen().calls.extend(call);
        // SAFETY: the caller's promise for `ioctl` holds for the inner file.
        unsafe { self.file.ioctl(header) }?;
        if method == method::UAR_ALLOC
            // SAFETY: the kernel has answered this UAR_ALLOC.
            && let Some((offset, page)) = unsafe { allocated(header) }
        {
            self.watch.seen().offsets.insert(offset, page);
        }
        if method == method::DEVX_OBJ_QUERY {
            let (block, meanwhile) = {
                let mut seen = self.watch.seen();
                seen.questions += u32::from(seen.drained.is_some());
                (seen.drained, seen.meanwhile.take())
            };
            if let Some(run) = meanwhile {
                run();
            }
            if let Some(block) = block {
                // SAFETY: the kernel has answered this query, and the driver queries only queue
                // pairs while `drained` is set.
                unsafe { report_drained(header, block) };
            }
        }
        Ok(())
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        let mapping = self.file.map(offset, len, access)?;
        let mut seen = self.watch.seen();
        if offset == MmapCommand::ClockInfo.offset(0, len) {
            seen.clock = Some(mapping.as_ptr().expose_provenance());
        }
        if let Some(page) = seen.offsets.get(&offset).copied() {
            seen.pages.insert(page, mapping.as_ptr().expose_provenance());
        }
        Ok(mapping)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.file.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the caller's promise for `event_file` holds for the inner file.
        unsafe { self.file.event_file(fd) }
    }
}
