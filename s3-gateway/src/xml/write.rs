//! Writing documents. Elements are closed by construction; text is escaped.

use std::fmt::{self, Write as _};

use bytes::Bytes;

/// What every document begins with.
pub(crate) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Writes elements into a document.
pub(crate) struct Writer {
    text: String,
}

/// A document of S3's namespace whose root element is `root`, filled by `fill`.
pub(crate) fn document(root: &'static str, fill: impl FnOnce(&mut Writer)) -> Bytes {
    write(root, Some(NAMESPACE), fill)
}

/// A document without a namespace: errors have none.
pub(crate) fn plain_document(root: &'static str, fill: impl FnOnce(&mut Writer)) -> Bytes {
    write(root, None, fill)
}

fn write(root: &'static str, namespace: Option<&str>, fill: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer { text: String::with_capacity(512) };
    writer.text.push_str(DECLARATION);
    writer.text.push('<');
    writer.text.push_str(root);
    if let Some(namespace) = namespace {
        writer.raw(&[" xmlns=\"", namespace, "\""]);
    }
    writer.text.push('>');
    fill(&mut writer);
    writer.close(root);
    writer.text.into()
}

impl Writer {
    fn raw(&mut self, pieces: &[&str]) {
        for piece in pieces {
            self.text.push_str(piece);
        }
    }

    fn open(&mut self, name: &'static str) {
        self.raw(&["<", name, ">"]);
    }

    fn close(&mut self, name: &'static str) {
        self.raw(&["</", name, ">"]);
    }

    /// An element with elements in it.
    pub fn element(&mut self, name: &'static str, fill: impl FnOnce(&mut Self)) {
        self.open(name);
        fill(self);
        self.close(name);
    }

    /// The text of the element that is being filled.
    pub fn content(&mut self, text: &str) {
        self.escape(text);
    }

    /// An element that holds text.
    pub fn text(&mut self, name: &'static str, text: &str) {
        self.open(name);
        self.escape(text);
        self.close(name);
    }

    /// An element that holds bytes which should be UTF-8; where they are not, U+FFFD stands for what cannot be told.
    pub fn bytes(&mut self, name: &'static str, bytes: &[u8]) {
        self.text(name, &String::from_utf8_lossy(bytes));
    }

    /// An element that holds a number, a truth value, or anything else whose text needs no escape.
    pub fn value(&mut self, name: &'static str, value: impl fmt::Display) {
        self.open(name);
        write!(self.text, "{value}").expect("writing to a String does not fail");
        self.close(name);
    }

    /// An element with an attribute `xsi:type`, as grantees in ACLs have.
    pub fn typed(&mut self, name: &'static str, kind: &'static str, fill: impl FnOnce(&mut Self)) {
        self.raw(&["<", name, " xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"", kind, "\">"]);
        fill(self);
        self.close(name);
    }

    /// Control characters become references: XML 1.0 has no way to hold most of them, and a reader that stops is better than one
    /// that sees another name. Clients that have such keys ask for `encoding-type=url`.
    fn escape(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(needs_escape) {
            self.text.push_str(&rest[..at]);
            match rest.as_bytes()[at] {
                b'<' => self.text.push_str("&lt;"),
                b'>' => self.text.push_str("&gt;"),
                b'&' => self.text.push_str("&amp;"),
                b'"' => self.text.push_str("&quot;"),
                control => write!(self.text, "&#x{control:x};").expect("writing to a String does not fail"),
            }
            rest = &rest[at + 1..];
        }
        self.text.push_str(rest);
    }
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'&' | b'"') || byte < 0x20 && !matches!(byte, b'\n' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_close_and_text_is_escaped() {
        let bytes = document("R", |r| {
            r.element("A", |a| {
                a.text("T", "a<b>&\"c\r\n\u{1}é");
                a.value("N", 5);
            });
            r.bytes("B", b"x\xff");
        });
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<R xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><A>\
             <T>a&lt;b&gt;&amp;&quot;c&#xd;\n&#x1;é</T><N>5</N></A><B>x\u{fffd}</B></R>"
        );
        assert!(plain_document("E", |_| {}).ends_with(b"<E></E>"));
    }
}
