//! The room `native`.
