//! Scalars as clients send them: numbers as text, and nothing as "".

use serde_json::Value;

/// A number, the text of one, or nothing.
///
/// # Errors
/// Neither.
pub(super) fn number(given: &Value) -> Result<Option<u64>, ()> {
    match given {
        Value::Null => Ok(None),
        Value::Number(number) => number.as_u64().map(Some).ok_or(()),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => text.trim().parse().map(Some).map_err(|_| ()),
        _ => Err(()),
    }
}
