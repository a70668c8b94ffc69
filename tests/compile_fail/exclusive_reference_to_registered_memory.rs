//! There is no `&mut` to memory that is registered, and what is borrowed from it is read only.

use mlx5::{Error, MemoryRegion};

fn scribble(region: &mut MemoryRegion) -> Result<(), Error> {
    let bytes: &mut [u8] = region.as_slice()?;
    bytes[0] = 1;
    Ok(())
}

fn main() {}
