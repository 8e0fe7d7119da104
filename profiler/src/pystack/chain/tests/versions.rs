//! Generators in the chains of every version: where its own layout has them.

use profiler_common::plan::PLAN_GENERATORS;

use super::super::*;
use crate::cpython::fake::Fake;
use crate::cpython::layout::{self, Layout, NEWEST_MINOR, OLDEST_MINOR};
use crate::cpython::{Build, Version, Wishes, plan_without_python, walk_plan};
use crate::words::MonotonicNs;

/// The shape of one version, and how to walk it.
struct Shape {
    layout: Layout,
    plan: Plan,
    fake: Fake,
}

fn shapes() -> Vec<Shape> {
    let minors = OLDEST_MINOR..=NEWEST_MINOR;
    let builds = [Build::Default, Build::FreeThreaded];
    let all = minors.flat_map(|minor| builds.map(|build| (Version::release(3, minor, 0), build)));
    let shapes: Vec<Shape> = all
        .filter_map(|(version, build)| {
            let layout = layout::of_version(version, build)?;
            let wishes = Wishes {
                since: MonotonicNs(0),
                flags: PLAN_GENERATORS,
                max_frames: 16,
            };
            let mut plan = plan_without_python(wishes);
            plan.walk = walk_plan(&layout, version, wishes).expect("a plan");
            let fake = Fake::default();
            Some(Shape { layout, plan, fake })
        })
        .collect();
    assert_eq!(shapes.len(), 11);
    shapes
}

/// Who has a frame.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Thread,
    Generator,
    Shim,
}

impl Shape {
    /// Whether a generator has its frame in it.
    fn is_inline(&self) -> bool {
        self.layout.frame.owner.is_some()
    }

    /// Where a frame lies: its label and the offset in it.
    fn place(&self, name: &str, of: Of) -> (String, u32) {
        if of == Of::Generator && self.is_inline() {
            (format!("generator {name}"), self.layout.generator.frame)
        } else {
            (format!("frame {name}"), 0)
        }
    }

    fn at(&mut self, name: &str, of: Of) -> FrameAddr {
        let (label, base) = self.place(name, of);
        FrameAddr(self.fake.at(&label).plus(base.into()).0)
    }

    /// Lays a chain of frames out, leaf first: their codes are 0x1000, 0x1008, …
    fn lay(&mut self, chain: &[(&str, Of)]) {
        let fields = self.layout.frame;
        for (index, &(name, of)) in chain.iter().enumerate() {
            let caller = chain.get(index + 1);
            let caller = caller.map_or(0, |&(name, of)| self.at(name, of).0);
            let (label, base) = self.place(name, of);
            let fake = &mut self.fake;
            // All that is read in one go is there.
            fake.put(&label, base, &[0; 256]);
            fake.word(&label, base + fields.code, 0x1000 + 8 * index as u64);
            fake.word(&label, base + fields.previous, caller);
            fake.int(&label, base + fields.instr, index as u32);
            if let Some(generator) = fields.generator
                && of == Of::Generator
            {
                fake.point(&label, base + generator, &format!("generator {name}"));
            }
            if let Some(owner) = fields.owner {
                let value = match of {
                    Of::Thread => 0,
                    Of::Generator => fields.generator_owner.unwrap_or(0),
                    Of::Shim => fields.shim_owner.unwrap_or(0),
                };
                fake.put(&label, base + owner, &[value as u8]);
            }
        }
    }

    fn generator(&mut self, name: &str, frame: usize) -> GeneratorFrame {
        GeneratorFrame {
            coroutine: CoroutineAddr(self.fake.at(&format!("generator {name}")).0),
            frame,
        }
    }
}

#[test]
fn every_generator_of_a_chain_is_noted_with_its_frame() {
    for mut shape in shapes() {
        let chain = [
            ("burn", Of::Thread),
            ("inner", Of::Generator),
            ("outer", Of::Generator),
            ("run", Of::Thread),
            ("main", Of::Thread),
        ];
        shape.lay(&chain);
        let (leaf, root) = (shape.at("burn", Of::Thread), shape.at("main", Of::Thread));
        let found = Walker::default().chain_from(&shape.fake, &shape.plan, leaf);
        let noted = [shape.generator("inner", 1), shape.generator("outer", 2)];
        assert_eq!((found.frames.len(), found.end), (5, ChainEnd::Complete));
        assert_eq!(found.generators, noted);
        assert_eq!((found.generators_missing, found.root), (0, Some(root)));
    }
}

#[test]
fn a_shim_is_no_frame_to_count_and_no_root() {
    for mut shape in shapes() {
        if shape.layout.frame.shim_owner.is_none() {
            continue;
        }
        let chain = [
            ("entry", Of::Shim),
            ("inner", Of::Generator),
            ("main", Of::Thread),
            ("base", Of::Shim),
        ];
        shape.lay(&chain);
        let (leaf, root) = (shape.at("entry", Of::Shim), shape.at("main", Of::Thread));
        let found = Walker::default().chain_from(&shape.fake, &shape.plan, leaf);
        assert_eq!(found.generators, [shape.generator("inner", 0)]);
        assert_eq!(found.root, Some(root));
        let none = one_frame(&shape.fake, &shape.plan, leaf);
        assert_eq!(none, Err(ChainEnd::NoFrame));
    }
}

#[test]
fn one_frame_is_read_whatever_its_caller() {
    for mut shape in shapes() {
        shape.lay(&[("inner", Of::Generator)]);
        let frame = shape.at("inner", Of::Generator);
        let (label, base) = shape.place("inner", Of::Generator);
        let previous = base + shape.layout.frame.previous;
        for caller in [0, 0xDEAD_BEEF, u64::MAX - 7, frame.0] {
            shape.fake.word(&label, previous, caller);
            let one = one_frame(&shape.fake, &shape.plan, frame);
            let expected = RawFrame {
                code: 0x1000,
                instr: 0,
            };
            assert_eq!(one, Ok(expected));
        }
    }
}

#[test]
fn a_frame_that_cannot_be_is_said_to_be_none() {
    for shape in shapes() {
        let mut walker = Walker::default();
        for (frame, end) in [
            (0, ChainEnd::NoFrame),
            (12, ChainEnd::BadPointer),
            (8, ChainEnd::Unreadable),
            (u64::MAX - 7, ChainEnd::Unreadable),
        ] {
            let frame = FrameAddr(frame);
            assert_eq!(one_frame(&shape.fake, &shape.plan, frame), Err(end));
            let chain = walker.chain_from(&shape.fake, &shape.plan, frame);
            assert_eq!(chain, Chain::empty(end));
        }
    }
}
