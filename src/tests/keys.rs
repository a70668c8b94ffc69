//! Memory keys, where it takes a look at what the device is asked for.

use super::*;
use crate::testing::Altered;
use mlx5_prm::cmd::mkey::CreateMkeyIn;
use mlx5_uapi::ioctl::{attr, method};
use std::sync::{Arc, Mutex};
use zerocopy::FromBytes;

/// Room for one block signature of 64 bytes, in units of 16; a key without has none.
#[test]
fn a_key_for_signatures_asks_for_room_for_one() {
    let simulator = Simulator::new(infiniband());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&asked);
    let kernel = Altered::new(simulator.kernel(), move |call| {
        if call.method == method::DEVX_OBJ_CREATE {
            let bytes = call.input(attr::devx_obj_create::CMD_IN);
            if let Ok((request, _)) = CreateMkeyIn::read_from_prefix(bytes) {
                list.lock()
                    .unwrap()
                    .push((request.mkc().bsf_en(), request.mkc().bsf_octword_size()));
            }
        }
        call.pass()
    });
    let pd = devices_on(kernel).unwrap()[0].open().unwrap().alloc_pd().unwrap();
    let plain = pd.create_mkey(4).build().unwrap();
    assert_eq!(*asked.lock().unwrap(), [(false, 0)]);
    let signed = pd.create_mkey(4).block_signature().build().unwrap();
    assert_eq!(asked.lock().unwrap().last(), Some(&(true, 4)));
    drop((plain, signed));
}
