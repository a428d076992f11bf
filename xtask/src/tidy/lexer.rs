//! Tells code from comments and literals, so that rules about code are not misled by words in text.

/// The text with the content of comments, strings and characters replaced by spaces; lines stay where they are.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => (i..).find(|j| matches!(at(*j), '\n' | '\0')).unwrap_or(chars.len()),
            ('/', '*') => end_of_block_comment(&chars, i),
            ('"', _) => end_of_string(&chars, i),
            ('r', '"' | '#') if !(i > 0 && is_word(at(i - 1)) && at(i - 1) != 'b') => {
                match end_of_raw_string(&chars, i) {
                    Some(end) => end,
                    None => i, // a raw identifier
                }
            }
            // 'a' and '\n' are characters; 'a alone is a lifetime.
            ('\'', '\\') => 1 + (i + 3..chars.len()).find(|j| at(*j) == '\'').unwrap_or(chars.len() - 1),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        let end = end.min(chars.len());
        if end == i {
            out.push(at(i));
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// Words (identifiers, keywords) of a line of code.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let body = start + 1 + hashes;
    if chars.get(body) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| chars[*i] == '"' && chars[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((body + 1..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        for (text, expected) in [
            ("a // unsafe\nb", "a \nb"),
            ("a /* unsafe /* x */ y */ b", "a b"),
            (r#"f("unsafe \" x", b"y") g"#, "f( , b ) g"),
            (r##"r#"unsafe " x"# y r#type"##, " y r#type"),
            ("'u' '\\'' 'static x<'a>", "'static x<'a>"),
            ("\"open", ""),
            ("/* open", ""),
            ("'\\", ""),
        ] {
            let squeezed = |text: &str| text.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
            assert_eq!(squeezed(&code_only(text)), squeezed(expected), "{text}");
            assert_eq!(code_only(text).lines().count(), text.lines().count());
        }
        assert_eq!(words("use std::time::{A,b_1};").collect::<Vec<_>>(), ["use", "std", "time", "A", "b_1"]);
    }
}
