//! Dials a broker's listener: the edge of `control::fast_detection`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use common::clock::Clock;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

use crate::control::fast_detection::{self, DIAL_INTERVAL_MS, Dial, Evidence, Next, Suspect};

/// A dial that takes longer says nothing.
const DIAL_TIMEOUT: Duration = Duration::from_millis(150);

/// Dials until it is clear; `None`: no evidence.
pub(super) async fn dial_until_clear(suspect: Suspect, clock: Arc<dyn Clock>) -> (Suspect, Option<Evidence>) {
    let mut dials = Vec::new();
    loop {
        match fast_detection::next(&dials) {
            Next::GiveUp => return (suspect, None),
            Next::Refused { first_ms, second_ms } => {
                let evidence = Evidence {
                    broker_id: suspect.broker_id,
                    broker_epoch: suspect.broker_epoch,
                    first_refused_ms: first_ms,
                    second_refused_ms: second_ms,
                };
                return (suspect, Some(evidence));
            }
            Next::Dial => {
                if !dials.is_empty() {
                    sleep(Duration::from_millis(DIAL_INTERVAL_MS)).await;
                }
                let outcome = timeout(DIAL_TIMEOUT, dial(&suspect.host, suspect.port)).await;
                dials.push((clock.monotonic_ms(), outcome.unwrap_or(Dial::NoEvidence)));
            }
        }
    }
}

/// Refused only where every address of the name refuses: a listener is often bound to one of them.
async fn dial(host: &str, port: u16) -> Dial {
    let Ok(addresses) = lookup_host((host, port)).await else { return Dial::NoEvidence };
    let mut refused = false;
    for address in addresses {
        match TcpStream::connect(address).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused = true,
            _ => return Dial::NoEvidence,
        }
    }
    if refused { Dial::Refused } else { Dial::NoEvidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::SystemClock;
    use common::ids::{BrokerEpoch, BrokerId};
    use tokio::net::TcpListener;

    fn suspect(host: &str, port: u16) -> Suspect {
        Suspect { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1), host: host.to_owned(), port }
    }

    #[tokio::test]
    async fn a_port_nobody_listens_on_is_evidence_and_an_open_one_is_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        assert_eq!(dial("127.0.0.1", port).await, Dial::NoEvidence);
        assert_eq!(dial_until_clear(suspect("127.0.0.1", port), clock.clone()).await.1, None);
        drop(listener);
        let (_, evidence) = dial_until_clear(suspect("127.0.0.1", port), clock.clone()).await;
        assert!(evidence.is_some());
        assert_eq!(dial("no-such-host.invalid", port).await, Dial::NoEvidence);
    }
}
