//! Tasks read from a live target through a memory that lies: whatever stands in it, the reading ends
//! soon and says something.

use std::cell::Cell;

use anyhow::{Result, ensure};
use profiler::pipeline::Attached;
use profiler::target::{Memory, Piece, ReadError};
use profiler::tasks::{MAX_CHAIN, TaskReader};
use profiler::words::{Pid, RemoteAddr};
use tests::on_each;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::target::Target;

/// More reads than any reading may take.
const MAX_READS: u64 = 4_000_000;
/// More bytes than any single read may ask for, since they are allocated before.
const MAX_READ: usize = 32 << 20;

/// One word in so many is a lie.
const RATES: [u64; 3] = [2000, 200, 20];
const SEEDS: u64 = 12;

struct Lying<'a> {
    truth: &'a dyn Memory,
    seed: u64,
    rate: u64,
    reads: Cell<u64>,
}

impl Lying<'_> {
    /// What is said to stand at a word's address; always the same, so that nothing tells it apart.
    fn lie(&self, addr: u64) -> Option<u64> {
        let noise = (addr ^ self.seed.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let noise = noise ^ noise >> 29;
        if !noise.is_multiple_of(self.rate) {
            return None;
        }
        Some(match noise >> 32 & 7 {
            0 => 0,
            1 => u64::MAX,
            2 => addr,
            3 => addr.wrapping_add(8),
            4 => addr.wrapping_sub(64),
            5 => 1 << 40,
            6 => 1000,
            _ => noise,
        })
    }

    fn corrupt(&self, addr: RemoteAddr, buf: &mut [u8]) {
        assert!(buf.len() <= MAX_READ, "one read asks for {}", buf.len());
        let first = addr.0 & !7;
        let last = addr.0.saturating_add(buf.len() as u64);
        for word in (first..last).step_by(8) {
            let Some(lie) = self.lie(word) else { continue };
            for (at, byte) in (word..).zip(lie.to_le_bytes()) {
                let index = at
                    .checked_sub(addr.0)
                    .and_then(|it| usize::try_from(it).ok());
                if let Some(place) = index.and_then(|index| buf.get_mut(index)) {
                    *place = byte;
                }
            }
        }
    }

    fn count(&self) {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() <= MAX_READS, "it reads on and on");
    }
}

impl Memory for Lying<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.count();
        self.truth.read(addr, buf)?;
        self.corrupt(addr, buf);
        Ok(())
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        self.count();
        self.truth.read_many(pieces);
        for piece in pieces {
            if piece.result.is_ok() {
                self.corrupt(piece.addr, piece.buf);
            }
        }
    }
}

fn lies_end_soon(python: &Python) -> Result<()> {
    for kind in ["c", "python"] {
        let target = Target::start(python, "tasks.py", &[kind])?;
        let attached = Attached::open(Pid(target.pid().as_raw().cast_unsigned()))?;
        let runtime = attached.discover()?;
        let table = attached.asyncio_table(&runtime);
        let mut found = 0;
        for (rate, seed) in RATES
            .iter()
            .flat_map(|rate| (0..SEEDS).map(move |it| (*rate, it)))
        {
            let memory = Lying {
                truth: &attached.memory,
                seed,
                rate,
                reads: Cell::new(0),
            };
            let mut reader = TaskReader::new(&runtime, table.as_ref());
            // It may find so little that there is nothing to be read.
            for _ in 0..2 {
                let Ok(snapshot) = reader.snapshot(&runtime, &memory) else {
                    continue;
                };
                found += snapshot.tasks.len();
                let long = snapshot.tasks.iter().find(|it| it.frames.len() > MAX_CHAIN);
                ensure!(long.is_none(), "{long:?}");
            }
        }
        ensure!(found > 0, "it never came as far as to a task");
    }
    Ok(())
}

on_each! {
    Rung::Live, lies_end_soon;
    lies_end_soon_on_3_8: 8;
    lies_end_soon_on_3_9: 9;
    lies_end_soon_on_3_10: 10;
    lies_end_soon_on_3_11: 11;
    lies_end_soon_on_3_12: 12;
    lies_end_soon_on_3_13: 13;
    lies_end_soon_on_3_14: 14;
    lies_end_soon_on_3_15: 15;
}
