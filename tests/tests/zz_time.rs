//! Temporary.
use profiler::pipeline::Attached;
use profiler::tasks::TaskReader;
use profiler::words::Pid;
#[test]
fn time() {
    let pid: u32 = std::env::var("TPID").unwrap().parse().unwrap();
    let attached = Attached::open(Pid(pid)).unwrap();
    let runtime = attached.discover().unwrap();
    let table = attached.asyncio_table(&runtime);
    let mut reader = TaskReader::new(&runtime, table.as_ref());
    for _ in 0..8 {
        let t = std::time::Instant::now();
        let s = reader.snapshot(&runtime, &attached.memory).unwrap();
        eprintln!(
            "{:?} tasks {} unchanged {} unreadable {}",
            t.elapsed(),
            s.tasks.len(),
            s.unchanged,
            s.unreadable.len()
        );
    }
}
