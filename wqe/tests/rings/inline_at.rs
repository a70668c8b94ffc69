//! Inline data given by addresses: bytes and refusals are the same as for slices.

use crate::bed::{Bed, Spec};
use crate::by_hand::{ADDRESS, Kind, QKEY, TO_QPN, least, pattern};
use mlx5_wqe::{
    Batch, Data, InlineSges, ListTransport, Operation, PostError, Rc, SendFlags, SendWr, Sge, Uc,
    Ud, XrcSend,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The addresses and lengths of slices, with keys that are not used.
fn places(slices: &[&[u8]]) -> Vec<Sge> {
    let place = |slice: &&[u8]| {
        let addr = slice.as_ptr().expose_provenance() as u64;
        Sge { addr, length: slice.len() as u32, lkey: 0xbad }
    };
    slices.iter().map(place).collect()
}

/// The lists of slices that are compared: none, one and more, empty ones, and as much as fits.
fn lists(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut lists = vec![vec![], vec![b"" as &[u8], b""], vec![&bytes[..3], b"", &bytes[7..20]]];
    lists.extend((0..=bytes.len()).map(|length| vec![&bytes[..length]]));
    lists.extend((0..bytes.len()).map(|length| vec![&bytes[..length], &bytes[length..]]));
    lists
}

/// Adds a send by a setter of the typed builder.
trait Setters: Kind + Sized {
    fn by_slices(batch: &mut Batch<'_, Self>, slices: &[&[u8]]);
    fn by_places(batch: &mut Batch<'_, Self>, places: InlineSges<'_>);
}

macro_rules! setters {
    ($($transport:ident |$request:ident| $to:expr;)*) => {$(
        impl Setters for $transport {
            fn by_slices(batch: &mut Batch<'_, Self>, slices: &[&[u8]]) {
                let $request = batch.wr(7, SIGNALED).send();
                $to.inline_data_list(slices);
            }

            fn by_places(batch: &mut Batch<'_, Self>, places: InlineSges<'_>) {
                let $request = batch.wr(7, SIGNALED).send();
                $to.inline_data_at(places);
            }
        }
    )*};
}

setters! {
    Rc |request| request;
    Uc |request| request;
    Ud |request| request.ud_addr(&ADDRESS, TO_QPN, QKEY);
    XrcSend |request| request.xrc_srqn(5);
}

fn compare<T: Setters + ListTransport>() {
    // Also too many.
    let bytes = pattern(100);
    // Some wrap around the end of the ring.
    for start in [0, 13, 14, 15] {
        for slices in lists(&bytes) {
            let spec = Spec { requests: 16, inline: 60, ..Spec::default() };
            let mut beds: [Bed<T>; 4] = std::array::from_fn(|_| Bed::new(spec));
            beds.iter_mut().for_each(|bed| bed.advance_to(start % bed.layout.blocks));
            let places = places(&slices);
            // SAFETY: the pieces are those of slices, which live longer than the call.
            let at = unsafe { InlineSges::new(&places) };
            let [one, typed, listed, other] = &mut beds;
            let mut batch = one.queue.wr_start();
            T::by_slices(&mut batch, &slices);
            let by_slices = batch.complete();
            let mut batch = typed.queue.wr_start();
            T::by_places(&mut batch, at);
            assert_eq!(batch.complete(), by_slices, "{} of {start}", slices.len());
            assert!(one.ring.all() == typed.ring.all() && one.uar.all() == typed.uar.all());
            let wr = SendWr { operation: Operation::Send, ..least(7, SIGNALED) };
            let by_list = listed.queue.post_send(&[SendWr { data: Data::Inline(&slices), ..wr }]);
            let by_places = other.queue.post_send(&[SendWr { data: Data::InlineAt(at), ..wr }]);
            assert_eq!(by_places, by_list);
            assert_eq!(by_list, by_slices.map_err(Into::into));
            assert!(listed.ring.all() == other.ring.all() && listed.uar.all() == other.uar.all());
        }
    }
}

#[test]
fn bytes_by_address_are_those_of_slices() {
    compare::<Rc>();
    compare::<Uc>();
    compare::<Ud>();
    compare::<XrcSend>();
}

/// A piece that is too long is refused before it is read, and an empty one is never read.
#[test]
fn an_address_that_is_not_needed_is_not_read() {
    let spec = Spec { inline: 60, ..Spec::default() };
    let mut bed = Bed::<Rc>::new(spec);
    let (bytes, max) = (pattern(8), bed.queue.max_inline());
    let nowhere = |length| Sge { addr: 1, length, lkey: 0 };
    let mut post = |pieces: &[Sge]| {
        // SAFETY: every piece at an address that cannot be read is too long or empty, so it is not
        // read.
        let data = Data::InlineAt(unsafe { InlineSges::new(pieces) });
        bed.queue.post_send(&[SendWr { data, ..least(1, SIGNALED) }]).map_err(|list| list.error())
    };
    for pieces in [&[nowhere(u32::MAX)][..], &[nowhere(max + 1)], &[nowhere(u32::MAX); 4]] {
        let total: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let length = u32::try_from(total).unwrap_or(u32::MAX);
        assert_eq!(post(pieces), Err(PostError::InlineTooLong { length, max }));
    }
    assert_eq!(post(&[nowhere(0)]), Ok(()));
    assert_eq!(post(&[nowhere(0), places(&[&bytes])[0], nowhere(0)]), Ok(()));
}
