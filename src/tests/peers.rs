//! Messages and addresses of a hostile peer.

use super::*;
use crate::transport::{Rc, Ud};
use std::fmt::Debug;

/// The objects of one side.
struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    port: LocalPort,
}

impl Side {
    fn new(device: &Device) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Self {
            cq: context.create_cq(16).build().unwrap(),
            memory: pd.memory(256).access(access).register().unwrap(),
            port: context.local_port(1, None).unwrap(),
            pd,
        }
    }

    fn qp<T: QueuePairTransport>(&self) -> QueuePair<T> {
        self.pd.create_qp::<T>(&self.cq, &self.cq).max_inline_data(64).build().unwrap()
    }

    /// The status of the only completion.
    fn status(&mut self) -> Result<(), CompletionErrorKind> {
        let mut status = None;
        let each = |completion: WorkCompletion<'_>| {
            status = Some(completion.status().map_err(|error| error.kind));
        };
        assert_eq!(self.cq.poll(2, each).unwrap(), 1);
        status.unwrap()
    }
}

fn sides() -> (Simulator, [Side; 2]) {
    let simulator = Simulator::new(roce().devices(2));
    let devices = devices_on(simulator.kernel()).unwrap();
    let sides = [&devices[0], &devices[1]].map(Side::new);
    (simulator, sides)
}

const PSN: Psn = Psn::wrapping(7);

fn connected([here, there]: [&Side; 2]) -> [QueuePair<Rc>; 2] {
    let (mut near, mut far) = (here.qp::<Rc>(), there.qp::<Rc>());
    let options = ConnectOptions::default();
    let own = near.endpoint(&here.port, PSN, &options);
    near.connect(&here.port, PSN, &far.endpoint(&there.port, PSN, &options), &options).unwrap();
    far.connect(&there.port, PSN, &own, &options).unwrap();
    [near, far]
}

/// Any host that knows number and Q_Key may send the datagram. The queue pair fails, and works
/// again after a reset.
#[test]
fn a_datagram_longer_than_its_receive_fails_it_and_is_written_nowhere_else() {
    let (simulator, [mut peer, mut victim]) = sides();
    let options = ConnectOptions::default();
    let (mut from, mut to) = (peer.qp::<Ud>(), victim.qp::<Ud>());
    from.activate(&peer.port, PSN, &options).unwrap();
    let endpoint = to.endpoint(&victim.port, PSN, &options);
    let handle = peer.pd.create_ah_to(&peer.port, &endpoint, &options).unwrap();
    let filled = [0x55; 256];
    for (length, outcome) in [
        (17, Err(CompletionErrorKind::Known(Syndrome::LocalLength))),
        (64, Err(CompletionErrorKind::Known(Syndrome::LocalLength))),
        (16, Ok(())),
    ] {
        if to.state() != QueueState::Reset {
            to.to_error().unwrap();
            to.reset().unwrap();
        }
        victim.memory.write_at(0, &filled).unwrap();
        to.activate(&victim.port, PSN, &options).unwrap();
        // Forty bytes of header, and sixteen of data.
        to.recv(1, victim.memory.sge(..56).unwrap()).unwrap();
        let qkey = endpoint.qkey.unwrap();
        from.post(|batch| {
            let wr = batch.wr(2, SendFlags::SIGNALED).send();
            wr.ud_addr(handle.vector(), to.qp_num(), qkey).inline_data(&vec![1; length]);
        })
        .unwrap();
        simulator.run_until_idle();
        assert_eq!(peer.status(), Ok(()), "the sender hears nothing of it");
        assert_eq!(victim.status(), outcome, "{length} bytes");
        let mut behind = [0; 200];
        victim.memory.read_at(56, &mut behind).unwrap();
        assert_eq!(behind, filled[56..], "{length} bytes");
    }
    assert_eq!(simulator.violations(), []);
}

#[test]
fn a_peer_invalidates_no_key_that_does_not_allow_it() {
    let (simulator, [mut peer, victim]) = sides();
    let [mut near, mut far] = connected([&peer, &victim]);
    far.recv(1, Sge::default()).unwrap();
    let key = victim.memory.remote(..).unwrap();
    near.post(|batch| batch.wr(2, SendFlags::SIGNALED).send_inv(key.rkey).inline_data(b""))
        .unwrap();
    simulator.run_until_idle();
    let refused = CompletionErrorKind::Known(Syndrome::RemoteAccess);
    assert_eq!(peer.status(), Err(refused));
    // The region continues to serve other connections.
    let [mut other, _far] = connected([&peer, &victim]);
    other
        .post(|batch| batch.wr(3, SendFlags::SIGNALED).rdma_write(key).inline_data(b"still"))
        .unwrap();
    simulator.run_until_idle();
    assert_eq!(peer.status(), Ok(()));
    let mut bytes = [0; 5];
    victim.memory.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still");
    assert_eq!(simulator.violations(), []);
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Bytes from a stream are an address that survives writing it again, or an error.
#[test]
fn bytes_and_text_of_a_peer_are_an_address_or_refused() {
    let seed = std::env::var("MLX5_SEED");
    let mut state = seed.map_or(0x9ee5, |seed| seed.parse().expect("MLX5_SEED is a number"));
    println!("MLX5_SEED={state}");
    let (_simulator, [side, _]) = sides();
    let own = side.qp::<Rc>().endpoint(&side.port, PSN, &ConnectOptions::default());
    let region: RemoteSlice = side.memory.remote_slice(..).unwrap();
    // Nearly the last possible addresses.
    let last = RemoteAddress { addr: u64::MAX - 4096, ..region.start() };
    let last = RemoteSlice::<u8>::new(last, region.len()).unwrap();
    let (mut endpoints, mut regions) = (0, 0);
    for round in 0..20_000 {
        let region = if round % 2 == 0 { region } else { last };
        // Changes one byte of a good encoding, or of text, or cuts some bytes at the end.
        let mut spoil = |good: &[u8]| {
            let mut bytes = good.to_vec();
            let random = next(&mut state);
            let at = (random >> 8) as usize % bytes.len();
            match random % 8 {
                0 => bytes.truncate(at),
                1 => bytes.push(random as u8),
                _ => bytes[at] ^= (random >> 32) as u8,
            }
            bytes
        };
        fn same<T: PartialEq + Debug>(one: T, again: Result<T, impl Debug>) -> usize {
            assert_eq!(one, again.unwrap());
            1
        }
        if let Ok(endpoint) = Endpoint::from_bytes(&spoil(&own.to_bytes())) {
            endpoints += same(endpoint, Endpoint::from_bytes(&endpoint.to_bytes()));
        }
        if let Ok(slice) = RemoteSlice::<u8>::from_bytes(&spoil(&region.to_bytes())) {
            regions += same(slice, RemoteSlice::from_bytes(&slice.to_bytes()));
            // It ends within the address space, so no offset into it wraps.
            let start = u128::from(slice.start().addr);
            assert!(start + slice.len() as u128 <= 1 << 64, "{slice}");
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(endpoint) = text(spoil(own.to_string().as_bytes())).parse::<Endpoint>() {
            endpoints += same(endpoint, endpoint.to_string().parse());
        }
        if let Ok(slice) = text(spoil(region.to_string().as_bytes())).parse::<RemoteSlice>() {
            regions += same(slice, slice.to_string().parse());
        }
    }
    assert!(endpoints > 0 && regions > 0, "{endpoints} and {regions} were taken");
}
