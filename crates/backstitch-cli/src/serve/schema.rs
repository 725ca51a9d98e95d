//! The table of methods as JSON Schema. Portable: no unions of types, no formats.

use serde_json::{Map, Value, json};

use super::method::{Form, Meaning, Method, Methods, Param};

/// What a parameter may hold. An integer that may be left out is an integer: leaving it out says the rest.
pub fn of_param(p: &Param) -> Value {
    let mut m = Map::new();
    let kind = match p.form {
        Form::Flag => "boolean",
        Form::Number => "integer",
        Form::Text => "string",
        Form::List => "array",
    };
    m.insert("type".to_owned(), kind.into());
    m.insert("description".to_owned(), p.help.clone().into());
    if p.form == Form::Number {
        m.insert("minimum".to_owned(), 0.into());
    }
    if p.form == Form::List {
        m.insert("items".to_owned(), json!({"type": "string"}));
    }
    if !p.words.is_empty() {
        m.insert("enum".to_owned(), p.words.clone().into());
    }
    if let Some(d) = &p.default {
        let number = d.parse::<u64>().ok().filter(|_| p.form == Form::Number);
        m.insert("default".to_owned(), number.map_or_else(|| d.clone().into(), Value::from));
    }
    Value::Object(m)
}

/// The parameters of a method as one object.
pub fn of_params<'a>(params: impl Iterator<Item = &'a Param> + Clone) -> Value {
    let properties: Map<String, Value> = params.clone().map(|p| (p.name.clone(), of_param(p))).collect();
    let required: Vec<&str> = params.filter(|p| p.required).map(|p| p.name.as_str()).collect();
    let mut m = Map::new();
    m.insert("type".to_owned(), "object".into());
    m.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        m.insert("required".to_owned(), required.into());
    }
    m.insert("additionalProperties".to_owned(), false.into());
    Value::Object(m)
}

fn method(m: &Method) -> Value {
    let params: Vec<Value> = m
        .params
        .iter()
        .map(|p| json!({"name": p.name, "required": p.required, "schema": of_param(p)}))
        .collect();
    json!({
        "name": m.name,
        "description": m.about,
        "paramStructure": "by-name",
        "params": params,
        "result": {"name": "result", "schema": {"type": "object"}},
    })
}

/// All methods, in the form of OpenRPC.
pub fn document(methods: &Methods) -> Value {
    json!({
        "openrpc": "1.3.2",
        "info": {"title": "backstitch", "version": env!("CARGO_PKG_VERSION")},
        "methods": methods.values().map(method).collect::<Vec<_>>(),
    })
}

/// What a parameter is called in prose.
pub fn words(p: &Param) -> String {
    let form = match (p.form, p.meaning) {
        (Form::Flag, _) => "boolean",
        (Form::Number, _) => "integer",
        (Form::Text, Meaning::Absolute) => "absolute path",
        (Form::Text, Meaning::Path) => "path",
        (Form::Text, Meaning::Plain) => "text",
        (Form::List, Meaning::Path) => "list of paths",
        (Form::List, _) => "list of texts",
    };
    match p.required {
        true => format!("{form}, required"),
        false => form.to_owned(),
    }
}
