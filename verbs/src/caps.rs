//! Capabilities of the firmware.

use crate::context::ContextObject;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_uapi::cmd::devx;

/// Returns the firmware's capabilities of a group, if the context may query them.
pub(crate) fn capabilities(
    context: &ContextObject,
    group: CapGroup,
) -> Option<Box<QueryHcaCapOut>> {
    if !context.context.has_devx() {
        return None;
    }
    let mut request = QueryHcaCapIn::request();
    request.set_op_mod(group.op_mod(CapMode::CURRENT));
    let mut answer = Box::new(QueryHcaCapOut::default());
    // SAFETY: the command names no memory or object and changes nothing.
    unsafe { devx::general_cmd(context.file(), request.as_bytes(), answer.as_bytes_mut()) }.ok()?;
    Some(answer)
}
