//! A CPython release, as `PY_VERSION_HEX` packs it, and what it was built as.
//!
//! Not here: which releases are supported, and how a release is found (see [`super::find`]).

use std::fmt;

/// How finished a release is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// `a1`, `a2`, …
    Alpha,
    /// `b1`, `b2`, …
    Beta,
    /// `rc1`, `rc2`, …
    Candidate,
    /// A final release.
    Final,
    /// The four bits hold none of the known values.
    Odd(u8),
}

/// A release of CPython.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 3.
    pub major: u8,
    /// The 12 of 3.12.1.
    pub minor: u8,
    /// The 1 of 3.12.1.
    pub patch: u8,
    /// Alpha, beta, candidate or final.
    pub stage: Stage,
    /// The 2 of `rc2`; 0 for a final release.
    pub serial: u8,
}

impl Version {
    /// A final release.
    #[must_use]
    pub const fn release(major: u8, minor: u8, patch: u8) -> Self {
        Self {
            major,
            minor,
            patch,
            stage: Stage::Final,
            serial: 0,
        }
    }

    /// From `PY_VERSION_HEX`: 0x030C01F0 is 3.12.1 final.
    #[must_use]
    pub const fn from_hex(hex: u32) -> Self {
        let stage = match (hex >> 4) & 0xF {
            0xA => Stage::Alpha,
            0xB => Stage::Beta,
            0xC => Stage::Candidate,
            0xF => Stage::Final,
            odd => Stage::Odd(odd as u8),
        };
        Self {
            major: (hex >> 24) as u8,
            minor: (hex >> 16) as u8,
            patch: (hex >> 8) as u8,
            stage,
            serial: (hex & 0xF) as u8,
        }
    }

    /// From a word that should be `PY_VERSION_HEX`, as an `unsigned long` of the target; none
    /// when it cannot be a version of Python 3.
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word >> 24 == 3 {
            Some(Self::from_hex(word as u32))
        } else {
            None
        }
    }

    /// The minor version of Python 3 that this is, for tables that go by it.
    #[must_use]
    pub const fn is_at_least(&self, minor: u8) -> bool {
        self.major == 3 && self.minor >= minor
    }
}

/// What an interpreter was built as, as far as its structures depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Build {
    /// With the global interpreter lock.
    Default,
    /// Without it (`--disable-gil`, `python3.13t`); it can still be switched on at run time.
    FreeThreaded,
}

impl Build {
    /// From the word in the table of debug offsets.
    #[must_use]
    pub const fn of(free_threaded: bool) -> Self {
        if free_threaded {
            Self::FreeThreaded
        } else {
            Self::Default
        }
    }

    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::FreeThreaded => "free-threaded",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        match self.stage {
            Stage::Alpha => write!(f, "a{}", self.serial),
            Stage::Beta => write!(f, "b{}", self.serial),
            Stage::Candidate => write!(f, "rc{}", self.serial),
            Stage::Final => Ok(()),
            Stage::Odd(bits) => write!(f, "?{bits:x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hex: u64, shown: Option<&str>) {
        let version = Version::from_word(hex).map(|version| version.to_string());
        assert_eq!(version.as_deref(), shown, "{hex:#x}");
    }

    #[test]
    fn a_version_is_unpacked_and_shown_as_python_shows_it() {
        check(0x030C_01F0, Some("3.12.1"));
        check(0x0308_12F0, Some("3.8.18"));
        check(0x030F_00C1, Some("3.15.0rc1"));
        check(0x030E_00A7, Some("3.14.0a7"));
        check(0x030E_00B2, Some("3.14.0b2"));
        check(0x030E_0000, Some("3.14.0?0"));
    }

    #[test]
    fn a_word_that_is_no_version_of_python_3_is_refused() {
        check(0, None);
        check(0x0207_12F0, None);
        check(0x0403_0201, None);
        check(u64::MAX, None);
        check(0x1_030C_01F0, None);
    }
}
