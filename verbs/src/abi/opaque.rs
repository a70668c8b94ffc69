//! Structures of which `infiniband/verbs.h` tells only the name, or which nothing here looks into.

use super::types::opaque;

opaque! {
    ibv_buf
    ibv_flow_action_esp
    ibv_flow_action_esp_encap
    verbs_ex_private
}
