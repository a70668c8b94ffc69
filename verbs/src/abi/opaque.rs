//! Structures that `infiniband/verbs.h` declares without fields, or whose fields this library never
//! reads.

use super::types::opaque;

opaque! {
    ibv_buf
    ibv_flow_action_esp
    ibv_flow_action_esp_encap
    verbs_ex_private
}
