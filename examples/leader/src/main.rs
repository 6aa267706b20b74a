//! A leader that goes on from where the last one was.
//!
//! Start any number of these: one leads, the others stand by. Its state, here a number of steps, is
//! the value of the key that it holds. So whoever comes after it begins from the last step that was
//! acknowledged, and a leader that was wrongly taken for dead can write no more.

use fermata_client::{Client, Enter, Error, Options, Section};
use std::time::Duration;

const KEY: &str = "leader";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let nodes = std::env::var("FERMATA_ENDPOINTS");
    let nodes = nodes.unwrap_or_else(|_| "127.0.0.1:7100,127.0.0.1:7110,127.0.0.1:7120".into());
    let nodes = nodes.split(',').map(|node| format!("http://{node}"));
    let client = Client::connect(Options::new(nodes)).await?;
    loop {
        let stand_by = Enter {
            // As long as it takes.
            wait: None,
            // A leader that says nothing for so long is followed by another.
            lease: Some(Duration::from_secs(2)),
            ..Enter::default()
        };
        let section = client.enter("default", &[KEY], stand_by).await?;
        let error = lead(&section).await;
        // Another one leads from the last step that was acknowledged, or will.
        eprintln!("stood down: {error}");
    }
}

/// Leads until the section is lost. Every step is done once it is acknowledged, and not before.
async fn lead(section: &Section) -> Error {
    let mut step: u64 = match section.get(KEY).await {
        Ok(Some(value)) => String::from_utf8_lossy(&value).parse().unwrap_or(0),
        Ok(None) => 0,
        Err(error) => return error,
    };
    // Give this number to whatever else you write to: it never goes backwards.
    let fence = section.lock_ref(KEY).map_or(0, |lock_ref| lock_ref.0);
    println!("leading from step {step}, fence {fence}");
    loop {
        if let Err(error) = section.put(KEY, (step + 1).to_string()).await {
            return error;
        }
        step += 1;
        println!("step {step}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
