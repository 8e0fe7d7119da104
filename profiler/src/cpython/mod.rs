//! The room `cpython`.
