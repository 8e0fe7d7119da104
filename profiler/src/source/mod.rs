//! The room `source`.
