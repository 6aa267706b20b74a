//! Scratch.
use fermata_protocol::base::Bug;
fn main() {
    let which = std::env::args().nth(1);
    let bug: Option<Bug> = std::env::args().nth(2).and_then(|n| Bug::ALL.into_iter().find(|b| format!("{b:?}") == n));
    if which.as_deref() != Some("bugs") {
    for s in fermata_sim::scenarios::ALL {
        if which.as_deref().is_some_and(|w| w != s.name && w != "all") { continue; }
        let t = std::time::Instant::now();
        let run = fermata_sim::scenarios::run(s, bug, which.as_deref() == Some(s.name));
        if let Some(t) = run.trace { println!("{t}"); }
        println!("{:32} {:?} {} s {} events {:?}", s.name, t.elapsed(), run.virtual_time / 1_000_000, run.events, run.violations.first());
    } }
    if which.as_deref() == Some("bugs") { for b in Bug::ALL { if matches!(fermata_sim::planted::trap(b), fermata_sim::planted::Trap::Scenario(_)) { println!("{b:?}: {:?}", fermata_sim::planted::spring(b).map(|s| s.chars().take(150).collect::<String>())); } } }
}
