//! XRC domains, and queue pairs that live in them.

use std::fs::File;
use std::os::fd::AsFd;

use mlx5_uapi::Errno;
use mlx5_uapi::cmd::xrcd;
use nix::fcntl::OFlag;

use super::rig::open;
use crate::firmware::Counts;
use crate::{SimConfig, Simulator};

const CREATE: u32 = OFlag::O_CREAT.bits() as u32;
const EXCLUSIVE: u32 = (OFlag::O_CREAT.bits() | OFlag::O_EXCL.bits()) as u32;

#[test]
fn a_domain_is_shared_by_who_can_open_its_file_until_the_last_closes_it() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let (one, other) = (open(&sim, 0).expect("a context"), open(&sim, 0).expect("a context"));
    let path = std::env::current_exe().expect("this program");
    let (first, again) = (File::open(&path).expect("a file"), File::open(&path).expect("a file"));

    assert_eq!(xrcd::open(&*one, Some(first.as_fd()), 0), Err(Errno::EAGAIN), "not created yet");
    let mine = xrcd::open(&*one, Some(first.as_fd()), EXCLUSIVE).expect("a domain");
    let theirs = xrcd::open(&*other, Some(again.as_fd()), 0).expect("the same domain");
    assert_eq!(xrcd::open(&*one, Some(first.as_fd()), EXCLUSIVE), Err(Errno::EINVAL));
    let third = xrcd::open(&*one, Some(first.as_fd()), CREATE).expect("the same domain");
    let private = xrcd::open(&*one, None, 0).expect("a domain");
    assert_eq!(sim.object_counts(0).xrcds, 2);

    xrcd::close(&*one, mine).expect("not the last");
    xrcd::close(&*other, theirs).expect("not the last");
    assert_eq!(sim.object_counts(0).xrcds, 2);
    xrcd::close(&*one, third).expect("the last");
    assert_eq!(sim.object_counts(0).xrcds, 1);
    xrcd::close(&*one, private).expect("its only handle");
    drop((one, other));
    assert_eq!(sim.object_counts(0), Counts::default());
}
