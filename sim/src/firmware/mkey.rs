//! Memory keys and signature PSVs.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::mkey::{
    CreateMkeyIn, CreateMkeyOut, CreatePsvIn, CreatePsvOut, DestroyMkeyIn, MkeyAccessMode,
    MkeyContext, QueryMkeyIn, QueryMkeyOut,
};
use mlx5_prm::fields::addresses;

use crate::dma::Buffer;
use crate::engine::state::signature::Signatures;
use crate::engine::{Access, Device, Error, Layout, MkeyConfig, Translation};
use crate::firmware::{Answer, Failure, Firmware, buffer, syndrome};

/// The most PSVs that one command makes.
const PSVS_AT_ONCE: u32 = 4;
/// Low bits of a translation entry that give its rights.
const ENTRY_RIGHTS: u64 = 0xfff;
/// Bytes of the unit in which lists are counted; an entry of a page table has eight.
const OCTWORD: u64 = 16;
const PAGES_IN_OCTWORD: usize = 2;
/// The most octwords of a key's translation.
const MOST_OCTWORDS: u32 = 1 << 20;
/// The queue pair number that stands for any.
const ANY_QPN: u32 = 0xff_ffff;

/// The translation entries in a command.
fn listed<'a>(input: &CreateMkeyIn, tail: &'a [u8]) -> Result<&'a [u8], Failure> {
    let listed = u64::from(input.translations_octword_actual_size()) * OCTWORD;
    let listed = usize::try_from(listed).ok().and_then(|bytes| tail.get(..bytes));
    listed.ok_or(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::TOO_FEW_PAGES))
}

fn access(mkc: &MkeyContext) -> Access {
    [
        (mkc.lr(), Access::LOCAL_READ),
        (mkc.lw(), Access::LOCAL_WRITE),
        (mkc.rr(), Access::REMOTE_READ),
        (mkc.rw(), Access::REMOTE_WRITE),
        (mkc.a(), Access::REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter_map(|(set, right)| set.then_some(right))
    .collect()
}

impl Firmware {
    pub(super) fn create_mkey(
        &mut self,
        device: &mut Device,
        input: &CreateMkeyIn,
        tail: &[u8],
        out: &mut CreateMkeyOut,
    ) -> Answer {
        let mkc = *input.mkc();
        if device.pds.get(mkc.pd()).is_none() {
            return Err(Error::NotFound.into());
        }
        if mkc.translations_octword_size() > MOST_OCTWORDS {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let length = if mkc.length64() { u64::MAX } else { mkc.len() };
        if !mkc.length64() && mkc.start_addr().checked_add(length).is_none() {
            return Err(Failure::param(syndrome::ADDRESS_RANGE));
        }
        let translation = match mkc.access_mode() {
            MkeyAccessMode::PA => Translation::Physical,
            MkeyAccessMode::MTT if !mkc.free() => {
                let log = mkc.log_page_size();
                let offset = mkc.start_addr() & ((1 << log) - 1);
                let listed = listed(input, tail)?;
                Translation::Buffer(buffer::pages(listed, log, offset, length, ENTRY_RIGHTS)?)
            }
            MkeyAccessMode::MEMIC => {
                let address = self.memic.address(mkc.start_addr(), length);
                let address = address.ok_or(Failure::param(syndrome::ADDRESS_RANGE))?;
                Translation::Buffer(Buffer::contiguous(address))
            }
            // A free key has the entries of its command until a request fills it in.
            MkeyAccessMode::MTT => {
                let count = mkc.translations_octword_size() as usize * PAGES_IN_OCTWORD;
                let mut pages: Vec<u64> = addresses(listed(input, tail)?)
                    .iter()
                    .map(|page| page.get() & !ENTRY_RIGHTS)
                    .collect();
                pages.resize(count, 0);
                let log = mkc.log_page_size();
                let offset = mkc.start_addr() & ((1 << log) - 1);
                Translation::Buffer(Buffer::paged(pages, log as u8, offset))
            }
            MkeyAccessMode::KLMS => Translation::Indirect(Layout::list(listed(input, tail)?)),
            MkeyAccessMode::KSM => Translation::Indirect(Layout::uniform(
                listed(input, tail)?,
                1 << mkc.log_page_size(),
            )),
            _ => return Err(Failure::param(syndrome::ACCESS_MODE)),
        };
        let key = device.create_mkey(MkeyConfig {
            tag: mkc.mkey_7_0() as u8,
            pd: mkc.pd(),
            access: access(&mkc),
            // Addresses in device memory count from the start of the key.
            start: if mkc.access_mode() == MkeyAccessMode::MEMIC { 0 } else { mkc.start_addr() },
            length,
            translation,
            translation_octwords: mkc.translations_octword_size(),
            qpn: (mkc.qpn() != ANY_QPN).then_some(mkc.qpn()),
            umr: mkc.umr_en(),
            free: mkc.free(),
            remote_invalidate: mkc.en_rinval(),
            signatures: Signatures {
                enabled: mkc.bsf_en(),
                octwords: mkc.bsf_octword_size(),
                expected: mkc.expected_sigerr_count(),
                ..Signatures::default()
            },
        })?;
        self.mkeys.insert(key >> 8, mkc);
        out.set_mkey_index(key >> 8);
        Ok(())
    }

    /// Changes the domain and the rights of a key in use, as the kernel's own UMR requests do.
    pub(crate) fn change_mkey(
        &mut self,
        device: &mut Device,
        index: u32,
        change: impl FnOnce(&mut MkeyContext),
    ) -> Result<(), Error> {
        let mkc = self.mkeys.get_mut(&index).ok_or(Error::NotFound)?;
        let key = device.mkeys.get_mut(index).ok_or(Error::NotFound)?;
        change(mkc);
        (key.pd, key.access) = (mkc.pd(), access(mkc));
        Ok(())
    }

    /// The context as it was created, with later changes by requests.
    pub(super) fn query_mkey(
        &mut self,
        device: &Device,
        input: &QueryMkeyIn,
        out: &mut QueryMkeyOut,
    ) -> Answer {
        let now = device.mkey(input.mkey_index()).ok_or(Error::NotFound)?;
        *out.mkc_mut() = *self.mkeys.get(&input.mkey_index()).ok_or(Error::NotFound)?;
        out.mkc_mut()
            .set_free(now.free)
            .set_mkey_7_0(now.tag.into())
            .set_qpn(now.qpn.unwrap_or(ANY_QPN))
            .set_pd(now.pd)
            .set_lr(now.access.contains(Access::LOCAL_READ))
            .set_lw(now.access.contains(Access::LOCAL_WRITE))
            .set_rr(now.access.contains(Access::REMOTE_READ))
            .set_rw(now.access.contains(Access::REMOTE_WRITE))
            .set_a(now.access.contains(Access::REMOTE_ATOMIC))
            .set_length64(now.length == u64::MAX)
            .set_bsf_en(now.signatures.enabled)
            .set_expected_sigerr_count(now.signatures.expected);
        if now.length != u64::MAX {
            out.mkc_mut().set_len(now.length);
        }
        // The context of a key of device memory has the address there.
        if out.mkc().access_mode() != MkeyAccessMode::MEMIC {
            out.mkc_mut().set_start_addr(now.start);
        }
        Ok(())
    }

    pub(super) fn destroy_mkey(&mut self, device: &mut Device, input: &DestroyMkeyIn) -> Answer {
        device.destroy_mkey(input.mkey_index())?;
        self.mkeys.remove(&input.mkey_index());
        Ok(())
    }

    pub(super) fn create_psv(
        &mut self,
        device: &mut Device,
        input: &CreatePsvIn,
        out: &mut CreatePsvOut,
    ) -> Answer {
        let count = input.num_psv();
        if count == 0 || count > PSVS_AT_ONCE {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let set = [
            CreatePsvOut::set_psv0_index,
            CreatePsvOut::set_psv1_index,
            CreatePsvOut::set_psv2_index,
            CreatePsvOut::set_psv3_index,
        ];
        let mut made = Vec::new();
        for set in &set[..count as usize] {
            match device.create_psv(input.pd()) {
                Ok(number) => {
                    made.push(number);
                    set(out, number);
                }
                Err(error) => {
                    for number in made {
                        device.destroy_psv(number)?;
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}
