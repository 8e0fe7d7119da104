//! Paths as short as they can be without two files looking the same.
//!
//! For people only: formats read by programs carry whole paths.

use std::collections::{HashMap, HashSet};

use crate::stack::Frame;

/// Short names for a set of paths.
pub(super) struct ShortPaths {
    ambiguous: HashSet<String>,
}

impl ShortPaths {
    /// For the files and modules of `frames`.
    pub(super) fn of_frames(frames: &[Frame]) -> Self {
        let files = frames.iter().map(|frame| &*frame.file);
        let modules = frames.iter().filter_map(|frame| frame.module.as_deref());
        Self::new(files.chain(modules))
    }

    fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut first: HashMap<&str, &str> = HashMap::new();
        let mut ambiguous = HashSet::new();
        for path in paths {
            let one = first.entry(short(path)).or_insert(path);
            if *one != path {
                ambiguous.insert(short(path).to_owned());
            }
        }
        Self { ambiguous }
    }

    /// The frame's label with its path short.
    pub(super) fn label(&self, frame: &Frame) -> String {
        let short = Frame {
            file: self.of(&frame.file).into(),
            module: frame.module.as_deref().map(|path| self.of(path).into()),
            ..frame.clone()
        };
        short.to_string()
    }

    /// The path below its library folder, or its last two parts (of a library the last one);
    /// whole where that would also be the name of another file.
    fn of<'p>(&self, path: &'p str) -> &'p str {
        let short = short(path);
        if self.ambiguous.contains(short) {
            path
        } else {
            short
        }
    }
}

fn short(path: &str) -> &str {
    for folder in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, rest)) = path.rsplit_once(folder) {
            return rest;
        }
    }
    if let Some(rest) = below_python(path) {
        return rest;
    }
    if !path.starts_with('/') {
        return path;
    }
    if let Some((_, name)) = path.rsplit_once('/')
        && (name.ends_with(".so") || name.contains(".so."))
    {
        return name;
    }
    let mut slashes = path.rmatch_indices('/').map(|(at, _)| at + 1);
    match (slashes.next(), slashes.next()) {
        (Some(_), Some(at)) if at > 1 => &path[at..],
        (Some(at), _) => &path[at..],
        _ => path,
    }
}

/// What follows `…/lib/python3.12/`.
pub(super) fn below_python(path: &str) -> Option<&str> {
    let (_, rest) = path.rsplit_once("/python3.")?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == 't');
    rest.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_short_but_never_shared() {
        let all = [
            "/usr/lib/python3.12/json/__init__.py",
            "/opt/free/lib/python3.13t/json/decoder.py",
            "/venv/lib/python3.12/site-packages/numpy/core.py",
            "/opt/one/app/worker.py",
            "/opt/two/app/worker.py",
            "/opt/one/app/main.py",
            "/main.py",
            "/srv/main.py",
            "/usr/lib/x86_64-linux-gnu/libz.so.1",
            "relative/to/here.py",
            "<frozen importlib._bootstrap>",
            "",
        ];
        let paths = ShortPaths::new(all.into_iter());
        let short = all.map(|path| paths.of(path));
        let expected = [
            "json/__init__.py",
            "json/decoder.py",
            "numpy/core.py",
            "/opt/one/app/worker.py",
            "/opt/two/app/worker.py",
            "app/main.py",
            "/main.py",
            "/srv/main.py",
            "libz.so.1",
            "relative/to/here.py",
            "<frozen importlib._bootstrap>",
            "",
        ];
        assert_eq!(short, expected);
    }
}
