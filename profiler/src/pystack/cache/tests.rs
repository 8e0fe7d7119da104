//! Code objects that are good, that are none, and that change under the reader.

use super::*;
use crate::cpython::fake::Fake;
use crate::cpython::find::Found;
use crate::pystack::{Chain, ChainEnd, PyFrame, Resolver};
use crate::words::PthreadId;
use profiler_common::walk::RawFrame;

/// Line table: units 0 and 1 on the line after the first, 2 and 3 on the one after that.
const TABLE: &[u8] = &[0xD9, 1, 2, 0xD9, 1, 2];

fn code(fake: &mut Fake, layout: &Layout, label: &str, name: &str, line: u32) -> CodeAddr {
    let fields = layout.code;
    let part = |what: &str| format!("{label}, {what}");
    fake.class("type code", layout, "code");
    fake.point(label, layout.object.ob_type, "type code");
    fake.int(label, fields.flags, 3);
    fake.int(label, fields.first_line, line);
    fake.ascii(&part(name), layout, name);
    fake.ascii(&part("file"), layout, "/a/file.py");
    fake.binary(&part("table"), layout, TABLE);
    fake.point(label, fields.name, &part(name));
    fake.point(label, fields.qualname.unwrap_or(0), &part(name));
    fake.point(label, fields.filename, &part("file"));
    fake.point(label, fields.linetable, &part("table"));
    fake.int(label, fields.first_traceable.unwrap_or(0), 1);
    fake.put(label, fields.code_adaptive.unwrap_or(0), &[0; 8]);
    CodeAddr(fake.at(label).0)
}

struct Scene {
    fake: Fake,
    layout: Layout,
    runtime: Runtime,
    code: CodeAddr,
}

fn scene() -> Scene {
    scene_of(Fake::python_3_12())
}

fn scene_of((mut fake, layout, found): (Fake, Layout, Found)) -> Scene {
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let code = code(&mut fake, &layout, "code", "f", 10);
    Scene {
        fake,
        layout,
        runtime,
        code,
    }
}

impl Scene {
    fn instr(&self, unit: u64) -> Instr {
        let start = u64::from(self.layout.code.code_adaptive.unwrap_or(0));
        Instr(self.code.0 + start + 2 * unit)
    }

    fn chain(&self, units: &[u64]) -> Chain {
        let mut chain = Chain::empty(ChainEnd::Complete);
        let frames = units.iter().map(|unit| RawFrame {
            code: self.code.0,
            instr: self.instr(*unit).0,
        });
        chain.frames.extend(frames);
        chain
    }
}

#[test]
fn a_frame_gets_its_name_file_and_line() {
    let scene = scene();
    let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    for (unit, line) in [(1, 11), (2, 12), (3, 12), (1, 11)] {
        let found = cache.look_up(&scene.fake, scene.code, scene.instr(unit));
        let (code, position) = found.expect("a code object");
        assert_eq!(position, Position::Line(Some(line)));
        assert_eq!((&*code.name, &*code.file), ("f", "/a/file.py"));
    }
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_frame_that_is_being_set_up_is_hidden() {
    let scene = scene();
    let mut resolver = Resolver::new(&scene.runtime);
    let mut chain = scene.chain(&[0, 2]);
    // 3.11 and 3.12 begin one unit before the code.
    chain.frames.insert(
        0,
        RawFrame {
            code: scene.code.0,
            instr: scene.instr(0).0 - 2,
        },
    );
    let frames = resolver.frames(&scene.fake, &chain);
    assert!(matches!(
        &frames[..],
        [PyFrame::Known { line: Some(12), .. }]
    ));
}

#[test]
fn an_instruction_that_the_code_does_not_have_makes_the_frame_stale() {
    let scene = scene();
    let mut resolver = Resolver::new(&scene.runtime);
    let stale = PyFrame::Stale { code: scene.code };
    let frames = resolver.frames(&scene.fake, &scene.chain(&[4, 1 << 40]));
    assert_eq!(frames, [stale.clone(), stale]);
    assert_eq!(resolver.revalidate(&scene.fake), []);
}

#[test]
fn what_is_no_code_object_is_unreadable_and_says_why() {
    let mut scene = scene();
    let mut resolver = Resolver::new(&scene.runtime);
    let other = scene.fake.at("thread, pthread");
    let text = scene.fake.at("str sys");
    scene.fake.class("type str", &scene.layout, "str");
    for addr in [
        RemoteAddr(0),
        RemoteAddr(8),
        RemoteAddr(u64::MAX),
        other,
        text,
    ] {
        let mut chain = scene.chain(&[1]);
        chain.frames[0].code = addr.0;
        let frames = resolver.frames(&scene.fake, &chain);
        let is_it = matches!(&frames[..], [PyFrame::Unreadable { code, .. }] if code.0 == addr.0);
        assert!(is_it, "{addr}: {frames:?}");
    }
}

#[test]
fn sizes_that_lie_make_a_frame_unreadable() {
    let check = |change: &dyn Fn(&mut Fake, &Layout)| {
        let mut scene = scene();
        change(&mut scene.fake, &scene.layout);
        let mut resolver = Resolver::new(&scene.runtime);
        let frames = resolver.frames(&scene.fake, &scene.chain(&[1]));
        assert!(
            matches!(&frames[..], [PyFrame::Unreadable { .. }]),
            "{frames:?}"
        );
    };
    check(&|fake, layout| {
        fake.word("code, table", layout.bytes.size, u64::MAX);
    });
    check(&|fake, layout| {
        fake.word("code, table", layout.bytes.size, 2 << 20);
    });
    check(&|fake, layout| {
        fake.word("code, f", layout.unicode.length, 1 << 62);
    });
    check(&|fake, layout| {
        fake.word("code", layout.code.filename, 0);
    });
    check(&|fake, layout| {
        fake.word("code", layout.code.qualname.unwrap_or(0), 0xDEAD_BEEF);
    });
}

#[test]
fn a_prologue_that_lies_hides_nothing() {
    let mut scene = scene();
    let field = scene.layout.code.first_traceable.unwrap_or(0);
    scene.fake.int("code", field, u32::MAX);
    let mut resolver = Resolver::new(&scene.runtime);
    assert_eq!(resolver.frames(&scene.fake, &scene.chain(&[1])).len(), 1);
}

#[test]
fn a_code_object_that_was_replaced_is_reported_and_read_anew() {
    let mut scene = scene();
    let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let instr = scene.instr(1);
    let (was, _) = cache.look_up(&scene.fake, scene.code, instr).expect("f");
    assert_eq!(cache.revalidate(&scene.fake), []);
    code(&mut scene.fake, &scene.layout, "code", "g", 10);
    // Not used since the last comparison: nothing of it can be wrong.
    assert_eq!(cache.revalidate(&scene.fake), []);

    let (still, _) = cache.look_up(&scene.fake, scene.code, instr).expect("f");
    assert_eq!(still, was);
    let addr = scene.code;
    assert_eq!(cache.revalidate(&scene.fake), [Changed { addr, was }]);
    let (now, _) = cache.look_up(&scene.fake, addr, instr).expect("g");
    assert_eq!(&*now.name, "g");
    assert_eq!(cache.revalidate(&scene.fake), []);

    scene.fake.unmap("code");
    let (was, _) = cache.look_up(&scene.fake, addr, instr).expect("g");
    assert_eq!(cache.revalidate(&scene.fake), [Changed { addr, was }]);
    assert!(cache.is_empty());
}

#[test]
fn a_longer_code_at_the_same_address_is_noticed_by_its_instruction() {
    let mut scene = scene();
    let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let (was, _) = cache
        .look_up(&scene.fake, scene.code, scene.instr(1))
        .expect("f");
    code(&mut scene.fake, &scene.layout, "code", "g", 20);
    let longer = [TABLE, TABLE].concat();
    scene.fake.binary("code, table", &scene.layout, &longer);
    let found = cache.look_up(&scene.fake, scene.code, scene.instr(4));
    let (now, position) = found.expect("g");
    assert_eq!((&*now.name, position), ("g", Position::Line(Some(23))));
    let addr = scene.code;
    assert_eq!(cache.revalidate(&scene.fake), [Changed { addr, was }]);
}

#[test]
fn the_cache_stays_within_its_bounds() {
    let mut scene = scene();
    let capacity = 20_000;
    let mut cache = CodeCache::new(&scene.runtime, capacity);
    for number in 0..500 {
        let label = format!("code {number}");
        scene.code = code(&mut scene.fake, &scene.layout, &label, "f", number);
        for unit in 1..3 {
            let found = cache.look_up(&scene.fake, scene.code, scene.instr(unit));
            assert!(found.is_ok(), "{found:?}");
        }
        assert!(cache.len() < 200, "{}", cache.len());
        assert!(cache.bytes < capacity + 1000, "{}", cache.bytes);
    }
    // A frame can stand at any number of instructions, real or not.
    for unit in 0..2000 {
        let _ = cache.look_up(&scene.fake, scene.code, scene.instr(unit));
        assert!(cache.bytes < 2 * capacity, "{}", cache.bytes);
    }
    cache.revalidate(&scene.fake);
}

/// A stack of five hundred codes may have a megabyte of line table for each.
#[test]
fn a_code_that_is_handed_on_does_not_keep_its_line_table() {
    let mut scene = scene();
    let table: Vec<u8> = TABLE.iter().copied().cycle().take(300_000).collect();
    scene.fake.binary("large table", &scene.layout, &table);
    let field = scene.layout.code.linetable;
    scene.fake.point("code", field, "large table");
    let mut cache = CodeCache::new(&scene.runtime, 20_000);
    let found = cache.look_up(&scene.fake, scene.code, scene.instr(2));
    let (large, _) = found.expect("a code object");
    assert!(cache.bytes > 300_000 && large.weight() < 1000);
    // The next one takes its place.
    scene.code = code(&mut scene.fake, &scene.layout, "other", "g", 20);
    let found = cache.look_up(&scene.fake, scene.code, scene.instr(1));
    assert!(found.is_ok() && cache.bytes < 20_000, "{}", cache.bytes);
    assert_eq!(&*large.name, "f");
}

#[test]
fn an_early_end_and_a_cut_are_frames_that_say_so() {
    let scene = scene();
    let mut resolver = Resolver::new(&scene.runtime);
    let mut chain = scene.chain(&[1, 2]);
    (chain.cut_at, chain.missing, chain.end) = (1, 7, ChainEnd::TooDeep);
    let frames = resolver.frames(&scene.fake, &chain);
    let broken = PyFrame::Broken {
        end: ChainEnd::TooDeep,
    };
    assert_eq!(frames.len(), 4);
    assert_eq!(
        (&frames[1], &frames[3]),
        (&PyFrame::Cut { frames: 7 }, &broken)
    );
    chain.cut_at = 2;
    let frames = resolver.frames(&scene.fake, &chain);
    assert_eq!(frames[2], PyFrame::Cut { frames: 7 });
}

#[test]
fn names_of_threads_that_cannot_be_read_are_just_missing() {
    let scene = scene();
    let names = crate::cpython::thread_names(&scene.runtime, &scene.fake);
    assert_eq!(names.get(&PthreadId(1)), None);
    assert!(names.is_empty());
}

/// The memory of a process that is over.
struct Over;

impl Memory for Over {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), crate::target::ReadError> {
        Err(crate::target::ReadError {
            addr,
            bytes: buf.len(),
            kind: ReadErrorKind::Gone,
        })
    }
}

#[test]
fn a_child_has_its_parents_codes_where_its_memory_does_not_say_otherwise() {
    let mut scene = scene();
    let mut parent = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let instr = scene.instr(1);
    let (f, _) = parent.look_up(&scene.fake, scene.code, instr).expect("f");
    // Over before it was asked, and a grandchild of it, which has it from there.
    let mut child = parent.heir(DEFAULT_CAPACITY);
    let mut grandchild = child.heir(DEFAULT_CAPACITY);
    for heir in [&mut child, &mut grandchild] {
        let found = heir.look_up(&Over, scene.code, instr).expect("inherited");
        assert_eq!(found, (Arc::clone(&f), Position::Line(Some(11))));
        // Nobody can be asked; the parent can.
        assert_eq!(heir.revalidate(&Over), []);
        assert_eq!(heir.take_unknown(), []);
    }
    // Alive, with the same code: nothing but its fingerprint is read.
    let mut living = parent.heir(DEFAULT_CAPACITY);
    let (same, _) = living.look_up(&scene.fake, scene.code, instr).expect("f");
    assert!(Arc::ptr_eq(&same, &f));
    // The parent has another one there by now: no word of what the child had.
    let mut late = parent.heir(DEFAULT_CAPACITY);
    let (was, _) = late.look_up(&Over, scene.code, instr).expect("inherited");
    let addr = scene.code;
    code(&mut scene.fake, &scene.layout, "code", "g", 10);
    assert_eq!(late.revalidate(&scene.fake), [Changed { addr, was }]);
    assert!(late.look_up(&Over, addr, instr).is_err());
    // A child that lives and has another one there.
    let mut other = parent.heir(DEFAULT_CAPACITY);
    let (g, _) = other.look_up(&scene.fake, addr, instr).expect("g");
    assert_eq!(&*g.name, "g");
    let (heir, _) = other
        .heir(DEFAULT_CAPACITY)
        .look_up(&Over, addr, instr)
        .expect("g");
    assert_eq!(heir, g);
}

#[test]
fn what_a_child_could_not_be_asked_for_is_learned_for_the_next() {
    let scene = scene();
    let mut parent = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let instr = scene.instr(1);
    let mut first = parent.heir(DEFAULT_CAPACITY);
    assert!(first.look_up(&Over, scene.code, instr).is_err());
    let unknown = first.take_unknown();
    assert_eq!(unknown, [scene.code]);
    for addr in unknown {
        parent.learn(&scene.fake, addr);
    }
    let mut second = parent.heir(DEFAULT_CAPACITY);
    let (found, _) = second.look_up(&Over, scene.code, instr).expect("learned");
    assert_eq!(&*found.name, "f");
    // The first one had been born before it was known.
    assert!(first.look_up(&Over, scene.code, instr).is_err());
}

/// Three threads' copies of the code's bytecode, behind the code's own in its list; the second
/// thread has not run it.
fn with_copies() -> (Scene, u32) {
    let mut scene = scene_of(Fake::python_3_14t());
    let field = scene.layout.code.copies.expect("a list of copies");
    let fake = &mut scene.fake;
    fake.point("code", field, "copies");
    fake.word("copies", 0, 4)
        .word(
            "copies",
            8,
            scene.code.0 + u64::from(scene.layout.code.code_adaptive.unwrap_or(0)),
        )
        .point("copies", 16, "first copy")
        .word("copies", 24, 0)
        .point("copies", 32, "third copy");
    (scene, field)
}

#[test]
fn an_instruction_in_a_threads_copy_of_the_bytecode_has_the_line_of_the_original() {
    let (mut scene, _) = with_copies();
    let (first, third) = (scene.fake.at("first copy").0, scene.fake.at("third copy").0);
    let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let own = scene.instr(0).0;
    for start in [third, own, first, third, first] {
        for (unit, position) in [
            (0, Position::Incomplete),
            (1, Position::Line(Some(11))),
            (2, Position::Line(Some(12))),
            (4, Position::Elsewhere),
        ] {
            let found = cache.look_up(&scene.fake, scene.code, Instr(start + 2 * unit));
            let (code, at) = found.expect("a code object");
            assert_eq!((&*code.name, at), ("f", position), "{start:#x} unit {unit}");
        }
    }
    assert_eq!(cache.revalidate(&scene.fake), []);
}

#[test]
fn a_copy_that_is_made_later_is_found_later() {
    let (mut scene, _) = with_copies();
    let late = Instr(scene.fake.at("late copy").0 + 4);
    let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let position = |cache: &mut CodeCache, fake: &Fake| {
        let found = cache.look_up(fake, scene.code, late);
        found.expect("a code object").1
    };
    assert_eq!(position(&mut cache, &scene.fake), Position::Elsewhere);
    scene.fake.point("copies", 24, "late copy");
    assert_eq!(position(&mut cache, &scene.fake), Position::Line(Some(12)));
    assert_eq!(cache.revalidate(&scene.fake), []);
}

#[test]
fn a_copy_in_the_memory_of_another_one_makes_the_frames_of_that_one_stale() {
    let (mut scene, _) = with_copies();
    let first = scene.fake.at("first copy").0;
    let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
    let look_up = |cache: &mut CodeCache, fake: &Fake, instr| {
        let found = cache.look_up(fake, scene.code, Instr(instr));
        found.expect("a code object").1
    };
    let line = Position::Line(Some(12));
    assert_eq!(look_up(&mut cache, &scene.fake, first + 4), line);
    scene.fake.word("copies", 16, first + 4);
    assert_eq!(look_up(&mut cache, &scene.fake, first + 8), line);
    let changed = cache.revalidate(&scene.fake);
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].addr, scene.code);
}

#[test]
fn a_list_of_copies_that_lies_makes_frames_stale_and_no_more() {
    let (scene, field) = with_copies();
    let check = |lie: &dyn Fn(&mut Fake)| {
        let mut fake = scene.fake.clone();
        let instr = Instr(fake.at("first copy").0 + 4);
        lie(&mut fake);
        let mut cache = CodeCache::new(&scene.runtime, DEFAULT_CAPACITY);
        for _ in 0..2 {
            let found = cache.look_up(&fake, scene.code, instr);
            assert_eq!(found.expect("a code object").1, Position::Elsewhere);
        }
        assert_eq!(cache.revalidate(&fake), []);
    };
    check(&|fake| {
        fake.word("code", field, 0);
    });
    check(&|fake| {
        fake.word("code", field, u64::MAX - 8);
    });
    check(&|fake| {
        fake.word("copies", 0, 0);
    });
    check(&|fake| {
        fake.word("copies", 0, u64::MAX);
    });
    check(&|fake| {
        fake.word("copies", 16, u64::MAX);
    });
    check(&|fake| {
        fake.unmap("copies");
    });
}
