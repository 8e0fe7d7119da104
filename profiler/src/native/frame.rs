//! What a native address is: a function, or no name and why.

use std::sync::Arc;

use crate::words::RemoteAddr;

/// What a native address is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NativeFrame {
    /// In this function.
    Known {
        /// The demangled name.
        function: Arc<str>,
        /// File name of the module, where it is known.
        module: Option<Arc<str>>,
        /// The source file, where debug information has it.
        file: Option<Arc<str>>,
        /// The line in it.
        line: Option<u32>,
        /// Bytes of the function's code; none for an inlined one, and where no table says it.
        bytes: Option<u64>,
    },
    /// No name was found.
    Unknown {
        /// The address.
        addr: RemoteAddr,
        /// The module, and where in it the function begins, as the module has it; where that is not
        /// known, the address itself.
        module: Option<(Arc<str>, u64)>,
        /// Why.
        reason: &'static str,
    },
}

impl NativeFrame {
    /// The function's name.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        match self {
            Self::Known { function, .. } => Some(function),
            Self::Unknown { .. } => None,
        }
    }

    /// File name of the module.
    #[must_use]
    pub fn module(&self) -> Option<&str> {
        match self {
            Self::Known { module, .. } => module.as_deref(),
            Self::Unknown { module, .. } => module.as_ref().map(|(name, _)| &**name),
        }
    }
}
