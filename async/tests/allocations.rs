//! A request allocates nothing when it is posted, completes, or is awaited.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mlx5::{ConnectOptions, Psn, SendFlags, transport::Rc};
use mlx5_async::{AsyncQueuePair, Hub, Step};
use mlx5_sim::{SimConfig, Simulator};

thread_local! {
    static COUNTED: Cell<Option<u64>> = const { Cell::new(None) };
}

struct Counting;

// SAFETY: every call is passed unchanged to the system's allocator, which upholds the trait.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNTED.with(|counted| counted.set(counted.get().map(|count| count + 1)));
        // SAFETY: the caller promises a `layout` of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `pointer` was allocated here, and so by `System`, with
        // `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of this thread.
fn counted<R>(count: &mut u64, work: impl FnOnce() -> R) -> R {
    COUNTED.set(Some(0));
    let result = work();
    *count += COUNTED.take().unwrap();
    result
}

fn ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_request_allocates_nothing() {
    let simulator = Simulator::new(SimConfig::new().step(true));
    let context = mlx5::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let (hub, mut pump) = Hub::new(&context, 256).unwrap();
    let mut qp = hub.create_qp::<Rc>(&pd).max_send_wr(16).max_recv_wr(16).build().unwrap();
    let (port, psn) = (context.local_port(1, None).unwrap(), Psn::default());
    let options = ConnectOptions::default();
    let own = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &own, &options).unwrap();
    let qp: AsyncQueuePair<Rc, u64> = hub.adopt(qp).unwrap();
    let memory = pd.allocate(64).unwrap();
    let sge = memory.whole().unwrap();
    let mut receives = qp.receives();

    let mut allocations = 0;
    for round in 0..200_u64 {
        // In the first rounds, tables grow to their final size.
        let mut ignored = 0;
        let count = if round < 20 { &mut ignored } else { &mut allocations };
        let mut request = counted(count, || {
            ready(qp.post_recv(round, sge)).unwrap();
            let send = qp.submit(round, SendFlags::empty(), |wr| wr.send().sge(sge));
            let mut request = Box::pin(ready(send).unwrap());
            assert!(pin!(&mut request).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            request
        });
        // The test itself allocates the box.
        *count = count.saturating_sub(1);
        simulator.run_until_idle();
        counted(count, || {
            while pump.step().unwrap() == Step::Again {}
            assert_eq!(ready(&mut request).unwrap().keep, round);
            assert_eq!(ready(receives.next()).unwrap().unwrap().keep, round);
        });
    }
    assert_eq!(allocations, 0);
}
