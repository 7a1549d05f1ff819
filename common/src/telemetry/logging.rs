//! Logs go to standard error; `RUST_LOG` says which.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    /// One object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(format!("{other:?} is not a log format, allowed are text and json")),
        }
    }
}

/// Everything of ours from INFO on; of libraries only what is wrong, for what they do is shown by the
/// lines of ours. The consensus warns of each message that a lost voter does not answer, twenty times a
/// second; ours say once that it is silent.
const DEFAULT_FILTER: &str = "info,openraft=error,sled=warn,h2=warn,hyper=warn,tonic=warn,tower=warn";

/// Starts logging. A second call in one process changes nothing.
pub fn init_logging(format: LogFormat) {
    let asked = std::env::var("RUST_LOG").ok().filter(|asked| !asked.trim().is_empty());
    let (filter, problem) = match asked.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(DEFAULT_FILTER), Some(error)),
        None => (EnvFilter::new(DEFAULT_FILTER), None),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let first = match format {
        LogFormat::Text => builder.with_ansi(false).try_init().is_ok(),
        LogFormat::Json => builder.json().flatten_event(true).try_init().is_ok(),
    };
    if let (true, Some(problem)) = (first, problem) {
        tracing::warn!("RUST_LOG is not understood and ignored: {problem}");
    }
}
