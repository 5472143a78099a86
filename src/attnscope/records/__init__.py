"""What was measured of a prompt, with labelled axes."""

from attnscope.records.labelled import Labelled
from attnscope.records.outcome import Outcome, Scores
from attnscope.records.record import DEFINED, HEAD_AXES, KEY_AXES, RECEIVED, SEEN, UNIFORM, VIEW, Record

__all__ = [
    "DEFINED",
    "HEAD_AXES",
    "KEY_AXES",
    "RECEIVED",
    "SEEN",
    "UNIFORM",
    "VIEW",
    "Labelled",
    "Outcome",
    "Record",
    "Scores",
]
