//! Divides the requests of a call among round trips.

use std::ops::Range;

/// Divides requests of these sizes, in order, into chunks of at most `max_requests` and `max_bytes`. A request that
/// exceeds the limit by itself gets a separate chunk.
pub(in crate::store) fn chunks(sizes: &[usize], max_requests: usize, max_bytes: usize) -> Vec<Range<usize>> {
    let mut chunks = Vec::with_capacity(sizes.len().div_ceil(max_requests));
    let (mut start, mut bytes) = (0, 0);
    for (i, size) in sizes.iter().enumerate() {
        if i > start && (i - start == max_requests || bytes + size > max_bytes) {
            chunks.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes += size;
    }
    if start < sizes.len() {
        chunks.push(start..sizes.len());
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_at_most_so_many_requests_and_bytes() {
        let chunks = |sizes: &[usize]| chunks(sizes, 25, 1_000_000);
        assert!(chunks(&[]).is_empty());
        assert_eq!(chunks(&[1; 50]), [0..25, 25..50]);
        assert_eq!(chunks(&[1; 51]), [0..25, 25..50, 50..51]);
        assert_eq!(chunks(&[600_000, 400_000, 100_000, 1]), [0..2, 2..4]);
        assert_eq!(chunks(&[1_000_000, 1, 2_000_000, 1]), [0..1, 1..2, 2..3, 3..4]);
    }
}
