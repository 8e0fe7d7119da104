//! A continuous profiler for CPython on Linux that knows, rather than guesses, what every
//! thread is doing.
//!
//! The modules are rooms, in the order in which the data walks; a room imports only from rooms
//! before it (`cargo xtask tidy` holds that). ARCHITECTURE.md is the map.

pub mod words;

pub mod sys;

pub mod source;

pub mod wire;

pub mod assembler;

pub mod sample;

pub mod target;

pub mod cpython;

pub mod threads;

pub mod pystack;

pub mod tasks;

pub mod native;

pub mod stack;

pub mod aggregate;

pub mod export;

pub mod pipeline;

pub mod cli;
