//! The tag list of a shared receive queue: its entries, and the order in which they are searched.

use crate::engine::state::receive::Entry;

/// Settings of a shared receive queue's tag list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagMatchingConfig {
    /// Completion queue of all its completions.
    pub cqn: u32,
    /// Base-two logarithm of the entries of the list.
    pub log_list_size: u8,
    /// The device fetches the data of rendezvous, for queue pairs that allow it.
    pub rendezvous: bool,
}

/// A tag to match, and the buffer for the message that matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) tag: u64,
    pub(crate) mask: u64,
    pub(crate) buffer: Option<Entry>,
    /// Software knew of every unexpected message when it added the tag, or has said so since.
    coherent: bool,
}

impl Tag {
    pub(crate) fn new(tag: u64, mask: u64, buffer: Option<Entry>) -> Self {
        Self { tag, mask, buffer, coherent: false }
    }

    /// The most bytes of a message that fit in its buffer.
    pub(crate) fn capacity(&self) -> u64 {
        self.buffer.map_or(0, |buffer| buffer.length)
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Free,
    Listed(Tag),
    /// A message matched; its data is on the way.
    Consumed,
}

/// The tags of a queue.
///
/// A message that matches nothing is unexpected. From then on the device does not match tags that
/// are added, because software may match the message with one of them itself. The device matches
/// them once software has said that it handled as many unexpected messages as the device has
/// counted.
#[derive(Debug)]
pub(crate) struct TagList {
    pub(crate) config: TagMatchingConfig,
    places: Vec<Place>,
    /// Places of tags, in the order in which they were added; the first that matches wins.
    order: Vec<u16>,
    /// The place that the next tag takes.
    next: u16,
    /// Unexpected messages that software handled.
    software_phase: u16,
    /// Unexpected messages that the device counted.
    pub(crate) hardware_phase: u16,
    /// Number of changes after which a message that matched nothing before may match.
    pub(crate) changes: u64,
}

/// An operation that a driver must never request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadPlace(pub(crate) u16);

/// State of a list, as QUERY_XRQ returns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagListSnapshot {
    /// Number of tags on the list.
    pub tags: usize,
    /// The place that the next tag takes.
    pub append_next_index: u16,
    /// Unexpected messages that software said it handled.
    pub sw_phase_cnt: u16,
    /// Unexpected messages that the device counted.
    pub hw_phase_cnt: u16,
}

impl TagList {
    pub(crate) fn new(config: TagMatchingConfig) -> Self {
        Self {
            config,
            places: vec![Place::Free; 1 << config.log_list_size],
            order: Vec::new(),
            next: 0,
            software_phase: 0,
            hardware_phase: 0,
            changes: 0,
        }
    }

    pub(crate) fn snapshot(&self) -> TagListSnapshot {
        TagListSnapshot {
            tags: self.order.len(),
            append_next_index: self.next,
            sw_phase_cnt: self.software_phase,
            hw_phase_cnt: self.hardware_phase,
        }
    }

    /// Software has handled `software_phase` unexpected messages and has seen all tags added so
    /// far.
    pub(crate) fn synchronise(&mut self, software_phase: u16) {
        self.software_phase = software_phase;
        self.changes += 1;
        if software_phase == self.hardware_phase {
            for place in &mut self.places {
                if let Place::Listed(tag) = place {
                    tag.coherent = true;
                }
            }
        }
    }

    fn is_free(&self, place: u16) -> bool {
        matches!(self.places.get(usize::from(place)), Some(Place::Free))
    }

    /// Adds a tag; `next` is the place of the one after it.
    pub(crate) fn append(&mut self, mut tag: Tag, next: u16) -> Result<u16, BadPlace> {
        let place = self.next;
        if !self.is_free(place) {
            return Err(BadPlace(place));
        }
        if next == place || !self.is_free(next) {
            return Err(BadPlace(next));
        }
        tag.coherent = self.software_phase == self.hardware_phase;
        self.places[usize::from(place)] = Place::Listed(tag);
        self.order.push(place);
        self.changes += 1;
        self.next = next;
        Ok(place)
    }

    /// Removes a tag and returns whether it was listed.
    pub(crate) fn remove(&mut self, place: u16) -> Result<bool, BadPlace> {
        match self.places.get(usize::from(place)) {
            None => Err(BadPlace(place)),
            Some(Place::Listed(_)) => {
                self.places[usize::from(place)] = Place::Free;
                self.order.retain(|other| *other != place);
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Takes the tag that a message matches off the list. Its place stays taken until
    /// [`TagList::finish`].
    pub(crate) fn consume(&mut self, tag: u64) -> Option<(u16, Tag)> {
        let at = self.order.iter().position(|place| {
            matches!(self.places[usize::from(*place)], Place::Listed(entry)
                if entry.coherent && tag & entry.mask == entry.tag)
        })?;
        let place = self.order.remove(at);
        match std::mem::replace(&mut self.places[usize::from(place)], Place::Consumed) {
            Place::Listed(tag) => Some((place, tag)),
            _ => None,
        }
    }

    /// Counts a message that matched nothing.
    pub(crate) fn count_unexpected(&mut self) {
        self.hardware_phase = self.hardware_phase.wrapping_add(1);
    }

    /// Frees the place of a consumed tag, just before its completion is reported to software.
    pub(crate) fn finish(&mut self, place: u16) {
        if let Some(place) = self.places.get_mut(usize::from(place))
            && matches!(place, Place::Consumed)
        {
            *place = Place::Free;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(log_list_size: u8) -> TagList {
        TagList::new(TagMatchingConfig { cqn: 0, log_list_size, rendezvous: true })
    }

    fn tag(tag: u64, mask: u64) -> Tag {
        Tag::new(tag, mask, None)
    }

    #[test]
    fn the_tag_added_first_matches_first_whatever_its_place() {
        let mut list = list(3);
        assert_eq!(list.append(tag(7, u64::MAX), 5), Ok(0));
        assert_eq!(list.append(tag(7, u64::MAX), 2), Ok(5));
        assert_eq!(list.append(tag(0, 0), 1), Ok(2));
        assert_eq!(list.consume(7).map(|(place, _)| place), Some(0));
        assert_eq!(list.consume(7).map(|(place, _)| place), Some(5));
        assert_eq!(list.consume(9).map(|(place, _)| place), Some(2), "nothing of it is compared");
        assert!(list.consume(7).is_none());
    }

    #[test]
    fn a_message_matches_where_its_masked_tag_is_the_entry_s() {
        let mut list = list(2);
        assert_eq!(list.append(tag(0x1200, 0xff00), 1), Ok(0));
        // A tag with bits that its mask lacks can match nothing.
        assert_eq!(list.append(tag(0x1234, 0xff00), 2), Ok(1));
        assert!(list.consume(0x1334).is_none());
        assert_eq!(list.consume(0x1234).map(|(place, _)| place), Some(0));
        assert!(list.consume(0x1234).is_none());
    }

    #[test]
    fn tags_added_behind_an_unexpected_message_wait_for_software() {
        let mut list = list(3);
        list.append(tag(1, u64::MAX), 1).expect("room");
        list.count_unexpected();
        list.append(tag(2, u64::MAX), 2).expect("room");
        assert!(list.consume(2).is_none(), "the device does not match it yet");
        assert!(list.consume(1).is_some(), "older tags it does");
        list.synchronise(1);
        assert!(list.consume(2).is_some());
    }

    #[test]
    fn a_place_is_taken_until_the_message_is_there() {
        let mut list = list(1);
        list.append(tag(1, u64::MAX), 1).expect("room");
        let (place, _) = list.consume(1).expect("a match");
        assert_eq!(list.remove(place), Ok(false), "it was consumed meanwhile");
        assert_eq!(list.append(tag(1, u64::MAX), place), Err(BadPlace(place)));
        list.finish(place);
        assert_eq!(list.append(tag(1, u64::MAX), place), Ok(1));
        assert_eq!(list.remove(2), Err(BadPlace(2)));
    }
}
