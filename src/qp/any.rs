//! Queue pairs of any transport, for mixed collections.

use super::{QpAttributes, QpInfo, QueuePair};
use crate::error::Error;
use mlx5_wqe::transport::{Rc, Uc, Ud, XrcSend};
use mlx5_wqe::{ListError, QueueState, ReceiveWr, SendWr};

macro_rules! any {
    ($($transport:ident),+) => {
        /// A queue pair of any transport. What it posts is checked when it is posted.
        pub enum AnyQueuePair {
            $(
                #[doc = concat!("Of transport [`", stringify!($transport), "`].")]
                $transport(QueuePair<$transport>),
            )+
        }

        $(impl From<QueuePair<$transport>> for AnyQueuePair {
            fn from(qp: QueuePair<$transport>) -> Self {
                Self::$transport(qp)
            }
        })+

        impl AnyQueuePair {
            /// See [`QueuePair::post_send`].
            pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError> {
                match self { $(Self::$transport(qp) => qp.post_send(list),)+ }
            }

            /// See [`QueuePair::post_recv`].
            pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
                match self { $(Self::$transport(qp) => qp.post_recv(list),)+ }
            }

            /// See [`QueuePair::modify`].
            pub fn modify(&mut self, attributes: &QpAttributes) -> Result<(), Error> {
                match self { $(Self::$transport(qp) => qp.modify(attributes),)+ }
            }

            /// See [`QueuePair::query`].
            pub fn query(&self) -> Result<QpInfo, Error> {
                match self { $(Self::$transport(qp) => qp.query(),)+ }
            }

            /// See [`QueuePair::qp_num`].
            pub fn qp_num(&self) -> u32 {
                match self { $(Self::$transport(qp) => qp.qp_num(),)+ }
            }

            /// See [`QueuePair::state`].
            pub fn state(&self) -> QueueState {
                match self { $(Self::$transport(qp) => qp.state(),)+ }
            }
        }
    };
}

any!(Rc, Uc, Ud, XrcSend);
