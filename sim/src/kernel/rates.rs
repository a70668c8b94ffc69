//! The driver's table of rate limits: queues with the same one share its entry.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::{QosCaps, SetPpRateLimitIn};
use mlx5_uapi::Errno;

use crate::firmware::qos_caps;

/// A limit as a program gives it. A rate of zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) kilobits: u32,
    pub(crate) burst: u32,
    pub(crate) typical_packet: u16,
}

/// The table: each entry with the number of its users. The device's index zero is not in it.
#[derive(Debug, Default)]
pub(crate) struct Rates(Vec<(Rate, u32)>);

/// What the device has of rate limits.
pub(crate) fn caps() -> QosCaps {
    let mut caps = QosCaps::default();
    qos_caps(&mut caps);
    caps
}

/// The command that writes an entry.
fn command(place: usize, rate: Rate) -> SetPpRateLimitIn {
    let mut input = SetPpRateLimitIn::request();
    input.set_rate_limit_index(place as u32 + 1);
    input
        .ctx_mut()
        .set_rate_limit(rate.kilobits)
        .set_burst_upper_bound(rate.burst)
        .set_typical_packet_size(rate.typical_packet.into());
    input
}

impl Rates {
    /// Takes a share in the entry of a limit, which is made if there is none; the device's index of it.
    pub(crate) fn add(
        &mut self,
        rate: Rate,
        set: impl FnOnce(&SetPpRateLimitIn) -> Result<(), Errno>,
    ) -> Result<u32, Errno> {
        let caps = caps();
        let all = caps.packet_pacing_min_rate()..=caps.packet_pacing_max_rate();
        if !all.contains(&rate.kilobits) {
            return Err(Errno::EINVAL);
        }
        let Self(entries) = self;
        let shared = entries.iter().position(|(is, users)| *is == rate && *users > 0);
        let place = match shared.or_else(|| entries.iter().position(|(_, users)| *users == 0)) {
            Some(place) => place,
            None if entries.len() as u32 + 1 < caps.packet_pacing_rate_table_size() => {
                entries.push(Default::default());
                entries.len() - 1
            }
            None => return Err(Errno::ENOSPC),
        };
        if shared.is_none() {
            set(&command(place, rate))?;
            entries[place].0 = rate;
        }
        entries[place].1 += 1;
        Ok(place as u32 + 1)
    }

    /// Gives a share in the entry of a limit back; the last one takes the entry out.
    pub(crate) fn remove(
        &mut self,
        rate: Rate,
        set: impl FnOnce(&SetPpRateLimitIn) -> Result<(), Errno>,
    ) {
        let mut entries = self.0.iter_mut().enumerate();
        let entry = entries.find(|(_, (is, users))| *is == rate && *users > 0);
        if let Some((place, (_, users))) = entry {
            *users -= 1;
            if *users == 0 {
                // The driver leaves the entry where the device does not answer.
                let _ = set(&command(place, Rate::default()));
            }
        }
    }
}
