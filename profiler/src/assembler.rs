//! The room `assembler`.
