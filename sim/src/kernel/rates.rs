//! The driver's table of rate limits: queues with the same limit share its entry.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::{PpRateLimitContext, QosCaps, SetPpRateLimitIn};
use mlx5_uapi::Errno;

use crate::firmware::qos_caps;

/// A limit as a program gives it. A rate of zero means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) kilobits: u32,
    pub(crate) burst: u32,
    pub(crate) typical_packet: u16,
}

impl Rate {
    /// The limit as the device has it.
    pub(crate) fn context(self) -> PpRateLimitContext {
        let mut context = PpRateLimitContext::default();
        context
            .set_rate_limit(self.kilobits)
            .set_burst_upper_bound(self.burst)
            .set_typical_packet_size(self.typical_packet.into());
        context
    }
}

/// An entry of the table.
#[derive(Clone, Debug, Default)]
struct Entry {
    limit: PpRateLimitContext,
    /// The user context that it belongs to; zero for the driver's own.
    uid: u32,
    /// Its user asked for an entry that is not shared.
    dedicated: bool,
    users: u32,
}

impl Entry {
    /// Whether another user with the same limit takes this entry.
    fn serves(&self, limit: &PpRateLimitContext, uid: u32) -> bool {
        self.users > 0
            && !self.dedicated
            && self.uid == uid
            && self.limit.as_bytes() == limit.as_bytes()
    }

    /// The command that writes the entry with this index.
    fn command(&self, index: u32) -> SetPpRateLimitIn {
        let mut input = SetPpRateLimitIn::request();
        input.set_uid(self.uid).set_rate_limit_index(index);
        *input.ctx_mut() = self.limit;
        input
    }
}

/// The table: the device's index zero is not in it.
#[derive(Debug, Default)]
pub(crate) struct Rates(Vec<Entry>);

/// The device's capabilities of rate limits.
pub(crate) fn caps() -> QosCaps {
    let mut caps = QosCaps::default();
    qos_caps(&mut caps);
    caps
}

impl Rates {
    /// Takes a share in the entry of a limit, and returns the device's index of it. Makes an entry
    /// if there is none, or if the user wants a dedicated one.
    pub(crate) fn add(
        &mut self,
        limit: PpRateLimitContext,
        uid: u32,
        dedicated: bool,
        set: impl FnOnce(&SetPpRateLimitIn) -> Result<(), Errno>,
    ) -> Result<u32, Errno> {
        let caps = caps();
        let all = caps.packet_pacing_min_rate()..=caps.packet_pacing_max_rate();
        if limit.rate_limit() == 0 || !all.contains(&limit.rate_limit()) {
            return Err(Errno::EINVAL);
        }
        let Self(entries) = self;
        let shared = entries.iter().position(|entry| !dedicated && entry.serves(&limit, uid));
        if let Some(place) = shared {
            entries[place].users += 1;
            return Ok(place as u32 + 1);
        }
        let place = match entries.iter().position(|entry| entry.users == 0) {
            Some(place) => place,
            None if entries.len() as u32 + 1 < caps.packet_pacing_rate_table_size() => {
                entries.push(Entry::default());
                entries.len() - 1
            }
            None => return Err(Errno::ENOSPC),
        };
        let entry = Entry { limit, uid, dedicated, users: 1 };
        set(&entry.command(place as u32 + 1))?;
        entries[place] = entry;
        Ok(place as u32 + 1)
    }

    /// Releases a share in the driver's own entry of a limit.
    pub(crate) fn remove(
        &mut self,
        rate: Rate,
        set: impl FnOnce(&SetPpRateLimitIn) -> Result<(), Errno>,
    ) {
        let limit = rate.context();
        if let Some(place) = self.0.iter().position(|entry| entry.serves(&limit, 0)) {
            self.release(place as u32 + 1, set);
        }
    }

    /// Releases a share in an entry; the last one removes the entry.
    pub(crate) fn release(
        &mut self,
        index: u32,
        set: impl FnOnce(&SetPpRateLimitIn) -> Result<(), Errno>,
    ) {
        let Some(entry) = self.0.get_mut(index as usize - 1) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            *entry = Entry::default();
            // If the device does not answer, the driver drops the entry nevertheless.
            let _ = set(&entry.command(index));
        }
    }
}
