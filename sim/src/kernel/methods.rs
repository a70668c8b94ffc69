//! The methods of the device file, with their attributes and handlers.

use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::{AttrId, DRIVER_NAMESPACE, Method, attr, method, object};

use crate::kernel::decode::{ANY_LENGTH, DRIVER, Request, Shape, Spec};
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::{
    context, cq, devx, devx_files, dm, flow, mr, pacing, qp, query, simple, srq, uar, wq, write,
};

type Handler = fn(&OpenFile, &mut State, &mut Request<'_>) -> Result<(), Errno>;

/// The action of a method.
enum Work {
    /// Calls a handler.
    Call(Handler),
    /// Ends the object of the first attribute. The second attribute, if there is one, gets the
    /// number of the object's events that were read.
    Destroy,
}

struct Entry {
    method: Method,
    specs: &'static [Spec],
    /// Takes the driver's request and response.
    driver: bool,
    work: Work,
}

const fn entry(method: Method, specs: &'static [Spec], handler: Handler) -> Entry {
    Entry { method, specs, driver: false, work: Work::Call(handler) }
}

const fn with_driver(method: Method, specs: &'static [Spec], handler: Handler) -> Entry {
    Entry { method, specs, driver: true, work: Work::Call(handler) }
}

const fn destructor(method: Method, specs: &'static [Spec]) -> Entry {
    Entry { method, specs, driver: false, work: Work::Destroy }
}

impl Entry {
    /// Whether the device and the machine support the method.
    fn is_offered(&self, hca: &Hca) -> bool {
        match self.method {
            Method { object: object::PP, .. } => pacing::is_offered(hca),
            method::DEVX_ASYNC_EVENT_FD_ALLOC => hca.has_devx_events(),
            _ => true,
        }
    }

    /// Whether the core executes it without the driver and the device: on a device that is gone,
    /// the objects have ended and the call frees their handles.
    fn outlives_the_device(&self) -> bool {
        matches!(self.work, Work::Destroy) && self.method.id < DRIVER_NAMESPACE
    }
}

const fn must(id: AttrId, shape: Shape) -> Spec {
    Spec::new(id, shape)
}

const fn may(id: AttrId, shape: Shape) -> Spec {
    Spec::optional(id, shape)
}

const U16: Shape = Shape::Out(2, 2);
const U32_IN: Shape = Shape::In(4, 4);
const U32_OUT: Shape = Shape::Out(4, 4);
const U64_IN: Shape = Shape::In(8, 8);
const U64_OUT: Shape = Shape::Out(8, 8);
/// Flags may have four bytes or eight.
const FLAGS: Shape = Shape::In(4, 8);
/// The most bytes of match parameters.
const MATCHED: usize = 640;
/// A command of the firmware begins with 16 bytes, in and out.
const COMMAND_IN: Shape = Shape::In(16, ANY_LENGTH);
const COMMAND_OUT: Shape = Shape::Out(16, ANY_LENGTH);

#[rustfmt::skip]
static METHODS: &[Entry] = &[
    with_driver(method::INVOKE_WRITE, &[
        may(attr::invoke_write::CORE_IN, Shape::In(4, ANY_LENGTH)),
        may(attr::invoke_write::CORE_OUT, Shape::Out(0, ANY_LENGTH)),
        must(attr::invoke_write::WRITE_CMD, U64_IN),
    ], write::invoke),
    with_driver(method::GET_CONTEXT, &[
        may(attr::get_context::NUM_COMP_VECTORS, U32_OUT),
        may(attr::get_context::CORE_SUPPORT, U64_OUT),
    ], context::get),
    entry(method::QUERY_CONTEXT, &[
        may(attr::query_context::NUM_COMP_VECTORS, U32_OUT),
        may(attr::query_context::CORE_SUPPORT, U64_OUT),
        may(attr::mlx5_query_context::RESP_UCTX, Shape::Out(0, ANY_LENGTH)),
    ], context::query),
    entry(method::QUERY_PORT, &[
        must(attr::query_port::PORT_NUM, U64_IN),
        must(attr::query_port::RESP, Shape::Out(44, ANY_LENGTH)),
    ], query::port),
    entry(method::MLX5_QUERY_PORT, &[
        must(attr::mlx5_query_port::QUERY_PORT_PORT_NUM, U32_IN),
        must(attr::mlx5_query_port::QUERY_PORT, Shape::Out(query::VPORT_BYTES, ANY_LENGTH)),
    ], query::vport),
    entry(method::QUERY_GID_TABLE, &[
        must(attr::query_gid_table::ENTRY_SIZE, U64_IN),
        may(attr::query_gid_table::FLAGS, FLAGS),
        must(attr::query_gid_table::RESP_ENTRIES, Shape::Out(0, ANY_LENGTH)),
        must(attr::query_gid_table::RESP_NUM_ENTRIES, U64_OUT),
    ], query::gid_table),
    entry(method::QUERY_GID_ENTRY, &[
        must(attr::query_gid_entry::PORT, U64_IN),
        must(attr::query_gid_entry::GID_INDEX, U64_IN),
        may(attr::query_gid_entry::FLAGS, FLAGS),
        must(attr::query_gid_entry::RESP_ENTRY, Shape::Out(32, ANY_LENGTH)),
    ], query::gid_entry),
    entry(method::ASYNC_EVENT_ALLOC, &[
        must(attr::async_event_alloc::FD_HANDLE, Shape::NewFd),
    ], context::async_event_alloc),

    destructor(method::PD_DESTROY, &[
        must(attr::destroy_pd::HANDLE, Shape::Handle(object::PD)),
    ]),
    entry(method::PD_QUERY, &[
        must(attr::query_pd::HANDLE, Shape::Handle(object::PD)),
        must(attr::query_pd::RESP_PDN, U32_OUT),
    ], simple::query_pd),
    destructor(method::XRCD_DESTROY, &[
        must(attr::destroy_xrcd::HANDLE, Shape::Handle(object::XRCD)),
    ]),
    destructor(method::AH_DESTROY, &[
        must(attr::destroy_ah::HANDLE, Shape::Handle(object::AH)),
    ]),
    destructor(method::MW_DESTROY, &[
        must(attr::destroy_mw::HANDLE, Shape::Handle(object::MW)),
    ]),
    destructor(method::MR_DESTROY, &[
        must(attr::destroy_mr::HANDLE, Shape::Handle(object::MR)),
    ]),
    entry(method::QUERY_MR, &[
        must(attr::query_mr::HANDLE, Shape::Handle(object::MR)),
        must(attr::query_mr::RESP_LKEY, U32_OUT),
        must(attr::query_mr::RESP_RKEY, U32_OUT),
        must(attr::query_mr::RESP_LENGTH, U64_OUT),
        may(attr::query_mr::RESP_IOVA, U64_OUT),
    ], mr::query),
    entry(method::ADVISE_MR, &[
        must(attr::advise_mr::PD_HANDLE, Shape::Handle(object::PD)),
        must(attr::advise_mr::ADVICE, U64_IN),
        must(attr::advise_mr::FLAGS, FLAGS),
        must(attr::advise_mr::SGE_LIST, Shape::In(16, ANY_LENGTH)),
    ], mr::unsupported),
    entry(method::DM_MR_REG, &[
        must(attr::reg_dm_mr::HANDLE, Shape::NewHandle),
        must(attr::reg_dm_mr::OFFSET, U64_IN),
        must(attr::reg_dm_mr::LENGTH, U64_IN),
        must(attr::reg_dm_mr::PD_HANDLE, Shape::Handle(object::PD)),
        must(attr::reg_dm_mr::ACCESS_FLAGS, FLAGS),
        must(attr::reg_dm_mr::DM_HANDLE, Shape::Handle(object::DM)),
        must(attr::reg_dm_mr::RESP_LKEY, U32_OUT),
        must(attr::reg_dm_mr::RESP_RKEY, U32_OUT),
    ], mr::reg_dm),
    entry(method::DM_ALLOC, &[
        must(attr::alloc_dm::HANDLE, Shape::NewHandle),
        must(attr::alloc_dm::LENGTH, U64_IN),
        must(attr::alloc_dm::ALIGNMENT, U32_IN),
        must(attr::mlx5_alloc_dm::RESP_START_OFFSET, U64_OUT),
        must(attr::mlx5_alloc_dm::RESP_PAGE_INDEX, U16),
        may(attr::mlx5_alloc_dm::REQ_TYPE, U64_IN),
    ], dm::alloc),
    entry(method::DM_QUERY, &[
        must(attr::query_dm::REQ_HANDLE, Shape::Handle(object::DM)),
        must(attr::query_dm::RESP_START_OFFSET, U64_OUT),
        must(attr::query_dm::RESP_PAGE_INDEX, U16),
        must(attr::query_dm::RESP_LENGTH, U64_OUT),
    ], dm::query),
    destructor(method::DM_FREE, &[
        must(attr::free_dm::HANDLE, Shape::Handle(object::DM)),
    ]),
    entry(method::REG_DMABUF_MR, &[
        must(attr::reg_dmabuf_mr::HANDLE, Shape::NewHandle),
        must(attr::reg_dmabuf_mr::PD_HANDLE, Shape::Handle(object::PD)),
        must(attr::reg_dmabuf_mr::OFFSET, U64_IN),
        must(attr::reg_dmabuf_mr::LENGTH, U64_IN),
        must(attr::reg_dmabuf_mr::IOVA, U64_IN),
        must(attr::reg_dmabuf_mr::FD, U32_IN),
        must(attr::reg_dmabuf_mr::ACCESS_FLAGS, FLAGS),
        must(attr::reg_dmabuf_mr::RESP_LKEY, U32_OUT),
        must(attr::reg_dmabuf_mr::RESP_RKEY, U32_OUT),
    ], mr::unsupported),

    with_driver(method::CQ_CREATE, &[
        must(attr::create_cq::HANDLE, Shape::NewHandle),
        must(attr::create_cq::CQE, U32_IN),
        must(attr::create_cq::USER_HANDLE, U64_IN),
        may(attr::create_cq::COMP_CHANNEL, Shape::Fd),
        must(attr::create_cq::COMP_VECTOR, U32_IN),
        may(attr::create_cq::FLAGS, FLAGS),
        must(attr::create_cq::RESP_CQE, U32_OUT),
        may(attr::create_cq::EVENT_FD, Shape::Fd),
        may(attr::mlx5_create_cq::UAR_INDEX, U32_IN),
    ], cq::create),
    destructor(method::CQ_DESTROY, &[
        must(attr::destroy_cq::HANDLE, Shape::Handle(object::CQ)),
        must(attr::destroy_cq::RESP, U64_OUT),
    ]),
    with_driver(method::QP_CREATE, &[
        must(attr::create_qp::HANDLE, Shape::NewHandle),
        may(attr::create_qp::XRCD_HANDLE, Shape::Handle(object::XRCD)),
        may(attr::create_qp::PD_HANDLE, Shape::Handle(object::PD)),
        may(attr::create_qp::SRQ_HANDLE, Shape::Handle(object::SRQ)),
        may(attr::create_qp::SEND_CQ_HANDLE, Shape::Handle(object::CQ)),
        may(attr::create_qp::RECV_CQ_HANDLE, Shape::Handle(object::CQ)),
        may(attr::create_qp::IND_TABLE_HANDLE, Shape::Handle(object::RWQ_IND_TBL)),
        must(attr::create_qp::USER_HANDLE, U64_IN),
        must(attr::create_qp::CAP, Shape::In(20, 20)),
        must(attr::create_qp::TYPE, U64_IN),
        may(attr::create_qp::FLAGS, FLAGS),
        may(attr::create_qp::SOURCE_QPN, U32_IN),
        may(attr::create_qp::EVENT_FD, Shape::Fd),
        must(attr::create_qp::RESP_CAP, Shape::Out(20, 20)),
        must(attr::create_qp::RESP_QP_NUM, U32_OUT),
    ], qp::create),
    destructor(method::QP_DESTROY, &[
        must(attr::destroy_qp::HANDLE, Shape::Handle(object::QP)),
        must(attr::destroy_qp::RESP, U32_OUT),
    ]),
    with_driver(method::SRQ_CREATE, &[
        must(attr::create_srq::HANDLE, Shape::NewHandle),
        must(attr::create_srq::PD_HANDLE, Shape::Handle(object::PD)),
        may(attr::create_srq::XRCD_HANDLE, Shape::Handle(object::XRCD)),
        may(attr::create_srq::CQ_HANDLE, Shape::Handle(object::CQ)),
        must(attr::create_srq::USER_HANDLE, U64_IN),
        must(attr::create_srq::MAX_WR, U32_IN),
        must(attr::create_srq::MAX_SGE, U32_IN),
        must(attr::create_srq::LIMIT, U32_IN),
        may(attr::create_srq::MAX_NUM_TAGS, U32_IN),
        must(attr::create_srq::TYPE, U64_IN),
        may(attr::create_srq::EVENT_FD, Shape::Fd),
        must(attr::create_srq::RESP_MAX_WR, U32_OUT),
        must(attr::create_srq::RESP_MAX_SGE, U32_OUT),
        may(attr::create_srq::RESP_SRQ_NUM, U32_OUT),
    ], srq::create),
    destructor(method::SRQ_DESTROY, &[
        must(attr::destroy_srq::HANDLE, Shape::Handle(object::SRQ)),
        must(attr::destroy_srq::RESP, U32_OUT),
    ]),

    with_driver(method::WQ_CREATE, &[
        must(attr::create_wq::HANDLE, Shape::NewHandle),
        must(attr::create_wq::PD_HANDLE, Shape::Handle(object::PD)),
        must(attr::create_wq::TYPE, U64_IN),
        may(attr::create_wq::EVENT_FD, Shape::Fd),
        must(attr::create_wq::USER_HANDLE, U64_IN),
        must(attr::create_wq::CQ_HANDLE, Shape::Handle(object::CQ)),
        must(attr::create_wq::MAX_WR, U32_IN),
        must(attr::create_wq::MAX_SGE, U32_IN),
        must(attr::create_wq::FLAGS, FLAGS),
        must(attr::create_wq::RESP_MAX_WR, U32_OUT),
        must(attr::create_wq::RESP_MAX_SGE, U32_OUT),
        may(attr::create_wq::RESP_WQ_NUM, U32_OUT),
    ], wq::create),
    destructor(method::WQ_DESTROY, &[
        must(attr::destroy_wq::HANDLE, Shape::Handle(object::WQ)),
        must(attr::destroy_wq::RESP, U32_OUT),
    ]),
    destructor(method::RWQ_IND_TBL_DESTROY, &[
        must(attr::destroy_rwq_ind_tbl::HANDLE, Shape::Handle(object::RWQ_IND_TBL)),
    ]),
    destructor(method::FLOW_DESTROY, &[
        must(attr::destroy_flow::HANDLE, Shape::Handle(object::FLOW)),
    ]),
    entry(method::COUNTERS_CREATE, &[
        must(attr::create_counters::HANDLE, Shape::NewHandle),
    ], flow::create_counters),
    destructor(method::COUNTERS_DESTROY, &[
        must(attr::destroy_counters::HANDLE, Shape::Handle(object::COUNTERS)),
    ]),
    entry(method::COUNTERS_READ, &[
        must(attr::read_counters::HANDLE, Shape::Handle(object::COUNTERS)),
        must(attr::read_counters::BUFF, Shape::Out(0, ANY_LENGTH)),
        must(attr::read_counters::FLAGS, FLAGS),
    ], flow::read_counters),
    entry(method::FLOW_MATCHER_CREATE, &[
        must(attr::create_flow_matcher::CREATE_HANDLE, Shape::NewHandle),
        must(attr::create_flow_matcher::MATCH_MASK, Shape::In(1, MATCHED)),
        must(attr::create_flow_matcher::FLOW_TYPE, Shape::Choice(2)),
        must(attr::create_flow_matcher::MATCH_CRITERIA, Shape::In(1, 1)),
        may(attr::create_flow_matcher::FLOW_FLAGS, FLAGS),
        may(attr::create_flow_matcher::FT_TYPE, U64_IN),
    ], flow::create_matcher),
    destructor(method::FLOW_MATCHER_DESTROY, &[
        must(attr::destroy_flow_matcher::HANDLE, Shape::Handle(object::FLOW_MATCHER)),
    ]),
    entry(method::MLX5_CREATE_FLOW, &[
        must(attr::create_matcher_flow::HANDLE, Shape::NewHandle),
        must(attr::create_matcher_flow::MATCH_VALUE, Shape::In(1, MATCHED)),
        must(attr::create_matcher_flow::MATCHER, Shape::Handle(object::FLOW_MATCHER)),
        may(attr::create_matcher_flow::DEST_QP, Shape::Handle(object::QP)),
        may(attr::create_matcher_flow::DEST_DEVX, Shape::Handle(object::DEVX_OBJ)),
        may(attr::create_matcher_flow::ARR_FLOW_ACTIONS, Shape::In(4, ANY_LENGTH)),
        may(attr::create_matcher_flow::TAG, U32_IN),
        may(attr::create_matcher_flow::ARR_COUNTERS_DEVX, Shape::In(4, 4)),
        may(attr::create_matcher_flow::ARR_COUNTERS_DEVX_OFFSET, Shape::In(4, 4)),
        may(attr::create_matcher_flow::FLAGS, FLAGS),
    ], flow::create_matched),
    destructor(method::MLX5_DESTROY_FLOW, &[
        must(attr::destroy_matcher_flow::HANDLE, Shape::Handle(object::FLOW)),
    ]),

    entry(method::UAR_ALLOC, &[
        must(attr::uar_alloc::HANDLE, Shape::NewHandle),
        must(attr::uar_alloc::TYPE, U64_IN),
        must(attr::uar_alloc::MMAP_OFFSET, U64_OUT),
        must(attr::uar_alloc::MMAP_LENGTH, U32_OUT),
        must(attr::uar_alloc::PAGE_ID, U32_OUT),
    ], uar::alloc),
    destructor(method::UAR_DESTROY, &[
        must(attr::uar_destroy::HANDLE, Shape::Handle(object::UAR)),
    ]),

    entry(method::PP_ALLOC, &[
        must(attr::pp_alloc::HANDLE, Shape::NewHandle),
        must(attr::pp_alloc::CTX, Shape::In(1, pacing::LIMIT)),
        must(attr::pp_alloc::FLAGS, FLAGS),
        must(attr::pp_alloc::INDEX, U16),
    ], pacing::alloc),
    destructor(method::PP_DESTROY, &[
        must(attr::pp_destroy::HANDLE, Shape::Handle(object::PP)),
    ]),

    entry(method::DEVX_OTHER, &[
        must(attr::devx_other::CMD_IN, COMMAND_IN),
        must(attr::devx_other::CMD_OUT, COMMAND_OUT),
    ], devx::other),
    entry(method::DEVX_QUERY_UAR, &[
        must(attr::devx_query_uar::USER_IDX, U32_IN),
        must(attr::devx_query_uar::DEV_IDX, U32_OUT),
    ], devx::query_uar),
    entry(method::DEVX_QUERY_EQN, &[
        must(attr::devx_query_eqn::USER_VEC, U32_IN),
        must(attr::devx_query_eqn::DEV_EQN, U32_OUT),
    ], devx::query_eqn),
    entry(method::DEVX_OBJ_CREATE, &[
        must(attr::devx_obj_create::HANDLE, Shape::NewHandle),
        must(attr::devx_obj_create::CMD_IN, COMMAND_IN),
        must(attr::devx_obj_create::CMD_OUT, COMMAND_OUT),
    ], devx::obj_create),
    entry(method::DEVX_OBJ_MODIFY, &[
        must(attr::devx_obj_modify::HANDLE, Shape::AnyHandle),
        must(attr::devx_obj_modify::CMD_IN, COMMAND_IN),
        must(attr::devx_obj_modify::CMD_OUT, COMMAND_OUT),
    ], devx::obj_modify),
    entry(method::DEVX_OBJ_QUERY, &[
        must(attr::devx_obj_query::HANDLE, Shape::AnyHandle),
        must(attr::devx_obj_query::CMD_IN, COMMAND_IN),
        must(attr::devx_obj_query::CMD_OUT, COMMAND_OUT),
    ], devx::obj_query),
    entry(method::DEVX_OBJ_ASYNC_QUERY, &[
        must(attr::devx_obj_query_async::HANDLE, Shape::AnyHandle),
        must(attr::devx_obj_query_async::CMD_IN, COMMAND_IN),
        must(attr::devx_obj_query_async::OUT_LEN, U64_IN),
        must(attr::devx_obj_query_async::FD, Shape::Fd),
        must(attr::devx_obj_query_async::WR_ID, U64_IN),
    ], devx_files::obj_query),
    destructor(method::DEVX_OBJ_DESTROY, &[
        must(attr::devx_obj_destroy::HANDLE, Shape::Handle(object::DEVX_OBJ)),
    ]),
    entry(method::DEVX_UMEM_REG, &[
        must(attr::devx_umem_reg::HANDLE, Shape::NewHandle),
        must(attr::devx_umem_reg::ADDR, U64_IN),
        must(attr::devx_umem_reg::LEN, U64_IN),
        must(attr::devx_umem_reg::ACCESS, FLAGS),
        may(attr::devx_umem_reg::PGSZ_BITMAP, U64_IN),
        must(attr::devx_umem_reg::OUT_ID, U32_OUT),
    ], devx::umem_reg),
    destructor(method::DEVX_UMEM_DEREG, &[
        must(attr::devx_umem_dereg::HANDLE, Shape::Handle(object::DEVX_UMEM)),
    ]),
    entry(method::DEVX_ASYNC_CMD_FD_ALLOC, &[
        must(attr::devx_async_cmd_fd_alloc::HANDLE, Shape::NewFd),
    ], devx_files::alloc_answers),
    entry(method::DEVX_ASYNC_EVENT_FD_ALLOC, &[
        must(attr::devx_async_event_fd_alloc::HANDLE, Shape::NewFd),
        must(attr::devx_async_event_fd_alloc::FLAGS, FLAGS),
    ], devx_files::alloc_events),
    entry(method::DEVX_SUBSCRIBE_EVENT, &[
        must(attr::devx_subscribe_event::FD_HANDLE, Shape::Fd),
        may(attr::devx_subscribe_event::OBJ_HANDLE, Shape::Handle(object::DEVX_OBJ)),
        must(attr::devx_subscribe_event::TYPE_NUM_LIST, Shape::In(2, ANY_LENGTH)),
        may(attr::devx_subscribe_event::COOKIE, U64_IN),
        may(attr::devx_subscribe_event::FD_NUM, U32_IN),
    ], devx_files::subscribe),
];

/// Whether an attribute of a method holds the descriptor of an event file.
#[must_use]
pub fn takes_descriptor(method: Method, id: AttrId) -> bool {
    let entry = METHODS.iter().find(|entry| entry.method == method);
    entry.is_some_and(|entry| {
        entry.specs.iter().any(|spec| spec.id == id && matches!(spec.shape, Shape::Fd))
    })
}

/// The attribute in which a method returns the descriptor of an event file that it made.
#[must_use]
pub fn makes_descriptor(method: Method) -> Option<AttrId> {
    let entry = METHODS.iter().find(|entry| entry.method == method)?;
    let made = entry.specs.iter().find(|spec| matches!(spec.shape, Shape::NewFd))?;
    Some(made.id)
}

/// Executes a method of an open file.
pub(crate) fn run(
    file: &OpenFile,
    state: &mut State,
    method: Method,
    mut request: Request<'_>,
) -> Result<(), Errno> {
    let entry = METHODS.iter().find(|entry| entry.method == method);
    let entry = entry.filter(|entry| entry.is_offered(&file.hca)).ok_or(Errno::EPROTONOSUPPORT)?;
    if !entry.outlives_the_device() {
        file.check_device()?;
    }
    let driver: &[Spec] = if entry.driver { &DRIVER } else { &[] };
    request.check(entry.specs.iter().chain(driver))?;
    let handler = match entry.work {
        Work::Call(handler) => handler,
        Work::Destroy => return destroy(file, state, entry.specs, &mut request),
    };
    for spec in entry.specs {
        match spec.shape {
            Shape::Handle(kind) if request.has(spec.id) => {
                state.objects.expect(request.handle(spec.id)?, kind)?;
            }
            Shape::AnyHandle => _ = state.objects.get(request.handle(spec.id)?)?,
            // Without a context no object can be made.
            Shape::NewHandle | Shape::NewFd => _ = state.context()?,
            _ => {}
        }
    }
    match handler(file, state, &mut request) {
        // This error would mean that the call is unknown, which it is not.
        Err(Errno::EPROTONOSUPPORT) => Err(Errno::EINVAL),
        result => result,
    }
}

/// Ends an object.
fn destroy(
    file: &OpenFile,
    state: &mut State,
    specs: &[Spec],
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let [Spec { id, shape: Shape::Handle(kind), .. }, report @ ..] = specs else {
        unreachable!("a destructor's first attribute is a handle");
    };
    let handle = request.handle(*id)?;
    let reported = match state.give_back(handle, *kind)? {
        Some(reported) => reported,
        None => {
            state.objects.expect(handle, *kind)?;
            file.destroy(state, handle)?
        }
    };
    match report {
        [report] => request.answer_bytes(report.id, &reported),
        _ => Ok(()),
    }
}
