//! A thread in a program of one function that calls itself: its file, its mapping, its stack.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use profiler::native::{
    Images, Mapped, NativeIp, Registers, StackCopy, Target, UnwindEnd, Unwinder,
};
use profiler::target::{Backing, Mapping, Maps, Perms, RecordedMemory};
use profiler::words::{MonotonicNs, RemoteAddr};

/// Where the file is mapped, and where the stack is.
const BASE: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

/// Places in the file.
const TABLE: u32 = 0x200;
const FRAMES: u32 = 0x240;
const CODE: u32 = 0x1000;
const END: u32 = 0x2000;

/// Behind the function's call of itself.
const RETURN: u32 = CODE + 9;

/// The thread, and an unwinder that has met its frames.
pub(crate) struct Thread {
    program: Program,
    memory: RecordedMemory,
    stack: Vec<u8>,
    unwinder: Unwinder,
    out: Vec<NativeIp>,
}

/// What is mapped.
struct Program(File);

impl Thread {
    pub(crate) fn new(depth: usize) -> Self {
        // Three words of a frame's own, and where it returns to; the outermost returns nowhere.
        let frame = [0, 0, 0, BASE + u64::from(RETURN)];
        let mut words = frame.repeat(depth);
        words[4 * depth - 1] = 0;
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&program()).expect("the program");
        let mut thread = Self {
            program: Program(file),
            memory: RecordedMemory::default(),
            stack: words.into_iter().flat_map(u64::to_le_bytes).collect(),
            unwinder: Unwinder::new(Images::default()),
            out: Vec::new(),
        };
        assert_eq!(thread.unwind(), UnwindEnd::Root);
        assert_eq!(thread.out.len(), depth);
        thread
    }

    pub(crate) fn unwind(&mut self) -> UnwindEnd {
        let target = Target {
            mapped: &self.program,
            memory: &self.memory,
            now: MonotonicNs(0),
        };
        let registers = Registers {
            ip: RemoteAddr(BASE + u64::from(RETURN)),
            sp: RemoteAddr(STACK),
            bp: RemoteAddr(0),
        };
        let stack = StackCopy {
            from: RemoteAddr(STACK),
            bytes: &self.stack,
        };
        self.unwinder
            .unwind(&target, registers, stack, &mut self.out)
    }
}

impl Mapped for Program {
    fn maps(&self) -> Option<Maps> {
        let perms = Perms {
            read: true,
            write: false,
            execute: true,
            shared: false,
        };
        Some(Maps::new(vec![Mapping {
            start: RemoteAddr(BASE),
            end: RemoteAddr(BASE + u64::from(END)),
            perms,
            offset: 0,
            dev: (8, 1),
            inode: 1,
            backing: Backing::File {
                path: Path::new("/usr/bin/program").into(),
                deleted: false,
            },
        }]))
    }

    fn open(&self, _: &Mapping) -> io::Result<File> {
        self.0.try_clone()
    }
}

/// The file: its headers, how its function is unwound, and the function.
fn program() -> Vec<u8> {
    let mut file = vec![0; END as usize];
    let mut put = |at: u32, bytes: &[u8]| {
        file[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    // Of a 64-bit library for this machine, with two program headers of 56 bytes behind this one.
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
    put(32, &64_u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 2, 0]);
    // All of it is loaded and may be run; the table is part of it.
    let header = |kind: u32, flags: u32, at: u32, bytes: u32| {
        let at = u64::from(at);
        let bytes = u64::from(bytes);
        let words = [at, at, at, bytes, bytes, 4096];
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        let begin = [kind, flags].into_iter().flat_map(u32::to_le_bytes);
        begin.chain(words).collect::<Vec<u8>>()
    };
    put(64, &header(1, 5, 0, END));
    put(64 + 56, &header(0x6474_e550, 4, TABLE, 20));
    // The table: where the frames are from its second word on, one entry, from the table on.
    let words = [FRAMES - TABLE - 4, 1, CODE - TABLE, FRAMES + 24 - TABLE];
    put(TABLE, &[1, 0x1b, 3, 0x3b]);
    let words = words.into_iter().flat_map(u32::to_le_bytes);
    put(TABLE + 4, &words.collect::<Vec<u8>>());
    // What all have in common: on entry the frame ends 8 above the stack pointer, and there is the
    // return address.
    put(
        FRAMES,
        &[
            20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
        ],
    );
    put(FRAMES + 17, &[0x0c, 7, 8, 0x90, 1]);
    // The function: after 4 bytes of it, 32 above.
    put(FRAMES + 24, &[20, 0, 0, 0, 28, 0, 0, 0]);
    put(FRAMES + 32, &CODE.wrapping_sub(FRAMES + 32).to_le_bytes());
    put(FRAMES + 36, &[16, 0, 0, 0, 0, 0x44, 0x0e, 32]);
    // `sub rsp, 24` and a call of itself.
    put(CODE, &[0x48, 0x83, 0xec, 24, 0xe8, 0xf7, 0xff, 0xff, 0xff]);
    file
}
