use super::*;
use mlx5_sim::{SimConfig, Simulator};
use mlx5_uapi::{CmFile, DeviceFile, wait::wait_readable};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Two devices of a simulated machine, a watcher on it, and the test's own messages and names.
struct Rig {
    simulator: Simulator,
    kernel: Arc<Scripted>,
}

/// Results that reads of uevents return before those of the kernel below.
type Script = Arc<Mutex<VecDeque<Result<Vec<u8>, Errno>>>>;

/// A kernel with the devices and the uevents of another, and with scripted answers before its
/// uevents.
struct Scripted {
    kernel: Arc<dyn Kernel>,
    answers: Script,
    /// The name of `uverbs0`.
    name: Mutex<Option<String>>,
    /// The board of `mlx5_0`.
    board: Mutex<Option<String>>,
    broken: AtomicBool,
}

impl Kernel for Scripted {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        if self.broken.load(Relaxed) { Err(Errno::EIO) } else { self.kernel.sysfs_list(path) }
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        let name = self.name.lock().unwrap().clone();
        match name {
            _ if path.ends_with("mlx5_0/board_id") && self.board.lock().unwrap().is_some() => {
                Ok(self.board.lock().unwrap().clone().unwrap_or_default())
            }
            Some(name) if path == "class/infiniband_verbs/uverbs0/ibdev" => Ok(name),
            Some(name) => {
                let path = path.replace(&format!("infiniband/{name}/"), "infiniband/mlx5_0/");
                self.kernel.sysfs_read(&path)
            }
            None => self.kernel.sysfs_read(path),
        }
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        let name = self.name.lock().unwrap().clone().unwrap_or("mlx5_0".into());
        self.kernel.sysfs_link(&path.replace(&format!("infiniband/{name}"), "infiniband/mlx5_0"))
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        self.kernel.open(node, dev)
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        let (behind, answers) = (self.kernel.uevents()?, Arc::clone(&self.answers));
        Ok(Box::new(Answers { behind, answers }))
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.kernel.rdma_cm()
    }
}

struct Answers {
    behind: Box<dyn EventFile>,
    answers: Script,
}

impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.behind.as_fd()
    }
}

impl EventFile for Answers {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let answer = self.answers.lock().unwrap().pop_front();
        if answer == Some(Err(Errno::ENOBUFS)) {
            // All pending messages are lost.
            while self.behind.read(buf).is_ok() {}
        }
        match answer {
            Some(answer) => answer.map(|message| {
                buf[..message.len()].copy_from_slice(&message);
                message.len()
            }),
            None => self.behind.read(buf),
        }
    }
}

impl Rig {
    fn new() -> (Self, DeviceWatcher) {
        let simulator = Simulator::new(SimConfig::new().devices(2));
        let kernel = Arc::new(Scripted {
            kernel: simulator.kernel(),
            answers: Arc::default(),
            name: Mutex::default(),
            board: Mutex::default(),
            broken: AtomicBool::new(false),
        });
        let watcher = DeviceWatcher::on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
        (Self { simulator, kernel }, watcher)
    }

    fn answer(&self, answer: Result<Vec<u8>, Errno>) {
        self.kernel.answers.lock().unwrap().push_back(answer);
    }

    fn message(&self, action: &str, subsystem: &str, name: &str) {
        let path = format!("/devices/x/{subsystem}/{name}");
        let text =
            format!("{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM={subsystem}\0");
        self.answer(Ok(text.into_bytes()));
    }
}

/// Reads all events: `+` for a device that arrived, `-` for one that was removed.
fn reported(watcher: &DeviceWatcher) -> Vec<String> {
    let mut reported = Vec::new();
    while let Some(event) = watcher.next().unwrap() {
        reported.push(match event {
            DeviceEvent::Arrived(device) => format!("+{}", device.name()),
            DeviceEvent::Removed(device) => format!("-{}", device.name()),
            DeviceEvent::Renamed { from, device } => format!("{from}={}", device.name()),
        });
    }
    reported
}

fn names(watcher: &DeviceWatcher) -> Vec<String> {
    watcher.devices().iter().map(|device| device.name().to_owned()).collect()
}

#[test]
fn devices_that_go_and_come_back_are_reported_in_their_order() {
    let (rig, watcher) = Rig::new();
    assert_eq!(names(&watcher), ["mlx5_0", "mlx5_1"]);
    assert_eq!(reported(&watcher), [""; 0]);
    rig.simulator.remove_device(0);
    rig.simulator.remove_device(1);
    rig.simulator.insert_device(1);
    assert_eq!(reported(&watcher), ["-mlx5_0", "-mlx5_1", "+mlx5_1"]);
    assert_eq!(names(&watcher), ["mlx5_1"]);
    rig.simulator.insert_device(0);
    assert_eq!(reported(&watcher), ["+mlx5_0"]);
    assert_eq!(names(&watcher), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn a_device_that_went_and_came_back_unseen_is_reported_as_both() {
    let (rig, watcher) = Rig::new();
    for _ in 0..3 {
        rig.simulator.remove_device(0);
        rig.simulator.insert_device(0);
    }
    assert_eq!(
        reported(&watcher),
        ["-mlx5_0", "+mlx5_0", "-mlx5_0", "+mlx5_0", "-mlx5_0", "+mlx5_0"]
    );
}

#[test]
fn a_device_that_came_and_went_before_it_was_looked_at_is_not_reported() {
    let (rig, watcher) = Rig::new();
    rig.simulator.remove_device(0);
    assert_eq!(reported(&watcher), ["-mlx5_0"]);
    rig.simulator.insert_device(0);
    rig.simulator.remove_device(0);
    assert_eq!(reported(&watcher), [""; 0]);
    assert_eq!(names(&watcher), ["mlx5_1"]);
}

#[test]
fn a_device_that_arrived_can_be_opened_and_works() {
    let (rig, watcher) = Rig::new();
    let former = watcher.devices()[0].open().unwrap();
    let pd = former.alloc_pd().unwrap();
    let region = pd.allocate(4096).unwrap();
    rig.simulator.remove_device(0);
    rig.simulator.insert_device(0);
    let arrived = std::iter::from_fn(|| watcher.next().unwrap())
        .find_map(
            |event| if let DeviceEvent::Arrived(device) = event { Some(device) } else { None },
        )
        .expect("it came back");
    let context = arrived.open().unwrap();
    let fresh = context.alloc_pd().unwrap().allocate(4096).unwrap();
    // Dropping objects of the former device does not affect the new one.
    drop(region);
    drop((pd, former));
    assert_eq!(fresh.reregister().memory(8192).apply().unwrap().len(), 8192);
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn the_descriptor_is_readable_while_there_is_something_to_report() {
    let (rig, watcher) = Rig::new();
    let readable = || wait_readable(watcher.as_fd(), Some(Duration::ZERO)).unwrap();
    assert!(!readable());
    rig.simulator.remove_device(1);
    assert!(readable());
    assert_eq!(reported(&watcher), ["-mlx5_1"]);
    assert!(!readable());
    assert!(watcher.wait(Some(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn a_thread_that_waits_is_woken() {
    let (rig, watcher) = Rig::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| watcher.wait(None).unwrap());
        rig.simulator.remove_device(1);
        let event = waiter.join().unwrap();
        assert!(matches!(event, Some(DeviceEvent::Removed(device)) if device.name() == "mlx5_1"));
    });
}

#[test]
fn repetition_by_udev_is_no_event() {
    let (rig, watcher) = Rig::new();
    rig.message("add", "infiniband_verbs", "uverbs0");
    rig.message("change", "infiniband_verbs", "uverbs0");
    rig.message("add", "infiniband_verbs", "uverbs7");
    rig.message("remove", "infiniband_verbs", "uverbs7");
    rig.message("remove", "net", "uverbs0");
    rig.message("remove", "infiniband", "mlx5_0");
    rig.answer(Ok(b"libudev\0ACTION=remove\0".to_vec()));
    rig.answer(Ok(Vec::new()));
    assert_eq!(reported(&watcher), [""; 0]);
    assert_eq!(names(&watcher), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn messages_that_were_lost_are_made_up_for() {
    let (rig, watcher) = Rig::new();
    rig.simulator.remove_device(1);
    rig.answer(Err(Errno::ENOBUFS));
    assert_eq!(reported(&watcher), ["-mlx5_1"]);
    rig.answer(Err(Errno::ENOBUFS));
    assert_eq!(reported(&watcher), [""; 0]);
    rig.simulator.insert_device(1);
    rig.answer(Err(Errno::ENOBUFS));
    assert_eq!(reported(&watcher), ["+mlx5_1"]);
}

#[test]
fn another_device_at_the_place_of_one_is_no_new_name() {
    let (rig, watcher) = Rig::new();
    *rig.kernel.board.lock().unwrap() = Some("MT_0000000000".into());
    rig.answer(Err(Errno::ENOBUFS));
    assert_eq!(reported(&watcher), ["-mlx5_0", "+mlx5_0"]);
    assert_eq!(watcher.devices()[0].board_id(), "MT_0000000000");
}

#[test]
fn a_new_name_is_reported_and_not_a_new_device() {
    let (rig, watcher) = Rig::new();
    *rig.kernel.name.lock().unwrap() = Some("ibp3s0".into());
    rig.message("move", "infiniband", "ibp3s0");
    assert_eq!(reported(&watcher), ["mlx5_0=ibp3s0"]);
    assert_eq!(names(&watcher), ["ibp3s0", "mlx5_1"]);
    rig.simulator.remove_device(0);
    assert_eq!(reported(&watcher), ["-ibp3s0"]);
}

#[test]
fn a_list_that_fails_is_tried_again_and_nothing_is_missed() {
    let (rig, watcher) = Rig::new();
    rig.simulator.remove_device(0);
    assert_eq!(reported(&watcher), ["-mlx5_0"]);
    rig.simulator.insert_device(0);
    rig.kernel.broken.store(true, Relaxed);
    assert_eq!(watcher.next().unwrap_err().errno(), Some(Errno::EIO));
    rig.kernel.broken.store(false, Relaxed);
    assert_eq!(reported(&watcher), ["+mlx5_0"]);
}

#[test]
fn an_error_of_the_file_is_reported() {
    let (rig, watcher) = Rig::new();
    rig.answer(Err(Errno::EBADF));
    assert_eq!(watcher.next().unwrap_err().errno(), Some(Errno::EBADF));
}
