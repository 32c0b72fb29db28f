"""Renders reports as one comment for all environments, and as the run's summary.

No value of a report can become markup: each is in a code span or a fence, without characters that would end it.
"""

from everspot_review.markdown.comment import COMMENT_AT_MOST, SUMMARY_AT_MOST, comment, summary
from everspot_review.markdown.digests import MARKER, digests

__all__ = ["COMMENT_AT_MOST", "MARKER", "SUMMARY_AT_MOST", "comment", "digests", "summary"]
