//! The files of the workspace as text, with the bare code of each Rust file beside it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::code;
use crate::shell;

/// One file.
#[derive(Debug)]
pub(super) struct File {
    /// From the workspace on, with `/`.
    pub(super) path: String,
    /// What it holds.
    pub(super) text: String,
    /// The same without comments and the insides of literals; empty when it is not Rust.
    pub(super) code: String,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let code = match path.ends_with(".rs") {
            true => code::bare(&text),
            false => String::new(),
        };
        Self {
            path: path.to_owned(),
            text,
            code,
        }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines of the bare code, numbered from 1.
    pub(super) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(i, line)| (i + 1, line))
    }
}

/// Every text file of the workspace.
#[derive(Debug)]
pub(super) struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// What git tracks or would track.
    pub(super) fn tracked(workspace: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(workspace);
        let mut files = Vec::new();
        for path in shell::output(&mut git)?
            .split('\0')
            .filter(|it| !it.is_empty())
        {
            let whole = workspace.join(path);
            // A file can be tracked and removed, or be a link to nothing.
            if !whole.is_file() {
                continue;
            }
            let bytes = std::fs::read(&whole).with_context(|| format!("`{path}`"))?;
            // Images and objects are not text, and no rule is about them.
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File::new(path, text));
            }
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn made_up(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File::new(path, (*text).to_owned());
        Self {
            files: files.iter().map(file).collect(),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }
}
