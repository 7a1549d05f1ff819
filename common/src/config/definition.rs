//! What is known of a key, and the check of a value against it.

use super::error::ConfigError;

/// The type of a value and the range that Kafka allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueType {
    Boolean,
    Short {
        min: i16,
        max: i16,
    },
    Int {
        min: i32,
        max: i32,
    },
    Long {
        min: i64,
        max: i64,
    },
    Double {
        min: f64,
        max: f64,
    },
    String,
    /// One of these words.
    OneOf(&'static [&'static str]),
    List,
    /// A list of these words only.
    ListOf(&'static [&'static str]),
    /// `partition:broker` pairs, or `*`.
    ThrottledReplicas,
    /// `[1,...,9] or -1`.
    GzipLevel,
    Class,
    Password,
}

impl ValueType {
    /// Kafka's `ConfigType` of DescribeConfigs.
    pub fn code(&self) -> i8 {
        match self {
            ValueType::Boolean => 1,
            ValueType::String | ValueType::OneOf(_) => 2,
            ValueType::Int { .. } | ValueType::GzipLevel => 3,
            ValueType::Short { .. } => 4,
            ValueType::Long { .. } => 5,
            ValueType::Double { .. } => 6,
            ValueType::List | ValueType::ListOf(_) | ValueType::ThrottledReplicas => 7,
            ValueType::Class => 8,
            ValueType::Password => 9,
        }
    }

    /// The allowed values in words.
    pub fn allowed(&self) -> String {
        match self {
            ValueType::Boolean => "true or false".to_owned(),
            ValueType::Short { min, max } => {
                int_range("a 16-bit integer", *min as i64, *max as i64, i16::MAX as i64)
            }
            ValueType::Int { min, max } => int_range("an integer", *min as i64, *max as i64, i32::MAX as i64),
            ValueType::Long { min, max } => int_range("a 64-bit integer", *min, *max, i64::MAX),
            ValueType::Double { min, max } if *max == f64::MAX => format!("a number of at least {min}"),
            ValueType::Double { min, max } => format!("a number from {min} to {max}"),
            ValueType::String | ValueType::Class | ValueType::Password => "a text".to_owned(),
            ValueType::OneOf(words) => format!("one of {}", words.join(", ")),
            ValueType::List => "a list separated by commas".to_owned(),
            ValueType::ListOf(words) => format!("a list of {}", words.join(", ")),
            ValueType::ThrottledReplicas => {
                "[partitionId]:[brokerId],[partitionId]:[brokerId],... or *".to_owned()
            }
            ValueType::GzipLevel => "an integer from 1 to 9, or -1".to_owned(),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        match self {
            ValueType::Boolean => parse_boolean(value).is_some(),
            ValueType::Short { min, max } => {
                value.parse().is_ok_and(|number: i16| (*min..=*max).contains(&number))
            }
            ValueType::Int { min, max } => {
                value.parse().is_ok_and(|number: i32| (*min..=*max).contains(&number))
            }
            ValueType::Long { min, max } => {
                value.parse().is_ok_and(|number: i64| (*min..=*max).contains(&number))
            }
            ValueType::Double { min, max } => {
                value.parse().is_ok_and(|number: f64| (*min..=*max).contains(&number))
            }
            ValueType::String | ValueType::Class | ValueType::Password | ValueType::List => true,
            ValueType::OneOf(words) => words.contains(&value),
            ValueType::ListOf(words) => split_list(value).all(|item| words.contains(&item)),
            ValueType::ThrottledReplicas => value == "*" || split_list(value).all(is_throttled_replica),
            ValueType::GzipLevel => {
                value.parse().is_ok_and(|level: i32| level == -1 || (1..=9).contains(&level))
            }
        }
    }
}

/// Who may change a value at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// Nobody: it needs a restart.
    ReadOnly,
    /// For one broker only.
    PerBroker,
    /// For one broker, or for all of them.
    ClusterWide,
}

/// A key.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigDef {
    pub name: &'static str,
    pub value_type: ValueType,
    /// `None`: no value unless one is set.
    pub default: Option<&'static str>,
    pub dynamic: Dynamic,
    pub sensitive: bool,
    /// The only value that works so far: any other valid one is refused as not yet supported.
    pub supported: Option<&'static str>,
    pub documentation: &'static str,
}

impl ConfigDef {
    pub const fn new(
        name: &'static str,
        value_type: ValueType,
        default: Option<&'static str>,
        documentation: &'static str,
    ) -> ConfigDef {
        let sensitive = matches!(value_type, ValueType::Password);
        let dynamic = Dynamic::ReadOnly;
        ConfigDef { name, value_type, default, dynamic, sensitive, supported: None, documentation }
    }

    pub const fn per_broker(mut self) -> ConfigDef {
        self.dynamic = Dynamic::PerBroker;
        self
    }

    pub const fn cluster_wide(mut self) -> ConfigDef {
        self.dynamic = Dynamic::ClusterWide;
        self
    }

    pub const fn only(mut self, supported: &'static str) -> ConfigDef {
        self.supported = Some(supported);
        self
    }

    pub const fn sensitive(mut self) -> ConfigDef {
        self.sensitive = true;
        self
    }

    /// Checks a value as Kafka does, and refuses what is not there yet.
    pub fn validate(&self, value: &str) -> Result<(), ConfigError> {
        let value = trimmed(self.value_type, value);
        if !self.value_type.accepts(value) {
            return Err(self.invalid(value));
        }
        match self.supported {
            Some(supported) if !self.same_value(value, supported) => Err(ConfigError::NotSupported {
                key: self.name.to_owned(),
                value: self.shown(value),
                supported: supported.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn invalid(&self, value: &str) -> ConfigError {
        let allowed = format!("allowed is {}", self.value_type.allowed());
        ConfigError::Invalid { key: self.name.to_owned(), value: self.shown(value), allowed }
    }

    fn shown(&self, value: &str) -> String {
        if self.sensitive { "[hidden]".to_owned() } else { value.to_owned() }
    }

    fn same_value(&self, left: &str, right: &str) -> bool {
        match self.value_type {
            ValueType::Boolean => parse_boolean(left) == parse_boolean(right),
            _ => left == right,
        }
    }
}

/// Kafka trims every value but a password's before it reads it.
pub(crate) fn trimmed(value_type: ValueType, value: &str) -> &str {
    if matches!(value_type, ValueType::Password) { value } else { value.trim() }
}

pub(crate) fn parse_boolean(value: &str) -> Option<bool> {
    if value.eq_ignore_ascii_case("true") {
        Some(true)
    } else if value.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// The items of a list; an empty text is an empty list.
pub fn split_list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn is_throttled_replica(pair: &str) -> bool {
    pair.split_once(':')
        .is_some_and(|(partition, broker)| partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok())
}

fn int_range(kind: &str, min: i64, max: i64, type_max: i64) -> String {
    if max == type_max { format!("{kind} of at least {min}") } else { format!("{kind} from {min} to {max}") }
}

/// Short forms for the tables of keys.
pub(crate) mod types {
    use super::ValueType;

    pub const ANY_INT: ValueType = int_from(i32::MIN);
    pub const ANY_LONG: ValueType = long_from(i64::MIN);
    pub const POSITIVE_INT: ValueType = int_from(1);
    pub const NATURAL_INT: ValueType = int_from(0);
    pub const POSITIVE_LONG: ValueType = long_from(1);
    pub const NATURAL_LONG: ValueType = long_from(0);
    pub const POSITIVE_SHORT: ValueType = ValueType::Short { min: 1, max: i16::MAX };
    pub const RATIO: ValueType = ValueType::Double { min: 0.0, max: 1.0 };
    pub const COMPRESSION_TYPE: ValueType =
        ValueType::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
    pub const CLEANUP_POLICY: ValueType = ValueType::ListOf(&["compact", "delete"]);
    pub const TIMESTAMP_TYPE: ValueType = ValueType::OneOf(&["CreateTime", "LogAppendTime"]);

    pub const fn int_from(min: i32) -> ValueType {
        ValueType::Int { min, max: i32::MAX }
    }

    pub const fn int_range(min: i32, max: i32) -> ValueType {
        ValueType::Int { min, max }
    }

    pub const fn long_from(min: i64) -> ValueType {
        ValueType::Long { min, max: i64::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_refused_with_the_reason() {
        let def = ConfigDef::new("create.topic.policy.class.name", ValueType::Class, None, "").only("");
        assert_eq!(
            def.validate("com.example.Policy").unwrap_err().to_string(),
            "Invalid value com.example.Policy for configuration create.topic.policy.class.name: classes cannot \
             be loaded here; leave the key out"
        );
    }

    #[test]
    fn values_are_checked_by_type_and_range() {
        let cases: &[(ValueType, &[&str], &[&str])] = &[
            (ValueType::Boolean, &["true", "FALSE", " true "], &["", "yes", "1"]),
            (types::POSITIVE_INT, &["1", "2147483647"], &["0", "-1", "2147483648", "1.5", ""]),
            (types::long_from(-1), &["-1", "9223372036854775807"], &["-2", "9223372036854775808"]),
            (types::RATIO, &["0", "0.5", "1"], &["1.01", "-0.1", "NaN", "half"]),
            (types::CLEANUP_POLICY, &["delete", "compact, delete", ""], &["remove", "delete,remove"]),
            (types::TIMESTAMP_TYPE, &["CreateTime"], &["createtime"]),
            (ValueType::GzipLevel, &["-1", "1", "9"], &["0", "10"]),
            (ValueType::ThrottledReplicas, &["", "*", "0:1,1:2"], &["0", "a:b", "0:1:2", "-1:2"]),
        ];
        for (value_type, good, bad) in cases {
            let def = ConfigDef::new("key", *value_type, None, "");
            for value in *good {
                assert_eq!(def.validate(value), Ok(()), "{value_type:?} {value}");
            }
            for value in *bad {
                assert!(def.validate(value).is_err(), "{value_type:?} {value}");
            }
        }
    }

    #[test]
    fn an_error_names_key_value_and_range() {
        let def = ConfigDef::new("num.partitions", types::POSITIVE_INT, Some("1"), "");
        assert_eq!(
            def.validate("0").unwrap_err().to_string(),
            "Invalid value 0 for configuration num.partitions: allowed is an integer of at least 1"
        );
        let def =
            ConfigDef::new("remote.storage.enable", ValueType::Boolean, Some("false"), "").only("false");
        assert_eq!(
            def.validate("True").unwrap_err().to_string(),
            "Invalid value True for configuration remote.storage.enable: not yet supported, allowed is false"
        );
        assert_eq!(def.validate("FALSE"), Ok(()));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let def = ConfigDef::new("secret.level", types::POSITIVE_INT, None, "").sensitive();
        assert!(!def.validate("hunter2").unwrap_err().to_string().contains("hunter2"));
    }
}
