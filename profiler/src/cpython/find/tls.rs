//! Where a thread-local variable of the interpreter is, by the code of a function that does
//! nothing but return it.
//!
//! The variable's symbol is local and gone from stripped files, the function's is exported. Four
//! ways to compile it are known; any other gives none, and the caller does without.

use super::Libc;
use crate::target::Memory;
use crate::words::RemoteAddr;

/// Bytes of code that are looked at.
const CODE_BYTES: usize = 48;
/// Modules with thread-local variables that a process can plausibly have.
const MAX_MODULES: u64 = 4096;
/// Thread-local bytes that a module can plausibly have.
const MAX_OFFSET: u64 = 1 << 24;

/// How to come from a thread's TLS base to the variable: add, read a pointer, add, read, …
pub(super) fn hops(memory: &dyn Memory, function: RemoteAddr, libc: Libc) -> Option<Vec<i64>> {
    let mut code = [0; CODE_BYTES];
    memory.read(function, &mut code).ok()?;
    let mut code = Code {
        rest: &code,
        at: function,
    };
    // `endbr64`, where the compiler marks the targets of indirect calls.
    code.skip(&[0xF3, 0x0F, 0x1E, 0xFA]);
    // An executable knows the distance: `mov %fs:N,%rax; ret`.
    if code.skip(&[0x64, 0x48, 0x8B, 0x04, 0x25]) {
        let distance = code.number()?;
        return code.skip(&[0xC3]).then(|| vec![distance.into()]);
    }
    // A library loaded at start looks it up: `mov GOT(%rip),%rax; mov %fs:(%rax),%rax; ret`.
    if code.skip(&[0x48, 0x8B, 0x05]) {
        let slot = code.relative()?;
        let ends = code.skip(&[0x64, 0x48, 0x8B, 0x00, 0xC3]);
        let distance = memory.u64(slot).ok().filter(|_| ends)?;
        return Some(vec![distance.cast_signed()]);
    }
    // Any other library asks `__tls_get_addr` for the block of its module.
    // `push %rbp; mov %rsp,%rbp`, `sub $8,%rsp`, `push %rax`: the stack has to be aligned.
    let _ = code.skip(&[0x55, 0x48, 0x89, 0xE5])
        || code.skip(&[0x48, 0x83, 0xEC, 0x08])
        || code.skip(&[0x50]);
    code.skip(&[0x66]);
    if !code.skip(&[0x48, 0x8D, 0x3D]) {
        return None;
    }
    let index = code.relative()?;
    let calls: [&[u8]; 4] = [
        &[0x66, 0x66, 0x48, 0xE8],
        &[0x66, 0x48, 0xFF, 0x15],
        &[0xE8],
        &[0xFF, 0x15],
    ];
    if !calls.iter().any(|call| code.skip(call)) {
        return None;
    }
    code.number()?;
    // The stack can be put back before the variable is read.
    let _ = code.skip(&[0x5D]) || code.skip(&[0x48, 0x83, 0xC4, 0x08]);
    let within = if code.skip(&[0x48, 0x8B, 0x00]) {
        0
    } else if code.skip(&[0x48, 0x8B, 0x40]) {
        i64::from(code.take::<1>()?[0].cast_signed())
    } else if code.skip(&[0x48, 0x8B, 0x80]) {
        code.number()?.into()
    } else {
        return None;
    };
    // The dynamic linker has put the module's number and the variable's offset there.
    let module = memory.u64(index).ok()?;
    let offset = memory.u64(index.plus(8)).ok()?;
    if !(1..=MAX_MODULES).contains(&module) || offset > MAX_OFFSET {
        return None;
    }
    // The vector of blocks is the second word of the thread's control block; its entries are
    // pairs of words in glibc, words in musl.
    let entry = match libc {
        Libc::Glibc => 16,
        Libc::Musl => 8,
    };
    let (module, offset) = (module.cast_signed(), offset.cast_signed());
    Some(vec![8, entry * module, offset + within])
}

struct Code<'a> {
    rest: &'a [u8],
    at: RemoteAddr,
}

impl Code<'_> {
    /// Goes past these bytes if they come next.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let Some(rest) = self.rest.strip_prefix(bytes) else {
            return false;
        };
        self.rest = rest;
        self.at = self.at.plus(bytes.len() as u64);
        true
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        self.at = self.at.plus(N as u64);
        Some(*bytes)
    }

    fn number(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take()?))
    }

    /// An address relative to the end of the instruction that it ends.
    fn relative(&mut self) -> Option<RemoteAddr> {
        let distance = self.number()?;
        Some(RemoteAddr(self.at.0.wrapping_add_signed(distance.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::fake::Fake;

    /// The code lies at 0x100 of its label, what it refers to at 0x80 of the same.
    fn check(code: &[u8], words: [u64; 2], libc: Libc, expected: Option<&[i64]>) {
        let mut fake = Fake::default();
        fake.word("image", 0x80, words[0]);
        fake.word("image", 0x88, words[1]);
        fake.put("image", 0x100, &[0x90; CODE_BYTES]);
        fake.put("image", 0x100, code);
        let function = fake.at("image").plus(0x100);
        let hops = hops(&fake, function, libc);
        assert_eq!(hops.as_deref(), expected, "{code:x?}");
    }

    #[test]
    fn an_executable_reads_at_a_distance() {
        let code = [0x64, 0x48, 0x8B, 0x04, 0x25, 0xD8, 0xFF, 0xFF, 0xFF, 0xC3];
        check(&code, [0, 0], Libc::Glibc, Some(&[-40]));
        let marked = [&[0xF3, 0x0F, 0x1E, 0xFA][..], &code].concat();
        check(&marked, [0, 0], Libc::Musl, Some(&[-40]));
        check(&code[..9], [0, 0], Libc::Glibc, None);
    }

    #[test]
    fn a_library_loaded_at_start_looks_the_distance_up() {
        // The instruction ends at 0x107, and 0x107 - 0x87 is 0x80.
        let mut code = vec![0x48, 0x8B, 0x05, 0x79, 0xFF, 0xFF, 0xFF];
        code.extend([0x64, 0x48, 0x8B, 0x00, 0xC3]);
        check(
            &code,
            [(-8_i64).cast_unsigned(), 0],
            Libc::Glibc,
            Some(&[-8]),
        );
    }

    /// `sub $8,%rsp; data16 lea GOT(%rip),%rdi; call __tls_get_addr; mov (%rax),%rax`, as gcc 12
    /// compiles it for CPython's shared library.
    fn general_dynamic(end: &[u8]) -> Vec<u8> {
        let mut code = vec![0x48, 0x83, 0xEC, 0x08, 0x66, 0x48, 0x8D, 0x3D];
        code.extend([0x74, 0xFF, 0xFF, 0xFF]);
        code.extend([0x66, 0x66, 0x48, 0xE8, 0x7C, 0x4F, 0xDF, 0xFF]);
        code.extend(end);
        code
    }

    #[test]
    fn any_other_library_asks_for_its_block() {
        let plain = general_dynamic(&[0x48, 0x8B, 0x00]);
        check(&plain, [3, 0x18], Libc::Glibc, Some(&[8, 48, 0x18]));
        check(&plain, [3, 0x18], Libc::Musl, Some(&[8, 24, 0x18]));
        let near = general_dynamic(&[0x48, 0x8B, 0x40, 0xF8]);
        check(&near, [1, 0x18], Libc::Glibc, Some(&[8, 16, 0x10]));
        let far = general_dynamic(&[0x48, 0x8B, 0x80, 0, 1, 0, 0]);
        check(&far, [1, 0x18], Libc::Glibc, Some(&[8, 16, 0x118]));
    }

    #[test]
    fn a_library_with_frame_pointers_asks_for_its_block_once_for_all_variables() {
        // As gcc 16 compiles 3.15 for Debian.
        let mut code = vec![
            0xF3, 0x0F, 0x1E, 0xFA, 0x55, 0x48, 0x89, 0xE5, 0x48, 0x8D, 0x3D,
        ];
        code.extend([0x71, 0xFF, 0xFF, 0xFF]);
        code.extend([0xE8, 0x5C, 0x9D, 0xCF, 0xFF, 0x5D]);
        code.extend([0x48, 0x8B, 0x80, 0x28, 0, 0, 0, 0xC3]);
        check(&code, [2, 0], Libc::Glibc, Some(&[8, 32, 0x28]));
    }

    #[test]
    fn numbers_that_cannot_be_and_other_code_give_nothing() {
        let plain = general_dynamic(&[0x48, 0x8B, 0x00]);
        check(&plain, [0, 0x18], Libc::Glibc, None);
        check(&plain, [u64::MAX, 0x18], Libc::Glibc, None);
        check(&plain, [1, u64::MAX], Libc::Glibc, None);
        check(
            &general_dynamic(&[0x48, 0x89, 0x00]),
            [1, 0],
            Libc::Glibc,
            None,
        );
        check(&plain[..12], [1, 0], Libc::Glibc, None);
        check(&[0xC3], [1, 0], Libc::Glibc, None);
        check(&[0xFF; CODE_BYTES], [1, 0], Libc::Glibc, None);
        let nowhere = Fake::default();
        assert_eq!(hops(&nowhere, RemoteAddr(8), Libc::Glibc), None);
    }
}
