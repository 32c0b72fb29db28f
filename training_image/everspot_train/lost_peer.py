"""Recognizes the error of a process whose peer has ended: the cause is the peer's own error."""

import re

# Gloo names its source file in each error of a connection (gloo/transport/tcp/pair.cc). NCCL: ncclRemoteError in
# nccl.h, and its text in torch's NCCLUtils.cpp. The store of c10d: TCPStore.cpp and socket.cpp.
_LOST_PEER = re.compile(
    r"gloo[/\\]transport|ncclRemoteError|remote process exited|Connection was likely closed|remote server shutdown"
)


def is_lost_peer(message: str) -> bool:
    """Return whether an exception says only that another process of the job is gone."""
    return _LOST_PEER.search(message) is not None
