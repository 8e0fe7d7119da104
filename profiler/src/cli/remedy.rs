//! What to type so that the profiler gets the capabilities it lacks: one line for each way in
//! which it may be run.

use std::io;

use crate::source::{
    capabilities::{self, Privilege, docker_flags, own_path, setcap_names, short},
    hindrances::{self, Yama},
};

/// Write the lines, if something is missing.
pub(super) fn write(out: &mut dyn io::Write) -> io::Result<()> {
    let missing = capabilities::missing();
    if missing.is_empty() {
        return Ok(());
    }
    let mut names = capabilities::wanted();
    let (lacks, extra): (Vec<&Privilege>, Vec<&Privilege>) =
        missing.iter().partition(|it| !it.is_extra);
    if lacks.is_empty() {
        // Then it is the others that may be wanted.
        names.extend(extra.iter().map(|it| it.name));
    }
    // The others have a line of their own at the end.
    let what = if lacks.is_empty() { &extra } else { &lacks };
    let what: Vec<&str> = what.iter().map(|it| it.name).collect();
    writeln!(out, "\nTo give it {}", list(&what))?;
    for (way, line) in lines(&names) {
        writeln!(out, "  {way:<11} {line}")?;
    }
    if !lacks.is_empty() && !extra.is_empty() {
        let extra: Vec<&str> = extra.iter().map(|it| it.name).collect();
        writeln!(
            out,
            "  {:<11} add {} in the same way",
            "and for more",
            list(&extra)
        )?;
    }
    Ok(())
}

fn lines(names: &[&str]) -> Vec<(&'static str, String)> {
    let shorts: Vec<String> = names
        .iter()
        .map(|name| format!("\"{}\"", short(name)))
        .collect();
    let mut lines = vec![
        ("a shell", "sudo profiler …".to_owned()),
        (
            "setcap",
            format!("sudo setcap {}=ep {}", setcap_names(names), own_path()),
        ),
        (
            "docker",
            format!("docker run --pid=host {} …", docker_flags(names)),
        ),
        (
            "Kubernetes",
            format!(
                "hostPID: true, and securityContext: {{capabilities: {{add: [{}]}}}}",
                shorts.join(", ")
            ),
        ),
        (
            "systemd",
            format!("AmbientCapabilities={}", names.join(" ")),
        ),
    ];
    let sysctl = match hindrances::yama() {
        Yama::Scope(1 | 2) => {
            "sudo sysctl kernel.yama.ptrace_scope=0 (your own processes, by `--engine proc`, without any capability)"
        }
        Yama::Scope(3..) => "none: kernel.yama.ptrace_scope=3 holds until the next boot",
        Yama::Absent | Yama::Scope(_) => "none: no setting stands for a capability",
    };
    lines.push(("sysctl", sysctl.to_owned()));
    lines
}

/// `A, B and C`.
fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_for_each_way_to_run_it() {
        let lines = lines(&["CAP_BPF", "CAP_SYS_PTRACE"]);
        let line = |way: &str| {
            let mut named = lines.iter().filter(|(name, _)| *name == way);
            named.next().map(|(_, line)| line.as_str()).expect("a line")
        };
        assert!(line("setcap").starts_with("sudo setcap cap_bpf,cap_sys_ptrace=ep /"));
        assert_eq!(
            line("docker"),
            "docker run --pid=host --cap-add BPF --cap-add SYS_PTRACE …"
        );
        assert_eq!(
            line("Kubernetes"),
            "hostPID: true, and securityContext: {capabilities: {add: [\"BPF\", \"SYS_PTRACE\"]}}"
        );
        assert_eq!(
            line("systemd"),
            "AmbientCapabilities=CAP_BPF CAP_SYS_PTRACE"
        );
        assert!(!line("sysctl").is_empty());
        assert_eq!(list(&["A", "B", "C"]), "A, B and C");
    }
}
