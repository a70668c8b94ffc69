//! Devices: the list, and the properties of each.

use crate::abi::*;
use crate::fork;
use crate::kernel::BlockingKernel;
use crate::netlink;
use crate::refusal::{Refusal, Verb, object};
use mlx5::{Device, Errno};
use mlx5_uapi::Kernel;
use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, Mutex, Once, PoisonError};

/// A device. It lives as long as the process, because programs keep the pointer and compare
/// pointers.
#[repr(C)]
pub(crate) struct DeviceObject {
    c: ibv_device,
    pub(crate) device: Device,
}

// SAFETY: a device in the list is never written.
unsafe impl Send for DeviceObject {}
// SAFETY: a device in the list is never written.
unsafe impl Sync for DeviceObject {}

/// Every device that was ever listed.
static KNOWN: Mutex<Vec<&'static DeviceObject>> = Mutex::new(Vec::new());

/// The text as a C string of a fixed size, cut if it is too long.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}

impl DeviceObject {
    fn new(device: Device) -> Self {
        let c = ibv_device {
            ops: ibv_device_ops { _dummy1: None, _dummy2: None },
            node_type: IBV_NODE_CA as c_uint,
            transport_type: IBV_TRANSPORT_IB as c_uint,
            name: text(device.name()),
            dev_name: text(device.uverbs()),
            dev_path: text(&format!("/sys/class/infiniband_verbs/{}", device.uverbs())),
            ibdev_path: text(&format!("/sys/class/infiniband/{}", device.name())),
        };
        Self { c, device }
    }

    /// Whether both are the same device, plugged in once.
    fn is(&self, other: &Device) -> bool {
        let ours = &self.device;
        (ours.name(), ours.uverbs(), ours.guid()) == (other.name(), other.uverbs(), other.guid())
    }

    /// # Safety
    /// `device` is from a device list.
    pub(crate) unsafe fn of(device: *mut ibv_device) -> &'static Self {
        // SAFETY: the caller promises that `device` is from a device list: it is the first field of
        // an object that is never freed.
        unsafe { &*device.cast() }
    }

    /// The device whose node has these numbers.
    pub(crate) fn with_number(number: (u32, u32)) -> Verb<Option<&'static Self>> {
        let devices = mlx5::devices_on(Arc::new(BlockingKernel::new()))?;
        Ok(devices.into_iter().find(|device| device.dev() == number).map(known))
    }

    pub(crate) fn as_c(&'static self) -> *mut ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }
}

/// Returns the object of a device: the same one each time that it is listed.
fn known(device: Device) -> &'static DeviceObject {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.iter().find(|other| other.is(&device)) {
        return found;
    }
    let made: &'static DeviceObject = Box::leak(Box::new(DeviceObject::new(device)));
    known.push(made);
    made
}

fn list(kernel: Arc<dyn Kernel>, count: *mut c_int) -> Verb<*mut *mut ibv_device> {
    static FIRST: Once = Once::new();
    FIRST.call_once(fork::init_by_environment);
    let devices = mlx5::devices_on(Arc::clone(&kernel))?;
    if devices.is_empty() && kernel.sysfs_list("class/infiniband_verbs") == Err(Errno::ENOENT) {
        // Without ib_uverbs C has no list, not an empty one.
        return Err(Refusal(libc::ENOSYS));
    }
    // SAFETY: no precondition; the array has one entry more than there are devices, which stays
    // NULL.
    let array = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
    let array = array.cast::<*mut ibv_device>();
    if array.is_null() {
        return Err(Refusal::NO_MEMORY);
    }
    let found = devices.len() as c_int;
    for (place, device) in devices.into_iter().enumerate() {
        // SAFETY: `place` is below the number of devices.
        unsafe { array.add(place).write(known(device).as_c()) };
    }
    if !count.is_null() {
        // SAFETY: the caller promises that `count` is writable; it is not NULL here.
        unsafe { count.write(found) };
    }
    Ok(array)
}

/// `ibv_get_device_list`.
///
/// # Safety
/// `num_devices` is NULL or writable.
pub unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the caller promises that `num_devices` is NULL or writable.
    unsafe { get_device_list_on(Arc::new(BlockingKernel::new()), num_devices) }
}

/// As [`get_device_list`], for the devices of another kernel, such as a simulated one. Two devices
/// that the process lists differ in name, node or GUID.
///
/// # Safety
/// As for [`get_device_list`]. A `read` of the descriptor of an event file of the kernel returns
/// one event.
pub unsafe fn get_device_list_on(
    kernel: Arc<dyn Kernel>,
    num_devices: *mut c_int,
) -> *mut *mut ibv_device {
    if !num_devices.is_null() {
        // SAFETY: the caller promises that `num_devices` is NULL or writable; it is not NULL here.
        unsafe { num_devices.write(0) };
    }
    object(list(kernel, num_devices))
}

/// `ibv_free_device_list`.
///
/// # Safety
/// `list` is from [`get_device_list`], and was not freed.
pub unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller promises that `list` is from `get_device_list`, and was not freed.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name`.
///
/// # Safety
/// `device` is from a device list.
pub unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller promises that `device` is from a device list.
    unsafe { DeviceObject::of(device) }.c.name.as_ptr()
}

/// `ibv_get_device_guid`, in network order.
///
/// # Safety
/// `device` is from a device list.
pub unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> Be64 {
    // SAFETY: the caller promises that `device` is from a device list.
    let guid = unsafe { DeviceObject::of(device) }.device.guid();
    guid.0.to_be()
}

/// `ibv_get_device_index`: −1 if the kernel does not report it.
///
/// # Safety
/// `device` is from a device list.
pub unsafe extern "C" fn get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the caller promises that `device` is from a device list.
    let device = unsafe { &DeviceObject::of(device).device };
    netlink::device_index(device.name()).map_or(-1, |index| index as c_int)
}
