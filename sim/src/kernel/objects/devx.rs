//! Objects that user space made with commands, and memory registered for them.

use mlx5_prm::cmd::CommandOpcode;
use mlx5_uapi::Errno;

use crate::kernel::hca::Hca;
use crate::kernel::lock;
use crate::kernel::mailbox::{NUMBER, Place, put};
use crate::kernel::steered::Target;

/// A firmware object that a command made.
#[derive(Debug)]
pub(crate) struct DevxObject {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) uid: u32,
}

/// A kind of object: the commands that make and end it, and the positions of its number in the
/// output of the first and the input of the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) create: CommandOpcode,
    pub(crate) destroy: CommandOpcode,
    pub(crate) made: Place,
    pub(crate) named: Place,
}

/// Memory registered for firmware objects.
#[derive(Debug)]
pub(crate) struct Umem {
    pub(crate) number: u32,
}

impl DevxObject {
    /// The object as a target of flow rules.
    pub(crate) fn flow_target(&self) -> Result<Target, Errno> {
        match self.kind.create {
            CommandOpcode::CREATE_TIR => Ok(Target::Tir(self.number)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The number of a flow counter.
    pub(crate) fn flow_counter(&self) -> Result<u32, Errno> {
        match self.kind.create {
            CommandOpcode::ALLOC_FLOW_COUNTER => Ok(self.number),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Ends the object, and the subscriptions to its events.
    pub(crate) fn end(&self, hca: &Hca) -> Result<(), Errno> {
        let mut input = [0; 16];
        put(&mut input, (0, 16), self.kind.destroy.0);
        put(&mut input, (16, 16), self.uid);
        put(&mut input, self.kind.named, self.number);
        hca.command_raw::<16>(&input)?;
        lock(&hca.hub.routes).devx.end_object(self.kind.create, self.number);
        Ok(())
    }
}

impl Umem {
    /// Deregisters the memory.
    pub(crate) fn end(&self, hca: &Hca) -> Result<(), Errno> {
        let mut input = [0; 16];
        put(&mut input, (0, 16), CommandOpcode::DESTROY_UMEM.0);
        put(&mut input, NUMBER, self.number);
        hca.command_raw::<16>(&input).map(drop)
    }
}
