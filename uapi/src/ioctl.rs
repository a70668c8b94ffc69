//! The ioctl of uverbs devices, and the IDs of its objects, methods and attributes. From
//! `rdma/rdma_user_ioctl_cmds.h`, `rdma/ib_user_ioctl_cmds.h` and `rdma/mlx5_user_ioctl_cmds.h`.

use crate::layout::layout;

/// `RDMA_VERBS_IOCTL`, `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub const RDMA_VERBS_IOCTL: u32 = 0xC018_1B01;

/// `RDMA_DRIVER_MLX5` of `enum rdma_driver_id`, part of every header.
pub const RDMA_DRIVER_MLX5: u32 = 1;

layout! {
    /// `struct ib_uverbs_ioctl_hdr`; `num_attrs` [`IoctlAttr`]s follow it in memory.
    pub struct IoctlHeader [24] {
        0  length: u16 => "Bytes of header and attributes together.",
        2  object_id: u16 => "The object, see [`Method::object`].",
        4  method_id: u16 => "The method, see [`Method::id`].",
        6  num_attrs: u16 => "Attributes that follow.",
        8  reserved1: u64 => "Zero.",
        16 driver_id: u32 => "[`RDMA_DRIVER_MLX5`].",
        20 reserved2: u32 => "Zero.",
    }

    /// `struct ib_uverbs_attr`.
    pub struct IoctlAttr [16] {
        0 attr_id: u16 => "Which attribute of the method.",
        2 len: u16 => "Bytes of a pointer attribute; zero for handles and descriptors.",
        4 flags: u16 => "[`AttrFlags`].",
        6 elem_id: u8 => "Which member, for an enum attribute.",
        7 reserved: u8 => "Zero.",
        8 data: u64 => "Inline bytes, an address, a handle or a descriptor.",
    }
}

bitflags::bitflags! {
    /// `UVERBS_ATTR_F_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttrFlags: u16 {
        /// The kernel must refuse the call if it does not know the attribute.
        const MANDATORY = 1 << 0;
        /// Set by the kernel on an output that it wrote.
        const VALID_OUTPUT = 1 << 1;
    }
}

/// A method of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Method {
    /// ID of the object, from [`object`].
    pub object: u16,
    /// ID of the method within its object.
    pub id: u16,
}

impl Method {
    /// Returns the method that a header calls.
    pub const fn of(header: &IoctlHeader) -> Self {
        Self { object: header.object_id, id: header.method_id }
    }
}

/// ID of an attribute within its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttrId(pub u16);

/// The first ID of the driver's namespace (`UVERBS_ID_NS_SHIFT`).
pub const DRIVER_NAMESPACE: u16 = 1 << 12;

impl IoctlHeader {
    /// Returns the attributes that follow a header.
    ///
    /// # Safety
    /// `header` points to a header that is followed, in the same allocation, by as many attributes
    /// as its `num_attrs`.
    pub unsafe fn attributes(header: *mut IoctlHeader) -> *mut [IoctlAttr] {
        // SAFETY: the caller promises a readable header, followed by its attributes in the same
        // allocation. Both types consist of integers, so every bit pattern is valid.
        unsafe {
            let count = usize::from((*header).num_attrs);
            core::ptr::slice_from_raw_parts_mut(header.add(1).cast::<IoctlAttr>(), count)
        }
    }
}

macro_rules! objects {
    ($($name:ident = $id:literal => $kernel:literal),* $(,)?) => {
        /// `enum uverbs_default_objects` and `enum mlx5_ib_objects`.
        pub mod object {
            $( #[doc = concat!("`", $kernel, "`.")] pub const $name: u16 = $id; )*

            /// Returns the kernel's name of an object, `None` for an ID that is not in the table.
            pub const fn name(id: u16) -> Option<&'static str> {
                match id {
                    $( $id => Some($kernel), )*
                    _ => None,
                }
            }
        }
    };
}

objects! {
    DEVICE = 0 => "UVERBS_OBJECT_DEVICE",
    PD = 1 => "UVERBS_OBJECT_PD",
    COMP_CHANNEL = 2 => "UVERBS_OBJECT_COMP_CHANNEL",
    CQ = 3 => "UVERBS_OBJECT_CQ",
    QP = 4 => "UVERBS_OBJECT_QP",
    SRQ = 5 => "UVERBS_OBJECT_SRQ",
    AH = 6 => "UVERBS_OBJECT_AH",
    MR = 7 => "UVERBS_OBJECT_MR",
    MW = 8 => "UVERBS_OBJECT_MW",
    FLOW = 9 => "UVERBS_OBJECT_FLOW",
    XRCD = 10 => "UVERBS_OBJECT_XRCD",
    RWQ_IND_TBL = 11 => "UVERBS_OBJECT_RWQ_IND_TBL",
    WQ = 12 => "UVERBS_OBJECT_WQ",
    FLOW_ACTION = 13 => "UVERBS_OBJECT_FLOW_ACTION",
    DM = 14 => "UVERBS_OBJECT_DM",
    COUNTERS = 15 => "UVERBS_OBJECT_COUNTERS",
    ASYNC_EVENT = 16 => "UVERBS_OBJECT_ASYNC_EVENT",
    DEVX = 0x1000 => "MLX5_IB_OBJECT_DEVX",
    DEVX_OBJ = 0x1001 => "MLX5_IB_OBJECT_DEVX_OBJ",
    DEVX_UMEM = 0x1002 => "MLX5_IB_OBJECT_DEVX_UMEM",
    FLOW_MATCHER = 0x1003 => "MLX5_IB_OBJECT_FLOW_MATCHER",
    DEVX_ASYNC_CMD_FD = 0x1004 => "MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD",
    DEVX_ASYNC_EVENT_FD = 0x1005 => "MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD",
    VAR = 0x1006 => "MLX5_IB_OBJECT_VAR",
    PP = 0x1007 => "MLX5_IB_OBJECT_PP",
    UAR = 0x1008 => "MLX5_IB_OBJECT_UAR",
    STEERING_ANCHOR = 0x1009 => "MLX5_IB_OBJECT_STEERING_ANCHOR",
}

macro_rules! methods {
    ($($name:ident = $object:ident / $id:literal => $kernel:literal),* $(,)?) => {
        /// The methods, with their objects.
        pub mod method {
            use super::{Method, object};
            $(
                #[doc = concat!("`", $kernel, "`.")]
                pub const $name: Method = Method { object: object::$object, id: $id };
            )*
        }

        impl Method {
            /// Returns the kernel's name, `None` for a method that is not in the table.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $( method::$name => Some($kernel), )*
                    _ => None,
                }
            }
        }
    };
}

methods! {
    INVOKE_WRITE = DEVICE / 0 => "UVERBS_METHOD_INVOKE_WRITE",
    INFO_HANDLES = DEVICE / 1 => "UVERBS_METHOD_INFO_HANDLES",
    QUERY_PORT = DEVICE / 2 => "UVERBS_METHOD_QUERY_PORT",
    GET_CONTEXT = DEVICE / 3 => "UVERBS_METHOD_GET_CONTEXT",
    QUERY_CONTEXT = DEVICE / 4 => "UVERBS_METHOD_QUERY_CONTEXT",
    QUERY_GID_TABLE = DEVICE / 5 => "UVERBS_METHOD_QUERY_GID_TABLE",
    QUERY_GID_ENTRY = DEVICE / 6 => "UVERBS_METHOD_QUERY_GID_ENTRY",
    MLX5_QUERY_PORT = DEVICE / 0x1000 => "MLX5_IB_METHOD_QUERY_PORT",
    PD_DESTROY = PD / 0 => "UVERBS_METHOD_PD_DESTROY",
    PD_QUERY = PD / 0x1000 => "MLX5_IB_METHOD_PD_QUERY",
    CQ_CREATE = CQ / 0 => "UVERBS_METHOD_CQ_CREATE",
    CQ_DESTROY = CQ / 1 => "UVERBS_METHOD_CQ_DESTROY",
    QP_CREATE = QP / 0 => "UVERBS_METHOD_QP_CREATE",
    QP_DESTROY = QP / 1 => "UVERBS_METHOD_QP_DESTROY",
    SRQ_CREATE = SRQ / 0 => "UVERBS_METHOD_SRQ_CREATE",
    SRQ_DESTROY = SRQ / 1 => "UVERBS_METHOD_SRQ_DESTROY",
    AH_DESTROY = AH / 0 => "UVERBS_METHOD_AH_DESTROY",
    DM_MR_REG = MR / 0 => "UVERBS_METHOD_DM_MR_REG",
    MR_DESTROY = MR / 1 => "UVERBS_METHOD_MR_DESTROY",
    ADVISE_MR = MR / 2 => "UVERBS_METHOD_ADVISE_MR",
    QUERY_MR = MR / 3 => "UVERBS_METHOD_QUERY_MR",
    REG_DMABUF_MR = MR / 4 => "UVERBS_METHOD_REG_DMABUF_MR",
    MW_DESTROY = MW / 0 => "UVERBS_METHOD_MW_DESTROY",
    FLOW_DESTROY = FLOW / 0 => "UVERBS_METHOD_FLOW_DESTROY",
    MLX5_CREATE_FLOW = FLOW / 0x1000 => "MLX5_IB_METHOD_CREATE_FLOW",
    MLX5_DESTROY_FLOW = FLOW / 0x1001 => "MLX5_IB_METHOD_DESTROY_FLOW",
    XRCD_DESTROY = XRCD / 0 => "UVERBS_METHOD_XRCD_DESTROY",
    RWQ_IND_TBL_DESTROY = RWQ_IND_TBL / 0 => "UVERBS_METHOD_RWQ_IND_TBL_DESTROY",
    WQ_CREATE = WQ / 0 => "UVERBS_METHOD_WQ_CREATE",
    WQ_DESTROY = WQ / 1 => "UVERBS_METHOD_WQ_DESTROY",
    FLOW_ACTION_ESP_CREATE = FLOW_ACTION / 0 => "UVERBS_METHOD_FLOW_ACTION_ESP_CREATE",
    FLOW_ACTION_DESTROY = FLOW_ACTION / 1 => "UVERBS_METHOD_FLOW_ACTION_DESTROY",
    FLOW_ACTION_ESP_MODIFY = FLOW_ACTION / 2 => "UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY",
    FLOW_ACTION_CREATE_MODIFY_HEADER = FLOW_ACTION / 0x1000
        => "MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER",
    FLOW_ACTION_CREATE_PACKET_REFORMAT = FLOW_ACTION / 0x1001
        => "MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT",
    DM_ALLOC = DM / 0 => "UVERBS_METHOD_DM_ALLOC",
    DM_FREE = DM / 1 => "UVERBS_METHOD_DM_FREE",
    DM_MAP_OP_ADDR = DM / 0x1000 => "MLX5_IB_METHOD_DM_MAP_OP_ADDR",
    DM_QUERY = DM / 0x1001 => "MLX5_IB_METHOD_DM_QUERY",
    COUNTERS_CREATE = COUNTERS / 0 => "UVERBS_METHOD_COUNTERS_CREATE",
    COUNTERS_DESTROY = COUNTERS / 1 => "UVERBS_METHOD_COUNTERS_DESTROY",
    COUNTERS_READ = COUNTERS / 2 => "UVERBS_METHOD_COUNTERS_READ",
    ASYNC_EVENT_ALLOC = ASYNC_EVENT / 0 => "UVERBS_METHOD_ASYNC_EVENT_ALLOC",
    DEVX_OTHER = DEVX / 0x1000 => "MLX5_IB_METHOD_DEVX_OTHER",
    DEVX_QUERY_UAR = DEVX / 0x1001 => "MLX5_IB_METHOD_DEVX_QUERY_UAR",
    DEVX_QUERY_EQN = DEVX / 0x1002 => "MLX5_IB_METHOD_DEVX_QUERY_EQN",
    DEVX_SUBSCRIBE_EVENT = DEVX / 0x1003 => "MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT",
    DEVX_OBJ_CREATE = DEVX_OBJ / 0x1000 => "MLX5_IB_METHOD_DEVX_OBJ_CREATE",
    DEVX_OBJ_DESTROY = DEVX_OBJ / 0x1001 => "MLX5_IB_METHOD_DEVX_OBJ_DESTROY",
    DEVX_OBJ_MODIFY = DEVX_OBJ / 0x1002 => "MLX5_IB_METHOD_DEVX_OBJ_MODIFY",
    DEVX_OBJ_QUERY = DEVX_OBJ / 0x1003 => "MLX5_IB_METHOD_DEVX_OBJ_QUERY",
    DEVX_OBJ_ASYNC_QUERY = DEVX_OBJ / 0x1004 => "MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY",
    DEVX_UMEM_REG = DEVX_UMEM / 0x1000 => "MLX5_IB_METHOD_DEVX_UMEM_REG",
    DEVX_UMEM_DEREG = DEVX_UMEM / 0x1001 => "MLX5_IB_METHOD_DEVX_UMEM_DEREG",
    FLOW_MATCHER_CREATE = FLOW_MATCHER / 0x1000 => "MLX5_IB_METHOD_FLOW_MATCHER_CREATE",
    FLOW_MATCHER_DESTROY = FLOW_MATCHER / 0x1001 => "MLX5_IB_METHOD_FLOW_MATCHER_DESTROY",
    DEVX_ASYNC_CMD_FD_ALLOC = DEVX_ASYNC_CMD_FD / 0x1000
        => "MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC",
    DEVX_ASYNC_EVENT_FD_ALLOC = DEVX_ASYNC_EVENT_FD / 0x1000
        => "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC",
    VAR_ALLOC = VAR / 0x1000 => "MLX5_IB_METHOD_VAR_OBJ_ALLOC",
    VAR_DESTROY = VAR / 0x1001 => "MLX5_IB_METHOD_VAR_OBJ_DESTROY",
    PP_ALLOC = PP / 0x1000 => "MLX5_IB_METHOD_PP_OBJ_ALLOC",
    PP_DESTROY = PP / 0x1001 => "MLX5_IB_METHOD_PP_OBJ_DESTROY",
    UAR_ALLOC = UAR / 0x1000 => "MLX5_IB_METHOD_UAR_OBJ_ALLOC",
    UAR_DESTROY = UAR / 0x1001 => "MLX5_IB_METHOD_UAR_OBJ_DESTROY",
    STEERING_ANCHOR_CREATE = STEERING_ANCHOR / 0x1000 => "MLX5_IB_METHOD_STEERING_ANCHOR_CREATE",
    STEERING_ANCHOR_DESTROY = STEERING_ANCHOR / 0x1001 => "MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY",
}

macro_rules! attributes {
    ($(
        mod $module:ident $(of $method:ident)? = $prefix:literal { $($name:ident = $id:literal),* $(,)? }
    )*) => {
        /// The attribute IDs, one module per method and namespace.
        pub mod attr {
            $(
                #[doc = attributes!(@doc $($method)?)]
                pub mod $module {
                    use crate::ioctl::AttrId;
                    $(
                        #[doc = concat!("`", $prefix, stringify!($name), "`.")]
                        pub const $name: AttrId = AttrId($id);
                    )*
                }
            )*
        }

        impl AttrId {
            /// Returns the kernel's name of an attribute of `method`, `None` if it is not in the
            /// table.
            pub const fn name(self, method: Method) -> Option<&'static str> {
                $(
                    if attributes!(@takes method $($method)?) {
                        match self {
                            $( attr::$module::$name => {
                                return Some(concat!($prefix, stringify!($name)));
                            } )*
                            _ => {}
                        }
                    }
                )*
                None
            }
        }
    };
    (@doc $method:ident) => { concat!(stringify!($method), ".") };
    (@doc) => { "The driver's request and response, for every method that has them." };
    (@takes $called:ident $method:ident) => { matches!($called, method::$method) };
    // A driver request and response exist only for methods of the core.
    (@takes $called:ident) => { $called.id < DRIVER_NAMESPACE };
}

attributes! {
    mod invoke_write of INVOKE_WRITE = "UVERBS_ATTR_" { CORE_IN = 0, CORE_OUT = 1, WRITE_CMD = 2 }
    mod info_handles of INFO_HANDLES = "UVERBS_ATTR_INFO_" { OBJECT_ID = 0, TOTAL_HANDLES = 1, HANDLES_LIST = 2 }
    mod query_port of QUERY_PORT = "UVERBS_ATTR_QUERY_PORT_" { PORT_NUM = 0, RESP = 1 }
    mod get_context of GET_CONTEXT = "UVERBS_ATTR_GET_CONTEXT_" { NUM_COMP_VECTORS = 0, CORE_SUPPORT = 1 }
    mod query_context of QUERY_CONTEXT = "UVERBS_ATTR_QUERY_CONTEXT_" { NUM_COMP_VECTORS = 0, CORE_SUPPORT = 1 }
    mod mlx5_query_context of QUERY_CONTEXT = "MLX5_IB_ATTR_QUERY_CONTEXT_" { RESP_UCTX = 0x1000 }
    mod mlx5_query_port of MLX5_QUERY_PORT = "MLX5_IB_ATTR_" {
        QUERY_PORT_PORT_NUM = 0x1000, QUERY_PORT = 0x1001,
    }
    mod query_gid_table of QUERY_GID_TABLE = "UVERBS_ATTR_QUERY_GID_TABLE_" {
        ENTRY_SIZE = 0, FLAGS = 1, RESP_ENTRIES = 2, RESP_NUM_ENTRIES = 3,
    }
    mod query_gid_entry of QUERY_GID_ENTRY = "UVERBS_ATTR_QUERY_GID_ENTRY_" {
        PORT = 0, GID_INDEX = 1, FLAGS = 2, RESP_ENTRY = 3,
    }
    mod async_event_alloc of ASYNC_EVENT_ALLOC = "UVERBS_ATTR_ASYNC_EVENT_ALLOC_" { FD_HANDLE = 0 }
    mod destroy_pd of PD_DESTROY = "UVERBS_ATTR_DESTROY_PD_" { HANDLE = 0 }
    mod query_pd of PD_QUERY = "MLX5_IB_ATTR_QUERY_PD_" { HANDLE = 0x1000, RESP_PDN = 0x1001 }
    mod destroy_ah of AH_DESTROY = "UVERBS_ATTR_DESTROY_AH_" { HANDLE = 0 }
    mod destroy_mw of MW_DESTROY = "UVERBS_ATTR_DESTROY_MW_" { HANDLE = 0 }
    mod destroy_xrcd of XRCD_DESTROY = "UVERBS_ATTR_DESTROY_XRCD_" { HANDLE = 0 }
    mod create_cq of CQ_CREATE = "UVERBS_ATTR_CREATE_CQ_" {
        HANDLE = 0, CQE = 1, USER_HANDLE = 2, COMP_CHANNEL = 3, COMP_VECTOR = 4, FLAGS = 5,
        RESP_CQE = 6, EVENT_FD = 7,
    }
    mod mlx5_create_cq of CQ_CREATE = "MLX5_IB_ATTR_CREATE_CQ_" { UAR_INDEX = 0x1002 }
    mod destroy_cq of CQ_DESTROY = "UVERBS_ATTR_DESTROY_CQ_" { HANDLE = 0, RESP = 1 }
    mod create_qp of QP_CREATE = "UVERBS_ATTR_CREATE_QP_" {
        HANDLE = 0, XRCD_HANDLE = 1, PD_HANDLE = 2, SRQ_HANDLE = 3, SEND_CQ_HANDLE = 4,
        RECV_CQ_HANDLE = 5, IND_TABLE_HANDLE = 6, USER_HANDLE = 7, CAP = 8, TYPE = 9, FLAGS = 10,
        SOURCE_QPN = 11, EVENT_FD = 12, RESP_CAP = 13, RESP_QP_NUM = 14,
    }
    mod destroy_qp of QP_DESTROY = "UVERBS_ATTR_DESTROY_QP_" { HANDLE = 0, RESP = 1 }
    mod create_srq of SRQ_CREATE = "UVERBS_ATTR_CREATE_SRQ_" {
        HANDLE = 0, PD_HANDLE = 1, XRCD_HANDLE = 2, CQ_HANDLE = 3, USER_HANDLE = 4, MAX_WR = 5,
        MAX_SGE = 6, LIMIT = 7, MAX_NUM_TAGS = 8, TYPE = 9, EVENT_FD = 10, RESP_MAX_WR = 11,
        RESP_MAX_SGE = 12, RESP_SRQ_NUM = 13,
    }
    mod destroy_srq of SRQ_DESTROY = "UVERBS_ATTR_DESTROY_SRQ_" { HANDLE = 0, RESP = 1 }
    mod create_wq of WQ_CREATE = "UVERBS_ATTR_CREATE_WQ_" {
        HANDLE = 0, PD_HANDLE = 1, CQ_HANDLE = 2, USER_HANDLE = 3, TYPE = 4, EVENT_FD = 5,
        MAX_WR = 6, MAX_SGE = 7, FLAGS = 8, RESP_MAX_WR = 9, RESP_MAX_SGE = 10, RESP_WQ_NUM = 11,
    }
    mod destroy_wq of WQ_DESTROY = "UVERBS_ATTR_DESTROY_WQ_" { HANDLE = 0, RESP = 1 }
    mod destroy_rwq_ind_tbl of RWQ_IND_TBL_DESTROY = "UVERBS_ATTR_DESTROY_RWQ_IND_TBL_" { HANDLE = 0 }
    mod destroy_flow of FLOW_DESTROY = "UVERBS_ATTR_DESTROY_FLOW_" { HANDLE = 0 }
    mod create_counters of COUNTERS_CREATE = "UVERBS_ATTR_CREATE_COUNTERS_" { HANDLE = 0 }
    mod destroy_counters of COUNTERS_DESTROY = "UVERBS_ATTR_DESTROY_COUNTERS_" { HANDLE = 0 }
    mod read_counters of COUNTERS_READ = "UVERBS_ATTR_READ_COUNTERS_" { HANDLE = 0, BUFF = 1, FLAGS = 2 }
    mod create_flow_matcher of FLOW_MATCHER_CREATE = "MLX5_IB_ATTR_FLOW_MATCHER_" {
        CREATE_HANDLE = 0x1000, MATCH_MASK = 0x1001, FLOW_TYPE = 0x1002, MATCH_CRITERIA = 0x1003,
        FLOW_FLAGS = 0x1004, FT_TYPE = 0x1005,
    }
    mod destroy_flow_matcher of FLOW_MATCHER_DESTROY = "MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_" {
        HANDLE = 0x1000,
    }
    mod create_matcher_flow of MLX5_CREATE_FLOW = "MLX5_IB_ATTR_CREATE_FLOW_" {
        HANDLE = 0x1000, MATCH_VALUE = 0x1001, DEST_QP = 0x1002, DEST_DEVX = 0x1003,
        MATCHER = 0x1004, ARR_FLOW_ACTIONS = 0x1005, TAG = 0x1006, ARR_COUNTERS_DEVX = 0x1007,
        ARR_COUNTERS_DEVX_OFFSET = 0x1008, FLAGS = 0x1009,
    }
    mod destroy_matcher_flow of MLX5_DESTROY_FLOW = "MLX5_IB_ATTR_DESTROY_FLOW_" { HANDLE = 0x1000 }
    mod destroy_mr of MR_DESTROY = "UVERBS_ATTR_DESTROY_MR_" { HANDLE = 0 }
    mod advise_mr of ADVISE_MR = "UVERBS_ATTR_ADVISE_MR_" { PD_HANDLE = 0, ADVICE = 1, FLAGS = 2, SGE_LIST = 3 }
    mod query_mr of QUERY_MR = "UVERBS_ATTR_QUERY_MR_" {
        HANDLE = 0, RESP_LKEY = 1, RESP_RKEY = 2, RESP_LENGTH = 3, RESP_IOVA = 4,
    }
    mod reg_dmabuf_mr of REG_DMABUF_MR = "UVERBS_ATTR_REG_DMABUF_MR_" {
        HANDLE = 0, PD_HANDLE = 1, OFFSET = 2, LENGTH = 3, IOVA = 4, FD = 5, ACCESS_FLAGS = 6,
        RESP_LKEY = 7, RESP_RKEY = 8,
    }
    mod reg_dm_mr of DM_MR_REG = "UVERBS_ATTR_REG_DM_MR_" {
        HANDLE = 0, OFFSET = 1, LENGTH = 2, PD_HANDLE = 3, ACCESS_FLAGS = 4, DM_HANDLE = 5,
        RESP_LKEY = 6, RESP_RKEY = 7,
    }
    mod alloc_dm of DM_ALLOC = "UVERBS_ATTR_ALLOC_DM_" { HANDLE = 0, LENGTH = 1, ALIGNMENT = 2 }
    mod mlx5_alloc_dm of DM_ALLOC = "MLX5_IB_ATTR_ALLOC_DM_" {
        RESP_START_OFFSET = 0x1000, RESP_PAGE_INDEX = 0x1001, REQ_TYPE = 0x1002,
    }
    mod query_dm of DM_QUERY = "MLX5_IB_ATTR_QUERY_DM_" {
        REQ_HANDLE = 0x1000, RESP_START_OFFSET = 0x1001, RESP_PAGE_INDEX = 0x1002,
        RESP_LENGTH = 0x1003,
    }
    mod free_dm of DM_FREE = "UVERBS_ATTR_FREE_DM_" { HANDLE = 0 }
    mod devx_other of DEVX_OTHER = "MLX5_IB_ATTR_DEVX_OTHER_" { CMD_IN = 0x1000, CMD_OUT = 0x1001 }
    mod devx_query_uar of DEVX_QUERY_UAR = "MLX5_IB_ATTR_DEVX_QUERY_UAR_" { USER_IDX = 0x1000, DEV_IDX = 0x1001 }
    mod devx_query_eqn of DEVX_QUERY_EQN = "MLX5_IB_ATTR_DEVX_QUERY_EQN_" { USER_VEC = 0x1000, DEV_EQN = 0x1001 }
    mod devx_subscribe_event of DEVX_SUBSCRIBE_EVENT = "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_" {
        FD_HANDLE = 0x1000, OBJ_HANDLE = 0x1001, TYPE_NUM_LIST = 0x1002, FD_NUM = 0x1003,
        COOKIE = 0x1004,
    }
    mod devx_obj_create of DEVX_OBJ_CREATE = "MLX5_IB_ATTR_DEVX_OBJ_CREATE_" {
        HANDLE = 0x1000, CMD_IN = 0x1001, CMD_OUT = 0x1002,
    }
    mod devx_obj_destroy of DEVX_OBJ_DESTROY = "MLX5_IB_ATTR_DEVX_OBJ_DESTROY_" { HANDLE = 0x1000 }
    mod devx_obj_modify of DEVX_OBJ_MODIFY = "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_" {
        HANDLE = 0x1000, CMD_IN = 0x1001, CMD_OUT = 0x1002,
    }
    mod devx_obj_query of DEVX_OBJ_QUERY = "MLX5_IB_ATTR_DEVX_OBJ_QUERY_" {
        HANDLE = 0x1000, CMD_IN = 0x1001, CMD_OUT = 0x1002,
    }
    mod devx_obj_query_async of DEVX_OBJ_ASYNC_QUERY = "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_" {
        HANDLE = 0x1000, CMD_IN = 0x1001, FD = 0x1002, WR_ID = 0x1003, OUT_LEN = 0x1004,
    }
    mod devx_umem_reg of DEVX_UMEM_REG = "MLX5_IB_ATTR_DEVX_UMEM_REG_" {
        HANDLE = 0x1000, ADDR = 0x1001, LEN = 0x1002, ACCESS = 0x1003, OUT_ID = 0x1004,
        PGSZ_BITMAP = 0x1005, DMABUF_FD = 0x1006,
    }
    mod devx_umem_dereg of DEVX_UMEM_DEREG = "MLX5_IB_ATTR_DEVX_UMEM_DEREG_" { HANDLE = 0x1000 }
    mod devx_async_cmd_fd_alloc of DEVX_ASYNC_CMD_FD_ALLOC = "MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_" {
        HANDLE = 0x1000,
    }
    mod devx_async_event_fd_alloc of DEVX_ASYNC_EVENT_FD_ALLOC = "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_" {
        HANDLE = 0x1000, FLAGS = 0x1001,
    }
    mod uar_alloc of UAR_ALLOC = "MLX5_IB_ATTR_UAR_OBJ_ALLOC_" {
        HANDLE = 0x1000, TYPE = 0x1001, MMAP_OFFSET = 0x1002, MMAP_LENGTH = 0x1003,
        PAGE_ID = 0x1004,
    }
    mod uar_destroy of UAR_DESTROY = "MLX5_IB_ATTR_UAR_OBJ_DESTROY_" { HANDLE = 0x1000 }
    mod var_alloc of VAR_ALLOC = "MLX5_IB_ATTR_VAR_OBJ_ALLOC_" {
        HANDLE = 0x1000, MMAP_OFFSET = 0x1001, MMAP_LENGTH = 0x1002, PAGE_ID = 0x1003,
    }
    mod var_destroy of VAR_DESTROY = "MLX5_IB_ATTR_VAR_OBJ_DESTROY_" { HANDLE = 0x1000 }
    mod pp_alloc of PP_ALLOC = "MLX5_IB_ATTR_PP_OBJ_ALLOC_" {
        HANDLE = 0x1000, CTX = 0x1001, FLAGS = 0x1002, INDEX = 0x1003,
    }
    mod pp_destroy of PP_DESTROY = "MLX5_IB_ATTR_PP_OBJ_DESTROY_" { HANDLE = 0x1000 }
    mod uhw = "UVERBS_ATTR_UHW_" { IN = 0x1000, OUT = 0x1001 }
}
