//! A part of a chain: the frames of one task out of those of its thread.

use super::chain::{Chain, ChainEnd};

impl Chain {
    /// The frames from one index to another, both among them, counted from the leaf as if none had
    /// been left out.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> Self {
        let gap = self.cut_at..self.cut_at + self.missing as usize;
        let index = |place: usize| {
            if place < self.cut_at {
                place
            } else {
                place + self.missing as usize
            }
        };
        let wanted = |place: usize| (from..=to).contains(&index(place));
        let places = 0..self.frames.len();
        let in_leaf = places.clone().take(self.cut_at);
        let kept = places.filter(|place| wanted(*place));
        let missing = gap.end.min(to.saturating_add(1));
        let missing = missing.saturating_sub(gap.start.max(from));
        Self {
            frames: kept.map(|place| self.frames[place]).collect(),
            cut_at: in_leaf.filter(|place| wanted(*place)).count(),
            missing: u32::try_from(missing).unwrap_or(u32::MAX),
            ..Self::empty(ChainEnd::Complete)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::walk::RawFrame;

    #[test]
    fn a_part_has_its_frames_and_says_how_many_of_them_were_left_out() {
        // Frames 0, 1, 2 and 7, 8, 9 of ten.
        let frames: Vec<RawFrame> = [0, 1, 2, 7, 8, 9]
            .map(|code| RawFrame { code, instr: 0 })
            .to_vec();
        let chain = Chain {
            frames,
            cut_at: 3,
            missing: 4,
            ..Chain::empty(ChainEnd::Complete)
        };
        let cases: [(usize, usize, &[u64], usize, u32); 6] = [
            (0, 1, &[0, 1], 2, 0),
            (1, 8, &[1, 2, 7, 8], 2, 4),
            (4, 5, &[], 0, 2),
            (5, 7, &[7], 0, 2),
            (8, 99, &[8, 9], 0, 0),
            (3, 2, &[], 0, 0),
        ];
        for (from, to, codes, cut_at, missing) in cases {
            let part = chain.part(from, to);
            let found: Vec<u64> = part.frames.iter().map(|frame| frame.code).collect();
            assert_eq!(found, codes, "{from} to {to}");
            assert_eq!(
                (part.cut_at, part.missing),
                (cut_at, missing),
                "{from} to {to}"
            );
        }
    }
}
