//! Calls that are known, between Python and Rust: r1, r2, then `r_spin`, then back. A library for
//! ctypes.

use std::hint::black_box;

#[inline(always)]
fn turn(total: u64) -> u64 {
    black_box(total) + 1
}

#[inline(never)]
fn r_spin(count: u64) -> u64 {
    let mut total = 0;
    while total < count {
        total = turn(total);
    }
    total
}

/// What is added keeps each call from becoming a jump.
#[inline(never)]
fn r2(back: extern "C" fn() -> i64, count: u64) -> u64 {
    let own = r_spin(count);
    let of_python = back();
    own + of_python.unsigned_abs()
}

#[no_mangle]
pub extern "C" fn r1(back: extern "C" fn() -> i64, count: u64) -> u64 {
    r2(back, count) + 1
}
