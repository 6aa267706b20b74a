//! Scratch.
use fermata_protocol::base::Bug;
fn main() {
    let mut args = std::env::args().skip(1);
    let bug: Option<Bug> = match args.next().unwrap().as_str() { "none" => None, n => Some(Bug::ALL.into_iter().find(|b| format!("{b:?}") == n).unwrap()) };
    let a: Vec<u64> = args.map(|x| x.parse().unwrap()).collect();
    let trace = a.len() > 2;
    let first_only = bug.is_some() && !trace;
    let t = std::time::Instant::now();
    let mut virt = 0;
    let mut bad = 0;
    let mut kinds: std::collections::BTreeMap<String, Vec<u64>> = Default::default();
    std::panic::set_hook(Box::new(|_| {}));
    for seed in a[0]..a[0] + a[1] {
        let one = std::time::Instant::now();
        let run = std::panic::catch_unwind(|| fermata_sim::random::run(seed, bug, trace));
        let run = match run { Ok(r) => r, Err(e) => { 
            let m = e.downcast_ref::<String>().cloned().or(e.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
            bad += 1; kinds.entry(format!("panic {}", m.chars().take(120).collect::<String>())).or_default().push(seed); continue } };
        virt += run.virtual_time;
        if trace { println!("{}", run.trace.as_deref().unwrap_or("")); }
        if let Some(v) = run.violations.iter().find(|v| bug.is_none() || v.property != "lease exclusivity" || matches!(bug, Some(Bug::LeaseWithoutPrimary | Bug::NewPrimaryReleasesAtOnce))) { bad += 1; 
            kinds.entry(format!("{}: {}", v.property, v.detail.chars().take(150).collect::<String>())).or_default().push(seed);
            if first_only && v.kind == fermata_sim::checkers::Kind::Correctness { println!("{bug:?} after {} seeds {:?}: {v:?}", seed - a[0], t.elapsed()); return; }
        }
        if a[1] < 20 { println!("seed {seed} {} events {} virtual {:?} {:?}", run.events, run.virtual_time, one.elapsed(), run.violations.first()); }
    }
    println!("{bug:?}: {} seeds, {bad} bad, virtual {} s, wall {:?}", a[1], virt / 1_000_000, t.elapsed());
    for (k, v) in kinds { println!("{} x {k}\n    {:?}", v.len(), &v[..v.len().min(8)]); }
}
