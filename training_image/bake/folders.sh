#!/usr/bin/env bash
# In the folders that jobs write to, the agent must follow no symbolic link: it would read, for a job, what only the agent
# may. So before the agent starts, root mounts each over itself with `nosymfollow` (mount(8)). Jobs see them without it.
set -euo pipefail

readonly home=/var/lib/everspot

install -d -o everspot -g everspot -m 0700 "$home"
for name in runs work tmp; do
    # As the agent: in a folder of its own root makes nothing.
    setpriv --reuid=everspot --regid=everspot --clear-groups mkdir -p -m 0700 "$home/$name"
    if ! mountpoint --quiet "$home/$name"; then
        mount -o bind,nosymfollow "$home/$name" "$home/$name"
    fi
done
