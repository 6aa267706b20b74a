//! What the driver and the queues of the transport do when there is too much is within what random
//! seeds reach.

use fermata_sim::random;

/// Seeds of the test.
const SEEDS: u64 = 80;

/// What a trace says of each.
const MARKS: [(&str, &str); 7] = [
    ("room ends", "is full for"),
    ("a disk is full", "the disk is full"),
    ("and takes writes again", "writes again"),
    ("a stuck log loses a message", "loses a message"),
    ("too much waits for a peer", "  # node"),
    ("a process retires", "retires"),
    ("a process is paused", "is paused"),
];

#[test]
fn seeds_reach_every_rule_of_the_driver() {
    let mut reached = [0; MARKS.len()];
    for seed in 0..SEEDS {
        let trace = random::run(seed, None, true).trace.expect("it was asked");
        for ((_, mark), count) in MARKS.iter().zip(&mut reached) {
            *count += trace.lines().filter(|line| line.contains(mark)).count();
        }
    }
    for ((what, _), count) in MARKS.iter().zip(reached) {
        println!("{count:8} times: {what}");
    }
    let missed = MARKS.iter().zip(reached).find(|(_, count)| *count == 0);
    assert_eq!(missed, None);
}
