//! Requests and replies about the ring.

use super::{Code, Refusal, bad, format};
use crate::v1;
use crate::v1::change_ring_request::Change as WireChange;
use crate::v1::session_request::Operation as Wire;
use bytes::Bytes;
use fermata_protocol::base::storage::MEMBERS_MAX;
use fermata_protocol::base::{Addresses, Epoch, GroupId, Incarnation, NodeName, SegmentId};
use fermata_protocol::registry::{Newcomer, Standing};
use fermata_protocol::request::{
    Admitted, Operation, RingChange, RingGroup, RingNode, RingSource, RingStatus,
};
use fermata_protocol::wire;

/// 128 bits.
fn wide(bytes: &[u8], what: &str) -> Result<u128, Refusal> {
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| bad(format!("{what} is not 16 bytes")))?;
    Ok(u128::from_be_bytes(bytes))
}

fn bytes_of(wide: u128) -> Bytes {
    Bytes::copy_from_slice(&wide.to_be_bytes())
}

fn addresses_from(a: Option<v1::Addresses>) -> Addresses {
    let a = a.unwrap_or_default();
    Addresses {
        peer: a.peer,
        grpc: a.grpc,
        rest: a.rest,
    }
}

fn addresses_to(a: Addresses) -> v1::Addresses {
    v1::Addresses {
        peer: a.peer,
        grpc: a.grpc,
        rest: a.rest,
    }
}

pub(super) fn change_from(m: Option<WireChange>) -> Result<Operation, Refusal> {
    let change = match m {
        Some(WireChange::Members(m)) => {
            if !(1..=MEMBERS_MAX).contains(&m.members.len()) {
                let (most, named) = (MEMBERS_MAX, m.members.len());
                let why = format!("a group has 1 to {most} members, not {named}");
                return Err(bad(why));
            }
            RingChange::Members {
                group: GroupId(wide(&m.group, "group")?),
                after: Epoch(m.after),
                members: m.members.into_iter().map(NodeName).collect(),
                pressing: m.pressing,
            }
        }
        Some(WireChange::Drain(m)) => RingChange::Drain {
            name: NodeName(m.node),
            drains: m.drains,
        },
        Some(WireChange::Readdress(m)) => RingChange::Readdress {
            name: NodeName(m.node),
            addresses: addresses_from(m.addresses),
        },
        Some(WireChange::Dismiss(m)) => RingChange::Dismiss {
            name: NodeName(m.node),
            lost: m.lost,
        },
        None => return Err(bad("the request names no change")),
    };
    Ok(Operation::ChangeRing(change))
}

pub(super) fn admit_from(m: &v1::AdmitRequest) -> Result<Operation, Refusal> {
    Ok(Operation::Admit {
        newcomer: Newcomer {
            incarnation: Incarnation(wide(&m.incarnation, "incarnation")?),
            label: m.label.clone(),
            site: m.site.clone(),
            addresses: addresses_from(m.addresses.clone()),
        },
        formats: format(m.format_first)?..=format(m.format_last)?,
    })
}

/// The message of an operation on the ring.
pub(super) fn operation_to(operation: &Operation, header: Option<v1::Header>) -> Wire {
    match operation {
        Operation::Ring => Wire::Ring(v1::RingRequest { header }),
        Operation::ChangeRing(change) => Wire::ChangeRing(v1::ChangeRingRequest {
            header,
            change: Some(change_to(change)),
        }),
        Operation::Admit { newcomer, formats } => Wire::Admit(v1::AdmitRequest {
            header,
            incarnation: bytes_of(newcomer.incarnation.0),
            label: newcomer.label.clone(),
            site: newcomer.site.clone(),
            addresses: Some(addresses_to(newcomer.addresses.clone())),
            format_first: (*formats.start()).into(),
            format_last: (*formats.end()).into(),
        }),
        _ => unreachable!("only operations on the ring come here"),
    }
}

fn change_to(change: &RingChange) -> WireChange {
    match change {
        RingChange::Members {
            group,
            after,
            members,
            pressing,
        } => WireChange::Members(v1::Members {
            group: bytes_of(group.0),
            after: after.0,
            members: members.iter().map(|name| name.0).collect(),
            pressing: *pressing,
        }),
        RingChange::Drain { name, drains } => WireChange::Drain(v1::Drain {
            node: name.0,
            drains: *drains,
        }),
        RingChange::Readdress { name, addresses } => WireChange::Readdress(v1::Readdress {
            node: name.0,
            addresses: Some(addresses_to(addresses.clone())),
        }),
        RingChange::Dismiss { name, lost } => WireChange::Dismiss(v1::Dismiss {
            node: name.0,
            lost: *lost,
        }),
    }
}

pub(super) fn admitted_to(admitted: &Admitted) -> v1::Admitted {
    v1::Admitted {
        node: admitted.name.0,
        cluster: wire::encode(&admitted.cluster),
        registry: wire::encode(&admitted.registry),
        catalogue: wire::encode(&admitted.catalogue),
    }
}

pub(super) fn admitted_from(m: &v1::Admitted) -> Result<Admitted, Refusal> {
    let unreadable = |_| {
        let why = "the cluster describes itself in a way that this program does not read: start \
                   the node with another version";
        Refusal::definite(Code::BadRequest, why)
    };
    Ok(Admitted {
        name: NodeName(m.node),
        cluster: wire::decode(&m.cluster).map_err(unreadable)?,
        registry: wire::decode(&m.registry).map_err(unreadable)?,
        catalogue: wire::decode(&m.catalogue).map_err(unreadable)?,
    })
}

pub(super) fn ring_to(ring: RingStatus) -> v1::RingStatus {
    v1::RingStatus {
        node: ring.node.0,
        version: ring.version,
        least: ring.least.into(),
        nodes: ring.nodes.into_iter().map(node_to).collect(),
        groups: ring.groups.into_iter().map(group_to).collect(),
    }
}

pub(super) fn ring_from(m: v1::RingStatus) -> Result<RingStatus, Refusal> {
    Ok(RingStatus {
        node: NodeName(m.node),
        version: m.version,
        least: u8::try_from(m.least).map_err(|_| bad("least is above 255"))?,
        nodes: m
            .nodes
            .into_iter()
            .map(node_from)
            .collect::<Result<_, _>>()?,
        groups: m
            .groups
            .into_iter()
            .map(group_from)
            .collect::<Result<_, _>>()?,
    })
}

fn node_to(node: RingNode) -> v1::RingNode {
    let standing = match node.standing {
        Standing::Present => v1::Standing::Present,
        Standing::Gone => v1::Standing::Gone,
        Standing::Lost => v1::Standing::Lost,
    };
    v1::RingNode {
        node: node.name.0,
        label: node.label,
        site: node.site,
        standing: standing.into(),
        drains: node.drains,
        addresses: Some(addresses_to(node.addresses)),
        heard: node.heard,
        full: node.full,
        last_heard_us: node.last_heard,
    }
}

fn node_from(m: v1::RingNode) -> Result<RingNode, Refusal> {
    let standing = match m.standing() {
        v1::Standing::Present => Standing::Present,
        v1::Standing::Gone => Standing::Gone,
        v1::Standing::Lost => Standing::Lost,
        v1::Standing::Unspecified => return Err(bad("a node without a standing")),
    };
    Ok(RingNode {
        name: NodeName(m.node),
        label: m.label,
        site: m.site,
        standing,
        drains: m.drains,
        addresses: addresses_from(m.addresses),
        heard: m.heard,
        full: m.full,
        last_heard: m.last_heard_us,
    })
}

fn group_to(group: RingGroup) -> v1::RingGroup {
    let owed = |(name, segments): (NodeName, u32)| v1::Owed {
        node: name.0,
        segments,
    };
    let source = |source: RingSource| v1::RingSource {
        epoch: source.epoch.0,
        members: source.members.into_iter().map(|name| name.0).collect(),
        open: source.open,
        owed: source.owed.into_iter().map(owed).collect(),
    };
    v1::RingGroup {
        id: bytes_of(group.id.0),
        from: group.from.0,
        to: group.to.0,
        epoch: group.epoch.0,
        members: group.members.into_iter().map(|name| name.0).collect(),
        leader: group.leader.map(|name| name.0),
        unstarted: group.unstarted,
        sources: group.sources.into_iter().map(source).collect(),
    }
}

fn group_from(m: v1::RingGroup) -> Result<RingGroup, Refusal> {
    let source = |source: v1::RingSource| RingSource {
        epoch: Epoch(source.epoch),
        members: source.members.into_iter().map(NodeName).collect(),
        open: source.open,
        owed: source
            .owed
            .into_iter()
            .map(|owed| (NodeName(owed.node), owed.segments))
            .collect(),
    };
    Ok(RingGroup {
        id: GroupId(wide(&m.id, "a group's id")?),
        from: SegmentId(m.from),
        to: SegmentId(m.to),
        epoch: Epoch(m.epoch),
        members: m.members.into_iter().map(NodeName).collect(),
        leader: m.leader.map(NodeName),
        unstarted: m.unstarted,
        sources: m.sources.into_iter().map(source).collect(),
    })
}
