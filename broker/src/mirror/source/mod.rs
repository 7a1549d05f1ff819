//! A Kafka client of a mirror's source cluster. What the source answers is untrusted, and "could not
//! ask" is never an answer (invariant 7).

pub mod asker;
pub mod client;
pub mod lineage;
pub mod metadata;
pub mod position;
pub mod settings;

pub use asker::{Asker, Question, QuestionKind};
pub use client::{SourceClient, SourceIdentity};
pub use metadata::{SourceMetadata, SourcePartition, SourceTopic};
pub use settings::SourceSettings;
