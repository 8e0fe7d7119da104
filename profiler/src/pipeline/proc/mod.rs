//! placeholder
mod shares;
