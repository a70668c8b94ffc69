//! Tests of connecting over a stream.

use super::*;
use crate::testing::Altered;
use crate::transport::{Rc, Uc};
use crate::{ConnectOptions, Endpoint, LocalPort, Psn, QueuePair, QueueState, SendFlags, Sge};
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::write_cmd::ExQueryDeviceResp;
use std::io::{Cursor, ErrorKind as IoErrorKind, Read, Write};
use std::mem::offset_of;
use std::os::unix::net::UnixStream;
use std::thread;

/// A stream: the bytes that the peer sends, and the bytes that were sent to the peer.
struct Script {
    says: Cursor<Vec<u8>>,
    heard: Vec<u8>,
}

impl Script {
    fn new(says: &[u8]) -> Self {
        Self { says: Cursor::new(says.to_vec()), heard: Vec::new() }
    }
}

impl Read for Script {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.says.read(to)
    }
}

impl Write for Script {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.heard.write(from)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn queue_pair(context: &Context) -> (QueuePair<Rc>, CompletionQueue, LocalPort) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(16).build().unwrap();
    (qp, cq, context.local_port(1, None).unwrap())
}

#[test]
fn both_sides_can_send_when_they_have_connected_over_a_stream() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (mut here, there) = UnixStream::pair().unwrap();
    let side = |stream: &UnixStream| {
        let (mut qp, cq, port) = queue_pair(&context);
        qp.init(&port, &ConnectOptions::default()).unwrap();
        qp.recv(1, Sge::default()).unwrap();
        let peer = qp.connect_over(stream, &port, &ConnectOptions::default()).unwrap();
        (qp, cq, peer)
    };
    let (mut one, mut other) = thread::scope(|scope| {
        let other = scope.spawn(|| side(&there));
        (side(&here), other.join().unwrap())
    });
    assert_eq!((one.2.qp_num.get(), other.2.qp_num.get()), (other.0.qp_num(), one.0.qp_num()));
    assert_ne!(one.2.psn, other.2.psn, "they are random");
    for (qp, cq) in [(&mut one.0, &mut other.1), (&mut other.0, &mut one.1)] {
        qp.post(|batch| batch.wr(2, SendFlags::empty()).send().sge_list(&[])).unwrap();
        let mut received = None;
        while cq.poll(1, |wc| received = Some((wc.wr_id(), wc.status()))).unwrap() == 0 {
            simulator.step();
        }
        assert_eq!(received, Some((1, Ok(()))));
    }
    // Nothing is left on the stream: after the other end is dropped, a read finds the end.
    drop(there);
    assert_eq!(here.read(&mut [0; 8]).unwrap(), 0);
}

/// A side must not send before its peer can receive.
#[test]
fn a_side_waits_until_its_peer_has_connected() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (mut qp, _cq, port) = queue_pair(&context);
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let peer = queue_pair(&context).0.endpoint(&port, psn, &options).to_bytes();
    let mut script = Script::new(&peer);
    let error = qp.connect_over(&mut script, &port, &options).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "the peer hung up before it was connected");
    let own = Endpoint::from_bytes(&script.heard[..Endpoint::BYTES]).unwrap();
    assert_eq!(own.qp_num.get(), qp.qp_num());
    assert_eq!(script.heard.len(), Endpoint::BYTES + 1, "it said that it is connected");
}

#[test]
fn malformed_peer_is_refused() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (mut qp, cq, port) = queue_pair(&context);
    let options = ConnectOptions::default();
    let mut connect = |says: &[u8]| {
        let error = qp.connect_over(Script::new(says), &port, &options).unwrap_err();
        assert_eq!(qp.state(), QueueState::Reset, "it was not touched: {error}");
        error
    };
    assert_eq!(connect(b"").kind(), IoErrorKind::UnexpectedEof);
    let error = connect(&[b'x'; 100]);
    assert_eq!(error.kind(), IoErrorKind::InvalidData);
    assert_eq!(error.to_string(), "this is not an mlx5 endpoint");
    // The endpoint of a queue pair of another transport: the error contains the driver's error.
    let pd = context.alloc_pd().unwrap();
    let uc = pd.create_qp::<Uc>(&cq, &cq).build().unwrap();
    let error = connect(&uc.endpoint(&port, Psn::default(), &options).to_bytes());
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    assert_eq!(inner.map(Error::kind), Some(ErrorKind::InvalidArgument), "{error}");
    // A peer that has connected, and then sends a wrong byte.
    let (peer, _cq, _port) = queue_pair(&context);
    let mut says = peer.endpoint(&port, Psn::default(), &options).to_bytes().to_vec();
    says.push(b'?');
    let error = qp.connect_over(Script::new(&says), &port, &options).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::InvalidData);
}

/// A program with a pool of buffers uses `in_flight` to find out whether it lost a buffer.
#[test]
fn a_shared_receive_queue_counts_a_request_until_its_completion_is_polled() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (pd, options) = (context.alloc_pd().unwrap(), ConnectOptions::default());
    let (mut one, _cq, port) = queue_pair(&context);
    let mut cq = context.create_cq(16).build().unwrap();
    let mut srq = pd.create_srq(4).build().unwrap();
    assert_eq!(srq.in_flight(), 0);
    for wr_id in 0..3 {
        srq.recv(wr_id, Sge::default()).unwrap();
    }
    let mut other = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| one.connect_over(&here, &port, &options).unwrap());
        other.connect_over(&there, &port, &options).unwrap();
    });
    one.post(|batch| batch.wr(0, SendFlags::empty()).send().sge_list(&[])).unwrap();
    while !cq.is_ready() {
        simulator.step();
    }
    assert_eq!(srq.in_flight(), 3);
    assert_eq!(cq.poll(4, |_| ()), Ok(1));
    assert_eq!(srq.in_flight(), 2);
}

/// By default a peer gets the rights that both the transport and the device support.
#[test]
fn a_device_without_atomics_gives_a_peer_the_other_rights_of_the_transport() {
    const READ_WRITE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
    for has_atomics in [true, false] {
        let simulator = Simulator::new(infiniband());
        let kernel = Altered::new(simulator.kernel(), move |call| {
            call.pass()?;
            if call.method == method::INVOKE_WRITE && !has_atomics {
                let answer = call.output(attr::invoke_write::CORE_OUT);
                // Only the answer to QUERY_DEVICE is this long.
                if answer.len() >= size_of::<ExQueryDeviceResp>() {
                    answer[offset_of!(ExQueryDeviceResp, base.atomic_cap)..][..4].fill(0);
                }
            }
            Ok(())
        });
        let context = devices_on(kernel).unwrap()[0].open().unwrap();
        assert_eq!(context.query_device().has_atomics(), has_atomics);
        let options = ConnectOptions::default();
        let rights =
            |transport, options: ConnectOptions| context.clamp(transport, &options).access_flags;
        for (transport, without) in [
            (QpType::Rc, READ_WRITE),
            (QpType::XrcTgt, READ_WRITE),
            (QpType::Uc, Access::REMOTE_WRITE),
        ] {
            let expected = (!has_atomics).then_some(without);
            assert_eq!(rights(transport, options), expected, "{transport:?}");
            let chosen = options.access_flags(Some(Access::REMOTE_ATOMIC));
            assert_eq!(rights(transport, chosen), Some(Access::REMOTE_ATOMIC));
        }
    }
}
