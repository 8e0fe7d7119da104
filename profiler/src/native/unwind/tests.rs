//! Unwinding this very thread, and whatever bytes anyone can think of.

use std::fs::File;
use std::io;

use proptest::prelude::*;

use super::*;
use crate::native::modules::Mapped;
use crate::native::{Detail, LiveSymbols, NativeFrame, Symbols as _};
use crate::target::{LiveMemory, Mapping, Maps, Memory, Process, ReadError, ReadErrorKind};
use crate::words::{MonotonicNs, Pid};

/// Its own process, as a target.
struct Own {
    process: Process,
    memory: LiveMemory,
}

impl Own {
    fn new() -> Self {
        let process = Process::open(Pid(std::process::id())).expect("ourselves");
        let memory = LiveMemory::new(&process);
        Self { process, memory }
    }

    fn target(&self) -> Target<'_> {
        Target {
            mapped: &self.process,
            memory: &self.memory,
            now: MonotonicNs(0),
        }
    }

    /// A place in this program where a call comes back to.
    fn code(&self) -> u64 {
        Own::new as fn() -> Self as usize as u64 + 16
    }
}

/// A thread that waits inside the kernel: its registers and its stack as they are.
fn waiting<T>(look: impl FnOnce(&Own, Registers, &[u8]) -> T) -> T {
    let (stay, stop) = std::sync::mpsc::channel::<()>();
    let (here, ready) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || waits_for_its_end(&here, &stop));
    let tid = ready.recv().expect("it runs");
    let own = Own::new();
    let place = loop {
        if let Ok(crate::target::InKernel::Blocked { sp, pc, .. }) = own.process.in_kernel(tid) {
            break (sp, pc);
        }
    };
    let mut stack = vec![0; 64 << 10];
    while own.memory.read(place.0, &mut stack).is_err() {
        stack.truncate(stack.len() - 512);
    }
    let registers = Registers {
        ip: place.1,
        sp: place.0,
        bp: RemoteAddr(0),
    };
    let outcome = look(&own, registers, &stack);
    drop(stay);
    assert!(other.join().is_ok());
    outcome
}

#[inline(never)]
fn waits_for_its_end(
    here: &std::sync::mpsc::Sender<crate::words::Tid>,
    stop: &std::sync::mpsc::Receiver<()>,
) {
    let tid = nix::unistd::gettid().as_raw().cast_unsigned();
    here.send(crate::words::Tid(tid)).expect("somebody listens");
    let _ = stop.recv();
}

#[test]
fn a_thread_that_waits_is_followed_to_its_root() {
    waiting(|own, registers, stack| {
        let mut unwinder = Unwinder::new(Images::default());
        let mut chain = Vec::new();
        let copy = StackCopy {
            from: registers.sp,
            bytes: stack,
        };
        let end = unwinder.unwind(&own.target(), registers, copy, &mut chain);
        assert_eq!(end, UnwindEnd::Root, "{chain:?}");
        let mut symbols = LiveSymbols::new(Detail::Lines);
        let pid = own.process.pid();
        let named: Vec<NativeFrame> = chain
            .iter()
            .flat_map(|ip| {
                let place = unwinder.place(ip.addr);
                symbols.frames(pid, ip.addr, place.as_ref()).to_vec()
            })
            .collect();
        let here = named.iter().find(|frame| {
            let function = frame.function().unwrap_or_default();
            function.contains("waits_for_its_end")
        });
        let Some(NativeFrame::Known { file, line, .. }) = here else {
            panic!("{named:?}");
        };
        assert!(
            file.as_deref()
                .is_some_and(|file| file.ends_with("tests.rs"))
        );
        assert!(line.is_some());
        assert!(chain.windows(2).all(|pair| pair[0].sp < pair[1].sp));
    });
}

#[test]
fn a_copy_that_ends_early_gives_the_beginning_of_the_chain() {
    waiting(|own, registers, stack| {
        let mut unwinder = Unwinder::new(Images::default());
        let (mut whole, mut part) = (Vec::new(), Vec::new());
        let copy = |bytes| StackCopy {
            from: registers.sp,
            bytes,
        };
        unwinder.unwind(&own.target(), registers, copy(stack), &mut whole);
        let deepest = whole.last().expect("frames").sp.0 - registers.sp.0;
        for bytes in (0..deepest as usize).step_by(56) {
            let end = unwinder.unwind(&own.target(), registers, copy(&stack[..bytes]), &mut part);
            assert!(!end.is_root(), "{bytes}: {end}");
            assert!(whole.starts_with(&part), "{bytes}");
        }
    });
}

#[test]
fn code_that_is_not_mapped_ends_the_chain_and_is_named() {
    let own = Own::new();
    let mut unwinder = Unwinder::new(Images::default());
    let mut chain = Vec::new();
    let registers = Registers {
        ip: RemoteAddr(0x10),
        sp: RemoteAddr(0x1000),
        bp: RemoteAddr(0),
    };
    let copy = StackCopy {
        from: registers.sp,
        bytes: &[0; 64],
    };
    let end = unwinder.unwind(&own.target(), registers, copy, &mut chain);
    assert_eq!(end, UnwindEnd::NotMapped(RemoteAddr(0x10)));
    assert_eq!(end.key(), "not_mapped");
    assert_eq!(chain.len(), 1);
}

/// A process with code of no file, and nothing else.
struct Bare;

const BARE: u64 = 0x7000_0000;

impl Mapped for Bare {
    fn maps(&self) -> Option<Maps> {
        Some(Maps::new(vec![Mapping {
            start: RemoteAddr(BARE),
            end: RemoteAddr(BARE + 0x10000),
            perms: crate::target::Perms {
                read: true,
                execute: true,
                ..Default::default()
            },
            offset: 0,
            dev: (0, 0),
            inode: 0,
            backing: crate::target::Backing::Anonymous,
        }]))
    }

    fn open(&self, _: &Mapping) -> io::Result<File> {
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Memory for Bare {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        Err(ReadError {
            addr,
            bytes: buf.len(),
            kind: ReadErrorKind::Unmapped,
        })
    }
}

#[test]
fn without_unwind_information_frame_pointers_are_followed_as_far_as_they_prove_themselves() {
    const STACK: u64 = 0x10_0000;
    let target = Target {
        mapped: &Bare,
        memory: &Bare,
        now: MonotonicNs(0),
    };
    let check = |words: &[u64], bp, callers: &[u64], end| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let registers = Registers {
            ip: RemoteAddr(BARE),
            sp: RemoteAddr(STACK),
            bp: RemoteAddr(bp),
        };
        let copy = StackCopy {
            from: registers.sp,
            bytes: &bytes,
        };
        let mut chain = Vec::new();
        let mut unwinder = Unwinder::new(Images::default());
        assert_eq!(
            unwinder.unwind(&target, registers, copy, &mut chain),
            UnwindEnd::NoUnwindInfo(RemoteAddr(end)),
            "{words:x?}"
        );
        let found: Vec<u64> = chain[1..].iter().map(|ip| ip.addr.0).collect();
        assert_eq!(found, callers, "{words:x?}");
        let by = |ip: &NativeIp| ip.found == Found::FramePointer;
        assert!(chain[1..].iter().all(by), "{chain:?}");
    };
    // Two callers: of the second one no frame pointer is known, or one that leads back.
    for last in [0, STACK + 8] {
        check(
            &[0, STACK + 0x20, BARE + 0x21, 0, last, BARE + 0x31, 0],
            STACK + 8,
            &[BARE + 0x20, BARE + 0x30],
            BARE + 0x30,
        );
    }
    // Not known, not aligned, below the stack pointer, outside of the copy, back to itself.
    for bp in [0, STACK + 3, STACK - 8, STACK + 0x40] {
        check(&[STACK + 8, BARE + 1, 0], bp, &[], BARE);
    }
    check(&[STACK, BARE + 0x21], STACK, &[BARE + 0x20], BARE + 0x20);
    // What it comes back to is no code.
    check(&[STACK + 0x10, 0x1234, 0, BARE + 1], STACK, &[], BARE);
}

/// The program is read once for all cases.
static OWN: std::sync::OnceLock<(Own, Images)> = std::sync::OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    /// Words that look like places on the stack and in code, among any others.
    #[test]
    fn whatever_the_registers_and_the_stack_hold_the_chain_ends(
        seeds in proptest::collection::vec((0u8..4, any::<u64>()), 0..512),
        ip in (0u8..4, any::<u64>()),
        bp in (0u8..4, any::<u64>()),
        sp in prop_oneof![Just(0u64), Just(u64::MAX - 7), Just(0x7ffd_0000_0000), any::<u64>()],
    ) {
        let own = OWN.get_or_init(|| (Own::new(), Images::default()));
        let (own, images) = (&own.0, own.1.clone());
        let code = own.code();
        let word = |(kind, word): (u8, u64)| match kind {
            0 => word,
            1 => sp.wrapping_add(word % 4096),
            2 => code.wrapping_add(word % 100_000),
            _ => 0,
        };
        let bytes: Vec<u8> = seeds
            .iter()
            .flat_map(|seed| word(*seed).to_le_bytes())
            .collect();
        let registers = Registers {
            ip: RemoteAddr(word(ip)),
            sp: RemoteAddr(sp),
            bp: RemoteAddr(word(bp)),
        };
        let copy = StackCopy { from: registers.sp, bytes: &bytes };
        let mut unwinder = Unwinder::new(images);
        let mut chain = Vec::new();
        unwinder.unwind(&own.target(), registers, copy, &mut chain);
        prop_assert!(!chain.is_empty() && chain.len() <= MAX_FRAMES);
        prop_assert!(chain.windows(2).all(|pair| pair[0].sp < pair[1].sp));
    }
}
