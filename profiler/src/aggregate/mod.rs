//! The room `aggregate`.
