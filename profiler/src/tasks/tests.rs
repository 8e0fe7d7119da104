//! Tasks in memory written with labels.
