//! Rung 1: processes of every CPython version as they were recorded once (`cargo xtask image`),
//! read again, and read again with everything in them made to lie.

mod account;
mod fields;
mod golden;
mod hostile;
mod images;
mod lying;
mod reading;
