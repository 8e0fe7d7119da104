//! What is measured, in the page's words.

use crate::bench::compared::Measure;

/// The measures in the order of the page, each with what it means.
pub(super) const ALL: [(Measure, &str); 11] = [
    (
        Measure::Error,
        "How far the profile's shares are from what the program says of itself, in percentage points, \
         for the function that is told worst: 0 is the truth, and with a thousand samples chance alone \
         makes one or two.",
    ),
    (
        Measure::Impossible,
        "Stacks that the program cannot have had (a caller that never calls that function, a lost \
         root, a recursion of another depth), of each million in which it can be told.",
    ),
    (
        Measure::Cut,
        "Stacks of a known recursion that say that a part of them was left out, in percent: they are \
         not wrong, but they are not whole.",
    ),
    (
        Measure::Got,
        "The time in which the tool saw the program's functions, by the number of its samples and the \
         rate that was asked for, of the time that they took: 100 is all and nothing twice.",
    ),
    (
        Measure::Cpu,
        "CPU milliseconds that the tool's process spends for 1,000 of its samples once it is attached, and \
         for ours the kernel programs' too, by the kernel's clock on them; the rows called `warm` \
         begin a second later.",
    ),
    (
        Measure::Memory,
        "The tool's largest resident memory up to the end of the program's work, in megabytes.",
    ),
    (
        Measure::First,
        "From the start of the tool's process to the first thing that it saw of a program whose \
         function has another name every two milliseconds.",
    ),
    (
        Measure::Slowdown,
        "How much longer the same counted work takes while the tool watches, each round against nobody \
         watching: by its `pieces`, what those of some ten microseconds take beyond the middle one of \
         their neighbours, pauses, interrupts and a lost CPU, which the drift of the machine's speed does \
         not touch; in all by the wall clock; and by the thread's own CPU clock, which sees no pauses. \
         `nobody` is a second time nobody: differences within what its rounds lie apart count as \
         neither's.",
    ),
    (
        Measure::Stolen,
        "Time that was taken from a native loop that does nothing but look at the clock, in \
         microseconds a second: pauses, interrupts, and a CPU that was given to others.",
    ),
    (
        Measure::Highest,
        "The highest of some rates (100, 1,000, 2,000, 5,000, 10,000, 20,000 and 40,000 a second) at which \
         the tool still gets 99 % of the samples that are due of one busy thread, by their number, and \
         says of none that it is lost; 0 is none of them. A tool that comes late and then takes all \
         that are due at once keeps a rate by number: the next measure tells those. Ours ran with \
         `--no-jitter` here, for else the rate itself is off by a percent or two.",
    ),
    (
        Measure::Gaps,
        "How unequal the steps are in their numbers of samples where a program's function has another \
         name every two milliseconds: the standard deviation in percent of the mean, 0 for samples that \
         are perfectly even. For as many at moments of pure chance it is 71 at 1,000 a second and 22 at \
         10,000.",
    ),
];
