//! Scratch.
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let trace = a.len() > 2;
    let t = std::time::Instant::now();
    let mut virt = 0;
    let mut bad = 0;
    let mut kinds: std::collections::BTreeMap<String, Vec<u64>> = Default::default();
    for seed in a[0]..a[0] + a[1] {
        let one = std::time::Instant::now();
        let run = std::panic::catch_unwind(|| fermata_sim::random::run(seed, None, trace));
        let run = match run { Ok(r) => r, Err(e) => { 
            let m = e.downcast_ref::<String>().cloned().or(e.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
            bad += 1; kinds.entry(format!("panic {}", m.chars().take(120).collect::<String>())).or_default().push(seed); continue } };
        virt += run.virtual_time;
        if trace { println!("{}", run.trace.as_deref().unwrap_or("")); }
        if !run.violations.is_empty() { bad += 1; 
            let v=&run.violations[0];
            kinds.entry(format!("{}: {}", v.property, v.detail.chars().take(150).collect::<String>())).or_default().push(seed); }
        if a[1] < 20 { println!("seed {seed} {} events {} virtual {:?} {:?}", run.events, run.virtual_time, one.elapsed(), run.violations.first()); }
    }
    println!("{} seeds, {bad} bad, virtual {} s, wall {:?}", a[1], virt / 1_000_000, t.elapsed());
    for (k, v) in kinds { println!("{} x {k}\n    {:?}", v.len(), &v[..v.len().min(8)]); }
}
