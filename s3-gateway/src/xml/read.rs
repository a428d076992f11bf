//! Reading documents from outside: a tree of elements and text, bounded in size, depth and count.
//!
//! There are no entities but the five predefined ones and character references; a document type is refused, so nothing expands.
//! Namespaces and attributes are passed over: S3 takes documents with and without its namespace.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::error::{S3Code, S3Error, S3Result};

// LIMIT: elements inside each other; S3's deepest document that we read has 3.
const DEPTH_MAX: usize = 16;
// LIMIT: elements of a document: 10,000 parts with up to eight elements each are the most that is asked for.
const ELEMENTS_MAX: usize = 100_000;

/// An element with its text and the elements in it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Element<'a> {
    name: &'a str,
    text: Cow<'a, str>,
    children: Vec<Element<'a>>,
}

/// Reads a whole document, whose root must be `root`.
///
/// # Errors
/// `MalformedXML` where it is not well-formed, not UTF-8, of another root, or beyond a limit.
pub(crate) fn parse<'a>(bytes: &'a [u8], root: &str) -> S3Result<Element<'a>> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("the document is not UTF-8"))?;
    let element = read(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    match element.name == root {
        true => Ok(element),
        false => Err(malformed(format!("the root element is `{}`; `{root}` is needed", clip(element.name)))),
    }
}

fn read(text: &str) -> S3Result<Element<'_>> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element<'_>> = Vec::new();
    let mut root = None;
    let mut count = 0;
    loop {
        let event =
            reader.read_event().map_err(|error| malformed(format!("the document is not well-formed: {error}")))?;
        match event {
            Event::Start(_) | Event::Empty(_) if root.is_some() => {
                return Err(malformed("there are two root elements"));
            }
            Event::Start(start) => {
                count += 1;
                if open.len() == DEPTH_MAX || count > ELEMENTS_MAX {
                    return Err(malformed("the document has too many elements"));
                }
                open.push(begin(text, &start)?);
            }
            Event::Empty(start) => {
                count += 1;
                if count > ELEMENTS_MAX {
                    return Err(malformed("the document has too many elements"));
                }
                close(begin(text, &start)?, &mut open, &mut root);
            }
            Event::End(_) => match open.pop() {
                Some(element) => close(element, &mut open, &mut root),
                None => return Err(malformed("an element ends that did not begin")),
            },
            Event::Text(piece) => add(piece.xml10_content(), &mut open)?,
            Event::CData(piece) => add(piece.xml10_content(), &mut open)?,
            Event::GeneralRef(reference) => {
                let resolved = match reference.resolve_char_ref() {
                    Ok(Some(character)) => Some(character),
                    Ok(None) => predefined(&reference),
                    Err(_) => None,
                };
                let Some(character) = resolved else {
                    return Err(malformed(format!("the entity `{}` is not known", clip(&reference))));
                };
                add(Cow::Owned(character.to_string()), &mut open)?;
            }
            Event::DocType(_) => return Err(malformed("a document type is not allowed")),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(root),
        _ => Err(malformed("the document ends too early")),
    }
}

fn begin<'a>(text: &'a str, start: &BytesStart<'_>) -> S3Result<Element<'a>> {
    if start.attributes().any(|attribute| attribute.is_err()) {
        return Err(malformed("an attribute is not well-formed"));
    }
    // The reader lends the name for as long as its event lives; the text that it stands in lives longer.
    let name = start.local_name().into_inner();
    let at = (name.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    let name = text.get(at..at.wrapping_add(name.len())).ok_or_else(|| malformed("a name is not in the document"))?;
    Ok(Element { name, ..Element::default() })
}

fn close<'a>(element: Element<'a>, open: &mut [Element<'a>], root: &mut Option<Element<'a>>) {
    match open.last_mut() {
        Some(parent) => parent.children.push(element),
        None => *root = Some(element),
    }
}

fn add<'a>(piece: Cow<'a, str>, open: &mut [Element<'a>]) -> S3Result<()> {
    match open.last_mut() {
        Some(element) if element.text.is_empty() => element.text = piece,
        Some(element) => element.text.to_mut().push_str(&piece),
        None if piece.trim().is_empty() => {}
        None => return Err(malformed("there is text outside of the root element")),
    }
    Ok(())
}

fn predefined(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

/// `MalformedXML` with what is wrong.
fn malformed(message: impl Into<Cow<'static, str>>) -> S3Error {
    S3Error::new(S3Code::MalformedXML, message)
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

impl<'a> Element<'a> {
    /// Its name, without a namespace's prefix.
    #[cfg(test)]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its text, as it stands.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The elements in it.
    #[cfg(test)]
    pub fn children(&self) -> &[Element<'a>] {
        &self.children
    }

    /// The elements of one name in it, in order.
    pub fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Element<'a>> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the only element of this name in it; `None` where there is none.
    ///
    /// # Errors
    /// `MalformedXML` where there are several, or where it holds elements.
    pub fn get<'s>(&'s self, name: &str) -> S3Result<Option<&'s str>> {
        let mut found = self.children.iter().filter(|child| child.name == name);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(only), None) if only.children.is_empty() => Ok(Some(&only.text)),
            _ => Err(malformed(format!("one element `{name}` with text is needed in `{}`", clip(self.name)))),
        }
    }

    /// As [`Element::get`], where the element must be there.
    ///
    /// # Errors
    /// `MalformedXML` where it is not.
    pub fn require<'s>(&'s self, name: &str) -> S3Result<&'s str> {
        self.get(name)?.ok_or_else(|| malformed(format!("`{}` has no element `{name}`", clip(self.name))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_text_and_references() {
        let text = "\u{feff}<?xml version='1.0'?><!-- c --><a:Delete xmlns:a='x' q='1'>\n <Object><Key>a&amp;b&#x41;&#13;<![CDATA[<c>]]></Key></Object>\
                    <Object><Key/></Object><Quiet> true </Quiet></a:Delete>\n";
        let root = parse(text.as_bytes(), "Delete").unwrap();
        let keys: Vec<&str> = root.all("Object").map(|object| object.require("Key").unwrap()).collect();
        assert_eq!(keys, ["a&bA\r<c>", ""]);
        assert_eq!(root.get("Quiet").unwrap(), Some(" true "));
        assert_eq!(root.get("Other").unwrap(), None);
        assert_eq!(root.get("Object").unwrap_err().code, S3Code::MalformedXML, "several");
        assert_eq!(root.require("Other").unwrap_err().code, S3Code::MalformedXML);
        assert_eq!((root.children.len(), root.children[2].name), (3, "Quiet"));
    }

    fn deep(depth: usize) -> String {
        format!("<R>{}{}</R>", "<a>".repeat(depth - 1), "</a>".repeat(depth - 1))
    }

    #[test]
    fn hostile_documents_are_refused() {
        let billion = "<!DOCTYPE R [<!ENTITY a \"aaaa\">]><R>&a;</R>".to_owned();
        let many = format!("<R>{}</R>", "<a/>".repeat(ELEMENTS_MAX));
        for text in [
            String::new(),
            "   ".into(),
            "text".into(),
            "<R>".into(),
            "<R></S>".into(),
            "</R>".into(),
            "<R/><R/>".into(),
            "<R/>x".into(),
            "<S/>".into(),
            "<R>&nbsp;</R>".into(),
            "<R>&#xD800;</R>".into(),
            "<R>&#0;</R>".into(),
            "<R>&</R>".into(),
            "<R a=<></R>".into(),
            "<R><![CDATA[</R>".into(),
            "<!DOCTYPE R SYSTEM 'file:///etc/passwd'><R/>".into(),
            billion,
            many,
            deep(DEPTH_MAX + 1),
        ] {
            let error = parse(text.as_bytes(), "R").expect_err(&text.chars().take(60).collect::<String>());
            assert_eq!(error.code, S3Code::MalformedXML);
        }
        assert!(parse(b"<R>\xff</R>", "R").is_err());
        assert!(parse(deep(DEPTH_MAX).as_bytes(), "R").is_ok());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(key in "\\PC{0,20}") {
            let bytes = crate::xml::document("R", |r| r.text("K", &key));
            let root = parse(&bytes, "R").unwrap();
            prop_assert_eq!(root.require("K").unwrap(), key);
        }
    }

    #[test]
    fn arbitrary_documents_are_read_or_refused() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/xml");
        let words: [&[u8]; 7] = [b"<Object>", b"</Object>", b"<Key>", b"&amp;", b"<![CDATA[", b"]]>", b"<!--"];
        ozone_fuzz::fuzz(corpus, &words, |bytes| match parse(bytes, "Delete") {
            Ok(root) => {
                assert!(depth(&root) <= DEPTH_MAX);
                format!("{} {}", root.children.len(), depth(&root))
            }
            Err(error) => error.message.chars().take(40).collect(),
        });
    }

    fn depth(element: &Element<'_>) -> usize {
        1 + element.children.iter().map(depth).max().unwrap_or(0)
    }
}
