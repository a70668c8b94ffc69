//! Configures memory keys.

use crate::bed::{Bed, Given, Options};
use crate::operations::mkey;
use crate::round::{ROUND, timed};
use crate::rounds::subject;

/// Pieces of memory in a key.
const PIECES: usize = 4;

subject! {
    |machine| {
        let options = Options { mkey_entries: PIECES as u32, ..Options::default() };
        let bed = Bed::new(machine, options);
        let key = bed.base.pd.create_mkey(PIECES as u32).build().expect("create_mkey");
        let given = Given::new(&bed.base);
        (bed, (key, given))
    } =>

    "mkey_configure", Single, mkey::configure x ROUND, |bed, given, first| {
        let (key, given) = given;
        let lists = given.sges.as_chunks::<PIECES>().0;
        let qp = &mut bed.qp;
        let time = timed(ROUND as usize, |k| {
            mkey::configure(qp, key, &lists[k % lists.len()], first + k as u64).is_ok()
        });
        bed.complete(ROUND);
        time
    }
}
