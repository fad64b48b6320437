"""Which columns of the records each written column is made of, as Spark's analyzed plan says it.

The plan is read as JSON in one call; no Spark job runs. The names of uses are those of OpenLineage's facet
`columnLineage`. A column that something opaque makes, such as a function on whole DataFrames, is left out.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
"""How a value may be made of another; the last one of a chain of such uses wins."""
CONDITIONAL, WINDOW = "CONDITIONAL", "WINDOW"
"""How a column may affect which value another one has."""
ROW_EXPRESSIONS = {
    "Filter": ("condition", "FILTER"),
    "Join": ("condition", "JOIN"),
    "Sort": ("order", "SORT"),
    "Aggregate": ("groupingExpressions", "GROUP_BY"),
}
"""The plans whose expressions affect which rows there are: the field that holds them, and their use."""
COLUMNS_TRACED = 200
SOURCES_TRACED = 2000
"""How many pairs of a written column and a column of the records are kept."""
MAX_PLAN_CHARACTERS = 5_000_000
"""A longer plan is not read. A transform that adds a column in each of 200 steps has one."""

ColumnLineage = Mapping[str, Mapping[str, Any]]
"""A JSON object: `columns` has the uses of each column of the records by written column, and `rows` those that affect
which rows there are. A use is a subtype of OpenLineage's transformations."""


def unchanged(columns: Iterable[str]) -> ColumnLineage:
    """Return the lineage of columns that are written as they were read."""
    return {"columns": {name: {name: [DIRECT[0]]} for name in islice(columns, COLUMNS_TRACED)}, "rows": {}}


def traced(records: DataFrame, rows: DataFrame, without: Collection[str] = ()) -> ColumnLineage:
    """Return the lineage of rows that were made of records; empty if it cannot be found.

    :param records: the records.
    :param rows: what became of them.
    :param without: the columns that belong to neither.
    """
    try:
        return _traced(_plan_of(records), _plan_of(rows), without)
    except Exception as error:  # for example a plan that has no JSON form, or is too large
        log.info("the lineage of columns is not known: %s: %s", type(error).__name__, str(error)[:200])
        return {}


def _plan_of(frame: DataFrame) -> _Tree:
    """Return the plan of a frame, below one more plan that lists its columns."""
    text = frame.select("*")._jdf.queryExecution().analyzed().toJSON()
    if len(text) > MAX_PLAN_CHARACTERS:
        raise ValueError(f"the plan has {len(text)} characters")
    return _tree(json.loads(text))


def _traced(records: _Tree, rows: _Tree, without: Collection[str]) -> ColumnLineage:
    names = [name for _, name in _columns_of(records)]
    known = {
        number: name
        for read in (records, *_repeated(records.children[0], rows))
        for number, name in zip(_output(read), names, strict=True)
        if name not in without
    }
    plan = _Plan.of(rows, known)
    columns: dict[str, dict[str, list[str]]] = {}
    left = SOURCES_TRACED
    for number, name in islice(_columns_of(rows), COLUMNS_TRACED):
        uses = {} if name in without else plan.sources(number)
        if uses and (left := left - len(uses)) >= 0:
            columns[name] = _as_lists(uses)
    affecting: dict[str, set[str]] = defaultdict(set)
    for number, use in plan.row_uses:
        for name in plan.sources(number):
            affecting[name].add(use)
    return {"columns": columns, "rows": _as_lists(dict(islice(affecting.items(), COLUMNS_TRACED)))}


def _as_lists(uses: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    return {name: sorted(found) for name, found in uses.items()}


# Trees


@dataclass(frozen=True)
class _Tree:
    """A plan or an expression.

    :param fields: its own fields; those that hold children have the children's numbers.
    :param children: the plans or expressions below it.
    """

    fields: Mapping[str, Any]
    children: Sequence[_Tree]

    @property
    def kind(self) -> str:
        """The name of its class."""
        return str(self.fields["class"]).rpartition(".")[2]

    @property
    def number(self) -> int:
        """The id of a column that it names or makes."""
        return int(self.fields["exprId"]["id"])

    @property
    def size(self) -> int:
        """How many plans or expressions it consists of; in contrast to its shape, this is found fast."""
        return sum(1 for _ in self.nodes())

    @property
    def shape(self) -> object:
        """What it is but for the ids of its columns."""
        own = {name: _without_ids(value) for name, value in self.fields.items()}
        return own, [child.shape for child in self.children]

    def nodes(self) -> Iterator[_Tree]:
        """Yield it, and everything below it."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def expressions(self, name: str) -> Iterator[_Tree]:
        """Yield the expressions that a plan has in a field."""
        yield from _trees(self.fields.get(name))


def _tree(nodes: Sequence[Mapping[str, Any]]) -> _Tree:
    """Return the tree whose nodes are listed, each before its children."""
    remaining = iter(nodes)

    def read() -> _Tree:
        fields = next(remaining)
        return _Tree(fields, [read() for _ in range(fields["num-children"])])

    return read()


def _trees(value: object) -> Iterator[_Tree]:
    """Yield the trees of a field's value, which may be one tree or several."""
    if not isinstance(value, list) or not value:
        return
    if isinstance(value[0], Mapping) and "num-children" in value[0]:
        yield _tree(value)
        return
    for each in value:
        yield from _trees(each)


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_ids(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _without_ids(each) for name, each in value.items() if name not in ("exprId", "resultId")}
    return value


def _columns_of(plan: _Tree) -> list[tuple[int, str]]:
    """Return the ids and the names of the columns that the topmost plan lists."""
    return [(tree.number, str(tree.fields["name"])) for tree in plan.expressions("projectList")]


def _repeated(records: _Tree, rows: _Tree) -> list[_Tree]:
    """Return where a plan reads the records; where it does so again, as in a join with themselves, ids are others."""
    size, shape = records.size, records.shape
    return [node for node in rows.nodes() if node.kind == records.kind and node.size == size and node.shape == shape]


# Uses


def _chained(outer: str, inner: str) -> str:
    """Return the use of a column in a value that is used again."""
    for use in (outer, inner):
        if use not in DIRECT:
            return use
    return max(outer, inner, key=DIRECT.index)


def _references(tree: _Tree, use: str = DIRECT[0]) -> Iterator[tuple[int, str]]:
    """Yield the columns that an expression refers to, by their ids, each with its use."""
    kind, count = tree.kind, len(tree.children)
    if kind == "AttributeReference":
        yield tree.number, use
        return
    own = {"Alias": DIRECT[0], "AggregateExpression": DIRECT[2], "WindowSpecDefinition": WINDOW}.get(kind, DIRECT[1])
    conditions = {"If": {0}, "CaseWhen": {2 * pair for pair in range(count // 2)}}.get(kind, set())
    for number, child in enumerate(tree.children):
        below = CONDITIONAL if number in conditions else own
        yield from _references(child, _chained(use, below))


@dataclass
class _Plan:
    """How the columns of a plan are made.

    :param known: the names of the columns of the records, by their ids.
    :param made: the columns, by their ids, that each other column is made of, with their uses.
    :param row_uses: the columns that affect which rows there are, with their uses.
    """

    known: Mapping[int, str]
    made: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    row_uses: list[tuple[int, str]] = field(default_factory=list)
    _found: dict[int, dict[str, set[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: _Tree, known: Mapping[int, str]) -> _Plan:
        """Return the plan, with all that its nodes say."""
        result = cls(known)
        for node in plan.nodes():
            result._note(node)
        return result

    def sources(self, number: int) -> dict[str, set[str]]:
        """Return the uses of the records' columns in a column, by name; empty if it is made of none, or unknown."""
        if number in self._found:
            return self._found[number]
        found: dict[str, set[str]] = defaultdict(set)
        self._found[number] = found  # a union may refer to itself
        if number in self.known:
            found[self.known[number]].add(DIRECT[0])
        for below, use in self.made.get(number, ()):
            for name, inner in list(self.sources(below).items()):
                found[name] |= {_chained(use, each) for each in inner}
        return found

    def _note(self, node: _Tree) -> None:
        """Note what a node of the plan makes, and what affects its rows."""
        for value in node.fields.values():
            for tree in _trees(value):
                self._note_aliases(tree)
        name, use = ROW_EXPRESSIONS.get(node.kind, ("", ""))
        self.row_uses += [(number, use) for tree in node.expressions(name) for number, _ in _references(tree)]
        if node.kind == "Generate":
            made_of = [each for tree in node.expressions("generator") for each in _references(tree, DIRECT[1])]
            for column in node.expressions("generatorOutput"):
                self.made[column.number] += made_of
        if node.kind == "Union":
            first, *others = (_output(child) for child in node.children)
            for other in others:
                for ours, theirs in zip(first, other, strict=True):
                    self.made[ours].append((theirs, DIRECT[0]))

    def _note_aliases(self, tree: _Tree) -> None:
        for node in tree.nodes():
            if node.kind == "Alias" and node.number not in self.known:
                self.made[node.number] += _references(node)


def _output(plan: _Tree) -> list[int]:
    """Return the ids of a plan's columns.

    :raises ValueError: if this module does not know how the plan makes them.
    """
    for name in ("projectList", "aggregateExpressions", "output"):
        if name in plan.fields:
            return [tree.number for tree in plan.expressions(name)]
    if plan.kind == "Join" or len(plan.children) != 1 or plan.kind in ("Generate", "Window"):
        raise ValueError(f"the columns of {plan.kind} below a union are not known")
    return _output(plan.children[0])
