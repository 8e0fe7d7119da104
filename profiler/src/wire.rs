//! The room `wire`.
