"""Queries to a cloud at preview. Each returns the answer, or one sentence with the failure and its fix.

The output forms of the SDKs' functions (`get_vpc_output` and the like) are not used, because their failures always end
the program with a traceback and cannot be caught.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from everspot_core.validation.problems import cut

Answer = dict[str, Any]


@dataclass(frozen=True)
class InvokedProvider:
    """The provider that is asked. `package`: its package. `credentials`: the sentence for somebody who is not signed
    in. `signed_out`: phrases of the provider's error in that case."""

    package: str
    credentials: str
    signed_out: tuple[str, ...]

    def is_signed_out(self, error: Exception) -> bool:
        """Return whether an error says that nobody is signed in."""
        return any(phrase in str(error) for phrase in self.signed_out)

    def invoke(
        self,
        options: pulumi.InvokeOptions,
        token: str,
        inputs: Mapping[str, Any],
        *,
        failed: str | Callable[[Exception], Any],
    ) -> pulumi.Output[Any]:
        """Call a function of the provider by its token, such as `ec2/getVpc:getVpc`. Inputs and answer are in
        camelCase.

        `failed`: the sentence with which the program ends on an error, or a function that gives a substitute answer.
        """

        async def call(resolved: Answer) -> Any:
            try:
                return await pulumi.runtime.invoke_async(f"{self.package}:{token}", resolved, options)
            except Exception as error:
                if callable(failed) and not self.is_signed_out(error):
                    return failed(error)
                message = self.credentials if self.is_signed_out(error) else failed
                raise pulumi.RunError(f"{message}\n  ({reason(error)})") from None

        return pulumi.Output.all(**inputs).apply(call)


def reason(error: Exception) -> str:
    """Return the message of the cloud or the provider, without the text that the engine and the SDK add around it."""
    text = " ".join(str(error).split())
    for before in ("returned an error: ", "failed: "):
        text = text.rpartition(before)[2] or text
    return cut(text, 400)
