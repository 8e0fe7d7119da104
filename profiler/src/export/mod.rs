//! The room `export`.
