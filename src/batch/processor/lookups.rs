//! Lookups, which read records before they are claimed when many of a batch turn out to be final (B12).

/// The number of records that claims must find done before lookups begin.
const MIN_DONE: usize = 3;

/// The maximum number of chunks in concurrent lookups.
const MAX_CHUNKS: usize = 10;

/// The limit of concurrent lookups, depending on the share of records that were already done.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// Records that claims found done, counted since the last call in which few were.
    done: usize,
    /// The current limit in chunks. Zero switches lookups off.
    chunks: usize,
    /// Records in the lookups that are in flight.
    under_way: usize,
}

impl Lookups {
    /// Returns whether records are looked up before they are claimed.
    pub(super) fn are_on(&self) -> bool {
        self.chunks > 0
    }

    /// Returns the number of records in the lookups that are in flight.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns whether the limit allows another chunk of this size.
    pub(super) fn have_room(&self, chunk: usize) -> bool {
        self.under_way + chunk <= self.chunks * chunk
    }

    /// Counts the records of a lookup that begins.
    pub(super) fn begin(&mut self, records: usize) {
        self.under_way += records;
    }

    /// Adjusts the limit after a call that claimed `records`, of which `done` were already done.
    pub(super) fn claimed(&mut self, records: usize, done: usize) {
        if self.are_on() {
            // These records were looked up before.
            return;
        }
        self.done = if are_many(done, records) { self.done + done } else { 0 };
        self.chunks = usize::from(self.done >= MIN_DONE);
    }

    /// Adjusts the limit after a lookup of `records`, of which `done` were already done.
    pub(super) fn end(&mut self, records: usize, done: usize) {
        self.under_way -= records;
        self.done = 0;
        self.chunks = if are_many(done, records) { (2 * self.chunks).min(MAX_CHUNKS) } else { 0 };
    }
}

/// Returns whether at least a third of the records are done. In a batch that is half done, a single chunk may contain
/// fewer than half.
fn are_many(done: usize, records: usize) -> bool {
    3 * done >= records.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tests B12.
    #[test]
    fn records_are_looked_up_while_at_least_a_third_of_them_are_done() {
        let mut lookups = Lookups::default();
        lookups.claimed(25, 8);
        assert!(!lookups.are_on());
        lookups.claimed(25, 9);
        assert!(lookups.are_on());
        lookups.begin(25);
        lookups.end(25, 8);
        assert!(!lookups.are_on());
    }

    // Tests B12.
    #[test]
    fn the_number_of_lookups_at_once_doubles_up_to_ten_chunks() {
        let mut lookups = Lookups::default();
        lookups.claimed(25, 25);
        let most_at_once = |lookups: &mut Lookups| {
            let before = lookups.under_way();
            while lookups.have_room(25) {
                lookups.begin(25);
            }
            (lookups.under_way() - before) / 25
        };
        let mut found = Vec::new();
        for _ in 0..4 {
            let begun = most_at_once(&mut lookups);
            found.push(begun);
            // Each one that ends doubles the limit, so the two of the second round make it eight.
            (0..begun).for_each(|_| lookups.end(25, 25));
        }
        assert_eq!(found, [1, 2, 8, 10]);
    }

    #[test]
    fn single_claims_show_it_by_three_in_a_row() {
        let mut lookups = Lookups::default();
        for (done, is_on) in [(1, false), (1, false), (0, false), (1, false), (1, false), (1, true)] {
            lookups.claimed(1, done);
            assert_eq!(lookups.are_on(), is_on);
        }
    }
}
