//! Memory keys: tests that check the commands sent to the device.

use super::*;
use crate::testing::Altered;
use mlx5_prm::cmd::mkey::CreateMkeyIn;
use mlx5_uapi::ioctl::{attr, method};
use std::sync::{Arc, Mutex};
use zerocopy::FromBytes;

/// Room for one block signature of 64 bytes, in units of 16; a key without signatures has none.
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

/// A key for signatures takes two variables and the key itself; if one cannot be made, the others
/// are destroyed.
#[test]
fn a_key_that_cannot_be_made_leaves_nothing() {
    for failing in 0..3 {
        let simulator = Simulator::new(infiniband());
        let calls = Arc::new(Mutex::new(0));
        let count = Arc::clone(&calls);
        let kernel = Altered::new(simulator.kernel(), move |call| {
            if call.method == method::DEVX_OBJ_CREATE {
                let mut count = count.lock().unwrap();
                *count += 1;
                if *count == failing + 1 {
                    return Err(mlx5_uapi::Errno::ENOMEM);
                }
            }
            call.pass()
        });
        let pd = devices_on(kernel).unwrap()[0].open().unwrap().alloc_pd().unwrap();
        *calls.lock().unwrap() = 0;
        let before = simulator.object_counts(0);
        pd.create_mkey(4).block_signature().build().unwrap_err();
        assert_eq!(*calls.lock().unwrap(), failing + 1);
        assert_eq!(simulator.object_counts(0), before, "object {failing} cannot be made");
    }
}
