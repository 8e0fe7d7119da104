//! Rung 1: processes of every CPython version as they were recorded once (`cargo xtask image`),
//! read again, and read again with everything in them made to lie. Beside them, everything else
//! that takes bytes from outside: what the fuzz targets run on, run on a little of it here.

mod account;
mod corpus;
mod entries;
mod fields;
mod golden;
mod hostile;
mod images;
mod lying;
mod mutations;
mod reading;
mod victim;
