//! Scratch.
fn main() {
    for p in &fermata_sim::profile::ALL { for r in fermata_sim::rtt::bench(p) { println!("{:6} {:14} {:14} {:14} {:3} {:9.3}", r.profile, r.client, r.primary, r.step, r.puts, r.ms); } }
}
