//! The table `limits` of a node's file.

use fermata_protocol::base::Limits;
use serde::{Deserialize, Serialize};

/// [`Limits`] that an operator may change, and those of the shell; absent fields take the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// See [`Limits::key`], bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_bytes: Option<usize>,
    /// See [`Limits::value`], bytes; at most 32 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<usize>,
    /// See [`Limits::section_keys`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_keys: Option<usize>,
    /// See [`Limits::grant`], bytes; at most 32 MiB, so that a grant fits a frame between nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_bytes: Option<usize>,
    /// See [`Limits::transaction`], bytes; at most 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_bytes: Option<usize>,
    /// See [`Limits::transaction_keys`]; at most 4,096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_keys: Option<usize>,
    /// See [`Limits::ledger_value`], bytes; at most 4 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_value_bytes: Option<usize>,
    /// See [`Limits::requests`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<usize>,
}

impl LimitsConfig {
    pub(super) fn resolve(&self) -> Result<Limits, String> {
        let default = Limits::default();
        let within = |given: Option<usize>, default: usize, max: usize, name: &str| match given {
            None => Ok(default),
            Some(n) if (1..=max).contains(&n) => Ok(n),
            Some(n) => Err(format!("limits.{name} is {n}, not 1 to {max}")),
        };
        let (key, value) = (Limits::KEY_MAX, Limits::VALUE_MAX);
        let keys = Limits::SECTION_KEYS_MAX;
        let limits = Limits {
            key: within(self.key_bytes, default.key, key, "key_bytes")?,
            value: within(self.value_bytes, default.value, value, "value_bytes")?,
            grant: within(self.grant_bytes, default.grant, 32 << 20, "grant_bytes")?,
            section_keys: within(
                self.section_keys,
                default.section_keys,
                keys,
                "section_keys",
            )?,
            requests: within(self.requests, default.requests, 1 << 20, "requests")?,
            transaction: within(
                self.transaction_bytes,
                default.transaction,
                16 << 20,
                "transaction_bytes",
            )?,
            transaction_keys: within(
                self.transaction_keys,
                default.transaction_keys,
                1 << 12,
                "transaction_keys",
            )?,
            ledger_value: within(
                self.ledger_value_bytes,
                default.ledger_value,
                4 << 20,
                "ledger_value_bytes",
            )?,
            ..default
        };
        limits.check()?;
        Ok(limits)
    }
}
