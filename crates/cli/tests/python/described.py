"""A counter in critical sections, over REST, by a client that was generated from /openapi.json.

usage: described.py FOLDER REST ROUNDS

FOLDER has the generated package `described`. Each round adds one to the counter; then keys are
listed page by page, and what is refused is told by its code.
"""
import sys

sys.path.insert(0, sys.argv[1])
from described import Client  # noqa: E402
from described.api.default import (  # noqa: E402
    enter_section,
    get_liveness,
    get_section,
    get_status,
    get_value,
    list_keys,
    put_section_value,
    put_value,
)
from described.models import (  # noqa: E402
    Key,
    NewSection,
    NewValue,
    Problem,
    PutValueConsistency,
    SectionState,
)
from described.types import UNSET  # noqa: E402

client = Client(base_url=f"http://{sys.argv[2]}", timeout=60)


def ok(answer):
    assert not isinstance(answer, Problem), answer
    return answer


assert get_liveness.sync(client=client) == "ok\n"
node = ok(get_status.sync(client=client)).node

for _ in range(int(sys.argv[3])):
    keys = NewSection(keys=[Key(key="described")], wait_ms=60_000)
    section = ok(enter_section.sync(client=client, body=keys))
    assert section.state == SectionState.ENTERED, section
    found = section.keys[0].value
    value = NewValue(value=str(1 + (0 if found is UNSET else int(found))))
    ok(put_section_value.sync(section.id, "described", client=client, body=value, leave=True))
    assert get_section.sync(section.id, client=client).state == SectionState.LEFT

names = [f"{node}/{at}" for at in range(5)]
for name in names:
    ok(
        put_value.sync(
            "registers",
            name,
            client=client,
            body=NewValue(value="v"),
            consistency=PutValueConsistency.LINEARIZABLE,
        )
    )
seen, cursor = [], UNSET
while True:
    page = ok(list_keys.sync("registers", client=client, prefix=f"{node}/", limit=2, cursor=cursor))
    seen += [key.key for key in page.keys]
    if not page.more:
        break
    cursor = page.cursor
assert seen == names, seen

missing = get_value.sync("default", "no/such", client=client)
assert isinstance(missing, Problem) and missing.code == "no_value", missing
