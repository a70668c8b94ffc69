//! Transport interfaces, and tables of receive queues.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::steering::{
    CreateRqtIn, CreateRqtOut, CreateTirIn, CreateTirOut, CreateTisIn, CreateTisOut, DestroyRqtIn,
    DestroyTirIn, DestroyTisIn, HashFields as HashContext, HashFunction, ModifyRqtIn, ModifyTirIn,
    ModifyTisIn, QueryRqtIn, QueryRqtOut, QueryTirIn, QueryTirOut, QueryTisIn, QueryTisOut,
    RqtContext, TirContext, TirDispatch,
};

use crate::engine::{Device, Error, HashConfig, HashFields, TirConfig, TirTarget, TisConfig};
use crate::firmware::{Answer, Failure, Firmware, syndrome};

/// Bytes of a queue's number in a table.
const LISTED: usize = 4;

fn fields(context: &HashContext) -> HashFields {
    HashFields {
        ipv6: context.l3_prot_type(),
        udp: context.l4_prot_type(),
        selected: context.selected_fields(),
    }
}

fn hash(context: &TirContext) -> HashConfig {
    HashConfig {
        toeplitz: HashFunction(context.rx_hash_fn()) == HashFunction::TOEPLITZ,
        symmetric: context.rx_hash_symmetric(),
        key: *context.rx_hash_toeplitz_key(),
        outer: fields(context.rx_hash_field_selector_outer()),
        inner: fields(context.rx_hash_field_selector_inner()),
    }
}

/// The queues of a table, from a command's list.
fn queues(context: &RqtContext, tail: &[u8]) -> Result<Vec<u32>, Failure> {
    let count = context.rqt_actual_size() as usize;
    let list = tail.get(..count * LISTED);
    let list = list.ok_or(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT))?;
    let list = list.as_chunks::<LISTED>().0.iter();
    Ok(list.map(|word| u32::from_be_bytes(*word) & 0xff_ffff).collect())
}

impl Firmware {
    pub(crate) fn create_tir(
        &mut self,
        device: &mut Device,
        input: &CreateTirIn,
        out: &mut CreateTirOut,
    ) -> Answer {
        let context = *input.ctx();
        let target = match TirDispatch(context.disp_type()) {
            TirDispatch::DIRECT => TirTarget::Queue(context.inline_rqn()),
            TirDispatch::INDIRECT => TirTarget::Table(context.indirect_table()),
            _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
        };
        let tirn = device.create_tir(TirConfig {
            target,
            hash: hash(&context),
            own_frames: context.self_lb_block(),
            domain: context.transport_domain(),
            tunneled: context.tunneled_offload_en(),
        })?;
        self.ethernet.tirs.insert(tirn, context);
        out.set_tirn(tirn);
        Ok(())
    }

    pub(crate) fn modify_tir(&mut self, device: &mut Device, input: &ModifyTirIn) -> Answer {
        let context = self.ethernet.tirs.get_mut(&input.tirn()).ok_or(Error::NotFound)?;
        let config = device.tir_mut(input.tirn()).ok_or(Error::NotFound)?;
        let wanted = input.ctx();
        if input.select_self_lb_en() {
            context.set_self_lb_block(wanted.self_lb_block());
            config.own_frames = wanted.self_lb_block();
        }
        if input.select_hash() {
            let (outer, inner) =
                (*wanted.rx_hash_field_selector_outer(), *wanted.rx_hash_field_selector_inner());
            context
                .set_rx_hash_fn(wanted.rx_hash_fn())
                .set_rx_hash_symmetric(wanted.rx_hash_symmetric());
            *context.rx_hash_toeplitz_key_mut() = *wanted.rx_hash_toeplitz_key();
            *context.rx_hash_field_selector_outer_mut() = outer;
            *context.rx_hash_field_selector_inner_mut() = inner;
            config.hash = hash(context);
        }
        Ok(())
    }

    pub(crate) fn query_tir(&mut self, input: &QueryTirIn, out: &mut QueryTirOut) -> Answer {
        *out.tir_context_mut() = *self.ethernet.tirs.get(&input.tirn()).ok_or(Error::NotFound)?;
        Ok(())
    }

    pub(crate) fn destroy_tir(&mut self, device: &mut Device, input: &DestroyTirIn) -> Answer {
        device.destroy_tir(input.tirn())?;
        self.ethernet.tirs.remove(&input.tirn());
        Ok(())
    }

    pub(crate) fn create_tis(
        &mut self,
        device: &mut Device,
        input: &CreateTisIn,
        out: &mut CreateTisOut,
    ) -> Answer {
        let context = *input.ctx();
        let tisn = device.create_tis(TisConfig {
            domain: context.transport_domain(),
            priority: context.prio() as u8,
            port: context.lag_tx_port_affinity() as u8,
        })?;
        self.ethernet.tises.insert(tisn, context);
        out.set_tisn(tisn);
        Ok(())
    }

    pub(crate) fn modify_tis(&mut self, device: &mut Device, input: &ModifyTisIn) -> Answer {
        let context = self.ethernet.tises.get_mut(&input.tisn()).ok_or(Error::NotFound)?;
        let config = device.tis_mut(input.tisn()).ok_or(Error::NotFound)?;
        let wanted = input.ctx();
        if input.select_prio() {
            context.set_prio(wanted.prio());
            config.priority = wanted.prio() as u8;
        }
        if input.select_lag_tx_port_affinity() {
            context.set_lag_tx_port_affinity(wanted.lag_tx_port_affinity());
            config.port = wanted.lag_tx_port_affinity() as u8;
        }
        Ok(())
    }

    pub(crate) fn query_tis(&mut self, input: &QueryTisIn, out: &mut QueryTisOut) -> Answer {
        *out.tis_context_mut() = *self.ethernet.tises.get(&input.tisn()).ok_or(Error::NotFound)?;
        Ok(())
    }

    pub(crate) fn destroy_tis(&mut self, device: &mut Device, input: &DestroyTisIn) -> Answer {
        device.destroy_tis(input.tisn())?;
        self.ethernet.tises.remove(&input.tisn());
        Ok(())
    }
}

pub(crate) fn create_rqt(
    device: &mut Device,
    input: &CreateRqtIn,
    tail: &[u8],
    out: &mut CreateRqtOut,
) -> Answer {
    let context = input.rqt_context();
    if context.rqt_actual_size() > context.rqt_max_size() {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    out.set_rqtn(device.create_rqt(queues(context, tail)?)?);
    Ok(())
}

pub(crate) fn modify_rqt(device: &mut Device, input: &ModifyRqtIn, tail: &[u8]) -> Answer {
    device.rqt(input.rqtn()).ok_or(Error::NotFound)?;
    if input.select_rqn_list() {
        device.set_rqt(input.rqtn(), queues(input.rqt_context(), tail)?)?;
    }
    Ok(())
}

pub(crate) fn query_rqt(
    device: &Device,
    input: &QueryRqtIn,
    out: &mut QueryRqtOut,
    tail: &mut [u8],
) -> Answer {
    let queues = device.rqt(input.rqtn()).ok_or(Error::NotFound)?;
    let count = queues.len() as u32;
    out.rqt_context_mut().set_rqt_max_size(count).set_rqt_actual_size(count);
    for (slot, rqn) in tail.chunks_exact_mut(LISTED).zip(queues) {
        slot.copy_from_slice(&rqn.to_be_bytes());
    }
    Ok(())
}

pub(crate) fn destroy_rqt(device: &mut Device, input: &DestroyRqtIn) -> Answer {
    Ok(device.destroy_rqt(input.rqtn())?)
}
