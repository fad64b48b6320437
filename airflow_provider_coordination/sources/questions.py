"""What a user is asked for a first spec. Each kind of source has its questions."""

from __future__ import annotations

import re
from dataclasses import dataclass

PATH = r"/.*|[a-z][a-z0-9+.-]*://.+"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One value that a spec needs.

    :param option: the option of the command that answers it, without `--`.
    :param text: the question.
    :param field: the field of the source or the sink; a field of the spec begins with `/`.
    :param default: the answer if the user gives none; None if the user must answer.
    :param pattern: what every answer matches as a whole; None if the spec checks it.
    :param words: what an answer must be, in an error.
    :param only_on_s3: the question whose answer must be on S3, by its option; None to ask always.
    """

    option: str
    text: str
    field: str
    default: str | None = None
    pattern: str | None = None
    words: str = ""
    only_on_s3: str | None = None

    def problem(self, answer: str) -> str | None:
        """Return what is wrong with an answer; None if nothing is, as far as the question knows."""
        if not answer.strip():
            return "must not be empty"
        if self.pattern is not None and not re.fullmatch(self.pattern, answer):
            return f"must be {self.words}; got {answer!r}"
        return None


def place_question(option: str, text: str, field: str) -> Question:
    """Return the question for a folder or a location of objects; see `Question`."""
    return Question(
        option=option,
        text=text,
        field=field,
        pattern=PATH,
        words="an absolute path or a URI that the driver and every executor reach, such as s3://lake/clicks",
    )


def aws_question(option: str = "source-conn-id", *, only_on_s3: str | None = None) -> Question:
    """Return the question for the connection to AWS; see `Question`."""
    text = "Airflow connection to AWS"
    return Question(option=option, text=text, field="aws_conn_id", default="aws_default", only_on_s3=only_on_s3)


def table_question(field: str) -> Question:
    """Return the question for a table of DynamoDB; see `Question`."""
    words = "a name of 3 to 255 letters, digits, '_', '.' and '-', or an ARN"
    return Question(
        option="from-table", text="DynamoDB table", field=field, pattern=r"[\w.-]{3,255}|arn:[\w:/.-]+", words=words
    )
