use std::collections::HashMap;

use zerocopy::IntoBytes;

use super::*;
use crate::ioctl::RDMA_DRIVER_MLX5;
use crate::verbs::QpState;

/// Memory by address.
#[derive(Default)]
struct Memory(HashMap<u64, Vec<u8>>);

impl CallerMemory for Memory {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let Some(bytes) = self.0.get(&address).and_then(|bytes| bytes.get(..to.len())) else {
            return false;
        };
        to.copy_from_slice(bytes);
        true
    }
}

/// A call that a test builds.
struct Made {
    method: Method,
    attrs: Vec<IoctlAttr>,
    memory: Memory,
}

impl Made {
    fn new(method: Method) -> Self {
        Self { method, attrs: Vec::new(), memory: Memory::default() }
    }

    fn number(mut self, id: AttrId, len: u16, data: u64) -> Self {
        self.attrs.push(IoctlAttr { attr_id: id.0, len, data, ..IoctlAttr::default() });
        self
    }

    /// Adds bytes at an address.
    fn bytes(mut self, id: AttrId, bytes: &[u8]) -> Self {
        let address = 0x1000 * (1 + self.memory.0.len() as u64);
        self.memory.0.insert(address, bytes.to_vec());
        self.number(id, bytes.len() as u16, address)
    }

    fn read(&self) -> Option<QueueCall> {
        let header = IoctlHeader {
            length: (24 + 16 * self.attrs.len()) as u16,
            object_id: self.method.object,
            method_id: self.method.id,
            num_attrs: self.attrs.len() as u16,
            driver_id: RDMA_DRIVER_MLX5,
            ..IoctlHeader::default()
        };
        let bytes = [header.as_bytes(), self.attrs.as_bytes()].concat();
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        QueueCall::read(&words, &self.memory)
    }
}

fn cq_driver() -> mlx5::CreateCq {
    mlx5::CreateCq {
        buf_addr: 0x7000,
        db_addr: 0x8000,
        cqe_size: 128,
        cqe_comp_en: 1,
        cqe_comp_res_format: 4,
        ..Default::default()
    }
}

const CQ: QueueCall = QueueCall::Cq(MadeCq {
    handle: 5,
    number: 0x40,
    ring: 0x7000,
    record: 0x8000,
    entries: 256,
    entry_size: 128,
    compressed: 4,
});

fn qp_driver() -> mlx5::CreateQp {
    mlx5::CreateQp {
        buf_addr: 0x10000,
        db_addr: 0x8008,
        sq_wqe_count: 64,
        rq_wqe_count: 16,
        rq_wqe_shift: 5,
        uidx: 0x77,
        sq_buf_addr: 0x20000,
        ..Default::default()
    }
}

fn made_qp(kind: QpType, send_ring: u64) -> QueueCall {
    QueueCall::Qp(MadeQp {
        handle: 6,
        number: 0x123,
        kind: kind.raw().into(),
        send_ring,
        send_blocks: 64,
        receive_ring: 0x10000,
        receives: 16,
        receive_size: 32,
        record: 0x8008,
        user_index: 0x77,
    })
}

#[test]
fn each_line_is_read_as_it_was_written() {
    let samples = QueueCall::samples();
    assert_eq!(samples.len(), 8);
    for call in samples {
        let line = call.to_string();
        assert_eq!(line.parse(), Ok(call), "{line}");
        assert_eq!(format!("{line} more=1").parse::<QueueCall>(), Err(UnknownCall));
        if let Some((short, _)) = line.rsplit_once(' ') {
            assert_eq!(short.parse::<QueueCall>(), Err(UnknownCall));
        }
    }
    for line in
        ["", "end", "end handle=1 object=3", "end object=3 handle=-1", "ends object=3 handle=1"]
    {
        assert_eq!(line.parse::<QueueCall>(), Err(UnknownCall), "{line}");
    }
}

#[test]
fn a_note_says_when_and_on_which_device() {
    for before in [false, true] {
        let noted = Noted { device: 3, before, call: CQ };
        assert_eq!(noted.to_string().parse(), Ok(noted));
    }
    let line = Noted { device: 3, before: true, call: CQ }.to_string();
    assert!(line.starts_with("mlx5-queue 3 before cq handle=5 number=64 "), "{line}");
    for line in [&line[1..], "mlx5-queue 3 within end object=3 handle=1", "mlx5-queue 3"] {
        assert_eq!(line.parse::<Noted>(), Err(UnknownCall), "{line}");
    }
}

#[test]
fn a_completion_queue_is_read_from_its_ioctl() {
    use attr::create_cq as id;
    let call = Made::new(method::CQ_CREATE)
        .number(id::HANDLE, 0, 5)
        .bytes(id::RESP_CQE, &255_u32.to_ne_bytes())
        .bytes(attr::uhw::IN, cq_driver().as_bytes())
        .bytes(attr::uhw::OUT, mlx5::CreateCqResp { cqn: 0x40, reserved: 0 }.as_bytes());
    assert_eq!(call.read(), Some(CQ));
    // The kernel takes any number but one for none.
    let driver = mlx5::CreateCq { cqe_comp_en: 2, ..cq_driver() };
    let call = Made::new(method::CQ_CREATE)
        .number(id::HANDLE, 0, 5)
        .bytes(id::RESP_CQE, &255_u32.to_ne_bytes())
        .bytes(attr::uhw::IN, driver.as_bytes())
        .bytes(attr::uhw::OUT, mlx5::CreateCqResp { cqn: 0x40, reserved: 0 }.as_bytes());
    assert!(matches!(call.read(), Some(QueueCall::Cq(made)) if made.compressed == 0));
    // Without the kernel's output there is no call to report.
    let call = Made::new(method::CQ_CREATE).number(id::HANDLE, 0, 5);
    assert_eq!(call.read(), None);
}

#[test]
fn the_rings_of_a_queue_pair_follow_each_other_but_for_raw_packets() {
    use attr::create_qp as id;
    let call = |kind: QpType| {
        Made::new(method::QP_CREATE)
            .number(id::HANDLE, 0, 6)
            .number(id::TYPE, 8, kind.raw().into())
            .bytes(id::RESP_QP_NUM, &0x123_u32.to_ne_bytes())
            .bytes(attr::uhw::IN, qp_driver().as_bytes())
    };
    assert_eq!(call(QpType::Rc).read(), Some(made_qp(QpType::Rc, 0x10000 + 16 * 32)));
    assert_eq!(call(QpType::RawPacket).read(), Some(made_qp(QpType::RawPacket, 0x20000)));
    assert_eq!(call(QpType::XrcTgt).read(), None);
    let hash = call(QpType::RawPacket).number(id::IND_TABLE_HANDLE, 0, 1);
    assert_eq!(hash.read(), None);
}

#[test]
fn shared_receive_queues_and_work_queues_have_the_kernels_sizes() {
    let driver = mlx5::CreateSrq { buf_addr: 1, db_addr: 2, uidx: 3, ..Default::default() };
    let call = {
        use attr::create_srq as id;
        Made::new(method::SRQ_CREATE)
            .number(id::HANDLE, 0, 7)
            .bytes(id::RESP_MAX_WR, &127_u32.to_ne_bytes())
            .bytes(id::RESP_MAX_SGE, &3_u32.to_ne_bytes())
            .bytes(attr::uhw::IN, driver.as_bytes())
            .bytes(attr::uhw::OUT, mlx5::CreateSrqResp { srqn: 9, reserved: 0 }.as_bytes())
    };
    let made = MadeSrq {
        handle: 7,
        number: 9,
        ring: 1,
        record: 2,
        entries: 128,
        entry_size: 64,
        user_index: 3,
    };
    assert_eq!(call.read(), Some(QueueCall::Srq(made)));

    // Strides count only with their bit in the mask.
    for (comp_mask, strides, stride_size) in [(0, 0, 0), (1, 512, 64)] {
        let driver = mlx5::CreateWq {
            buf_addr: 1,
            db_addr: 2,
            rq_wqe_count: 32,
            rq_wqe_shift: 4,
            user_index: 5,
            comp_mask,
            single_stride_log_num_of_bytes: 6,
            single_wqe_log_num_of_strides: 9,
            ..Default::default()
        };
        let call = {
            use attr::create_wq as id;
            Made::new(method::WQ_CREATE)
                .number(id::HANDLE, 0, 8)
                .bytes(id::RESP_WQ_NUM, &77_u32.to_ne_bytes())
                .bytes(attr::uhw::IN, driver.as_bytes())
        };
        let made = MadeWq {
            handle: 8,
            number: 77,
            ring: 1,
            record: 2,
            entries: 32,
            entry_size: 16,
            user_index: 5,
            strides,
            stride_size,
        };
        assert_eq!(call.read(), Some(QueueCall::Wq(made)));
    }
}

#[test]
fn a_request_of_a_shared_queue_takes_a_power_of_two() {
    let strides = [0, 1, 2, 3, 4, 7, 8].map(srq_stride);
    assert_eq!(strides, [32, 32, 64, 64, 128, 128, 256]);
    assert_eq!(srq_stride(u64::MAX), 1 << 20);
}

#[test]
fn ends_are_read_from_the_request_alone() {
    for (method, id, object) in [
        (method::CQ_DESTROY, attr::destroy_cq::HANDLE, object::CQ),
        (method::QP_DESTROY, attr::destroy_qp::HANDLE, object::QP),
        (method::SRQ_DESTROY, attr::destroy_srq::HANDLE, object::SRQ),
        (method::WQ_DESTROY, attr::destroy_wq::HANDLE, object::WQ),
    ] {
        let call = Made::new(method).number(id, 0, 3).read().expect("an end");
        assert_eq!(call, QueueCall::End(EndedQueue { object: object.into(), handle: 3 }));
        assert!(call.ends_something());
    }
    assert!(!CQ.ends_something());
    assert_eq!(Made::new(method::PD_DESTROY).number(AttrId(0), 0, 3).read(), None);
}

fn command(command: WriteCommand, request: &[u8], response: &[u8], driver: [&[u8]; 2]) -> Made {
    Made::new(method::INVOKE_WRITE)
        .number(attr::invoke_write::WRITE_CMD, 8, u64::from(command.0))
        .bytes(attr::invoke_write::CORE_IN, request)
        .bytes(attr::invoke_write::CORE_OUT, response)
        .bytes(attr::uhw::IN, driver[0])
        .bytes(attr::uhw::OUT, driver[1])
}

/// The same call in the form of write(2).
fn written(
    command: WriteCommand,
    request: &[u8],
    response: &[u8],
    driver: [&[u8]; 2],
) -> Option<QueueCall> {
    const ANSWER: u64 = 0x9000;
    let memory = Memory([(ANSWER, [response, driver[1]].concat())].into());
    let mut bytes = command.0.to_ne_bytes().to_vec();
    let halves = |bytes: &mut Vec<u8>, lengths: [usize; 2], unit: usize| {
        for length in lengths {
            bytes.extend(((length / unit) as u16).to_ne_bytes());
        }
    };
    if command.is_extended() {
        halves(&mut bytes, [request.len(), response.len()], 8);
        bytes.extend(ANSWER.to_ne_bytes());
        halves(&mut bytes, [driver[0].len(), driver[1].len()], 8);
        bytes.extend([0; 4]);
        bytes.extend(request);
    } else {
        let whole = [8 + request.len() + driver[0].len(), response.len() + driver[1].len()];
        halves(&mut bytes, whole, 4);
        bytes.extend(ANSWER.to_ne_bytes());
        bytes.extend(&request[8..]);
    }
    bytes.extend(driver[0]);
    QueueCall::read_written(&bytes, &memory)
}

#[test]
fn commands_say_the_same_by_ioctl_and_by_write() {
    let cq_answer = CreateCqResp { cq_handle: 5, cqe: 255 };
    let cqn = mlx5::CreateCqResp { cqn: 0x40, reserved: 0 };
    let (driver, qp_driver) = (cq_driver(), qp_driver());
    let plain = CreateQp { qp_type: QpType::Rc.raw(), ..Default::default() };
    let extended = ExCreateQp { qp_type: QpType::Rc.raw(), ..Default::default() };
    let qp_answer = CreateQpResp { qp_handle: 6, qpn: 0x123, ..Default::default() };
    let qp_answer_ex = [qp_answer.as_bytes(), &[0; 8]].concat();
    let srq_answer = CreateSrqResp { srq_handle: 7, max_wr: 127, max_sge: 3, srqn: 0 };
    let srqn = mlx5::CreateSrqResp { srqn: 9, reserved: 0 };
    let srq_driver = mlx5::CreateSrq::default();
    let resize = ResizeCq { cq_handle: 5, ..Default::default() };
    let resized = ResizeCqResp { cqe: 511, reserved: 0 };
    let resize_driver = mlx5::ResizeCq { buf_addr: 0xa000, cqe_size: 64, ..Default::default() };
    let reset = ModifyQp {
        qp_handle: 6,
        attr_mask: QpAttrMask::STATE.bits(),
        qp_state: QpState::Reset.raw(),
        ..Default::default()
    };
    let gone = DestroyObject { handle: 5, ..Default::default() };
    let qp = Some(made_qp(QpType::Rc, 0x10200));
    let srq = QueueCall::Srq(MadeSrq {
        handle: 7,
        number: 9,
        entries: 128,
        entry_size: 64,
        ..Default::default()
    });
    let resized_to =
        QueueCall::Resized(ResizedCq { handle: 5, ring: 0xa000, entries: 512, entry_size: 64 });
    let none: &[u8] = &[];
    type Case<'a> = (WriteCommand, &'a [u8], &'a [u8], [&'a [u8]; 2], Option<QueueCall>);
    let cases: [Case<'_>; 8] = [
        (
            WriteCommand::CREATE_CQ,
            &[0; CREATE_CQ],
            cq_answer.as_bytes(),
            [driver.as_bytes(), cqn.as_bytes()],
            Some(CQ),
        ),
        (
            WriteCommand::CREATE_CQ_EX,
            &[0; 32],
            cq_answer.as_bytes(),
            [driver.as_bytes(), cqn.as_bytes()],
            Some(CQ),
        ),
        (
            WriteCommand::CREATE_QP,
            plain.as_bytes(),
            qp_answer.as_bytes(),
            [qp_driver.as_bytes(), none],
            qp,
        ),
        (
            WriteCommand::CREATE_QP_EX,
            extended.as_bytes(),
            &qp_answer_ex,
            [qp_driver.as_bytes(), none],
            qp,
        ),
        (
            WriteCommand::CREATE_SRQ,
            &[0; CREATE_SRQ],
            srq_answer.as_bytes(),
            [srq_driver.as_bytes(), srqn.as_bytes()],
            Some(srq),
        ),
        (
            WriteCommand::RESIZE_CQ,
            resize.as_bytes(),
            resized.as_bytes(),
            [resize_driver.as_bytes(), none],
            Some(resized_to),
        ),
        (
            WriteCommand::MODIFY_QP,
            reset.as_bytes(),
            none,
            [none, none],
            Some(QueueCall::State(ChangedQp { handle: 6, state: 0 })),
        ),
        (
            WriteCommand::DESTROY_CQ,
            gone.as_bytes(),
            none,
            [none, none],
            Some(QueueCall::End(EndedQueue { object: object::CQ.into(), handle: 5 })),
        ),
    ];
    for (number, request, response, driver, wanted) in cases {
        let name = number.name().expect("a name");
        assert_eq!(command(number, request, response, driver).read(), wanted, "{name}");
        assert_eq!(written(number, request, response, driver), wanted, "{name} by write(2)");
    }
    // A change of other attributes does not change the state.
    let other = ModifyQp { attr_mask: QpAttrMask::ACCESS_FLAGS.bits(), ..reset };
    assert_eq!(command(WriteCommand::MODIFY_QP, other.as_bytes(), none, [none, none]).read(), None);
}

#[test]
fn a_write_that_says_more_than_it_has_is_nothing() {
    let memory = Memory::default();
    for length in 0..40 {
        let mut bytes = vec![0xff; length];
        if let Some(word) = bytes.first_chunk_mut() {
            *word = WriteCommand::CREATE_QP.0.to_ne_bytes();
        }
        assert_eq!(QueueCall::read_written(&bytes, &memory), None);
    }
}
