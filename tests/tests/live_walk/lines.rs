//! The line of every instruction of much of the standard library, by each interpreter's own
//! reading of its tables.

use profiler::cpython::Version;
use profiler::pystack::lines::{LineFormat, Place};
use serde::Deserialize;

use crate::target::{Target, on_every_python};

const LINE_TABLES: &str = include_str!("../../targets/line_tables.py");

#[derive(Deserialize)]
struct Tables {
    hexversion: u32,
    codes: Vec<Code>,
}

#[derive(Deserialize)]
struct Code {
    name: String,
    first_line: u32,
    table: Vec<u8>,
    /// Offset and line, where the line changes; the last is the end of the code.
    starts: Vec<(u64, Option<u32>)>,
}

#[test]
fn every_instruction_has_the_line_that_the_interpreter_says() {
    on_every_python(|python| {
        let target = Target::start(python, LINE_TABLES, &[])?;
        let tables: Tables = serde_json::from_str(&target.line).map_err(|e| e.to_string())?;
        let format = LineFormat::of(Version::from_hex(tables.hexversion));
        let mut instructions = 0;
        for code in &tables.codes {
            let line = |offset| format.line(&code.table, code.first_line, offset);
            for pair in code.starts.windows(2) {
                let [(start, want), (end, _)] = pair else {
                    continue;
                };
                let want = want.map_or(Place::NoLine, Place::Line);
                for offset in (*start..*end).step_by(2) {
                    instructions += 1;
                    if line(offset) != Some(want) {
                        let (name, got) = (&code.name, line(offset));
                        return Err(format!("`{name}` at {offset}: {got:?}, not {want:?}"));
                    }
                }
            }
            let end = code.starts.last().map_or(0, |(end, _)| *end);
            if format != LineFormat::Lnotab && line(end) != Some(Place::Outside) {
                return Err(format!("`{}` has a line after its end {end}", code.name));
            }
        }
        Ok(format!(
            "{} codes, {instructions} instructions",
            tables.codes.len()
        ))
    });
}
