"""A counter in a critical section, by generated stubs alone; its node may die at any time.

usage: counter.py STUBS KEY ROUNDS ENDPOINT...

Each round adds one to the counter under KEY and says "round N value V". The client goes on at the
next endpoint when its node is gone: it opens a session there and resumes its section by the secret
of the former session and the refs that its entry told.
"""
import sys
import time

import grpc

sys.path.insert(0, sys.argv[1])
from fermata.v1 import fermata_pb2 as pb  # noqa: E402
from fermata.v1 import sessions_pb2 as api  # noqa: E402
from fermata.v1 import sessions_pb2_grpc as service  # noqa: E402

# What a call at a dead node may take before the next one is asked.
PATIENCE = 20


class Over(Exception):
    """The section is over: somebody else may be in it."""


class Moved(Exception):
    """The session went on at another node: of what was under way nothing is known."""


class Client:
    def __init__(self, endpoints):
        self.endpoints, self.at = endpoints, -1
        self.secret = self.section = self.stream = None
        self.held = []
        self.connect()

    def connect(self):
        """A session at the next node that answers."""
        while True:
            self.at = (self.at + 1) % len(self.endpoints)
            self.stub = service.SessionsStub(grpc.insecure_channel(self.endpoints[self.at]))
            try:
                opened = self.stub.Open(api.OpenSessionRequest(), timeout=3)
                self.secret = opened.secret
                return
            except grpc.RpcError:
                time.sleep(0.1)

    def entered(self, stream):
        """Waits for the entry; the stream stays open, which keeps the session alive."""
        for event in stream:
            if event.HasField("entered"):
                print("entered", flush=True)
                self.stream, self.section = stream, event.entered.section
                self.held = [key.held for key in event.entered.keys]
                return
        raise Over

    def enter(self, key):
        while True:
            try:
                request = api.EnterSectionRequest(secret=self.secret, keys=[key])
                return self.entered(self.stub.Enter(request))
            except grpc.RpcError as error:
                # What was enqueued ends by its lease.
                print("enter:", error.details(), flush=True)
                self.connect()

    def resume(self):
        """The same section at another node. Not within its lease: the new generation waits."""
        former = self.secret
        while True:
            self.connect()
            request = api.ResumeSectionRequest(
                secret=self.secret, former=former, held=self.held)
            try:
                return self.entered(self.stub.Resume(request))
            except grpc.RpcError as error:
                print("resume:", error.details(), flush=True)
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                    raise Over from None

    def call(self, method, request):
        """One call in the section."""
        try:
            return getattr(self.stub, method)(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            print(f"{method}:", error.details(), flush=True)
            self.resume()
            raise Moved from None

    def get(self, key):
        request = api.SectionKeyRequest(secret=self.secret, section=self.section, key=key)
        got = self.call("Get", request)
        return int(got.value) if got.HasField("value") else 0

    def put(self, key, value):
        self.call("Put", api.SectionPutRequest(
            secret=self.secret, section=self.section, key=key, value=str(value).encode()))

    def leave(self):
        try:
            request = api.SectionRequest(secret=self.secret, section=self.section)
            self.stub.Leave(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            # Its lease ends it.
            print("Leave:", error.details(), flush=True)


def add_one(client, key):
    """Whether the counter was raised in one section, and to what."""
    client.enter(key)
    goal = None
    while True:
        try:
            now = client.get(key)
            goal = goal or now + 1
            # Nobody else has written in between: a put without an answer was done, or it was not.
            if now != goal:
                client.put(key, goal)
            client.leave()
            return goal
        except Moved:
            continue


def main():
    key = pb.Key(keyspace="default", key=sys.argv[2].encode())
    client = Client(sys.argv[4:])
    done = 0
    while done < int(sys.argv[3]):
        try:
            value = add_one(client, key)
        except Over:
            print("over", flush=True)
            continue
        done += 1
        print(f"round {done} value {value}", flush=True)


main()
