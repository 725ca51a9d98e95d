//! The listing of all messages, read from the sources: what is said, where, and what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::TokenStream;
use syn::{
    Expr, ExprCall, ExprMacro, ExprMethodCall, Lit, LitStr,
    visit::{self, Visit},
};

use crate::support::World;

/// Crates whose messages reach a person, in the order of the page.
const CRATES: &[&str] = &["backstitch-cli", "backstitch", "backstitch-agents"];

/// Codes whose general advice fits no message of them exactly: each error says its own.
const OWN_ADVICE: &[&str] = &["failed", "usage"];

/// What `Error::fault` advises.
const FAULT: &str = "this is a fault of backstitch: please report it";

/// One `Error::new` with what is said of it at once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    message: String,
    path: bool,
    list: bool,
    hint: Option<String>,
    file: String,
}

/// What a visit of one file found.
#[derive(Default)]
struct Found {
    file: String,
    /// Methods around the present expression, outermost first.
    chain: Vec<(String, Option<String>)>,
    /// By variant of `Code`.
    errors: BTreeMap<String, BTreeSet<Said>>,
    warnings: BTreeSet<String>,
    notes: BTreeSet<String>,
}

/// A literal, or the form that is filled in. `None`: somebody else's words.
fn text(e: &Expr) -> Option<String> {
    match e {
        Expr::Lit(l) => match &l.lit {
            Lit::Str(s) => Some(s.value()),
            _ => None,
        },
        Expr::Macro(m) => form(m),
        Expr::Reference(r) => text(&r.expr),
        Expr::Paren(p) => text(&p.expr),
        Expr::MethodCall(m) if m.method == "to_owned" || m.method == "into" => text(&m.receiver),
        Expr::Block(b) => b.block.stmts.last().and_then(|s| match s {
            syn::Stmt::Expr(e, None) => text(e),
            _ => None,
        }),
        _ => None,
    }
}

/// The form of a `format!`, with empty braces for what has no name.
fn form(m: &ExprMacro) -> Option<String> {
    if !m.mac.path.is_ident("format") {
        return None;
    }
    let first = m.mac.parse_body_with(|input: syn::parse::ParseStream<'_>| {
        let s: LitStr = input.parse()?;
        let _: TokenStream = input.parse()?;
        Ok(s.value())
    });
    let mut out = String::new();
    let form = first.ok()?.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut rest = form.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}')?;
        let name = inside.split(':').next().unwrap_or("");
        let named = !name.is_empty() && name.len() > 1 && !name.starts_with(|c: char| c.is_ascii_digit());
        let _ = write!(out, "{before}{}", if named { format!("{{{name}}}") } else { "{…}".to_owned() });
        rest = after;
    }
    out.push_str(rest);
    Some(out.replace('\u{1}', "{").replace('\u{2}', "}"))
}

/// `X` of `Code::X`.
fn code(e: &Expr) -> Option<String> {
    let Expr::Path(p) = e else { return None };
    let mut names = p.path.segments.iter().rev().map(|s| s.ident.to_string());
    let variant = names.next()?;
    (names.next()? == "Code").then_some(variant)
}

impl<'a> Visit<'a> for Found {
    fn visit_item_mod(&mut self, m: &'a syn::ItemMod) {
        // Tests say nothing to people.
        if m.ident != "tests" {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_expr_method_call(&mut self, m: &'a ExprMethodCall) {
        let name = m.method.to_string();
        let said = m.args.first().and_then(text);
        let receiver = quoted(&m.receiver);
        match (name.as_str(), &said) {
            ("warn", Some(s)) => drop(self.warnings.insert(s.clone())),
            ("push", Some(s)) if receiver.ends_with("warnings") => drop(self.warnings.insert(s.clone())),
            ("note" | "for_good", Some(s)) => drop(self.notes.insert(s.clone())),
            _ => {}
        }
        self.chain.push((name, said));
        self.visit_expr(&m.receiver);
        self.chain.pop();
        let around = std::mem::take(&mut self.chain);
        m.args.iter().for_each(|a| self.visit_expr(a));
        self.chain = around;
    }

    fn visit_expr_call(&mut self, c: &'a ExprCall) {
        let chain = std::mem::take(&mut self.chain);
        let name = quoted(&c.func);
        let (variant, message) = match name.rsplit_once("Error::").map(|(_, n)| n) {
            Some("new") => (c.args.first().and_then(code), c.args.get(1)),
            Some("fault") => (Some("Failed".to_owned()), c.args.first()),
            _ => (None, None),
        };
        if let Some(variant) = variant {
            let has = |names: &[&str]| chain.iter().any(|(n, _)| names.contains(&n.as_str()));
            let hint = chain.iter().find(|(n, _)| n == "hint");
            let fault = name.ends_with("fault").then(|| FAULT.to_owned());
            let message = message.and_then(text);
            self.errors.entry(variant).or_default().insert(Said {
                message: message.unwrap_or_else(|| "(in the words of what failed)".to_owned()),
                path: has(&["at", "at_bytes"]),
                list: has(&["list"]),
                hint: hint
                    .map(|(_, h)| h.clone().unwrap_or_else(|| "(made for the case)".to_owned()))
                    .or(fault),
                file: self.file.clone(),
            });
        }
        visit::visit_expr_call(self, c);
        self.chain = chain;
    }
}

/// The names of a path or of fields, without blanks.
fn quoted(e: &Expr) -> String {
    match e {
        Expr::Path(p) => p.path.segments.iter().map(|s| s.ident.to_string()).collect::<Vec<_>>().join("::"),
        Expr::Field(f) => match &f.member {
            syn::Member::Named(n) => format!("{}.{n}", quoted(&f.base)),
            syn::Member::Unnamed(_) => String::new(),
        },
        _ => String::new(),
    }
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    for path in all {
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs")
            && path.file_name().is_some_and(|n| n != "tests.rs")
        {
            out.push(path);
        }
    }
}

fn found() -> Found {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut found = Found::default();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        for path in files {
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
            found.file = path.strip_prefix(&crates).unwrap().to_string_lossy().replace("/src/", "/");
            found.visit_file(&file);
        }
    }
    found
}

/// `NoSuchPath` as `no-such-path`.
fn stable(variant: &str) -> String {
    let mut out = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Code, exit code, general advice: as the reference page of commands has them.
fn codes(w: &World) -> Vec<(String, String, String)> {
    let page = w.text(&["reference", "commands"]);
    let rows = page.lines().skip_while(|l| *l != "| code | exit code | what to do |").skip(2);
    rows.map_while(|l| {
        let mut cells = l.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        let code = cells.next()?.trim_end_matches('`').to_owned();
        Some((code, cells.next()?.to_owned(), cells.collect::<Vec<_>>().join(" | ")))
    })
    .collect()
}

/// What each code means: the first paragraph of its documentation.
fn meanings() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backstitch/src/error.rs");
    let file = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
    let codes = file.items.into_iter().find_map(|i| match i {
        syn::Item::Enum(e) if e.ident == "Code" => Some(e),
        _ => None,
    });
    let doc = |v: &syn::Variant| {
        v.attrs
            .iter()
            .filter_map(|a| match &a.meta {
                syn::Meta::NameValue(n) if n.path.is_ident("doc") => text(&n.value),
                _ => None,
            })
            .collect::<String>()
    };
    let codes = codes.unwrap();
    codes.variants.iter().map(|v| (stable(&v.ident.to_string()), doc(v).trim().to_owned())).collect()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('\n', " ").trim().to_owned()
}

fn page(w: &World, found: &Found) -> String {
    let mut out = String::from(
        "# Messages\n\n<!-- Made from the sources by the test `pages_messages`, with BACKSTITCH_UPDATE=1; it fails when this is out of date. -->\n\n\
         Everything that is said to a person when something is not as wanted, side by side. `{name}` and `{…}` are filled in. *Where* says\n\
         that the error names a path (`path` in JSON) or a `list`. *What to do* in italics is what holds for every error of the code\n\
         (`hint` in JSON, the line `hint:` on a terminal). Reading and writing that fails is `io`, with the path and the system's words, or\n\
         `over-budget` where the disk or a quota is full; a store that is locked is `busy`, one that cannot be read `store-damaged`.\n",
    );
    let meanings = meanings();
    for (code, exit, advice) in codes(w) {
        let _ =
            write!(out, "\n## `{code}` (exit code {exit})\n\n{}\n\n*{}*\n", meanings[&code], cell(&advice));
        let said = found.errors.iter().find(|(v, _)| stable(v) == code).map(|(_, s)| s);
        let Some(said) = said else { continue };
        out.push_str("\n| what | where | what to do |\n|---|---|---|\n");
        let mut rows = BTreeSet::new();
        for s in said {
            let place = match (s.path, s.list) {
                (true, true) => "path, list",
                (true, false) => "path",
                (false, true) => "list",
                (false, false) => "",
            };
            let hint = s.hint.as_ref().map_or_else(|| format!("*{}*", cell(&advice)), |h| cell(h));
            rows.insert(format!("| {} | {place} | {hint} |\n", cell(&s.message)));
        }
        out.extend(rows);
    }
    for (title, list) in [("Warnings", &found.warnings), ("Notes and hints", &found.notes)] {
        let _ = write!(out, "\n## {title}\n\n");
        for line in list {
            let _ = writeln!(out, "- {}", cell(line));
        }
    }
    out
}

#[test]
fn all_messages_are_in_one_listing() {
    let (w, found) = (World::new(), found());
    let page = page(&w, &found);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/messages.md");
    if std::env::var_os("BACKSTITCH_UPDATE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        stored == page,
        "run this test with BACKSTITCH_UPDATE=1, and read what changed in {}",
        file.display()
    );
}

#[test]
fn every_error_says_what_where_and_what_to_do() {
    let (w, found) = (World::new(), found());
    let codes = codes(&w);
    let count: usize = found.errors.values().map(BTreeSet::len).sum();
    assert!(count > 150 && codes.len() > 25, "{count} errors of {} codes were found", codes.len());
    let mut bad = Vec::new();
    for (variant, said) in &found.errors {
        let code = stable(variant);
        let (.., advice) = codes.iter().find(|(c, ..)| *c == code).unwrap_or_else(|| panic!("{code}"));
        for s in said {
            let name = format!("{}: {code}: {}", s.file, s.message);
            let own = s.hint.as_deref().is_some_and(|h| !h.trim().is_empty());
            // A watcher has nobody to tell it to.
            let own = own || s.file.starts_with("backstitch/watch/");
            if !own && (advice.is_empty() || OWN_ADVICE.contains(&code.as_str())) {
                bad.push(format!("{name}: without advice of its own (.hint)"));
            }
            // What the system refused is somewhere.
            if code == "io" && !s.path && !own {
                bad.push(format!("{name}: without a path (.at)"));
            }
            if s.message.is_empty() || s.message.ends_with('.') || s.message.starts_with("error") {
                bad.push(format!("{name}: a message is a sentence without its full stop"));
            }
            if s.hint.as_deref().is_some_and(|h| h.ends_with('.')) {
                bad.push(format!("{name}: a hint is a sentence without its full stop"));
            }
        }
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}
