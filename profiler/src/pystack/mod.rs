//! The room `pystack`.
