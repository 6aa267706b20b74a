//! What a caller is shown of an answer: not what it may not see, although it may ask.

use super::{Access, Who, rights};
use fermata_access::Right;
use fermata_api::Names;
use fermata_protocol::Reply;
use fermata_protocol::request::{EntryValue, RefState};
use std::fmt;
use std::sync::Arc;

/// What is left out of the answers to one request, by what its caller may do when it is answered:
/// a wait may be long.
pub(crate) struct View {
    pub(super) access: Arc<Access>,
    pub(super) who: Who,
    pub(super) names: Arc<Names>,
    /// Places in a heartbeat that were not asked for: whoever asks may not hold these refs.
    pub(super) denied: Vec<usize>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = (&self.who, &self.denied);
        f.debug_tuple("View").field(&shown).finish()
    }
}

impl View {
    /// The answer as it is shown.
    pub(crate) fn show(&self, reply: Reply) -> Reply {
        let grants = match self.access.grants(&self.who, &self.access.judged()) {
            Ok(Some(grants)) => grants,
            // Nobody is judged any more.
            Ok(None) => self.access.everything.clone(),
            Err(_) => Arc::default(),
        };
        match reply {
            Reply::Entered { mut keys, lease } => {
                for entered in &mut keys {
                    if !rights::may(&grants, &self.names, Right::Read, &entered.held.key) {
                        entered.value = EntryValue::Omitted;
                    }
                }
                Reply::Entered { keys, lease }
            }
            Reply::Keyspaces(mut all) => {
                all.retain(|keyspace| grants.knows(&keyspace.name));
                Reply::Keyspaces(all)
            }
            Reply::Renewed { states } => Reply::Renewed {
                states: spliced(&self.denied, states),
            },
            other => other,
        }
    }
}

/// The states with `Denied` at these places, in increasing order.
pub(super) fn spliced(denied: &[usize], mut states: Vec<RefState>) -> Vec<RefState> {
    for at in denied {
        states.insert((*at).min(states.len()), RefState::Denied);
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_is_denied_at_its_place() {
        let asked = vec![RefState::Queued { ahead: 1 }, RefState::Unknown];
        let all = spliced(&[0, 2, 4], asked);
        let denied = [true, false, true, false, true];
        let is_denied: Vec<bool> = all.iter().map(|s| *s == RefState::Denied).collect();
        assert_eq!(is_denied, denied);
        assert_eq!(
            spliced(&[0, 1], vec![]),
            [RefState::Denied, RefState::Denied]
        );
    }
}
