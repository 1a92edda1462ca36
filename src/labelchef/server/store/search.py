"""Full-text search of items: the table `item_text`, which triggers fill when items are inserted and clear when they are deleted.

On SQLite it is an FTS5 table without content (rowid = item id), on PostgreSQL a table of `tsvector`s with a GIN index. What is
searched of an item is its text, its key and the values of its fields, the first 100,000 characters of the text. Words are runs
of letters and digits, without regard to case (on SQLite also without regard to accents).

A query is words, beginnings of words (`word*`) and "phrases"; all of them must occur. `parse` makes terms of what a person
typed. It never fails: what is no letter or digit only parts words. A SQLite without FTS5 searches by LIKE.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from labelchef.base.campaigns import SplitName
from labelchef.server.store.tables import Item

TABLE = "item_text"
_LONGEST = 100_000
_MOST_TERMS = 32
_TERM = re.compile(r'"([^"]*)"?|(\S+)')
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Term:
    """Words that follow each other; with `prefix`, the last one may go on."""

    words: tuple[str, ...]
    prefix: bool = False


def parse(query: str) -> tuple[Term, ...]:
    """The terms of a query; those without a letter or digit are left out.

    >>> parse('Free "win a prize" tax* don\\'t AND -x ***')[:3]
    (Term(words=('free',), prefix=False), Term(words=('win', 'a', 'prize'), prefix=False), Term(words=('tax',), prefix=True))
    >>> parse('" * (')
    ()
    """
    found = []
    for phrase, plain in _TERM.findall(query):
        words = tuple(_WORD.findall((phrase or plain).lower()))
        if words:
            found.append(Term(words, prefix=bool(plain) and plain.endswith("*")))
    return tuple(found[:_MOST_TERMS])


def create(connection: sa.Connection) -> None:
    """Make the index. Nothing is made on a SQLite without FTS5."""
    if connection.dialect.name == "sqlite" and not _has_fts5(connection):
        return
    for statement in _STATEMENTS[connection.dialect.name]:
        connection.exec_driver_sql(statement)


def _has_fts5(connection: sa.Connection) -> bool:
    return connection.exec_driver_sql("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").first() is not None


def has_index(connection: sa.Connection) -> bool:
    """Whether there is a full-text index."""
    known = _indexed.get(connection.engine)
    if known is None:
        known = _indexed[connection.engine] = sa.inspect(connection).has_table(TABLE)
    return known


_indexed: "WeakKeyDictionary[sa.Engine, bool]" = WeakKeyDictionary()


def matching_ids(
    connection: sa.Connection,
    campaign_id: int,
    split: SplitName,
    terms: Sequence[Term],
    ids: tuple[int, int],
    most: int,
) -> Iterator[int]:
    """Inner ids of the first `most` items within `ids` (first, last) that hold all terms, as the index finds them; there may be
    ids of other campaigns among them, if those were made by an earlier version."""
    if not terms:
        return iter(())
    low, high = ids
    if not has_index(connection):
        return _by_like(connection, campaign_id, split, terms, most)
    kind = connection.dialect.name
    if kind == "postgresql":
        connection.exec_driver_sql(_PLAN_FOR_EACH)
    found = connection.execute(_MATCH[kind], {"q": _QUERY[kind](terms), "low": low, "high": high, "most": most})
    return (row[0] for row in found.yield_per(10_000))


def _by_like(
    connection: sa.Connection, campaign_id: int, split: SplitName, terms: Iterable[Term], most: int
) -> Iterator[int]:
    where = [
        sa.func.lower(sa.func.coalesce(Item.c.text, "") + " " + Item.c.key).contains(
            " ".join(term.words), autoescape=True
        )
        for term in terms
    ]
    found = sa.select(Item.c.id).where(Item.c.campaign_id == campaign_id, Item.c.split == split, *where)
    return iter(connection.execute(found.limit(most)).scalars())


def _fts5_query(terms: Iterable[Term]) -> str:
    """
    >>> _fts5_query(parse('free "win a" tax*'))
    '"free" AND "win a" AND "tax" *'
    """
    return " AND ".join(f'"{" ".join(term.words)}"' + (" *" if term.prefix else "") for term in terms)


def _tsquery(terms: Iterable[Term]) -> str:
    """
    >>> _tsquery(parse('free "win a" tax*'))
    "'free' & ('win' <-> 'a') & 'tax':*"
    """
    said = [(" <-> ".join(f"'{word}'" for word in term.words) + (":*" if term.prefix else ""), term) for term in terms]
    return " & ".join(f"({text})" if len(term.words) > 1 else text for text, term in said)


_PLAN_FOR_EACH = "SET LOCAL plan_cache_mode = force_custom_plan"
"""One plan for all words, as PostgreSQL makes for statements that are run often, reads all items in order to find a rare one."""
_QUERY = {"sqlite": _fts5_query, "postgresql": _tsquery}
_MATCH = {
    "sqlite": sa.text(f"SELECT rowid FROM {TABLE} WHERE {TABLE} MATCH :q AND rowid BETWEEN :low AND :high LIMIT :most"),
    "postgresql": sa.text(
        f"SELECT item_id FROM {TABLE} WHERE body @@ to_tsquery('simple', :q) AND item_id BETWEEN :low AND :high LIMIT :most"
    ),
}


def _sqlite_body(row: str) -> str:
    values = f"SELECT group_concat(value, ' ') FROM json_each({row}.fields)"
    return f"substr(coalesce({row}.text, ''), 1, {_LONGEST}) || ' ' || {row}.key || ' ' || coalesce(({values}), '')"


_POSTGRES_BODY = (
    "to_tsvector('simple', regexp_replace("
    f"left(coalesce({{0}}.text, ''), {_LONGEST}) || ' ' || {{0}}.key || ' ' || "
    "coalesce((SELECT string_agg(value, ' ') FROM json_each_text({0}.fields)), ''), "
    r"'[!-/:-@\[-`{{-~]+', ' ', 'g'))"
)
_STATEMENTS = {
    "sqlite": (
        f"CREATE VIRTUAL TABLE {TABLE} USING fts5(body, content='', tokenize='unicode61 remove_diacritics 2')",
        f"CREATE TRIGGER {TABLE}_insert AFTER INSERT ON item BEGIN "
        f"INSERT INTO {TABLE}(rowid, body) VALUES (new.id, {_sqlite_body('new')}); END",
        f"CREATE TRIGGER {TABLE}_delete AFTER DELETE ON item BEGIN "
        f"INSERT INTO {TABLE}({TABLE}, rowid, body) VALUES ('delete', old.id, {_sqlite_body('old')}); END",
    ),
    "postgresql": (
        f"CREATE TABLE {TABLE} (item_id BIGINT PRIMARY KEY REFERENCES item (id) ON DELETE CASCADE, body tsvector NOT NULL)",
        f"CREATE INDEX ix_{TABLE}_body ON {TABLE} USING gin (body)",
        f"CREATE FUNCTION labelchef_{TABLE}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"INSERT INTO {TABLE} (item_id, body) VALUES (NEW.id, {_POSTGRES_BODY.format('NEW')}); RETURN NEW; END $$",
        f"CREATE TRIGGER {TABLE}_insert AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION labelchef_{TABLE}()",
    ),
}
