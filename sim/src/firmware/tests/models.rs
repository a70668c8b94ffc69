//! The capabilities of the models, and the requests that they refuse for want of one.

use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn};
use mlx5_prm::cmd::qp::{
    Init2InitQpIn, OptParamMask, Rst2InitQpIn, ServiceType, TimestampFormat, TimestampFormatCap,
};
use mlx5_prm::cmd::{CommandInput, CommandStatus};

use super::{Rig, refused};
use crate::firmware::syndrome;
use crate::{Model, SimConfig};

fn rig(model: Model) -> Rig {
    Rig::new(SimConfig::new().model(model).ports([model.port()]))
}

#[test]
fn a_model_reports_what_the_table_gives_it() {
    for model in Model::ALL {
        let mut input = QueryHcaCapIn::request();
        input.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::MAX));
        let told = rig(model).run(&input);
        let (caps, has) = (told.hca_cap(), model.capabilities());
        assert!(caps.sho() && caps.compact_address_vector(), "{model:?}");
        assert_eq!(caps.sigerr_domain_and_sig_type(), has.block_signatures, "{model:?}");
        assert_eq!(caps.sig_crc32c(), has.crc32c, "{model:?}");
        assert_eq!(caps.sig_crc64_xp10(), has.crc64_xp10, "{model:?}");
        assert_eq!(caps.sig_block_4048(), has.block_4048, "{model:?}");
        assert_eq!(caps.drain_sigerr(), has.drain_sigerr, "{model:?}");
        assert_eq!(caps.qp_data_in_order(), has.data_in_order, "{model:?}");
        let tags = has.tag_matching && (has.infiniband || has.ethernet_tags);
        assert_eq!(caps.tag_matching(), tags, "{model:?}");
        assert_eq!(caps.device_frequency_khz(), has.clock_khz, "{model:?}");
        assert_eq!(caps.device_frequency_mhz(), has.clock_khz / 1000, "{model:?}");
        assert_eq!(caps.log_max_qp(), has.log_qps.into(), "{model:?}");
        let real_time = TimestampFormatCap(caps.sq_ts_format()) != TimestampFormatCap::FREE_RUNNING;
        assert_eq!(real_time, has.real_time, "{model:?}");
    }
}

#[test]
fn a_queue_drains_on_signature_errors_where_the_model_does() {
    for model in Model::ALL {
        let mut rig = rig(model);
        let qpn = rig.qp(ServiceType::RC);
        let mut init = Rst2InitQpIn::request();
        init.set_qpn(qpn).qpc_mut().primary_address_path_mut().set_vhca_port_num(1);
        rig.run(&init);
        let mut drain = Init2InitQpIn::request();
        drain.set_qpn(qpn).set_opt_param_mask(OptParamMask::DRAIN_SIGERR.bits());
        drain.qpc_mut().set_drain_sigerr(true);
        let done = rig.try_run(&drain).map(drop);
        let no = Err((CommandStatus::BAD_PARAM_ERR, syndrome::INVALID_VALUE));
        let expected = if model.capabilities().drain_sigerr { Ok(()) } else { no };
        assert_eq!(done, expected, "{model:?}");
    }
}

#[test]
fn completions_tell_the_time_of_day_where_the_model_does() {
    for model in Model::ALL {
        let mut rig = rig(model);
        let (pd, cqn) = (rig.pd(), rig.cq());
        let mut input = rig.qp_input(ServiceType::RC, pd, cqn);
        input.qpc_mut().set_ts_format(TimestampFormat::REAL_TIME.0);
        let made = rig.try_run(&input);
        match model.capabilities().real_time {
            true => drop(made.expect("a queue pair")),
            false => assert_eq!(refused(made).1, syndrome::INVALID_VALUE, "{model:?}"),
        }
    }
}
