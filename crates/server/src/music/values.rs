//! Typed values: what a column takes, how it is kept, and how it is shown.
//!
//! A value is kept as the JSON that is shown for it, in one spelling per value (`"007"` for an
//! `int` is kept as `7`), so that two spellings of a key are one key. A value that does not convert
//! is refused by name: the original stored null and said SUCCESS. A column that was never set is
//! shown as null, an unset map as `{}`, an unset list or set as `[]`; the original showed 0 and
//! false.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;
use std::fmt;

/// How deep collections may be nested: what a column holds is for people and small programs.
const DEPTH_MAX: usize = 8;

/// A column's type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum Type {
    /// `ascii`, `text`, `varchar`, and types that are kept as they are written: `date`, `time`,
    /// `inet`, `duration`.
    Text(String),
    /// `tinyint`, `smallint`, `int`, `bigint`, `varint`: its name and its bits, 0 for unbounded.
    Integer(String, u32),
    /// `float`, `double`.
    Real(String),
    /// `decimal`, as digits.
    Decimal,
    /// `boolean`.
    Boolean,
    /// `uuid`, `timeuuid`.
    Uuid(String),
    /// `timestamp`: milliseconds since 1970, or text as it was written.
    Timestamp,
    /// `blob`, as base64.
    Blob,
    /// `map<k, v>`.
    Map(Box<Type>, Box<Type>),
    /// `list<t>`.
    List(Box<Type>),
    /// `set<t>`.
    Set(Box<Type>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Text(name) | Type::Integer(name, _) | Type::Real(name) | Type::Uuid(name) => {
                f.write_str(name)
            }
            Type::Decimal => f.write_str("decimal"),
            Type::Boolean => f.write_str("boolean"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Blob => f.write_str("blob"),
            Type::Map(key, value) => write!(f, "map<{key}, {value}>"),
            Type::List(item) => write!(f, "list<{item}>"),
            Type::Set(item) => write!(f, "set<{item}>"),
        }
    }
}

impl From<Type> for String {
    fn from(value: Type) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for Type {
    type Error = String;

    fn try_from(text: String) -> Result<Type, String> {
        Type::parse(&text)
    }
}

impl Type {
    /// The type that a CQL name means.
    pub(super) fn parse(text: &str) -> Result<Type, String> {
        parse(&text.to_ascii_lowercase(), 0).ok_or_else(|| format!("Unknown type {text}"))
    }

    /// Whether a key may have it.
    pub(super) fn is_scalar(&self) -> bool {
        !matches!(self, Type::Map(..) | Type::List(_) | Type::Set(_))
    }

    /// The value as it is kept; none for null.
    ///
    /// # Errors
    /// It is no value of this type: why.
    pub(super) fn convert(&self, given: &Value) -> Result<Option<Value>, String> {
        if given.is_null() {
            return Ok(None);
        }
        let wrong = || {
            let mut shown = given.to_string();
            if shown.len() > 64 {
                let cut = (0..=64).rev().find(|at| shown.is_char_boundary(*at));
                shown.truncate(cut.unwrap_or(0));
                shown.push_str("...");
            }
            format!("{shown} is not a value of type {self}")
        };
        let converted = match self {
            Type::Text(name) if takes_any(name) => Some(Value::String(shown(given))),
            Type::Text(_) => text(given).map(Value::String),
            Type::Integer(_, bits) => integer(given, *bits),
            Type::Real(_) => real(given),
            Type::Decimal => decimal(given),
            Type::Boolean => boolean(given),
            Type::Uuid(_) => uuid(given),
            Type::Timestamp => integer(given, 64).or_else(|| given.as_str().map(Value::from)),
            Type::Blob => blob(given),
            Type::Map(key, value) => return map(key, value, given).ok_or_else(wrong),
            Type::List(item) => list(item, given),
            Type::Set(item) => list(item, given).map(sorted),
        };
        converted.map(Some).ok_or_else(wrong)
    }

    /// What is shown where nothing was set.
    pub(super) fn unset(&self) -> Value {
        match self {
            Type::Map(..) => Value::Object(Map::new()),
            Type::List(_) | Type::Set(_) => Value::Array(vec![]),
            _ => Value::Null,
        }
    }
}

fn parse(name: &str, depth: usize) -> Option<Type> {
    let name = name.trim();
    if let Some((outer, rest)) = name.split_once('<') {
        let inner = rest.strip_suffix('>')?;
        if depth == DEPTH_MAX {
            return None;
        }
        let inner_type = |text: &str| parse(text, depth + 1).map(Box::new);
        return match outer.trim() {
            "frozen" => parse(inner, depth + 1),
            "list" => inner_type(inner).map(Type::List),
            "set" => inner_type(inner).map(Type::Set),
            "map" => {
                let (key, value) = split_pair(inner)?;
                let key = inner_type(key)?;
                let value = inner_type(value)?;
                key.is_scalar().then_some(Type::Map(key, value))
            }
            _ => None,
        };
    }
    Some(match name {
        "ascii" | "text" | "varchar" | "date" | "time" | "inet" | "duration" => {
            Type::Text(name.into())
        }
        "tinyint" => Type::Integer(name.into(), 8),
        "smallint" => Type::Integer(name.into(), 16),
        "int" => Type::Integer(name.into(), 32),
        "bigint" => Type::Integer(name.into(), 64),
        "varint" => Type::Integer(name.into(), 0),
        "float" | "double" => Type::Real(name.into()),
        "decimal" => Type::Decimal,
        "boolean" => Type::Boolean,
        "uuid" | "timeuuid" => Type::Uuid(name.into()),
        "timestamp" => Type::Timestamp,
        "blob" => Type::Blob,
        // A map without its types is one of text, which the original's clients also send.
        "map" => Type::Map(
            Box::new(Type::Text("text".into())),
            Box::new(Type::Text("text".into())),
        ),
        "list" => Type::List(Box::new(Type::Text("text".into()))),
        _ => return None,
    })
}

/// Splits at the comma that is in no bracket.
fn split_pair(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// Whether a type of text takes objects and lists too, as their JSON: clients of the original send
/// `{}` to text columns. It kept what Java prints for them, which is the same only of empty ones.
fn takes_any(name: &str) -> bool {
    ["ascii", "text", "varchar"].contains(&name)
}

/// Text, or a scalar's spelling.
fn text(given: &Value) -> Option<String> {
    match given {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(given.to_string()),
        _ => None,
    }
}

/// A number, or the text of one.
fn integer(given: &Value, bits: u32) -> Option<Value> {
    let digits = match given {
        // 3.0 is 3 to clients whose numbers are all real.
        Value::Number(number) if number.is_f64() => {
            let real = number.as_f64()?;
            (real.fract() == 0.0 && real.abs() < 9e15).then(|| format!("{real:.0}"))?
        }
        Value::Number(_) | Value::String(_) => text(given)?.trim().to_owned(),
        _ => return None,
    };
    if let Ok(small) = digits.parse::<i64>() {
        let fits = match bits {
            0 | 64 => true,
            bits => (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&small),
        };
        return fits.then(|| Value::from(small));
    }
    let (sign, rest) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let all_digits = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    // Beyond 64 bits, a JSON number would be rounded by most readers.
    (bits == 0 && all_digits)
        .then(|| Value::String(format!("{sign}{}", rest.trim_start_matches('0'))))
}

fn real(given: &Value) -> Option<Value> {
    let number = match given {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    // NaN and infinities have no JSON.
    Number::from_f64(number?).map(Value::Number)
}

fn decimal(given: &Value) -> Option<Value> {
    let digits = match given {
        Value::Number(_) | Value::String(_) => text(given)?.trim().to_owned(),
        _ => return None,
    };
    digits.parse::<f64>().ok()?.is_finite().then_some(())?;
    Some(Value::String(digits))
}

fn boolean(given: &Value) -> Option<Value> {
    match given {
        Value::Bool(_) => Some(given.clone()),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            _ => None,
        },
        _ => None,
    }
}

fn uuid(given: &Value) -> Option<Value> {
    let text = given.as_str()?.trim().to_ascii_lowercase();
    let parts: Vec<&str> = text.split('-').collect();
    let lengths = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]);
    let hex = |part: &&str| part.bytes().all(|b| b.is_ascii_hexdigit());
    (lengths && parts.iter().all(hex)).then(|| Value::String(text.clone()))
}

fn blob(given: &Value) -> Option<Value> {
    let text = given.as_str()?.trim();
    let bytes = STANDARD.decode(text).ok()?;
    Some(Value::String(STANDARD.encode(bytes)))
}

fn map(key: &Type, value: &Type, given: &Value) -> Option<Option<Value>> {
    let mut kept = Map::new();
    for (name, item) in given.as_object()? {
        let name = key.convert(&Value::String(name.clone())).ok()??;
        let item = value.convert(item).ok()??;
        kept.insert(text(&name)?, item);
    }
    Some(Some(Value::Object(kept)))
}

fn list(item: &Type, given: &Value) -> Option<Value> {
    let items = given.as_array()?.iter();
    let items: Option<Vec<Value>> = items.map(|i| item.convert(i).ok().flatten()).collect();
    items.map(Value::Array)
}

fn sorted(list: Value) -> Value {
    match list {
        Value::Array(mut items) => {
            items.sort_by(compare);
            items.dedup();
            Value::Array(items)
        }
        other => other,
    }
}

/// The order of two values of one column.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => {
                let real = |n: &Number| n.as_f64().unwrap_or(0.0);
                real(a).total_cmp(&real(b))
            }
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        // Kinds are mixed only where a varint or a timestamp is.
        (Value::Number(_), _) => Ordering::Less,
        (_, Value::Number(_)) => Ordering::Greater,
        _ => a.to_string().cmp(&b.to_string()),
    }
}

/// Any value as text: its own, or its JSON.
pub(super) fn shown(value: &Value) -> String {
    text(value).unwrap_or_else(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_one_spelling_or_are_refused() {
        let same = [
            ("int", json!("007"), json!(7)),
            ("int", json!(7.0), json!(7)),
            ("bigint", json!("-9223372036854775808"), json!(i64::MIN)),
            (
                "varint",
                json!("18446744073709551616"),
                json!("18446744073709551616"),
            ),
            ("text", json!(5), json!("5")),
            ("text", json!(true), json!("true")),
            ("text", json!({}), json!("{}")),
            ("varchar", json!({"a": [1, "b"]}), json!(r#"{"a":[1,"b"]}"#)),
            ("ascii", json!([]), json!("[]")),
            ("boolean", json!("TRUE"), json!(true)),
            ("double", json!("1.5"), json!(1.5)),
            (
                "uuid",
                json!("0B5A7F1E-9C3D-4E2B-8A6F-0123456789AB"),
                json!("0b5a7f1e-9c3d-4e2b-8a6f-0123456789ab"),
            ),
            ("map<text, int>", json!({"a": "1"}), json!({"a": 1})),
            ("frozen<list<text>>", json!(["b", "a"]), json!(["b", "a"])),
            ("set<int>", json!([3, "1", 3]), json!([1, 3])),
            ("blob", json!("AAE="), json!("AAE=")),
        ];
        for (kind, given, kept) in same {
            let kind = Type::parse(kind).unwrap();
            assert_eq!(kind.convert(&given), Ok(Some(kept)), "{kind}: {given}");
        }
        let wrong = [
            ("int", json!("seven")),
            ("int", json!("")),
            ("int", json!(2_147_483_648_i64)),
            ("int", json!(1.5)),
            ("bigint", json!("9223372036854775808")),
            ("boolean", json!(1)),
            ("date", json!({"a": 1})),
            ("uuid", json!("x")),
            ("double", json!("NaN")),
            ("map<text, int>", json!({"a": "b"})),
            ("list<int>", json!("[1]")),
            ("blob", json!("!")),
        ];
        for (kind, given) in wrong {
            let kind = Type::parse(kind).unwrap();
            assert!(kind.convert(&given).is_err(), "{kind}: {given}");
        }
        assert_eq!(Type::parse("int").unwrap().convert(&Value::Null), Ok(None));
        for unknown in [
            "",
            "counter",
            "map<text>",
            "list<",
            "map<list<int>, int>",
            "mytype",
        ] {
            assert!(Type::parse(unknown).is_err(), "{unknown}");
        }
        let nested = "map<text, frozen<list<map<int, text>>>>";
        let again = Type::parse(nested).unwrap().to_string();
        assert_eq!(again, "map<text, list<map<int, text>>>");
    }
}
