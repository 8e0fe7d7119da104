//! Measures a layout by compiling `offsetof()` expressions against an interpreter's headers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::Series;
use super::fields::{GROUPS, HEADERS};
use super::table::{Table, Values};

/// An interpreter's release and where its headers are.
pub(super) struct Headers {
    pub(super) series: Series,
    pub(super) patch: u8,
    folders: Vec<PathBuf>,
}

/// Asks the interpreter itself.
pub(super) fn headers_of(python: &str) -> anyhow::Result<Headers> {
    const ASK: &str = "import sys, sysconfig as s\n\
        print(sys.version_info[1], sys.version_info[2], s.get_config_var('Py_GIL_DISABLED') or 0)\n\
        print(s.get_path('include'))\nprint(s.get_path('platinclude'))";
    let mut words = python.split_whitespace();
    let program = words.next().context("--python needs a command")?;
    let output = Command::new(program)
        .args(words)
        .args(["-c", ASK])
        .output()
        .with_context(|| format!("cannot run `{python}`"))?;
    ensure!(
        output.status.success(),
        "`{python}` did not say where its headers are: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).context("a path that is not UTF-8")?;
    let mut lines = text.lines();
    let mut numbers = lines
        .next()
        .unwrap_or_default()
        .split(' ')
        .map(str::parse::<u8>);
    let (Some(Ok(minor)), Some(Ok(patch)), Some(Ok(free))) =
        (numbers.next(), numbers.next(), numbers.next())
    else {
        bail!("`{python}` answered with something else than its version");
    };
    let series = Series {
        minor,
        free_threaded: free == 1,
    };
    let folders: Vec<_> = lines.map(PathBuf::from).collect();
    ensure!(
        folders
            .iter()
            .any(|folder| folder.join("Python.h").exists()),
        "`{python}` has no headers in {folders:?}: install its development package"
    );
    Ok(Headers {
        series,
        patch,
        folders,
    })
}

struct Candidate {
    group: usize,
    field: usize,
    expression: String,
}

/// Compiles until only what this version has is left, runs the result, keeps the first
/// expression of each field that compiled.
pub(super) fn measure(headers: &Headers, cc: &str) -> anyhow::Result<Table> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for (g, group) in GROUPS.iter().enumerate() {
        for (f, field) in group.fields.iter().enumerate() {
            candidates.extend(field.c.iter().map(|c| Candidate {
                group: g,
                field: f,
                expression: expression(c),
            }));
        }
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    // Each round takes out what did not compile; errors of one line can hide those of another.
    for _ in 0..8 {
        let bad = compile(headers, cc, folder.path(), &candidates)?;
        if bad.is_empty() {
            return run(folder.path(), &candidates);
        }
        let mut index = 0;
        candidates.retain(|_| {
            index += 1;
            !bad.contains(&(index - 1))
        });
    }
    bail!("the probes still do not compile after eight rounds")
}

fn expression(c: &str) -> String {
    let Some(bit_field) = c.strip_prefix("S:") else {
        return c.to_owned();
    };
    let parts: Vec<_> = bit_field.split(':').collect();
    let [structure, word, field] = parts[..] else {
        return c.to_owned();
    };
    format!(
        "({{ {structure} x; memset(&x, 0, sizeof x); x.{word}.{field} = ~0u; \
         unsigned w; memcpy(&w, &x.{word}, 4); (unsigned)w; }})"
    )
}

/// The places of candidates that do not compile.
fn compile(
    headers: &Headers,
    cc: &str,
    folder: &Path,
    candidates: &[Candidate],
) -> anyhow::Result<BTreeSet<usize>> {
    let mut source = String::from("#define Py_BUILD_CORE 1\n#include <Python.h>\n");
    for header in HEADERS {
        source += &format!("#if __has_include(\"{header}\")\n#include \"{header}\"\n#endif\n");
    }
    source += "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\nint main(void) {\n";
    let first_line = source.lines().count() + 1;
    for (index, candidate) in candidates.iter().enumerate() {
        let expression = &candidate.expression;
        source += &format!("printf(\"{index} %lld\\n\", (long long)({expression}));\n");
    }
    source += "return 0;\n}\n";
    let file = folder.join("probe.c");
    std::fs::write(&file, source).context("cannot write the probe")?;
    let mut command = Command::new(cc);
    command.args(["-w", "-DNDEBUG", "-fmax-errors=0", "-O0", "-o"]);
    command.arg(folder.join("probe")).arg(&file);
    for include in &headers.folders {
        command.arg("-I").arg(include);
        command.arg("-I").arg(include.join("internal"));
    }
    // Only the numbers matter: what the headers' inline functions call may stay undefined.
    command.args(["-Wl,--unresolved-symbols=ignore-all", "-no-pie"]);
    let output = command
        .output()
        .with_context(|| format!("cannot run `{cc}`: install a C compiler or pass --cc"))?;
    if output.status.success() {
        return Ok(BTreeSet::new());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let bad: BTreeSet<usize> = errors
        .lines()
        .filter_map(|line| {
            line.split_once("probe.c:")?
                .1
                .split_once(": error")
                .map(|x| x.0)
        })
        .filter_map(|place| place.split(':').next()?.parse::<usize>().ok())
        .filter_map(|line| line.checked_sub(first_line))
        .filter(|index| *index < candidates.len())
        .collect();
    ensure!(!bad.is_empty(), "the headers do not compile:\n{errors}");
    Ok(bad)
}

fn run(folder: &Path, candidates: &[Candidate]) -> anyhow::Result<Table> {
    let output = Command::new(folder.join("probe"))
        .output()
        .context("cannot run the probe")?;
    ensure!(
        output.status.success(),
        "the probe ended by {}",
        output.status
    );
    let mut table: Table = GROUPS
        .iter()
        .map(|group| vec![None; group.fields.len()])
        .collect::<Vec<Values>>();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut numbers = line.split(' ').map(str::parse::<u32>);
        let (Some(Ok(index)), Some(Ok(value))) = (numbers.next(), numbers.next()) else {
            bail!("the probe printed `{line}`");
        };
        let Some(candidate) = candidates.get(index as usize) else {
            bail!("the probe printed `{line}`");
        };
        table[candidate.group][candidate.field].get_or_insert(value);
    }
    Ok(table)
}
