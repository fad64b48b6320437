from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.sources.json_documents import JsonDocuments, JsonDocumentsError, objects_in

TEXTS = st.text(alphabet='{}[]",:\\\n\r\t aé', max_size=6)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(
    st.tuples(st.dictionaries(TEXTS, VALUES, max_size=3), st.sampled_from([None, 0, 2]), st.booleans()), max_size=4
)


@given(objects=OBJECTS, between=st.sampled_from(["\n", "\r\n", " \n\n ", " ", ""]))
def test_objects_are_found_however_they_are_arranged(objects: list[tuple[Any, int | None, bool]], between: str) -> None:
    texts = [json.dumps(each, indent=indent, ensure_ascii=is_ascii) for each, indent, is_ascii in objects]
    assert objects_in(between.join(texts).encode()) == [text.encode() for text in texts]


@given(data=st.lists(st.sampled_from(["{", "}", "\n", " ", '"', "a", ":", ",", "1", '{"a":1}'])).map("".join))
def test_lines_are_objects_only_if_a_parser_agrees(data: str) -> None:
    try:
        expected = [data.encode()[start:end] for start, end in JsonDocuments().spans(data.encode(), is_end=True)]
    except JsonDocumentsError:
        expected = []
    found = []
    try:
        found = objects_in(data.encode())
        parsed = [json.loads(each) for each in found]
    except ValueError:
        parsed = []
    if parsed and all(isinstance(each, dict) for each in parsed):
        assert found == expected


def test_text_after_an_object_on_a_line_is_an_error() -> None:
    with pytest.raises(JsonDocumentsError, match="there is no object at byte 7"):
        objects_in(b'{"a":1}x}\n{"a":2}')
