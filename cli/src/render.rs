//! What commands print: tables and lines for people, JSON for programs.
//!
//! Names are shown with control characters escaped, so that no key writes on the terminal; JSON has them as they are. A name
//! that is not UTF-8 is shown with replacement characters, and JSON carries its bytes in hexadecimal beside it.

use std::borrow::Cow;
use std::io::{self, Write};

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table, presets};
use ozone_common::time::Utc;
use serde::Serialize;

/// Stdout of a command, and the flag that says what goes there.
#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// Stdout of a command that has nothing for programs.
pub const PEOPLE: Output = Output { json: false };

/// How a column of a table is set.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// Words: to the left.
    Text(&'static str),
    /// Numbers: to the right.
    Number(&'static str),
}

impl Output {
    /// One line for people; nothing for programs.
    pub fn line(self, text: impl std::fmt::Display) -> io::Result<()> {
        if self.json { Ok(()) } else { writeln!(io::stdout(), "{text}") }
    }

    /// JSON for programs; `people` for people.
    pub fn show<T: Serialize>(self, value: &T, people: impl FnOnce() -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
            writeln!(out)
        } else {
            let text = people();
            out.write_all(text.as_bytes())?;
            if text.is_empty() || text.ends_with('\n') { Ok(()) } else { writeln!(out) }
        }
    }
}

/// A JSON array that is written item by item.
#[derive(Debug, Default)]
pub struct JsonList {
    begun: bool,
}

impl JsonList {
    /// Opens it.
    pub fn begin(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"[")
    }

    /// Adds an item.
    pub fn item(&mut self, out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
        out.write_all(if self.begun { b",\n  " } else { b"\n  " })?;
        self.begun = true;
        serde_json::to_writer(out, value).map_err(io::Error::from)
    }

    /// Closes it.
    pub fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(if self.begun { b"\n]\n" } else { b"]\n" })
    }
}

/// A table with one line of headings, or only these where there are no rows.
pub fn table(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let aligned = |column: &Column, text: String| match column {
        Column::Text(_) => Cell::new(text),
        Column::Number(_) => Cell::new(text).set_alignment(CellAlignment::Right),
    };
    table.set_header(columns.iter().map(|column| match column {
        Column::Text(name) | Column::Number(name) => aligned(column, (*name).to_owned()),
    }));
    for row in rows {
        debug_assert_eq!(row.len(), columns.len());
        table.add_row(columns.iter().zip(row).map(|(column, text)| aligned(column, text)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    trimmed(&table)
}

/// Names and values below each other.
pub fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().collect();
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        text.push_str(format!("{name:width$}  {value}").trim_end());
        text.push('\n');
    }
    text
}

fn trimmed(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A name for people: text with control characters escaped.
pub fn name(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.chars().any(needs_escape) {
        return text.into_owned();
    }
    text.chars().map(|c| if needs_escape(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Controls, and marks that change the direction of what follows.
fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name for programs, and its bytes in hexadecimal where it is not UTF-8.
pub fn json_name(bytes: &[u8]) -> (Cow<'_, str>, Option<String>) {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => (Cow::Borrowed(text), None),
        lossy => (lossy, Some(hex::encode(bytes))),
    }
}

/// A time for people and programs; `-` where there is none.
pub fn time(ms: u64) -> String {
    if ms == 0 { "-".into() } else { Utc::from_ms(ms).to_string() }
}

/// Bytes for people: three digits and a unit, the exact number where it is small.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_pairs() {
        let rows = [vec!["a".into(), "1".into()], vec!["longer".into(), "200".into()]];
        assert_eq!(
            table(&[Column::Text("NAME"), Column::Number("SIZE")], rows),
            "NAME    SIZE\na          1\nlonger   200\n"
        );
        assert_eq!(table(&[Column::Text("NAME")], []), "NAME\n");
        assert_eq!(pairs([("a", "1".to_owned()), ("long", String::new())]), "a     1\nlong\n");
    }

    #[test]
    fn lists_are_json_at_every_length() {
        for count in 0..3 {
            let (mut out, mut list) = (Vec::new(), JsonList::default());
            list.begin(&mut out).unwrap();
            for i in 0..count {
                list.item(&mut out, &i).unwrap();
            }
            list.end(&mut out).unwrap();
            let parsed: Vec<u32> = serde_json::from_slice(&out).unwrap();
            assert_eq!(parsed, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn names_do_not_write_on_the_terminal() {
        assert_eq!(name("a/é b".as_bytes()), "a/é b");
        assert_eq!(name(b"a\x1b[31m\n\xff"), "a\\u{1b}[31m\\n\u{fffd}");
        assert_eq!(name("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(json_name(b"a\n"), ("a\n".into(), None));
        assert_eq!(json_name(b"a\xff"), ("a\u{fffd}".into(), Some("61ff".into())));
    }

    #[test]
    fn sizes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 << 10, "10.0 KiB"),
            (100 << 10, "100 KiB"),
            (1023 << 10, "1.00 MiB"),
            (5 << 30, "5.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!((time(0), time(1)), ("-".into(), "1970-01-01T00:00:00.001Z".into()));
    }
}
