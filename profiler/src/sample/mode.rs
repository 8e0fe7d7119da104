//! What a profile's weights mean: modes are filters over the same samples.

use super::{Activity, Gil};

/// Which samples are in a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Time on a CPU.
    #[default]
    Cpu,
    /// All time: on a CPU, runnable, blocked.
    Wall,
    /// Time with the GIL, and time spent waiting for it.
    Gil,
    /// Time off the CPU.
    OffCpu,
}

impl Mode {
    /// The word for it on the command line and in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Gil => "gil",
            Self::OffCpu => "offcpu",
        }
    }

    /// Whether a sample belongs into a profile of this mode.
    #[must_use]
    pub const fn keeps(self, activity: Activity, gil: Gil) -> bool {
        match self {
            Self::Cpu => matches!(activity, Activity::OnCpu),
            Self::Wall => true,
            Self::Gil => matches!(gil, Gil::Holds | Gil::Waits),
            Self::OffCpu => !matches!(activity, Activity::OnCpu),
        }
    }

    /// Whether threads that are off the CPU are looked at.
    #[must_use]
    pub const fn looks_off_cpu(self) -> bool {
        !matches!(self, Self::Cpu)
    }
}
