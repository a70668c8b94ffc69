//! The documents of the repository.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the guide's pages.
fn guide() -> PathBuf {
    root().join("docs/guide/src")
}

/// Returns the targets of the links in a text: from `](` up to `)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Returns the files of a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

/// Returns name and text of each page of the guide.
fn pages() -> Vec<(String, String)> {
    let page = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, read_to_string(path).unwrap())
    };
    let pages: Vec<_> = files(&guide(), "md").iter().map(page).collect();
    assert!(pages.len() > 10, "{} pages were found", pages.len());
    pages
}

/// Returns the programs of a page: the text after the three backticks, and the program.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let program = lines.by_ref().take_while(|line| *line != "```");
            blocks.push((kind, program.map(|line| format!("{line}\n")).collect()));
        }
    }
    blocks
}

#[test]
fn every_relative_link_of_a_document_leads_to_a_file() {
    let mut documents = Vec::new();
    for folder in [root().to_owned(), root().join("docs"), guide()] {
        documents.extend(files(&folder, "md"));
    }
    let mut count = 0;
    for document in documents {
        let text = read_to_string(&document).unwrap();
        for link in links(&text).filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap_or_default();
            let target = document.parent().unwrap().join(file);
            assert!(target.exists(), "{}: the link {link} leads nowhere", document.display());
            count += 1;
        }
    }
    assert!(count > 10, "{count} links were found");
}

#[test]
fn the_readme_names_every_example() {
    let manifest = read_to_string(root().join("Cargo.toml")).unwrap();
    let named = manifest.split("[[example]]\nname = \"").skip(1);
    let mut names: Vec<String> =
        named.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect();
    assert!(names.len() >= 6, "{names:?}");
    let sources = files(&root().join("examples"), "rs");
    assert!(sources.len() >= 11, "{sources:?}");
    names.extend(sources.iter().map(|path| path.file_stem().unwrap().display().to_string()));
    let readme = read_to_string(root().join("README.md")).unwrap();
    for name in names {
        let there = [format!("`{name}`"), format!("--example {name}`")];
        assert!(there.iter().any(|text| readme.contains(text)), "the README has no example {name}");
    }
}

/// The address at which docs.rs shows the files of this package.
const SOURCE: &str = "https://docs.rs/crate/mlx5/latest/source/";

/// Passages of the README for readers of the checkout, and their replacements for readers of the
/// registry.
const ELSEWHERE: [(&str, &str); 6] = [
    (
        "Clone this repository by the address of the page that you read this on (`git clone ADDRESS mlx5`), and go to the folder\n(`cd mlx5`), which is \"the checkout\" below.\n",
        "\"The checkout\" below is a clone of the repository.\n",
    ),
    ("In the checkout, `cargo xtask pictures` draws both pictures again.\n\n", ""),
    (
        " In the checkout:\n\n```sh\ncargo run -p mlx5-cli -- pingpong\n",
        "\n\n```sh\ncargo install mlx5-cli\nmlx5 pingpong\n",
    ),
    (
        "mlx5 = { path = \"../mlx5\" }            # the checkout; once a registry has it: \"0.1\"\n",
        "mlx5 = \"0.1\"\n",
    ),
    ("mlx5-sim = { path = \"../mlx5/sim\" }    # likewise \"0.1\"\n", "mlx5-sim = \"0.1\"\n"),
    (
        "(in the checkout `cargo install --path cli`, or `cargo run --release -p mlx5-cli --` in its place)",
        "(`cargo install mlx5-cli`)",
    ),
];

/// Returns the README as a registry shows it: without the repository, so that links lead to the
/// files of the package, and pictures are left out.
fn for_registry(readme: &str) -> String {
    let mut readme = readme.to_owned();
    for (here, there) in ELSEWHERE {
        assert_eq!(readme.matches(here).count(), 1, "the README has {here:?} once");
        readme = readme.replace(here, there);
    }
    let mut page = String::from(
        "<!-- README.md, for the page of a registry. MLX5_WRITE=1 cargo test -p mlx5 --lib registry writes it. -->\n\n",
    );
    let mut lines = readme.lines().filter(|line| !line.starts_with("![")).peekable();
    while let Some(line) = lines.next() {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            let (before, link) = rest.split_at(at + 2);
            page.push_str(before);
            if !link.contains("://") || link.find("://") > link.find(')') {
                page.push_str(SOURCE);
            }
            rest = link;
        }
        page.push_str(rest);
        page.push('\n');
        // One empty line in place of a picture.
        if line.is_empty() {
            while lines.next_if(|line| line.is_empty()).is_some() {}
        }
    }
    page
}

#[test]
fn the_page_for_a_registry_is_the_readme_with_links_that_hold_there() {
    let path = root().join("docs/REGISTRY.md");
    let page = for_registry(&read_to_string(root().join("README.md")).unwrap());
    if std::env::var_os("MLX5_WRITE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    // A paragraph with a command that needs the checkout, or the one before it, says so.
    const NEEDS: [&str; 4] = ["cargo run", "cargo test -", "cargo xtask", "path = "];
    let paragraphs: Vec<&str> = page.split("\n\n").collect();
    for pair in paragraphs.windows(2) {
        let needs = NEEDS.iter().find(|command| pair[1].contains(**command));
        let says = pair.iter().any(|text| text.to_lowercase().contains("in the checkout"));
        assert!(needs.is_none() || says, "{needs:?} for readers without a checkout: {}", pair[1]);
    }
    // A sentence that introduces a picture must not remain without it.
    for pair in paragraphs.windows(2).filter(|pair| pair[0].ends_with(':')) {
        let follows = pair[1].starts_with("```") || pair[1].starts_with(['|', '-', '*']);
        assert!(follows, "nothing follows {:?}", pair[0]);
    }
    let said = read_to_string(&path).unwrap();
    assert!(said == page, "MLX5_WRITE=1 cargo test -p mlx5 --lib registry writes docs/REGISTRY.md");
    let manifest = read_to_string(root().join("Cargo.toml")).unwrap();
    let list = manifest.lines().find_map(|line| line.strip_prefix("include = ")).unwrap();
    let packed = |path: &str| {
        path == "Cargo.toml"
            || list.split('"').skip(1).step_by(2).any(|pattern| {
                let (begin, end) = pattern[1..].split_once('*').unwrap_or((&pattern[1..], ""));
                path.strip_prefix(begin).is_some_and(|rest| {
                    rest.ends_with(end) && (!pattern.contains('*') || !rest.contains('/'))
                })
            })
    };
    let mut count = 0;
    for link in links(&page) {
        assert!(link.starts_with("https://"), "{link} leads nowhere from a registry's page");
        if let Some(path) = link.strip_prefix(SOURCE) {
            let file = path.split('#').next().unwrap_or_default();
            assert!(packed(file) && root().join(file).exists(), "the package has no {file}");
            count += 1;
        }
    }
    assert!(count > 10, "{count} links were found");
}

#[test]
fn the_readmes_name_the_version_to_depend_on() {
    let version =
        format!("{}.{}", env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    for readme in ["README.md", "sim/README.md", "async/README.md", "cm/README.md"] {
        let text = read_to_string(root().join(readme)).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mlx5")).collect();
        let lines = lines.iter().filter(|line| line.contains(" = "));
        assert!(lines.clone().count() > 0, "{readme} does not say what to depend on");
        for line in lines {
            assert!(line.contains(&format!("\"{version}\"")), "{readme}: {line}");
        }
    }
}

#[test]
fn the_guides_summary_lists_every_page_once() {
    let summary = read_to_string(guide().join("SUMMARY.md")).unwrap();
    let mut listed: Vec<&str> = links(&summary).collect();
    listed.sort_unstable();
    let pages = pages();
    let there: Vec<&str> =
        pages.iter().map(|(name, _)| &**name).filter(|name| *name != "SUMMARY.md").collect();
    assert_eq!(listed, there);
}

/// The pages with programs that are only compiled, and the reason.
const NOT_RUN: [(&str, &str); 2] = [
    ("two-processes.md", "it takes two processes: tests/services/two_processes.rs runs them"),
    ("hardware.md", "it opens a real device"),
];

#[test]
fn every_program_of_the_guide_is_compiled_and_run() {
    let tested = ["src/lib.rs", "cm/src/lib.rs", "async/src/lib.rs"]
        .map(|path| read_to_string(root().join(path)).unwrap())
        .concat();
    let mut programs = 0;
    for (name, text) in pages() {
        for (kind, program) in blocks(&text) {
            match kind {
                "sh" | "toml" | "text" => continue,
                "rust" => {}
                "rust,no_run" => {
                    assert!(NOT_RUN.iter().any(|(page, _)| *page == name), "{name} is not run");
                }
                _ => panic!("{name}: a block of {kind:?} is no program, or is not tested"),
            }
            programs += 1;
            // A whole program must run; one without `main` would only be compiled.
            let is_whole = program.starts_with("use ") && program.contains("\nfn ");
            assert!(!is_whole || program.contains("fn main()"), "{name}: no test calls {program}");
            let include = [format!("\"{name}\""), format!("/{name}\"")];
            assert!(include.iter().any(|text| tested.contains(text)), "{name} is not included");
        }
    }
    assert!(programs > 15, "{programs} programs were found");
}

/// Rust prints an error that `main` returns in its debug form.
#[test]
fn no_example_ends_with_the_debug_form_of_an_error() {
    let folders = [
        "examples",
        "examples/ethernet",
        "examples/services",
        "async/examples",
        "cm/examples/peer",
    ];
    let mut count = 0;
    for path in folders.iter().flat_map(|folder| files(&root().join(folder), "rs")) {
        let text = read_to_string(&path).unwrap();
        let Some((_, main)) = text.split_once("fn main()") else { continue };
        let returns = main.split('{').next().unwrap_or_default().trim();
        assert_eq!(returns, "-> ExitCode", "{}", path.display());
        count += 1;
    }
    assert!(count >= 18, "{count} examples were found");
}

#[test]
fn the_program_of_two_processes_is_the_example() {
    let page = read_to_string(guide().join("two-processes.md")).unwrap();
    let example = read_to_string(root().join("examples/two_processes.rs")).unwrap();
    let programs: Vec<_> =
        blocks(&page).into_iter().filter(|(kind, _)| kind.starts_with("rust")).collect();
    assert_eq!(programs, [("rust,no_run", example)], "copy the example into the page");
}

/// Adds the sources below a folder, each text with its string literals joined as the compiler joins
/// them.
fn add_sources(folder: &Path, sources: &mut Vec<String>) {
    for entry in read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read_to_string(&path).unwrap();
            let mut parts = text.split("\\\n");
            let first = parts.next().unwrap_or_default().to_owned();
            let joined = parts.fold(first, |joined, part| joined + part.trim_start());
            // Users do not see comments.
            let code = joined.lines().filter(|line| !line.trim_start().starts_with("//"));
            sources.push(code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Rustdoc omits items of features that are off.
#[test]
fn each_feature_of_a_package_is_in_its_documentation() {
    let mut seen = Vec::new();
    for entry in read_dir(root()).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(manifest) = read_to_string(folder.join("Cargo.toml")) else { continue };
        let Some((_, features)) = manifest.split_once("\n[features]\n") else { continue };
        let features = features.split("\n[").next().unwrap_or_default();
        let package = folder.display();
        for shown in ["all-features = true", r#"rustdoc-args = ["--cfg", "docsrs"]"#] {
            assert!(manifest.contains(shown), "{package}: docs.rs shows it with {shown}");
        }
        let library = read_to_string(folder.join("src/lib.rs")).unwrap();
        assert!(library.contains("cfg_attr(docsrs, feature(doc_cfg))"), "{package}");
        let mut sources = Vec::new();
        add_sources(&folder.join("src"), &mut sources);
        for name in features.lines().filter_map(|line| line.split_once(" = ")).map(|pair| pair.0) {
            let page = library.lines().take_while(|line| line.starts_with("//!"));
            let is_named = page.into_iter().any(|line| line.contains(&format!("`{name}`")));
            assert!(is_named, "{package}: the first page says nothing of `{name}`");
            let marked = format!("cfg_attr(docsrs, doc(cfg(feature = \"{name}\")))");
            assert!(sources.iter().any(|source| source.contains(&marked)), "{package}: {marked}");
            seen.push(name.to_owned());
        }
    }
    seen.sort();
    assert_eq!(seen, ["tokio", "watch"]);
}

/// Returns the error texts on the page of troubleshooting.
fn error_texts(page: &str) -> BTreeSet<&str> {
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    headings
        .map(|heading| {
            let text = heading.strip_prefix('`').and_then(|text| text.strip_suffix('`'));
            text.unwrap_or_else(|| panic!("{heading} is not an error text in backticks"))
        })
        .collect()
}

#[test]
fn every_usual_cause_of_an_errno_is_in_the_guide() {
    let page = read_to_string(guide().join("troubleshooting.md")).unwrap();
    let known = error_texts(&page);
    for folder in ["src/error", "cm/src"] {
        let mut sources = Vec::new();
        add_sources(&root().join(folder), &mut sources);
        let causes = sources.iter().filter_map(|source| {
            let (_, rest) = source.split_once("\nfn usual_cause(")?;
            rest.split("\n}\n").next()
        });
        // Text between quotes: error texts have spaces, names of operations have none.
        let texts: Vec<&str> = causes
            .flat_map(|source| source.split('"').skip(1).step_by(2))
            .filter(|text| text.contains(' '))
            .collect();
        assert!(texts.len() > 15, "{folder}: {texts:?}");
        for text in texts {
            assert!(known.iter().any(|known| text.contains(known)), "the guide has no {text:?}");
        }
    }
}

#[test]
fn every_error_text_of_the_guide_is_in_the_code() {
    let mut sources = Vec::new();
    for folder in ["src", "examples/services"] {
        add_sources(&root().join(folder), &mut sources);
    }
    for package in ["wqe", "cq", "prm", "cm", "async", "sim", "sim/preload", "sim/wire", "cli"] {
        add_sources(&root().join(package).join("src"), &mut sources);
    }
    let page = read_to_string(guide().join("troubleshooting.md")).unwrap();
    let texts = error_texts(&page);
    assert!(texts.len() > 30, "{} error texts were found", texts.len());
    for text in texts {
        assert!(sources.iter().any(|source| source.contains(text)), "no code says {text:?}");
    }
}

/// The promises of the page about threads.
#[test]
fn handles_go_to_other_threads_and_those_without_queues_are_shared() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    use crate::transport::Rc;
    shared::<crate::Context>();
    shared::<crate::ProtectionDomain>();
    shared::<crate::MemoryRegion>();
    shared::<crate::SharedQueuePair<Rc>>();
    shared::<crate::SharedCompletionQueue>();
    sent::<crate::QueuePair<Rc>>();
    sent::<crate::SendHalf<Rc>>();
    sent::<crate::ReceiveHalf>();
    sent::<crate::CompletionQueue>();
    sent::<crate::SharedReceiveQueue>();
}
