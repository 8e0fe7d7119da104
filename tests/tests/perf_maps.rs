//! Perf maps: the names that a program gives to the code it makes. Rung 3.

use anyhow::{Context, Result, ensure};
use tests::on_each;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::target::Target;

/// Code that is made where other code was has its own name, whatever else is in the map.
fn code_is_made_anew(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "makes_code.py", &["0.5"])?;
    let mut profiler = Running::in_detail(target.pid(), &["--native", "-r", "999"])?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("made_first")?;
    // All samples up to here are named.
    profiler.so_far()?;
    target.tell("go on")?;
    let accounts = target.done()?;
    let profile = profiler.stop()?.profile()?;
    profile.ledger.balances()?;
    for (function, made, other) in [
        ("first", "made_first", "made_second"),
        ("second", "made_second", "made_first"),
    ] {
        let account = accounts.iter().find(|account| account.name == function);
        let account = account.context(function)?;
        let (mut all, mut right) = (0, 0);
        for entry in profile.of(account.tid) {
            all += entry.ticks;
            let is_in = |name| profile.is_in(entry, name);
            ensure!(
                !is_in(other),
                "`{function}` runs `{other}`: {:?}",
                profile.stack(entry).collect::<Vec<_>>()
            );
            right += if is_in(made) && is_in(function) {
                entry.ticks
            } else {
                0
            };
        }
        // Of a busy machine's samples some come without their stack.
        ensure!(
            all > 200 && right * 2 > all,
            "{right} of {all} samples are in `{made}`: {:?} {:?}",
            profile.ledger.native,
            profile.folded(|_| true).stacks
        );
    }
    Ok(())
}
on_each! {
    Rung::Kernel, code_is_made_anew;
    code_made_where_other_code_was_has_its_own_name_on_3_8: 8;
    code_made_where_other_code_was_has_its_own_name_on_3_12: 12;
    code_made_where_other_code_was_has_its_own_name_on_3_14: 14;
}
