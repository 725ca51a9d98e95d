//! Values of settings: their forms, and reading and showing them.

use serde::Serialize;

use super::keys::{Form, Key};
use crate::error::{Code, Error, Result};

const MIB: u64 = 1 << 20;

/// A value in its checked form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Bool.
    Bool(bool),
    /// Bytes, counts, seconds.
    Int(u64),
    /// Choice.
    Word(String),
    /// List.
    List(Vec<String>),
}

/// `32MiB`, `1.5 GB`, `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let t = text.trim();
    let end = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (number, unit) = (t[..end].parse::<f64>().ok()?, t[end..].trim());
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "kb" => 1000,
        "m" | "mib" => MIB,
        "mb" => 1_000_000,
        "g" | "gib" => 1 << 30,
        "gb" => 1_000_000_000,
        "t" | "tib" => 1 << 40,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    let n = number * factor as f64;
    (n.is_finite() && (0.0..9e18).contains(&n)).then_some(n as u64)
}

/// `1.2 MiB`.
pub fn show_bytes(n: u64) -> String {
    let mut v = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if v < 1024.0 || unit == "TiB" {
            return if unit == "B" { format!("{n} B") } else { format!("{v:.1} {unit}") };
        }
        v /= 1024.0;
    }
    format!("{n} B")
}

pub(super) fn check(k: &Key, v: &toml::Value) -> Result<Value> {
    let bad = || {
        let want = match k.form {
            Form::Bool => "true or false".to_owned(),
            Form::Bytes => "a size such as \"32MiB\"".to_owned(),
            Form::Int | Form::Seconds => "a whole number".to_owned(),
            Form::Count => "a whole number of at least 1".to_owned(),
            Form::Choice(words) => format!("one of {}", words.join(", ")),
            Form::List => "a list of texts".to_owned(),
        };
        Error::new(Code::BadSetting, format!("{} takes {want}, not {v}", k.name))
    };
    let int = |v: &toml::Value| v.as_integer().and_then(|n| u64::try_from(n).ok());
    match k.form {
        Form::Bool => v.as_bool().map(Value::Bool),
        Form::Bytes => int(v).or_else(|| v.as_str().and_then(parse_bytes)).map(Value::Int),
        Form::Int | Form::Seconds => int(v).map(Value::Int),
        Form::Count => int(v).filter(|n| *n > 0).map(Value::Int),
        Form::Choice(words) => v.as_str().filter(|w| words.contains(w)).map(|w| Value::Word(w.to_owned())),
        Form::List => v
            .as_array()
            .and_then(|a| a.iter().map(|x| x.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>())
            .map(Value::List),
    }
    .ok_or_else(bad)
}

/// Reads a value as typed on the command line.
pub fn parse_value(k: &Key, text: &str) -> Result<(Value, toml::Value)> {
    let raw = match k.form {
        Form::Bytes | Form::Choice(_) => toml::Value::String(text.to_owned()),
        Form::List => match format!("v = {text}").parse::<toml::Table>() {
            Ok(mut t) if text.trim_start().starts_with('[') => {
                t.remove("v").unwrap_or_else(|| toml::Value::Array(Vec::new()))
            }
            _ => toml::Value::Array(
                text.split(',')
                    .filter(|s| !s.is_empty())
                    .map(|s| toml::Value::String(s.trim().to_owned()))
                    .collect(),
            ),
        },
        _ => format!("v = {text}")
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut t| t.remove("v"))
            .unwrap_or_else(|| toml::Value::String(text.to_owned())),
    };
    Ok((check(k, &raw)?, raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("32MiB"), Some(32 << 20));
        assert_eq!(parse_bytes("1.5 k"), Some(1536));
        assert_eq!(parse_bytes("2GB"), Some(2_000_000_000));
        assert_eq!(parse_bytes("x"), None);
        assert_eq!(parse_bytes("5 parsecs"), None);
        assert_eq!(show_bytes(1536), "1.5 KiB");
    }
}
