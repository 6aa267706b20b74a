//! `fermata ring` and `fermata node`: who is in a cluster, where its groups are, and changes of
//! that.
//!
//! A change is asked for again until the ring shows that it is so, as `plan` finds from the ring as
//! it is. So each command may be interrupted and given again, and goes on where it was.

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
use plan::{Wish, node};

/// How often the ring is looked at while something goes on.
const LOOKS: Duration = Duration::from_millis(200);
/// How long a node that drains is waited for to hand over what it keeps for clients.
const HOMES: Duration = Duration::from_secs(15);

/// Shows the ring, once or at every interval, or what it does unasked.
pub(crate) async fn run(global: &Global, args: RingArgs) -> Result<u8, Failure> {
    if let Some(RingCommand::Policy { action, .. }) = args.action {
        return policy(global, action).await;
    }
    let client = connect(global).await?;
    let Some(interval) = args.watch else {
        output::text(show::ring(global, &client.ring().await?, false))?;
        return Ok(0);
    };
    let mut again = tokio::time::interval(interval);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        again.tick().await;
        let text = show::ring(global, &client.ring().await?, true);
        if !output::coloured(&text)? {
            return Ok(0);
        }
    }
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
    let ring = client.ring().await?;
    let named = |label: &str| node(&ring, label).map_err(Failure::usage);
    let task = |wait| Task {
        global,
        client: &client,
        wait,
    };
    match command {
        NodeCommand::List => output::text(show::nodes(global, &ring))?,
        NodeCommand::RestartOrder => {
            let present = |node: &&RingNode| node.standing == Standing::Present;
            let mut order = Vec::new();
            for node in ring.nodes.iter().filter(present) {
                order.push((segments_led(&client, node.name).await?, node));
            }
            // Whoever leads least goes first: what is handed over goes to those who come later, or
            // to those who are back, and most of it is handed over once.
            order.sort_by_key(|(led, node)| (*led, node.name));
            output::text(show::restart_order(global, &order))?;
        }
        NodeCommand::Add {
            node,
            segment,
            wait,
        } => {
            let node = named(&node)?;
            let group = plan::group_for(&ring, segment).map_err(Failure::usage)?;
            task(wait)
                .bring_about(Wish::Seat(node.name, group.id), false)
                .await?;
        }
        NodeCommand::Drain { node, wait } => {
            let node = named(&node)?;
            task(wait).drain(node).await?;
        }
        NodeCommand::Undrain { node } => {
            let (name, drains) = (named(&node)?.name, false);
            client
                .change_ring(RingChange::Drain { name, drains })
                .await?;
        }
        NodeCommand::Remove { node, wait } => {
            let node = named(&node)?;
            plan::steps(&ring, &Wish::NoSeat(node.name)).map_err(refused)?;
            task(wait).take_out(node, Wish::NoSeat(node.name)).await?;
        }
        NodeCommand::Replace {
            old,
            new,
            lost,
            wait,
            ..
        } => {
            let (old, new) = (named(&old)?, named(&new)?);
            let wish = Wish::InPlaceOf(old.name, new.name);
            match lost {
                true => task(wait).give_up(old, wish).await?,
                false => task(wait).take_out(old, wish).await?,
            }
        }
    }
    Ok(0)
}

fn refused(why: String) -> Failure {
    Failure::new(Exit::Refused, format!("{why}; nothing was changed"))
}

/// How many segments a node leads, as it says itself; none where it does not answer.
async fn segments_led(client: &Client, name: NodeName) -> Result<u64, Failure> {
    let nodes = client.nodes();
    let at = nodes.iter().position(|node| node.name == Some(name));
    let Some(at) = at else { return Ok(0) };
    let Ok(status) = client.status(Some(at)).await else {
        return Ok(0);
    };
    let led = status.logs.iter().filter(|log| log.primary == Some(name));
    Ok(led.filter(|log| log.segment.is_some()).count() as u64)
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

/// A change that goes on until it is so.
struct Task<'a> {
    global: &'a Global,
    client: &'a Client,
    wait: WaitArgs,
}

impl Task<'_> {
    fn note(&self, sentence: &str) {
        exit::note(sentence, self.global.json);
    }

    /// Hands over what a node leads.
    async fn drain(&self, node: &RingNode) -> Result<(), Failure> {
        let (name, drains) = (node.name, true);
        self.client
            .change_ring(RingChange::Drain { name, drains })
            .await?;
        let mut progress = Progress::begin(self.wait.patience, true);
        loop {
            let ring = self.client.ring().await?;
            let led = ring
                .groups
                .iter()
                .filter(|group| group.leader == Some(name))
                .count();
            let led = led as u64 + segments_led(self.client, name).await?;
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
    async fn take_out(&self, node: &RingNode, wish: Wish) -> Result<(), Failure> {
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
        self.bring_about(wish, true).await?;
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
        self.note(&format!(
            "{} is out of the cluster: it ends by itself",
            node.label
        ));
        Ok(())
    }

    /// Takes a node out whose disk is lost, and gives another its seats.
    async fn give_up(&self, node: &RingNode, wish: Wish) -> Result<(), Failure> {
        self.note(&format!(
            "eventual puts that {} alone had are lost with its disk; whatever was acknowledged \
             otherwise is at others",
            node.label
        ));
        self.dismiss(node, true).await?;
        self.bring_about(wish, true).await
    }

    /// Waits until no group needs a node.
    async fn not_needed(&self, node: &RingNode) -> Result<(), Failure> {
        let mut progress = Progress::begin(self.wait.patience, true);
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

    async fn dismiss(&self, node: &RingNode, lost: bool) -> Result<(), Failure> {
        let name = node.name;
        let done = match lost {
            true => Standing::Lost,
            false => Standing::Gone,
        };
        let is_done = async || {
            let ring = self.client.ring().await?;
            let known = ring.nodes.iter().find(|node| node.name == name);
            Ok::<bool, Failure>(known.is_none_or(|known| known.standing >= done))
        };
        if is_done().await? {
            return Ok(());
        }
        let change = RingChange::Dismiss { name, lost };
        match self.client.change_ring(change).await {
            // The node that was asked may be the one that is out.
            Err(error) if error.may_have_taken_effect() && is_done().await? => Ok(()),
            ended => Ok(ended?),
        }
    }

    /// Asks for the steps to a wish until the ring shows that it is so.
    async fn bring_about(&self, wish: Wish, begun: bool) -> Result<(), Failure> {
        let pressing = matches!(wish, Wish::InPlaceOf(old, _) if self.is_lost(old).await?);
        let mut progress = Progress::begin(self.wait.patience, begun);
        loop {
            let ring = self.client.ring().await?;
            let steps =
                plan::steps(&ring, &wish).map_err(|why| progress.ended(Exit::Refused, why))?;
            let mut why = None;
            for step in &steps {
                let change = RingChange::Members {
                    group: step.group,
                    after: step.after,
                    members: step.members.clone(),
                    pressing,
                };
                let ended = self.client.change_ring(change).await;
                let may = |error: &fermata_client::Error| error.may_have_taken_effect();
                progress.begun |= ended.as_ref().err().is_none_or(may);
                match ended {
                    Ok(()) => {}
                    // The ring may have gone on meanwhile, or have to.
                    Err(error) if [Code::BadRequest, Code::Unavailable].contains(&error.code()) => {
                        why = Some(error.into());
                    }
                    Err(error) => {
                        return Err(
                            progress.ended(Exit::Unavailable, Failure::from(error).sentence)
                        );
                    }
                }
            }
            let left = segments_left(&ring);
            let started = ring.groups.iter().all(|group| plan::left(group).0 == 0);
            let done = match self.wait.wait {
                Wait::Started => started,
                Wait::Moved => started && left == 0,
            };
            if steps.is_empty() && done {
                return Ok(());
            }
            let what = show::left(&ring);
            progress.watch(left + steps.len() as u64, &what, why)?;
            self.tell(&progress, &what);
            tokio::time::sleep(LOOKS).await;
        }
    }

    fn tell(&self, progress: &Progress, what: &str) {
        if progress.is_news {
            self.note(what);
        }
    }

    async fn is_lost(&self, name: NodeName) -> Result<bool, Failure> {
        let ring = self.client.ring().await?;
        let known = ring.nodes.iter().find(|node| node.name == name);
        Ok(known.is_none_or(|known| known.standing == Standing::Lost))
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
    /// Something was asked for, and may go on whatever becomes of this command.
    begun: bool,
    since: Instant,
    left: Option<u64>,
    is_news: bool,
}

impl Progress {
    fn begin(patience: Duration, begun: bool) -> Progress {
        Progress {
            patience,
            begun,
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
        Err(self.ended(Exit::Unavailable, format!("nothing gets on: {what}{last}")))
    }

    /// The end of the command, for that reason: what was begun goes on without it, and else it ends
    /// with this status.
    fn ended(&self, exit: Exit, why: String) -> Failure {
        match self.begun {
            false => Failure::new(exit, format!("{why}; nothing was changed")),
            true => Failure::new(
                Exit::OutcomeUnknown,
                format!("{why}; what was begun goes on, `fermata ring` shows it"),
            ),
        }
    }
}
