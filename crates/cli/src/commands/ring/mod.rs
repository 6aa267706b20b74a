//! `fermata ring` and `fermata node`: who is in a cluster, where its groups are, and changes of
//! that.
//!
//! A change is asked for again until the ring shows that it is so, as `plan` finds from the ring as
//! it is. So each command may be interrupted and given again, and goes on where it was.

mod loss;
mod moves;
mod plan;
mod show;

use std::time::Duration;

use fermata_client::{Client, Code};
use fermata_protocol::base::NodeName;
use fermata_protocol::registry::Standing;
use fermata_protocol::request::{RingChange, RingGroup, RingNode, RingStatus};
use fermata_protocol::settings::{Join, Setting};
use tokio::time::{Instant, MissedTickBehavior};

use crate::args::{
    Global, JoinChoice, LeaderChoice, NodeCommand, PolicyCommand, RingArgs, RingCommand, Wait,
    WaitArgs,
};
use crate::connect::connect;
use crate::exit::{self, Exit, Failure};
use crate::output;
use moves::Watch;
use plan::{Step, Wish};

/// How often the ring is looked at while something goes on.
const LOOKS: Duration = Duration::from_millis(200);
/// How long a node that is to have seats is waited for to be heard.
const JOINS: Duration = Duration::from_secs(5);
/// How long a node that drains is waited for to hand over what it keeps for clients.
const HOMES: Duration = Duration::from_secs(15);

/// Shows the ring, once or at every interval, or what it does unasked.
pub(crate) async fn run(global: &Global, args: RingArgs) -> Result<u8, Failure> {
    if let Some(RingCommand::Policy { action }) = args.action {
        if args.watch.is_some() {
            return Err(Failure::usage("--watch shows the ring, and no policy"));
        }
        return policy(global, action).await;
    }
    let client = connect(global).await?;
    let Some(interval) = args.watch else {
        output::text(look(global, &client, &mut Watch::default(), false).await?)?;
        return Ok(0);
    };
    let mut again = tokio::time::interval(interval);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch::default();
    loop {
        again.tick().await;
        let text = look(global, &client, &mut watch, true).await?;
        if !output::coloured(&text)? {
            return Ok(0);
        }
    }
}

/// The ring as it is now, and what moves.
async fn look(
    global: &Global,
    client: &Client,
    watch: &mut Watch,
    one_line: bool,
) -> Result<String, Failure> {
    let ring = client.ring().await?;
    let look = watch.look(client, &ring).await;
    Ok(show::ring(global, &ring, &look, one_line))
}

/// Shows what groups do unasked, changed before if that is asked for.
async fn policy(global: &Global, action: PolicyCommand) -> Result<u8, Failure> {
    let off = [
        Setting::DeadAfter(0),
        Setting::Join(None),
        Setting::NearestLeads(false),
    ];
    let changes = match action {
        PolicyCommand::Show => Vec::new(),
        PolicyCommand::Off => off.to_vec(),
        PolicyCommand::Set {
            dead_after,
            join,
            leader,
        } => {
            let micros = |after: Duration| u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
            let dead_after = dead_after.map(|after| Setting::DeadAfter(micros(after)));
            let join = join.map(|join| Setting::Join(joins(join)));
            let nearest = |leader| Setting::NearestLeads(leader == LeaderChoice::Latency);
            let all = [dead_after, join, leader.map(nearest)];
            all.into_iter().flatten().collect()
        }
    };
    super::settings::run(global, &changes).await
}

/// The setting of a choice.
pub(super) fn joins(choice: JoinChoice) -> Option<Join> {
    match choice {
        JoinChoice::Off => None,
        JoinChoice::Load => Some(Join::Load),
        JoinChoice::Latency => Some(Join::Latency),
        JoinChoice::Resilient => Some(Join::Resilient),
    }
}

/// Runs a command about nodes.
pub(crate) async fn nodes(global: &Global, command: NodeCommand) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let ring = match &command {
        NodeCommand::Add { node: new, .. } | NodeCommand::Replace { new, .. } => {
            ring_with(&client, new).await?
        }
        _ => client.ring().await?,
    };
    let known = |label: &str| plan::node(&ring, label).map_err(Failure::usage);
    let present = |label: &str| plan::present(&ring, label).map_err(Failure::usage);
    let can_be = |wish: &Wish| plan::check(&ring, wish).map_err(refused);
    match command {
        NodeCommand::List => output::text(show::nodes(global, &ring))?,
        NodeCommand::RestartOrder => restart_order(global, &client, &ring).await?,
        NodeCommand::Add {
            node,
            segment,
            wait,
        } => {
            let group = plan::group_for(&ring, segment).map_err(Failure::usage)?;
            let wish = Wish::Seat(present(&node)?.name, group.id);
            can_be(&wish)?;
            let mut task = Task::new(global, &client, wait);
            let ended = task.bring_about(wish).await;
            task.end(ended)?;
        }
        NodeCommand::Drain { node, wait } => {
            let node = present(&node)?;
            let mut task = Task::new(global, &client, wait);
            let ended = task.drain(node).await;
            task.end(ended)?;
        }
        NodeCommand::Undrain { node } => {
            let (name, drains) = (present(&node)?.name, false);
            client
                .change_ring(RingChange::Drain { name, drains })
                .await?;
        }
        NodeCommand::Remove { node, wait } => {
            let node = known(&node)?;
            let wish = Wish::NoSeat(node.name);
            can_be(&wish)?;
            let mut task = Task::new(global, &client, wait);
            let ended = task.take_out(node, wish).await;
            task.end(ended)?;
        }
        NodeCommand::Replace {
            old,
            new,
            lost,
            yes,
            wait,
        } => {
            let (old, new) = (known(&old)?, present(&new)?);
            if old.name == new.name {
                let why = format!("{} cannot replace itself: name another node", old.label);
                return Err(Failure::usage(why));
            }
            let wish = Wish::InPlaceOf(old.name, new.name);
            can_be(&wish)?;
            let mut task = Task::new(global, &client, wait);
            let ended = match lost {
                true => task.give_up(&ring, (old, new), yes).await,
                false => task.take_out(old, wish).await,
            };
            task.end(ended)?;
        }
    }
    Ok(0)
}

/// The ring, once the node that is to have seats is heard: it may have joined just now. Or as it is
/// after a while.
async fn ring_with(client: &Client, new: &str) -> Result<RingStatus, Failure> {
    let until = Instant::now() + JOINS;
    loop {
        let ring = client.ring().await?;
        let found = plan::present(&ring, new);
        let silent = found.is_ok_and(|node| !node.heard);
        if !silent || Instant::now() >= until {
            return Ok(ring);
        }
        tokio::time::sleep(LOOKS).await;
    }
}

fn refused(why: String) -> Failure {
    Failure::new(Exit::Refused, format!("{why}; {UNCHANGED}"))
}

/// Shows in which order nodes are restarted best: whoever leads least goes first. What is handed
/// over goes to those who come later, or to those who are back, and most of it once.
async fn restart_order(global: &Global, client: &Client, ring: &RingStatus) -> Result<(), Failure> {
    let present = |node: &&RingNode| node.standing == Standing::Present;
    let mut order = Vec::new();
    for node in ring.nodes.iter().filter(present) {
        order.push((logs_led(client, node.name).await.segments, node));
    }
    order.sort_by_key(|(led, node)| (*led, node.name));
    output::text(show::restart_order(global, &order))
}

/// How many logs a node leads, as it says itself; none where it does not answer.
async fn logs_led(client: &Client, name: NodeName) -> Led {
    let nodes = client.nodes();
    let at = nodes.iter().position(|node| node.name == Some(name));
    let Some(at) = at else { return Led::default() };
    let Ok(status) = client.status(Some(at)).await else {
        return Led::default();
    };
    let led = status.logs.iter().filter(|log| log.primary == Some(name));
    let segments = led.clone().filter(|log| log.segment.is_some());
    Led {
        logs: led.count() as u64,
        segments: segments.count() as u64,
    }
}

/// What a node leads: logs of segments and of groups, and segments alone.
#[derive(Clone, Copy, Debug, Default)]
struct Led {
    logs: u64,
    segments: u64,
}

/// How many sessions a node keeps for clients, as it says itself; none where it does not answer.
async fn sessions_kept(client: &Client, name: NodeName) -> u64 {
    let nodes = client.nodes();
    let at = nodes.iter().position(|node| node.name == Some(name));
    match at {
        Some(at) => client.status(Some(at)).await.map_or(0, |s| s.sessions),
        None => 0,
    }
}

/// So a command says that it has done nothing.
const UNCHANGED: &str = "nothing was changed";

/// A change that goes on until it is so.
struct Task<'a> {
    global: &'a Global,
    client: &'a Client,
    wait: WaitArgs,
    begun: Begun,
}

/// What a command has asked for so far, that may go on whatever becomes of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    Nothing,
    /// A node drains which did not before: it can be taken back.
    Drain,
    Change,
}

impl<'a> Task<'a> {
    fn new(global: &'a Global, client: &'a Client, wait: WaitArgs) -> Task<'a> {
        Task {
            global,
            client,
            wait,
            begun: Begun::Nothing,
        }
    }

    fn note(&self, sentence: &str) {
        exit::note(sentence, self.global.json);
    }

    /// The end of the command: what was begun goes on without it, and then nobody knows how it
    /// ends.
    fn end(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        ended.map_err(|failure| told(failure, self.begun))
    }

    /// Asks for one change, and notes that it may be under way.
    async fn ask(
        &mut self,
        change: RingChange,
        begins: Begun,
    ) -> Result<(), fermata_client::Error> {
        let ended = self.client.change_ring(change).await;
        let may = |error: &fermata_client::Error| error.may_have_taken_effect();
        if ended.as_ref().err().is_none_or(may) {
            self.begun = self.begun.max(begins);
        }
        ended
    }

    /// Hands over what a node leads.
    async fn drain(&mut self, node: &RingNode) -> Result<(), Failure> {
        let (name, drains) = (node.name, true);
        let begins = match node.drains {
            true => Begun::Nothing,
            false => Begun::Drain,
        };
        self.ask(RingChange::Drain { name, drains }, begins).await?;
        let mut progress = Progress::begin(self.wait.patience);
        loop {
            // Nobody knows it better: a node tells of groups in which it has a seat alone.
            let led = logs_led(self.client, name).await.logs;
            if led == 0 {
                self.note(&format!("{} leads nothing", node.label));
                self.moved_on(node).await;
                return Ok(());
            }
            let what = format!("{} still leads {led} logs", node.label);
            progress.watch(led, &what, None)?;
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// Waits a while for a node to hand over what it keeps for clients, and says what is left.
    async fn moved_on(&self, node: &RingNode) {
        let until = Instant::now() + HOMES;
        while sessions_kept(self.client, node.name).await > 0 && Instant::now() < until {
            tokio::time::sleep(LOOKS).await;
        }
        let left = sessions_kept(self.client, node.name).await;
        if left > 0 {
            self.note(&format!(
                "{} still keeps {left} sessions or locks for clients, which wait for keys or have \
                 no other node to go to: to stop it now would end them there",
                node.label
            ));
        }
    }

    /// Has a node hand over what it leads and its seats, and takes it out of the cluster.
    async fn take_out(&mut self, node: &RingNode, wish: Wish) -> Result<(), Failure> {
        if node.standing == Standing::Present {
            match node.heard {
                true => self.drain(node).await?,
                false => self.note(&format!(
                    "{} is not heard: what it alone has is waited for until it is back; with \
                     `fermata node replace --lost --yes` nobody waits for it",
                    node.label
                )),
            }
        }
        if let Err(failure) = self.bring_about(wish).await {
            return Err(self.taken_back(node, failure).await);
        }
        if self.wait.wait == Wait::Started {
            self.note(&format!(
                "{} has no seat any more; give this command again once its values have moved, to \
                 take it out of the cluster",
                node.label
            ));
            return Ok(());
        }
        self.not_needed(node).await?;
        self.dismiss(node, false).await?;
        let after = match node.heard {
            true => "it ends by itself",
            false => "should it start again, it ends by itself",
        };
        self.note(&format!("{} is out of the cluster: {after}", node.label));
        Ok(())
    }

    /// Has a node lead again that this command had drain, where its seats could not be given to
    /// anybody: another command was there first.
    async fn taken_back(&mut self, node: &RingNode, failure: Failure) -> Failure {
        if failure.exit == Exit::Refused && self.begun == Begun::Drain {
            let (name, drains) = (node.name, false);
            let undrained = self.client.change_ring(RingChange::Drain { name, drains });
            if undrained.await.is_ok() {
                self.begun = Begun::Nothing;
            }
        }
        failure
    }

    /// Waits until no group needs a node.
    async fn not_needed(&self, node: &RingNode) -> Result<(), Failure> {
        let mut progress = Progress::begin(self.wait.patience);
        loop {
            let ring = self.client.ring().await?;
            if !plan::is_needed(&ring, node.name) {
                return Ok(());
            }
            let what = format!("{} still has what others need", node.label);
            progress.watch(segments_left(&ring), &what, None)?;
            tokio::time::sleep(LOOKS).await;
        }
    }

    async fn dismiss(&mut self, node: &RingNode, lost: bool) -> Result<(), Failure> {
        let (client, name) = (self.client, node.name);
        let done = match lost {
            true => Standing::Lost,
            false => Standing::Gone,
        };
        let is_done = async || {
            let ring = client.ring().await?;
            let known = ring.nodes.iter().find(|node| node.name == name);
            Ok::<bool, Failure>(known.is_none_or(|known| known.standing >= done))
        };
        if is_done().await? {
            return Ok(());
        }
        let change = RingChange::Dismiss { name, lost };
        match self.ask(change, Begun::Change).await {
            // The node that was asked may be the one that is out; or another command was there
            // first.
            Err(_) if is_done().await? => Ok(()),
            ended => Ok(ended?),
        }
    }

    /// Asks for the steps to a wish until the ring shows that it is so.
    async fn bring_about(&mut self, wish: Wish) -> Result<(), Failure> {
        let mut progress = Progress::begin(self.wait.patience);
        let mut watch = Watch::default();
        loop {
            let ring = self.client.ring().await?;
            let steps =
                plan::steps(&ring, &wish).map_err(|why| Failure::new(Exit::Refused, why))?;
            let why = self.take(&steps, plan::is_pressing(&ring, &wish)).await?;
            let left = segments_left(&ring);
            let started = ring.groups.iter().all(|group| plan::left(group).0 == 0);
            let done = match self.wait.wait {
                Wait::Started => started,
                Wait::Moved => started && left == 0,
            };
            if steps.is_empty() && done {
                return Ok(());
            }
            let look = watch.look(self.client, &ring).await;
            let what = look.told(&ring);
            // A segment of many keys may take longer than anybody waits who sees nothing move.
            if look.gets_on {
                progress.since = Instant::now();
            }
            progress.watch(left + steps.len() as u64, &what, why)?;
            progress.is_news |= look.is_due;
            self.tell(&progress, &what);
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// Asks for steps, up to the first that is refused. Tells why, where that may not be for good:
    /// the ring may have gone on meanwhile, or have to.
    async fn take(&mut self, steps: &[Step], pressing: bool) -> Result<Option<Failure>, Failure> {
        for step in steps {
            let change = RingChange::Members {
                group: step.group,
                after: step.after,
                members: step.members.clone(),
                pressing,
            };
            match self.ask(change, Begun::Change).await {
                Ok(()) => {}
                Err(error) if [Code::BadRequest, Code::Unavailable].contains(&error.code()) => {
                    return Ok(Some(error.into()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn tell(&self, progress: &Progress, what: &str) {
        if progress.is_news {
            self.note(what);
        }
    }
}

/// A failure as the command tells it, which has begun so much.
fn told(failure: Failure, begun: Begun) -> Failure {
    // What a node says of one step is not so of the command.
    let why = failure.sentence.replace(&format!("; {UNCHANGED}"), "");
    match begun {
        Begun::Nothing if failure.may_have_taken_effect => failure,
        Begun::Nothing => Failure {
            sentence: format!("{why}; {UNCHANGED}"),
            ..failure
        },
        Begun::Drain | Begun::Change => Failure::new(
            Exit::OutcomeUnknown,
            format!("{why}; what was begun goes on, `fermata ring` shows it"),
        ),
    }
}

/// Segments of which something is still to be done, over all groups.
fn segments_left(ring: &RingStatus) -> u64 {
    let left = |group: &RingGroup| {
        let (unstarted, moving) = plan::left(group);
        u64::from(unstarted + moving)
    };
    ring.groups.iter().map(left).sum()
}

/// Whether something gets on.
struct Progress {
    patience: Duration,
    since: Instant,
    left: Option<u64>,
    is_news: bool,
}

impl Progress {
    fn begin(patience: Duration) -> Progress {
        Progress {
            patience,
            since: Instant::now(),
            left: None,
            is_news: false,
        }
    }

    /// So much is left. Fails where that has been so for too long.
    fn watch(&mut self, left: u64, what: &str, why: Option<Failure>) -> Result<(), Failure> {
        self.is_news = self.left.is_none_or(|before| left < before);
        if self.is_news {
            (self.left, self.since) = (Some(left), Instant::now());
        }
        if self.since.elapsed() < self.patience {
            return Ok(());
        }
        let last = why.map_or_else(String::new, |why| format!("; the last refusal was: {why}"));
        let sentence = format!("nothing gets on: {what}{last}");
        Err(Failure::new(Exit::Unavailable, sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_once_what_it_has_done() {
        let refused = || {
            let why = "n4 drains; nothing was changed: undrain it first";
            Failure::new(Exit::Refused, why)
        };
        let nothing = told(refused(), Begun::Nothing);
        assert_eq!(nothing.exit, Exit::Refused);
        let said = "n4 drains: undrain it first; nothing was changed";
        assert_eq!(nothing.sentence, said);
        for begun in [Begun::Drain, Begun::Change] {
            let some = told(refused(), begun);
            assert_eq!(some.exit, Exit::OutcomeUnknown);
            assert!(some.may_have_taken_effect && !some.sentence.contains(UNCHANGED));
            assert!(some.sentence.contains("undrain it first; what was begun"));
        }
        let unknown = Failure::new(Exit::OutcomeUnknown, "no answer; it may have taken effect");
        let said = unknown.sentence.clone();
        assert_eq!(told(unknown, Begun::Nothing).sentence, said);
    }
}
