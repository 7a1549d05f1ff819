//! Typed values out of a properties file.

use super::definition::{ConfigDef, parse_boolean, split_list, trimmed};
use super::error::{ConfigError, Warning, nearest_key};
use super::known_keys::KNOWN_UNUSED;
use super::properties::Properties;

pub(super) struct Reader<'a> {
    defs: &'static [ConfigDef],
    properties: &'a Properties,
}

impl<'a> Reader<'a> {
    /// Checks every value of the file. `other` are the keys of the other daemon, which one file may
    /// hold as well.
    pub(super) fn new(
        defs: &'static [ConfigDef],
        other: &'static [ConfigDef],
        properties: &'a Properties,
    ) -> Result<(Reader<'a>, Vec<Warning>), ConfigError> {
        let mut warnings = Vec::new();
        for (key, value) in properties.iter() {
            if let Some(def) = find(defs, key) {
                def.validate(value)?;
            } else if find(other, key).is_none() && !is_known_unused(key) {
                let known = defs.iter().map(|def| def.name).chain(KNOWN_UNUSED.iter().copied());
                warnings.push(Warning::UnknownKey { key: key.to_owned(), nearest: nearest_key(key, known) });
            }
        }
        Ok((Reader { defs, properties }, warnings))
    }

    fn def(&self, key: &str) -> Result<&'static ConfigDef, ConfigError> {
        find(self.defs, key).ok_or_else(|| ConfigError::Unknown { key: key.to_owned(), nearest: None })
    }

    pub(super) fn is_set(&self, key: &str) -> bool {
        self.properties.get(key).is_some()
    }

    /// The value set, else the default; `None` where neither is.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        let def = self.def(key)?;
        Ok(self.properties.get(key).map(|value| trimmed(def.value_type, value)).or(def.default))
    }

    /// As `optional_text`, an empty text being none.
    pub(super) fn non_empty_text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        Ok(self.optional_text(key)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, ConfigError> {
        let missing = |allowed| ConfigError::Missing { key: key.to_owned(), allowed };
        self.optional_text(key)?.ok_or_else(|| {
            missing(format!(
                "it must be {}",
                self.def(key).map(|d| d.value_type.allowed()).unwrap_or_default()
            ))
        })
    }

    pub(super) fn optional_number<N: std::str::FromStr>(&self, key: &str) -> Result<Option<N>, ConfigError> {
        let def = self.def(key)?;
        self.optional_text(key)?.map(|text| text.parse().map_err(|_| def.invalid(text))).transpose()
    }

    pub(super) fn number<N: std::str::FromStr>(&self, key: &str) -> Result<N, ConfigError> {
        let def = self.def(key)?;
        let text = self.text(key)?;
        text.parse().map_err(|_| def.invalid(text))
    }

    pub(super) fn boolean(&self, key: &str) -> Result<bool, ConfigError> {
        let def = self.def(key)?;
        let text = self.text(key)?;
        parse_boolean(text).ok_or_else(|| def.invalid(text))
    }

    pub(super) fn list(&self, key: &str) -> Result<Vec<&'a str>, ConfigError> {
        Ok(self.optional_text(key)?.map(|text| split_list(text).collect()).unwrap_or_default())
    }
}

pub(super) fn find(defs: &'static [ConfigDef], key: &str) -> Option<&'static ConfigDef> {
    defs.iter().find(|def| def.name == key)
}

/// Kafka's keys without a use here; keys of one listener (`listener.name.NAME.KEY`) among them.
fn is_known_unused(key: &str) -> bool {
    KNOWN_UNUSED.binary_search(&key).is_ok() || key.starts_with("listener.name.")
}
