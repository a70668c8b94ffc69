//! The differences that are known: `differences.txt`.

use crate::compare::Difference;

const DIFFERENCES: &str = include_str!("../differences.txt");

/// A difference that is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) id: String,
    pub(crate) peer: String,
    pub(crate) ours: String,
    pub(crate) reason: String,
    /// Number of times that the oracle met it.
    pub(crate) met: usize,
}

/// All of them.
pub(crate) struct KnownDifferences(pub(crate) Vec<Known>);

impl KnownDifferences {
    /// Those of this package.
    ///
    /// # Panics
    /// If a line of the file has not four columns.
    pub(crate) fn load() -> Self {
        let lines = DIFFERENCES.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let known = |line: &str| {
            let columns: Vec<_> = line.splitn(4, '|').map(|part| part.trim().to_owned()).collect();
            let [id, peer, ours, reason] = columns
                .try_into()
                .unwrap_or_else(|columns| panic!("a difference has four columns, not {columns:?}"));
            assert!(!reason.is_empty(), "a difference without a reason: {id}");
            Known { id, peer, ours, reason, met: 0 }
        };
        Self(lines.map(known).collect())
    }

    /// Whether a difference is known. A column `*` stands for any value.
    pub(crate) fn allow(&mut self, found: &Difference) -> bool {
        let is = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let known = self.0.iter_mut().find(|known| {
            known.id == found.id && is(&known.peer, &found.peer) && is(&known.ours, &found.ours)
        });
        known.map(|known| known.met += 1).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_difference_has_a_reason() {
        KnownDifferences::load();
    }
}
