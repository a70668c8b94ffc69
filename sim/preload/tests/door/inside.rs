//! The cases, as they run with the library preloaded.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::ExitCode;
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{
    CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint, LocalPort, MemoryRegion,
    Psn, QueuePair, ReceiveWr, SendFlags,
};

use mlx5_uapi::cmd::{self, qp::CreateQp};
use mlx5_uapi::mlx5::{AllocUcontextReqV2, LibCaps, UcontextFlags};
use mlx5_uapi::verbs::{QpCap, QpCreateFlags, QpType};
use mlx5_uapi::{Errno, Kernel, LinuxKernel, sysfs};

use crate::channels::{
    a_call_that_waits_for_an_event_waits, a_channel_takes_calls_and_brings_events,
    an_identifier_leaves_one_channel_for_another,
};

pub(crate) type Outcome = Result<(), Box<dyn Error>>;
/// The code of a case.
type Body = fn() -> Outcome;

/// A case, and the settings that it runs with.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) settings: &'static str,
    body: Body,
}

/// One case a line.
macro_rules! cases {
    ($($name:ident, $settings:literal;)*) => {
        pub(crate) const CASES: &[Case] = &[
            $(Case { name: stringify!($name), settings: $settings, body: $name }),*
        ];
    };
}

cases! {
    devices_are_found, "devices=2";
    the_tree_can_be_walked, "devices=2";
    nodes_are_character_devices, "devices=2";
    a_path_is_shown_as_the_machine_s, "";
    a_device_is_as_the_settings_say, "model=cx6dx,link=roce+ib";
    messages_go_from_one_queue_pair_to_another, "";
    messages_go_over_roce, "link=roce,memory=checked";
    messages_go_between_devices, "devices=2";
    a_read_waits_for_an_event, "";
    a_read_that_must_not_wait_does_not, "";
    a_copied_descriptor_is_the_same_device, "";
    a_call_that_is_none_of_the_device_s_is_refused, "";
    calls_that_the_device_does_not_know_are_refused, "";
    a_device_cannot_be_read_or_written, "";
    a_child_has_a_machine_of_its_own, "";
    what_a_child_in_this_memory_closes_stays_open_here, "";
    a_call_by_its_number_is_the_device_s, "";
    a_call_past_the_library_maps_nothing, "";
    a_channel_takes_calls_and_brings_events, "link=roce";
    an_identifier_leaves_one_channel_for_another, "link=roce";
    a_call_that_waits_for_an_event_waits, "link=roce";
}

/// Not run by itself: it ends without cleanup.
fn a_program_may_die_at_any_time() -> Outcome {
    mlx5::devices()?;
    // SAFETY: ends the process at once, as a fault would.
    unsafe { libc::_exit(1) }
}

/// Cases that need a machine that other processes share.
const SHARED: [(&str, Body); 5] = [
    ("one_end", one_end),
    ("one_end_with_events", one_end_with_events),
    ("dies_with_objects", dies_with_objects),
    ("a_child_has_what_its_parent_opened", a_child_has_what_its_parent_opened),
    (
        "what_a_child_s_child_in_its_memory_closes_stays_inherited",
        what_a_child_s_child_in_its_memory_closes_stays_inherited,
    ),
];

/// Cases in which a driver commits a violation, and the program goes on: each ends in another way.
const WRONG: [(&str, Body); 4] = [
    ("wrong", wrong),
    ("wrong_and_ends_at_once", wrong_and_ends_at_once),
    ("wrong_and_fails", wrong_and_fails),
    ("wrong_in_a_child", wrong_in_a_child),
];

/// Runs one case.
pub(crate) fn run(name: &str) -> ExitCode {
    let alone = CASES.iter().find(|case| case.name == name).map(|case| case.body);
    let shared = SHARED.iter().find(|case| case.0 == name).map(|case| case.1);
    let wrong = WRONG.iter().find(|case| case.0 == name).map(|case| case.1);
    let body = alone.or(shared).or(wrong).unwrap_or(a_program_may_die_at_any_time);
    match body() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A queue pair with its objects.
struct Side {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    port: LocalPort,
}

const MESSAGE: usize = 64;
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

impl Side {
    fn new(context: &Context, channel: Option<&CompletionChannel>) -> Result<Self, mlx5::Error> {
        let cq = context.create_cq(16);
        let cq = match channel {
            Some(channel) => cq.channel(channel).build()?,
            None => cq.build()?,
        };
        let pd = context.alloc_pd()?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        Ok(Self { qp, cq, memory: pd.allocate(2 * MESSAGE)?, port: context.local_port(1, None)? })
    }

    /// Connects both to each other.
    fn connect(one: &mut Self, other: &mut Self) -> Outcome {
        let (options, psn) = (ConnectOptions::default(), Psn::default());
        let first = one.qp.endpoint(&one.port, psn, &options);
        let second = other.qp.endpoint(&other.port, psn, &options);
        one.qp.connect(&one.port, psn, &second, &options)?;
        other.qp.connect(&other.port, psn, &first, &options)?;
        Ok(())
    }

    fn receive(&mut self) -> Outcome {
        let sges = [self.memory.sge(MESSAGE..)?];
        Ok(self.qp.post_recv(&[ReceiveWr { wr_id: RECEIVED, sges: &sges }])?)
    }

    fn send(&mut self, bytes: &[u8]) -> Outcome {
        self.memory.write_at(0, bytes)?;
        let mut batch = self.qp.wr_start();
        batch.wr(SENT, SendFlags::SIGNALED).send().sge(self.memory.sge(..bytes.len())?);
        Ok(batch.complete()?)
    }

    /// Waits for one completion.
    fn completed(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut found = None;
        while found.is_none() {
            self.cq.poll(1, |completion| {
                found = Some(completion.status().map(|()| completion.wr_id()));
            })?;
            std::thread::yield_now();
        }
        Ok(found.expect("a completion")?)
    }
}

fn talk(one: &mut Side, other: &mut Side) -> Outcome {
    Side::connect(one, other)?;
    for round in 0..100_u8 {
        other.receive()?;
        one.send(&[round; MESSAGE])?;
        assert_eq!(other.completed()?, RECEIVED);
        assert_eq!(one.completed()?, SENT);
        let mut bytes = [0; MESSAGE];
        other.memory.read_at(MESSAGE, &mut bytes)?;
        assert_eq!(bytes, [round; MESSAGE]);
    }
    Ok(())
}

fn first_device() -> Result<Context, mlx5::Error> {
    mlx5::open(Some("mlx5_0"))
}

fn node() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/infiniband/uverbs0")
}

fn names(directory: &str) -> io::Result<Vec<String>> {
    let mut names: Vec<_> = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

fn devices_are_found() -> Outcome {
    let devices = mlx5::devices()?;
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    assert!(["mlx5_0", "mlx5_1"].starts_with(&names) && !names.is_empty(), "{names:?}");
    Ok(())
}

fn the_tree_can_be_walked() -> Outcome {
    assert_eq!(names("/dev/infiniband")?, ["rdma_cm", "uverbs0", "uverbs1"]);
    assert_eq!(names("/sys/class/infiniband")?, ["mlx5_0", "mlx5_1"]);
    let verbs = names("/sys/class/infiniband_verbs")?;
    assert_eq!(verbs, ["abi_version", "uverbs0", "uverbs1"]);
    let name = fs::read_to_string("/sys/class/infiniband_verbs/uverbs1/ibdev")?;
    assert_eq!(name, "mlx5_1\n");
    let vendor = fs::read_to_string("/sys/class/infiniband/mlx5_1/device/vendor")?;
    assert_eq!(vendor, "0x15b3\n");
    let absent = fs::read("/sys/class/infiniband/mlx5_2/node_guid").expect_err("no such device");
    assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    // The machine's network knows no interface of a simulated device.
    let absent = fs::read_dir("/sys/class/infiniband/mlx5_0/device/net").expect_err("none");
    assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    Ok(())
}

fn nodes_are_character_devices() -> Outcome {
    let by_path = fs::metadata("/dev/infiniband/uverbs1")?;
    let by_descriptor = node()?.metadata()?;
    for (metadata, number) in [(&by_path, 1), (&by_descriptor, 0)] {
        assert!(metadata.file_type().is_char_device());
        let shown = format!("/sys/class/infiniband_verbs/uverbs{number}/dev");
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        assert_eq!(fs::read_to_string(shown)?, format!("{major}:{minor}\n"));
    }
    Ok(())
}

fn a_path_is_shown_as_the_machine_s() -> Outcome {
    let full = fs::canonicalize("/sys/class/infiniband/mlx5_0/device")?;
    assert!(full.starts_with("/sys/devices"), "{full:?}");
    assert_eq!(fs::read_to_string(full.join("vendor"))?, "0x15b3\n");
    let driver = fs::read_link("/sys/class/infiniband/mlx5_0/device/driver")?;
    assert!(driver.ends_with("mlx5_core"));
    Ok(())
}

fn a_device_is_as_the_settings_say() -> Outcome {
    let devices = mlx5::devices()?;
    assert_eq!(devices[0].part(), Some("ConnectX-6 Dx"));
    let context = devices[0].open()?;
    assert_eq!(context.num_ports(), 2);
    let links = [1, 2].map(|port| context.query_port(port).map(|port| port.link_layer));
    let [Ok(first), Ok(second)] = links else { return Err("two ports".into()) };
    assert_eq!([first, second], [mlx5::LinkLayer::Ethernet, mlx5::LinkLayer::InfiniBand]);
    Ok(())
}

fn messages_go_from_one_queue_pair_to_another() -> Outcome {
    let context = first_device()?;
    talk(&mut Side::new(&context, None)?, &mut Side::new(&context, None)?)
}

fn messages_go_over_roce() -> Outcome {
    messages_go_from_one_queue_pair_to_another()
}

fn messages_go_between_devices() -> Outcome {
    let (first, second) = (first_device()?, mlx5::open(Some("mlx5_1"))?);
    talk(&mut Side::new(&first, None)?, &mut Side::new(&second, None)?)
}

/// Reads one event's record from a channel, as a C program would.
fn read_event(channel: &CompletionChannel) -> io::Result<u64> {
    let mut record = [0_u8; 8];
    let fd = channel.as_fd().as_raw_fd();
    // SAFETY: `record` has room for `record.len()` bytes.
    match unsafe { libc::read(fd, record.as_mut_ptr().cast(), record.len()) } {
        8 => Ok(u64::from_ne_bytes(record)),
        -1 => Err(io::Error::last_os_error()),
        other => Err(io::Error::other(format!("{other} bytes"))),
    }
}

fn a_read_waits_for_an_event() -> Outcome {
    let context = first_device()?;
    let channel = context.create_comp_channel()?;
    let (mut one, mut other) = (Side::new(&context, None)?, Side::new(&context, Some(&channel))?);
    Side::connect(&mut one, &mut other)?;
    other.receive()?;
    other.cq.arm(false)?;
    // SAFETY: the descriptor is the channel's; a flag of it is changed.
    assert_eq!(unsafe { libc::fcntl(channel.as_fd().as_raw_fd(), libc::F_SETFL, 0) }, 0);
    let reader = std::thread::spawn(move || read_event(&channel).map(|_| channel));
    one.send(b"hello")?;
    let channel = reader.join().expect("a thread that ends")?;
    drop((one, other));
    drop(channel);
    Ok(())
}

fn a_read_that_must_not_wait_does_not() -> Outcome {
    let context = first_device()?;
    let channel = context.create_comp_channel()?;
    let error = read_event(&channel).expect_err("no event");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(channel.wait(Some(Duration::ZERO))?, None);
    Ok(())
}

/// `RDMA_VERBS_IOCTL` with a header of nothing.
fn empty_call(fd: i32) -> io::Error {
    let mut header = [0_u64; 3];
    // SAFETY: the header says that nothing follows it.
    let answer =
        unsafe { libc::ioctl(fd, mlx5_uapi::ioctl::RDMA_VERBS_IOCTL as _, header.as_mut_ptr()) };
    assert_eq!(answer, -1);
    io::Error::last_os_error()
}

fn a_copied_descriptor_is_the_same_device() -> Outcome {
    let device = node()?;
    let copy = device.try_clone()?;
    // SAFETY: the descriptor is open; the new one has no other owner.
    let plain = unsafe { OwnedFd::from_raw_fd(libc::dup(device.as_raw_fd())) };
    drop(device);
    for fd in [copy.as_raw_fd(), plain.as_raw_fd()] {
        assert_eq!(empty_call(fd).raw_os_error(), Some(libc::EINVAL));
    }
    // The number is free for something else.
    drop(copy);
    let other = File::open("/dev/null")?;
    assert_eq!(empty_call(other.as_raw_fd()).raw_os_error(), Some(libc::ENOTTY));
    Ok(())
}

fn a_call_that_is_none_of_the_device_s_is_refused() -> Outcome {
    let device = node()?;
    // SAFETY: the device takes no such request, and looks at nothing.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), libc::FIONBIO, 0) };
    assert_eq!(answer, -1);
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTTY));
    Ok(())
}

fn calls_that_the_device_does_not_know_are_refused() -> Outcome {
    let kernel = LinuxKernel::new();
    let info = sysfs::devices(&kernel)?.into_iter().next().ok_or("no device")?;
    let file = kernel.open(&info.uverbs, info.dev)?;
    let request = AllocUcontextReqV2 {
        total_num_bfregs: 2,
        flags: UcontextFlags::DEVX.bits(),
        lib_caps: LibCaps::DYN_UAR.bits(),
        ..AllocUcontextReqV2::default()
    };
    cmd::context::get_context(&*file, &request)?;
    assert_eq!(cmd::devx::alloc_var(&*file).err(), Some(Errno::EPROTONOSUPPORT));
    let (pd, cap) = (cmd::pd::alloc(&*file)?, QpCap { max_send_wr: 1, ..QpCap::default() });
    for qp_type in [QpType::RawPacket, QpType::Driver] {
        let what = CreateQp {
            qp_type,
            pd: Some(pd.handle),
            xrcd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            user_handle: 0,
            cap,
            flags: QpCreateFlags::empty(),
            source_qpn: None,
            async_events: None,
            driver: mlx5_uapi::mlx5::CreateQp::default(),
        };
        // SAFETY: there are no rings, and such a queue pair is refused.
        let refused = unsafe { cmd::qp::create(&*file, &what) };
        assert_eq!(refused.err(), Some(Errno::EOPNOTSUPP));
    }
    Ok(cmd::pd::dealloc(&*file, pd.handle)?)
}

fn a_device_cannot_be_read_or_written() -> Outcome {
    use std::io::Read;
    let mut device = node()?;
    let read = device.read(&mut [0; 8]).expect_err("refused");
    let written = device.write(&[0; 8]).expect_err("refused");
    assert_eq!([read.raw_os_error(), written.raw_os_error()], [Some(libc::EINVAL); 2]);
    Ok(())
}

fn a_child_has_a_machine_of_its_own() -> Outcome {
    let context = first_device()?;
    // SAFETY: no other thread of this program holds a lock that the child needs.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            let done = messages_go_from_one_queue_pair_to_another();
            std::process::exit(i32::from(done.is_err()))
        }
        child => {
            let mut status = -1;
            // SAFETY: there is room for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            // The parent's device is as before.
            talk(&mut Side::new(&context, None)?, &mut Side::new(&context, None)?)
        }
    }
}

/// Closes all inherited descriptors in a child in this memory, as Python does between vfork and
/// exec.
fn close_all_in_a_child_in_this_memory(fd: RawFd) {
    extern "C" fn child(fd: *mut libc::c_void) -> i32 {
        // SAFETY: they are the child's own copies.
        unsafe {
            libc::close(fd as usize as i32);
            libc::close_range(3, u32::MAX, 0)
        }
    }
    let mut stack = vec![0_u128; 4096];
    // SAFETY: the stack lives until the child has ended, for which the call waits.
    let child = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            fd as usize as *mut libc::c_void,
        )
    };
    let mut status = 0;
    // SAFETY: there is room for the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn what_a_child_in_this_memory_closes_stays_open_here() -> Outcome {
    let file = node()?;
    assert_eq!(empty_call(file.as_raw_fd()).raw_os_error(), Some(libc::EINVAL));
    close_all_in_a_child_in_this_memory(file.as_raw_fd());
    assert_eq!(empty_call(file.as_raw_fd()).raw_os_error(), Some(libc::EINVAL));
    Ok(())
}

fn what_a_child_s_child_in_its_memory_closes_stays_inherited() -> Outcome {
    let file = node()?;
    assert_eq!(empty_call(file.as_raw_fd()).raw_os_error(), Some(libc::EINVAL));
    // SAFETY: no other thread of this program holds a lock that the child needs.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            // The child has not used the inherited descriptor.
            close_all_in_a_child_in_this_memory(file.as_raw_fd());
            let answered = empty_call(file.as_raw_fd()).raw_os_error() == Some(libc::EINVAL);
            std::process::exit(i32::from(!answered))
        }
        child => {
            let mut status = -1;
            // SAFETY: there is room for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            Ok(())
        }
    }
}

fn tell(line: impl std::fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// The next line of the other process.
fn hear() -> io::Result<String> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

impl Side {
    /// Connects to the side of another process, which does the same.
    fn meet(&mut self) -> Outcome {
        let (options, psn) = (ConnectOptions::default(), Psn::default());
        tell(self.qp.endpoint(&self.port, psn, &options))?;
        let other: Endpoint = hear()?.parse()?;
        self.qp.connect(&self.port, psn, &other, &options)?;
        Ok(())
    }
}

/// Messages of this process and of the other: each sends the number that it received, plus one.
const ROUNDS: u8 = 100;

/// One of two processes that bounce messages. The one with the argument `begins` sends first.
fn bounce(side: &mut Side, wait: &mut dyn FnMut(&mut Side) -> Outcome) -> Outcome {
    side.meet()?;
    side.receive()?;
    tell("ready")?;
    hear()?;
    let begins = std::env::args().nth(1).as_deref() == Some("begins");
    let mut last = 0;
    if begins {
        side.send(&[last; MESSAGE])?;
    }
    while last < ROUNDS {
        let (mut sent, mut came) = (false, false);
        while !(came && (sent || !begins && last == 0)) {
            wait(side)?;
            match side.completed()? {
                SENT => sent = true,
                _ => came = true,
            }
        }
        let mut bytes = [0; MESSAGE];
        side.memory.read_at(MESSAGE, &mut bytes)?;
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a message that is torn: {bytes:?}");
        assert!(bytes[0] == 0 && last == 0 || bytes[0] > last, "{} after {last}", bytes[0]);
        last = bytes[0] + 1;
        side.receive()?;
        side.send(&[last; MESSAGE])?;
    }
    // The last message has arrived when it is acknowledged.
    while side.completed()? != SENT {}
    tell("done")?;
    hear()?;
    Ok(())
}

fn one_end() -> Outcome {
    let context = first_device()?;
    bounce(&mut Side::new(&context, None)?, &mut |_| Ok(()))
}

/// The same, asleep until something completes.
fn one_end_with_events() -> Outcome {
    let context = first_device()?;
    let channel = context.create_comp_channel()?;
    let mut side = Side::new(&context, Some(&channel))?;
    bounce(&mut side, &mut |side| {
        side.cq.arm(false)?;
        channel.wait(Some(Duration::from_secs(30)))?.ok_or("no event came")?;
        Ok(())
    })
}

/// Reports that it has objects, waits, and ends without destroying them.
fn dies_with_objects() -> Outcome {
    let context = first_device()?;
    let (mut one, mut other) = (Side::new(&context, None)?, Side::new(&context, None)?);
    talk(&mut one, &mut other)?;
    tell("there")?;
    // Until it is killed.
    hear()?;
    drop((one, other));
    Ok(())
}

fn a_child_has_what_its_parent_opened() -> Outcome {
    let device = node()?;
    assert_eq!(empty_call(device.as_raw_fd()).raw_os_error(), Some(libc::EINVAL));
    // SAFETY: no other thread of this program holds a lock that the child needs.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            // The device decodes the call, and refuses it; an unknown descriptor would be ENOTTY.
            let inherited = empty_call(device.as_raw_fd()).raw_os_error() == Some(libc::EINVAL);
            let own = messages_go_from_one_queue_pair_to_another().is_ok();
            std::process::exit(i32::from(!(inherited && own)))
        }
        child => {
            let mut status = -1;
            // SAFETY: there is room for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            assert_eq!(empty_call(device.as_raw_fd()).raw_os_error(), Some(libc::EINVAL));
            messages_go_from_one_queue_pair_to_another()
        }
    }
}

/// A page that only this process uses, so that the device finds nothing there once it is unmapped.
fn page() -> *mut libc::c_void {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping touches no memory in use.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, kind, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page
}

/// An offset at which no device has a page.
const NOWHERE: i64 = i64::MAX & !0xfff;

fn a_call_by_its_number_is_the_device_s() -> Outcome {
    let device = std::mem::ManuallyDrop::new(node()?);
    let fd = device.as_raw_fd();
    let refused = |answer: i64| {
        assert_eq!(answer, -1);
        io::Error::last_os_error().raw_os_error()
    };
    let mut words = [0_u64; 3];
    let at = words.as_mut_ptr();
    // SAFETY: none of the calls has a meaning to the device, which refuses it; the last one closes
    // a descriptor that no other code closes.
    unsafe {
        let (null, shared) = (std::ptr::null_mut::<u8>(), libc::MAP_SHARED);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // The kernel would map the file, or answer EACCES.
        let mapped = libc::syscall(libc::SYS_mmap, null, 4096, rights, shared, fd, NOWHERE);
        assert_eq!(refused(mapped), Some(libc::EINVAL));
        let request = mlx5_uapi::ioctl::RDMA_VERBS_IOCTL;
        // The kernel would answer ENOTTY.
        assert_eq!(refused(libc::syscall(libc::SYS_ioctl, fd, request, at)), Some(libc::EINVAL));
        // The kernel would answer EBADF, for reading, and take the bytes.
        assert_eq!(refused(libc::syscall(libc::SYS_read, fd, at, 8)), Some(libc::EINVAL));
        assert_eq!(refused(libc::syscall(libc::SYS_write, fd, at, 8)), Some(libc::EINVAL));
        assert_eq!(libc::syscall(libc::SYS_close, fd), 0);
    }
    // The number is free for something else, which is none of the device's.
    let other = File::open("/dev/null")?;
    assert_eq!(other.as_raw_fd(), fd);
    assert_eq!(empty_call(fd).raw_os_error(), Some(libc::ENOTTY));
    Ok(())
}

fn a_call_past_the_library_maps_nothing() -> Outcome {
    type Mmap = unsafe extern "C" fn(*mut u8, usize, i32, i32, i32, i64) -> *mut libc::c_void;
    let device = node()?;
    // As the program has opened it.
    // SAFETY: the call reads a flag of a descriptor of this program.
    let flags = unsafe { libc::fcntl(device.as_raw_fd(), libc::F_GETFL) };
    assert_eq!(flags & libc::O_ACCMODE, libc::O_RDWR);
    // SAFETY: libc is there, and has such a function.
    let past = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
        std::mem::transmute::<*mut libc::c_void, Mmap>(libc::dlsym(libc, c"mmap".as_ptr()))
    };
    for rights in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: a new mapping touches no memory in use.
        let mapped = unsafe {
            past(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, device.as_raw_fd(), 0)
        };
        assert_eq!(mapped, libc::MAP_FAILED);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
    }
    Ok(())
}

/// Makes a device send from registered memory that was unmapped.
fn wrong() -> Outcome {
    let context = first_device()?;
    let mut one = Side::new(&context, None)?;
    let pd = context.alloc_pd()?;
    let gone = page();
    // SAFETY: the memory is the program's; the case is about its early end.
    let memory = unsafe { pd.reg_mr(gone.cast(), 4096, mlx5::Access::default())? };
    let mut qp = pd.create_qp::<Rc>(&one.cq, &one.cq).build()?;
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let itself = qp.endpoint(&one.port, psn, &options);
    qp.connect(&one.port, psn, &itself, &options)?;
    // SAFETY: only the device uses the page.
    assert_eq!(unsafe { libc::munmap(gone, 4096) }, 0);
    let mut batch = qp.wr_start();
    batch.wr(SENT, SendFlags::SIGNALED).send().sge(memory.sge(..MESSAGE)?);
    batch.complete()?;
    one.completed().expect_err("there is nothing to send");
    drop(memory);
    println!("the program is content");
    Ok(())
}

fn wrong_and_ends_at_once() -> Outcome {
    wrong()?;
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

fn wrong_and_fails() -> Outcome {
    wrong()?;
    std::process::exit(3)
}

/// Starts a process that commits the violation, and ignores its exit status.
fn wrong_in_a_child() -> Outcome {
    let mut child = std::process::Command::new(std::env::current_exe()?);
    let status = child.env(crate::CASE, "wrong").status()?;
    assert_eq!(status.code(), Some(70));
    Ok(())
}
