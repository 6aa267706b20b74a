//! Who this is and how it is: version, test, health, and the onboarding of older clients.

use super::answers::{Failure, MusicAnswer, VERSION};
use super::{Call, Music, no_method, no_path};
use serde_json::{Value, json};

/// What the original said of its store, and what health checks look for.
const RUNNING: &str = "Cassandra Running and Listening to requests";

impl Music {
    fn is_healthy(&self) -> bool {
        self.store.porter.is_healthy()
    }

    /// Everything outside of data and locks.
    pub(super) async fn about(&self, call: &Call, path: &[&str]) -> Result<MusicAnswer, Failure> {
        let version = format!("MUSIC:{VERSION}");
        let build = format!("{version}-fermata-{}", env!("CARGO_PKG_VERSION"));
        let known: Result<MusicAnswer, Failure> = match *path {
            ["version"] if call.speaks_text() => Ok(MusicAnswer::text(version)),
            ["version"] => Ok(MusicAnswer::success(json!({ "version": version }))),
            ["version", "build"] => Ok(MusicAnswer::success(
                json!({ "version": version, "build": build }),
            )),
            ["test"] => Ok(MusicAnswer::json(json!({
                "0": { "1": "2", "Music Version": version, "Music Build": build },
                "1": { "2": "3", "Music Version": version, "Music Build": build },
                "2": { "3": "4", "Music Version": version, "Music Build": build },
            }))),
            ["service", "pingCassandra", _] | ["service", "pingZookeeper"] => Ok(self.ping()),
            ["service", "musicHealthCheck"] => {
                let store = if self.is_healthy() {
                    "Active"
                } else {
                    "Inactive"
                };
                Ok(MusicAnswer::json(
                    json!({ "MUSIC": "Active", "Cassandra": store }),
                ))
            }
            ["admin", ref rest @ ..] => return admin(call, rest),
            _ => return Err(no_path()),
        };
        match call.method.as_str() {
            "GET" => known,
            _ => Err(no_method()),
        }
    }

    fn ping(&self) -> MusicAnswer {
        if self.is_healthy() {
            let said = json!({ "status": "ACTIVE", "message": RUNNING, "ACTIVE": RUNNING });
            return MusicAnswer::json(said);
        }
        let said = "One or more nodes are down or not responding.";
        MusicAnswer {
            status: 400,
            ..MusicAnswer::json(json!({ "status": "INACTIVE", "message": said, "INACTIVE": said }))
        }
    }
}

/// The onboarding that clients up to 3.0 begin with: there is nothing to be admitted to, so all
/// are.
fn admin(call: &Call, path: &[&str]) -> Result<MusicAnswer, Failure> {
    let body = call.json()?;
    let app = body
        .get("appname")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // The same application has the same id, everywhere and always.
    let hash = app.bytes().fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        },
    );
    let digits = format!("{hash:032x}");
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    let aid = parts.join("-");
    match (path, call.method.as_str()) {
        (["onboardAppWithMusic"], "POST" | "PUT" | "DELETE") | (["search"], "POST")
            if app.is_empty() && !body.contains_key("aid") =>
        {
            Err(Failure::error("appname is missing"))
        }
        (["onboardAppWithMusic"], "POST") => Ok(MusicAnswer::json(json!({
            "Success": format!("Your application {app} has been onboarded with MUSIC."),
            "Generated AID": aid,
        }))),
        (["onboardAppWithMusic"], "PUT") => Ok(MusicAnswer::json(json!({
            "Success": "Your application has been updated successfully",
        }))),
        (["onboardAppWithMusic"], "DELETE") => Ok(MusicAnswer::json(json!({
            "Success": "Your application has been deleted successfully",
        }))),
        (["search"], "POST") => Ok(MusicAnswer::json(json!({
            "Application Name": app, "aid": aid,
        }))),
        (["onboardAppWithMusic"] | ["search"], _) => Err(no_method()),
        _ => Err(no_path()),
    }
}
