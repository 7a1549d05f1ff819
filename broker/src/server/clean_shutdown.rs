//! Which registration ended with a clean shutdown (KIP-966): a broker that cannot name it may have lost
//! what it acknowledged, and the controller takes it out of ISR and ELR.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use common::ids::BrokerEpoch;
use tracing::warn;

const FILE_NAME: &str = "clean-shutdown.epoch";

/// What the last run left, once: from here on this run may crash.
pub fn take(directory: &Path) -> io::Result<Option<BrokerEpoch>> {
    let path = directory.join(FILE_NAME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    fs::remove_file(&path)?;
    File::open(directory)?.sync_all()?;
    let epoch = text.trim().parse().ok().map(BrokerEpoch);
    if epoch.is_none() {
        warn!(path = %path.display(), "not an epoch, the last shutdown counts as unclean");
    }
    Ok(epoch)
}

/// The logs are closed and everything is on disk.
pub fn leave(directory: &Path, epoch: BrokerEpoch) -> io::Result<()> {
    let mut file = File::create(directory.join(FILE_NAME))?;
    writeln!(file, "{epoch}")?;
    file.sync_all()?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_left_and_taken_once() {
        let directory = tempfile::tempdir().expect("directory");
        assert_eq!(take(directory.path()).expect("readable"), None);
        leave(directory.path(), BrokerEpoch(42)).expect("written");
        assert_eq!(take(directory.path()).expect("readable"), Some(BrokerEpoch(42)));
        assert_eq!(take(directory.path()).expect("readable"), None);
        fs::write(directory.path().join(FILE_NAME), "nonsense").expect("written");
        assert_eq!(take(directory.path()).expect("readable"), None);
    }
}
