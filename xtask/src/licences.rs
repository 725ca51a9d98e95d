//! The always-on licence check: every package that we build with must be under one of the licences of `deny.toml`.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{Result, tools};

/// Checks every package of the dependency graph; returns how many, or the list of those that are not allowed.
pub fn check() -> Result<usize> {
    let allowed = allowed(&fs::read_to_string(tools::root()?.join("deny.toml"))?)?;
    let metadata = tools::quiet(&mut tools::cargo(["metadata", "--format-version", "1", "--locked"])?)?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let mut bad = Vec::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        if !satisfied(text("license"), &allowed) {
            bad.push(format!("{} {}: {:?}", text("name"), text("version"), text("license")));
        }
    }
    if bad.is_empty() {
        Ok(packages.len())
    } else {
        Err(format!("licences not allowed:\n  {}", bad.join("\n  ")).into())
    }
}

/// The list `allow` of the section `[licenses]`.
fn allowed(toml: &str) -> Result<BTreeSet<String>> {
    let section = toml.split("\n[licenses]").nth(1).ok_or("deny.toml has no section [licenses]")?;
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next());
    let list = list.ok_or("deny.toml has no list of allowed licences")?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether an SPDX expression can be met with the allowed licences alone. What cannot be read is not met.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_ascii_whitespace().collect();
    let mut at = 0;
    let met = any_of(&words, &mut at, allowed);
    met == Some(true) && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = all_of(words, at, allowed)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(words, at, allowed)?;
    }
    Some(met)
}

fn all_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = one(words, at, allowed)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed)?;
    }
    Some(met)
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> Option<bool> {
    let word = *words.get(*at)?;
    *at += 1;
    if word == "(" {
        let met = any_of(words, at, allowed)?;
        (words.get(*at) == Some(&")")).then_some(())?;
        *at += 1;
        return Some(met);
    }
    if matches!(word, ")" | "AND" | "OR" | "WITH") {
        return None;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1)?;
        *at += 2;
        return Some(allowed.contains(&format!("{word} WITH {exception}")));
    }
    Some(allowed.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        let allowed: BTreeSet<String> =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Zlib"].map(str::to_owned).into();
        for met in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/GPL-3.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Zlib",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(satisfied(met, &allowed), "{met}");
        }
        for unmet in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT WITH X",
            "MIT Zlib",
            "OR MIT",
            "mit",
        ] {
            assert!(!satisfied(unmet, &allowed), "{unmet}");
        }
    }

    #[test]
    fn the_list_is_read_from_the_policy() {
        let list = allowed(&fs::read_to_string(tools::root().unwrap().join("deny.toml")).unwrap()).unwrap();
        assert!(list.contains("MIT") && list.contains("Apache-2.0 WITH LLVM-exception"));
        assert!(!list.iter().any(|l| l.contains("GPL") || l.contains('\n')));
    }
}
