//! A thread that runs Python, or collects: the GIL, the word that stands beside it, the collector.

use profiler::cpython::Attachment;
use profiler::sample::Gil;
use profiler::target::Memory;
use profiler::words::RemoteAddr;
use profiler_common::plan::GIL_BY_HOLDER;
use tests::pythons::{self, WITH_GIL};

use super::{attach, plan};
use crate::target::{Target, on_every_python, until};

const HOLDS_THE_GIL: &str = include_str!("../../targets/holds_the_gil.py");

#[test]
fn the_thread_that_runs_python_holds_the_gil_or_is_attached() {
    let test = |python: &[String]| {
        let target = Target::start(python, HOLDS_THE_GIL, &[])?;
        let memory = target.memory()?;
        let runtime = attach(&memory)?;
        let plan = plan(&runtime, &memory, 512)?;
        until(|| {
            let states = runtime.thread_states(&memory);
            let state = states.map_err(|error| error.to_string())?[0];
            if runtime.version().is_at_least(13) && state.attachment != Some(Attachment::Attached) {
                return Ok(false);
            }
            if runtime.runs_with_gil(&memory) == Ok(false) {
                return Ok(state.gil == Gil::NoGil);
            }
            let holder = runtime.gil_holder(&memory, state.interpreter);
            let by_word = |word: u32, mask: u32| {
                let word = RemoteAddr(state.addr.0).plus(word.into());
                memory.u32(word).map(|word| word & mask != 0)
            };
            let by_plan = match plan.flag.gil {
                GIL_BY_HOLDER => memory.u64(RemoteAddr(plan.state.holder_addr)) == Ok(state.addr.0),
                _ => by_word(plan.flag.gil_word, plan.flag.gil_mask) == Ok(true),
            };
            Ok(holder == Ok(Some(state.addr)) && state.gil == Gil::Holds && by_plan)
        })?;
        Ok("holds".to_owned())
    };
    on_every_python(test);
    // A build without the GIL, with it switched on.
    on_every_python(|python| {
        let free_threaded = pythons::required()
            .iter()
            .any(|it| it.free_threaded && it.command == python);
        if !free_threaded {
            return Ok("has no switch".to_owned());
        }
        test(&[python, &[WITH_GIL[0].to_owned(), WITH_GIL[1].to_owned()]].concat())
    });
}

#[test]
fn a_running_collection_is_seen() {
    on_every_python(|python| {
        let target = Target::start(python, HOLDS_THE_GIL, &["collect"])?;
        let memory = target.memory()?;
        let runtime = attach(&memory)?;
        let plan = plan(&runtime, &memory, 512)?;
        let interpreters = runtime.interpreters(&memory);
        let main = interpreters.map_err(|error| error.to_string())?[0];
        until(|| Ok(runtime.collecting(&memory, main) == Ok(true)))?;
        let place = match plan.flag.gc_addr {
            0 => RemoteAddr::from(main).plus(plan.flag.gc_in_interp.into()),
            addr => RemoteAddr(addr),
        };
        until(|| Ok(memory.u32(place) == Ok(1)))?;
        Ok("collects".to_owned())
    });
}
