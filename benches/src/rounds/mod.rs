//! Runs our operations in rounds of many.

mod cancel;
mod control;
mod depth;
mod ethernet;
mod many;
mod mkey;
mod poll;
mod post;
mod receive;
mod scattered;

use crate::machine::Machine;
use crate::round::Round;

/// One operation per line: its case, its mode, its function, the operations in a round, and the
/// code of a round.
macro_rules! subject {
    ($with:expr => $($case:literal, $mode:ident, $module:ident::$function:ident x $operations:expr,
        |$bed:ident, $given:ident, $first:ident| $round:block)*) => {
        /// Functions that perform the operations.
        pub(in crate::rounds) const FUNCTIONS: &[&str] = &[$(
            concat!(
                "mlx5_bench::operations::", stringify!($module), "::", stringify!($function)
            )
        ),*];
        const CASES: &[&str] = &[$($case),*];

        /// Rounds of the wanted cases.
        pub(in crate::rounds) fn rounds(
            machine: &$crate::machine::Machine,
            wanted: &dyn Fn(&str) -> bool,
        ) -> Vec<$crate::round::Round> {
            use std::{cell::RefCell, rc::Rc};
            if !CASES.iter().any(|case| wanted(case)) {
                return Vec::new();
            }
            let (bed, given) = $with(machine);
            let (bed, given) = (Rc::new(RefCell::new(bed)), Rc::new(given));
            let mut rounds = Vec::new();
            $(if wanted($case) {
                let (bed, given) = (Rc::clone(&bed), Rc::clone(&given));
                rounds.push($crate::round::Round {
                    case: $case.into(),
                    who: "mlx5".into(),
                    mode: $crate::round::Mode::$mode,
                    operations: $operations,
                    run: Box::new(move |$first| {
                        let $bed = &mut *bed.borrow_mut();
                        let $given = &*given;
                        $round
                    }),
                });
            })*
            rounds
        }
    };
}
use subject;

/// One subject per line.
macro_rules! subjects {
    ($($($path:ident)::+),* $(,)?) => {
        /// Functions that perform the operations.
        pub(crate) fn functions() -> Vec<String> {
            [$($($path)::+::FUNCTIONS),*].concat().into_iter().map(str::to_owned).collect()
        }

        /// The wanted cases on the device of `machine`.
        pub(crate) fn rounds(machine: &Machine, wanted: &dyn Fn(&str) -> bool) -> Vec<Round> {
            let mut rounds = Vec::new();
            let wanted = &|case: &str| wanted(case) && machine.can(case);
            $(rounds.extend($($path)::+::rounds(machine, wanted));)*
            rounds
        }
    };
}

subjects! {
    post::single, post::any, post::shared, post::datagrams::single, post::datagrams::shared,
    depth, poll::single, poll::sparse,
    poll::shared, poll::compressed,
    receive::own, receive::shared, receive::locked, scattered, mkey, cancel, control, many, ethernet::one,
    ethernet::multi, ethernet::copied, ethernet::queue::single, ethernet::queue::frames, ethernet::queue::striding,
}
