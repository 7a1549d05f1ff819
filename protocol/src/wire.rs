//! Kafka's primitive types over bytes, for the messages that we define ourselves, and the macro that
//! writes such a message down as a list of fields.
//!
//! Everything that is read is bounded by the bytes at hand before anything is allocated.

mod field;
mod reader;
mod writer;

pub(crate) use field::{Field, Structure};
pub(crate) use reader::Reader;
pub(crate) use writer::Writer;

/// Tagged fields that one structure may carry, known and unknown ones together.
pub(crate) const MAX_TAGS: u32 = 256;

/// A structure as its schema lists it: fields in wire order, each from a version on where that is not
/// the first, and with its default where that is not zero, empty or null; then the tagged fields, which
/// are written where they differ from their default.
macro_rules! structure {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty $([since $since:literal])? $(= $default:expr)?, )*
        }
        $(tagged {
            $( $(#[$tag_meta:meta])* $tag:literal => $tagged:ident: $tagged_type:ty $(= $tagged_default:expr)?, )*
        })?
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
            $($( $(#[$tag_meta])* pub $tagged: $tagged_type, )*)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $( $field: $crate::wire::structure!(@default $($default)?), )*
                    $($( $tagged: $crate::wire::structure!(@default $($tagged_default)?), )*)?
                }
            }
        }

        impl $crate::wire::Structure for $name {}

        impl $crate::wire::Field for $name {
            const MIN_BYTES: usize =
                0 $( + $crate::wire::structure!(@min_bytes $type, $($since)?) )*;

            // A message without fields reads nothing.
            #[allow(unused_variables, unused_mut)]
            fn read(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::error::DecodeError> {
                let mut read = Self::default();
                $(
                    if $crate::wire::structure!(@present reader, $($since)?) {
                        read.$field = $crate::wire::Field::read(reader)?;
                    }
                )*
                reader.tags(|tag, content| {
                    match tag {
                        $($( $tag => read.$tagged = $crate::wire::Field::read(content)?, )*)?
                        _ => return Ok(false),
                    }
                    // Without tagged fields every tag is an unknown one.
                    #[allow(unreachable_code)]
                    Ok(true)
                })?;
                Ok(read)
            }

            // Nor does it write any.
            #[allow(unused_variables, unused_mut)]
            fn write(
                &self,
                writer: &mut $crate::wire::Writer<'_>,
            ) -> Result<(), $crate::error::EncodeError> {
                $(
                    if $crate::wire::structure!(@present writer, $($since)?) {
                        $crate::wire::Field::write(&self.$field, writer)?;
                    }
                )*
                if writer.flexible {
                    let defaults = Self::default();
                    let mut count = 0;
                    $($( count += u32::from(self.$tagged != defaults.$tagged); )*)?
                    writer.unsigned_varint(count);
                    $($(
                        if self.$tagged != defaults.$tagged {
                            writer.tag($tag, |content| $crate::wire::Field::write(&self.$tagged, content))?;
                        }
                    )*)?
                }
                Ok(())
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@present $at:ident,) => { true };
    (@present $at:ident, $since:literal) => { $at.version >= $since };
    (@min_bytes $type:ty,) => { <$type as $crate::wire::Field>::MIN_BYTES };
    // Not there in older versions.
    (@min_bytes $type:ty, $since:literal) => { 0 };
}
pub(crate) use structure;

/// Kafka-protocol's way to fill a message in a chain of calls.
macro_rules! setters {
    ($($name:ident { $($setter:ident, $field:ident: $type:ty;)* })*) => {$(
        impl $name {
            $(
                pub fn $setter(mut self, value: $type) -> Self {
                    self.$field = value;
                    self
                }
            )*
        }
    )*};
}
pub(crate) use setters;
