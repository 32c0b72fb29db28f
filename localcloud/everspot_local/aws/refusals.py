"""Stands in for AWS's error envelopes: a refusal that every service says in its own protocol.

moto would wrap all of them as the query protocol does, with status 400. S3's refusals are not made here: see `s3_door`.
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any
from xml.sax.saxutils import escape

from moto.core.common_types import TYPE_RESPONSE
from moto.core.exceptions import ServiceException
from moto.core.responses import BaseResponse

NOT_IMPLEMENTED = 501
_WITHOUT_A_BODY = ("eks",)
"""Services that answer in JSON also to requests that have no body, and so no content type."""
_call_action = BaseResponse.call_action


class Refused(ServiceException):
    """A call that a service refuses. `status`: of the HTTP answer."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(code, message)
        self.status = status


def call_action(self: BaseResponse) -> TYPE_RESPONSE:
    """Carry out an action as moto does, with our refusals in the service's own protocol.

    What moto does not implement is refused by name, with status 501: clients try a status of 500 again and again.
    """
    try:
        return _call_action(self)
    except Refused as error:
        return _answer(self, error)
    except NotImplementedError as error:
        operation = str(error).partition(" has not been implemented")[0] or self._get_action()
        message = f"The local cloud does not support this call of {self.service_name}: {operation}."
        return _answer(self, Refused("NotImplemented", message, NOT_IMPLEMENTED))


def in_own_words(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a method of moto's, so that our refusals are answered in the service's own protocol, which moto's errors
    cannot express."""

    @wraps(method)
    def answered(self: Any) -> Any:
        try:
            return method(self)
        except Refused as error:
            status, headers, body = _answer(self, error)
            return body, {**headers, "status": status}  # which is where moto looks for it

    return answered


def _answer(handler: Any, error: Refused) -> TYPE_RESPONSE:
    content_type = handler.headers.get("Content-Type", "")
    if "json" in content_type or handler.service_name in _WITHOUT_A_BODY:
        headers = {"Content-Type": content_type or "application/json", "x-amzn-errortype": error.code}
        return error.status, headers, json.dumps({"__type": error.code, "message": error.message})
    elements = f"<Code>{error.code}</Code><Message>{escape(error.message)}</Message>"
    if handler.service_name == "ec2":
        body = f"<Response><Errors><Error>{elements}</Error></Errors><RequestID>local</RequestID></Response>"
    else:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type>{elements}</Error><RequestId>local</RequestId></ErrorResponse>"
        )
    return error.status, {"Content-Type": "text/xml"}, body
