//! Beyond the fault model: two memories under one name, and a machine that lies. Nothing promises
//! anything there; these schedules show what it costs, and that the checkers see it.

use super::stage::{A, B, C, Stage, value};
use crate::history::Heard;
use crate::network::{ClientId, End, Parcel};
use fermata_protocol::Message;
use fermata_protocol::base::NodeName;
use fermata_protocol::client::Call;
use fermata_protocol::register::{Answer, Message as Register};

/// A, B and one node beside them on one side; C and two nodes on the other, and B's twin. Each side
/// has a majority of memories that answer.
pub(super) fn copied_directory(stage: &mut Stage) {
    let (writer, reader) = (stage.client(&[4]), stage.client(&[5]));
    let [one, other] = [
        [1, 4].map(NodeName).to_vec(),
        [3, 5, 6].map(NodeName).to_vec(),
    ];
    for name in one {
        stage.cut(name, &other);
    }
    stage.world.twin(B, move |parcel| match parcel.ends().0 {
        End::Node(from) => other.contains(&from),
        End::Client(from) => from == reader,
    });
    stage.pass(3_000);
    write_then_read(stage, writer, reader);
}

/// A write is at A and B when A dies. B says what it said before the write.
pub(super) fn lying_replica(stage: &mut Stage) {
    let (writer, reader) = (stage.client(&[4]), stage.client(&[5]));
    let mut first: Option<Answer> = None;
    stage.world.lie(B, move |mut parcel| {
        if let Parcel::Peer { message, .. } = &mut parcel
            && let Message::Register(Register::Answer { answer, .. }) = message
            && matches!(answer, Answer::Cells { .. })
        {
            *answer = first.get_or_insert_with(|| answer.clone()).clone();
        }
        vec![parcel]
    });
    let key = stage.register();
    let read = stage.call(writer, Call::Read { key });
    stage.wait(read);
    stage.cut(C, &[A, NodeName(4)]);
    let written = stage.until_written(writer);
    stage.expect(written, "A and B are a quorum");
    stage.world.stop(A, true);
    stage.mend();
    let key = stage.register();
    let read = stage.call(reader, Call::Read { key });
    stage.wait(read);
    stage.audited = false;
}

fn write_then_read(stage: &mut Stage, writer: ClientId, reader: ClientId) {
    let written = stage.until_written(writer);
    stage.expect(written, "A and B are a quorum");
    let key = stage.register();
    let read = stage.call(reader, Call::Read { key });
    let read = stage.wait(read);
    stage.expect(matches!(read, Heard::Value(_)), "so are C and the twin");
    stage.audited = false;
}

impl Stage {
    /// Writes the register: whether that was acknowledged.
    fn until_written(&mut self, client: ClientId) -> bool {
        let (key, value) = (self.register(), value("w"));
        let write = self.call(client, Call::Write { key, value });
        let outcome = self.wait(write);
        // What is called at the moment of a return is concurrent.
        self.pass(1);
        matches!(outcome, Heard::Done(_))
    }
}
