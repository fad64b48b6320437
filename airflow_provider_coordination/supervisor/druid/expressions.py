"""Translation of Druid's expressions into SQL of Spark: what has the same value in both, also for null.

Everything else is refused by name. Druid decides by each value whether it is text or a number; here the type of its
column decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_coordination.supervisor.druid.filters import MAX_DEPTH, identifier, quoted
from airflow_provider_coordination.supervisor.druid.rows import UnsupportedFieldError

TEXT, WHOLE, DOUBLE, TRUTH, NULL = "STRING", "BIGINT", "DOUBLE", "BOOLEAN", "NULL"
NUMBERS = (WHOLE, DOUBLE)
TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE]-?\d+)?)
    |(?P<text>'(?:[^'\\]|\\.)*')
    |(?P<name>[A-Za-z_$][A-Za-z0-9_$]*|"(?:[^"\\]|\\.)*")
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%^!<>(),]))""",
    re.VERBOSE | re.DOTALL,
)
LEVELS = (("&&", "||"), ("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/", "%"))
"""Druid's operators from the loosest to the tightest. `&&` and `||` are equally tight there."""
SQL_SIGNS = {"==": "=", "!=": "<>", "&&": "AND", "||": "OR"}
REFUSED_SIGNS = {
    "/": "divides whole numbers without a remainder", "%": "fails on zero", "^": "makes whole numbers of powers",
}  # fmt: skip
STRINGS = ("lower", "upper", "trim", "ltrim", "rtrim")
"""Functions of one text that have the same name and result in Spark."""


@dataclass(frozen=True)
class Sql:
    """An expression of Spark.

    :param text: the expression, in brackets if it has operators.
    :param kind: the type of its value.
    :param literal: the text that it is; None if it is none.
    """

    text: str
    kind: str
    literal: str | None = None


class Expressions:
    """Translates expressions over the columns of a schema.

    :param columns: the type of each column, by name.
    :param names: the columns that have another name in Druid, by that name.
    """

    def __init__(self, columns: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._columns = columns
        self._names = names

    def translate(self, expression: str) -> Sql:
        """Return an expression.

        :raises UnsupportedFieldError: naming the part of it that has no equal.
        """
        return _Parser(tokens_of(expression), self._column).whole()

    def _column(self, name: str) -> Sql:
        own = self._names.get(name, name)
        kind = self._columns.get(own)
        if kind not in (TEXT, *NUMBERS):
            what = "not a column" if kind is None else f"of type {kind}"
            raise UnsupportedFieldError(f"{name!r} is {what} here, and only text, long and double are translated")
        return Sql(identifier(own), kind)


def tokens_of(expression: str) -> list[tuple[str, str]]:
    """Return the parts of an expression, each with its sort.

    :raises UnsupportedFieldError: if a part is of no known sort.
    """
    found, position = [], 0
    text = expression.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise UnsupportedFieldError(f"{text[position:].strip()[:20]!r} is not translated")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return found


def columns_of(expression: str) -> list[str]:
    """Return the columns that an expression names.

    :raises UnsupportedFieldError: if a part of it is of no known sort.
    """
    tokens = tokens_of(expression)
    following = [*tokens[1:], ("", "")]
    return [
        _unquoted(text)
        for (sort, text), after in zip(tokens, following, strict=True)
        if sort == "name" and after[1] != "(" and text != "null"
    ]


def _unquoted(name: str) -> str:
    if not name.startswith('"'):
        return name
    try:
        return str(json.loads(name.replace("\\'", "'"), strict=False))
    except ValueError:
        raise UnsupportedFieldError(f"the name {name} has an unknown escape") from None


class _Parser:
    """Reads an expression from the left to the right."""

    def __init__(self, tokens: Sequence[tuple[str, str]], column: Callable[[str], Sql]) -> None:
        self._tokens = [*tokens, ("end", "")]
        self._column = column
        self._at = 0
        self._depth = 0

    def whole(self) -> Sql:
        result = self._level(0)
        if self._tokens[self._at][0] != "end":
            raise UnsupportedFieldError(f"{self._next!r} is not expected there")
        return result

    @property
    def _next(self) -> str:
        return self._tokens[self._at][1]

    def _take(self) -> tuple[str, str]:
        self._at += 1
        return self._tokens[self._at - 1]

    def _level(self, level: int) -> Sql:
        """Read operators of one level and of tighter ones."""
        if level == len(LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self._next in LEVELS[level] and self._tokens[self._at][0] == "sign":
            sign = self._take()[1]
            left = _combined(sign, left, self._level(level + 1))
        return left

    def _unary(self) -> Sql:
        sort, text = self._tokens[self._at]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnsupportedFieldError(f"it is nested more than {MAX_DEPTH} levels deep")
        if sort == "sign" and text in ("!", "-"):
            self._take()
            value = self._unary()
            value = (
                Sql(f"(NOT {_truth(value)})", TRUTH)
                if text == "!"
                else Sql(f"(- {_number('-', value).text})", value.kind)
            )
        else:
            value = self._primary()
        self._depth -= 1
        if self._next == "^":
            raise _refused_sign("^")
        return value

    def _primary(self) -> Sql:
        sort, text = self._take()
        match sort:
            case "number":
                return Sql(f"{text}L", WHOLE) if text.isdigit() else Sql(f"{float(text)!r}D", DOUBLE)
            case "text":
                value = _value_of(text)
                return Sql(quoted(value), TEXT, value)
            case "name" if self._next == "(":
                return _called(text, self._arguments())
            case "name" if text == "null":
                return Sql("NULL", NULL)
            case "name":
                return self._column(_unquoted(text))
        if text != "(":
            raise UnsupportedFieldError(f"{text!r} is not expected there" if text else "it ends too early")
        inner = self._level(0)
        self._close()
        return inner

    def _arguments(self) -> list[Sql]:
        self._take()
        arguments: list[Sql] = []
        while self._next != ")":
            if arguments and self._take()[1] != ",":
                raise UnsupportedFieldError("a comma is missing between arguments")
            arguments.append(self._level(0))
        self._close()
        return arguments

    def _close(self) -> None:
        if self._take()[1] != ")":
            raise UnsupportedFieldError("a bracket is not closed")


def _value_of(text: str) -> str:
    """Return the value of a literal text, whose escapes are those of JSON and a single quotation mark."""
    body = text[1:-1].replace("\\'", "'")
    escaped = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', body)
    try:
        return str(json.loads(f'"{escaped}"', strict=False))
    except ValueError:
        raise UnsupportedFieldError(f"the text {text} has an unknown escape") from None


def _combined(sign: str, left: Sql, right: Sql) -> Sql:
    """Return what an operator makes of two values; null if one of them is null, except for AND and OR as in SQL."""
    if sign in ("&&", "||"):
        return Sql(f"({_truth(left)} {SQL_SIGNS[sign]} {_truth(right)})", TRUTH)
    if sign in REFUSED_SIGNS:
        raise _refused_sign(sign)
    if sign in ("+", "-", "*"):
        _number(sign, left), _number(sign, right)
        kind = DOUBLE if DOUBLE in (left.kind, right.kind) else WHOLE
        return Sql(f"({left.text} {sign} {right.text})", kind)
    kinds = {left.kind, right.kind} - {NULL}
    if not (kinds <= {TEXT} or kinds <= set(NUMBERS)):
        raise UnsupportedFieldError(f"{sign!r} compares {left.kind} with {right.kind}; Druid looks at each value")
    if TEXT in kinds and sign not in ("==", "!="):
        raise UnsupportedFieldError(f"{sign!r} of text orders by UTF-16 in Druid, and by code points in Spark")
    return Sql(f"({left.text} {SQL_SIGNS.get(sign, sign)} {right.text})", TRUTH)


def _truth(value: Sql) -> str:
    """Return whether a value counts as true: a number does if it is positive."""
    if value.kind in (TRUTH, NULL):
        return f"CAST({value.text} AS BOOLEAN)" if value.kind == NULL else value.text
    if value.kind == TEXT:
        raise UnsupportedFieldError(f"the text {value.text} is used as a condition; compare it")
    return f"({value.text} > 0)"


def _number(sign: str, value: Sql) -> Sql:
    if value.kind not in NUMBERS:
        raise UnsupportedFieldError(f"{sign!r} needs columns of type long or double; {value.text} is {value.kind}")
    return value


def _refused_sign(sign: str) -> UnsupportedFieldError:
    return UnsupportedFieldError(f"{sign!r} {REFUSED_SIGNS[sign]} in Druid, and not in Spark")


def _called(name: str, arguments: list[Sql]) -> Sql:
    """Return the result of a function."""
    count = len(arguments)
    match name, count:
        case (("isnull" | "notnull"), 1):
            return Sql(f"({arguments[0].text} IS {'NOT ' * (name == 'notnull')}NULL)", TRUTH)
        case "if", 3:
            return _case([(_truth(arguments[0]), arguments[1])], arguments[2])
        case "nvl", 2:
            return _first_given(arguments)
        case "coalesce", _ if count:
            return _first_given(arguments)
        case "case_searched", _ if count > 1:
            pairs = list(zip(arguments[0 : count - 1 : 2], arguments[1::2], strict=False))
            return _case([(_truth(when), then) for when, then in pairs], arguments[-1] if count % 2 else None)
        case "case_simple", _ if count > 2:
            value, *others = arguments
            pairs = list(zip(others[0 : len(others) - 1 : 2], others[1::2], strict=False))
            whens = [(_combined("==", value, when).text, then) for when, then in pairs]
            return _case(whens, others[-1] if len(others) % 2 else None)
        case "concat", _ if count:
            return Sql(f"concat({', '.join(_text(name, each, WHOLE) for each in arguments)})", TEXT)
        case "replace", 3:
            if not arguments[1].literal or arguments[2].literal is None:
                raise UnsupportedFieldError("'replace' is translated only with literal texts to find and to put")
            return Sql(f"replace({', '.join(_text(name, each) for each in arguments)})", TEXT)
    if name in STRINGS and count == 1:
        return Sql(f"{name}({_text(name, arguments[0])})", TEXT)
    raise UnsupportedFieldError(f"the function {name!r} with {count} arguments has no equivalent here")


def _text(function: str, value: Sql, *others: str) -> str:
    """Return a text for a function.

    :param others: the types that it also takes, as their text.
    """
    if value.kind == TEXT:
        return value.text
    if value.kind not in (NULL, *others):
        raise UnsupportedFieldError(f"{function!r} needs text; {value.text} is {value.kind}")
    return f"CAST({value.text} AS STRING)"


def _first_given(values: Sequence[Sql]) -> Sql:
    values = _alike(values)
    return Sql(f"coalesce({', '.join(each.text for each in values)})", values[0].kind)


def _case(whens: Sequence[tuple[str, Sql]], otherwise: Sql | None) -> Sql:
    results = _alike([*(then for _, then in whens), *([] if otherwise is None else [otherwise])])
    cases = " ".join(f"WHEN {when} THEN {then.text}" for (when, _), then in zip(whens, results, strict=False))
    last = "" if otherwise is None else f" ELSE {results[-1].text}"
    return Sql(f"(CASE {cases}{last} END)", results[0].kind)


def _alike(values: Sequence[Sql]) -> list[Sql]:
    """Return values of one type, of which one is the result."""
    plain = [stored(each) for each in values]
    kinds = {each.kind for each in plain} - {NULL}
    if len(kinds) > 1:
        raise UnsupportedFieldError(f"its results have the types {', '.join(sorted(kinds))}; give them one")
    kind = next(iter(kinds), NULL)
    return [Sql(each.text, kind) for each in plain]


def stored(value: Sql) -> Sql:
    """Return a value as Druid stores it: a truth is 1 or 0."""
    return Sql(f"CAST({value.text} AS BIGINT)", WHOLE) if value.kind == TRUTH else value


def as_column(value: Sql, kind: str | None) -> Sql:
    """Return a value as a column of a type.

    :param kind: the type that Druid's spec gives the column; None if it gives none.
    :raises UnsupportedFieldError: if Druid would change the value.
    """
    value = stored(value)
    wanted = kind or (TEXT if value.kind == NULL else value.kind)
    if value.kind == wanted:
        return value
    is_kept = value.kind == NULL or wanted == TEXT or (value.kind in NUMBERS and wanted in (DOUBLE, "FLOAT"))
    if not is_kept:
        raise UnsupportedFieldError(f"its result is {value.kind}, and the column is {wanted}")
    return Sql(f"CAST({value.text} AS {wanted})", wanted)
