//! Durations as people type them: `10s`, `500ms`, `2m`, `1h`, `7d`, `250us`.

use std::time::Duration;

use fermata_protocol::base::PROMISE_MAX;

/// Reads a duration: a whole number and a unit.
///
/// # Errors
/// A sentence for the parser of the command line: no number, no unit, or too long.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let micros_per_unit = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000_u64,
        "d" => 86_400_000_000,
        _ => {
            let sentence = "give a whole number and a unit: us, ms, s, m, h or d, as in 10s";
            return Err(sentence.to_owned());
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "give a whole number before the unit, as in 10s".to_owned())?;
    let micros = number.checked_mul(micros_per_unit);
    micros
        .map(Duration::from_micros)
        .ok_or_else(|| "this duration is too long".to_owned())
}

/// Reads how long to wait for an answer: 1ms to 1h, since 0 would be no time to ask.
///
/// # Errors
/// As [`parse`], and the bound.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(3_600);
    match parse(text)? {
        given if given < Duration::from_millis(1) => Err("at least 1ms".to_owned()),
        given if given > LONGEST => Err("at most 1h".to_owned()),
        given => Ok(given),
    }
}

/// Reads a bound that a keyspace keeps: longer than 0, which the servers take for "not said".
///
/// # Errors
/// As [`parse`], and the bound.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
        given => Ok(given),
    }
}

/// Reads how long to wait for a lock: at most a day, as long as the client library waits.
///
/// # Errors
/// As [`parse`], and the bound.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        given if given > Duration::from_secs(86_400) => Err("at most 24h".to_owned()),
        given => Ok(given),
    }
}

/// Reads the bound on a clock's error: at most a second, beyond which no clock is trusted.
///
/// # Errors
/// As [`parse`], and the bound.
pub(crate) fn clock_bound(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        given if given > Duration::from_micros(PROMISE_MAX) => Err("at most 990ms".to_owned()),
        given => Ok(given),
    }
}

/// A duration in a table: one unit, at most two digits behind the point.
pub(crate) fn show(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.2} ms", micros as f64 / 1e3),
        1_000_000..120_000_000 => format!("{:.2} s", micros as f64 / 1e6),
        120_000_000..172_800_000_000 => format!("{} min", micros / 60_000_000),
        _ => format!("{} d", micros / 86_400_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(parse("7us"), Ok(Duration::from_micros(7)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn anything_else_is_refused() {
        let wrong = [
            "",
            "s",
            "10",
            "-1s",
            "1.5s",
            "10 s",
            "10S",
            "99999999999999999999s",
            "18446744073709551615h",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_are_told() {
        assert_eq!(patience("1h"), Ok(Duration::from_secs(3_600)));
        assert_eq!(patience("0s"), Err("at least 1ms".to_owned()));
        assert_eq!(patience("61m"), Err("at most 1h".to_owned()));
        assert_eq!(wait("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(wait("0s"), Ok(Duration::ZERO));
        assert_eq!(clock_bound("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(clock_bound("990ms"), Ok(Duration::from_millis(990)));
        // What the node adds between two readings would make it too wide to be trusted.
        assert_eq!(clock_bound("1s"), Err("at most 990ms".to_owned()));
        assert_eq!(wait("25h"), Err("at most 24h".to_owned()));
    }

    #[test]
    fn durations_are_shown_in_one_unit() {
        assert_eq!(show(Duration::from_micros(999)), "999 us");
        assert_eq!(show(Duration::from_micros(54_320)), "54.32 ms");
        assert_eq!(show(Duration::from_secs(3)), "3.00 s");
        assert_eq!(show(Duration::from_secs(180)), "3 min");
        assert_eq!(show(Duration::from_secs(3_660 * 86_400)), "3660 d");
    }
}
