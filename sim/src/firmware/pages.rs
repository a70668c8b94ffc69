//! Host pages for the firmware's objects: supply and return.

use std::collections::BTreeSet;

use mlx5_prm::cmd::hca::{
    ManagePagesIn, ManagePagesMode, ManagePagesOut, QueryPagesIn, QueryPagesMode, QueryPagesOut,
};
use mlx5_prm::fields::{addresses, addresses_mut};

use crate::firmware::{Answer, Counts, Failure, Firmware, syndrome};

/// Pages that the firmware needs to boot, and to start.
const BOOT_PAGES: u32 = 16;
const INIT_PAGES: u32 = 48;
/// Objects whose contexts fill a page.
const OBJECTS_A_PAGE: usize = 16;
/// Pages that are requested, or returned, at once.
const BATCH: i64 = 16;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// The pages that a driver has given.
#[derive(Debug, Default)]
pub(super) struct Pages {
    held: BTreeSet<u64>,
    /// Pages requested, or offered back if negative, to which the driver has not yet reacted.
    announced: i64,
}

impl Pages {
    /// Number of the pages.
    pub(super) fn count(&self) -> usize {
        self.held.len()
    }
}

impl Firmware {
    pub(super) fn query_pages(&mut self, input: &QueryPagesIn, out: &mut QueryPagesOut) -> Answer {
        let pages = match QueryPagesMode(input.op_mod()) {
            QueryPagesMode::BOOT => BOOT_PAGES,
            QueryPagesMode::INIT => INIT_PAGES,
            QueryPagesMode::REGULAR => 0,
            _ => return Err(Failure::param(syndrome::UNKNOWN_MODIFIER)),
        };
        out.set_function_id(input.function_id()).set_num_pages(pages);
        Ok(())
    }

    pub(super) fn manage_pages(
        &mut self,
        input: &ManagePagesIn,
        tail: &[u8],
        out: &mut ManagePagesOut,
        out_tail: &mut [u8],
    ) -> Answer {
        let count = input.input_num_entries() as usize;
        match ManagePagesMode(input.op_mod()) {
            ManagePagesMode::ALLOCATION_SUCCESS => {
                let given =
                    addresses(tail).get(..count).ok_or(Failure::param(syndrome::TOO_FEW_PAGES))?;
                let given: BTreeSet<u64> = given.iter().map(|page| page.get()).collect();
                let fits =
                    |page: &u64| page.is_multiple_of(PAGE) && !self.pages.held.contains(page);
                if given.len() < count || !given.iter().all(fits) {
                    return Err(Failure::param(syndrome::UNALIGNED_PAGE));
                }
                self.pages.announced = (self.pages.announced - count as i64).max(0);
                self.pages.held.extend(given);
                Ok(())
            }
            ManagePagesMode::ALLOCATION_FAIL => {
                self.pages.announced = 0;
                Ok(())
            }
            ManagePagesMode::HCA_RETURN_PAGES => {
                let places = addresses_mut(out_tail);
                let count = count.min(places.len()).min(self.pages.held.len());
                for place in &mut places[..count] {
                    place.set(self.pages.held.pop_last().unwrap_or_default());
                }
                self.pages.announced = (self.pages.announced + count as i64).min(0);
                out.set_output_num_entries(count as u32);
                Ok(())
            }
            _ => Err(Failure::param(syndrome::UNKNOWN_MODIFIER)),
        }
    }

    /// Requests pages when there are more objects, and offers some back when there are far fewer.
    pub(super) fn balance_pages(&mut self, counts: &Counts) {
        let Some(rings) = self.rings.as_ref() else { return };
        if !self.initialized || self.pages.announced != 0 {
            return;
        }
        let objects = counts.qps + counts.cqs + counts.mkeys + counts.srqs;
        let wanted = i64::from(BOOT_PAGES + INIT_PAGES) + (objects / OBJECTS_A_PAGE) as i64;
        let missing = wanted - self.pages.held.len() as i64;
        let pages = match missing {
            1.. => (missing + BATCH - 1) / BATCH * BATCH,
            // One batch is kept for new objects.
            _ => (missing + BATCH).min(0) / BATCH * BATCH,
        };
        if pages != 0 && rings.request_pages(pages as i32) {
            self.pages.announced = pages;
        }
    }
}
