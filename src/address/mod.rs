//! Where messages go: paths and address handles.

mod handle;
mod path;

pub use handle::{AddressHandle, Received};
pub use path::{AhAttr, GlobalRoute};
