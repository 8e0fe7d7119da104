//! Rung 2: threads that stand still below C code, unwound from user space, named, and merged with
//! their Python frames.

mod border;
mod look;
mod names;
