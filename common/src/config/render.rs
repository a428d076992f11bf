//! The commented default file: every setting, what it means and its default, from the doc comments of the settings' types.
//!
//! The text of the source files is the one place where settings are described; what is printed cannot fall behind it, since
//! a setting without a comment is an error here, and a test renders all of them.

use std::fmt::Write;

use serde::Serialize;
use toml::{Table, Value};

use crate::Error;

/// Where a section's type is defined.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// The section, such as `om` or `client.tuning`; empty for the whole file.
    pub section: &'a str,
    /// Name of the struct.
    pub name: &'a str,
    /// Text of the source file that defines it.
    pub source: &'a str,
}

/// A field of a struct and what its doc comment says, line by line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Field<'a> {
    name: &'a str,
    about: Vec<&'a str>,
}

/// Writes a settings file in which every setting is commented out and has its default. `definitions` names the type of the
/// whole file and of every section but those in `hidden`.
///
/// # Errors
/// `Internal`: a section has no definition, a definition is not in its source, or a setting has no comment.
pub fn render(defaults: &impl Serialize, definitions: &[Definition<'_>], hidden: &[&str]) -> Result<String, Error> {
    let defaults = Table::try_from(defaults).map_err(|error| Error::internal(format!("settings: {error}")))?;
    let mut text = String::new();
    for field in fields(definitions, "", &defaults)? {
        if hidden.contains(&field.name) {
            continue;
        }
        match defaults.get(field.name) {
            Some(Value::Table(values)) => section(&mut text, &field, field.name, values, definitions)?,
            value => setting(&mut text, &field, value),
        }
    }
    Ok(text)
}

fn section(
    text: &mut String,
    about: &Field<'_>,
    path: &str,
    values: &Table,
    definitions: &[Definition<'_>],
) -> Result<(), Error> {
    if !text.is_empty() {
        text.push('\n');
    }
    comment(text, about);
    line(text, format_args!("[{path}]"));
    let fields = fields(definitions, path, values)?;
    let (sections, settings): (Vec<_>, Vec<_>) =
        fields.iter().partition(|field| matches!(values.get(field.name), Some(Value::Table(_))));
    for field in settings {
        setting(text, field, values.get(field.name));
    }
    for field in sections {
        if let Some(Value::Table(inner)) = values.get(field.name) {
            section(text, field, &format!("{path}.{}", field.name), inner, definitions)?;
        }
    }
    Ok(())
}

fn setting(text: &mut String, field: &Field<'_>, value: Option<&Value>) {
    comment(text, field);
    match value {
        Some(value) => line(text, format_args!("#{} = {value}", field.name)),
        None => line(text, format_args!("#{} is not set", field.name)),
    }
}

fn comment(text: &mut String, field: &Field<'_>) {
    for about in &field.about {
        line(text, format_args!("{}", format!("# {about}").trim_end()));
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a String does not fail");
}

/// The documented fields of a section's type, all of `values` among them.
fn fields<'a>(definitions: &[Definition<'a>], section: &str, values: &Table) -> Result<Vec<Field<'a>>, Error> {
    let definition = definitions
        .iter()
        .find(|definition| definition.section == section)
        .ok_or_else(|| Error::internal(format!("section `{section}` has no definition")))?;
    let fields = parse(definition).ok_or_else(|| {
        Error::internal(format!("`{}` is not in the source that defines `{section}`", definition.name))
    })?;
    for key in values.keys() {
        if !fields.iter().any(|field| field.name == key && !field.about.is_empty()) {
            return Err(Error::internal(format!("setting `{key}` of `{section}` has no comment")));
        }
    }
    Ok(fields)
}

/// Public fields with their doc comments. Expects the form that rustfmt gives: a line each.
fn parse<'a>(definition: &Definition<'a>) -> Option<Vec<Field<'a>>> {
    let head = format!("pub struct {} {{", definition.name);
    let mut lines = definition.source.lines().skip_while(|line| line.trim() != head);
    lines.next()?;
    let (mut fields, mut about, mut skipped) = (Vec::new(), Vec::new(), false);
    for line in lines {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("///") {
            about.push(comment.trim());
        } else if line.starts_with("#[serde(skip)]") {
            skipped = true;
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|rest| rest.split_once(':')) {
            let field = Field { name, about: std::mem::take(&mut about) };
            if !std::mem::take(&mut skipped) {
                fields.push(field);
            }
        } else if line == "}" {
            return Some(fields);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        /// Not this one.
        pub struct Other {
            pub name: String,
        }
        pub struct Whole {
            /// Its name.
            pub name: String,
            /// The first role,
            /// in two lines.
            pub role: Role,
            /// Kept to itself.
            pub own: Own,
        }
        #[derive(Default)]
        pub struct Role {
            /// Where it listens.
            #[serde(rename = \"x\")]
            pub bind: String,
            /// Where it logs.
            pub log: Option<String>,
            /// How it is tuned.
            pub tuning: Tuning,
            /// Set elsewhere.
            #[serde(skip)]
            pub secure: bool,
        }
        pub struct Tuning {
            /// Depth.
            pub depth: u32,
        }
    ";
    const DEFINITIONS: [Definition<'_>; 3] = [
        Definition { section: "", name: "Whole", source: SOURCE },
        Definition { section: "role", name: "Role", source: SOURCE },
        Definition { section: "role.tuning", name: "Tuning", source: SOURCE },
    ];

    fn defaults() -> Table {
        "name = 'a'\n[role]\nbind = 'b:1'\n[role.tuning]\ndepth = 3\n[own]\nx = 1".parse().unwrap()
    }

    #[test]
    fn every_setting_has_its_comment_and_default() {
        let text = render(&defaults(), &DEFINITIONS, &["own"]).unwrap();
        assert_eq!(
            text,
            "# Its name.\n#name = \"a\"\n\n\
             # The first role,\n# in two lines.\n[role]\n# Where it listens.\n#bind = \"b:1\"\n# Where it logs.\n#log is not set\n\n\
             # How it is tuned.\n[role.tuning]\n# Depth.\n#depth = 3\n"
        );
        // As printed it is a valid file that changes nothing.
        let table: Table = text.parse().unwrap();
        assert_eq!(table, "[role.tuning]".parse().unwrap());
    }

    #[test]
    fn what_is_not_described_is_an_error() {
        let render = |text: &str, definitions: &[Definition<'_>]| {
            let defaults: Table = text.parse().unwrap();
            render(&defaults, definitions, &["own"]).unwrap_err().message
        };
        assert!(render("[role]", &DEFINITIONS[..1]).contains("`role` has no definition"));
        assert!(render("[role]\nport = 1", &DEFINITIONS).contains("setting `port` of `role` has no comment"));
        let nowhere = [Definition { name: "Nowhere", ..DEFINITIONS[0] }];
        assert!(render("name = 'a'", &nowhere).contains("`Nowhere` is not in the source"));
    }
}
