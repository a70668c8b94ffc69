//! Debug output of queue pairs and their parts. It makes no system call, takes no lock, and reads
//! no memory that a forked child lacks.

use super::{
    ControlHalf, QpInner, QueuePair, QueuePairTransport, ReceiveHalf, SendHalf, SharedQueuePair,
    transitions,
};
use crate::pools::ReceiveSide;
use std::fmt;

impl QpInner {
    /// Writes the queue pair's number, transport and state. `send` and `receive` choose the queues
    /// for which it also writes the depth and the number of requests in flight; for a shared
    /// receive queue it writes the queue's number instead.
    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        send: bool,
        receive: bool,
    ) -> fmt::Result {
        let mut fields = f.debug_struct(name);
        fields
            .field("qp_num", &format_args!("{:#x}", self.qp_num))
            .field("transport", &format_args!("{}", transitions::transport_name(self.qp_type)))
            .field("state", &format_args!("{}", self.gate.name()));
        let records = self.index.records();
        if send {
            fields
                .field("max_send_wr", &self.caps.max_send_wr)
                .field("sends_in_flight", &records.send.in_flight());
        }
        match (&records.receive, &self.srq) {
            _ if !receive => {}
            (_, Some(srq)) => {
                fields.field("srqn", &format_args!("{:#x}", srq.srqn()));
            }
            (ReceiveSide::Own(receives), None) if self.caps.max_recv_wr != 0 => {
                fields
                    .field("max_recv_wr", &self.caps.max_recv_wr)
                    .field("receives_in_flight", &receives.in_flight());
            }
            _ => {}
        }
        fields.finish_non_exhaustive()
    }
}

impl<T: QueuePairTransport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.control.inner.write(f, "QueuePair", true, true)
    }
}

impl<T: QueuePairTransport> fmt::Debug for SharedQueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.write(f, "SharedQueuePair", true, true)
    }
}

impl<T: QueuePairTransport> fmt::Debug for SendHalf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.write(f, "SendHalf", true, false)
    }
}

impl fmt::Debug for ReceiveHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.write(f, "ReceiveHalf", false, true)
    }
}

impl fmt::Debug for ControlHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.write(f, "ControlHalf", false, false)
    }
}
