//! Reads and atomics that either end has outstanding: no more than the other end answers and the
//! device supports.

use std::thread;

use mlx5::QueuePair;
use mlx5::transport::Rc;
use mlx5_cm::{ConnectParam, EventKind, Id, PortSpace, Remote};

use crate::rig::{LIMIT, Machine, Objects, address, event, resolved};

/// Number of requests that a queue pair starts, and that it answers.
fn depths(qp: &QueuePair<Rc>) -> (u8, u8) {
    let now = qp.query().expect("queried");
    (now.max_rd_atomic, now.max_dest_rd_atomic)
}

/// Asks with depths of its own, and connects once the other side has accepted.
struct Client {
    channel: mlx5_cm::EventChannel,
    id: Id,
    objects: Objects,
    qp: QueuePair<Rc>,
}

impl Client {
    fn ask(machine: &Machine, starts: u8, answers: u8) -> Self {
        let channel = machine.channel();
        let id = resolved(&channel, PortSpace::Tcp, |_| {});
        let (objects, qp) = Objects::new(&id.device().expect("a device"));
        let param = ConnectParam::new(qp.qp_num());
        id.connect(&param.initiator_depth(starts).responder_resources(answers)).expect("asked");
        Self { channel, id, objects, qp }
    }

    fn connect(&mut self) -> Remote {
        let EventKind::ConnectResponse(remote) = event(&self.channel) else { panic!("no answer") };
        self.id.to_rts(&mut self.qp).expect("RTS");
        self.id.ready().expect("ready");
        remote
    }
}

#[test]
fn request_for_more_depth_than_the_device_has_gets_the_devices_limit() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let mut client = Client::ask(&machine, 128, 255);
    let request = listener.next(Some(LIMIT)).expect("a request");
    let (objects, qp) = Objects::new(&request.device().expect("a device"));
    thread::scope(|scope| {
        let server = scope.spawn(|| request.timeout(LIMIT).accept(qp, b"").expect("accepted"));
        let remote = client.connect();
        assert_eq!((remote.initiator_depth, remote.responder_resources), (16, 16));
        let server = server.join().expect("the server");
        assert_eq!([depths(&client.qp), depths(server.qp())], [(16, 16); 2]);
    });
    drop((client.id, client.qp, client.channel, client.objects, objects, listener));
    machine.end();
}

/// Neither end starts more than the other answers, for any request.
#[test]
fn no_end_starts_more_than_the_other_answers() {
    let wanted = [(1, 1), (16, 16), (1, 16), (4, 2), (3, 5), (128, 0), (0, 255)];
    for client_wants in wanted {
        for server_wants in wanted {
            let machine = Machine::roce();
            let server = machine.channel();
            let listener = server.create_id(PortSpace::Tcp).expect("created");
            listener.bind(address()).expect("bound");
            listener.listen(1).expect("listening");
            let mut client = Client::ask(&machine, client_wants.0, client_wants.1);
            let EventKind::ConnectRequest { id: request, .. } = event(&server) else {
                panic!("no request")
            };
            let (objects, mut qp) = Objects::new(&request.device().expect("a device"));
            let (starts, answers) = server_wants;
            let param = ConnectParam::new(qp.qp_num());
            let param = param.initiator_depth(starts).responder_resources(answers);
            request.accept_qp(&mut qp, &param).expect("accepted");
            let remote = client.connect();
            let (client_starts, client_answers) = depths(&client.qp);
            let (server_starts, server_answers) = depths(&qp);
            let all = format!(
                "{client_wants:?} {server_wants:?}: {:?}, {:?}",
                (client_starts, client_answers),
                (server_starts, server_answers)
            );
            // A depth of zero reads back as one: the device stores its logarithm.
            assert!(client_starts <= server_answers && server_starts <= client_answers, "{all}");
            assert!(client_starts <= client_wants.0.max(1), "{all}");
            assert!(server_starts <= server_wants.0.max(1), "{all}");
            assert!(remote.initiator_depth <= client_wants.0, "{all}: {remote:?}");
            assert!(remote.responder_resources <= client_wants.1, "{all}: {remote:?}");
            drop((client.id, client.qp, client.channel, client.objects));
            drop((request, qp, objects, listener, server));
            machine.end();
        }
    }
}
