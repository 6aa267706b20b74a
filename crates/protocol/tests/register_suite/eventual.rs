//! Eventual values that sections adopt, and that their puts hide (G24, G26).

use crate::rules::{
    apply_all, enqueue, put, put_at, put_op, remove, run, synch, synched, value, world,
};
use crate::world::{Command, World, section_key};
use fermata_protocol::base::Planted;
use fermata_protocol::register::{Op, OpEnd};

/// G24: e1 is taken at A and then, by a later clock, e2 at C alone; the section of ref 1 adopts e1,
/// which it finds at A and B, and puts nothing. What a `get` finds when all has come to rest.
fn later_than_the_adopted(planted: Planted) -> Option<OpEnd> {
    let mut w = World::new(3, 2, 1, planted);
    let key = section_key();
    put_at(&mut w, 0, "e1");
    w.bag.clear();
    w.wall += 1_000_000;
    put_at(&mut w, 2, "e2");
    w.bag.clear();
    enqueue(&mut w, 1);
    let adoption = Op::Synch {
        key: key.clone(),
        tag: synch(1, 1),
        adopts: true,
    };
    let id = w.start(0, adoption);
    w.reach(0, &[0, 1]);
    w.reach(0, &[0, 1]);
    assert_eq!(w.outcome(id, 0), Some(synched("e1", synch(1, 1))));
    w.settle();
    remove(&mut w, 1);
    w.rest(4);
    let found = run(&mut w, Op::EventualGet { key: key.clone() });
    // A section that writes outranks both.
    w.history.push(Command::Enqueue);
    apply_all(&mut w);
    let next = w.history.len() as u64;
    run(&mut w, put_op(put(next, 1), "v"));
    assert_eq!(run(&mut w, Op::EventualGet { key }), Some(value("v")));
    found
}

#[test]
fn an_adoption_does_not_hide_a_later_eventual_put() {
    assert_eq!(later_than_the_adopted(Planted::NONE), Some(value("e2")));
}

/// Of two puts that know nothing of each other the one of the later clock counts, whichever nodes
/// took them; and one that meets another where it is taken counts, whatever the clock says.
#[test]
fn the_later_of_two_eventual_puts_is_found() {
    for (first, then, known, clock) in [(0, 2, false, 1), (2, 0, false, 1), (2, 0, true, -1)] {
        let mut w = World::new(3, 2, 1, Planted::NONE);
        put_at(&mut w, first, "e1");
        match known {
            true => w.settle(),
            false => w.bag.clear(),
        }
        w.wall = w.wall.saturating_add_signed(clock * 1_000_000);
        put_at(&mut w, then, "e2");
        w.bag.clear();
        w.rest(4);
        let key = section_key();
        assert_eq!(run(&mut w, Op::EventualGet { key }), Some(value("e2")));
    }
}

/// G24: an adoption is stored at A alone, which alone has the eventual value; the next attempt
/// finds nothing of it and settles the old value. The put was acknowledged, and nobody has written.
#[test]
fn an_adoption_that_is_replaced_leaves_the_eventual_put() {
    let mut w = world(3);
    let key = section_key();
    put_at(&mut w, 0, "e");
    w.bag.clear();
    enqueue(&mut w, 1);
    let adoption = |attempt| Op::Synch {
        key: section_key(),
        tag: synch(1, attempt),
        adopts: true,
    };
    w.start(0, adoption(1));
    w.reach(0, &[0, 1]);
    w.reach(0, &[0]);
    w.bag.clear();
    let again = w.start(1, adoption(2));
    w.reach(1, &[1, 2]);
    w.reach(1, &[1, 2]);
    let tag = synch(1, 2);
    let settled = OpEnd::Synched { value: None, tag };
    assert_eq!(w.outcome(again, 1), Some(settled));
    w.settle();
    remove(&mut w, 1);
    w.rest(4);
    assert_eq!(run(&mut w, Op::EventualGet { key }), Some(value("e")));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn an_adoption_that_outranks_hides_a_later_eventual_put() {
    let wrong = Planted::only(fermata_protocol::base::Bug::AdoptionOutranks);
    assert_eq!(later_than_the_adopted(wrong), Some(value("e1")));
}

/// Ref 1's put of "p" reaches the first replica alone, where the eventual value "e" is, and no
/// other; ref 1 is released by force.
fn put_at_one(planted: Planted) -> World {
    let mut w = World::new(3, 2, 1, planted);
    put_at(&mut w, 0, "e");
    w.bag.clear();
    enqueue(&mut w, 1);
    w.start(0, put_op(put(1, 1), "p"));
    w.reach(0, &[0]);
    w.bag.clear();
    w.replace_caller(0);
    assert_eq!(w.inspect(0, &section_key()).expect("sound").tag, put(1, 1));
    remove(&mut w, 1);
    w
}

/// G26: the synch of ref 3 finds nothing of `put_at_one` at the other two. What a `get` finds when
/// all has come to rest.
fn after_a_put_came_to_nothing(planted: Planted) -> Option<OpEnd> {
    let mut w = put_at_one(planted);
    w.history.push(Command::Enqueue);
    apply_all(&mut w);
    let settling = Op::Synch {
        key: section_key(),
        tag: synch(3, 1),
        adopts: true,
    };
    let id = w.start(1, settling);
    w.reach(1, &[1, 2]);
    w.reach(1, &[1, 2]);
    let (value, tag) = (None, synch(3, 1));
    assert_eq!(w.outcome(id, 1), Some(OpEnd::Synched { value, tag }));
    w.settle();
    remove(&mut w, 3);
    w.rest(4);
    run(&mut w, Op::EventualGet { key: section_key() })
}

#[test]
fn a_put_that_comes_to_nothing_leaves_the_eventual_put() {
    let found = after_a_put_came_to_nothing(Planted::NONE);
    assert_eq!(found, Some(value("e")));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_put_that_drops_what_it_outranks_loses_the_eventual_put() {
    let wrong = Planted::only(fermata_protocol::base::Bug::PutDropsEventual);
    let nothing = OpEnd::Value {
        value: None,
        tag: fermata_protocol::base::Tag::ZERO,
    };
    assert_eq!(after_a_put_came_to_nothing(wrong), Some(nothing));
}

/// G26: the same put is complete later, when the next synch has found it: then the value goes, at
/// whoever kept it, and also while the key is in use.
#[test]
fn what_a_complete_put_outranks_goes() {
    let mut w = put_at_one(Planted::NONE);
    w.rest(4);
    let kept = |w: &mut World| {
        let at = (0..3).filter(|i| {
            let seen = w.inspect(*i, &section_key());
            seen.expect("sound").eventual.is_some()
        });
        at.count()
    };
    assert_eq!(kept(&mut w), 3, "hidden at one, and given to the others");
    w.history.push(Command::Enqueue);
    apply_all(&mut w);
    let next = w.history.len() as u64;
    let settling = Op::Synch {
        key: section_key(),
        tag: synch(next, 1),
        adopts: true,
    };
    let id = w.start(1, settling);
    w.reach(1, &[0, 1]);
    w.reach(1, &[0, 1]);
    assert_eq!(w.outcome(id, 1), Some(synched("p", synch(next, 1))));
    w.bag.clear();
    w.rest(4);
    assert_eq!(
        kept(&mut w),
        1,
        "the third lacks the put, and the key is in use"
    );
    remove(&mut w, next);
    w.rest(4);
    assert_eq!(kept(&mut w), 0);
    let found = run(&mut w, Op::EventualGet { key: section_key() });
    assert_eq!(found, Some(value("p")));
}
