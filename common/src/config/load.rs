//! Reading settings: defaults, then the file, then the environment, then flags.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// What stands before the environment variables that are settings.
const ENV_PREFIX: &str = "OZONE__";

/// Why settings could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the settings in `{}`: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is written there is not valid.
    #[error("{origin}: {message}")]
    Invalid {
        /// The file and line, the environment variable, or the flag.
        origin: String,
        /// What is wrong and what would be right.
        message: String,
    },
}

/// Where settings come from; later ones win.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not start with `OZONE__` are passed over.
    pub env: Vec<(String, String)>,
    /// `section.key` and value, as given by flags.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// A file, and this process's environment.
    pub fn of_process(file: Option<PathBuf>) -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        Self { file, env, flags: Vec::new() }
    }
}

/// Reads settings. What no source names keeps the value that `T`'s `serde(default)` gives it.
///
/// # Errors
/// A file that cannot be read; a value of the wrong type; a name that is not known (the nearest known one is named).
pub fn load<T: DeserializeOwned>(sources: &Sources) -> Result<T, ConfigError> {
    let mut table = match &sources.file {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            parse::<T>(path, &text)?;
            text.parse::<Table>().map_err(|error| invalid_in_file(path, &text, &error))?
        }
        None => Table::new(),
    };
    for (name, value) in &sources.env {
        if let Some(key) = name.strip_prefix(ENV_PREFIX) {
            let key = key.split("__").map(str::to_ascii_lowercase).collect::<Vec<_>>();
            table = set::<T>(table, &key, value, &format!("environment variable {name}"))?;
        }
    }
    for (name, value) in &sources.flags {
        let key = name.split('.').map(str::to_owned).collect::<Vec<_>>();
        table = set::<T>(table, &key, value, &format!("flag for `{name}`"))?;
    }
    T::deserialize(table)
        .map_err(|error| ConfigError::Invalid { origin: "settings".into(), message: explain(error.message()) })
}

/// Reads the text of a settings file; `path` is for messages only.
///
/// # Errors
/// As [`load`], with the line.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| invalid_in_file(path, text, &error))
}

fn invalid_in_file(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let origin = match error.span() {
        Some(span) => {
            let line = 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
            format!("`{}` line {line}", path.display())
        }
        None => format!("`{}`", path.display()),
    };
    ConfigError::Invalid { origin, message: explain(error.message()) }
}

/// Puts one value in. The text is taken as a TOML value where the setting wants one (`true`, `3`, `["a"]`), else as a string.
fn set<T: DeserializeOwned>(table: Table, key: &[String], text: &str, origin: &str) -> Result<Table, ConfigError> {
    let fail = |message: String| ConfigError::Invalid { origin: origin.into(), message };
    let put = |value: Value| -> Result<Table, ConfigError> {
        let (last, sections) = key.split_last().expect("splitting text gives at least one part");
        let mut table = table.clone();
        let mut place = &mut table;
        for section in sections {
            place = place
                .entry(section.clone())
                .or_insert_with(|| Value::Table(Table::new()))
                .as_table_mut()
                .ok_or_else(|| fail(format!("`{section}` is a value, not a section")))?;
        }
        place.insert(last.clone(), value);
        Ok(table)
    };
    let as_text = put(Value::String(text.to_owned()))?;
    let text_error = match T::deserialize(as_text.clone()) {
        Ok(_) => return Ok(as_text),
        Err(error) => error,
    };
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    match parsed {
        None | Some(Value::String(_)) => Err(fail(explain(text_error.message()))),
        Some(value) => {
            let table = put(value)?;
            T::deserialize(table.clone()).map_err(|error| fail(explain(error.message())))?;
            Ok(table)
        }
    }
}

/// Adds the nearest known name to serde's message about an unknown one.
fn explain(message: &str) -> String {
    let message = message.trim();
    let Some((unknown, known)) = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) else {
        return message.to_owned();
    };
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    match known.iter().min_by_key(|name| distance(unknown, name)) {
        Some(nearest) if distance(unknown, nearest) <= nearest.len().max(unknown.len()) / 2 => {
            format!("`{unknown}` is not a known setting; did you mean `{nearest}`?")
        }
        Some(_) => format!("`{unknown}` is not a known setting; known here: {}", known.join(", ")),
        None => format!("`{unknown}` is not a known setting; there are none here"),
    }
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(from != *to)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::config::{ByteSize, TimeSpan};

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Whole {
        om: Section,
        name: String,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Section {
        bind: String,
        cache: ByteSize,
        timeout: TimeSpan,
        peers: Vec<String>,
        enabled: bool,
    }
    impl Default for Section {
        fn default() -> Self {
            let (cache, timeout) = (ByteSize::mib(64), TimeSpan::secs(30));
            Self { bind: "127.0.0.1:0".into(), cache, timeout, peers: Vec::new(), enabled: false }
        }
    }

    fn check(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Whole, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ozone.toml");
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), file.as_bytes()).unwrap();
        let own = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        load(&Sources { file: Some(path), env: own(env), flags: own(flags) })
            .map_err(|error| error.to_string().replace(folder.path().to_str().unwrap(), ""))
    }

    #[test]
    fn later_sources_win_and_the_rest_keeps_its_default() {
        let whole = check(
            "name = 'file'\n[om]\ncache = '1MiB'\ntimeout = 5\nbind = 'file'",
            &[("OZONE__OM__CACHE", "2MiB"), ("OZONE__OM__BIND", "env"), ("OZONE__NAME", "17"), ("PATH", "x")],
            &[("om.bind", "flag"), ("om.peers", r#"["a", "b"]"#), ("om.enabled", "true")],
        )
        .unwrap();
        let om = Section {
            bind: "flag".into(),
            cache: ByteSize::mib(2),
            timeout: TimeSpan::secs(5),
            peers: vec!["a".into(), "b".into()],
            enabled: true,
        };
        assert_eq!(whole, Whole { om, name: "17".into() });
        assert_eq!(load::<Whole>(&Sources::default()).unwrap(), Whole::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (file, env, flag, expected) in [
            ("[om]\nbnd = 'x'", None, None, "`/ozone.toml` line 2: `bnd` is not a known setting; did you mean `bind`?"),
            ("[om]\nzzzzzzzz = 'x'", None, None, "known here: bind, cache, timeout, peers, enabled"),
            ("\n\n[om]\ncache = 'much'", None, None, "line 4: `much` is no size: a whole number of bytes"),
            ("[om]\ncache = -1", None, None, "`-1` is no size"),
            ("[om", None, None, "`/ozone.toml` line 1"),
            (
                "",
                Some(("OZONE__OM__TIMOUT", "1s")),
                None,
                "variable OZONE__OM__TIMOUT: `timout` is not a known setting; did you mean `timeout`?",
            ),
            (
                "",
                Some(("OZONE__OM__ENABLED", "perhaps")),
                None,
                "OZONE__OM__ENABLED: invalid type: string \"perhaps\", expected a boolean",
            ),
            ("", Some(("OZONE__NAME__X", "1")), None, "expected a string"),
            ("name = 'x'", Some(("OZONE__NAME__X", "1")), None, "`name` is a value, not a section"),
            ("", None, Some(("om.cache", "1MB")), "flag for `om.cache`: `1MB` is no size"),
        ] {
            let error = check(file, env.as_slice(), flag.as_slice()).unwrap_err();
            assert!(error.contains(expected), "{file:?} {env:?} {flag:?}: {error}");
        }
        let absent = load::<Whole>(&Sources { file: Some("/nowhere/ozone.toml".into()), ..Sources::default() });
        assert!(absent.unwrap_err().to_string().contains("cannot read the settings in `/nowhere/ozone.toml`"));
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in [("", "", 0), ("", "abc", 3), ("bind", "bnd", 1), ("kitten", "sitting", 3)] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits));
        }
    }
}
