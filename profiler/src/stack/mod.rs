//! The room `stack`.
