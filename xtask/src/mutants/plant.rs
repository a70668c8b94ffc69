//! Writes source files with many bugs at once, one of which is active.
//!
//! The body of a function becomes a choice of bodies: the original, and one for each of its bugs.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::LineColumn;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use super::list::Mutant;
use super::text::{Place, Text};
use super::tree::Sources;
use crate::failure::Failure;

/// Way in which a mutant is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planted {
    /// Among others, in the function with this number.
    Among { function: u32, is_const: bool },
    /// By itself: it is in no function, or its bodies would have different types.
    Alone,
}

/// A function's body in its file.
struct Body {
    /// Byte range between its braces.
    inside: Range<usize>,
    function: u32,
    is_const: bool,
    is_opaque: bool,
    /// Mutants that are planted here, by their index in the list.
    mutants: Vec<usize>,
}

/// Lines of a planted file that belong to some mutants.
struct Lines {
    lines: Range<usize>,
    mutants: Vec<usize>,
}

/// Files with mutants.
pub(super) struct Field<'a> {
    mutants: &'a [&'a Mutant],
    files: BTreeMap<&'a str, String>,
    bodies: BTreeMap<&'a str, Vec<Body>>,
    /// Position of the mutants' lines in each file as last written.
    lines: BTreeMap<&'a str, Vec<Lines>>,
}

impl<'a> Field<'a> {
    /// Finds the functions with mutants.
    pub(super) fn new(sources: &Sources, mutants: &'a [&'a Mutant]) -> Result<Self, Failure> {
        let no_rust = |name: &str| Failure::Output {
            program: name.to_owned(),
            what: "something that is no Rust".to_owned(),
        };
        let mut files = BTreeMap::new();
        for mutant in mutants {
            let text = sources.text(&mutant.file).ok_or_else(|| no_rust(&mutant.file))?;
            files.insert(mutant.file.as_str(), text);
        }
        Self::of(files, mutants).map_err(no_rust)
    }

    /// Finds them in these files. Fails with the name of a file that is not valid Rust.
    fn of(files: BTreeMap<&'a str, String>, mutants: &'a [&'a Mutant]) -> Result<Self, &'a str> {
        let mut functions = 0;
        let mut bodies = BTreeMap::new();
        for (&name, text) in &files {
            bodies.insert(name, bodies_of(text, &mut functions).ok_or(name)?);
        }
        for (at, mutant) in mutants.iter().enumerate() {
            let name = mutant.file.as_str();
            let changed = changed(&files[name], mutant);
            let has = |body: &&mut Body| {
                body.inside.start <= changed.start && changed.end <= body.inside.end
            };
            let around = bodies.get_mut(name).into_iter().flatten().filter(has);
            if let Some(innermost) = around.min_by_key(|body| body.inside.len()) {
                innermost.mutants.push(at);
            }
        }
        Ok(Self { mutants, files, bodies, lines: BTreeMap::new() })
    }

    /// Way in which a mutant is planted.
    pub(super) fn planted(&self, mutant: usize) -> Planted {
        let bodies = &self.bodies[self.mutants[mutant].file.as_str()];
        match bodies.iter().find(|body| body.mutants.contains(&mutant)) {
            Some(body) if !body.is_opaque => {
                Planted::Among { function: body.function, is_const: body.is_const }
            }
            _ => Planted::Alone,
        }
    }

    /// Writes all files; each function has those of its bugs that are `wanted`. A bug's number is
    /// the mutant's index in the list plus one.
    pub(super) fn planted_files(
        &mut self,
        wanted: impl Fn(usize) -> bool,
    ) -> Vec<(&'a str, String)> {
        let mut planted = Vec::new();
        for (&name, text) in &self.files {
            let bodies: Vec<&Body> =
                self.bodies[name].iter().filter(|body| !body.is_opaque).collect();
            let (out, lines) = (String::new(), Vec::new());
            let mut writer = Writer { mutants: self.mutants, wanted: &wanted, text, out, lines };
            writer.stretch(0..text.len(), &bodies);
            planted.push((name, writer.out));
            self.lines.insert(name, writer.lines);
        }
        planted
    }

    /// The file of one mutant with its bug always active.
    pub(super) fn file_of(&self, mutant: usize) -> (&'a str, String) {
        let mutant = self.mutants[mutant];
        let text = &self.files[mutant.file.as_str()];
        (&mutant.file, with_bug(text, 0..text.len(), mutant))
    }

    /// Mutants that may be the reason why a line of a written file does not compile: the one whose
    /// body contains the line, or those of its function.
    pub(super) fn suspects(&self, file: &str, line: usize) -> &[usize] {
        let around =
            self.lines.get(file).into_iter().flatten().filter(|lines| lines.lines.contains(&line));
        around.min_by_key(|lines| lines.lines.len()).map_or(&[], |lines| &lines.mutants)
    }
}

/// Writes a file piece by piece.
struct Writer<'a, F> {
    mutants: &'a [&'a Mutant],
    wanted: &'a F,
    text: &'a str,
    out: String,
    lines: Vec<Lines>,
}

impl<F: Fn(usize) -> bool> Writer<'_, F> {
    /// Writes a range of the file, with the bodies in it as choices.
    fn stretch(&mut self, stretch: Range<usize>, bodies: &[&Body]) {
        let mut at = stretch.start;
        let mut inner: Vec<&Body> = bodies
            .iter()
            .copied()
            .filter(|body| stretch.start <= body.inside.start && body.inside.end <= stretch.end)
            .filter(|body| body.mutants.iter().any(|&mutant| (self.wanted)(mutant)))
            .collect();
        inner.sort_by_key(|body| (body.inside.start, std::cmp::Reverse(body.inside.end)));
        for body in inner {
            // A body inside one that was written is already in the output.
            if body.inside.start >= at {
                self.out.push_str(&self.text[at..body.inside.start]);
                self.choice(body, bodies);
                at = body.inside.end;
            }
        }
        self.out.push_str(&self.text[at..stretch.end]);
    }

    /// Writes a choice of bodies.
    fn choice(&mut self, body: &Body, bodies: &[&Body]) {
        let wanted: Vec<usize> =
            body.mutants.iter().copied().filter(|&at| (self.wanted)(at)).collect();
        let first = self.line();
        self.out.push_str(&format!(" match ::mlx5_mutant::on({}) {{\n", body.function));
        for &at in &wanted {
            let start = self.line();
            let text = with_bug(self.text, body.inside.clone(), self.mutants[at]);
            self.out.push_str(&format!("{} => {{{text}\n}}\n", at + 1));
            self.lines.push(Lines { lines: start..self.line(), mutants: vec![at] });
        }
        self.out.push_str("_ => {");
        let others: Vec<&Body> =
            bodies.iter().copied().filter(|other| other.function != body.function).collect();
        self.stretch(body.inside.clone(), &others);
        self.out.push_str("\n}\n} ");
        self.lines.push(Lines { lines: first..self.line() + 1, mutants: wanted });
    }

    /// The line that is being written.
    fn line(&self) -> usize {
        self.out.matches('\n').count() + 1
    }
}

/// A stretch of a file, with the bug of a mutant that is in it.
fn with_bug(text: &str, stretch: Range<usize>, mutant: &Mutant) -> String {
    let changed = changed(text, mutant);
    let (before, behind) = (&text[stretch.start..changed.start], &text[changed.end..stretch.end]);
    format!("{before}{}{behind}", mutant.replacement)
}

/// Byte range that a mutant changes.
fn changed(text: &str, mutant: &Mutant) -> Range<usize> {
    let text = Text::new(text);
    text.byte(mutant.start)..text.byte(mutant.end)
}

/// Bodies of a file's functions, numbered from `functions`; `None` if the file is not valid Rust.
fn bodies_of(text: &str, functions: &mut u32) -> Option<Vec<Body>> {
    let file = syn::parse_file(text).ok()?;
    let mut finder = Finder { text: Text::new(text), functions, bodies: Vec::new() };
    finder.visit_file(&file);
    Some(finder.bodies)
}

struct Finder<'a> {
    text: Text<'a>,
    functions: &'a mut u32,
    bodies: Vec<Body>,
}

impl Finder<'_> {
    fn note(&mut self, signature: &Signature, block: &Block) {
        let braces = block.brace_token.span;
        let byte = |at: LineColumn| self.text.byte(Place { line: at.line, column: at.column + 1 });
        let inside = byte(braces.open().end())..byte(braces.close().start());
        let mut opaque = Opaque(false);
        opaque.visit_return_type(&signature.output);
        self.bodies.push(Body {
            inside,
            function: *self.functions,
            is_const: signature.constness.is_some(),
            is_opaque: opaque.0,
            mutants: Vec::new(),
        });
        *self.functions += 1;
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Whether a type contains `impl Trait`: each body of a choice would have a type of its own.
struct Opaque(bool);

impl<'ast> Visit<'ast> for Opaque {
    fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
        self.0 = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
const LIMIT: u32 = 1 + 1;
fn outer(a: u32) -> u32 {
    const fn inner(b: u32) -> u32 {
        b + 1
    }
    inner(a) * 2
}
fn all() -> impl Iterator<Item = u32> {
    (0..1 + 1).into_iter()
}
";

    fn mutant(line: usize, column: usize, replacement: &str) -> Mutant {
        Mutant {
            file: "file.rs".to_owned(),
            mutation: String::new(),
            start: Place { line, column },
            end: Place { line, column: column + 1 },
            replacement: replacement.to_owned(),
            line: String::new(),
            before: 0,
        }
    }

    fn planted(mutants: &[&Mutant]) -> String {
        let files = BTreeMap::from([("file.rs", SOURCE.to_owned())]);
        let mut field = Field::of(files, mutants).expect("Rust");
        field.planted_files(|_| true).remove(0).1
    }

    #[test]
    fn a_function_chooses_among_its_own_body_and_those_of_its_bugs() {
        let (first, second) = (mutant(6, 14, "+"), mutant(6, 14, "/"));
        let planted = planted(&[&first, &second]);
        let body = planted.split("fn outer").nth(1).expect("the function");
        let body: String = body.split_whitespace().collect();
        let inner = "constfninner(b:u32)->u32{b+1}inner(a)";
        let choice = format!(
            "(a:u32)->u32{{match::mlx5_mutant::on(0){{1=>{{{inner}+2}}2=>{{{inner}/2}}_=>{{{inner}*2}}}}}}"
        );
        assert!(body.starts_with(&choice), "{planted}");
    }

    #[test]
    fn a_function_in_another_has_its_bugs_only_where_the_other_has_none() {
        let (outer, inner) = (mutant(6, 14, "+"), mutant(4, 11, "-"));
        let planted = planted(&[&outer, &inner]);
        assert_eq!(planted.matches("b - 1").count(), 1, "{planted}");
        assert_eq!(planted.matches("::mlx5_mutant::on(1)").count(), 1, "{planted}");
        syn::parse_file(&planted).expect("Rust");
    }

    #[test]
    fn mutant_without_alternative_bodies_is_planted_alone() {
        let mutants = [mutant(1, 22, "*"), mutant(9, 10, "*"), mutant(4, 11, "-")];
        let mutants: Vec<&Mutant> = mutants.iter().collect();
        let files = BTreeMap::from([("file.rs", SOURCE.to_owned())]);
        let field = Field::of(files, &mutants).expect("Rust");
        assert_eq!(field.planted(0), Planted::Alone, "a constant");
        assert_eq!(field.planted(1), Planted::Alone, "a type of each body's own");
        assert_eq!(field.planted(2), Planted::Among { function: 1, is_const: true });
        assert!(field.file_of(0).1.starts_with("const LIMIT: u32 = 1 * 1;\nfn outer"));
    }

    #[test]
    fn line_that_does_not_compile_names_its_mutant() {
        let mutants = [mutant(6, 14, "+"), mutant(6, 14, "/"), mutant(4, 11, "-")];
        let mutants: Vec<&Mutant> = mutants.iter().collect();
        let files = BTreeMap::from([("file.rs", SOURCE.to_owned())]);
        let mut field = Field::of(files, &mutants).expect("Rust");
        let planted = field.planted_files(|_| true).remove(0).1;
        let suspects = |text: &str| {
            let line = planted.lines().position(|line| line.contains(text)).expect("a line") + 1;
            field.suspects("file.rs", line).to_vec()
        };
        assert_eq!(suspects("inner(a) / 2"), [1]);
        assert_eq!(suspects("b - 1"), [2]);
        assert_eq!(
            suspects("inner(a) * 2"),
            [0, 1],
            "all mutants of a function whose own body has the error"
        );
        assert!(suspects("const LIMIT").is_empty());
    }
}
