"""Records of every kind, for the tests of exchange."""

import string
from dataclasses import fields, replace

from hypothesis import strategies as st

from labelchef.data.dataset import LabelOrigin
from labelchef.data.exchange.records import Prediction, Record, RecordSet

TRICKY = [
    *(
        "007",
        "=1+1",
        "'=1+1",
        "@cmd",
        "-5",
        "+x",
        "a,b",
        'say "hi"',
        "line\nbreak",
        "cr\rlf\r\n",
        "NaN",
        "null",
        "True",
    ),
    *("1.50", "", "ümläut 平", "\t", "'", "<b>&"),
]
texts = st.one_of(st.sampled_from(TRICKY), st.text(max_size=12))
names = st.one_of(st.sampled_from([t for t in TRICKY if t]), st.text(min_size=1, max_size=8))
people = st.text(string.ascii_letters + "ü.@ -", min_size=1, max_size=10).map(lambda name: f"p{name}p")
shares = st.floats(0.0, 1.0, allow_nan=False)


@st.composite
def record_sets(draw: st.DrawFn, class_names: st.SearchStrategy[str] = names, full: bool = False) -> RecordSet:
    """Any set; `full` gives every record a label and every probability, as tables of predictions have."""
    classes = draw(st.lists(class_names, min_size=2, max_size=4, unique=True))
    columns = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    ids = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    some = st.sampled_from(classes)
    records = [
        Record(
            id=id,
            content={name: draw(st.none() | texts) for name in columns},
            label=draw(some if full else st.none() | some),
            probability=draw(st.none() | shares),
            origin=draw(st.none() | st.sampled_from(LabelOrigin)),
            answers=draw(st.dictionaries(people, st.none() | some, max_size=3)),
            votes=draw(st.dictionaries(names, some, max_size=3)),
            predictions=tuple(
                Prediction(*one) for one in draw(st.lists(st.tuples(names, some, st.none() | shares), max_size=2))
            ),
            probabilities={name: draw(shares) for name in classes} if full or draw(st.booleans()) else {},
            flags=tuple(draw(st.lists(names, max_size=2))),
            rank=draw(st.none() | st.integers(0, 10**9)),
        )
        for id in ids
    ]
    split = draw(st.integers(1, len(columns)))
    return RecordSet.of(records, classes, texts=columns[:split], images=columns[split : split + 1])


def carried(given: RecordSet, parts: frozenset[str]) -> dict[str, Record]:
    """The records by id, with nothing but the parts that a format carries."""
    empty = Record("")
    dropped = {one.name: getattr(empty, one.name) for one in fields(Record) if one.name not in parts}
    return {one.id: replace(one, **dropped) for one in given.records}
