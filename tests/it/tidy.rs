//! What must agree across files: versions, names, headers.

use std::fs;

use harness::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        read("lisp/emacs-runtime-mcp-module.el").contains(&format!("\n;; Version: {version}\n"))
    );
    assert!(
        read("lisp/emacs-runtime-mcp-eval.el")
            .contains(&format!("emacs-runtime-mcp-eval-version \"{version}\""))
    );
    assert!(read("CHANGELOG.md").contains(version));
}

#[test]
fn every_source_file_opens_with_what_it_is_for() {
    fn walk(folder: &std::path::Path, all: &mut Vec<std::path::PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, all);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for folder in ["protocol", "module", "relay", "tests/it"] {
        walk(&root().join(folder), &mut files);
    }
    assert!(files.len() > 20);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//! "), "{}", file.display());
        assert!(
            text.lines().count() <= 800,
            "{} is too long to hold in one's head",
            file.display()
        );
    }
}

#[test]
fn the_evaluator_travels_as_ascii_definitions() {
    let text = read("lisp/emacs-runtime-mcp-eval.el");
    assert!(text.is_ascii());
    // The relay defines what it finds and puts back what was there: nothing else may stand there.
    for line in text.lines().filter(|line| line.starts_with('(')) {
        let known = [
            "(defun ",
            "(defmacro ",
            "(defconst ",
            "(defvar ",
            "(provide ",
        ];
        assert!(known.iter().any(|start| line.starts_with(start)), "{line}");
    }
}
