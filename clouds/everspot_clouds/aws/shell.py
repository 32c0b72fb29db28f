"""Access to an instance through Session Manager: command lines of the AWS CLI, which starts the plugin."""

import json
from collections.abc import Mapping

from everspot_clouds.base import Handover

COMMAND, PORT = "AWS-StartInteractiveCommand", "AWS-StartPortForwardingSession"
"""Documents of Session Manager that every account has."""
PLUGIN = "session-manager-plugin"


class SessionManager:
    """See `everspot_clouds.base.RemoteAccess`. The plugin reports no exit code of the command that ran."""

    def __init__(self, region: str) -> None:
        self._region = region

    def enter(self, instance_id: str, command: str) -> Handover:
        """See `RemoteAccess`."""
        return self._session(instance_id, COMMAND, {"command": [command]})

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """See `RemoteAccess`."""
        return self._session(instance_id, PORT, {"portNumber": [str(port)], "localPortNumber": [str(local)]})

    def _session(self, instance_id: str, document: str, parameters: Mapping[str, list[str]]) -> Handover:
        arguments = ("--target", instance_id, "--document-name", document, "--parameters", json.dumps(parameters))
        return Handover(
            command=("aws", "ssm", "start-session", *arguments, *(("--region", self._region) if self._region else ())),
            needs=(("aws", "the AWS CLI"), (PLUGIN, f"the {PLUGIN}")),
            install="Session Manager needs both: AWS Systems Manager User Guide, Install the Session Manager plugin",
            denied="is `sessionManager: true` set for the cluster, and may you call ssm:StartSession?",
        )
