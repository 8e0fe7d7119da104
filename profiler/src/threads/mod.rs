//! The room `threads`.
