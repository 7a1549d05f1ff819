//! Java's properties format, as far as Kafka's files use it: comments, three separators, escapes,
//! lines continued with a backslash. The last of equal keys wins.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum PropertiesError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("line {line}: \\u needs four hexadecimal digits")]
    Unicode { line: usize },
    #[error("{0:?} is not of the form KEY=VALUE")]
    Override(String),
}

/// Keys and values, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    values: BTreeMap<String, String>,
}

impl Properties {
    pub fn new() -> Properties {
        Properties::default()
    }

    pub fn load(path: &Path) -> Result<Properties, PropertiesError> {
        let text = fs::read_to_string(path)
            .map_err(|source| PropertiesError::Read { path: path.to_owned(), source })?;
        Properties::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Properties, PropertiesError> {
        let mut properties = Properties::new();
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let mut logical = line.to_owned();
            while ends_with_open_backslash(&logical) {
                logical.pop();
                match lines.next() {
                    Some((_, next)) => logical.push_str(next.trim_start()),
                    None => break,
                }
            }
            let (key, value) = split_key(&logical);
            let unescape = |part| unescape(part).ok_or(PropertiesError::Unicode { line: number + 1 });
            properties.values.insert(unescape(key)?, unescape(value)?);
        }
        Ok(properties)
    }

    /// Takes a `KEY=VALUE` of the command line.
    pub fn set_override(&mut self, key_value: &str) -> Result<(), PropertiesError> {
        match key_value.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                self.set(key.trim(), value);
                Ok(())
            }
            _ => Err(PropertiesError::Override(key_value.to_owned())),
        }
    }

    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.values.insert(key.into(), value.into());
    }

    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.values.remove(key)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Properties {
        Properties { values: pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }
}

/// An even number of backslashes at the end are escaped backslashes.
fn ends_with_open_backslash(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The key ends at the first `=`, `:` or white space that is not escaped.
fn split_key(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .find(|letter: char| {
            let ends = !escaped && (letter == '=' || letter == ':' || letter.is_ascii_whitespace());
            escaped = !escaped && letter == '\\';
            ends
        })
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start())
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    // UTF-16 halves of one character stand in two escapes.
    let mut units: Vec<u16> = Vec::new();
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        if escaped == Some('u') {
            let digits: String = letters.by_ref().take(4).collect();
            if digits.len() != 4 {
                return None;
            }
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            units.push(u16::from_str_radix(&digits, 16).ok()?);
            continue;
        }
        flush_units(&mut units, &mut plain);
        match (letter, escaped) {
            ('\\', Some('t')) => plain.push('\t'),
            ('\\', Some('n')) => plain.push('\n'),
            ('\\', Some('r')) => plain.push('\r'),
            ('\\', Some('f')) => plain.push('\u{c}'),
            ('\\', Some(other)) => plain.push(other),
            ('\\', None) => {}
            (letter, _) => plain.push(letter),
        }
    }
    flush_units(&mut units, &mut plain);
    Some(plain)
}

fn flush_units(units: &mut Vec<u16>, plain: &mut String) {
    if !units.is_empty() {
        plain.push_str(&String::from_utf16_lossy(units));
        units.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_java_reads_them() {
        let text = "# comment\n! too\n\n  a=1\nb : two words \nc three\n=empty key\nempty\nd==x\n\
                    long=first,\\\n   second,\\\n   third\npath=C:\\\\logs\ne\\=f=g\n\
                    euro=\\u20AC \\ud83d\\ude00\ntabs=\\ta\\n\na=2\r\nlast=end\\";
        let properties = Properties::parse(text).unwrap();
        let expected = [
            ("", "empty key"),
            ("a", "2"),
            ("b", "two words "),
            ("c", "three"),
            ("d", "=x"),
            ("e=f", "g"),
            ("empty", ""),
            ("euro", "\u{20ac} \u{1f600}"),
            ("last", "end"),
            ("long", "first,second,third"),
            ("path", "C:\\logs"),
            ("tabs", "\ta\n"),
        ];
        assert_eq!(properties.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_broken_escape_names_its_line() {
        let error = Properties::parse("a=1\nb=\\u12").unwrap_err();
        assert!(matches!(error, PropertiesError::Unicode { line: 2 }));
        assert!(Properties::parse("b=\\u12x4").is_err());
        assert!(Properties::parse("b=\\u+123").is_err());
    }

    #[test]
    fn overrides_win_and_keep_equals_signs() {
        let mut properties = Properties::parse("a=1").unwrap();
        properties.set_override("a=x=y").unwrap();
        properties.set_override("empty=").unwrap();
        assert_eq!(properties.get("a"), Some("x=y"));
        assert_eq!(properties.get("empty"), Some(""));
        assert!(properties.set_override("novalue").is_err());
        assert!(properties.set_override("=x").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[\\x00-\\x7f\\\\u=: \n]{0,60}") {
            let _ = Properties::parse(&text);
        }
    }
}
